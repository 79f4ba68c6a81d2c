"""Participation beside drag: bars that stack in one order, a diamond per stage."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.participation import MEASURES, participation
from workbench.errors import UsageError

STAGES = ["client", "thinker", "talker", "code2wav", "hand-over"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def shares(stages: list[str] = STAGES, measures: tuple[str, ...] = MEASURES, share: float = 0.04) -> pl.DataFrame:
    rows = [
        {"terminal": terminal, "stage": stage, "measure": measure, "share": share * (1 + i)}
        for terminal in ("first", "job")
        for i, stage in enumerate(sorted(stages))
        for measure in sorted(measures)
    ]
    return pl.DataFrame(rows)


def test_rows_in_graph_order() -> None:
    chart, frame = participation(shares(), stages=STAGES)
    assert frame.columns == ["terminal", "stage", "measure", "share", "stacked_as"]
    keys = [(terminal, stage, measure) for terminal in ("first", "job") for stage in STAGES for measure in MEASURES]
    assert frame.select("terminal", "stage", "measure").rows() == keys
    assert {*STAGES, *MEASURES, "share of time to last audio"} <= set(texts(drawn(chart)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    assert_same(participation(shares(), stages=STAGES), participation(shuffled(shares(), seed), stages=STAGES))


@pytest.mark.parametrize("share", [0.0, 1e-6, 0.04, 0.3])
def test_the_longest_stack_fits_the_axis_and_the_axis_ends_at_the_whole(share: float) -> None:
    chart, frame = participation(shares(["talker"], share=share), stages=["talker"])
    drawn(chart)
    stack = frame.filter(pl.col("measure") != "drag").group_by("terminal").agg(pl.col("share").sum())["share"].max()
    for x in encoding(theme.specification(chart), "x"):
        if "scale" in x:
            assert x["scale"]["domain"] == pytest.approx([0, min(1.0, max(0.05, stack))])  # type: ignore[type-var]


@pytest.mark.parametrize("measures", [MEASURES[:1], MEASURES[:3], MEASURES[3:]])
def test_a_measure_that_is_missing(measures: tuple[str, ...]) -> None:
    chart, frame = participation(shares(measures=measures), stages=STAGES, title="Shares")
    assert set(frame["measure"]) == set(measures)
    assert "Shares" in texts(drawn(chart))


def test_a_terminal_that_no_request_reached() -> None:
    chart, frame = participation(shares().filter(pl.col("terminal") == "first"), stages=STAGES)
    assert frame.height == len(STAGES) * len(MEASURES)
    drawn(chart)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(participation(shares([name, "talker"]), stages=["talker", name])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(participation(shares(["µ"]), stages=["µ"])[0])
    many = [f"stage {i:04}" for i in range(700)]
    chart, frame = participation(shares(many, share=1e-5), stages=many)
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 5,600"):
        save(chart, frame, tmp_path / "shares", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
