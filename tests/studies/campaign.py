"""A small campaign of simulated runs: three loads twice, three probe pairs, and requests one at a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from workbench.testing.simulator import GraphSpec
from workbench.testing.traces import LINEAR, Arrival, Tables, changed, simulate
from workbench.units import MS_NS, S_NS

LOADS = ("light", "near", "over")
REPEATS = ("a", "b")
PAIRS = (1, 2, 3)

REQUESTS = 100  # two repeats hold the 200 that a 95th percentile takes
PAIR_REQUESTS = 20
GAP_NS = {"light": 30 * MS_NS, "near": 6 * MS_NS, "over": 2 * MS_NS}

# Request number modulo 10 -> what befalls it in the overloaded runs: more than one request in twenty gets no audio.
FATES = {1: "error", 3: "cancelled", 5: "rejected", 7: "timeout"}

HARDWARE = {"cores": 2, "cpu": "R&D chip_9 #1 at 50%"}
EVENT_NS = {"on": 250.0, "off": 9_999.0}


def run(
    label: str,
    *,
    seed: int,
    gap_ns: int = GAP_NS["light"],
    requests: int = PAIR_REQUESTS,
    fates: Mapping[int, str] | None = None,
    probes: str = "on",
    graph: GraphSpec = LINEAR,
) -> Tables:
    """One run with evenly spaced arrivals; `fates` by request number modulo 10."""
    arrivals = [
        Arrival(at_ns=number * gap_ns, chunks=2 + number % 3, fate=(fates or {}).get(number % 10, "ok"))
        for number in range(requests)
    ]
    about = {"rate_per_s": S_NS / gap_ns, "hardware": json.dumps(HARDWARE), "probes": probes}
    about |= {"probe_ns_per_event": EVENT_NS[probes]}
    tables = simulate(graph, arrivals, seed=seed, label=label)
    tables = changed(tables, "run", lambda rows: [row | about for row in rows])
    return tables if probes == "on" else client_rows(tables)


def client_rows(tables: Tables) -> Tables:
    """What is left of a run when the stages record nothing."""
    kept = {name: table for name, table in tables.items() if name not in ("batch", "credit", "object")}
    kept = changed(kept, "span", lambda rows: [row for row in rows if row["stage"] == "client"])
    return changed(kept, "chunk", lambda rows: [row for row in rows if row["edge"].endswith(">client")])


def campaign() -> dict[str, Tables]:
    """Label -> run, in no useful order."""
    runs = {"x-isolated": run("x-isolated", seed=1, gap_ns=200 * MS_NS, requests=3)}
    for pair in PAIRS:
        for probes in ("on", "off"):
            label = f"x-pair{pair}-{probes}"
            runs[label] = run(label, seed=10 * pair + (probes == "on"), probes=probes)
    for number, load in enumerate(reversed(LOADS)):
        for repeat in REPEATS:
            label = f"x-{load}-{repeat}"
            runs[label] = run(
                label,
                seed=100 + 10 * number + REPEATS.index(repeat),
                gap_ns=GAP_NS[load],
                requests=REQUESTS,
                fates=FATES if load == "over" else None,
            )
    return runs


def rows(raw: Path, label: str, table: str) -> pl.DataFrame:
    """One table of one run as it lies on disk."""
    return pl.read_parquet(raw / label / f"{table}.parquet")


def latencies_ns(raw: Path, label: str) -> pl.DataFrame:
    """Of every request: ``status``, ``scheduled_ns``, ``first_ns``, ``job_ns``, ``cut_ns`` (cancelled)."""
    joined = rows(raw, label, "request").join(rows(raw, label, "outcome"), on="request")
    return joined.select(
        "request",
        "status",
        "scheduled_ns",
        (pl.col("first_output_ns") - pl.col("scheduled_ns")).alias("first_ns"),
        pl.when(pl.col("status") == "ok").then(pl.col("end_ns") - pl.col("scheduled_ns")).alias("job_ns"),
        (pl.col("cancel_ns") - pl.col("scheduled_ns")).alias("cut_ns"),
    ).sort("request")
