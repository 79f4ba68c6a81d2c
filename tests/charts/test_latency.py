"""Latency curves: steps that rise in one order, and a curve below 1 where requests never got there."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.latency import latency_ecdf
from workbench.errors import UsageError

LOADS = ["light", "near", "over"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def points(loads: list[str] = LOADS, repeats: str = "ab", count: int = 10) -> pl.DataFrame:
    """Curves with ties: two requests each take equally long."""
    keys = ("load", "repeat", "metric", "seconds", "share")
    rows = [
        dict(zip(keys, (load, repeat, metric, 0.1 * (1 + i // 2), (1 + i) / (count + 1)), strict=True))
        for metric in ("ttfa", "jct")
        for load in loads
        for repeat in repeats
        for i in range(count)
    ]
    return pl.DataFrame(rows)


def test_curves_rise_in_one_order() -> None:
    chart, frame = latency_ecdf(points(), loads=LOADS)
    assert frame.columns == ["load", "repeat", "metric", "seconds", "share"]
    curves = frame.partition_by("metric", "load", "repeat", as_dict=True, maintain_order=True)
    assert list(curves) == [(metric, load, repeat) for metric in ("jct", "ttfa") for load in LOADS for repeat in "ab"]
    for curve in curves.values():
        assert curve["seconds"].is_sorted()
        assert curve["share"].is_sorted()
    assert {*LOADS, "a", "b", "share of scheduled requests", "100%"} <= set(texts(drawn(chart)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    assert_same(latency_ecdf(points(), loads=LOADS), latency_ecdf(shuffled(points(), seed), loads=LOADS))


def test_both_panels_reach_from_nobody_to_everybody() -> None:
    spec = theme.specification(latency_ecdf(points(), loads=LOADS)[0])
    assert [y["scale"]["domain"] for y in encoding(spec, "y")] == [[0, 1]] * 2
    assert [x["scale"]["type"] for x in encoding(spec, "x")] == ["log"] * 2


@pytest.mark.parametrize(("loads", "repeats"), [(["light"], "ab"), (["light"], "a"), (LOADS, "a")])
def test_fewer_loads_and_repeats(loads: list[str], repeats: str) -> None:
    chart, frame = latency_ecdf(points(loads, repeats), loads=loads, title="Latency")
    assert frame.height == 20 * len(loads) * len(repeats)
    assert "Latency" in texts(drawn(chart))
    spec = theme.specification(chart)
    for channel, names in (("color", loads), ("strokeDash", list(repeats))):
        for found in encoding(spec, channel):
            assert found["scale"]["domain"] == names
            assert len(found["scale"]["range"]) == len(names)


def test_a_metric_that_no_request_reached() -> None:
    chart, frame = latency_ecdf(points().filter(pl.col("metric") == "ttfa"), loads=LOADS)
    assert set(frame["metric"]) == {"ttfa"}
    drawn(chart)


def test_a_latency_of_zero_draws() -> None:
    zero = points().with_columns(pl.when(pl.col("seconds") > 0.15).then("seconds").otherwise(0.0).alias("seconds"))
    drawn(latency_ecdf(zero, loads=LOADS)[0])


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(latency_ecdf(points([name, "near"]), loads=[name, "near"])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(latency_ecdf(points(["µ"]), loads=["µ"])[0])
    chart, frame = latency_ecdf(points(count=500), loads=LOADS)
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 6,000"):
        save(chart, frame, tmp_path / "latency", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
