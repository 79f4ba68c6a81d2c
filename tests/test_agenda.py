"""The agenda ledger: complete, each entry served or open with a reason, each target real; and each check can fail."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from workbench.agenda import FROZEN, KINDS, LEDGER, NOT_JUDGED, RESOLVERS, Checkout, coverage, load
from workbench.errors import DataIntegrityError, UsageError

ROOT = Path(__file__).resolve().parents[1]

# Items of the agenda, counted by hand: an entry that vanishes, or one too many, shows here.
GAPS = """
gap hypothesis question mechanism baseline factor metric invariant contribution claim-limit evidence evidence-limit
G1           1        0         6        5      7      9         5            3           1        2              2
G2           1        0         3        5      8      8         5            3           0        4              3
G3           1        3         2        5      6      9         4            3           1        3              2
G4           1        0         3        5      7      9         4            2           0        1              2
G5           1        0         5        5      6      8         5            2           0        3              3
G6           1        0         5        6      7      7         5            3           0        3              2
G7           1        1         3        6      8      8         5            2           0        1              1
G8           1        0         5        5      7      7         4            3           0        3              1
G9           1        0         5        4      8      8         5            3           0        3              2
G10          1        0         6        4      7      7         5            3           0        3              3
"""
OTHERS: dict[str, dict[str, int]] = {
    "MODEL": {"term": 12, "goal": 3, "question": 8, "requirement": 8, "metric": 9},
    "ROUTE": {
        "hypothesis": 2,
        "factor": 1,
        "step": 4,
        "signal": 6,
        "baseline": 4,
        "invariant": 2,
        "goal": 5,
        "topology": 5,
    },
    "PHASE": {"product": 20, "continue": 14},
    "STOP": {"stop": 4},
    "LIMIT": {"evidence-limit": 6},
}


def counted() -> dict[tuple[str, str], int]:
    """(gap, kind) -> number of entries."""
    header, *rows = (line.split() for line in GAPS.strip().splitlines())
    counts = {(row[0], kind): int(n) for row in rows for kind, n in zip(header[1:], row[1:], strict=True)}
    counts |= {(gap, kind): n for gap, kinds in OTHERS.items() for kind, n in kinds.items()}
    return {key: n for key, n in counts.items() if n}


ENTRY = """
[[entry]]
id = "G1.hyp.1"
gap = "G1"
kind = "hypothesis"
text = "a claim"
open = "needs a study"

[[entry]]
id = "G1.met.1"
gap = "G1"
kind = "metric"
text = "a number"
served = ["test:tests/test_a.py::test_b"]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with one of each kind of target and a ledger of one open and one served entry."""
    for name, content in {
        LEDGER: f'[gaps]\nG1 = "Scheduling"\n{ENTRY}',
        FROZEN: "G1.hyp.1\nG1.met.1\n",
        "tests/test_a.py": "def test_b() -> None: ...\nclass TestC:\n    def test_d(self) -> None: ...\n",
        "tests/test_cut.py": "def test_b(",
        "workbench/schema/views/jct.sql": "",
        "workbench/stats/__init__.py": "",
        "workbench/stats/noise.py": "FLOOR: int = 1\nMORE = 2\ndef floor() -> None: ...\n",
        "workbench/graphs/t1.toml": "",
        "workbench/control/windows.toml": "[first-come]\nlimit = 1\n[first-come.more]\n",
        "workbench/control/broken.toml": "[first",
        "workbench/studies/joint.py": "",
        "data/raw/light-a/manifest.json": "{}",
        "docs/page.md": "# A page\n\n## What it cannot show (yet)\n",
        "notebooks/01_x.ipynb": json.dumps(
            {
                "nbformat": 4,
                "cells": [
                    {"cell_type": "markdown", "source": ["told 'told'"]},
                    {"cell_type": "code", "source": ["x = 1\n", "save(chart, frame, 'figures/drawn', inputs)"]},
                ],
            }
        ),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    return tmp_path


def damage(checkout: Path, old: str, new: str, name: str = LEDGER) -> None:
    path = checkout / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def test_every_entry_of_the_ledger_is_open_or_served_by_something_that_exists() -> None:
    found = coverage(ROOT)
    assert all(bool(entry.served) != bool(entry.open) for entry in found.ledger.entries)


def test_the_ledger_holds_every_item_as_counted() -> None:
    ledger = load(ROOT)
    counts = Counter((entry.gap, entry.kind) for entry in ledger.entries)
    assert dict(counts) == counted()
    assert set(ledger.titles) == {gap for gap, _ in counts}


def test_a_reason_says_what_the_entry_waits_for() -> None:
    reasons = [entry.open for entry in load(ROOT).entries if entry.open]
    assert [reason for reason in reasons if len(reason.split()) < 3 or "#" in reason] == []


def test_ids_are_the_frozen_ones() -> None:
    frozen = (ROOT / FROZEN).read_text("utf-8").split()
    assert sorted(entry.id for entry in load(ROOT).entries) == frozen


def test_numbers_count_from_1_in_agenda_order() -> None:
    last: dict[str, int] = {}
    for entry in load(ROOT).entries:
        stem, _, number = entry.id.rpartition(".")
        assert int(number) == last.get(stem, 0) + 1, entry.id
        last[stem] = int(number)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('open = "needs a study"\n', "", "found neither"),
        ('open = "needs a study"\n', 'open = "x"\nserved = ["table:span"]\n', "found both"),
        ('open = "needs a study"', 'open = "  "', "a reason in field 'open'"),
        ('open = "needs a study"', "open = true", "a reason in field 'open'"),
        ('kind = "hypothesis"', 'kind = "hope"', "'hope'"),
        ('kind = "hypothesis"', 'kind = "metric"', "such as G1.met.1"),
        ('gap = "G1"', 'gap = "G11"', "'G11'"),
        ('id = "G1.hyp.1"', 'id = "G1.hyp.one"', "such as G1.hyp.1"),
        ('text = "a claim"', 'text = ""', "a text in field 'text'"),
        ('text = "a claim"', 'txt = "a claim"', "field 'txt'"),
        ('served = ["test:tests/test_a.py::test_b"]', "served = []", "at least one target"),
        ('served = ["test:tests/test_a.py::test_b"]', 'served = "table:span"', "at least one target"),
        ('["test:', '["hope:', "'hope:tests/test_a.py::test_b'"),
        ('["test:', '[7, "test:', "found 7"),
        ('id = "G1.met.1"', 'id = "G1.met.2"', "no entry G1.met.1"),
        ("[[entry]]", '[[entry]]\nid = "G1.hyp.2', "valid TOML"),
        ("[gaps]", "[gap]", "a table [gaps]"),
    ],
)
def test_a_damaged_entry_is_one_clear_error(checkout: Path, old: str, new: str, says: str) -> None:
    load(checkout)
    damage(checkout, old, new)
    with pytest.raises(DataIntegrityError) as caught:
        load(checkout)
    assert says in str(caught.value)
    assert str(caught.value).startswith("docs/agenda.toml")


def test_the_error_names_the_entry(checkout: Path) -> None:
    damage(checkout, 'served = ["test:tests/test_a.py::test_b"]', "")
    with pytest.raises(DataIntegrityError, match=r"docs/agenda\.toml, entry 2 \(G1\.met\.1\): expected either served"):
        load(checkout)


def test_an_id_cannot_occur_twice_vanish_or_come_unannounced(checkout: Path) -> None:
    ledger = (checkout / LEDGER).read_text("utf-8")
    (checkout / LEDGER).write_text(ledger + ENTRY, "utf-8")
    with pytest.raises(DataIntegrityError, match=r"G1\.hyp\.1 twice"):
        load(checkout)
    (checkout / LEDGER).write_text(ledger, "utf-8")
    (checkout / FROZEN).write_text("G1.hyp.1\nG1.hyp.2\nG1.met.1\n", "utf-8")
    with pytest.raises(DataIntegrityError, match=r"no entry G1\.hyp\.2\. Ids are never deleted"):
        load(checkout)
    (checkout / FROZEN).write_text("G1.hyp.1\n", "utf-8")
    with pytest.raises(DataIntegrityError, match=r"agenda\.ids: .* no line G1\.met\.1"):
        load(checkout)
    (checkout / FROZEN).write_text("G1.met.1\nG1.hyp.1\n", "utf-8")
    with pytest.raises(DataIntegrityError, match="another order"):
        load(checkout)


def test_a_target_that_is_gone_fails(checkout: Path) -> None:
    coverage(checkout)
    damage(checkout, "def test_b", "def test_renamed", "tests/test_a.py")
    with pytest.raises(DataIntegrityError, match=r"G1\.met\.1 -> test:.*: no test_b in tests/test_a\.py"):
        coverage(checkout)


def test_a_gone_target_of_the_real_ledger_fails(tmp_path: Path) -> None:
    for name in ("docs", "workbench/graphs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    with pytest.raises(DataIntegrityError, match=r"every served target to exist.* and \d+ more"):
        coverage(tmp_path)


def test_a_folder_without_ledger_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"docs/agenda\.toml"):
        coverage(tmp_path)


@pytest.mark.parametrize(
    ("target", "lack"),
    [
        ("view:jct", ""),
        ("view:rtf", "no file workbench/schema/views/rtf.sql"),
        ("view:../views/jct", ""),
        ("view:../../../../x", "no file workbench/schema/views/../../../../x.sql"),
        ("table:span", ""),
        ("table:span.cause", ""),
        ("table:spin", "no table spin"),
        ("table:span.reason", "no column reason in table span"),
        ("module:workbench.stats", ""),
        ("module:workbench.stats.noise", ""),
        ("module:workbench.stats.noise::floor", ""),
        ("module:workbench.stats.noise::FLOOR", ""),
        ("module:workbench.stats.noise::MORE", ""),
        ("module:workbench.stats.noise::ceiling", "no ceiling in workbench/stats/noise.py"),
        ("module:workbench.stats.silence", "no module workbench.stats.silence"),
        ("test:tests/test_a.py::test_b", ""),
        ("test:tests/test_a.py::TestC::test_d", ""),
        ("test:tests/test_a.py::test_d", "no test_d in tests/test_a.py"),
        ("test:tests/test_a.py::TestC", "no test function named in 'tests/test_a.py::TestC'"),
        ("test:tests/test_a.py", "no test function named in 'tests/test_a.py'"),
        ("test:tests/test_z.py::test_b", "no file tests/test_z.py"),
        ("test:tests/test_cut.py::test_b", "tests/test_cut.py does not parse, line 1"),
        ("rule:windows.first-come", ""),
        ("rule:windows.more", "no row 'more' in workbench/control/windows.toml"),
        ("rule:windows", "no row '' in workbench/control/windows.toml"),
        ("rule:others.first-come", "no file workbench/control/others.toml"),
        ("rule:broken.first", "workbench/control/broken.toml is not TOML"),
        ("notebook:01_x", ""),
        ("notebook:02_y", "no file notebooks/02_y.ipynb"),
        ("figure:drawn", ""),
        ("figure:told", "no notebook that draws told"),
        ("figure:raw", "no notebook that draws raw"),
        ("graph:t1", ""),
        ("graph:t9", "no file workbench/graphs/t9.toml"),
        ("study:joint", ""),
        ("study:other", "no file workbench/studies/other.py"),
        ("run:light-a", ""),
        ("run:light-b", "no file data/raw/light-b/manifest.json"),
        ("doc:docs/page.md", ""),
        ("doc:docs/page.md#what-it-cannot-show-yet", ""),
        ("doc:docs/page.md#what-it-shows", "no heading #what-it-shows in docs/page.md"),
        ("doc:docs/none.md", "no file docs/none.md"),
    ],
)
def test_each_scheme_finds_what_exists_and_misses_what_does_not(checkout: Path, target: str, lack: str) -> None:
    scheme, _, name = target.partition(":")
    assert RESOLVERS[scheme](Checkout(checkout), name) == lack


def test_the_ledger_explains_every_scheme_and_uses_every_kind() -> None:
    head = (ROOT / LEDGER).read_text("utf-8").split("\n[gaps]")[0]
    assert [scheme for scheme in RESOLVERS if f"{scheme}:" not in head] == []
    assert {kind for _, kind in counted()} == set(KINDS)


def test_coverage_as_data_and_as_text(checkout: Path) -> None:
    found = coverage(checkout)
    assert json.loads(json.dumps(found.as_dict())) == {
        "entries": [
            {
                "id": "G1.hyp.1",
                "gap": "G1",
                "kind": "hypothesis",
                "text": "a claim",
                "served": [],
                "open": "needs a study",
                "verdict": NOT_JUDGED,
            },
            {
                "id": "G1.met.1",
                "gap": "G1",
                "kind": "metric",
                "text": "a number",
                "served": ["test:tests/test_a.py::test_b"],
                "open": None,
                "verdict": NOT_JUDGED,
            },
        ],
        "totals": {"G1": {"served": 1, "open": 1}},
    }
    lines = found.text().splitlines()
    assert lines[0] == "G1  Scheduling"
    assert "open: needs a study  [not judged]" in lines[1]
    assert "test:tests/test_a.py::test_b  [not judged]" in lines[2]
    assert lines[-2].split() == ["G1", "1", "1", "2"]
    assert lines[-1].split() == ["all", "1", "1", "2"]
