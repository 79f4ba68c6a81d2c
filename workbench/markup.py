"""Tables for a terminal and for a page, from cells that may hold anything: what comes from a trace is never trusted."""

from __future__ import annotations

import hashlib
import html
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAX_CELL = 100
WRAP = 110

STYLE = "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;font-size:13px;line-height:1.35;color:#222"
_TABLE = "border-collapse:collapse;font-size:inherit;margin:0"
_WORDS = "text-align:left;padding:1px 14px 1px 0"
_NUMBER = "text-align:right;padding:1px 14px 1px 0;white-space:nowrap;font-variant-numeric:tabular-nums"
_SVG_ID = re.compile(r'(\bid="|\burl\(#)(d\d+)\b')
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]")  # they would turn the text that follows around
_XMLNS = re.compile(r'\sxmlns(?::\w+)?="[^"]*"')


def plain(text: object) -> str:
    r"""Text that cannot steer a terminal: control characters and line ends are written as escapes.

    >>> plain("a\x1b[31m\nb")
    'a\\x1b[31m\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def escape(text: object) -> str:
    """Text for a page: no markup survives, in an element or in an attribute.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    return html.escape(plain(text))


@dataclass(frozen=True, slots=True)
class Table:
    """Cells under a title.

    Attributes
    ----------
    title : str
        One line.
    columns : sequence of str
        Headings; one that ends in ">" is of a column of numbers, which are set flush right.
    rows : sequence of sequence of str
        Cells, already formatted.
    note : str
        What the numbers mean or leave out.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def text(self) -> str:
        """The table for a terminal."""
        right = [name.endswith(">") for name in self.columns]
        cells = [[name.removesuffix(">") for name in self.columns]]
        cells += [[_cut(plain(cell)) for cell in row] for row in self.rows]
        widths = [max(len(row[k]) for row in cells) for k in range(len(self.columns))]
        lines = [plain(self.title)]
        for row in cells:
            padded = [
                cell.rjust(w) if flush else cell.ljust(w) for cell, w, flush in zip(row, widths, right, strict=True)
            ]
            lines.append(("  " + "  ".join(padded)).rstrip())
        if self.note:
            lines += textwrap.wrap(
                plain(self.note), WRAP, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
            )
        return "\n".join(lines)

    def html(self) -> str:
        """The table for a page."""
        style = [_NUMBER if name.endswith(">") else _WORDS for name in self.columns]
        heads = "".join(
            f'<th style="{s};font-weight:bold">{escape(name.removesuffix(">"))}</th>'
            for name, s in zip(self.columns, style, strict=True)
        )
        body = "".join(
            "<tr>"
            + "".join(f'<td style="{s}">{escape(_cut(str(cell)))}</td>' for cell, s in zip(row, style, strict=True))
            + "</tr>"
            for row in self.rows
        )
        note = f'<p style="margin:2px 0 8px;color:#555;max-width:62em">{escape(self.note)}</p>' if self.note else ""
        return (
            f'<h4 style="margin:12px 0 2px;font-size:1.05em">{escape(self.title)}</h4><table style="{_TABLE}">'
            f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{note}"
        )


def block(*parts: str) -> str:
    """Parts of a page in the workbench's type, as one element of a notebook's output."""
    return f'<div style="{STYLE}">{"".join(parts)}</div>'


def inline_svg(spec: dict[str, Any]) -> str:
    """A chart's drawing to stand inside a page beside others: its ids are its own and it names no address."""
    from workbench.charts import renderer

    svg = _BIDI.sub(lambda found: plain(found[0]), renderer.to_svg(spec))
    own = hashlib.sha256(svg.encode()).hexdigest()[:10]
    return _XMLNS.sub("", _SVG_ID.sub(lambda found: f"{found[1]}c{own}-{found[2]}", svg))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."
