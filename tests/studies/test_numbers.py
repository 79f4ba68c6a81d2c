"""Numbers of the paper: each one recomputed, none missing, and nothing that LaTeX would take for a command."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import polars as pl
import pytest
import scipy.stats

from tests.studies.campaign import GAP_NS, LOADS, PAIR_REQUESTS, PAIRS, REPEATS, REQUESTS, latencies_ns, run
from workbench.errors import UsageError
from workbench.studies import shadow_profile
from workbench.studies.numbers import FOCUS, _seconds, shadow_numbers, write_macros
from workbench.studies.path_shares import HANDOVER, participation_shares
from workbench.studies.probe_effect import noise_floors, probe_effects
from workbench.studies.shadow_profile import Profile
from workbench.testing.traces import changed
from workbench.trace import store
from workbench.units import S_NS

ALWAYS = {
    *("wbRuns", "wbHardware", "wbRequests", "wbEventCost", "wbTiledRequests", "wbUnattributedShare"),
    *(f"wb{terminal}Top{what}" for terminal in ("First", "Job") for what in ("Stage", "Share", "Drag")),
    *("wbProbePairs", "wbProbeEffect", "wbProbeEffectLow", "wbProbeEffectHigh", "wbNoiseFloor"),
}
PER_LOAD = ("Rate", "Failed", "TtfaMedian", "TtfaTail", "JctMedian", "JctTail")
NEVER = "not reached"


@pytest.fixture(scope="module")
def quoted(profile: Profile) -> dict[str, str]:
    return shadow_numbers(profile)


def test_every_macro_is_there_and_says_something(quoted: dict[str, str], smoke_profile: Profile) -> None:
    assert quoted.keys() == ALWAYS | {f"wb{name}{load.title()}" for name in PER_LOAD for load in LOADS}
    smoke = shadow_numbers(smoke_profile)
    assert smoke.keys() == ALWAYS | {f"wb{name}Light" for name in PER_LOAD}
    for text in (*quoted.values(), *smoke.values()):
        assert text
        assert not re.search(r"nan|inf|none", text, re.IGNORECASE), text


def test_counts(quoted: dict[str, str], profile: Profile, raw: Path) -> None:
    assert quoted["wbRuns"] == str(len(list(raw.iterdir())))
    assert quoted["wbRequests"] == str(6 * REQUESTS + 2 * len(PAIRS) * PAIR_REQUESTS + 3)
    assert quoted["wbHardware"] == "2 cores of an R&D chip_9 #1 at 50%"
    assert quoted["wbEventCost"] == r"0.25\,$\mu$s", "runs without probes do not enter"
    assert quoted["wbProbePairs"] == str(len(PAIRS))
    done = [latencies_ns(raw, label)["job_ns"].count() for label in profile.loads["run"]]
    assert quoted["wbTiledRequests"] == str(sum(done))
    assert quoted["wbUnattributedShare"] == r"less than 0.1\,\%"


@pytest.mark.parametrize("load", LOADS)
def test_latencies_of_all_scheduled_requests(quoted: dict[str, str], raw: Path, load: str) -> None:
    both = pl.concat([latencies_ns(raw, f"x-{load}-{repeat}") for repeat in REPEATS])
    place = load.title()
    assert quoted[f"wbRate{place}"] == f"{S_NS / GAP_NS[load]:.2f}"
    assert quoted[f"wbFailed{place}"] == f"{(both['status'] != 'ok').sum()} of {2 * REQUESTS}"
    for macro, column in (("Ttfa", "first_ns"), ("Jct", "job_ns")):
        done: list[float] = []
        cut: list[float] = []
        for status, latency_ns, cut_ns in both.select("status", column, "cut_ns").iter_rows():
            if latency_ns is None and status == "cancelled":
                cut.append(cut_ns / S_NS)
            else:
                done.append(math.inf if latency_ns is None else latency_ns / S_NS)
        assert len(done) + len(cut) == 2 * REQUESTS
        for name, q in (("Median", 0.5), ("Tail", 0.95)):
            value = product_limit(done, cut, q)
            assert quoted[f"wb{macro}{name}{place}"] == (NEVER if math.isinf(value) else f"{value:.2f}"), (macro, name)


def product_limit(done: list[float], cut: list[float], q: float) -> float:
    """Kaplan & Meier (1958): the first time at which the estimated share done reaches `q`, inf if none does."""
    remaining = 1.0
    for moment in sorted(set(done)):
        at_risk = sum(other >= moment for other in done + cut)
        remaining *= 1 - done.count(moment) / at_risk
        if 1 - remaining >= q - 1e-12:
            return moment
    return math.inf


def test_a_tail_among_failures_is_not_reached(quoted: dict[str, str]) -> None:
    assert quoted["wbTtfaTailOver"] == quoted["wbJctTailOver"] == NEVER
    assert NEVER not in {quoted[f"wb{name}Over"] for name in ("TtfaMedian", "JctMedian")}
    assert NEVER not in {quoted[f"wb{name}{load}"] for name in ("TtfaTail", "JctTail") for load in ("Light", "Near")}


def test_the_top_stage_is_the_longest_bar_of_the_load_in_focus(quoted: dict[str, str], profile: Profile) -> None:
    shares = participation_shares(profile, FOCUS).filter(pl.col("stage") != HANDOVER)
    for terminal in ("first", "job"):
        bars: dict[str, float] = {}
        drags: dict[str, float] = {}
        for stage, measure, share in shares.filter(pl.col("terminal") == terminal).drop("terminal").iter_rows():
            into = drags if measure == "drag" else bars
            into[stage] = into.get(stage, 0.0) + share
        top = max(bars, key=lambda stage: bars[stage])
        name = terminal.title()
        assert quoted[f"wb{name}TopStage"] == top
        assert quoted[f"wb{name}TopShare"] == f"{100 * bars[top]:.1f}\\,\\%"
        assert quoted[f"wb{name}TopDrag"] == f"{100 * drags[top]:.1f}\\,\\%"


def test_probe_numbers(quoted: dict[str, str], profile: Profile) -> None:
    effect = probe_effects(profile)[1]["median completion time"]
    for macro, ratio in (("", effect.ratio), ("Low", effect.low), ("High", effect.high)):
        assert quoted[f"wbProbeEffect{macro}"] == f"${100 * (ratio - 1):+.1f}\\,\\%$"
    floor = noise_floors(profile)["median completion time"]
    reach = float(scipy.stats.t.ppf(0.975, floor.degrees_of_freedom)) * floor.sd_log_ratio
    assert quoted["wbNoiseFloor"] == f"{100 * (math.exp(reach) - 1):.1f}\\,\\%"


def test_thousands_and_slow_probes() -> None:
    tables = run("x-light-a", seed=1, requests=200)
    slow = {"probe_ns_per_event": 2.5e6, "hardware": json.dumps({"cores": 64, "cpu": "EPYC"})}
    tables = changed(tables, "run", lambda rows: [row | slow for row in rows])
    more = run("x-pair1-on", seed=2, gap_ns=GAP_NS["over"], requests=900, fates=dict.fromkeys(range(10), "rejected"))
    more = changed(more, "run", lambda rows: [row | slow for row in rows])
    with store.load_tables([tables, more]) as connection:
        out = shadow_numbers(shadow_profile.profile(connection, "x"))
    assert (out["wbRequests"], out["wbEventCost"]) == ("1,100", r"2.5\,ms")
    assert out["wbProbePairs"] == "1"
    assert not out.keys() & {"wbProbeEffect", "wbNoiseFloor"}, "what one pair and one repeat do not tell is not quoted"


# --- the file ---


def test_macros_are_sorted_lines_that_latex_can_read(tmp_path: Path, quoted: dict[str, str]) -> None:
    path = tmp_path / "numbers.tex"
    write_macros(path, dict(reversed(quoted.items())))
    comment, *lines = path.read_text().splitlines()
    assert comment.startswith("% ")
    assert path.read_text().endswith("}\n")
    found = {}
    for line in lines:
        macro = re.fullmatch(r"\\newcommand\{\\(wb[A-Z][A-Za-z]*)\}\{(.+)\}", line)
        assert macro, line
        found[macro[1]] = macro[2]
    assert list(found) == sorted(quoted)
    for body in found.values():
        assert not re.search(r"(?<!\\)[&%#_~^]", body), body
        assert body.count("$") % 2 == 0
        assert body.count("{") == body.count("}") == 0
    assert found["wbHardware"] == r"2 cores of an R\&D chip\_9 \#1 at 50\%"
    assert found["wbTtfaTailOver"] == NEVER
    assert found["wbEventCost"] == r"0.25\,$\mu$s", "our own markup is left alone"
    path_again = tmp_path / "again.tex"
    write_macros(path_again, quoted)
    assert path_again.read_bytes() == path.read_bytes()


BAD_NAMES = ["wbRate2", "Rate", "wb", "wbrate", "wb Rate", "wbRate_light", "wbRäte", "wbA}{x", "wbA\n"]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_latex_could_not_call(tmp_path: Path, name: str) -> None:
    path = tmp_path / "numbers.tex"
    with pytest.raises(UsageError, match="expected macro names of the form wbName, found"):
        write_macros(path, {"wbRuns": "1", name: "2"})
    assert not path.exists()


def test_reading_a_number_back_loses_nothing_but_digits(quoted: dict[str, str], profile: Profile) -> None:
    effect = probe_effects(profile)[1]["median completion time"]
    shown = float(re.sub(r"[$\\%, ]", "", quoted["wbProbeEffect"]))
    assert math.isclose(1 + shown / 100, effect.ratio, abs_tol=0.000_51)


def test_a_quantile_of_too_few_requests_says_how_many_it_needs() -> None:
    few = pl.Series([10**9] * 30)
    assert _seconds(few, pl.Series([], dtype=pl.Int64), 0.5) == "1.00"
    assert _seconds(few, pl.Series([], dtype=pl.Int64), 0.95) == "needs 200 requests"
