"""docs/protocol.md and docs/failures.md: tables equal the code, examples run, every name and test they give exists."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import inspect
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench import cli
from workbench.control import effects, ledger, lifecycle, machine, phases
from workbench.control.layout import PHASE, REQUESTS, STAGES, STATUS, EdgePlan, Plan, request, stage
from workbench.twin import Edit
from workbench.verify.catalog import CATALOG, split
from workbench.verify.explorer import explore
from workbench.verify.mutants import MUTANTS, PROPERTY_NAMES, edit
from workbench.verify.scenario import Scenario, bounded, chain
from workbench.verify.story import KINDS, PROPERTIES
from workbench.verify.survey import transitions

ROOT = Path(__file__).resolve().parents[1]
PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text("utf-8") for name in ("protocol", "failures")}
FAILURES = "tests/verify/test_failures.py"
# Tests of the failure algebra that are about the rows and no row themselves.
ABOUT_ROWS = {"test_each_row_can_fail", "test_every_row_has_a_mutant"}


def table(page: str, first: str) -> list[list[str]]:
    """Cells of the table of a page whose head row begins with the cell `first`, without the head."""
    lines = PAGES[page].split(f"\n| {first} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(page: str) -> None:
    examples = doctest.DocTestParser().get_doctest(PAGES[page].replace("```", ""), {}, f"{page}.md", None, 0)
    assert len(examples.examples) > 25 or page == "failures"
    report: list[str] = []
    assert doctest.DocTestRunner().run(examples, out=report.append).failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_every_name_it_gives_exists(page: str) -> None:
    named = set(
        re.findall(r"`(?:workbench\.)?((?:control\.|verify\.)?[a-z]\w*\.[A-Za-z]\w*(?:\.[a-z_]\w*)?)`", PAGES[page])
    )
    assert len(named) > 3
    missing = []
    for name in sorted(named):
        if name.endswith((".py", ".md", ".toml")):
            continue
        package, dotted = "workbench.control", name.split(".")
        if dotted[0] in ("control", "verify"):
            package, dotted = f"workbench.{dotted[0]}", dotted[1:]
        if dotted == ["twin", "twin"]:
            package = "workbench"
        found = importlib.import_module(f"{package}.{dotted[0]}")
        for part in dotted[1:]:
            found = getattr(found, part, None)
        if found is None:
            missing.append(name)
    assert missing == []


@pytest.mark.parametrize("page", PAGES)
def test_every_file_heading_and_test_it_links_exists(page: str) -> None:
    for text, target in re.findall(r"\[([^\]]+)\]\(([^)]+)\)", PAGES[page]):
        path, _, heading = target.partition("#")
        file = (ROOT / "docs" / path).resolve() if path else ROOT / "docs" / f"{page}.md"
        assert file.is_file(), target
        if heading:
            titles = re.findall(r"^#+ +(.+?) *$", file.read_text("utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}, target
        if text.startswith("`test_") and not text.endswith(".py`"):
            assert text.strip("`") in names_in(str(file.relative_to(ROOT))), text
    for path in re.findall(r"`((?:workbench|tests|docs)/[\w/]+\.?\w*)/?`", PAGES[page]):
        assert (ROOT / path).exists(), path


def test_every_failure_has_a_row_a_reason_and_a_test() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(\.\./tests/verify/test_failures\.py\)", PAGES["failures"], re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert {f"test_{row}" for row in rows} == names_in(FAILURES) - ABOUT_ROWS
    why = PAGES["failures"].split("## Why\n")[1].split("\n## ")[0]
    groups = re.findall(r"^\*\*[^*]+\*\* \(([\w,\s]+)\)", why, re.MULTILINE)
    assert sorted(row for group in groups for row in re.split(r",\s*", group)) == sorted(rows)


def test_the_promises_are_those_that_the_page_explains() -> None:
    promises = {word for cells in table("failures", "row") for cell in cells[3:] for word in re.findall(r"^\w+", cell)}
    explained = {word for cells in table("failures", "word") for word in cells[0].split(", ")}
    assert promises - explained == {"one", "the", "its"}


# Worlds that together show every change of state: faults of one request, a narrow door, a family, two models.
WORLDS = [
    Scenario(bounded(chain(1), 1), 1, {"cancel": 1, "kill": 1, "deadline": 1, "lose-control": 1, "fail": 1}),
    Scenario(bounded(chain(1), 1, attempts=1), 1, {"kill": 1}),
    Scenario(bounded(chain(1), 2, spare_bytes=-1), 1, {"cancel": 1}),
    Scenario(bounded(chain(1), 2, spare_bytes=-1, waiting=0), 1),
    Scenario(bounded(chain(1), 2), 1, {"fail": 1}, parents=(-1, 0)),
    Scenario(bounded(chain(2), 1), 1, {"upgrade": 1}),
]


def test_the_tables_of_states_are_what_the_machine_does() -> None:
    requests, stages = set(), set()
    for scenario in WORLDS:
        g, m0 = scenario.vectors()
        for step in transitions(g, m0):
            for r in range(g[REQUESTS]):
                at = request(g, r) + PHASE
                requests.add((phases.PHASES[step.before[at]], phases.PHASES[step.after[at]]))
                for v in range(g[STAGES]):
                    at = stage(g, r, v) + STATUS
                    stages.add((phases.STATUSES[step.before[at]], phases.STATUSES[step.after[at]]))
    of_requests, of_stages = PAGES["protocol"].split("The stage's view of the same request:")
    for seen, text in ((requests, of_requests), (stages, of_stages)):
        rows = re.findall(
            r"^\| (\w+) \| (\w+) \| \S", text.split("\n| from | to | when |\n")[1].split("\n\n")[0], re.MULTILINE
        )
        assert len(rows) == len(set(rows))
        assert set(rows) == {(before, after) for before, after in seen if before != after}


def test_the_table_of_obstacles_is_the_code_s() -> None:
    codes = {
        value: name for name, value in vars(machine).items() if name in re.findall(r"[A-Z_]+", _assigned(machine, "GO"))
    }
    assert [cells[0] for cells in table("protocol", "obstacle")] == [codes[code] for code in sorted(codes) if code]


def _assigned(module: object, first: str) -> str:
    """Source of the assignment that gives the constants from `first` on their numbers."""
    source = inspect.getsource(module)  # type: ignore[arg-type]
    return next(line for line in source.splitlines() if line.startswith(f"{first}, "))


def test_the_table_of_messages_is_the_code_s() -> None:
    rows = {cells[0]: cells for cells in table("protocol", "message")}
    names = [name for name in vars(effects) if name.isupper() and isinstance(getattr(effects, name), int)]
    kinds = names[names.index("SEND_START") :]
    assert list(rows) == [name for name in kinds if name.startswith("SEND_")]
    notes = PAGES["protocol"].split("no messages but notes")[1].split("(`workbench")[0]
    assert re.findall(r"`([A-Z]+)`", notes) == [name for name in kinds if not name.startswith("SEND_")]
    # The fields are what the handler is told beside who and where.
    for name, cells in rows.items():
        if name == "SEND_NOTICE":
            continue
        for handler in re.findall(r"`(\w+\.\w+)`", cells[2]):
            home, function = handler.split(".")
            known = inspect.signature(getattr({"machine": machine, "lifecycle": lifecycle}[home], function)).parameters
            assert [each for each in known if each not in ("g", "m", "out", "r", "v", "e")] == cells[3].split(", "), (
                handler
            )


def test_every_bound_of_a_plan_is_in_the_table() -> None:
    named = {name for cells in table("protocol", "bound") for name in re.findall(r"`(\w+)`", cells[1])}
    fields = {field.name for kind in (Plan, EdgePlan) for field in dataclasses.fields(kind)}
    assert named == fields - {"graph", "requests", "tenants", "edges", "replayable"}


def test_the_table_of_laws_is_the_code_s() -> None:
    expected = [[PROPERTY_NAMES[code], text] for code, text in PROPERTIES.items()] + [[*row] for row in KINDS.items()]
    rows = "\n".join(f"| {name} | {text} |" for name, text in expected)
    assert table("protocol", "law") == expected, f"the table should read\n{rows}"


def test_the_steps_of_a_chunk_name_the_rules_of_the_machine() -> None:
    rules = [cells[1].strip("`").split(".")[1] for cells in table("protocol", "step")]
    assert rules == ["reserve", "launch", "finish", "on_data", "launch", "on_credit"]
    assert all(hasattr(getattr(machine, name), "__rule__") for name in rules)


def test_which_calls_of_the_ledger_may_be_repeated() -> None:
    plan = bounded(split(), 1, window=2, chunk_bytes=2, spare_bytes=8)  # two outputs: one report does not end it
    g, start, out = plan.configuration(), plan.memory(), [0] * 1024
    lifecycle.submit(g, start, out, 0, -1, -1)
    ledger.reserve(g, start, 0, 0)
    calls: dict[str, Callable[[list[int]], object]] = {
        "give_back": lambda m: ledger.give_back(g, m, 0, 0, 1, 2),
        "return_slot": lambda m: ledger.return_slot(g, m, 0, 0),
        "fail": lambda m: lifecycle.fail(g, m, out, 0, 0),
        "reserve": lambda m: ledger.reserve(g, m, 0, 0),
        "trim": lambda m: ledger.trim(g, m, 0, 0, 1),
        "delivered": lambda m: lifecycle.delivered(g, m, out, 0, 0),
    }
    repeatable = set()
    for name, call in calls.items():
        m = list(start)
        call(m)
        once = list(m)
        assert once != start
        call(m)
        repeatable |= {name} if m == once else set()
    assert repeatable == {"give_back", "return_slot", "fail"}


ALONE = Edit(
    "workbench.control.ledger",
    "            if comes_along(g, m, r, child):\n                count += 1\n",
    "            pass\n",
)
ONLY_ITSELF = Edit("workbench.control.ledger", "                promise(g, m, child)\n", "                pass\n")


def test_families_never_wait_for_the_room_that_their_parents_hold() -> None:
    two = Scenario(bounded(chain(1), 4, spare_bytes=-2), 1, parents=(-1, 0, -1, 2))
    assert explore("workbench.verify.world", *two.vectors(), compiled=False).verdict == "holds"
    one_by_one = explore("workbench.verify.world", *two.vectors(), compiled=False, edits=(ALONE, ONLY_ITSELF))
    assert one_by_one.verdict == "violated"


def test_the_commands_of_the_page_can_be_given() -> None:
    commands = re.findall(r"^\$ workbench (.+)$", PAGES["protocol"], re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        given = cli.parser().parse_args(shlex.split(command))
        assert set(given.scenario) <= set(CATALOG)
        assert set(given.mutant) <= set(MUTANTS)
        assert all(edit(*words).old in inspect.getsource(lifecycle) for words in given.edit)
