"""Slow and plain definitions of every view, written from the words of the contract and not from the SQL.

Each function takes a run as plain rows (and, for slowdown, all runs) and returns rows without the column ``run``.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from workbench.schema.enums import OUTCOME_STATUS
from workbench.schema.tables import TABLES
from workbench.testing.traces import Row, Tables, to_rows

WAITS = ("queue", "batch_wait", "credit_stall", "join_wait")
DEPTH_KINDS = ("queue", "batch_wait", "credit_stall")
WORK = ("service", "preprocess")


class Run:
    """Rows of a run by table, and the runs beside it in the store."""

    def __init__(self, rows: dict[str, list[Row]], others: dict[str, Run]) -> None:
        self.rows = rows
        self.others = others
        self.about = rows["run"][0]
        self.roles = {row["stage"]: row["role"] for row in rows["stage"]}
        self.edges = {row["edge"]: row for row in rows["edge"]}
        self.outcomes = {row["request"]: row for row in rows["outcome"]}

    def __getattr__(self, table: str) -> list[Row]:
        return self.rows[table]

    def role(self, stage: str) -> str:
        return self.roles[stage]

    def find_edge(self, name: str) -> Row:
        return self.edges[name]

    def find_outcome(self, request: int) -> Row | None:
        return self.outcomes.get(request)


def runs_of(stores: Iterable[Tables]) -> dict[str, Run]:
    runs: dict[str, Run] = {}
    for tables in stores:
        run = Run({name: to_rows(tables, name) for name in TABLES}, runs)
        runs[run.about["label"]] = run
    return runs


def quantile(values: list[int], level: float) -> int:
    value = float(np.quantile(np.array(values, dtype=float), level))
    return math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1)


@cache
def outputs(run: Run, request: int) -> list[Row]:
    """Chunks that the client took, oldest first."""
    rows = [
        row
        for row in run.chunk
        if row["request"] == request
        and run.role(run.find_edge(row["edge"])["target"]) == "client"
        and row["received_ns"] is not None
        and row["taken_ns"] is not None
    ]
    return sorted(rows, key=lambda row: (row["received_ns"], row["epoch"], row["seq"]))


def has_sound(row: Row) -> bool:
    return bool(row["samples"])


def is_consumable(run: Run, row: Row) -> bool:
    return has_sound(row) or (run.find_edge(row["edge"])["modality"] != "audio" and bool(row["units"]))


def duration(row: Row) -> int:
    return row["samples"] * 1_000_000_000 // row["sample_rate"]


def ttfo(run: Run) -> list[Row]:
    rows = []
    for request in run.request:
        first = next((c["received_ns"] for c in outputs(run, request["request"]) if is_consumable(run, c)), None)
        if first is None and (outcome := run.find_outcome(request["request"])):
            first = outcome["first_output_ns"]
        if first is not None:
            rows.append({"request": request["request"], "ttfo_ns": first - request["scheduled_ns"]})
    return rows


def ttft(run: Run) -> list[Row]:
    rows = []
    for request in run.request:
        number = request["request"]
        at_client = [
            c["received_ns"]
            for c in outputs(run, number)
            if run.find_edge(c["edge"])["modality"] == "text" and c["units"]
        ]
        at_stage = [
            c["emitted_ns"]
            for c in run.chunk
            if c["request"] == number
            and c["units"]
            and run.role(run.find_edge(c["edge"])["source"]) == "ar"
            and run.find_edge(c["edge"])["modality"] in ("text", "tokens")
        ]
        for scope, moments in (("client", at_client), ("stage", at_stage)):
            if moments:
                rows.append({"request": number, "scope": scope, "ttft_ns": min(moments) - request["scheduled_ns"]})
    return rows


def ttfa(run: Run) -> list[Row]:
    rows = []
    ends = [edge for edge in run.edge if run.role(edge["target"]) == "client"]
    stands_in = (
        bool(ends)
        and all(edge["modality"] == "audio" for edge in ends)
        and not any(outputs(run, request["request"]) for request in run.request)
    )
    for request in run.request:
        first = next((c["received_ns"] for c in outputs(run, request["request"]) if has_sound(c)), None)
        if stands_in and (outcome := run.find_outcome(request["request"])):
            first = outcome["first_output_ns"]
        if first is not None:
            rows.append({"request": request["request"], "ttfa_ns": first - request["scheduled_ns"]})
    return rows


def jct(run: Run) -> list[Row]:
    rows = []
    for request in run.request:
        outcome = run.find_outcome(request["request"])
        if outcome is None or outcome["status"] != "ok":
            continue
        finals = [c["received_ns"] for c in outputs(run, request["request"]) if c["final"]]
        end = max(finals) if finals else outcome["end_ns"]
        if end is not None:
            rows.append({"request": request["request"], "jct_ns": end - request["scheduled_ns"]})
    return rows


def audio(run: Run) -> list[Row]:
    rows = []
    for request in run.request:
        media = [
            c
            for c in outputs(run, request["request"])
            if c["samples"] is not None or run.find_edge(c["edge"])["modality"] == "audio"
        ]
        if not media:
            continue
        known = all(c["samples"] is not None and c["sample_rate"] is not None for c in media)
        rows.append(
            {
                "request": request["request"],
                "audio_s": math.fsum(c["samples"] / c["sample_rate"] for c in media) if known else None,
                "samples": sum(c["samples"] for c in media) if known else None,
            }
        )
    return rows


def rtf(run: Run) -> list[Row]:
    seconds = {row["request"]: row["audio_s"] for row in audio(run)}
    rows = []
    for request, audio_s in seconds.items():
        moments = [c["received_ns"] for c in outputs(run, request) if has_sound(c)]
        if audio_s and moments:
            rows.append({"request": request, "rtf": (moments[-1] - moments[0]) / 1e9 / audio_s})
    return rows


def jct_per_audio_s(run: Run) -> list[Row]:
    seconds = {row["request"]: row["audio_s"] for row in audio(run)}
    return [
        {"request": row["request"], "jct_per_audio_s": row["jct_ns"] / 1e9 / seconds[row["request"]]}
        for row in jct(run)
        if seconds.get(row["request"])
    ]


def streams(run: Run) -> dict[tuple[int, str], list[Row]]:
    """Sounding chunks per (request, client edge), in order of arrival."""
    found = defaultdict(list)
    for request in run.request:
        for c in outputs(run, request["request"]):
            if has_sound(c):
                found[request["request"], c["edge"]].append(c)
    return found


def jitter(run: Run) -> list[Row]:
    late = defaultdict(list)
    for (request, _), chunks in streams(run).items():
        for before, after in pairwise(chunks):
            late[request].append(after["received_ns"] - before["received_ns"] - duration(before))
    return [
        {
            "request": request,
            "iqr_ns": quantile(values, 0.75) - quantile(values, 0.25),
            "p99_ns": quantile(values, 0.99),
            "gaps": len(values),
        }
        for request, values in late.items()
    ]


def underrun(run: Run) -> list[Row]:
    """A player: it plays what it has and falls silent when the next chunk is late."""
    worst: dict[int, list[int]] = {}
    for (request, _), chunks in streams(run).items():
        playhead, silence, silences = chunks[0]["received_ns"], 0, 0
        for chunk in chunks:
            if chunk["received_ns"] > playhead:
                silence += chunk["received_ns"] - playhead
                silences += 1
                playhead = chunk["received_ns"]
            playhead += duration(chunk)
        before = worst.get(request, [0, 0])
        worst[request] = [max(before[0], silence), max(before[1], silences)]
    return [{"request": request, "underrun_ns": ns, "underruns": count} for request, (ns, count) in worst.items()]


def submit_lag(run: Run) -> list[Row]:
    return [
        {"request": row["request"], "submit_lag_ns": row["arrival_ns"] - row["scheduled_ns"]}
        for row in run.request
        if row["arrival_ns"] is not None
    ]


def alone(run: Run) -> dict[str, float]:
    """Mean completion time of each content in the isolated run."""
    other = run.others.get(run.about["isolated_run"] or "")
    if other is None:
        return {}
    content = {row["request"]: row["content"] for row in other.request}
    times = defaultdict(list)
    for row in jct(other):
        if content[row["request"]] is not None:
            times[content[row["request"]]].append(row["jct_ns"])
    return {key: sum(values) / len(values) for key, values in times.items()}


def slowdown(run: Run) -> list[Row]:
    content = {row["request"]: row["content"] for row in run.request}
    single = alone(run)
    return [
        {"request": row["request"], "slowdown": row["jct_ns"] / single[content[row["request"]]]}
        for row in jct(run)
        if single.get(content[row["request"]])
    ]


def recorded_wait(run: Run) -> list[Row]:
    own = run.about["probes"] == "on" and run.about["provenance"] in ("measured", "emulated", "replayed")
    return [{"kind": kind} for kind in WAITS if own or any(span["kind"] == kind for span in run.span)]


@cache
def stage_wait(run: Run) -> list[Row]:
    known = {row["kind"] for row in recorded_wait(run)}
    seen = sorted({(s["request"], s["stage"]) for s in run.span if s["kind"] in WAITS + WORK})
    rows = []
    for request, stage in seen:
        mine = [s for s in run.span if (s["request"], s["stage"]) == (request, stage)]
        waits = {
            kind: sum(s["end_ns"] - s["start_ns"] for s in mine if s["kind"] == kind) if kind in known else None
            for kind in WAITS
        }
        total = sum(value for value in waits.values() if value is not None) if known else None
        rows.append(
            {"request": request, "stage": stage, "wait_ns": total, **{f"{kind}_ns": waits[kind] for kind in WAITS}}
        )
    return rows


def of_stage_wait(kind: str) -> Callable[[Run], list[Row]]:
    return lambda run: [
        {"request": row["request"], "stage": row["stage"], f"{kind}_ns": row[f"{kind}_ns"]}
        for row in stage_wait(run)
        if row[f"{kind}_ns"] is not None
    ]


@cache
def stage_service(run: Run) -> list[Row]:
    rows = []
    for request, stage in sorted({(s["request"], s["stage"]) for s in run.span if s["kind"] in WORK}):
        mine = [
            s["end_ns"] - s["start_ns"]
            for s in run.span
            if s["kind"] in WORK and (s["request"], s["stage"]) == (request, stage)
        ]
        rows.append({"request": request, "stage": stage, "service_ns": sum(mine), "tasks": len(mine)})
    return rows


def stage_residency(run: Run) -> list[Row]:
    rows = []
    keys = {(s["request"], s["stage"], s["epoch"]) for s in run.span if s["kind"] in (*WAITS, *WORK, "residency")}
    for request, stage, epoch in keys:
        mine = [s for s in run.span if (s["request"], s["stage"], s["epoch"]) == (request, stage, epoch)]
        recorded = [s for s in mine if s["kind"] == "residency"]
        counted = recorded or [s for s in mine if s["kind"] in WAITS + WORK]
        enter = min(s["start_ns"] for s in counted)
        inputs = [
            c["received_ns"]
            for c in run.chunk
            if (c["request"], c["epoch"]) == (request, epoch)
            and run.find_edge(c["edge"])["target"] == stage
            and c["received_ns"] is not None
        ]
        if not recorded and inputs:
            enter = min(enter, *inputs)
        residency = max(s["end_ns"] for s in counted) - enter
        rows.append(
            {"request": request, "stage": stage, "epoch": epoch, "residency_ns": residency}
            | {"is_recorded": bool(recorded)}
        )
    return rows


def join_wait(run: Run) -> list[Row]:
    total: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for span in run.span:
        ready: dict[tuple[str, int], int] = {}
        for c in run.chunk:
            if c["consumer_span"] == span["span"] and c["received_ns"] is not None:
                branch = (c["edge"], c["request"])
                ready[branch] = max(ready.get(branch, c["received_ns"]), c["received_ns"])
        if len(ready) > 1:
            for (edge, branch_request), moment in ready.items():
                total[span["request"], span["stage"], edge, branch_request].append(max(ready.values()) - moment)
    return [
        dict(zip(("request", "stage", "edge", "branch_request"), key, strict=True))
        | {"join_wait_ns": sum(waits), "joins": len(waits)}
        for key, waits in total.items()
    ]


def edge_transfer(run: Run) -> list[Row]:
    rows = []
    for request, edge in {(c["request"], c["edge"]) for c in run.chunk}:
        mine = [c for c in run.chunk if (c["request"], c["edge"]) == (request, edge)]
        arrived = [c for c in mine if c["received_ns"] is not None]
        sizes = [c["bytes"] for c in mine]
        rows.append(
            {
                "request": request,
                "edge": edge,
                "transfer_ns": sum(c["received_ns"] - c["sent_ns"] for c in arrived) if arrived else None,
                "bytes": None if None in sizes else sum(sizes),
                "chunks": len(mine),
                "received": len(arrived),
            }
        )
    return rows


def stage_summary(run: Run) -> list[Row]:
    services = {(row["request"], row["stage"]): row["service_ns"] for row in stage_service(run)}
    rows = []
    for stage in {row["stage"] for row in stage_wait(run)}:
        mine = [row for row in stage_wait(run) if row["stage"] == stage]
        row = {"stage": stage, "requests": len(mine)}
        values = {
            "wait": [r["wait_ns"] for r in mine if r["wait_ns"] is not None],
            "service": [services[r["request"], stage] for r in mine if (r["request"], stage) in services],
        }
        for name, numbers in values.items():
            row |= {f"{name}_p50_ns": quantile(numbers, 0.5) if numbers else None}
            row |= {f"{name}_p95_ns": quantile(numbers, 0.95) if numbers else None}
            row |= {f"{name}_mean_ns": sum(numbers) // len(numbers) if numbers else None}
        rows.append(row)
    return rows


def batch_fill(run: Run) -> list[Row]:
    rows = []
    for stage in {row["stage"] for row in run.batch}:
        mine = [row for row in run.batch if row["stage"] == stage]
        limited = [row for row in mine if row["limit"] is not None]
        slots = sum(row["limit"] for row in limited)
        members = sum(row["members"] for row in mine)
        rows.append(
            {
                "stage": stage,
                "launches": len(mine),
                "members": members,
                "members_per_launch": members / len(mine),
                "limited_launches": len(limited),
                "slots": slots if limited else None,
                "fill": sum(row["members"] for row in limited) / slots if slots else None,
            }
        )
    return rows


@cache
def launch(run: Run) -> list[Row]:
    groups = defaultdict(list)
    for s in run.span:
        if s["kind"] in WORK:
            key = ("batch", s["batch"]) if s["batch"] is not None else ("span", s["span"])
            groups[s["stage"], s["replica"], *key].append(s)
    return [
        {
            "stage": stage,
            "replica": replica,
            "batch": members[0]["batch"],
            "first_span": min(s["span"] for s in members),
            "start_ns": min(s["start_ns"] for s in members),
            "end_ns": max(s["end_ns"] for s in members),
            "members": len(members),
        }
        for (stage, replica, *_), members in groups.items()
    ]


def covered(intervals: list[tuple[int, int]], low: int, high: int) -> int:
    """Length of [low, high) that at least one interval covers, one elementary piece at a time."""
    cuts = sorted({low, high, *(min(max(m, low), high) for pair in intervals for m in pair)})
    return sum(b - a for a, b in pairwise(cuts) if any(s <= a and b <= e for s, e in intervals))


def service_rate(run: Run) -> list[Row]:
    window = run.about["last_ns"] - run.about["first_ns"]
    rows = []
    for stage in {row["stage"] for row in launch(run)}:
        launches = [row for row in launch(run) if row["stage"] == stage]
        tasks = [row for row in stage_service(run) if row["stage"] == stage]
        busy = sum(row["end_ns"] - row["start_ns"] for row in launches)
        replicas = next(row["replicas"] for row in run.stage if row["stage"] == stage)
        rows.append(
            {
                "stage": stage,
                "replicas": replicas,
                "requests": len(tasks),
                "tasks": sum(row["tasks"] for row in tasks),
                "launches": len(launches),
                "busy_ns": busy,
                "service_per_s": len(tasks) * replicas * 1e9 / busy if busy else None,
                "arrival_per_s": len(tasks) * 1e9 / window if window else None,
                "load": busy / (replicas * window) if window else None,
            }
        )
    return rows


def shares(busy: int | None, window: int) -> Row:
    known = busy is not None and window > 0
    return {
        "busy_ns": busy,
        "window_ns": window,
        "busy_share": busy / window if known else None,
        "idle_share": 1 - busy / window if known else None,
    }


def replica_busy(run: Run) -> list[Row]:
    first, last = run.about["first_ns"], run.about["last_ns"]
    rows = []
    for stage in run.stage:
        if stage["role"] == "client":
            continue
        for replica in range(stage["replicas"]):
            mine = [
                (row["start_ns"], row["end_ns"])
                for row in launch(run)
                if (row["stage"], row["replica"]) == (stage["stage"], replica)
            ]
            busy = covered(mine, first, last) if launch(run) else None
            rows.append({"stage": stage["stage"], "replica": replica, **shares(busy, last - first)})
    return rows


def device_busy(run: Run) -> list[Row]:
    first, last = run.about["first_ns"], run.about["last_ns"]
    rows = []
    for device in {row["device"] for row in run.stage if row["role"] != "client"}:
        stages = {row["stage"] for row in run.stage if row["device"] == device}
        launches = [row for row in run.batch if row["stage"] in stages]
        timed = [
            (row["device_start_ns"], row["device_end_ns"])
            for row in launches
            if row["device_start_ns"] is not None and row["device_end_ns"] is not None
        ]
        reason = None
        if not launches:
            reason = "no launches recorded"
        elif not timed:
            reason = "no device clock"
        elif len(timed) < len(launches):
            reason = "some launches without device times"
        busy = None if reason else covered(timed, first, last)
        rows.append(
            {"device": device, "launches": len(launches), "timed_launches": len(timed)}
            | shares(busy, last - first)
            | {"reason": reason}
        )
    return rows


def steps(intervals: list[tuple[Any, int, int, int]]) -> list[tuple[Any, int, int]]:
    """Sum of weights of the (key, start, end, weight) that hold, at each moment at which one begins or ends."""
    rows = []
    for key in {key for key, *_ in intervals}:
        mine = [(start, end, weight) for k, start, end, weight in intervals if k == key]
        for moment in sorted({m for start, end, _ in mine for m in (start, end)}):
            rows.append((key, moment, sum(weight for start, end, weight in mine if start <= moment < end)))
    return rows


def queue_depth(run: Run) -> list[Row]:
    waits = [(s["stage"], s["start_ns"], s["end_ns"], 1) for s in run.span if s["kind"] in DEPTH_KINDS]
    return [{"stage": stage, "at_ns": at, "depth": depth} for stage, at, depth in steps(waits)]


def landed(run: Run, c: Row) -> int:
    if c["taken_ns"] is not None:
        return c["taken_ns"]
    outcome = run.find_outcome(c["request"])
    end = outcome["end_ns"] if outcome and outcome["end_ns"] is not None else run.about["last_ns"]
    return max(c["sent_ns"] if c["received_ns"] is None else c["received_ns"], end)


def in_flight(run: Run, edge: str | None, moment: int, known: bool) -> tuple[int | None, int]:
    held = [c for c in run.chunk if edge in (None, c["edge"]) and c["emitted_ns"] <= moment < landed(run, c)]
    return (sum(c["bytes"] for c in held) if known else None), len(held)


def edge_is_known(run: Run, edge: str | None) -> bool:
    return all(c["bytes"] is not None for c in run.chunk if edge in (None, c["edge"]))


def in_flight_series(run: Run, edge: str | None) -> list[tuple[int, int | None, int]]:
    mine = [c for c in run.chunk if edge in (None, c["edge"])]
    known = edge_is_known(run, edge)
    moments = sorted({m for c in mine for m in (c["emitted_ns"], landed(run, c))})
    return [(moment, *in_flight(run, edge, moment, known)) for moment in moments]


def in_flight_bytes(run: Run) -> list[Row]:
    return [
        {"edge": edge, "at_ns": moment, "bytes": size, "chunks": count}
        for edge in {c["edge"] for c in run.chunk}
        for moment, size, count in in_flight_series(run, edge)
    ]


def in_flight_high_water(run: Run) -> list[Row]:
    rows = []
    for edge in [*{c["edge"] for c in run.chunk}, *([None] if run.chunk else [])]:
        series = in_flight_series(run, edge)
        sizes = [size for _, size, _ in series]
        rows.append(
            {
                "edge": edge,
                "bytes": None if None in sizes else max(sizes),
                "chunks": max(count for _, _, count in series),
            }
        )
    return rows


def outcome_counts(run: Run) -> list[Row]:
    total = len(run.request)
    rows = []
    for status in OUTCOME_STATUS:
        count = sum(row["status"] == status for row in run.outcome)
        rows.append({"status": status, "requests": count, "scheduled": total, "share": count / total})
    return rows


@cache
def request_metrics(run: Run) -> list[Row]:
    def by_request(rows: list[Row]) -> dict[int, Row]:
        return {row["request"]: row for row in rows}

    sources = {
        "submit_lag_ns": (by_request(submit_lag(run)), "submit_lag_ns"),
        "ttfo_ns": (by_request(ttfo(run)), "ttfo_ns"),
        "ttft_ns": (by_request([r for r in ttft(run) if r["scope"] == "client"]), "ttft_ns"),
        "ttft_stage_ns": (by_request([r for r in ttft(run) if r["scope"] == "stage"]), "ttft_ns"),
        "ttfa_ns": (by_request(ttfa(run)), "ttfa_ns"),
        "jct_ns": (by_request(jct(run)), "jct_ns"),
        "rtf": (by_request(rtf(run)), "rtf"),
        "jct_per_audio_s": (by_request(jct_per_audio_s(run)), "jct_per_audio_s"),
        "jitter_iqr_ns": (by_request(jitter(run)), "iqr_ns"),
        "jitter_p99_ns": (by_request(jitter(run)), "p99_ns"),
        "underrun_ns": (by_request(underrun(run)), "underrun_ns"),
        "underruns": (by_request(underrun(run)), "underruns"),
        "audio_s": (by_request(audio(run)), "audio_s"),
        "samples": (by_request(audio(run)), "samples"),
        "slowdown": (by_request(slowdown(run)), "slowdown"),
    }
    waits, services = stage_wait(run), stage_service(run)
    rows = []
    for request in run.request:
        number = request["request"]
        outcome = run.find_outcome(number) or {}
        row = {name: request[name] for name in ("request", "class", "tenant", "weight", "scheduled_ns", "content")}
        row |= {name: outcome.get(name) for name in ("status", "quality", "quality_metric")}
        row |= {name: rows_of.get(number, {}).get(column) for name, (rows_of, column) in sources.items()}
        for name in ("wait_ns", *(f"{kind}_ns" for kind in WAITS)):
            mine = [r[name] for r in waits if r["request"] == number and r[name] is not None]
            row[name] = sum(mine) if mine else None
        mine = [r["service_ns"] for r in services if r["request"] == number]
        row["service_ns"] = sum(mine) if mine else None
        rows.append(row)
    return rows


METRICS = {
    **{name: f"{name}_ns" for name in ("ttfo", "ttft", "ttft_stage", "ttfa", "jct", "jitter_iqr", "jitter_p99")},
    **{name: f"{name}_ns" for name in ("underrun", "submit_lag", "wait", "service")},
    **{name: name for name in ("rtf", "jct_per_audio_s", "slowdown", "quality")},
}


def request_metric(run: Run) -> list[Row]:
    return [
        {name: row[name] for name in ("request", "class", "status")} | {"metric": metric, "value": row[column]}
        for row in request_metrics(run)
        for metric, column in METRICS.items()
    ]


def slo_attainment(run: Run) -> list[Row]:
    rows = []
    for slo in run.slo:
        mine = [r for r in request_metrics(run) if r["class"] == slo["class"]]
        is_metric = slo["metric"] in METRICS
        values = [(r["status"], r[METRICS[slo["metric"]]] if is_metric else None) for r in mine]
        met = sum(value is not None and value <= slo["limit_value"] for _, value in values)
        unknown = sum(value is None and status == "ok" for status, value in values)
        attainment = met / len(values) if is_metric and unknown < len(values) else None
        rows.append({**slo, "requests": len(values), "met": met, "unknown": unknown, "attainment": attainment})
    return rows


def good_request(run: Run) -> list[Row]:
    rows = []
    deadlines = {r["request"]: r for r in run.request}
    for r in request_metrics(run):
        limits = [(slo["metric"], slo["limit_value"]) for slo in run.slo if slo["class"] == r["class"]]
        values = [(r[METRICS[metric]] if metric in METRICS else None, limit) for metric, limit in limits]
        due = deadlines[r["request"]]
        for deadline, spent in (("first_output_deadline_ns", "ttfo_ns"), ("deadline_ns", "jct_ns")):
            if due[deadline] is not None and r[spent] is not None:
                values.append((r[spent], due[deadline] - r["scheduled_ns"]))
        possible = r["status"] == "ok" and not any(v is not None and v > limit for v, limit in values)
        open_ = any(v is None for v, _ in values)
        rows.append(
            {"request": r["request"], "class": r["class"], "tenant": r["tenant"]}
            | {"is_good": possible and not open_, "is_unknown": possible and open_}
        )
    return rows


def goodput(run: Run) -> list[Row]:
    window = run.about["last_ns"] - run.about["first_ns"]
    judged = good_request(run)
    good = sum(row["is_good"] for row in judged)
    gated = {slo["class"] for slo in run.slo if slo["metric"] == "quality"}
    return [
        {
            "good": good,
            "unknown": sum(row["is_unknown"] for row in judged),
            "requests": len(judged),
            "good_share": good / len(judged),
            "window_ns": window,
            "goodput_per_s": good * 1e9 / window if window else None,
            "quality_gated": {row["class"] for row in judged} <= gated,
        }
    ]


def weighted_tail_slowdown(run: Run) -> list[Row]:
    if run.about["isolated_run"] is None:
        return []
    factor = {row["request"]: row["slowdown"] for row in slowdown(run)}
    pool: list[tuple[float, float]] = []
    counts = {"requests": 0, "failed": 0, "unknown": 0, "cancelled": 0}
    for request in run.request:
        outcome = run.find_outcome(request["request"])
        status = outcome["status"] if outcome else None
        if status == "cancelled":
            counts["cancelled"] += 1
        elif status == "ok" and request["request"] not in factor:
            counts["unknown"] += 1
        else:
            counts["requests"] += 1
            counts["failed"] += status != "ok"
            pool.append((factor[request["request"]] if status == "ok" else math.inf, request["weight"]))
    row: Row = {}
    for name, level in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        row[name] = None
        total = sum(weight for _, weight in pool)
        for value, _ in sorted(pool):
            if sum(weight for v, weight in pool if v <= value) >= level * total - 1e-9:
                row[name] = value
                break
    return [row | counts]


def tenant_share(run: Run) -> list[Row]:
    window = run.about["last_ns"] - run.about["first_ns"]
    good = {row["request"]: row["is_good"] for row in good_request(run)}
    factor = {row["request"]: row["slowdown"] for row in slowdown(run)}
    rows = []
    for tenant in {row["tenant"] for row in run.request}:
        mine = [row for row in run.request if row["tenant"] == tenant]
        weight = max(row["weight"] for row in mine)
        count = sum(good[row["request"]] for row in mine)
        inverse: list[float | None] = []
        for row in mine:
            outcome = run.find_outcome(row["request"])
            status = outcome["status"] if outcome else None
            if status == "ok":
                inverse.append(1 / factor[row["request"]] if row["request"] in factor else None)
            elif status != "cancelled":
                inverse.append(0.0 if run.about["isolated_run"] is not None else None)
        rows.append(
            {
                "tenant": tenant,
                "weight": weight,
                "requests": len(mine),
                "good": count,
                "weighted_goodput_per_s": count * 1e9 / window / weight if window else None,
                "inverse_slowdown": sum(inverse) / len(inverse) if inverse and None not in inverse else None,
            }
        )
    return rows


def jain_index(run: Run) -> list[Row]:
    rows = []
    for measure, column in (("goodput", "weighted_goodput_per_s"), ("inverse_slowdown", "inverse_slowdown")):
        x = [row[column] for row in tenant_share(run)]
        known = None not in x and any(x)
        index = sum(x) ** 2 / (len(x) * sum(value**2 for value in x)) if known else None
        rows.append({"measure": measure, "tenants": len(x), "jain_index": index})
    return rows


def cancel_cleanup(run: Run) -> list[Row]:
    rows = []
    for outcome in run.outcome:
        if outcome["cancel_ns"] is None:
            continue
        moments = [outcome["cancel_ns"]]
        for table, columns in (
            ("span", ["end_ns"]),
            ("chunk", ["sent_ns", "received_ns", "taken_ns"]),
            ("credit", ["at_ns"]),
            ("object", ["at_ns"]),
        ):
            moments += [
                row[column]
                for row in run.rows[table]
                for column in columns
                if row["request"] == outcome["request"] and row[column] is not None
            ]
        cleanup = max(moments) - outcome["cancel_ns"] if run.about["probes"] == "on" else None
        rows.append({"request": outcome["request"], "cleanup_ns": cleanup})
    return rows


def after_cancel(run: Run) -> list[Row]:
    rows = []
    for outcome in run.outcome:
        cancel = outcome["cancel_ns"]
        if cancel is None:
            continue
        if run.about["probes"] != "on":
            names = ("service_ns", "started", "object_bytes", "chunk_bytes")
            rows.append({"request": outcome["request"], **dict.fromkeys(names)})
            continue
        work = [s for s in run.span if s["request"] == outcome["request"] and s["kind"] in WORK]
        state: dict[int, Row] = {}
        for event in sorted(
            (e for e in run.object if e["request"] == outcome["request"] and e["at_ns"] <= cancel),
            key=lambda e: (e["at_ns"], ("allocate", "use", "release").index(e["event"])),
        ):
            state[event["object"]] = event
        sizes = [event["bytes"] for event in state.values() if event["event"] != "release"]
        chunks = [
            c["bytes"]
            for c in run.chunk
            if c["request"] == outcome["request"]
            and c["emitted_ns"] <= cancel
            and (c["taken_ns"] is None or c["taken_ns"] > cancel)
        ]
        rows.append(
            {
                "request": outcome["request"],
                "service_ns": sum(max(0, s["end_ns"] - max(s["start_ns"], cancel)) for s in work),
                "started": sum(s["start_ns"] > cancel for s in work),
                "object_bytes": None if not run.object or None in sizes else sum(sizes),
                "chunk_bytes": None if None in chunks else sum(chunks),
            }
        )
    return rows


def energy_use(run: Run) -> list[Row]:
    rows = []
    for source, device in sorted({(e["source"], e["device"]) for e in run.energy}):
        mine = sorted(
            (e for e in run.energy if (e["source"], e["device"]) == (source, device)), key=lambda e: e["before_ns"]
        )
        counts = [e["counter_mj"] for e in mine if e["counter_mj"] is not None]
        models = [e["modeled_mj"] for e in mine if e["modeled_mj"] is not None]
        reason = None
        if source == "model":
            reason = "modeled, not measured"
        elif not counts:
            reason = "the counter was not readable"
        elif any(b < a for a, b in pairwise(counts)):
            reason = "the counter ran backwards or wrapped"
        elif len(set(counts)) < 10:
            reason = "fewer than 10 counter updates"
        rows.append(
            {
                "source": source,
                "device": device,
                "energy_mj": None if reason else counts[-1] - counts[0],
                "modeled_mj": models[-1] - models[0] if models else None,
                "from_ns": mine[0]["before_ns"],
                "to_ns": max(e["after_ns"] for e in mine),
                "updates": len(set(counts)),
                "reason": reason,
            }
        )
    if not rows:
        names = ("source", "device", "energy_mj", "modeled_mj", "from_ns", "to_ns", "updates")
        rows.append({**dict.fromkeys(names), "reason": "no energy counter was recorded"})
    return rows


def probe_cost(run: Run) -> list[Row]:
    about = run.about
    each = about["probe_ns_per_event"]
    cost = None if each is None else about["events"] * each
    total = sum(row["jct_ns"] for row in jct(run))
    return [
        {
            "events": about["events"],
            "events_lost": about["events_lost"],
            "ns_per_event": each,
            "cost_ns": None if cost is None else math.floor(cost + 0.5),
            "cost_per_request_ns": None if cost is None else math.floor(cost / len(run.request) + 0.5),
            "jct_share": None if cost is None or not total else cost / total,
        }
    ]


def load_stability(run: Run) -> list[Row]:
    forever = 1 << 62
    spans = []
    for request in run.request:
        outcome = run.find_outcome(request["request"])
        end = outcome["end_ns"] if outcome and outcome["end_ns"] is not None else forever
        spans.append(("all", request["scheduled_ns"], end, 1))
    return [{"at_ns": at, "in_flight": count} for _, at, count in steps(spans) if at != forever]


def interval(run: Run) -> list[Row]:
    names = (
        *("span", "request", "stage", "replica", "epoch", "chunk", "kind", "start_ns", "end_ns", "cause"),
        *("cause_span", "batch", "bytes", "units"),
    )
    rows = [{**{name: s[name] for name in names}, "edge": None} for s in run.span]
    for c in run.chunk:
        edge = run.find_edge(c["edge"])
        rows.append(
            {
                "span": c["span"],
                "request": c["request"],
                "stage": edge["source"],
                "replica": None,
                "epoch": c["epoch"],
                "chunk": c["seq"],
                "kind": "deliver" if run.role(edge["target"]) == "client" else "transfer",
                "start_ns": c["sent_ns"],
                "end_ns": c["received_ns"],
                "cause": "data",
                "cause_span": c["producer_span"],
                "batch": None,
                "bytes": c["bytes"],
                "units": c["units"],
                "edge": c["edge"],
            }
        )
    return rows


def output_chunk(run: Run) -> list[Row]:
    names = ("request", "epoch", "edge", "seq", "span", "received_ns", "units", "samples", "sample_rate", "final")
    return [
        {name: c[name] for name in names}
        | {"modality": run.find_edge(c["edge"])["modality"], "has_audio": has_sound(c)}
        | {"consumable": is_consumable(run, c)}
        | {"duration_ns": None if c["samples"] is None or c["sample_rate"] is None else duration(c)}
        for request in run.request
        for c in outputs(run, request["request"])
    ]


def oldest_wait_at(run: Run, stage: str, moment: float) -> float:
    """Age of the oldest task that waits at a moment at which nothing begins or ends."""
    tasks: dict[tuple[int, ...], tuple[int, int]] = {}
    for s in run.span:
        if s["stage"] == stage and s["kind"] in DEPTH_KINDS:
            key = (s["request"], s["epoch"], s["chunk"])
            start, end = tasks.get(key, (s["start_ns"], s["end_ns"]))
            tasks[key] = (min(start, s["start_ns"]), max(end, s["end_ns"]))
    return max((moment - start for start, end in tasks.values() if start < moment < end), default=0.0)


# Views whose rows a function above defines; oldest_wait and in_flight_step are tested through what they mean.
VIEWS: dict[str, Callable[[Run], list[Row]]] = {
    function.__name__: function
    for function in (
        *(after_cancel, audio, batch_fill, cancel_cleanup, device_busy, edge_transfer, energy_use, good_request),
        *(goodput, in_flight_bytes, in_flight_high_water, interval, jain_index, jct, jct_per_audio_s, jitter),
        *(join_wait, launch, load_stability, outcome_counts, output_chunk, probe_cost, queue_depth, recorded_wait),
        *(replica_busy, request_metric, request_metrics, rtf, service_rate, slo_attainment, slowdown, stage_residency),
        *(stage_service, stage_summary, stage_wait, submit_lag, tenant_share, ttfa, ttfo, ttft, underrun),
        weighted_tail_slowdown,
    )
} | {"batch_wait": of_stage_wait("batch_wait"), "credit_stall": of_stage_wait("credit_stall")}
