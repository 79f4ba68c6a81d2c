"""How latency, waiting, service, queues and bytes respond to load."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.stats.stability import stability
from workbench.studies.shadow_profile import Profile
from workbench.units import S_NS

BINS: Final = 110
ECDF_POINTS: Final = 160


def stage_times(p: Profile) -> pl.DataFrame:
    """W_v and S_v per load and stage: median and 95th percentile over the requests of both repeats.

    Returns
    -------
    polars.DataFrame
        ``load``, ``stage``, ``quantity`` ("W_v" or "S_v"), ``p50_ms``, ``p95_ms``, ``requests``.
    """
    frame = p.connection.sql(
        """
        SELECT w.run::VARCHAR AS run, w.stage::VARCHAR AS stage, w.wait_ns, s.service_ns
        FROM stage_wait AS w
        JOIN stage_service AS s ON s.run = w.run AND s.request = w.request AND s.stage = w.stage
        ORDER BY w.run, w.stage, w.request
        """
    ).pl()
    joined = frame.join(p.loads.select("run", "load"), on="run")
    parts = [
        joined.group_by("load", "stage")
        .agg(
            (pl.col(column).quantile(0.5, "linear") / 1e6).alias("p50_ms"),
            (pl.col(column).quantile(0.95, "linear") / 1e6).alias("p95_ms"),
            pl.len().alias("requests"),
        )
        .with_columns(pl.lit(quantity).alias("quantity"))
        for quantity, column in (("W_v", "wait_ns"), ("S_v", "service_ns"))
    ]
    columns = ["load", "stage", "quantity", "p50_ms", "p95_ms", "requests"]
    times: pl.DataFrame = pl.concat([part.select(columns) for part in parts]).sort("load", "stage", "quantity")
    return times


def latency_points(p: Profile) -> pl.DataFrame:
    """Empirical distributions over *all* scheduled requests; a request without the value never gets there.

    Returns
    -------
    polars.DataFrame
        ``load``, ``repeat``, ``metric`` ("ttfa", "jct"), ``seconds``, ``share``; at most 160 points per curve.
    """
    metrics = p.connection.sql(
        "SELECT run::VARCHAR AS run, request, status, ttfa_ns, jct_ns FROM request_metrics ORDER BY run, request"
    ).pl()
    rows = []
    for run, load, repeat in p.loads.select("run", "load", "repeat").iter_rows():
        mine = metrics.filter(pl.col("run") == run)
        for metric, column in (("ttfa", "ttfa_ns"), ("jct", "jct_ns")):
            values = np.sort(mine[column].drop_nulls().to_numpy()) / S_NS
            for rank in np.unique(np.linspace(1, len(values), min(len(values), ECDF_POINTS)).round().astype(int)):
                rows.append(
                    {
                        "load": load,
                        "repeat": repeat,
                        "metric": metric,
                        "seconds": float(values[rank - 1]),
                        "share": int(rank) / mine.height,
                    }
                )
    return pl.DataFrame(rows)


def evolution_series(p: Profile, *, repeat: str = "a") -> pl.DataFrame:
    """Queue depth, oldest wait and bytes in flight over the run: the largest value in each of 110 bins.

    Returns
    -------
    polars.DataFrame
        ``load``, ``quantity``, ``stage``, ``at_s``, ``value``. Bytes are the sum over the edges that lead to the
        stage; an edge whose sizes are not known is left out.
    """
    sources = {
        "queue_depth": (
            "SELECT stage::VARCHAR AS stage, at_ns, depth AS value FROM queue_depth WHERE run = ?",
            1.0,
            True,
        ),
        "oldest_wait_s": (
            "SELECT stage::VARCHAR AS stage, at_ns, oldest_wait_ns AS value FROM oldest_wait WHERE run = ?",
            1.0 / S_NS,
            False,
        ),
        "in_flight_kib": (
            "SELECT e.target::VARCHAR AS stage, f.at_ns, "
            "(sum(sum(f.bytes)) OVER (PARTITION BY e.target ORDER BY f.at_ns))::BIGINT AS value "
            "FROM in_flight_step AS f JOIN edge AS e ON e.run = f.run AND e.edge = f.edge "
            "WHERE f.run = ? AND f.bytes IS NOT NULL GROUP BY e.target, f.at_ns",
            1.0 / 1024,
            True,
        ),
    }
    rows = []
    for run, load, mine, first_ns, last_ns in p.loads.select(
        "run", "load", "repeat", "first_ns", "last_ns"
    ).iter_rows():
        if mine != repeat:
            continue
        edges = np.linspace(first_ns, last_ns, BINS + 1)
        for quantity, (query, scale, is_step) in sources.items():
            found = p.connection.sql(f"{query} ORDER BY stage, at_ns, value DESC", params=[run]).pl()
            for (stage,), part in found.group_by("stage", maintain_order=True):
                tops = binned_max(part["at_ns"].to_numpy(), part["value"].to_numpy(), edges, is_step=is_step)
                for at_ns, value in zip(edges[:-1], tops, strict=True):
                    rows.append(
                        {
                            "load": load,
                            "quantity": quantity,
                            "stage": stage,
                            "at_s": (float(at_ns) - first_ns) / S_NS,
                            "value": float(value) * scale,
                        }
                    )
    return pl.DataFrame(rows)


def binned_max(
    at: npt.NDArray[np.int64], value: npt.NDArray[np.int64], edges: npt.NDArray[np.float64], *, is_step: bool
) -> npt.NDArray[np.float64]:
    """Largest value of a function in each bin, also where the bin holds none of its rows.

    Parameters
    ----------
    at, value : numpy.ndarray, shape (n,)
        Rows sorted by `at`. 0 before the first.
    edges : numpy.ndarray, shape (bins + 1,)
        Increasing.
    is_step : bool
        True: a value holds until the next row. False: linear between rows (the sawtooth of the view ``oldest_wait``,
        where a drop is two rows of one moment).

    Examples
    --------
    >>> at, value = np.array([0, 10, 40]), np.array([1, 5, 0])
    >>> binned_max(at, value, np.array([0.0, 20.0, 30.0, 60.0]), is_step=True).tolist()
    [5.0, 5.0, 5.0]
    """
    tops = np.zeros(len(edges) - 1)
    bins = np.searchsorted(edges, at, side="right") - 1
    inside = (bins >= 0) & (bins < len(tops))
    np.maximum.at(tops, bins[inside], value[inside].astype(float))
    if is_step:
        before = np.searchsorted(at, edges[:-1], side="right") - 1  # the row that holds when the bin begins
        carried = np.where(before >= 0, value[np.maximum(before, 0)], 0).astype(float)
        return np.asarray(np.maximum(tops, carried))
    for side in (edges[:-1], edges[1:]):
        after = np.minimum(np.searchsorted(at, side, side="left"), len(at) - 1)
        last = np.maximum(after - 1, 0)
        width = np.maximum(at[after] - at[last], 1)
        grown = value[last] + (value[after] - value[last]) * np.clip((side - at[last]) / width, 0.0, 1.0)
        grown = np.where((side < at[0]) | (side > at[-1]), 0.0, grown)
        tops = np.maximum(tops, grown)
    return np.asarray(tops)


def stability_verdicts(p: Profile) -> pl.DataFrame:
    """Whether requests in flight grew without bound, per load run: ``load``, ``run``, ``verdict``, ``why``."""
    rows = []
    for run, load in p.loads.select("run", "load").iter_rows():
        times = p.connection.sql(
            "SELECT r.scheduled_ns, o.end_ns FROM request AS r "
            "JOIN outcome AS o ON o.run = r.run AND o.request = r.request WHERE r.run = ? ORDER BY r.request",
            params=[run],
        ).pl()
        judged = stability(times["scheduled_ns"].to_numpy(), times["end_ns"].drop_nulls().to_numpy())
        rows.append({"load": load, "run": run, "verdict": judged.verdict, "why": judged.reason})
    return pl.DataFrame(rows)
