"""Two runs side by side: quantiles of each metric, pairs of requests that ask for the same work, what else differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import markup
from workbench.lab.latency import METRICS, Sample
from workbench.markup import Table
from workbench.stats.samples import FEW_SEEDS

if TYPE_CHECKING:
    from workbench.lab.run import Run

NO_INTERVAL = (
    "One run on each side: a run is the unit of replication, since requests of one run queue behind each other. "
    "These ratios have no interval and decide nothing. To decide, record at least "
    f"{FEW_SEEDS} pairs of runs with equal seeds and set workbench.stats.paired_t against the noise floor of "
    "identical runs."
)
INFO = ("provenance", "source", "control_plan", "probes", "load_kind", "rate_per_s", "commit")
NESTED = ("models", "hardware", "versions", "config", "seeds")


@dataclass(frozen=True, slots=True)
class Comparison:
    """Run `left` beside run `right`.

    Attributes
    ----------
    left, right : str
        Labels.
    metrics : polars.DataFrame
        One row per metric that both runs have: ``metric, unit, left_requests, right_requests, left_failed,
        right_failed, left_p50, right_p50, p50_ratio, left_p95, right_p95, p95_ratio, pairs, pair_ratio``. Ratios are
        right over left. Quantiles are those of `latency.Sample`: NULL where fewer than 10 requests lie beyond it
        (a p50 takes 20, a p95 200) or it lies among requests that failed or were cancelled.
        ``pair_ratio`` is the median over pairs in which both sides have a value above 0.
    outcomes : polars.DataFrame
        ``status, left, right``: requests.
    differences : polars.DataFrame
        ``what, left, right``: where the runs' descriptions differ.
    pairing : str
        How requests were paired, in words.
    statement : str
        What the numbers can bear.
    """

    left: str
    right: str
    metrics: pl.DataFrame
    outcomes: pl.DataFrame
    differences: pl.DataFrame
    pairing: str
    statement: str = NO_INTERVAL

    @classmethod
    def of(cls, left: Run, right: Run) -> Comparison:
        """Compare two runs."""
        rows = (left.request_rows, right.request_rows)
        pairs, pairing = _pairs(*rows)
        counted = [
            run.metric("outcome_counts").select(pl.col("status").cast(pl.String), "requests") for run in (left, right)
        ]
        outcomes = counted[0].join(counted[1], on="status", how="left", maintain_order="left", suffix="_right")
        return cls(
            left.label,
            right.label,
            pl.DataFrame(list(_metric_rows(*rows, pairs)), schema=_SCHEMA, orient="row"),
            outcomes.rename({"requests": "left", "requests_right": "right"}),
            pl.DataFrame(
                list(_differences(left.info, right.info)),
                schema={"what": pl.String, "left": pl.String, "right": pl.String},
                orient="row",
            ),
            pairing,
        )

    def tables(self) -> list[Table]:
        """The comparison for a reader."""
        names = ("left", "right")
        metrics = []
        by_name = {metric.name: metric for metric in METRICS}
        for row in self.metrics.iter_rows(named=True):
            shown = by_name[row["metric"]].format
            metrics.append(
                (
                    row["metric"],
                    *(f"{row[f'{side}_requests']:,}" + _failed(row[f"{side}_failed"]) for side in names),
                    *(shown(row[f"{side}_p50"]) for side in names),
                    _shown_ratio(row["p50_ratio"]),
                    *(shown(row[f"{side}_p95"]) for side in names),
                    _shown_ratio(row["p95_ratio"]),
                    f"{row['pairs']:,}",
                    _shown_ratio(row["pair_ratio"]),
                )
            )
        columns = (
            "metric",
            "left n>",
            "right n>",
            "left p50>",
            "right p50>",
            "ratio>",
            "left p95>",
            "right p95>",
            "ratio>",
        )
        return [
            Table(
                f"Left {self.left}, right {self.right}; ratios are right over left",
                (*columns, "pairs>", "their ratio>"),
                metrics,
                f"{self.pairing} {self.statement}",
            ),
            Table(
                "Outcomes", ("status", "left>", "right>"), [tuple(map(str, row)) for row in self.outcomes.iter_rows()]
            ),
            Table(
                "What else differs",
                ("", "left", "right"),
                self.differences.rows(),
                "" if self.differences.height else "Nothing.",
            ),
        ]

    def __repr__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables())

    def _repr_html_(self) -> str:
        return markup.block(*(table.html() for table in self.tables()))


_SCHEMA: dict[str, Any] = {
    "metric": pl.String, "unit": pl.String,
    "left_requests": pl.Int64, "right_requests": pl.Int64, "left_failed": pl.Int64, "right_failed": pl.Int64,
    "left_p50": pl.Float64, "right_p50": pl.Float64, "p50_ratio": pl.Float64,
    "left_p95": pl.Float64, "right_p95": pl.Float64, "p95_ratio": pl.Float64,
    "pairs": pl.Int64, "pair_ratio": pl.Float64,
}  # fmt: skip


def _shown_ratio(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.3f}"


def _failed(count: int) -> str:
    return f" ({count} failed)" if count else ""


def _metric_rows(left: pl.DataFrame, right: pl.DataFrame, pairs: pl.DataFrame) -> Iterator[tuple[Any, ...]]:
    for metric in METRICS:
        one, other = Sample.of(metric, left), Sample.of(metric, right)
        if not len(one.values) or not len(other.values):
            continue
        quantiles: list[float | None] = []
        for q in (0.5, 0.95):
            values = [sample.quantile(q) for sample in (one, other)]
            quantiles += [*values, _ratio(*values)]
        both = pairs.select(
            left=pl.col(metric.column).cast(pl.Float64), right=pl.col(f"{metric.column}_right").cast(pl.Float64)
        )
        both = both.filter((pl.col("left") > 0) & (pl.col("right") > 0))
        median = both.select((pl.col("right") / pl.col("left")).median()).item()
        unit = "ns" if metric.is_time else "ratio"
        yield (metric.name, unit, len(one), len(other), one.failed, other.failed, *quantiles, both.height, median)


def _ratio(left: float | None, right: float | None) -> float | None:
    return right / left if left and right is not None else None


def _pairs(left: pl.DataFrame, right: pl.DataFrame) -> tuple[pl.DataFrame, str]:
    """Rows of `left` with the columns of their partners suffixed ``_right``, and how they were found."""
    columns = list(dict.fromkeys(metric.column for metric in METRICS))
    same = left.select("request", "content", *columns).join(right.select("request", "content", *columns), on="request")
    known = same.filter(pl.col("content").is_not_null() & pl.col("content_right").is_not_null())
    if known.height and (known["content"] == known["content_right"]).all():
        return known, f"{known.height:,} pairs by request number, whose contents agree."
    means = [
        rows.filter(pl.col("content").is_not_null()).group_by("content").agg(pl.col(columns).cast(pl.Float64).median())
        for rows in (left, right)
    ]
    paired = means[0].join(means[1], on="content").sort("content")
    if paired.height:
        return paired, f"{paired.height:,} pairs by content: the median of its requests on each side."
    return paired, "No pairs: the runs share no content."


def _differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Leaves of the runs' descriptions that are not equal."""
    for name in (*INFO, *NESTED):
        yield from _unequal(name, left[name], right[name])


def _unequal(name: str, left: Any, right: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            yield from _unequal(f"{name}.{key}", left.get(key), right.get(key))
    elif left != right:
        yield name, _short(left), _short(right)


def _short(value: Any) -> str:
    return "not stated" if value is None else str(value)
