"""A run whose every name tries to break out of where it is shown."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pyarrow as pa

from workbench.testing.simulator import LINEAR, Arrival, simulate
from workbench.testing.tables import Tables
from workbench.units import MS_NS

SCRIPT = '</script><script>alert(1)</script><img src=x onerror="alert(2)">'
ESCAPES = "\x1b[31mred\x07\r\n\u202eevil"
LABEL = f'run"{SCRIPT}{ESCAPES}'
STAGE = f"talker'{SCRIPT}{ESCAPES}"


def hostile_run() -> Tables:
    """Random requests of every fate, with markup and control characters in labels, stages, classes and details."""
    fates = ("ok", "cancelled", "timeout", "error", "rejected", "retried")
    tables = simulate(
        LINEAR, [Arrival(k * 3 * MS_NS, chunks=3, fate=fates[k % 6]) for k in range(30)], seed=7, label=LABEL
    )
    renamed = {}
    for name, table in tables.items():
        for column in ("stage", "source", "target", "edge"):
            if column in table.column_names:
                words = [_renamed(word) for word in table[column].to_pylist()]
                at = table.column_names.index(column)
                table = table.set_column(at, table.schema.field(at), pa.array(words, table.schema.field(at).type))
        renamed[name] = table
    for name, column in (
        ("request", "class"),
        ("request", "tenant"),
        ("request", "external_id"),
        ("outcome", "detail"),
    ):
        table = renamed[name]
        at = table.column_names.index(column)
        words = [f"{k}{SCRIPT}{ESCAPES}" for k in range(table.num_rows)]
        renamed[name] = table.set_column(at, table.schema.field(at), pa.array(words, table.schema.field(at).type))
    for column in ("source", "control_plan", "commit"):
        table = renamed["run"]
        at = table.column_names.index(column)
        renamed["run"] = table.set_column(at, table.schema.field(at), pa.array([SCRIPT], table.schema.field(at).type))
    return renamed


def _renamed(word: str | None) -> str | None:
    return None if word is None else word.replace("talker", STAGE)


class Markup(HTMLParser):
    """Elements, attributes and ids of a page."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        self.ids += [value or "" for name, value in attrs if name == "id"]


def complaints(text: str) -> list[str]:
    """What in a page could run or load something, or clash; empty when it is harmless."""
    page = Markup(text)
    found = [f"element {tag}" for tag in page.tags & {"script", "img", "iframe", "object", "embed", "link", "base"}]
    found += [f"attribute {name}" for name, _ in page.attributes if name.startswith("on") or name in ("src", "srcset")]
    found += [
        f"{name}={value}" for name, value in page.attributes if name.endswith("href") and not value.startswith("#")
    ]
    found += [f"id {name} twice" for name in set(page.ids) if page.ids.count(name) > 1]
    found += [f"reference {name} to nothing" for name in re.findall(r"url\(#([^)]*)\)", text) if name not in page.ids]
    found += re.findall(r"url\((?!#)[^)]*\)|@import", text)
    return found
