"""What colors mean, that they can be told apart, and that the theme is one Vega-Lite 5 can draw."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import altair as alt
import numpy as np
import polars as pl
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from workbench.charts import renderer, theme
from workbench.errors import UsageError
from workbench.graph import preset, presets
from workbench.schema.enums import SPAN_KIND, WAIT_KINDS

# Machado, Oliveira & Fernandes (2009), severity 1.0, for linear RGB.
COLOR_VISION = {
    "usual": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}


def lab(color: str, vision: str = "usual") -> np.ndarray:
    """CIE L*a*b* (D65) of an sRGB color as a viewer with that color vision sees it."""
    srgb = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(COLOR_VISION[vision] @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ seen
    ratio = xyz / np.array([0.95047, 1.0, 1.08883])
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def nearest(colors: Iterable[str], vision: str) -> float:
    """Smallest distance (CIE76) between two of the colors."""
    pairs = itertools.combinations(colors, 2)
    return min(float(np.linalg.norm(lab(one, vision) - lab(other, vision))) for one, other in pairs)


def frame() -> pl.DataFrame:
    rows = [{"x": i / 10 - 1, "y": float(i * 7 % 13 - 5), "s": ["thinker", "talker"][i % 2]} for i in range(40)]
    return pl.DataFrame(rows)


def draw(chart: alt.TopLevelMixin) -> str:
    return renderer.to_svg(theme.specification(chart))


def test_every_kind_of_the_trace_has_a_color_and_no_other() -> None:
    assert set(theme.KIND_COLORS) == set(SPAN_KIND)


def test_waiting_is_light_and_work_is_not() -> None:
    waits = [*WAIT_KINDS, "residency"]
    work = [kind for kind in SPAN_KIND if kind not in waits]
    assert (
        min(lab(theme.KIND_COLORS[kind])[0] for kind in waits)
        > max(lab(theme.KIND_COLORS[kind])[0] for kind in work) + 10
    )


@pytest.mark.parametrize(("vision", "distance"), [("usual", 12), ("protan", 5), ("deutan", 5)])
def test_kinds_can_be_told_apart(vision: str, distance: float) -> None:
    assert nearest(theme.KIND_COLORS.values(), vision) > distance


@pytest.mark.parametrize("name", presets())
def test_stages_of_a_preset_can_be_told_apart(name: str) -> None:
    stages = [stage.name for stage in preset(name).stages]
    colors = theme.stage_scale(stages).to_dict()["range"]
    assert set(stages) <= theme.STAGE_COLORS.keys(), "a preset's stage has a color of its own"
    assert nearest(colors, "usual") > 20
    assert nearest(colors, "deutan") > 5


def test_kind_scale_keeps_the_fixed_order_and_only_what_is_there() -> None:
    scale = theme.kind_scale(["queue", "service", "queue", "host"]).to_dict()
    assert scale["domain"] == ["service", "host", "queue"]
    assert scale["range"] == [theme.KIND_COLORS[kind] for kind in scale["domain"]]
    with pytest.raises(UsageError, match="found 'sleep'"):
        theme.kind_scale(["service", "sleep"])


def test_an_unknown_stage_has_the_same_color_alone_and_beside_others() -> None:
    alone = theme.stage_scale(["upsampler"]).to_dict()["range"][0]
    scale = theme.stage_scale(["thinker", "upsampler", "talker"]).to_dict()
    assert scale["domain"] == ["thinker", "upsampler", "talker"]
    assert scale["range"] == [theme.BLUE, alone, theme.ORANGE]


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=len(theme.FALLBACK_COLORS), unique=True))
def test_unknown_names_in_one_chart_differ_and_do_not_depend_on_order(names: list[str]) -> None:
    names = [f"~{name}" for name in names]
    forward = theme.policy_styles(names)
    assert len({style.color for style in forward.values()}) == len(names)
    assert forward == theme.policy_styles(reversed(names))


def test_the_baseline_is_grey_and_the_oracle_black_and_dashed() -> None:
    color, dash = theme.policy_scales(["stage-local", "oracle", "critical-slack"])
    assert color.to_dict()["range"] == [theme.GREY, theme.BLACK, theme.VERMILLION]
    assert dash.to_dict()["range"] == [[1, 0], [4, 2], [1, 0]]


def test_a_figure_has_its_printed_size_and_8_point_type() -> None:
    chart = theme.figure(alt.Chart(frame()).mark_line().encode(x="x:Q", y="y:Q", color="s:N"), alt_text="A line.")
    svg = draw(chart)
    assert 'width="320" height="192"' in svg[:300]
    sizes = {float(size) for size in re.findall(r'font-size="([\d.]+)px"', svg)}
    assert sizes == {8 * 96 / 72}
    wide = draw(theme.figure(chart, width_in=theme.PAGE_IN, height_in=1.5))
    assert 'width="672" height="144"' in wide[:300]


def test_only_a_notebook_gets_a_title() -> None:
    chart = alt.Chart(frame()).mark_line().encode(x="x:Q", y="y:Q")
    assert "Waits" not in draw(theme.figure(chart))
    assert ">Waits</text>" in draw(theme.figure(chart, title="Waits"))


def test_negative_labels_are_ascii() -> None:
    svg = draw(theme.figure(alt.Chart(frame()).mark_point().encode(x="x:Q", y="y:Q")))
    assert re.search(r">-\d[\d.]*</text>", svg)
    assert svg.isascii()


@pytest.mark.parametrize(
    "mark",
    ["area", "bar", "circle", "errorband", "line", "point", "rect", "rule", "square", "text", "tick", "trail"],
)
def test_every_mark_is_opaque(mark: str) -> None:
    chart = getattr(alt.Chart(frame()), f"mark_{mark}")().encode(x="x:Q", y="y:Q")
    assert not re.search(r'opacity="0?\.\d', draw(chart))


def test_bars_start_at_zero() -> None:
    bars = alt.Chart(pl.DataFrame({"s": ["a", "b"], "y": [90.0, 100.0]})).mark_bar().encode(x="s:N", y="y:Q")
    assert ">0</text>" in draw(theme.figure(bars))


def test_a_brush_is_opaque_and_both_runtimes_draw_the_same() -> None:
    brush = alt.selection_interval(encodings=["x"])
    legend = alt.selection_point(fields=["s"], bind="legend")
    overview = alt.Chart(frame()).mark_area(color=theme.MUTED).encode(x="x:Q", y="y:Q").add_params(brush)
    color = alt.Color("s:N", scale=theme.stage_scale(["thinker", "talker"]))
    detail = alt.Chart(frame()).mark_bar(clip=True).encode(x=alt.X("x:Q").scale(domain=brush), y="y:Q")
    detail = detail.encode(color=alt.when(legend).then(color).otherwise(alt.value(theme.MUTED))).add_params(legend)
    spec = theme.specification(theme.figure(alt.vconcat(overview, detail)))
    svg = renderer.to_svg(spec)
    assert not re.search(r'opacity="0?\.\d', svg)
    # 5.8 is the oldest runtime at hand; JupyterLab 4.6 ships 5.6.1, and the browser test draws with that one.
    older = vl_convert.vegalite_to_svg(spec | {"$schema": renderer.VEGALITE_SCHEMA}, vl_version="5.8")
    assert re.sub(r"\b(?:clip|d)\d+\b", "", older) == re.sub(r"\b(?:clip|d)\d+\b", "", svg)


def test_too_many_rows_say_how_many_and_what_to_do() -> None:
    long = pl.DataFrame({"x": range(theme.MAX_ROWS + 1)})
    with pytest.raises(UsageError, match=r"at most 5,000 rows in one chart, found 5,001\. Aggregate in SQL"):
        theme.specification(alt.Chart(long).mark_point().encode(x="x:Q"))
    theme.specification(alt.Chart(long.head(theme.MAX_ROWS)).mark_point().encode(x="x:Q"))
