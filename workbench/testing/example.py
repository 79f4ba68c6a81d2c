"""One request through two encoders, a thinker, a talker and a vocoder, small enough to check by hand.

Encoders ``ea`` (audio) and ``ev`` (vision) feed the thinker ``t``, which streams three chunks to the talker ``k``,
which streams them to the vocoder ``v``. Vision waits for request 9 until 10 ms, the thinker for request 8 until 60 ms;
those two never end. Outputs reach the client at 149, 179 and 209 ms: TTFA 149 ms, JCT 209 ms, join wait of the audio
branch 23 ms.
"""

from __future__ import annotations

from workbench.testing.tables import Row, Tables, from_rows, run_row
from workbench.units import MS_NS

# Moment 0 of the example on the run's clock.
ORIGIN_NS = 1_000 * MS_NS

REQUEST, BLOCKS_THINKER, BLOCKS_VISION = 1, 8, 9

_STAGES = (("client", "client"), ("ea", "encoder"), ("ev", "encoder"), ("t", "ar"), ("k", "ar"), ("v", "vocoder"))
_EDGES = (
    ("client", "ea", "audio", "whole"),
    ("client", "ev", "image", "whole"),
    ("ea", "t", "features", "whole"),
    ("ev", "t", "features", "whole"),
    ("t", "k", "hidden", "stream"),
    ("k", "v", "codes", "stream"),
    ("v", "client", "audio", "stream"),
)
_SAMPLE_RATE = 24_000
_SAMPLES = 720  # 30 ms

# name: stage, chunk, start, end (ms), cause, what caused it, request
_SERVICES: dict[str, tuple[str, int, int, int, str, str, int]] = {
    "r9": ("ev", 0, -10, 10, "data", "client>ev/r9", BLOCKS_VISION),
    "r8a": ("ea", 0, -20, -2, "data", "client>ea/r8", BLOCKS_THINKER),
    "r8": ("t", 0, 0, 60, "data", "ea>t/r8", BLOCKS_THINKER),
    "Ea": ("ea", 0, 0, 30, "data", "client>ea", REQUEST),
    "Ev": ("ev", 0, 10, 50, "resource", "r9", REQUEST),
    "T1": ("t", 0, 60, 100, "resource", "r8", REQUEST),
    "T2": ("t", 1, 100, 120, "state", "T1", REQUEST),
    "T3": ("t", 2, 120, 140, "state", "T2", REQUEST),
    "K1": ("k", 0, 101, 131, "data", "t>k/0", REQUEST),
    "K2": ("k", 1, 131, 161, "state", "K1", REQUEST),
    "K3": ("k", 2, 161, 191, "state", "K2", REQUEST),
    "V1": ("v", 0, 133, 148, "data", "k>v/0", REQUEST),
    "V2": ("v", 1, 163, 178, "data", "k>v/1", REQUEST),
    "V3": ("v", 2, 193, 208, "data", "k>v/2", REQUEST),
}
# name: edge, seq, sent, received, producer, consumer, request
_CHUNKS: dict[str, tuple[str, int, int, int, str, str | None, int]] = {
    "client>ev/r9": ("client>ev", 0, -10, -10, "arrival/9", "r9", BLOCKS_VISION),
    "client>ea/r8": ("client>ea", 0, -20, -20, "arrival/8", "r8a", BLOCKS_THINKER),
    "ea>t/r8": ("ea>t", 0, -2, 0, "r8a", "r8", BLOCKS_THINKER),
    "client>ea": ("client>ea", 0, 0, 0, "arrival/1", "Ea", REQUEST),
    "client>ev": ("client>ev", 0, 0, 0, "arrival/1", "Ev", REQUEST),
    "ea>t": ("ea>t", 0, 30, 32, "Ea", "T1", REQUEST),
    "ev>t": ("ev>t", 0, 50, 55, "Ev", "T1", REQUEST),
    "t>k/0": ("t>k", 0, 100, 101, "T1", "K1", REQUEST),
    "t>k/1": ("t>k", 1, 120, 121, "T2", "K2", REQUEST),
    "t>k/2": ("t>k", 2, 140, 141, "T3", "K3", REQUEST),
    "k>v/0": ("k>v", 0, 131, 133, "K1", "V1", REQUEST),
    "k>v/1": ("k>v", 1, 161, 163, "K2", "V2", REQUEST),
    "k>v/2": ("k>v", 2, 191, 193, "K3", "V3", REQUEST),
    "v>client/0": ("v>client", 0, 148, 149, "V1", None, REQUEST),
    "v>client/1": ("v>client", 1, 178, 179, "V2", None, REQUEST),
    "v>client/2": ("v>client", 2, 208, 209, "V3", None, REQUEST),
}
# kind, stage, start, end, cause, what ended it
_WAITS = (
    ("queue", "ev", 0, 10, "resource", "r9"),
    ("join_wait", "t", 32, 55, "data", "ev>t"),
    ("queue", "t", 55, 60, "resource", "r8"),
)
_ARRIVALS = {BLOCKS_THINKER: -20, BLOCKS_VISION: -10, REQUEST: 0}
_END = 209


def worked_example() -> Tables:
    """The tables of the example as a measured run labelled ``worked-example``; every value is fixed.

    Returns
    -------
    dict of str to pyarrow.Table
        Tables run, proc, stage, edge, request, outcome, span, chunk and batch.
    """
    names = [f"arrival/{request}" for request in _ARRIVALS] + list(_SERVICES) + list(_CHUNKS)
    ids = {name: number for number, name in enumerate(names, start=1)}
    spans = [_arrival(ids[f"arrival/{request}"], request, at) for request, at in _ARRIVALS.items()]
    batches: list[Row] = []
    taken = {}
    for name, (stage, chunk, start, end, cause, by, request) in _SERVICES.items():
        spans.append(_span(ids[name], request, stage, chunk, "service", start, end, cause, ids[by], ids[name]))
        batches.append(_batch(ids[name], stage, start, end))
        taken[name] = start
    for number, (kind, stage, start, end, cause, by) in enumerate(_WAITS, start=len(names) + 1):
        spans.append(_span(number, REQUEST, stage, 0, kind, start, end, cause, ids[by], None))
    chunks = []
    for name, (edge, seq, sent, received, producer, consumer, request) in _CHUNKS.items():
        took = received if consumer is None else taken[consumer]
        row = _chunk(ids[name], edge, request, seq, sent, received, took, ids[producer])
        chunks.append(row | {"consumer_span": None if consumer is None else ids[consumer]})
    return from_rows(
        {
            "run": [
                run_row("worked-example", _ns(min(_ARRIVALS.values())), _ns(_END), events=len(names) + len(_WAITS))
            ],
            "proc": [{"proc": 1, "name": "all", "host": "example", "boot_id": "0"}],
            "stage": [
                {"stage": stage, "role": role, "replicas": 1, "device": "cpu", "batch_limit": 1, "weights": "none"}
                for stage, role in _STAGES
            ],
            "edge": [
                {"edge": f"{a}>{b}", "source": a, "target": b, "modality": m, "kind": kind, "transport": "in-process"}
                for a, b, m, kind in _EDGES
            ],
            "request": [
                {"request": request, "class": "example", "tenant": "example", "weight": 1.0}
                | {"scheduled_ns": _ns(at), "arrival_ns": _ns(at)}
                for request, at in _ARRIVALS.items()
            ],
            "outcome": [
                {"request": REQUEST, "status": "ok", "first_output_ns": _ns(149), "end_ns": _ns(_END)}
                | {"output_units": 3 * _SAMPLES},
                {"request": BLOCKS_THINKER, "status": "unfinished"},
                {"request": BLOCKS_VISION, "status": "unfinished"},
            ],
            "span": spans,
            "batch": batches,
            "chunk": chunks,
        }
    )


def _ns(moment_ms: int) -> int:
    return ORIGIN_NS + moment_ms * MS_NS


def _span(
    span: int,
    request: int,
    stage: str,
    chunk: int,
    kind: str,
    start: int,
    end: int,
    cause: str,
    cause_span: int | None,
    batch: int | None,
) -> Row:
    return {
        "span": span,
        "request": request,
        "stage": stage,
        "replica": 0,
        "epoch": 0,
        "chunk": chunk,
        "kind": kind,
        "start_ns": _ns(start),
        "end_ns": _ns(end),
        "cause": cause,
        "cause_span": cause_span,
        "batch": batch,
        "proc": 1,
    }


def _arrival(span: int, request: int, at: int) -> Row:
    return _span(span, request, "client", -1, "host", at, at, "arrival", None, None)


def _batch(batch: int, stage: str, start: int, end: int) -> Row:
    return {
        "batch": batch,
        "stage": stage,
        "replica": 0,
        "members": 1,
        "limit": 1,
        "closed_by": "full",
        "dispatch_ns": _ns(start),
        "end_ns": _ns(end),
    }


def _chunk(span: int, edge: str, request: int, seq: int, sent: int, received: int, taken: int, producer: int) -> Row:
    source, target = edge.split(">")
    kind = next(kind for a, b, _, kind in _EDGES if (a, b) == (source, target))
    row: Row = {
        "span": span,
        "edge": edge,
        "request": request,
        "epoch": 0,
        "seq": seq,
        "bytes": 1_000,
        "units": 1,
        "emitted_ns": _ns(sent),
        "sent_ns": _ns(sent),
        "received_ns": _ns(received),
        "taken_ns": _ns(taken),
        "producer_span": producer,
        "final": kind == "whole" or seq == 2,
    }
    if edge == "v>client":
        row |= {"units": _SAMPLES, "bytes": 2 * _SAMPLES, "sample_start": seq * _SAMPLES, "samples": _SAMPLES}
        row |= {"sample_rate": _SAMPLE_RATE, "frame_start": seq, "frames": 1, "state_generation": 0}
    return row
