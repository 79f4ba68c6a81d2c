"""Cost of the store at a million spans: load, validate, and the views over time, against bare DuckDB in one process.

    python benchmarks/bench_store.py [--launches N] [--threads N] [--repeats N]

Prints the best of a few repeats in seconds and the ratio to a baseline that does the least possible work with the rows.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from workbench.schema.tables import TABLES
from workbench.testing.tables import Tables, from_rows, run_row
from workbench.trace import store
from workbench.trace.columns import arrow_schema
from workbench.trace.validate import validate

STAGES = ("thinker", "talker", "code2wav", "mux")
MEMBERS, GROUPS, TASKS, LAG = 4, 8, 10, 3
LAUNCH_NS = 1_000_000
ORIGIN_NS = 10**12
SAMPLES = 480


def table(name: str, rows: int, **columns: object) -> pa.Table:
    """A table of the contract from NumPy columns and constants; the rest is NULL."""
    arrays = []
    for field in arrow_schema(TABLES[name]):
        value = columns.get(field.name)
        if isinstance(value, np.ndarray):
            array = pa.array(value).cast(field.type)
        elif isinstance(value, tuple):  # names and their positions per row
            names, codes = value
            array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names)).cast(pa.string())
        elif value is None:
            array = pa.nulls(rows, field.type)
        else:
            array = pa.repeat(pa.scalar(value, field.type), rows)
        arrays.append(array)
    return pa.table(arrays, names=list(TABLES[name].names))


def pipeline(launches: int) -> Tables:
    """A valid run of four stages: `launches` launches per stage of four members, a queue wait and a service each.

    Groups of four requests take turns, eight groups at a time, ten tasks per request and stage; stage s runs launch i
    in tick i + 3 s, so that every task waits for its replica.
    """
    waves = launches // (GROUPS * TASKS)
    launches = waves * GROUPS * TASKS
    launch = np.arange(launches, dtype=np.int64)
    wave, inside = np.divmod(launch, GROUPS * TASKS)
    task, group = np.divmod(inside, GROUPS)
    first_member = (wave * GROUPS + group) * MEMBERS
    requests = waves * GROUPS * MEMBERS
    count = launches * MEMBERS
    member = np.repeat(first_member, MEMBERS) + np.tile(np.arange(MEMBERS), launches)
    chunk, tick = np.repeat(task, MEMBERS), np.repeat(launch, MEMBERS)
    host = np.arange(requests) + 1
    per_stage = count * 3 + launches
    base = [requests + 1 + s * per_stage for s in range(len(STAGES))]
    ids = {s: (base[s] + np.arange(count), base[s] + count + np.arange(count), base[s] + 2 * count + np.arange(count))
           for s in range(len(STAGES))}  # fmt: skip
    first_chunk = base[-1] + per_stage
    arrival = ORIGIN_NS + (np.arange(requests) // (GROUPS * MEMBERS) * GROUPS * TASKS) * LAUNCH_NS
    spans = [
        table("span", requests, span=host, request=np.arange(requests), stage="client", replica=0, epoch=0, chunk=-1,
              kind="host", start_ns=arrival, end_ns=arrival, cause="arrival", proc=1)
    ]  # fmt: skip
    chunks = [
        table("chunk", requests, span=first_chunk + np.arange(requests), edge=f"client>{STAGES[0]}",
              request=np.arange(requests), epoch=0, seq=0, bytes=64, units=8, emitted_ns=arrival, sent_ns=arrival,
              received_ns=arrival, taken_ns=start_of_first(count, chunk, member, tick, requests), producer_span=host,
              consumer_span=pick_first(ids[0][0], chunk, member, requests), final=True)
    ]  # fmt: skip
    batches = []
    for s, stage in enumerate(STAGES):
        service, queue, sent = ids[s]
        start = ORIGIN_NS + (tick + 1 + s * LAG) * LAUNCH_NS
        if s == 0:
            own = np.where(chunk > 0, start - (GROUPS - 1) * LAUNCH_NS, arrival[member])
            ready = own
        else:
            ready = start - (LAG - 1) * LAUNCH_NS
        # The first launch of a stage waits for nothing before it.
        before = np.where(tick > 0, service[np.maximum(tick - 1, 0) * MEMBERS], 0)
        waits = (ready < start) & (tick > 0)
        batch = base[s] + 3 * count + launch
        common = {"request": member, "stage": stage, "replica": 0, "epoch": 0, "chunk": chunk, "proc": 1}
        cause = (("data", "resource"), waits.astype(np.int32))
        first = ids[s - 1][2] if s else first_chunk + member
        spans.append(
            table("span", count, span=service, kind="service", start_ns=start, end_ns=start + LAUNCH_NS, cause=cause,
                  cause_span=np.where(waits, before, first), batch=np.repeat(batch, MEMBERS), units=1, **common)
        )  # fmt: skip
        queued = int(waits.sum())
        spans.append(
            table("span", queued, span=queue[waits], kind="queue", start_ns=ready[waits], end_ns=start[waits],
                  cause="resource", cause_span=before[waits],
                  **{k: v[waits] if isinstance(v, np.ndarray) else v for k, v in common.items()})
        )  # fmt: skip
        batches.append(
            table("batch", launches, batch=batch, stage=stage, replica=0, members=MEMBERS, limit=MEMBERS,
                  closed_by="full", dispatch_ns=start[::MEMBERS], end_ns=start[::MEMBERS] + LAUNCH_NS)
        )  # fmt: skip
        last = s == len(STAGES) - 1
        made = start + LAUNCH_NS
        media = {"sample_start": chunk * SAMPLES, "samples": SAMPLES, "sample_rate": 24_000} if last else {}
        taken = made if last else ORIGIN_NS + (tick + 1 + (s + 1) * LAG) * LAUNCH_NS
        chunks.append(
            table("chunk", count, span=sent, edge=f"{stage}>{'client' if last else STAGES[s + 1]}", request=member,
                  epoch=0, seq=chunk, bytes=960, units=1, emitted_ns=made, sent_ns=made, received_ns=made,
                  taken_ns=taken, producer_span=service, consumer_span=None if last else ids[s + 1][0],
                  final=chunk == TASKS - 1, **media)
        )  # fmt: skip
    end = np.zeros(requests, dtype=np.int64)
    np.maximum.at(end, member, made)
    begin = np.full(requests, np.iinfo(np.int64).max)
    np.minimum.at(begin, member, made)
    small = from_rows(
        {
            "run": [run_row("bench", ORIGIN_NS, int(end.max()), events=count * 8)],
            "proc": [{"proc": 1, "name": "all", "host": "bench", "boot_id": "0"}],
            "stage": [
                {"stage": name, "role": role, "replicas": 1, "device": "cpu", "weights": "none"}
                for name, role in (("client", "client"), *((stage, "ar") for stage in STAGES))
            ],
            "edge": [
                {"edge": f"{a}>{b}", "source": a, "target": b, "modality": "audio" if b == "client" else "tokens",
                 "kind": "stream", "transport": "in-process"}
                for a, b in zip(("client", *STAGES), (*STAGES, "client"), strict=True)
            ],
        }
    )  # fmt: skip
    return {
        **small,
        "request": table("request", requests, request=np.arange(requests), tenant="a", weight=1.0,
                         scheduled_ns=arrival, arrival_ns=arrival, **{"class": "c"}),
        "outcome": table("outcome", requests, request=np.arange(requests), status="ok", first_output_ns=begin,
                         end_ns=end, output_units=TASKS * SAMPLES),
        "span": pa.concat_tables(spans),
        "batch": pa.concat_tables(batches),
        "chunk": pa.concat_tables(chunks),
    }  # fmt: skip


def random_waits(tables: Tables, count: int) -> Tables:
    """The run with nothing but `count` queue waits at random moments: as many steps as a view over time can have."""
    rng = np.random.default_rng(0)
    start = ORIGIN_NS + rng.integers(0, 10**12, count)
    waits = table("span", count, span=np.arange(count) + 1, request=np.arange(count), replica=0, epoch=0, chunk=0,
                  stage=(STAGES, rng.integers(0, len(STAGES), count)), kind="queue",
                  start_ns=start, end_ns=start + rng.integers(1, 10**8, count), cause="unknown", proc=1)  # fmt: skip
    return {**tables, "span": waits}


def pick_first(ids: np.ndarray, chunk: np.ndarray, member: np.ndarray, requests: int) -> np.ndarray:
    """Id of each request's first task."""
    found = np.zeros(requests, dtype=np.int64)
    found[member[chunk == 0]] = ids[chunk == 0]
    return found


def start_of_first(count: int, chunk: np.ndarray, member: np.ndarray, tick: np.ndarray, requests: int) -> np.ndarray:
    """Start of each request's first task at the first stage."""
    return pick_first(ORIGIN_NS + (tick + 1) * LAUNCH_NS, chunk, member, requests)


def best(repeats: int, action: Callable[[], object]) -> float:
    """Shortest of a few runs, seconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--launches", type=int, default=31_360, help="launches per stage; 32 spans each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    tables = pipeline(options.launches)
    sizes = {name: part.num_rows for name, part in tables.items() if part.num_rows > 100}
    print(f"{sum(sizes.values()):,} rows: " + ", ".join(f"{rows:,} {name}" for name, rows in sizes.items()))

    with tempfile.TemporaryDirectory() as folder:
        numbers = iter(range(1_000))

        def bare() -> None:
            with duckdb.connect(f"{folder}/bare-{next(numbers)}.duckdb", config={"threads": options.threads}) as con:
                for name, rows in tables.items():
                    con.register("rows_in", rows)
                    con.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_in")

        def load() -> None:
            path = Path(folder, f"store-{next(numbers)}.duckdb")
            store.load_tables([tables], path=path, threads=options.threads).close()

        def load_and_validate() -> None:
            path = Path(folder, f"store-{next(numbers)}.duckdb")
            with store.load_tables([tables], path=path, threads=options.threads) as con:
                judged = validate(con)
            if not judged.is_valid:
                raise SystemExit(judged.text())

        baseline = best(options.repeats, bare)
        report("CREATE TABLE AS from Arrow (baseline)", baseline, baseline)
        report("load from Arrow", best(options.repeats, load), baseline)
        report("load from Arrow and validate", best(options.repeats, load_and_validate), baseline)

        with store.load_tables([tables], path=f"{folder}/store.duckdb", threads=options.threads) as con:
            scan = best(options.repeats, lambda: con.execute("SELECT sum(end_ns - start_ns) FROM span").fetchall())
            report("sum over span (baseline)", scan, scan)
            for view in ("queue_depth", "oldest_wait", "in_flight_bytes", "stage_wait", "stage_summary",
                         "replica_busy", "request_metrics", "load_stability"):  # fmt: skip
                report(view, best(options.repeats, lambda view=view: read(con, view)), scan)
        spans = random_waits(tables, sizes["span"])
        with store.load_tables([spans], path=f"{folder}/waits.duckdb", threads=options.threads) as con:
            for view in ("queue_depth", "oldest_wait"):
                report(f"{view}, random moments", best(options.repeats, lambda view=view: read(con, view)), scan)


def read(con: duckdb.DuckDBPyConnection, view: str) -> None:
    con.sql(f"SELECT * FROM {view}").to_arrow_table()


def report(what: str, seconds: float, baseline: float) -> None:
    print(f"{what:<40} {seconds:8.3f} s {seconds / baseline:8.1f} x")


if __name__ == "__main__":
    main()
