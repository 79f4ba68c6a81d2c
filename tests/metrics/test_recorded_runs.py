"""The recordings under data/raw: what must hold of every request of a real run."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.metrics.frames import NEEDED
from workbench.metrics.critical_path import critical_paths
from workbench.metrics.participation import participation
from workbench.metrics.remaining import lower_bound
from workbench.metrics.retiming import reproduces
from workbench.metrics.task_graph import TaskGraph

RAW = Path(__file__).parents[2] / "data" / "raw"
RUNS = sorted(path.parent.name for path in RAW.glob("*/run.parquet"))


def read(name: str, table: str) -> pl.DataFrame:
    return pl.read_parquet(RAW / name / f"{table}.parquet")


@pytest.mark.parametrize("name", RUNS)
def test_a_recorded_run_is_explained_and_reproduced(name):
    tables = {table: read(name, table) for table in NEEDED if (RAW / name / f"{table}.parquet").exists()}
    graph = TaskGraph.from_tables(**tables)
    assert not graph.excluded.any()
    assert (graph.lag_ns >= 0).all()
    assert reproduces(graph).is_empty()
    assert reproduces(graph, others="relaxed").is_empty()
    paths = critical_paths(graph)
    assert paths.untiled().is_empty()
    assert critical_paths(graph, view="system").untiled().is_empty()
    bound = lower_bound(graph)
    assert (bound["remaining_ns"] <= bound["observed_ns"]).all()

    outcome = tables["outcome"].sort("request")
    job = paths.requests.filter(pl.col("terminal") == "job")
    assert job["request"].equals(outcome["request"])
    ok = outcome["status"].cast(pl.String) == "ok"
    assert job.filter(ok)["terminal_ns"].equals(outcome.filter(ok)["end_ns"])
    assert job.filter(~ok)["missing"].to_list() == outcome.filter(~ok)["status"].cast(pl.String).to_list()
    first = paths.requests.filter(pl.col("terminal") == "first")
    assert first["terminal_ns"].equals(outcome["first_output_ns"])

    if read(name, "run")["probes"].cast(pl.String)[0] == "on":
        for terminal in ("first", "job"):
            shares = participation(paths, terminal)
            assert shares.filter(pl.col("kind") == "unattributed")["share"].sum() < 0.01


def test_there_are_recordings():
    assert RUNS
