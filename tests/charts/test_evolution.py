"""Queues, oldest waits and bytes over the run: three rows of panels that share their scales, one column per load."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.evolution import PANELS, evolution
from workbench.errors import UsageError

LOADS = ["light", "near", "over"]
STAGES = ["client", "thinker", "talker"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def series(loads: list[str] = LOADS, stages: list[str] = STAGES, bins: int = 5, height: float = 2.0) -> pl.DataFrame:
    rows = [
        {"load": load, "quantity": quantity, "stage": stage, "at_s": at / 2, "value": height * ((at + i + j) % 4)}
        for i, load in enumerate(loads)
        for quantity in PANELS
        for j, stage in enumerate(stages)
        for at in range(bins)
    ]
    return pl.DataFrame(rows)


def test_rows_by_quantity_load_stage_and_time() -> None:
    chart, frame = evolution(series(), loads=LOADS, stages=STAGES)
    assert frame.columns == ["load", "quantity", "stage", "at_s", "value"]
    keys = [
        (load, quantity, stage, at / 2)
        for quantity in sorted(PANELS)
        for load in LOADS
        for stage in sorted(STAGES)
        for at in range(5)
    ]
    assert frame.select("load", "quantity", "stage", "at_s").rows() == keys
    words = texts(drawn(chart))
    assert {*LOADS, *STAGES, *PANELS.values()} <= set(words)
    assert words.count("time in run (s)") == len(LOADS)


def test_panels_of_a_row_share_their_scale_and_colors() -> None:
    spec = theme.specification(evolution(series(), loads=LOADS, stages=STAGES)[0])
    assert len(spec["concat"]) == len(PANELS) * len(LOADS)
    assert [y["scale"]["domain"] for y in encoding(spec, "y")] == [[0, 6.0]] * 9
    assert all(color["scale"]["domain"] == STAGES for color in encoding(spec, "color"))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    again = evolution(shuffled(series(), seed), loads=LOADS, stages=STAGES)
    assert_same(evolution(series(), loads=LOADS, stages=STAGES), again)


def test_one_load() -> None:
    chart, frame = evolution(series(["light"]), loads=["light"], stages=STAGES, title="Evolution")
    assert frame.height == len(PANELS) * len(STAGES) * 5
    assert "Evolution" in texts(drawn(chart))


def test_nothing_but_zeros() -> None:
    chart, _ = evolution(series(height=0.0), loads=LOADS, stages=STAGES)
    drawn(chart)
    assert [y["scale"]["domain"] for y in encoding(theme.specification(chart), "y")] == [[0, 1.0]] * 9


@pytest.mark.parametrize("missing", PANELS)
def test_a_quantity_that_never_occurred(missing: str) -> None:
    chart, frame = evolution(series().filter(pl.col("quantity") != missing), loads=LOADS, stages=STAGES)
    assert missing not in frame["quantity"].to_list()
    drawn(chart)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(evolution(series(stages=[name, "talker"]), loads=LOADS, stages=["talker", name])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(evolution(series(stages=["µ"]), loads=LOADS, stages=["µ"])[0])
    chart, frame = evolution(series(bins=200), loads=LOADS, stages=STAGES)
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 5,400"):
        save(chart, frame, tmp_path / "evolution", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
