"""Probe cost: the band of identical runs behind each pair, and the interval of the mean on top."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, texts
from workbench.charts import save, theme
from workbench.charts.probe_cost import probe_cost
from workbench.errors import UsageError

METRICS = ["median time to first audio", "median completion time", "length of the run"]
PROVENANCE = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}


def parts(metrics: list[str] = METRICS, pairs: int = 3, effect: float = 0.01) -> dict[str, Any]:
    return {
        "pairs": pl.DataFrame(
            [{"metric": m, "pair": p, "ratio": 1 + effect * (p - 1)} for m in metrics for p in range(pairs)],
            schema={"metric": pl.String, "pair": pl.Int64, "ratio": pl.Float64},
        ),
        "estimates": pl.DataFrame(
            [{"metric": m, "estimate": 1 + effect, "low": 1.0, "high": 1 + 2 * effect} for m in metrics],
            schema={"metric": pl.String, "estimate": pl.Float64, "low": pl.Float64, "high": pl.Float64},
        ),
        "noise": pl.DataFrame(
            [{"metric": m, "low": 1 - effect, "high": 1 + effect} for m in metrics],
            schema={"metric": pl.String, "low": pl.Float64, "high": pl.Float64},
        ),
    }


def test_rows_by_metric_and_what_they_show() -> None:
    chart, frame = probe_cost(**parts(), metrics=METRICS)
    assert frame.columns == ["metric", "shown", "estimate", "low", "high"]
    shown = ["A/A band", "estimate", "pair", "pair", "pair"]
    assert frame.select("metric", "shown").rows() == [(metric, what) for metric in METRICS for what in shown]
    assert frame.filter(pl.col("metric") == METRICS[0]).rows() == [
        (METRICS[0], "A/A band", None, 0.99, 1.01),
        (METRICS[0], "estimate", 1.01, 1.0, 1.02),
        *((METRICS[0], "pair", None, ratio, ratio) for ratio in (0.99, 1.0, 1.01)),
    ]
    assert {*METRICS, "A/A band", "estimate", "probes on / probes off (1 = no cost)"} <= set(texts(drawn(chart)))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    other = {name: shuffled(frame, seed) for name, frame in parts().items()}
    assert_same(probe_cost(**parts(), metrics=METRICS), probe_cost(**other, metrics=METRICS))


def test_every_layer_is_on_the_rows_of_the_metrics() -> None:
    spec = theme.specification(probe_cost(**parts(), metrics=METRICS)[0])
    for y in encoding(spec, "y"):
        assert y["scale"]["domain"] == METRICS


@pytest.mark.parametrize("missing", ["noise", "pairs", "estimates"])
def test_a_part_that_is_missing(missing: str) -> None:
    some = parts()
    some[missing] = some[missing].clear()
    chart, frame = probe_cost(**some, metrics=METRICS, title="Probes")
    assert frame["shown"].n_unique() == 2
    assert "Probes" in texts(drawn(chart))


def test_a_campaign_without_pairs_has_no_cost_to_draw() -> None:
    none = parts() | {name: parts()[name].clear() for name in ("pairs", "estimates")}
    with pytest.raises(UsageError, match="probe_cost: expected a metric of at least two probe pairs, found none"):
        probe_cost(**none, metrics=[])


def test_one_metric_without_any_cost() -> None:
    chart, frame = probe_cost(**parts(METRICS[:1], effect=0.0), metrics=METRICS[:1])
    assert set(frame["low"]) == set(frame["high"]) == {1.0}
    drawn(chart)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    svg = drawn(probe_cost(**parts([name, "other"]), metrics=["other", name])[0])
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]


def test_what_cannot_be_printed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected ASCII text in a figure"):
        drawn(probe_cost(**parts(["µ"]), metrics=["µ"])[0])
    chart, frame = probe_cost(**parts(METRICS[:1], pairs=5_000), metrics=METRICS[:1])
    with pytest.raises(UsageError, match="expected at most 5,000 rows in one chart, found 5,002"):
        save(chart, frame, tmp_path / "cost", PROVENANCE)
    assert list(tmp_path.iterdir()) == []
