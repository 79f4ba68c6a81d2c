"""Write a figure: SVG, PDF and PNG for readers, CSV of the plotted rows for checkers, JSON of what it was made from.

The same chart and the same inputs give the same bytes, in any process. Three things see to that: rows are rounded to
six significant digits before they are written (the last bits of a float differ between processors), PDF objects are
written in the order in which the page reaches them (the converter emits them in hash order), and nothing carries a
time.
"""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import pikepdf
import polars as pl
import vl_convert

from workbench.charts import renderer, theme
from workbench.errors import UsageError

PNG_PER_IN = 300
SIGNIFICANT_DIGITS = 6
PROVENANCE_KEYS = frozenset({"raw", "parameters", "code_sha256", "versions"})

_SIZE = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
_NOT_ASCII = re.compile(r'[^<>"]*[^\x00-\x7f][^<>"]*')
_TRANSPARENT = re.compile(r'\b(?:fill-|stroke-)?opacity="0?\.\d+"|"(?:rgba|hsla)\([^"]*"')


def save(
    chart: alt.TopLevelMixin, frame: pl.DataFrame, path_stem: str | Path, provenance: Mapping[str, Any]
) -> list[Path]:
    """Write NAME.svg, .pdf, .png, .csv and .json.

    Every file is written beside its place and renamed into it, the JSON last: a file is whole or it is the one from
    before, and a set without a new JSON was interrupted.

    Parameters
    ----------
    chart : altair chart
        Opaque marks, ASCII text, at most `theme.PAGE_IN` wide.
    frame : polars.DataFrame
        The plotted rows, sorted, 1 to 5,000. Floats are written with six significant digits, integers exactly, null as
        an empty field.
    path_stem : str or Path
        Where, without a suffix: ``figures/fig1_waits``. The name goes into the JSON.
    provenance : mapping
        From `workbench.provenance.inputs`: raw hashes, parameters, code hash, versions.

    Returns
    -------
    list of Path
        The five files, in the order above.

    Raises
    ------
    UsageError
        An empty or too long frame, a column that is not a plain value, provenance that is incomplete, a transparent
        mark, text that is not ASCII, a chart that is wider than the page. Nothing is written then.
    """
    stem = Path(path_stem)
    table = _csv(frame, stem.name)
    record = _json(provenance, stem.name)
    svg = renderer.to_svg(theme.specification(chart))
    _check_drawing(svg, stem.name)
    contents = {
        ".svg": (svg + "\n").encode(),
        ".pdf": _pdf(svg),
        ".png": vl_convert.svg_to_png(svg, scale=PNG_PER_IN / theme.PX_PER_IN),
        ".csv": table.encode(),
        ".json": record.encode(),
    }
    return _publish(stem, contents)


def _csv(frame: pl.DataFrame, name: str) -> str:
    if frame.is_empty():
        raise UsageError("plotted rows", "an empty frame", where=name, fix="Check the filter that made it.")
    theme.check_rows(frame.height)
    for column, dtype in frame.schema.items():
        if dtype.is_nested() or dtype == pl.Object or dtype == pl.Binary:
            raise UsageError("plain values in plotted rows", f"{dtype}", where=f"{name}, column {column!r}")
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(frame.columns)
    writer.writerows([_field(value) for value in row] for row in frame.iter_rows())
    return text.getvalue()


def _field(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # Adding 0.0 turns -0.0 into 0.0: the sign of a zero is noise of the summation order.
        return format(value + 0.0, f".{SIGNIFICANT_DIGITS}g") if math.isfinite(value) else str(value)
    return str(value)


def _json(provenance: Mapping[str, Any], name: str) -> str:
    if missing := sorted(PROVENANCE_KEYS - provenance.keys()):
        raise UsageError(
            f"provenance with {', '.join(sorted(PROVENANCE_KEYS))}",
            f"no {', '.join(missing)}",
            where=name,
            fix="Build it with workbench.provenance.inputs(runs, parameters).",
        )
    try:
        return json.dumps({"figure": name, **provenance}, indent=2, sort_keys=True, allow_nan=False) + "\n"
    except (TypeError, ValueError) as err:
        raise UsageError("provenance of plain JSON values", str(err), where=name) from err


def _check_drawing(svg: str, name: str) -> None:
    """Refuse what would print badly or not twice the same."""
    if clear := _TRANSPARENT.search(svg):
        raise UsageError("opaque marks", clear[0], where=name, fix="Use a lighter color instead of opacity.")
    if text := _NOT_ASCII.search(svg):
        raise UsageError("ASCII text in a figure", repr(text[0]), where=name, fix="Rename it: req/s, us, -.")
    width_px, _ = _size(svg)
    if width_px > theme.PAGE_IN * theme.PX_PER_IN + 0.5:
        raise UsageError(
            f"a chart of at most {theme.PAGE_IN} in",
            f"{width_px / theme.PX_PER_IN:.2f} in",
            where=name,
            fix="Make the parts narrower; a figure that LaTeX shrinks has type below 8 pt.",
        )


def _size(svg: str) -> tuple[float, float]:
    size = _SIZE.search(svg)
    assert size is not None, "vl-convert writes the size on the root element"
    return float(size[1]), float(size[2])


def _pdf(svg: str) -> bytes:
    """A PDF of the SVG in points, its objects numbered in the order of a walk from the catalog."""
    width_px, height_px = _size(svg)
    points = f'width="{width_px * 72 / theme.PX_PER_IN:g}" height="{height_px * 72 / theme.PX_PER_IN:g}"'
    drawn = vl_convert.svg_to_pdf(_SIZE.sub(points, svg, count=1))
    canonical = io.BytesIO()
    with pikepdf.open(io.BytesIO(drawn)) as document:
        document.save(canonical, deterministic_id=True, object_stream_mode=pikepdf.ObjectStreamMode.disable)
    return canonical.getvalue()


def _publish(stem: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write all files into a hidden folder next to their place, then rename them one by one."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    for leftover in stem.parent.glob(f".{glob.escape(stem.name)}.*.partial"):
        owner = leftover.name.split(".")[-2]
        if owner.isdecimal() and not _alive(int(owner)):
            shutil.rmtree(leftover, ignore_errors=True)
    staging = stem.parent / f".{stem.name}.{os.getpid()}.partial"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        places: list[Path] = []
        for suffix, content in contents.items():
            (staging / suffix).write_bytes(content)
        for suffix in contents:
            place = stem.parent / f"{stem.name}{suffix}"
            os.replace(staging / suffix, place)
            places.append(place)
        return places
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
