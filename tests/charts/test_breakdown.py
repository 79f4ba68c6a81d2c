"""Path time by kind: stacked in the fixed order of kinds, without kinds that are nowhere on a path."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.breakdown import breakdown
from workbench.errors import UsageError

LOADS = ["light", "near", "over"]
KINDS = ["service", "transfer", "deliver", "host", "queue", "batch_wait", "credit_stall", "unattributed"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def path(loads: list[str] = LOADS) -> pl.DataFrame:
    rows = [
        {"load": load, "terminal": terminal, "kind": kind, "mean_s": 0.1 * (1 + i) * (1 + j), "share": 0.5}
        for i, load in enumerate(loads)
        for terminal in ("first", "job")
        for j, kind in enumerate(sorted(KINDS))
    ]
    return pl.DataFrame(rows)


def test_rows_in_drawing_order() -> None:
    chart, frame = breakdown(path(), loads=LOADS)
    assert frame.columns == ["load", "terminal", "kind", "mean_s", "stacked_as"]
    stacked = [kind for kind in theme.KIND_COLORS if kind in KINDS]
    keys = [(load, terminal, kind) for terminal in ("first", "job") for load in LOADS for kind in stacked]
    assert frame.select("load", "terminal", "kind").rows() == keys
    words = texts(drawn(chart))
    assert {*LOADS, "batch wait", "time to first audio (s per request)"} <= set(words)
    assert len([word for word in words if word in LOADS]) == 3, "the second panel shares the rows of the first"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    assert_same(breakdown(path(), loads=LOADS), breakdown(shuffled(path(), seed), loads=LOADS))


def test_kinds_without_time_are_left_out_of_rows_and_legend() -> None:
    kept = pl.when(pl.col("kind").is_in(["queue", "service"])).then("mean_s").otherwise(0.0)
    some = path().with_columns(kept.alias("mean_s"))
    chart, frame = breakdown(some, loads=LOADS)
    assert set(frame["kind"]) == {"queue", "service"}
    for color in encoding(theme.specification(chart), "color"):
        assert color["scale"]["domain"] == ["service", "queue"]
    drawn(chart)


def test_one_load_and_a_load_without_a_terminal() -> None:
    chart, frame = breakdown(path(["light"]), loads=["light"], title="Path")
    assert frame.height == 2 * len(KINDS)
    assert "Path" in texts(drawn(chart))
    rest = path().filter((pl.col("load") != "over") | (pl.col("terminal") == "first"))
    chart, frame = breakdown(rest, loads=LOADS)
    assert frame.filter(pl.col("terminal") == "job")["load"].unique().sort().to_list() == ["light", "near"]
    drawn(chart)
    assert [y["scale"]["domain"] for y in encoding(theme.specification(chart), "y")] == [LOADS] * 2, "rows align"
    drawn(breakdown(path().filter(pl.col("terminal") == "first"), loads=LOADS)[0])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(breakdown(path([name, "near"]), loads=[name, "near"])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    chart, frame = breakdown(path(["µ"]), loads=["µ"])
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(chart)
    chart, frame = breakdown(path().with_columns(mean_s=0.0), loads=LOADS)
    with pytest.raises(UsageError, match="expected plotted rows, found an empty frame"):
        save(chart, frame, tmp_path / "path", PROVENANCE)
    many = [f"load {i}" for i in range(320)]
    chart, frame = breakdown(path(many), loads=many)
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 5,120"):
        save(chart, frame, tmp_path / "path", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
