"""Every figure of the shadow profile can be printed, from the whole campaign and from its smoke tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import altair as alt
import polars as pl
import pytest

from tests.charts.drawings import drawn, table
from workbench.charts.breakdown import breakdown
from workbench.charts.evolution import evolution
from workbench.charts.latency import latency_ecdf
from workbench.charts.participation import participation
from workbench.charts.probe_cost import probe_cost
from workbench.charts.stage_times import stage_times
from workbench.charts.timeline import timeline
from workbench.studies import load_response, one_request, path_shares, probe_effect
from workbench.studies.shadow_profile import Profile

Drawing = tuple[alt.TopLevelMixin, pl.DataFrame]


def draw_timeline(p: Profile, load: str) -> Drawing:
    one = one_request.request_intervals(p, one_request.typical_request(p, load))
    return timeline(one.intervals, stages=p.stages, origin_ns=one.scheduled_ns, marks=one.marks)


def draw_probe_cost(p: Profile, load: str) -> Drawing:
    pairs, effects = probe_effect.probe_effects(p)
    estimates, noise = probe_effect.effect_rows(effects), probe_effect.noise_rows(p)
    return probe_cost(pairs, estimates, noise=noise, metrics=list(effects))


FIGURES: dict[str, Callable[[Profile, str], Any]] = {
    "latency": lambda p, load: latency_ecdf(load_response.latency_points(p), loads=p.load_names),
    "path_breakdown": lambda p, load: breakdown(path_shares.path_breakdown(p), loads=p.load_names),
    "stage_times": lambda p, load: stage_times(
        load_response.stage_times(p), loads=p.load_names, stages=p.stages[1:]
    ),
    "participation": lambda p, load: participation(
        path_shares.participation_shares(p, load), stages=[*p.stages, path_shares.HANDOVER]
    ),
    "timeline": draw_timeline,
    "evolution": lambda p, load: evolution(
        load_response.evolution_series(p), loads=p.load_names, stages=p.stages
    ),
    "probe_cost": draw_probe_cost,
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_the_whole_campaign(profile: Profile, name: str) -> None:
    chart, frame = FIGURES[name](profile, "over")
    assert drawn(chart).count("<path") > 3
    assert len(table(frame)) == frame.height + 1


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_the_smoke_tier(smoke_profile: Profile, name: str) -> None:
    chart, frame = FIGURES[name](smoke_profile, "light")
    assert drawn(chart).count("<path") > 3
    assert len(table(frame)) == frame.height + 1
