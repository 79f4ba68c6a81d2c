"""Numbers as the paper quotes them: LaTeX macros, each computed from the store, none typed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl

from workbench.errors import UsageError
from workbench.stats.censoring import censored_quantile
from workbench.stats.quantiles import minimum_size
from workbench.studies.path_shares import HANDOVER, participation_shares
from workbench.studies.probe_effect import noise_floors, noise_reach, probe_effects
from workbench.studies.shadow_profile import TERMINALS, Profile, rebuild
from workbench.units import S_NS

NEVER_NS = 10**18  # a failed request ends here: after every latency, and still finite
FOCUS = "near"  # load whose critical path the paper shows
PLACES = {"light": "Light", "near": "Near", "over": "Over"}
_MACRO = re.compile(r"wb[A-Z][A-Za-z]*")


def shadow_numbers(p: Profile) -> dict[str, str]:
    """Macro name -> text, for the loads and pairs that the profile holds.

    Medians and 95th percentiles are over all scheduled requests of both repeats. A request that the client cancelled at
    a moment drawn beforehand is cut off there (Kaplan-Meier); one that failed never gets there, so that a tail among
    failures reads "not reached".
    """
    out: dict[str, str] = {}
    runs = p.connection.sql("SELECT label, hardware, events, probe_ns_per_event, probes FROM run ORDER BY label").pl()
    hardware = json.loads(runs["hardware"][0])
    out["wbRuns"] = str(runs.height)
    out["wbHardware"] = f"{hardware['cores']} cores of an {hardware['cpu']}"
    (total,) = p.connection.sql("SELECT count(*) FROM request").fetchall()[0]
    out["wbRequests"] = f"{total:,}"
    recorded = runs.filter(pl.col("probes") == "on")
    out["wbEventCost"] = _time(float(recorded["probe_ns_per_event"].median()) / S_NS)
    out |= _latencies(p) | _paths(p) | _probes(p)
    return out


def _latencies(p: Profile) -> dict[str, str]:
    out: dict[str, str] = {}
    metrics = p.connection.sql(
        "SELECT m.run::VARCHAR AS run, m.request, m.status::VARCHAR AS status, m.ttfa_ns, m.jct_ns, "
        "o.cancel_ns - m.scheduled_ns AS cut_ns FROM request_metrics AS m "
        "JOIN outcome AS o ON o.run = m.run AND o.request = m.request ORDER BY m.run, m.request"
    ).pl()
    for load in p.load_names:
        place, mine = PLACES[load], metrics.filter(pl.col("run").is_in(p.runs(load)))
        rate = p.loads.filter(pl.col("load") == load)["rate_per_s"][0]
        out[f"wbRate{place}"] = f"{rate:.2f}"
        failed = mine.filter(pl.col("status") != "ok").height
        out[f"wbFailed{place}"] = f"{failed} of {mine.height}"
        for macro, column in (("Ttfa", "ttfa_ns"), ("Jct", "jct_ns")):
            cut = mine.filter(pl.col(column).is_null() & (pl.col("status") == "cancelled"))["cut_ns"]
            done = mine.filter(pl.col(column).is_not_null() | (pl.col("status") != "cancelled"))[column]
            for name, q in (("Median", 0.5), ("Tail", 0.95)):
                out[f"wb{macro}{name}{place}"] = _seconds(done, cut, q)
    return out


def _seconds(done: pl.Series, cut: pl.Series, q: float) -> str:
    """A latency quantile in seconds, or why there is none."""
    if len(done) + len(cut) < minimum_size(q):
        return f"needs {minimum_size(q):,} requests"
    found = censored_quantile(done.fill_null(NEVER_NS).to_numpy(), cut.to_numpy(), q).value
    return "not reached" if found is None or found >= NEVER_NS else f"{found / S_NS:.2f}"


def _paths(p: Profile) -> dict[str, str]:
    checks = rebuild(p)
    per_run = checks.filter(pl.col("terminal") == "job")
    out = {
        "wbTiledRequests": f"{int(per_run['requests'].sum()):,}",
        "wbUnattributedShare": _at_most(float(checks["unattributed_share"].max() or 0.0)),  # type: ignore[arg-type]
    }
    shares = participation_shares(p, FOCUS if FOCUS in p.load_names else p.load_names[-1])
    for terminal, macro in zip(TERMINALS, ("First", "Job"), strict=True):
        mine = shares.filter((pl.col("terminal") == terminal) & (pl.col("stage") != HANDOVER))
        on_path = (
            mine.filter(pl.col("measure") != "drag")
            .group_by("stage")
            .agg(pl.col("share").sum())
            .sort("share", "stage", descending=[True, False])
        )
        top = on_path["stage"][0]
        drag = mine.filter((pl.col("stage") == top) & (pl.col("measure") == "drag"))["share"]
        out[f"wb{macro}TopStage"] = top
        out[f"wb{macro}TopShare"] = _percent(float(on_path["share"][0]))
        out[f"wb{macro}TopDrag"] = _percent(float(drag[0]) if drag.len() else 0.0)
    return out


def _probes(p: Profile) -> dict[str, str]:
    _, effects = probe_effects(p)
    out = {"wbProbePairs": str(p.pairs["pair"].n_unique())}
    if effect := effects.get("median completion time"):
        out["wbProbeEffect"] = _change(effect.ratio)
        out["wbProbeEffectLow"] = _change(effect.low)
        out["wbProbeEffectHigh"] = _change(effect.high)
    if floor := noise_floors(p).get("median completion time"):
        out["wbNoiseFloor"] = _percent(math.expm1(noise_reach(floor)))
    return out


def _percent(share: float) -> str:
    return f"{100 * share:.1f}\\,\\%"


def _at_most(share: float) -> str:
    return "less than 0.1\\,\\%" if share < 0.001 else _percent(share)


def _change(ratio: float) -> str:
    return f"${100 * (ratio - 1):+.1f}\\,\\%$"


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.2f}\\,$\\mu$s" if seconds < 1e-3 else f"{seconds * 1e3:.1f}\\,ms"


def write_macros(path: Path, numbers: Mapping[str, str]) -> None:
    r"""Write ``\newcommand`` lines, sorted by name.

    Raises
    ------
    UsageError
        A name that LaTeX could not call: macros are ``wb`` and letters.
    """
    for name in numbers:
        if not _MACRO.fullmatch(name):
            raise UsageError("macro names of the form wbName", repr(name), where=str(path))
    lines = [f"\\newcommand{{\\{name}}}{{{_plain(text)}}}" for name, text in sorted(numbers.items())]
    path.write_text(
        "% Written by the notebooks; every number is computed from the recorded runs.\n" + "\n".join(lines) + "\n"
    )


def _plain(text: str) -> str:
    """Escape what LaTeX would read as a command in a stage or CPU name; our own markup has a backslash already."""
    return (
        text if "\\" in text else text.replace("&", "\\&").replace("%", "\\%").replace("_", "\\_").replace("#", "\\#")
    )
