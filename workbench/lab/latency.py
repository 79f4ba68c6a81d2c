"""Per-request metrics as samples: failures stay in, cancelled requests are cut off, and a thin tail gives no number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from workbench.stats import TooFewForQuantile, minimum_size, quantile
from workbench.stats.censoring import censored_quantile
from workbench.stats.samples import FloatArray
from workbench.units import format_ns

QUANTILES = (0.5, 0.95, 0.99)
NOT_REACHED = "not reached"

_NEVER_NS = 1e18  # a failed request ends here: after every latency, and still finite


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the view ``request_metrics``.

    Attributes
    ----------
    name, title : str
        Name of the view that defines it, and words for a reader.
    column : str
        Column of ``request_metrics``.
    is_time : bool
        Nanoseconds, or else a ratio.
    awaited : bool
        Whether every request should have got there: one that failed without a value never does. False where the metric
        speaks of something that happened, such as lateness of chunks that came.
    """

    name: str
    title: str
    column: str
    is_time: bool = True
    awaited: bool = True

    def format(self, value: float | None) -> str:
        """A value with its unit; None reads n/a."""
        if value is None:
            return "n/a"
        return format_ns(value) if self.is_time else f"{value:.3g}"


METRICS = (
    Metric("ttfo", "time to first output", "ttfo_ns"),
    Metric("ttft", "time to first text", "ttft_ns"),
    Metric("ttfa", "time to first audio", "ttfa_ns"),
    Metric("jct", "job completion time", "jct_ns"),
    Metric("rtf", "real-time factor after first audio", "rtf", is_time=False, awaited=False),
    Metric("jct_per_audio_s", "completion time per audio second", "jct_per_audio_s", is_time=False, awaited=False),
    Metric("underrun", "silence a listener hears", "underrun_ns", awaited=False),
    Metric("slowdown", "slowdown against the isolated run", "slowdown", is_time=False, awaited=False),
    Metric("submit_lag", "lag of the load generator", "submit_lag_ns", awaited=False),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One metric over the requests of a run.

    Attributes
    ----------
    metric : Metric
        What it is.
    values : ndarray of float64
        Known values in the metric's unit (ns or ratio), sorted.
    failed : int
        Requests that failed without a value: they never get there.
    cut : ndarray of float64
        Per request that the client cancelled before there was a value, the time from its scheduled arrival to then.
    unknown : int
        Requests that say nothing and are left out: ended ok without a value, of a kind the metric does not speak of,
        cancelled at an unknown moment, or with a negative value, which is impossible.
    """

    metric: Metric
    values: FloatArray
    failed: int
    cut: FloatArray
    unknown: int

    @classmethod
    def of(cls, metric: Metric, requests: pl.DataFrame) -> Sample:
        """Take a metric from `Run.request_rows`."""
        value, status = pl.col("value"), pl.col("status")
        rows = requests.select(
            pl.col(metric.column).cast(pl.Float64).alias("value"),
            pl.col("status").cast(pl.String).fill_null("unfinished").alias("status"),
            pl.col("cut_ns").cast(pl.Float64).alias("cut_ns"),
        )
        values = rows.filter(value >= 0)["value"].sort().to_numpy()
        failed, cut = 0, np.empty(0)
        if metric.awaited and len(values):
            failed = rows.filter(value.is_null() & ~status.is_in(["ok", "cancelled"])).height
            cut = rows.filter(value.is_null() & (status == "cancelled") & (pl.col("cut_ns") >= 0))["cut_ns"].to_numpy()
        return cls(metric, values, failed, cut, requests.height - len(values) - failed - len(cut))

    def __len__(self) -> int:
        return len(self.values) + self.failed + len(self.cut)

    def is_thin(self, q: float) -> bool:
        """Whether fewer than 10 requests lie beyond the quantile, so that it is no number."""
        return len(self) < minimum_size(q)

    def quantile(self, q: float) -> float | None:
        """The quantile; None where the tail is too thin (`is_thin`) or lies among requests that never got there.

        Of metrics that every request awaits: Kaplan-Meier, failed requests after all others, cancelled ones cut off;
        this assumes that the moment of a cancel has nothing to do with how the request went. Of the others: type 7.
        """
        try:
            if not self.metric.awaited:
                return quantile(self.values, q).value
            done = np.append(self.values, np.full(self.failed, _NEVER_NS))
            value = censored_quantile(done, self.cut, q).value
        except TooFewForQuantile:
            return None
        return value if value is not None and value < _NEVER_NS else None

    def shown(self, q: float) -> str:
        """The quantile for a reader, or why there is none."""
        if self.is_thin(q):
            return f"needs {minimum_size(q):,}"
        value = self.quantile(q)
        return NOT_REACHED if value is None else self.metric.format(value)

    def as_dict(self) -> dict[str, Any]:
        """Plain values: quantiles in the metric's unit, null with the reason where there is none."""
        quantiles = {}
        for q in QUANTILES:
            reason = None
            value = self.quantile(q)
            if self.is_thin(q):
                reason = f"needs {minimum_size(q)} requests, there are {len(self)}"
            elif value is None:
                reason = "it lies among requests that failed or were cancelled"
            quantiles[f"p{q * 100:g}"] = {"value": value, "reason": reason}
        return {
            "metric": self.metric.name,
            "unit": "ns" if self.metric.is_time else "ratio",
            "requests": len(self),
            "failed": self.failed,
            "cancelled": len(self.cut),
            "unknown": self.unknown,
            "quantiles": quantiles,
        }


def samples(requests: pl.DataFrame) -> list[Sample]:
    """All of `METRICS` that have at least one value."""
    every = (Sample.of(metric, requests) for metric in METRICS)
    return [sample for sample in every if len(sample.values)]
