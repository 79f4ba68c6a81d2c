"""Critical paths of many requests: time of each step, and the compiled walk against plain Python.

Run from the top folder: python -m benchmarks.bench_critical_path [REQUESTS] (default 100,000).
The run is synthetic: a chain of five stages, ten streamed tasks in each, first come first served at 75 % load; 50
services, 61 other activities and the recorded queue waits per request. Times are processor seconds of this process with
one thread; the ratio compares equal requests in one process.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl

from tests.metrics.reference import plain_paths
from workbench.metrics.critical_path import critical_paths
from workbench.metrics.participation import participation
from workbench.metrics.retiming import reproduces, retime, scaled
from workbench.metrics.task_graph import TaskGraph
from workbench.schema.enums import CAUSE, SPAN_KIND
from workbench.units import MS_NS

T = TypeVar("T")

STAGES = ("client", "encoder", "thinker", "talker", "refiner", "vocoder")
TASKS = 10
REPLICAS = 32
SUBSET = 2_000


def synthetic(requests: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Tables of a run of a linear streaming pipeline; stages are fed forward, so each is one Lindley recursion."""
    random = np.random.default_rng(seed)
    count = requests * TASKS
    request = np.repeat(np.arange(requests), TASKS)
    task = np.tile(np.arange(TASKS), requests)
    # 32 replicas at 3 ms a task: one request of ten tasks per 0.94 ms keeps them full; 1.25 ms is 75 % load.
    scheduled = np.cumsum(random.exponential(1_250_000, requests).astype(np.int64)) + 10**9
    on = random.integers(0, REPLICAS, requests)
    edges = [f"{a}>{b}" for a, b in zip(STAGES, (*STAGES[1:], "client"), strict=True)]
    arrival_span = 1 + np.arange(requests)
    nowhere = np.zeros(requests, dtype=np.int64)
    client = (arrival_span, np.arange(requests), nowhere, 0, -1, "host", scheduled, scheduled, "arrival", None)
    spans = [_spans(*client)]
    chunks = []
    next_id = requests + 1
    emitted, producer = scheduled[request] + task * MS_NS, np.repeat(arrival_span, TASKS)
    for stage in range(1, len(STAGES)):
        sent = emitted
        received = sent + random.integers(20_000, 200_000, count)
        chunk_id = next_id + np.arange(count)
        span_id = chunk_id + count
        wait_id = span_id + count
        next_id += 3 * count
        # A later chunk of a request must not overtake an earlier one.
        received = np.maximum.accumulate(received.reshape(requests, TASKS), axis=1).ravel()
        service = random.integers(2 * MS_NS, 4 * MS_NS, count)
        start, end, before = np.empty_like(sent), np.empty_like(sent), np.full(count, -1)
        for replica in range(REPLICAS):
            mine = np.flatnonzero(on[request] == replica)
            mine = mine[np.lexsort((mine, received[mine]))]
            total = np.cumsum(service[mine])
            end[mine] = total + np.maximum.accumulate(received[mine] - total + service[mine])
            start[mine] = end[mine] - service[mine]
            before[mine[1:]] = mine[:-1]
        chunks.append(_chunks(chunk_id, edges[stage - 1], request, task, sent, received, start, producer, span_id))
        previous_end = np.where(task > 0, np.roll(end, 1), 0)
        ready = np.maximum(received, previous_end)
        waited = start > ready
        state = ~waited & (previous_end > received)
        cause = np.where(waited, "resource", np.where(state, "state", "data"))
        by = np.where(waited, span_id[before], np.where(state, np.roll(span_id, 1), chunk_id))
        spans.append(_spans(span_id, request, on[request], stage, task, "service", start, end, cause, by))
        w = np.flatnonzero(waited)
        where = (wait_id[w], request[w], on[request[w]], stage, task[w])
        spans.append(_spans(*where, "queue", ready[w], start[w], "resource", by[w]))
        emitted, producer = end, span_id
    chunk_id = next_id + np.arange(count)
    chunks.append(
        _chunks(chunk_id, edges[-1], request, task, emitted, emitted + 100_000, emitted + 100_000, producer, None)
    )
    return {
        "span": pl.concat(spans),
        "chunk": pl.concat(chunks),
        "stage": pl.DataFrame({"stage": STAGES, "role": ["client", "encoder", "ar", "ar", "host", "vocoder"]}),
        "edge": pl.DataFrame({"edge": edges, "source": STAGES, "target": [*STAGES[1:], "client"], "modality": "audio"}),
        "request": pl.DataFrame({"request": np.arange(requests), "scheduled_ns": scheduled}).with_columns(
            parent_request=pl.lit(None, dtype=pl.Int64)
        ),
    }


def _spans(span, request, replica, stage, chunk, kind, start, end, cause, cause_span) -> pl.DataFrame:
    cause = pl.lit(cause) if isinstance(cause, str) else pl.Series(cause)
    return pl.DataFrame({"span": span, "request": request, "start_ns": start, "end_ns": end}).with_columns(
        stage=pl.lit(STAGES[stage], dtype=pl.Enum(STAGES)),
        replica=pl.Series(replica),
        epoch=pl.lit(0),
        chunk=pl.lit(chunk, dtype=pl.Int64) if isinstance(chunk, int) else pl.Series(chunk),
        kind=pl.lit(kind, dtype=pl.Enum(SPAN_KIND)),
        cause=cause.cast(pl.Enum(CAUSE)),
        cause_span=pl.lit(None, dtype=pl.Int64) if cause_span is None else pl.Series(cause_span),
        batch=pl.lit(None, dtype=pl.Int64),
    )


def _chunks(span, edge, request, seq, sent, received, taken, producer, consumer) -> pl.DataFrame:
    rows = {"span": span, "request": request, "seq": seq, "sent_ns": sent, "received_ns": received, "taken_ns": taken}
    return pl.DataFrame(rows).with_columns(
        edge=pl.lit(edge),
        epoch=pl.lit(0),
        units=pl.lit(240),
        samples=pl.lit(240),
        producer_span=pl.Series(producer),
        consumer_span=pl.lit(None, dtype=pl.Int64) if consumer is None else pl.Series(consumer),
        final=pl.col("seq") == TASKS - 1,
    )


def _timed(what: str, function: Callable[[], T]) -> T:
    before = time.process_time()
    result = function()
    print(f"{what:<42} {time.process_time() - before:7.2f} s")
    return result


def main(requests: int) -> None:
    tiny = TaskGraph.from_tables(**synthetic(20))
    _timed("compile or load machine code", lambda: (critical_paths(tiny), retime(tiny)))
    tables = _timed("make the synthetic run", lambda: synthetic(requests))
    began = time.process_time()
    graph = _timed("task graph from tables", lambda: TaskGraph.from_tables(**tables))
    paths = _timed("paths to first output and job, all requests", lambda: critical_paths(graph))
    needed = time.process_time() - began
    assert not len(graph.violations), graph.violations
    assert not len(paths.untiled())
    print(f"{'= graph and both paths':<42} {needed:7.2f} s for {requests:,} requests x 50 tasks")
    print(f"  {len(graph):,} activities, {len(graph.waits):,} waits, {len(paths.segments):,} segments")
    _timed("paths in the system view", lambda: critical_paths(graph, view="system"))
    assert not len(_timed("re-timing, nothing changed, others frozen", lambda: reproduces(graph)))
    assert not len(_timed("re-timing, nothing changed, relaxed", lambda: reproduces(graph, others="relaxed")))
    _timed("what-if talker at half its time", lambda: retime(graph, scaled(graph, 0.5, stage="talker")))
    _timed("participation, 200 resamples", lambda: participation(paths, "job", resamples=200))
    subset = {name: tables[name] for name in ("stage", "edge")} | {
        name: tables[name].filter(pl.col("request") < SUBSET) for name in ("span", "chunk", "request")
    }
    before = time.process_time()
    small = critical_paths(TaskGraph.from_tables(**subset)).segments
    compiled = time.process_time() - before
    before = time.process_time()
    plain = plain_paths(subset)
    python = time.process_time() - before
    assert small.select("request", "terminal", "kind", "start_ns", "end_ns", "span").rows() == plain
    print(f"plain Python on {SUBSET} requests {python:.2f} s, compiled {compiled:.3f} s, ratio {python / compiled:.0f}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
