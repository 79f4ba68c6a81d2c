"""A displayed chart: three forms, valid in a notebook, the same bytes each time, and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import altair as alt
import nbformat
import papermill
import polars as pl
import pytest

from workbench import notebook_form
from workbench.charts import enable, renderer, theme
from workbench.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    """Enable the renderer and put Altair's own state back afterwards."""
    before = alt.renderers.active, alt.theme.active, alt.data_transformers.active
    enable()
    yield
    alt.renderers.enable(before[0])
    alt.theme.enable(before[1])
    alt.data_transformers.enable(before[2])


def chart() -> alt.Chart:
    rows = pl.DataFrame({"x": [1, 2, 3], "wait_ms": [2.0, 4.5, -1.0], "stage": ["a", "b", "<script>alert(1)</script>"]})
    bars = alt.Chart(rows).mark_bar(clip=True).encode(x="x:O", y="wait_ms:Q", color="stage:N")
    return theme.figure(bars, alt_text="Three waits.")


def test_the_three_forms() -> None:
    bundle = chart()._repr_mimebundle_()
    assert list(bundle) == ["application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"]
    spec = bundle["application/vnd.vegalite.v5+json"]
    assert spec["$schema"].endswith("/v5.json")
    assert spec["config"]["font"] == theme.FONT
    assert bundle["image/svg+xml"].startswith("<svg")
    assert bundle["text/plain"] == "Three waits."


def test_enabling_twice_and_drawing_twice_changes_nothing() -> None:
    first = json.dumps(chart()._repr_mimebundle_())
    enable()
    assert json.dumps(chart()._repr_mimebundle_()) == first


def test_names_in_the_data_stay_text() -> None:
    svg = chart()._repr_mimebundle_()["image/svg+xml"]
    assert "<script" not in svg
    assert "&lt;script&gt;" in svg


@pytest.mark.parametrize("character", ["\0", "\x07", "\x1b", "\x1f", "\ufffe", "\uffff"])
def test_a_character_that_no_svg_can_hold_is_written_as_an_escape(character: str) -> None:
    """The converter aborts the process on it, so that one name in a trace would end a kernel."""
    rows = pl.DataFrame({"x": [1], "stage": [f"talker{character}"]})
    bars = alt.Chart(rows).mark_bar().encode(x="x:O", y="stage:N").properties(title=f"a{character}b")
    svg = renderer.to_svg(theme.specification(bars))
    assert character not in svg
    assert f">a{character.encode('unicode_escape').decode()}b<" in svg


def test_nothing_is_fetched() -> None:
    remote = alt.Chart("https://example.org/rows.csv").mark_point().encode(x="x:Q")
    with pytest.raises(ValueError, match="not allowed"):
        renderer.to_svg(theme.specification(remote))


def test_the_row_limit_holds_on_display() -> None:
    long = pl.DataFrame({"x": range(theme.MAX_ROWS + 1)})
    with pytest.raises(UsageError, match="found 5,001"):
        alt.Chart(long).mark_point().encode(x="x:Q").to_dict()


def test_words_for_a_chart_without_a_description() -> None:
    rows = pl.DataFrame({"x": [1], "y": [2]})
    base = alt.Chart(rows).encode(x="x:Q", y="y:Q")
    layers = (base.mark_line() + base.mark_point()).properties(title="Load")
    assert renderer.alt_text(layers.to_dict()) == "Load: line, point of x, y"
    facets = alt.Chart(rows).mark_bar().encode(x="x:Q").facet("y:N")
    assert renderer.alt_text(facets.to_dict()) == "Chart: bar of x"
    assert renderer.alt_text((base.mark_bar() | base.mark_tick()).to_dict()) == "Chart: bar, tick of x, y"


def test_papermill_keeps_the_chart_and_the_notebook_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    source = """
import altair as alt
import polars as pl
from workbench.charts import enable, figure
enable()
figure(alt.Chart(pl.DataFrame({"x": [1, 2]})).mark_bar().encode(x="x:Q"), alt_text="Two bars.")
"""
    cells = [{"cell_type": "code", "metadata": {}, "source": source}]
    path = tmp_path / "chart.ipynb"
    path.write_text(notebook_form.dumps(notebook_form.normalized({"cells": cells})))
    papermill.execute_notebook(str(path), str(tmp_path / "out.ipynb"), progress_bar=False)
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    nbformat.validate(executed)
    (output,) = executed.cells[0].outputs
    assert set(output.data) == {"application/vnd.vegalite.v5+json", "image/svg+xml", "text/plain"}
