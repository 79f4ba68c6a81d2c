"""Waits and services per stage: a logarithmic axis that also shows zero, one panel per load."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.stage_times import stage_times
from workbench.errors import UsageError

LOADS = ["light", "near", "over"]
STAGES = ["thinker", "phonemizer", "talker", "code2wav"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def times(loads: list[str] = LOADS, stages: list[str] = STAGES, ms: float = 10.0) -> pl.DataFrame:
    rows = [
        {"load": load, "stage": stage, "quantity": quantity, "p50_ms": ms * i, "p95_ms": ms * (i + j), "requests": 9}
        for i, load in enumerate(loads)
        for j, stage in enumerate(sorted(stages))
        for quantity in ("S_v", "W_v")
    ]
    return pl.DataFrame(rows)


def test_rows_in_graph_order_with_zero_at_the_edge() -> None:
    chart, frame = stage_times(times(), loads=LOADS, stages=STAGES)
    assert frame.columns == ["load", "stage", "quantity", "p50_ms", "p95_ms", "requests", "from_ms", "to_ms"]
    quantities = ("service S_v", "waiting W_v")
    keys = [(load, stage, quantity) for load in LOADS for stage in STAGES for quantity in quantities]
    assert frame.select("load", "stage", "quantity").rows() == keys
    assert frame.filter(pl.col("p50_ms") == 0)["from_ms"].unique().to_list() == [0.01]
    assert frame.filter(pl.col("p50_ms") > 0).select(pl.col("from_ms") == pl.col("p50_ms"))["from_ms"].all()
    assert {*LOADS, *STAGES, *quantities} <= set(texts(drawn(chart)))
    for x in encoding(theme.specification(chart), "x"):
        low, high = x["scale"]["domain"]
        assert low == 0.01
        assert high > frame["to_ms"].max()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    again = stage_times(shuffled(times(), seed), loads=LOADS, stages=STAGES)
    assert_same(stage_times(times(), loads=LOADS, stages=STAGES), again)


def test_one_load_one_stage_and_nothing_but_zeros() -> None:
    chart, frame = stage_times(times(["light"], ["talker"], ms=0.0), loads=["light"], stages=["talker"], title="Times")
    assert frame.select("from_ms", "to_ms").rows() == [(0.01, 0.01)] * 2
    assert "Times" in texts(drawn(chart))


def test_a_quantity_or_a_wait_that_is_not_known() -> None:
    some = times().filter(pl.col("quantity") == "S_v")
    drawn(stage_times(some, loads=LOADS, stages=STAGES)[0])
    waits = pl.col("quantity") == "W_v"
    unknown = times().with_columns(
        pl.when(~waits).then("p50_ms").alias("p50_ms"), pl.when(~waits).then("p95_ms").alias("p95_ms")
    )
    chart, frame = stage_times(unknown, loads=LOADS, stages=STAGES)
    assert frame.filter(pl.col("quantity") == "waiting W_v")["from_ms"].null_count() == len(LOADS) * len(STAGES)
    drawn(chart)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(stage_times(times(stages=[name, "talker"]), loads=LOADS, stages=["talker", name])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(stage_times(times(stages=["µ"]), loads=LOADS, stages=["µ"])[0])
    many = [f"stage {i:04}" for i in range(1_000)]
    chart, frame = stage_times(times(stages=many), loads=LOADS, stages=many)
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 6,000"):
        save(chart, frame, tmp_path / "times", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
