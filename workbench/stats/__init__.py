"""Statistics of serving experiments: thin over scipy and statsmodels, with their preconditions enforced.

Runs are compared by seed (`paired_t`, `sign_flip`, `equivalence`, `regret`) against the noise between identical runs
(`noise_floor`, `minimal_detectable_effect`); tails are read with failures counted (`quantile` and its intervals), and
only from runs that `stability` does not call unstable.
"""

from __future__ import annotations

from workbench.stats.censoring import CensoredQuantile, censored_quantile
from workbench.stats.fairness import TailSlowdown, jain_index, slowdown, tail_slowdown
from workbench.stats.multiplicity import Family, adjust
from workbench.stats.noise import NoiseFloor, minimal_detectable_effect, noise_floor, pairs_needed
from workbench.stats.paired import Equivalence, PairedEffect, SignFlip, equivalence, paired_t, sign_flip
from workbench.stats.pareto import ParetoFront, pareto_front
from workbench.stats.proportions import Proportion, failure_bound, proportion
from workbench.stats.quantiles import (
    Quantile,
    QuantileBootstrap,
    QuantileBounds,
    TooFewForQuantile,
    minimum_size,
    quantile,
    quantile_bootstrap,
    quantile_bounds,
    quantile_replicates,
)
from workbench.stats.regret import Regret, regret
from workbench.stats.samples import TooFewPairs, UnpairedRuns
from workbench.stats.stability import Stability, stability

__all__ = [
    "CensoredQuantile",
    "Equivalence",
    "Family",
    "NoiseFloor",
    "PairedEffect",
    "ParetoFront",
    "Proportion",
    "Quantile",
    "QuantileBootstrap",
    "QuantileBounds",
    "Regret",
    "SignFlip",
    "Stability",
    "TailSlowdown",
    "TooFewForQuantile",
    "TooFewPairs",
    "UnpairedRuns",
    "adjust",
    "censored_quantile",
    "equivalence",
    "failure_bound",
    "jain_index",
    "minimal_detectable_effect",
    "minimum_size",
    "noise_floor",
    "paired_t",
    "pairs_needed",
    "pareto_front",
    "proportion",
    "quantile",
    "quantile_bootstrap",
    "quantile_bounds",
    "quantile_replicates",
    "regret",
    "sign_flip",
    "slowdown",
    "stability",
    "tail_slowdown",
]
