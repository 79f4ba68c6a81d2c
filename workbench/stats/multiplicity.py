"""Families of tests: p values adjusted so that many looks do not manufacture a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from statsmodels.stats.multitest import multipletests

from workbench.errors import UsageError
from workbench.stats.samples import as_level, as_sample

Method = Literal["holm", "benjamini-hochberg"]

_STATSMODELS_NAME: dict[str, str] = {"holm": "holm", "benjamini-hochberg": "fdr_bh"}


@dataclass(frozen=True, slots=True)
class Family:
    """Adjusted p values of one family of tests.

    Attributes
    ----------
    adjusted : dict of str to float
        Adjusted p value by test name, in the order given.
    rejected : tuple of str
        Names whose adjusted p value is at most `alpha`, in the order given.
    method : str
        "holm" or "benjamini-hochberg".
    alpha : float
        Family-wise error rate (Holm) or false discovery rate (Benjamini-Hochberg).
    """

    adjusted: dict[str, float]
    rejected: tuple[str, ...]
    method: Method
    alpha: float


def adjust(p_values: Mapping[str, float], *, method: Method, alpha: float = 0.05) -> Family:
    """Adjust a family of p values for multiplicity.

    Holm's step-down controls the chance of *any* false finding under any dependence: for secondary endpoints of a
    claim. Benjamini-Hochberg controls the expected *share* of false findings under independence or positive
    dependence: for exploratory sweeps. One primary endpoint named beforehand needs neither.

    Parameters
    ----------
    p_values : mapping of str to float
        At least one, each in [0, 1]; every test that was looked at, not only those that came out.
    method : {"holm", "benjamini-hochberg"}
        No default: the choice is a claim about what is controlled.
    alpha : float
        Level for `Family.rejected`.

    Raises
    ------
    UsageError
        Empty family, a value that is missing or outside [0, 1], or an unknown method.

    References
    ----------
    Holm (1979), *Scand. J. Statist.* 6, 65-70; Benjamini & Hochberg (1995), *J. R. Statist. Soc. B* 57, 289-300;
    computed by `statsmodels.stats.multitest.multipletests`.

    Examples
    --------
    >>> family = adjust({"ttft": 0.01, "jct": 0.04, "jitter": 0.03}, method="holm")
    >>> {name: round(p, 3) for name, p in family.adjusted.items()}, family.rejected
    ({'ttft': 0.03, 'jct': 0.06, 'jitter': 0.06}, ('ttft',))
    """
    as_level(alpha, "alpha")
    if method not in _STATSMODELS_NAME:
        raise UsageError(" or ".join(map(repr, _STATSMODELS_NAME)), f"method={method!r}", where="method")
    names = list(p_values)
    values = as_sample(list(p_values.values()), "p_values", domain="real", labels=names)
    for name, value in zip(names, values.tolist(), strict=True):
        if not 0 <= value <= 1:
            raise UsageError("p values in [0, 1]", f"p_values[{name!r}]={value!r}", where="p_values")
    adjusted = [float(p) for p in multipletests(values, alpha=alpha, method=_STATSMODELS_NAME[method])[1]]
    return Family(
        adjusted=dict(zip(names, adjusted, strict=True)),
        rejected=tuple(name for name, p in zip(names, adjusted, strict=True) if p <= alpha),
        method=method,
        alpha=alpha,
    )
