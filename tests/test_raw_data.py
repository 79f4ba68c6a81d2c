"""The committed recordings: intact, valid, explained, and what their README says they are."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from workbench.metrics.critical_path import critical_paths
from workbench.metrics.retiming import reproduces
from workbench.metrics.task_graph import TaskGraph
from workbench.trace import manifest, store
from workbench.trace.validate import validate

RAW = Path(__file__).parents[1] / "data" / "raw"
RUNS = sorted(path.parent for path in RAW.glob("*/manifest.json"))
PROBED = [run for run in RUNS if not run.name.endswith("-off")]


def test_the_campaign_is_whole_and_small() -> None:
    names = {run.name for run in RUNS}
    expected = {f"cpu-{load}-{repeat}" for load in ("light", "near", "over") for repeat in "ab"}
    expected |= {f"cpu-pair{pair}-{side}" for pair in range(1, 9) for side in ("on", "off")}
    expected |= {"cpu-isolated", "cpu-saturation"}
    assert expected <= names
    assert sum(path.stat().st_size for path in RAW.rglob("*") if path.is_file()) < 20_000_000


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_run_is_intact_and_breaks_no_rule(run: Path) -> None:
    manifest.verify(run)
    report = validate(run)
    assert report.is_valid, report.text()
    row = pl.read_parquet(run / "run.parquet").row(0, named=True)
    assert row["provenance"] == "measured"
    assert row["events_lost"] == 0
    assert not row["commit"].endswith("+dirty")
    devices = set(pl.read_parquet(run / "stage.parquet")["device"])
    assert devices == {"cpu"}, "the README calls these CPU runs"


@pytest.mark.parametrize("run", PROBED, ids=lambda run: run.name)
def test_the_trace_rebuilds_end_to_end_time(run: Path) -> None:
    graph = TaskGraph.from_store(store.load_folder(run), run.name)
    paths = critical_paths(graph)
    assert graph.violations.is_empty()
    assert paths.untiled().is_empty()
    assert reproduces(graph).is_empty()
    length = pl.col("end_ns") - pl.col("start_ns")
    total, unexplained = (
        int(frame.select(length.sum()).item())
        for frame in (paths.segments, paths.segments.filter(pl.col("kind") == "unattributed"))
    )
    assert unexplained < 0.01 * total
    ended = pl.read_parquet(run / "outcome.parquet").filter(pl.col("status") == "ok")["request"]
    reached = paths.requests.filter((pl.col("terminal") == "job") & pl.col("latency_ns").is_not_null())["request"]
    assert set(ended) == set(reached)


def test_stages_overlap_within_every_long_request() -> None:
    """Streaming edges: the vocoder starts before the talker ends, the talker before the thinker ends."""
    for run in (run for run in RUNS if run.name.startswith(("cpu-light-", "cpu-near-"))):
        ended = pl.read_parquet(run / "outcome.parquet").filter(pl.col("status") == "ok").select("request")
        long = pl.read_parquet(run / "request.parquet").filter(pl.col("class") == "long").select("request")
        service = pl.read_parquet(run / "span.parquet").filter(pl.col("kind") == "service")
        bounds = service.group_by("request", "stage").agg(pl.min("start_ns"), pl.max("end_ns"))
        wide = bounds.join(long.join(ended, on="request"), on="request").pivot("stage", index="request")
        assert wide.height > 30, run.name
        assert (wide["start_ns_talker"] < wide["end_ns_thinker"]).all(), run.name
        assert (wide["start_ns_code2wav"] < wide["end_ns_talker"]).all(), run.name
