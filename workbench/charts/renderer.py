"""How a chart shows itself in a notebook: live in JupyterLab, a picture everywhere else, and no network anywhere.

Altair's own renderers load scripts from a content network (blank offline) or write a MIME type that notebook validation
rejects. This one writes three forms side by side and lets the reader's program take the best it knows: the Vega-Lite 5
specification, which JupyterLab draws with the runtime it ships; an SVG; a sentence.
"""

from __future__ import annotations

import re
from typing import Any

import altair as alt
import vl_convert

from workbench.charts import theme

NAME = "workbench"
VEGALITE_MIME = "application/vnd.vegalite.v5+json"
VEGALITE_SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
VEGALITE_VERSION = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])

# Characters that XML 1.0 cannot hold. On one of them the converter does not raise: it aborts the whole process.
_NOT_XML = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\ufffe\\uffff]")

_REFERENCE = re.compile(r'(\bid="|\burl\(#)((?:clip|gradient_)\d+)\b')


def enable() -> None:
    """Use the workbench theme and renderer, and its row limit, for every chart shown from now on.

    Calling it twice changes nothing. `save` needs no call: saved figures always use the theme.
    """
    alt.theme.enable("workbench")
    alt.data_transformers.register(NAME, _values)
    alt.data_transformers.enable(NAME)
    alt.renderers.register(NAME, mime_bundle)
    alt.renderers.enable(NAME)


def _values(data: Any = None) -> Any:
    if data is None:
        return _values
    if hasattr(data, "__len__"):
        theme.check_rows(len(data))
    return alt.default_data_transformer(data, max_rows=theme.MAX_ROWS)


def mime_bundle(spec: dict[str, Any], **_: object) -> dict[str, Any]:
    """The three forms of one chart: `VEGALITE_MIME`, ``image/svg+xml`` and ``text/plain``.

    Equal specifications give equal bytes. The live form names the Vega-Lite 5 schema because that is the runtime that
    draws it; the theme and the charts stay within what version 5 has.
    """
    return {
        VEGALITE_MIME: spec | {"$schema": VEGALITE_SCHEMA},
        "image/svg+xml": to_svg(spec),
        "text/plain": alt_text(spec),
    }


def to_svg(spec: dict[str, Any]) -> str:
    """Draw a specification as SVG, in this process and without network.

    The runtime numbers clip paths and gradients through its whole life, so the second drawing of a chart would differ
    from the first; they are numbered anew here.
    """
    svg = vl_convert.vegalite_to_svg(_drawable(spec), vl_version=VEGALITE_VERSION, allowed_base_urls=[])
    names: dict[str, str] = {}
    return _REFERENCE.sub(lambda found: found[1] + names.setdefault(found[2], f"d{len(names)}"), svg)


def _drawable(value: Any) -> Any:
    """A specification in which characters that no SVG can hold are written as escapes."""
    if isinstance(value, str):
        return _NOT_XML.sub(lambda found: found[0].encode("unicode_escape").decode(), value)
    if isinstance(value, dict):
        return {name: _drawable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_drawable(inner) for inner in value]
    return value


def alt_text(spec: dict[str, Any]) -> str:
    """What a chart shows, in words: its description if it has one, else its title, marks and fields."""
    if description := spec.get("description"):
        return str(description)
    marks: list[str] = []
    fields: list[str] = []
    _collect(spec, marks, fields)
    title = spec.get("title")
    heading = title.get("text") if isinstance(title, dict) else title
    return f"{heading or 'Chart'}: {', '.join(marks)} of {', '.join(fields)}"


def _collect(view: dict[str, Any], marks: list[str], fields: list[str]) -> None:
    """Marks and encoded fields of a view and the views inside it, each once, in drawing order."""
    mark = view.get("mark")
    if mark is not None and (name := mark["type"] if isinstance(mark, dict) else mark) not in marks:
        marks.append(name)
    for channel in view.get("encoding", {}).values():
        field = channel.get("field") if isinstance(channel, dict) else None
        if isinstance(field, str) and field not in fields:
            fields.append(field)
    for part in ("layer", "hconcat", "vconcat", "concat"):
        for child in view.get(part, []):
            _collect(child, marks, fields)
    if isinstance(inner := view.get("spec"), dict):
        _collect(inner, marks, fields)
