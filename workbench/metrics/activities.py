"""Activities of a run: its services and hand-offs as flat arrays in an order in which causes come first.

An activity is an interval in which something happened for a request: a ``service`` or ``preprocess`` span, a chunk on
its way (``transfer``, or ``deliver`` when the edge leads to a client), or the client's own ``host`` span between the
scheduled and the actual arrival. Members of one launch are neighbors in the arrays, so a launch is a slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.errors import DataIntegrityError
from workbench.metrics.tables import NONE, Bools, Finder, Ints, codes, need, whole
from workbench.schema.enums import CAUSE, OUTCOME_STATUS, SPAN_KIND

SERVICE, PREPROCESS, TRANSFER, DELIVER, HOST = (
    SPAN_KIND.index(kind) for kind in ("service", "preprocess", "transfer", "deliver", "host")
)

# Bits of Activities.output: consumable output at a client, last of its stream at a client.
CONSUMABLE, FINAL = 1, 2

# Columns of Activities that come from the tables; small numbers are kept small, they are read at random.
_TYPES = (
    dict.fromkeys(("span", "request", "start_ns", "end_ns", "taken_ns", "cause_span"), np.int64)
    | dict.fromkeys(("consumer", "batch"), np.int64)
    | {"chunk": np.int32}
    | dict.fromkeys(("epoch", "stage", "edge", "replica", "kind", "cause", "output"), np.int16)
)

VIOLATION_COLUMNS = {
    "code": pl.String,
    "request": pl.Int64,
    "span": pl.Int64,
    "other": pl.Int64,
    "excess_ns": pl.Int64,
    "excluded": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class Places:
    """Stages and edges by number.

    Attributes
    ----------
    stages, edges : tuple of str
        Names in alphabetical order; the number of a stage or edge is its position here.
    client : ndarray of bool, shape (n_stages,)
        Whether the stage is a client.
    source, target : ndarray of int16, shape (n_edges,)
        Stage numbers of the edge's ends.
    audio : ndarray of bool, shape (n_edges,)
        Whether the edge carries audio: its output counts in samples, other output in units.
    """

    stages: tuple[str, ...]
    edges: tuple[str, ...]
    client: Bools
    source: Ints
    target: Ints
    audio: Bools

    @classmethod
    def of(cls, stage: pl.DataFrame, edge: pl.DataFrame) -> Places:
        """Number the rows of tables `stage` and `edge`."""
        need(stage, "stage")
        need(edge, "edge")
        stage = stage.with_columns(pl.col("stage").cast(pl.String)).sort("stage")
        edge = edge.with_columns(pl.col("edge").cast(pl.String)).sort("edge")
        names = tuple(stage["stage"])
        return cls(
            stages=names,
            edges=tuple(edge["edge"]),
            client=(stage["role"].cast(pl.String) == "client").to_numpy(),
            source=codes(edge, "source", names, "edge"),
            target=codes(edge, "target", names, "edge"),
            audio=(edge["modality"].cast(pl.String) == "audio").to_numpy(),
        )


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests by number, in order of their id.

    Attributes
    ----------
    request, scheduled_ns : ndarray of int64, shape (n_requests,)
        Id and planned arrival.
    family : ndarray of int64, shape (n_requests,)
        Number of the request at the root of ``parent_request``: a request and its companions share one.
    status : ndarray of int16, shape (n_requests,)
        Position in OUTCOME_STATUS, -1 where no outcome is known.
    """

    request: Ints
    scheduled_ns: Ints
    family: Ints
    status: Ints

    @classmethod
    def of(cls, request: pl.DataFrame, outcome: pl.DataFrame | None) -> Requests:
        """Number the rows of table `request`; raises DataIntegrityError on a duplicate id or a circle of parents."""
        need(request, "request")
        request = request.sort("request")
        ids = whole(request, "request", "request")
        find = Finder(ids)
        twice = find.repeated()
        if len(twice):
            raise DataIntegrityError("one row per request", f"request {ids[twice[0]]} twice", where="table request")
        status = np.full(len(ids), NONE, dtype=np.int16)
        if outcome is not None:
            need(outcome, "outcome")
            at = find(whole(outcome, "request", "outcome"))
            status[at[at >= 0]] = codes(outcome, "status", OUTCOME_STATUS, "outcome")[at >= 0]
        return cls(
            ids,
            whole(request, "scheduled_ns", "request"),
            _roots(find(whole(request, "parent_request", "request", NONE))),
            status,
        )


@dataclass(frozen=True, slots=True)
class Activities:
    """Activities as parallel arrays of length n, sorted so that every dependency stands before what depends on it.

    Attributes
    ----------
    span : int64
        Id of the span or chunk.
    request, epoch, chunk, stage, edge, replica : integers
        Where it belongs; `request`, `stage` and `edge` are numbers. `edge` is -1 for spans; for a chunk, `stage` is the
        producing stage and `chunk` the sequence number.
    kind, cause : int16
        Positions in SPAN_KIND and CAUSE. The cause of a chunk is data, the end of the service that produced it;
        arrival if it is the client's and names none.
    start_ns, end_ns : int64
        Interval; a chunk's runs from sent to received.
    taken_ns : int64
        When the consumer took the chunk over; equal to `end_ns` where unknown.
    cause_span, consumer, batch : int64
        Ids as recorded, -1 where there is none; the `cause_span` of a chunk is its producer.
    output : int16
        Bits CONSUMABLE and FINAL.
    launch : int64
        Number of the launch; an activity without batch is a launch of its own.
    launch_ptr : int64, length n_launches + 1
        Members of launch k are the activities ``launch_ptr[k]`` to ``launch_ptr[k + 1]``.
    """

    span: Ints
    request: Ints
    epoch: Ints
    chunk: Ints
    stage: Ints
    edge: Ints
    replica: Ints
    kind: Ints
    cause: Ints
    start_ns: Ints
    end_ns: Ints
    taken_ns: Ints
    cause_span: Ints
    consumer: Ints
    batch: Ints
    output: Ints
    launch: Ints
    launch_ptr: Ints

    def __len__(self) -> int:
        return len(self.span)

    def reordered(self, level: Ints) -> Activities:
        """The same activities sorted by (start, level, end, batch, id); `level` is equal within a launch."""
        columns = {name: getattr(self, name) for name in _TYPES}
        order = _order(columns, level)
        return _launched({name: column[order] for name, column in columns.items()})


def read_activities(
    span: pl.DataFrame, chunk: pl.DataFrame, places: Places, requests: Requests
) -> tuple[Activities, list[pl.DataFrame]]:
    """Collect the activities of tables `span` and `chunk`, and the rows that break the contract.

    Returns
    -------
    activities : Activities
        Rows with a known request and a length of at least 0; of the chunks, those that were received.
    violations : list of polars.DataFrame
        Columns VIOLATION_COLUMNS. Codes: ``unknown-request`` and ``reversed`` (both left out of the graph),
        ``before-arrival`` (starts before its request was due), ``split-launch`` (members of a batch that differ in
        interval, stage or replica; each piece becomes a launch).
    """
    parts, violations = [], []
    for part in (_of_spans(span, places), _of_chunks(chunk, places)):
        number = Finder(requests.request)(part["request"])
        length = part["end_ns"] - part["start_ns"]
        strange, negative = np.flatnonzero(number < 0), np.flatnonzero(length < 0)
        violations += [
            violation_rows("unknown-request", part["request"], part["span"], strange, excluded=False),
            violation_rows("reversed", part["request"], part["span"], negative, excess_ns=-length[negative]),
        ]
        part["request"] = number
        if len(strange) or len(negative):
            kept = (number >= 0) & (length >= 0)
            part = {name: column[kept] for name, column in part.items()}
        parts.append(part)
    found = _launched(_sorted(parts))

    early = requests.scheduled_ns[found.request] - found.start_ns
    first_batch = found.batch[found.launch_ptr[:-1]]
    pieces, count = np.unique(first_batch[first_batch >= 0], return_counts=True)
    split = np.flatnonzero(np.isin(found.batch, pieces[count > 1])) if np.any(count > 1) else pieces[:0]
    at = np.flatnonzero(early > 0)
    violations += [
        violation_rows("before-arrival", requests.request[found.request], found.span, at, excess_ns=early[at]),
        violation_rows("split-launch", requests.request[found.request], found.span, split, other=found.batch[split]),
    ]
    return found, violations


def violation_rows(
    code: str,
    request: Ints,
    span: Ints,
    at: Ints,
    *,
    other: Ints | None = None,
    excess_ns: Ints | None = None,
    excluded: bool = True,
) -> pl.DataFrame:
    """Rows of the violations frame.

    `request` and `span` are read at the positions `at`; `other` and `excess_ns` have one value per row. `excluded` says
    whether the request leaves the analysis.
    """
    nothing = pl.repeat(None, len(at), dtype=pl.Int64, eager=True)
    return pl.DataFrame(
        {
            "code": pl.repeat(code, len(at), eager=True),
            "request": request[at],
            "span": span[at],
            "other": nothing if other is None else other,
            "excess_ns": nothing if excess_ns is None else excess_ns,
            "excluded": pl.repeat(excluded, len(at), eager=True),
        },
        schema=VIOLATION_COLUMNS,
    )


def _roots(parent: Ints) -> Ints:
    """Root of every request in the forest `parent` (-1 at roots), by pointer doubling."""
    root = np.where(parent >= 0, parent, np.arange(len(parent)))
    for _ in range(len(parent).bit_length() + 1):
        above = root[root]
        if np.array_equal(above, root):
            break
        root = above
    if np.any(parent[root] >= 0):
        raise DataIntegrityError(
            "parents that end", "a request that is its own ancestor", where="request.parent_request"
        )
    return root


def _of_spans(span: pl.DataFrame, places: Places) -> dict[str, Ints]:
    """Arrays of the spans that are activities, without the columns that only chunks have."""
    need(span, "span")
    stage = codes(span, "stage", places.stages, "span")
    kind = codes(span, "kind", SPAN_KIND, "span")
    work = (kind == SERVICE) | (kind == PREPROCESS) | ((kind == HOST) & places.client[stage])
    rows = span.filter(pl.Series(work))
    end, replica = whole(rows, "end_ns", "span"), whole(rows, "replica", "span")
    if len(rows) and replica.min() < 0:
        raise DataIntegrityError("replicas from 0", str(replica.min()), where="span.replica")
    return {
        "span": whole(rows, "span", "span"),
        "request": whole(rows, "request", "span"),
        "epoch": whole(rows, "epoch", "span"),
        "chunk": whole(rows, "chunk", "span"),
        "stage": stage[work],
        "replica": replica,
        "kind": kind[work],
        "cause": codes(rows, "cause", CAUSE, "span"),
        "start_ns": whole(rows, "start_ns", "span"),
        "end_ns": end,
        "taken_ns": end,
        "cause_span": whole(rows, "cause_span", "span", NONE),
        "batch": whole(rows, "batch", "span", NONE),
    }


def _of_chunks(chunk: pl.DataFrame, places: Places) -> dict[str, Ints]:
    """Arrays of the chunks that were received, without the columns that only spans have."""
    need(chunk, "chunk")
    rows = chunk.filter(pl.col("received_ns").is_not_null())
    edge = codes(rows, "edge", places.edges, "chunk")
    client = places.client[places.target][edge]
    amount = np.where(places.audio[edge], whole(rows, "samples", "chunk", 0), whole(rows, "units", "chunk", 0))
    producer = whole(rows, "producer_span", "chunk", NONE)
    nobodys = np.where(places.client[places.source][edge], CAUSE.index("arrival"), CAUSE.index("unknown"))
    final = rows["final"].fill_null(False).to_numpy()
    return {
        "span": whole(rows, "span", "chunk"),
        "request": whole(rows, "request", "chunk"),
        "epoch": whole(rows, "epoch", "chunk"),
        "chunk": whole(rows, "seq", "chunk"),
        "stage": places.source[edge],
        "edge": edge,
        "kind": np.where(client, DELIVER, TRANSFER),
        "start_ns": whole(rows, "sent_ns", "chunk"),
        "end_ns": whole(rows, "received_ns", "chunk"),
        "taken_ns": rows["taken_ns"].cast(pl.Int64).fill_null(rows["received_ns"].cast(pl.Int64)).to_numpy(),
        "cause": np.where(producer == NONE, nobodys, CAUSE.index("data")),
        "cause_span": producer,
        "consumer": whole(rows, "consumer_span", "chunk", NONE),
        "output": np.where(client, CONSUMABLE * (amount > 0) + FINAL * final, 0),
    }


def _sorted(parts: list[dict[str, Ints]]) -> dict[str, Ints]:
    """Columns of all parts in one order; a column that a part lacks is NONE there, `output` 0."""
    sizes = [len(part["span"]) for part in parts]
    missing = [np.full(size, NONE, dtype=np.int64) for size in sizes]
    keys = {
        name: np.concatenate([part.get(name, none) for part, none in zip(parts, missing, strict=True)])
        for name in ("start_ns", "end_ns", "batch", "span")
    }
    order = _order(keys)
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    columns: dict[str, Ints] = {}
    for name, dtype in _TYPES.items():
        column: Ints = np.empty(len(order), dtype=dtype)
        for part, at in zip(parts, np.split(position, np.cumsum(sizes)[:-1]), strict=True):
            if name in part:
                # Cast first: NumPy scatters and casts at once six times slower.
                column[at] = part[name].astype(dtype, copy=False)
            else:
                column[at] = 0 if name == "output" else NONE
        columns[name] = column
    return columns


def _order(columns: dict[str, Ints], level: Ints | None = None) -> Ints:
    """Positions sorted by (start, level, end, batch, id)."""
    keys = {"start_ns": columns["start_ns"]} | ({} if level is None else {"level": level})
    keys |= {name: columns[name] for name in ("end_ns", "batch", "span")}
    table = pl.DataFrame(keys).with_row_index("position")
    return table.sort(*keys)["position"].cast(pl.Int64).to_numpy()


def _launched(columns: dict[str, Ints]) -> Activities:
    """Group sorted activities into launches: neighbors of equal batch, interval, stage and replica."""
    batch = columns["batch"]
    joined = (batch[1:] >= 0) & (batch[1:] == batch[:-1])
    for name in ("start_ns", "end_ns", "stage", "replica"):
        joined &= columns[name][1:] == columns[name][:-1]
    first = np.insert(~joined, 0, True)[: len(batch)]
    ptr = np.append(np.flatnonzero(first), len(batch))
    return Activities(**columns, launch=np.cumsum(first) - 1, launch_ptr=ptr)
