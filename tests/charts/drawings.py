"""Charts as `save` would write them, and rows in another order, to compare."""

from __future__ import annotations

import csv
import io
from typing import Any
from xml.etree import ElementTree

import altair as alt
import polars as pl

from workbench.charts import renderer, theme
from workbench.charts.save import _check_drawing, _csv

# Names that a recorded graph may carry: they must come out as text, whatever they look like.
HOSTILE = [
    "<script>alert(1)</script>",
    'it\'s "quoted"',
    "a.b[0]",
    "{{x}} ${y} %s \\n",
    "datum.value",
    "__proto__",
    " ",
]


def drawn(chart: alt.TopLevelMixin) -> str:
    """The SVG of a chart: a valid specification, well-formed, opaque, ASCII and no wider than the page."""
    svg = renderer.to_svg(theme.specification(chart))
    _check_drawing(svg, "figure")
    ElementTree.fromstring(svg)
    assert "NaN" not in svg
    assert "undefined" not in svg
    return svg


def texts(svg: str) -> list[str]:
    """What is written in a drawing."""
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def table(frame: pl.DataFrame) -> list[list[str]]:
    """The rows that `save` writes beside a figure, header first."""
    return list(csv.reader(io.StringIO(_csv(frame, "figure"))))


def shuffled(frame: pl.DataFrame, seed: int) -> pl.DataFrame:
    return frame.sample(fraction=1.0, shuffle=True, seed=seed)


def assert_same(one: tuple[alt.TopLevelMixin, pl.DataFrame], other: tuple[alt.TopLevelMixin, pl.DataFrame]) -> None:
    """Both drawings have the same rows in the same order, and the same specification."""
    assert one[1].rows() == other[1].rows()
    assert theme.specification(one[0]) == theme.specification(other[0])


def encoding(spec: dict[str, Any], channel: str) -> list[dict[str, Any]]:
    """Every definition of a channel in a specification, in drawing order."""
    found = [spec["encoding"][channel]] if channel in spec.get("encoding", {}) else []
    for part in ("layer", "hconcat", "vconcat", "concat"):
        for child in spec.get(part, []):
            found += encoding(child, channel)
    return found
