"""What the probes cost: paired runs with probes on and off, against the noise of identical runs."""

from __future__ import annotations

import math
from typing import Final

import polars as pl
from scipy.stats import t as student_t

from workbench.stats.noise import NoiseFloor, noise_floor
from workbench.stats.paired import PairedEffect, paired_t
from workbench.studies.shadow_profile import Profile

PROBE_METRICS: Final = {
    "ttfa_p50_ns": "median time to first audio",
    "jct_p50_ns": "median completion time",
    "makespan_ns": "length of the run",
}


def run_metrics(p: Profile, runs: list[str]) -> pl.DataFrame:
    """Run-level metrics: medians over requests that ended ok, and first arrival to last outcome.

    Medians are over ok requests because both sides of a pair and of a repeat have the same requests; the outcome counts
    say whether as many ended ok.
    """
    frame = p.connection.sql(
        """
        SELECT m.run::VARCHAR AS run,
               quantile_cont(m.ttfa_ns, 0.5) FILTER (m.status = 'ok') AS ttfa_p50_ns,
               quantile_cont(m.jct_ns, 0.5) FILTER (m.status = 'ok') AS jct_p50_ns,
               any_value(r.last_ns - r.first_ns) AS makespan_ns,
               count(*) FILTER (m.status = 'ok') AS ok, count(*) AS requests
        FROM request_metrics AS m JOIN run AS r ON r.run = m.run
        GROUP BY m.run ORDER BY m.run
        """
    ).pl()
    chosen: pl.DataFrame = frame.filter(pl.col("run").is_in(runs))
    return chosen


def probe_effects(p: Profile) -> tuple[pl.DataFrame, dict[str, PairedEffect]]:
    """Probes on over probes off.

    Returns
    -------
    (polars.DataFrame, dict)
        Rows ``metric``, ``pair``, ``ratio``; and per metric the paired t over log ratios. Empty without pairs.
    """
    metrics = run_metrics(p, p.pairs["run"].to_list()).join(p.pairs, on="run")
    rows: list[dict[str, object]] = []
    effects = {}
    for column, name in PROBE_METRICS.items():
        sides = {
            probes: dict(metrics.filter(pl.col("probes") == probes).select("pair", column).iter_rows())
            for probes in ("on", "off")
        }
        both = sorted(sides["on"].keys() & sides["off"].keys())
        if len(both) < 2:
            continue
        on, off = ({pair: float(sides[side][pair]) for pair in both} for side in ("on", "off"))
        rows += [{"metric": name, "pair": pair, "ratio": on[pair] / off[pair]} for pair in both]
        effects[name] = paired_t(off, on)
    return pl.DataFrame(rows, schema={"metric": pl.String, "pair": pl.Int64, "ratio": pl.Float64}), effects


def effect_rows(effects: dict[str, PairedEffect]) -> pl.DataFrame:
    """``metric``, ``estimate``, ``low``, ``high`` of each paired effect, as ratios."""
    rows = [{"metric": m, "estimate": e.ratio, "low": e.low, "high": e.high} for m, e in effects.items()]
    return pl.DataFrame(
        rows, schema={"metric": pl.String, "estimate": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    )


def noise_floors(p: Profile) -> dict[str, NoiseFloor]:
    """A/A noise of each run-level metric, from the identical repeats of every load below saturation.

    The overloaded load is left out: past saturation the length of the queue amplifies every difference, so its spread
    is not the noise against which the probes are judged.
    """
    below = p.loads.filter(pl.col("load") != "over")
    metrics = run_metrics(p, below["run"].to_list()).join(below.select("run", "load"), on="run")
    floors = {}
    for column, name in PROBE_METRICS.items():
        repeats = {
            load: part[column].cast(pl.Float64).to_list()
            for (load,), part in metrics.group_by("load")
            if part.height > 1
        }
        if repeats:
            floors[name] = noise_floor(dict(sorted(repeats.items())))
    return floors


def noise_rows(p: Profile) -> pl.DataFrame:
    """``metric``, ``low``, ``high`` of the A/A band, as ratios."""
    rows = [
        {"metric": metric, "low": noise_band(floor)[0], "high": noise_band(floor)[1]}
        for metric, floor in noise_floors(p).items()
    ]
    return pl.DataFrame(rows, schema={"metric": pl.String, "low": pl.Float64, "high": pl.Float64})


def noise_reach(floor: NoiseFloor) -> float:
    """Log ratio that 95 % of pairs of identical runs stay below: Student's t with the floor's degrees of freedom."""
    return float(student_t.ppf(0.975, floor.degrees_of_freedom)) * floor.sd_log_ratio


def noise_band(floor: NoiseFloor) -> tuple[float, float]:
    """Ratios between which 95 % of single pairs of identical runs lie, if log ratios are normal."""
    reach = noise_reach(floor)
    return math.exp(-reach), math.exp(reach)
