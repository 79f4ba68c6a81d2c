"""Fault plans: every valid one survives a file, every invalid one is refused by name, and the page tells the truth."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.plans import CLASSES, GRAPH, TENANTS, plans
from workbench.control import faults
from workbench.control.ranges import MAX_TIME_NS
from workbench.errors import UsageError
from workbench.graph import preset, presets
from workbench.schema.enums import FAULT, FAULT_EVENT
from workbench.units import S_NS
from workbench.workload.fault_file import KEYS, canonical, digest, from_mapping, load, save, to_mapping, to_toml
from workbench.workload.fault_plan import KINDS, MAX_FAULTS, MESSAGES, PARAMETERS, Fault, FaultPlan, Watch
from workbench.workload.fault_swarm import swarm
from workbench.workload.fault_table import check, event, explorer_budgets, flatten

PAGE = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
ON = Watch("data", edge="talker>code2wav")


@given(plans())
def test_a_plan_survives_both_files(tmp_path_factory: pytest.TempPathFactory, plan: FaultPlan) -> None:
    folder = tmp_path_factory.mktemp("plans")
    for name in ("plan.toml", "plan.json"):
        save(plan, folder / name)
        assert load(folder / name) == plan
    assert from_mapping(to_mapping(plan), where="again") == plan
    assert (folder / "plan.json").read_text().strip() == canonical(plan)


@given(plans(), plans())
def test_the_hash_is_that_of_the_plan_alone(one: FaultPlan, other: FaultPlan) -> None:
    assert (digest(one) == digest(other)) == (one == other)
    shuffled = json.loads(canonical(one), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    assert digest(from_mapping(shuffled, where="shuffled")) == digest(one)


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_any_printable_name_survives_toml(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    if not name.isprintable():
        with pytest.raises(UsageError, match="printable"):
            Fault("lose", nth=1, tenant=name)
        return
    path = tmp_path_factory.mktemp("names") / "plan.toml"
    plan = FaultPlan("names", 0, 9, (Fault("lose", nth=1, tenant=name),))
    save(plan, path)
    assert load(path) == plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "explode", "nth": 1}, "kind: expected one of"),
        ({"kind": "lose"}, "exactly one of at_ns, nth, rate_permille"),
        ({"kind": "lose", "nth": 1, "at_ns": 0}, r"found \['at_ns', 'nth'\]"),
        ({"kind": "lose", "nth": 0}, "nth: expected an integer from 1"),
        ({"kind": "lose", "nth": True}, "nth: expected an integer from 1"),
        ({"kind": "lose", "at_ns": -1}, "at_ns: expected an integer from 0"),
        ({"kind": "lose", "at_ns": MAX_TIME_NS + 1}, "at_ns: expected an integer"),
        ({"kind": "lose", "rate_permille": 1001, "budget": 1}, "to 1000, found 1001"),
        ({"kind": "lose", "rate_permille": 5}, "a budget with a rate"),
        ({"kind": "lose", "nth": 1, "budget": 0}, "budget: expected"),
        ({"kind": "lose", "nth": 1, "message": "mail"}, "message: expected one of"),
        ({"kind": "lose", "nth": 1, "direction": "up"}, "direction: expected one of"),
        ({"kind": "lose", "nth": 1, "message": "ack", "direction": "forward"}, "ack to travel backward"),
        ({"kind": "lose", "nth": 1, "message": "data", "direction": "backward"}, "data to travel forward"),
        ({"kind": "lose", "nth": 1, "stage": "talker", "edge": "talker>code2wav"}, "not both"),
        ({"kind": "lose", "nth": 1, "replica": 0}, "no replica here"),
        ({"kind": "lose", "nth": 1, "on": ON}, "nothing to count for"),
        ({"kind": "lose", "nth": 1, "delay_ns": 5}, "no delay_ns for lose"),
        ({"kind": "lose", "nth": 1, "duration_ns": 5}, "no duration_ns for lose"),
        ({"kind": "lose", "nth": 1, "tenant": ""}, "1 to 200 printable"),
        ({"kind": "lose", "nth": 1, "request": -1}, "request: expected"),
        ({"kind": "delay", "nth": 1}, "delay_ns for delay"),
        ({"kind": "reorder", "nth": 1, "behind": 0}, "behind: expected an integer from 1"),
        ({"kind": "kill", "at_ns": 0}, "a stage for kill"),
        ({"kind": "kill", "stage": "client", "at_ns": 0}, "Use reconnect or cancel"),
        ({"kind": "kill", "stage": "talker", "nth": 1}, r"what to count \(on\)"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "on": ON}, "nothing to count for"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "tenant": "gold"}, "no selector for kill"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "budget": 2}, "budget of 1 at a time"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "edge": "a>b"}, "no edge here for kill"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "message": "ack"}, "no message here for kill"),
        ({"kind": "kill", "stage": "talker", "at_ns": 0, "duration_ns": 0}, "duration_ns: expected"),
        ({"kind": "heal", "at_ns": 0, "message": "ack"}, "no message here for heal"),
        ({"kind": "cancel", "at_ns": 0}, "the request that cancel hits"),
        ({"kind": "cancel", "at_ns": 0, "request": 0, "stage": "talker"}, "no stage here for cancel"),
        ({"kind": "lost_branch", "nth": 1}, "an edge for lost_branch"),
        ({"kind": "lost_branch", "at_ns": 1, "edge": "code2wav>mux"}, "the request that lost_branch hits"),
        ({"kind": "clock_step", "stage": "talker", "at_ns": 0, "step_ns": 0}, "a step other than 0"),
        ({"kind": "slow", "stage": "talker", "at_ns": 0, "factor_permille": 1000}, "from 1001"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Fault(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"event": "arrive"}, "on.event"),
        ({"event": "start", "edge": "talker>code2wav"}, "no edge with event 'start'"),
        ({"event": "admit", "stage": "talker"}, "not with admit"),
        ({"event": "data", "stage": "talker", "edge": "talker>code2wav"}, "only without an edge"),
    ],
)
def test_what_cannot_be_counted_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Watch(**values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "Über"}, "lower-case"),
        ({"name": "a/b"}, "lower-case"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 63}, "seed"),
        ({"heal_ns": 1.5}, "heal_ns"),
        ({"heal_ns": 7, "faults": (Fault("lose", at_ns=7),)}, "fault 0, at_ns: expected a time before the heal"),
        ({"faults": (Fault("lose", nth=1),) * (MAX_FAULTS + 1)}, "at most 1000 faults"),
    ],
)
def test_a_plan_out_of_range_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FaultPlan(**{"name": "n", "seed": 0, "heal_ns": 10, **values})


HEAD = 'name = "n"\nseed = 0\nheal_ns = 10\n'


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "", "a .toml or .json file"),
        ("p.toml", "name = ", "expected TOML"),
        ("p.toml", "x = " + "[" * 5_000, "expected TOML"),
        ("p.json", "[" * 100_000, "expected JSON"),
        ("p.json", '{"name": "a", "name": "b"}', "a key occurs twice"),
        ("p.json", "[1]", "expected a table"),
        ("p.json", '{"name": "n", "seed": 0, "heal_ns": NaN}', "heal_ns: expected an integer"),
        ("p.toml", 'name = "n"\nseed = 0\n', "key 'heal_ns'"),
        ("p.toml", HEAD + "speed = 3\n", "keys among"),
        ("p.toml", HEAD + "fault = 3\n", "fault as a list"),
        ("p.toml", HEAD + "fault = [3]\n", "fault 0: expected a table"),
        ("p.toml", HEAD + "[[fault]]\nnth = 1\n", "fault 0: expected key 'kind'"),
        ("p.toml", HEAD + '[[fault]]\nkind = ["lose"]\n', "fault 0, kind: expected text"),
        ("p.toml", HEAD + '[[fault]]\nkind = "lose"\nnth = 1.0\n', "fault 0: expected nth as an integer"),
        ("p.toml", HEAD + '[[fault]]\nkind = "lose"\nnth = true\n', "fault 0: expected nth as an integer"),
        ("p.toml", HEAD + '[[fault]]\nkind = "lose"\nnth = 0\n', "fault 0, nth: expected an integer from 1"),
        ("p.toml", HEAD + '[[fault]]\nkind = "lose"\nrequest_class = "a"\nnth = 1\n', "'request_class'"),
        ("p.toml", HEAD + '[[fault]]\nkind = "heal"\nnth = 1\non = 3\n', "fault 0, on: expected a table"),
        ("p.toml", HEAD + '[[fault]]\nkind = "heal"\nnth = 1\non = {}\n', "fault 0, on: expected key 'event'"),
        ("p.toml", HEAD + '[[fault]]\nkind = "heal"\nnth = 1\non = { event = 3 }\n', "on.event: expected text"),
        (
            "p.toml",
            HEAD + '[[fault]]\nkind = "heal"\nnth = 1\non = { event = "x" }\n',
            "fault 0, on.event: expected one",
        ),
        ("p.toml", "#" * (1 << 20) + "\n", "at most 1048576 bytes"),
        ("p.toml", HEAD + '[[fault]]\nkind = "lose"\nnth = 0x' + "f" * 5_000, "nth: expected an integer"),
        (
            "p.toml",
            HEAD + "[[fault]]\nkind" + ".a" * 3_000 + " = 1",
            "kind: expected text, found dict too large to show",
        ),
        ("p.toml", HEAD + '[[fault]]\nkind = "' + "x" * 100_000 + '"', "kind: expected one of"),
        ("p.toml", 'name = "' + "x" * 100_000 + '"\nseed = 0\nheal_ns = 1', "name: expected a name"),
        ("p.toml", 'name = "n"\nseed = 0\nheal_ns = 0\n[[fault]]\nkind = "lose"\nnth = 1', "before which faults act"),
    ],
)
def test_a_hostile_file_ends_in_one_clear_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        load(path)
    assert caught.value.where.startswith(str(path))
    assert len(caught.value.found) <= 200


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for name in ("absent.toml", "folder.toml", "bytes.toml"):
        with pytest.raises(UsageError, match=name):
            load(tmp_path / name)
    with pytest.raises(UsageError, match=r"a \.toml or \.json file"):
        save(FaultPlan("n", 0, 1), tmp_path / "plan.yaml")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (Fault("kill", stage="talkr", at_ns=0), r"fault 0 \(kill\), stage: expected one of .*found 'talkr'"),
        (Fault("lose", edge="talker>client", nth=1), r"fault 0 \(lose\), edge"),
        (Fault("cancel", on=Watch("data", edge="a>b"), nth=1), "on.edge"),
        (Fault("cancel", on=Watch("data", stage="a"), nth=1), "on.stage"),
        (Fault("lost_branch", edge="talker>code2wav", nth=1), "an edge of a join"),
    ],
)
def test_a_place_that_the_graph_lacks_is_refused(fault: Fault, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(FaultPlan("n", 0, 10, (fault,)), GRAPH)


def test_rates_that_add_up_to_more_than_certain_are_refused() -> None:
    half = {"rate_permille": 500, "budget": 1}
    meeting = [Fault("lose", stage="talker", message="ack", **half), Fault("duplicate", edge="talker>code2wav", **half)]
    check(FaultPlan("n", 0, 10, tuple(meeting)), GRAPH)
    third = Fault("cancel", on=Watch("ack", stage="code2wav"), rate_permille=1, budget=1)
    with pytest.raises(UsageError, match="found 1001"):
        check(FaultPlan("n", 0, 10, (*meeting, third)), GRAPH)
    apart = Fault("cancel", on=Watch("credit", edge="mux>client"), rate_permille=500, budget=1)
    check(FaultPlan("n", 0, 10, (*meeting, apart)), GRAPH)


def test_a_class_that_the_run_lacks_is_refused() -> None:
    plan = FaultPlan("n", 0, 10, (Fault("lose", nth=1, request_class="long"),))
    with pytest.raises(UsageError, match=r"class: expected one of \['short'\]"):
        flatten(plan, GRAPH, classes=["short"])


@given(plans())
def test_the_table_has_the_documented_layout(plan: FaultPlan) -> None:
    table, counters = flatten(plan, GRAPH, classes=CLASSES, tenants=TENANTS)
    assert table.dtype == counters.dtype == np.int64
    assert len(table) == faults.FIRST + len(plan.faults) * faults.FAULT_WIDTH
    assert counters.tolist() == [0] * len(plan.faults) * faults.COUNT_WIDTH
    rows = table[faults.FIRST :].reshape(-1, faults.FAULT_WIDTH)
    assert [FAULT[kind] for kind in rows[:, faults.FAULT_KIND]] == [fault.kind for fault in plan.faults]
    assert rows[:, faults.FAULT_BUDGET].tolist() == [fault.times for fault in plan.faults]
    assert rows[:, faults.FAULT_PARAMETER].tolist() == [fault.parameter for fault in plan.faults]


def test_an_event_on_an_edge_that_the_graph_lacks_is_refused() -> None:
    with pytest.raises(UsageError, match="event: expected one of"):
        event(GRAPH, "data", now_ns=0, edge="a>b")


@given(plans())
def test_budgets_of_the_explorer_are_those_of_the_plan(plan: FaultPlan) -> None:
    budgets = explorer_budgets(plan)
    counted = [
        fault
        for fault in plan.faults
        if fault.kind.replace("_", " ") not in ("delay", "heal", "pause", "resume", "clock step", "slow")
    ]
    assert sum(budgets.values()) == sum(fault.times for fault in counted)
    assert {name.split()[0] for name in budgets} == {fault.kind for fault in counted}
    assert explorer_budgets(plan, most=1) == dict.fromkeys(budgets, 1)


@given(st.integers(0, 2**63 - 1), st.sampled_from(presets()), st.integers(1_000_000, MAX_TIME_NS))
def test_a_swarm_is_fixed_by_its_seed_and_fits_its_graph(seed: int, name: str, heal_ns: int) -> None:
    plan = swarm(seed, preset(name), heal_ns=heal_ns)
    assert plan == swarm(seed, preset(name), heal_ns=heal_ns)
    check(plan, preset(name))


def test_swarms_differ_and_stay_in_their_ranges() -> None:
    drawn = [swarm(seed, GRAPH, heal_ns=20 * S_NS) for seed in range(300)]
    everything = [fault for plan in drawn for fault in plan.faults]
    assert {fault.kind for fault in everything} == set(FAULT) - {"heal", "resume"}
    for kind, most in (("lose", 300), ("duplicate", 500), ("delay", 20), ("partition", 30)):
        rates = {fault.rate_permille for fault in everything if fault.kind == kind and fault.rate_permille}
        assert max(rates) == most
        assert min(rates) == 10
    for kind in ("kill", "cancel", "lost_branch"):
        assert 100 < sum(any(fault.kind == kind for fault in plan.faults) for plan in drawn) < 200
    assert {fault.message for fault in everything if fault.kind == "lose"} == set(MESSAGES)
    assert len({digest(plan) for plan in drawn}) == 300


def example() -> str:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    return str(text)


def test_the_example_of_the_page_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lost-acks-and-a-crash.toml").write_text(example())
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (output,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == output
    plan = load("lost-acks-and-a-crash.toml")
    Path("again.toml").write_text(to_toml(plan))
    assert load("again.toml") == plan


def table_of(heading: str) -> list[list[str]]:
    """Cells of the first table under a heading of the page, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    first = rows[2 : next((i for i, row in enumerate(rows) if i > 2 and row.startswith("|---")), len(rows) + 1) - 1]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in first]


def test_the_page_lists_the_vocabulary_as_it_is() -> None:
    listed = table_of("Kinds")
    expected = [
        [
            f"`{kind}`",
            what.target,
            f"`{what.parameter}`" if what.parameter else "",
            "yes" if what.lasts else "",
            what.meaning,
        ]
        for kind, what in KINDS.items()
    ]
    assert listed == expected
    assert list(KINDS) == list(FAULT)
    names = set(re.findall(r"`(\w+)`", " ".join(row[0] for row in table_of("Fields"))))
    assert names == {*KEYS, "name", "seed", "heal_ns"}
    events = PAGE.split("Events that `on` can count:")[1].split("\n## ")[0]
    assert re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", events, re.MULTILINE))) == list(FAULT_EVENT)
    assert {what.parameter for what in KINDS.values()} - {None} == set(PARAMETERS)


def test_the_upstream_table_names_kinds_that_exist_and_links_what_it_cites() -> None:
    rows = table_of("Faults that happened upstream")
    assert len(rows) >= 15
    for thread, _, _, fault, _ in rows:
        kinds = set(re.findall(r"`(\w+)`", fault))
        assert kinds <= set(FAULT)
        assert kinds or fault == "none"
        for number, address in re.findall(r"\[#(\d+)\]\((\S+)\)", thread):
            assert re.fullmatch(
                rf"https://github.com/(vllm-project/vllm|sgl-project/sglang)-omni/(issues|pull)/{number}", address
            )
    cited = " ".join(row[0] for row in rows)
    for number in (5349, 6352, 5488, 3833, 4957, 4608, 2078):
        assert f"#{number}]" in cited


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"kind": "kill", "stage": 5, "at_ns": 1}, "stage: expected the name of one stage, found 5"),
        ({"kind": "lose", "edge": ("a", "b"), "nth": 1}, "edge: expected the name of one edge"),
        ({"kind": "kill", "stage": "a", "on": "start", "nth": 1}, "on: expected a Watch, found 'start'"),
    ],
)
def test_what_is_no_place_is_refused_at_once(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Fault(**wrong)


@pytest.mark.parametrize("faults", [None, "lose", [Fault("lose", nth=1)], ("lose",)])
def test_what_is_no_fault_is_refused_at_once(faults: Any) -> None:
    with pytest.raises(UsageError, match=r"expected a (tuple of faults|Fault), found"):
        FaultPlan("n", 0, 9, faults)
