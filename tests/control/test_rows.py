"""Files of rows that want to break their reader: one clear, short error each, whatever the table is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workbench.control import batching, priorities, window
from workbench.control.ranges import SHOWN, shown
from workbench.control.rows import MAX_BYTES
from workbench.errors import UsageError

# Loader, a row without its number, the key of the number.
KINDS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "window": (
        window.load,
        '[mine]\ntext = "t"\nsource = "s"\nlaw = "fixed"\nshared_bounds = false\nfloor_chunks = 0\n',
        "window_chunks",
    ),
    "batching": (
        batching.load,
        '[mine]\ntext = "t"\nsource = "s"\nfill = 1\ntimeout_ns = 0\n'
        "first_alone = false\ndeadline = false\ndrain = true\n",
        "limit",
    ),
    "priority": (priorities.load, '[mine]\ntitle = "t"\nsource = "s"\ninformation = "blind"\n', "aging"),
}
HOSTILE = {
    "more digits than Python reads": "{key} = " + "9" * 5_000,
    "more digits than Python writes": "{key} = 0x" + "f" * 5_000,
    "an array nested too deep to read": "{key} = " + "[" * 5_000,
    "a table nested too deep to write": "{key}" + ".a" * 3_000 + " = 1",
    "a long text": "{key} = '" + "x" * 100_000 + "'",
    "a long key": "k" * 100_000 + " = 1",
    "a date": "{key} = 1979-05-27",
    "not a number": "{key} = nan",
    "too long": "{key} = 1 #" + "x" * MAX_BYTES,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_row_ends_in_one_short_error(tmp_path: Path, kind: str, line: str) -> None:
    load, row, key = KINDS[kind]
    path = tmp_path / "own.toml"
    path.write_text(f"{row}{key} = 1\n")
    assert "mine" in load(path)
    path.write_text(f"{row}{line.replace('{key}', key)}\n")
    with pytest.raises(UsageError) as caught:
        load(path)
    assert "own.toml" in caught.value.where
    assert len(caught.value.found) <= 200


@pytest.mark.parametrize("name", ["", "no\0file", "."])
def test_a_path_that_cannot_be_one_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected a file of rows"):
        window.load(name)


def test_a_name_that_is_no_name_is_shown_short(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'["../{"x" * 10_000}"]\n')
    with pytest.raises(UsageError, match="a name in kebab-case") as caught:
        window.load(path)
    assert len(str(caught.value)) < 500


def test_a_value_is_shown_whole_while_it_is_short() -> None:
    assert shown("x" * (SHOWN - 2)) == repr("x" * (SHOWN - 2))
    assert len(shown("x" * (SHOWN - 1))) == SHOWN
