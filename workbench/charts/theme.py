"""The one look of every chart: sizes, fonts and what each color means.

Sizes are CSS pixels, 96 to the inch, so a chart has its printed size in a browser, too: a column of 3.33 in is 320 px
and 8 pt type is 10.67 px. Color means the *kind* of an interval, the *stage*, or the *policy*, and each meaning has one
fixed assignment. Marks are opaque: each transparent mark costs a PDF group (1,500 points: 1.1 MB instead of 37 KB), so
a lighter tint is a lighter color. Everything here exists in Vega-Lite 5, which is what JupyterLab ships.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import altair as alt

from workbench.errors import UsageError

PX_PER_IN = 96
COLUMN_IN = 3.33
PAGE_IN = 7.0
HEIGHT_IN = 2.0
MAX_ROWS = 5_000

# For ``labelExpr`` of an axis or legend over a column of our vocabularies: "batch_wait" is shown as "batch wait".
PLAIN_LABELS = "replace(datum.label, /_/g, ' ')"

# Metric-compatible fallbacks: a browser without the first font lays the text out in the same boxes.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
TEXT_PX = 8 * PX_PER_IN / 72
TITLE_PX = 9 * PX_PER_IN / 72

INK = "#222222"
GRID = "#E3E3E3"
NOISE_BAND = "#EBEBEB"
MUTED = "#BDBDBD"

# Okabe & Ito (2008), "Color Universal Design": distinct under the common forms of color blindness.
BLACK, GREY = "#000000", "#7F7F7F"
BLUE, SKY, GREEN, YELLOW = "#0072B2", "#56B4E9", "#009E73", "#F0E442"
ORANGE, VERMILLION, PURPLE = "#E69F00", "#D55E00", "#CC79A7"

# Work is saturated and waiting is light, in every chart. Order is the order of legends and stacks.
KIND_COLORS = {
    "service": BLUE,
    "gpu": "#003D66",
    "preprocess": GREEN,
    "transfer": ORANGE,
    "deliver": PURPLE,
    "host": VERMILLION,
    "queue": "#C6DDF0",
    "batch_wait": "#FBE3A6",
    "credit_stall": "#F6C5A8",
    "join_wait": "#D5EBC4",
    "residency": "#E8E8E8",
    "unattributed": "#4D4D4D",
}

STAGE_COLORS = {
    "client": GREY,
    "thinker": BLUE,
    "phonemizer": PURPLE,
    "talker": ORANGE,
    "code2wav": GREEN,
    "audio_encoder": SKY,
    "image_encoder": VERMILLION,
    "prompt_encoder": "#882255",
    "parent": "#332288",
    "image_parent": "#332288",
    "companion": "#999933",
    "image_companion": "#999933",
    "guidance": YELLOW,
    "decoder": "#117733",
    "mux": "#44546A",
}

# Tol (2021), "muted", without the hues that stages above already hold.
FALLBACK_COLORS = ("#CC6677", "#44AA99", "#DDCC77", "#AA4499", "#661100", "#6699CC", "#88CCEE", "#5B2C83", "#7A5C00")


class PolicyStyle(NamedTuple):
    """How one policy is drawn: its color, and the dash (px on, px off; empty = solid) that repeats it for print."""

    color: str
    dash: tuple[int, ...]


POLICY_STYLES = {
    "baseline": PolicyStyle(GREY, ()),
    "stage-local": PolicyStyle(GREY, ()),
    "oracle": PolicyStyle(BLACK, (4, 2)),
    "bound": PolicyStyle(BLACK, (1, 2)),
    "oldest-first": PolicyStyle(SKY, (6, 2)),
    "queue-depth": PolicyStyle(ORANGE, (2, 2)),
    "static-replicas": PolicyStyle("#A6A6A6", (8, 2, 2, 2)),
    "critical-slack": PolicyStyle(VERMILLION, ()),
    "closed-loop": PolicyStyle(VERMILLION, ()),
}
FALLBACK_DASHES: tuple[tuple[int, ...], ...] = ((), (6, 2), (2, 2), (8, 2, 2, 2))

Figure = TypeVar("Figure", bound=alt.TopLevelMixin)


def _slot(name: str, size: int) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % size


def _unknown_colors(names: Iterable[str]) -> dict[str, str]:
    """Hashed colors; names that hash alike take neighbors, so a chart repeats a color only past nine unknown names."""
    taken: dict[str, str] = {}
    for name in sorted(set(names)):
        start = _slot(name, len(FALLBACK_COLORS))
        ring = FALLBACK_COLORS[start:] + FALLBACK_COLORS[:start]
        free = [color for color in ring if color not in taken.values()]
        taken[name] = free[0] if free else ring[0]
    return taken


def kind_scale(kinds: Iterable[str]) -> alt.Scale:
    """Color scale over interval kinds, in the fixed order of `KIND_COLORS`, holding only the kinds given.

    Raises
    ------
    UsageError
        A kind that the trace contract does not have.
    """
    present = set(kinds)
    if unknown := sorted(present - KIND_COLORS.keys()):
        raise UsageError(f"interval kinds out of {', '.join(KIND_COLORS)}", repr(unknown[0]))
    domain = [kind for kind in KIND_COLORS if kind in present]
    return alt.Scale(domain=domain, range=[KIND_COLORS[kind] for kind in domain])


def stage_scale(stages: Iterable[str]) -> alt.Scale:
    """Color scale over stages in the order given (graph order), each stage with its own color in every chart.

    A stage that no preset names takes a color from a hash of its name.
    """
    domain = list(dict.fromkeys(stages))
    fallback = _unknown_colors(stage for stage in domain if stage not in STAGE_COLORS)
    return alt.Scale(domain=domain, range=[STAGE_COLORS.get(stage) or fallback[stage] for stage in domain])


def policy_styles(policies: Iterable[str]) -> dict[str, PolicyStyle]:
    """Style of each policy, in the order given: baseline grey, oracle black and dashed, unknown ones by a hash."""
    names = list(dict.fromkeys(policies))
    fallback = _unknown_colors(name for name in names if name not in POLICY_STYLES)
    return {
        name: POLICY_STYLES.get(name) or PolicyStyle(fallback[name], FALLBACK_DASHES[_slot(name, len(FALLBACK_DASHES))])
        for name in names
    }


def policy_scales(policies: Iterable[str]) -> tuple[alt.Scale, alt.Scale]:
    """The color scale and the stroke-dash scale of the same policies; use both, so that print needs no color."""
    styles = policy_styles(policies)
    domain = list(styles)
    color = alt.Scale(domain=domain, range=[style.color for style in styles.values()])
    dash = alt.Scale(domain=domain, range=[list(style.dash) or [1, 0] for style in styles.values()])
    return color, dash


def figure(
    chart: Figure, *, width_in: float = COLUMN_IN, height_in: float = HEIGHT_IN, title: str = "", alt_text: str = ""
) -> Figure:
    """Give a chart its final size, and a title where it has no caption.

    Parameters
    ----------
    chart : altair chart
        A single view or a layer is fitted into ``width_in`` x ``height_in``, axes and legends included. Facets and
        concatenations cannot be fitted by Vega-Lite: set the sizes of their parts, and `save` checks the sum.
    width_in, height_in : float
        Inches at the final size; `COLUMN_IN` for one column, `PAGE_IN` for two.
    title : str
        Empty in a paper, where the caption says it; a chart function passes its title when a notebook asks for one.
    alt_text : str
        One sentence for a reader who cannot see the chart: what it shows and which way it points.

    Returns
    -------
    altair chart
        A copy.
    """
    properties: dict[str, Any] = {}
    if isinstance(chart, alt.Chart | alt.LayerChart):
        properties = {
            "width": round(width_in * PX_PER_IN),
            "height": round(height_in * PX_PER_IN),
            "autosize": alt.AutoSizeParams(type="fit", contains="padding"),
        }
    if title:
        properties["title"] = title
    if alt_text:
        properties["description"] = alt_text
    return chart.properties(**properties)


@alt.theme.register("workbench", enable=False)
def theme() -> alt.theme.ThemeConfig:
    """The Vega-Lite configuration: 8 pt type, opaque marks, a light grid on the value axis."""
    text = {"labelFontSize": TEXT_PX, "titleFontSize": TEXT_PX, "titleFontWeight": "normal", "labelColor": INK}
    text |= {"titleColor": INK, "labelLimit": 0, "titleLimit": 0}
    line = {"domainColor": INK, "tickColor": INK, "tickSize": 3, "domainWidth": 0.75, "tickWidth": 0.75}
    config: dict[str, Any] = {
        "background": "white",
        "font": FONT,
        "padding": 3,
        "view": {"stroke": None, "continuousWidth": 240, "continuousHeight": 130},
        "axis": {**text, **line, "gridColor": GRID, "gridWidth": 0.75, "labelPadding": 2, "titlePadding": 4},
        "axisXQuantitative": {"grid": False},
        "axisXTemporal": {"grid": False},
        "axisBand": {"grid": False, "labelAngle": 0},
        "axisPoint": {"grid": False, "labelAngle": 0},
        "legend": {**text, "orient": "top", "offset": 4, "symbolOpacity": 1, "rowPadding": 1, "columnPadding": 8},
        "header": {**text, "labelPadding": 3},
        "title": {"fontSize": TITLE_PX, "fontWeight": "bold", "color": INK, "anchor": "start", "offset": 6, "limit": 0},
        "mark": {"opacity": 1},
        "point": {"filled": True, "size": 24, "opacity": 1},
        "circle": {"size": 24, "opacity": 1},
        "square": {"size": 24, "opacity": 1},
        "tick": {"opacity": 1},
        "area": {"opacity": 1},
        "errorband": {"band": {"opacity": 1}},
        "line": {"strokeWidth": 1.5},
        "rule": {"color": INK, "strokeWidth": 0.75},
        "text": {"fontSize": TEXT_PX, "color": INK},
        "range": {"category": [BLUE, VERMILLION, GREEN, ORANGE, PURPLE, SKY, GREY]},
        "selection": {
            "interval": {"mark": {"fill": NOISE_BAND, "fillOpacity": 1, "stroke": GREY, "strokeOpacity": 1}},
        },
        # d3's default minus is U+2212; labels stay ASCII so that no font has to be substituted.
        "locale": {
            "number": {"decimal": ".", "thousands": ",", "grouping": [3], "currency": ["$", ""], "minus": "-"},
        },
    }
    return {"config": config}  # type: ignore[typeddict-item]


def specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """The Vega-Lite specification of a chart under this theme, whatever theme the session has enabled.

    Raises
    ------
    UsageError
        A data set of more than `MAX_ROWS` rows.
    """
    with alt.theme.enable("workbench"), alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = chart.to_dict(context={"pre_transform": False})
    for rows in spec.get("datasets", {}).values():
        check_rows(len(rows))
    return spec


def check_rows(rows: int) -> None:
    """Refuse more marks than a page can show or a notebook can open.

    Raises
    ------
    UsageError
        More than `MAX_ROWS` rows.
    """
    if rows > MAX_ROWS:
        raise UsageError(
            f"at most {MAX_ROWS:,} rows in one chart",
            f"{rows:,}",
            fix="Aggregate in SQL first: bin times with time // width, take quantiles or an ECDF at 200 points, or "
            "keep the requests that matter with ORDER BY ... LIMIT.",
        )
