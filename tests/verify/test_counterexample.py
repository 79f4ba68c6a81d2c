"""A counterexample as a run: what happened stands in its tables, and everything that reads recorded runs reads it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

import workbench
from workbench.control.layout import EXTRA
from workbench.errors import UsageError
from workbench.twin import Edit
from workbench.verify import wires
from workbench.verify.counterexample import Counterexample, counterexample
from workbench.verify.explorer import explore
from workbench.verify.interface import GOAL, bind
from workbench.verify.messages import messages
from workbench.verify.outcome import Exploration
from workbench.verify.scenario import FAULTS, Scenario, bounded, chain, fork_join
from workbench.verify.survey import WORLD, peak

PAIR = bounded(chain(2), 1, window=2, spare_bytes=2)
NEVER_AGAIN = (
    Edit(
        "workbench.control.machine",
        "    if m[at + STATUS] == OPEN and m[end + TAKEN_KNOWN] <= seq < m[end + SENT]:",
        "    if m[at + STATUS] == IDLE:",
    ),
)


def spent(scenario: Scenario, fault: str) -> Counterexample:
    """The shortest run that ends well although the fault struck."""
    g, m0 = scenario.vectors()
    rules = bind(WORLD, compiled=False)
    at = g[g[EXTRA] + wires.BUDGET_AT] + FAULTS[fault] - wires.EXPIRE

    def ended(g: list[int], m: list[int]) -> int:
        return (rules.flags(g, m) & GOAL) * (1 + int(m[at] == 0))

    found = peak(g, m0, ended)
    assert found.value == 2, "the fault struck and all was released"
    run = Exploration(
        states=found.states, transitions=0, levels=(), goals=0, fired={}, verdict="holds", trace=found.trace
    )
    return counterexample(fault, scenario, run)


def broken(scenario: Scenario, edits: tuple[Edit, ...]) -> Counterexample:
    g, m = scenario.vectors()
    found = explore(WORLD, g, m, compiled=False, limit_states=20_000, edits=edits)
    assert found.verdict == "violated"
    return counterexample("broken", scenario, found, edits=edits)


LIVES = {
    "lose-data": Scenario(PAIR, 2, {"lose-data": 1}),
    "duplicate-data": Scenario(PAIR, 2, {"duplicate-data": 1}),
    "lose-credit": Scenario(PAIR, 2, {"lose-credit": 1}),
    "kill": Scenario(bounded(chain(2), 1), 1, {"kill": 1}),
    "cancel": Scenario(bounded(chain(1), 2), 1, {"cancel": 1}),
    "deadline": Scenario(bounded(chain(1), 1), 2, {"deadline": 1}),
    "fail": Scenario(bounded(chain(1), 1), 2, {"fail": 1}),
    "lost-branch": Scenario(bounded(chain(1), 1), 1, {"lost-branch": 1}),
    "reorder-data": Scenario(bounded(chain(1), 1, window=2, spare_bytes=1), 2, {"reorder-data": 1}),
}


@pytest.mark.parametrize("fault", LIVES)
def test_a_run_that_ends_well_keeps_every_rule_of_the_trace(fault: str, tmp_path: Path) -> None:
    run = workbench.open(spent(LIVES[fault], fault).save(tmp_path))
    report = run.validate()
    assert report.is_valid
    assert not report.findings
    assert run.info["provenance"] == "replayed"
    assert run.info["clock"] == "model: 1 ms per step"
    statuses = run.sql("SELECT status FROM outcome")["status"].to_list()
    wanted = {"cancel": "cancelled", "deadline": "timeout", "fail": "error", "lost-branch": "timeout"}.get(fault, "ok")
    assert wanted in statuses
    kinds = run.sql("SELECT DISTINCT kind FROM event")["kind"].to_list()
    assert {"cancel": "cancel", "deadline": "deadline", "fail": "error"}.get(fault, "fault") in kinds


def test_what_happened_stands_in_the_tables(tmp_path: Path) -> None:
    example = spent(LIVES["lose-data"], "lose-data")
    run = workbench.open(example.save(tmp_path))
    chunks = run.sql("SELECT * FROM chunk WHERE taken_ns IS NOT NULL")
    assert chunks.height == 4
    assert chunks["final"].sum() == 2
    services = run.sql("SELECT * FROM span WHERE kind = 'service'")
    assert services.height == 4
    assert (services["end_ns"] > services["start_ns"]).all()
    credit = dict(run.sql("SELECT event, sum(chunks) AS n FROM credit GROUP BY event").iter_rows())
    assert credit["reserve"] == credit["take"] == 4
    assert credit["return"] + credit.get("discard", 0) == 4
    objects = dict(run.sql("SELECT event, count(*) FROM object GROUP BY event").iter_rows())
    assert objects == {"allocate": 2, "use": 4, "release": 2}
    assert run.sql("SELECT count(*) FROM event WHERE kind <> 'epoch'").item() >= len(example.steps)
    assert len(run.timeline(0).to_json()) > 1_000


def test_a_second_attempt_is_a_new_epoch_of_the_same_request(tmp_path: Path) -> None:
    scenario = Scenario(bounded(chain(1), 1), 1, {"kill": 1})
    g, m0 = scenario.vectors()
    rules = bind(WORLD, compiled=False)
    from workbench.control.layout import EPOCH, request

    found = peak(g, m0, lambda g, m: (rules.flags(g, m) & GOAL) * (1 + m[request(g, 0) + EPOCH]))
    run = Exploration(states=0, transitions=0, levels=(), goals=0, fired={}, verdict="holds", trace=found.trace)
    opened = workbench.open(counterexample("again", scenario, run).save(tmp_path))
    assert opened.validate().is_valid
    assert opened.sql("SELECT max(epoch) FROM span").item() == 1
    assert opened.sql("SELECT count(*) FROM event WHERE kind = 'epoch'").item() == 1


def test_a_violation_is_named_in_title_story_and_trace(tmp_path: Path) -> None:
    example = broken(Scenario(bounded(chain(1), 1, window=2, spare_bytes=1), 2, {"lose-data": 1}), NEVER_AGAIN)
    assert example.violated in example.title
    assert f"{len(example.steps)} steps" in example.title
    assert example.violated in example.story
    run = workbench.open(example.save(tmp_path))
    assert run.sql("SELECT detail FROM event WHERE kind = 'error'")["detail"].to_list() == [
        f"violated: {example.violated}"
    ]
    lost = run.sql("SELECT * FROM chunk WHERE received_ns IS NULL")
    assert lost.height >= 1
    assert lost["taken_ns"].null_count() == lost.height
    assert run.sql("SELECT status FROM outcome").item() == "unfinished"


EXAMPLE = Scenario(bounded(chain(1), 1, window=2, spare_bytes=1), 2, {"lose-data": 1})


@pytest.mark.parametrize("name", ["", ".", "..", "../out", "/tmp/out", "a/b", "a b", "a\nb", ".hidden", "x" * 101])
def test_a_run_stays_in_its_folder(name: str, tmp_path: Path) -> None:
    example = replace(broken(EXAMPLE, NEVER_AGAIN), name=name)
    with pytest.raises(UsageError, match="name of the run: expected a name of letters"):
        example.save(tmp_path / "runs")
    assert list(tmp_path.rglob("*")) == []


def test_a_run_at_rest_is_not_written_again(tmp_path: Path) -> None:
    example = broken(EXAMPLE, NEVER_AGAIN)
    saved = example.save(tmp_path)
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    with pytest.raises(UsageError, match="expected a new folder"):
        example.save(tmp_path)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before


def test_an_interrupted_save_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("workbench.trace.manifest.write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        broken(EXAMPLE, NEVER_AGAIN).save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_standstill_says_what_is_waited_for() -> None:
    graph = fork_join()
    plan = bounded(graph, 1, total_bytes=5)
    example = Counterexample("empty", Scenario(plan, 1), (), "", "")
    assert example.standstill() == []
    steps = spent(LIVES["lost-branch"], "lost-branch")
    assert all("waits for" in line for line in steps.standstill())


@pytest.mark.parametrize("fault", LIVES)
def test_messages_match_the_wires(fault: str) -> None:
    example = spent(LIVES[fault], fault)
    sent = messages(example.scenario, example.steps)
    assert all(m.arrived is None or m.arrived >= m.sent for m in sent)
    assert sum(m.lost for m in sent) == (1 if fault.startswith("lose") else 0)
    parties = {"controller", "client", *example.scenario.plan.stages}
    assert {m.source for m in sent} | {m.target for m in sent} <= parties
    # A message that arrived did so in the step that says so.
    g, _ = example.scenario.vectors()
    arrivals = [
        number
        for number, step in enumerate(example.steps, start=1)
        if wires.action_of(g, step.action) in (wires.DATA, wires.CREDIT, wires.CONTROL, wires.REPLY)
    ]
    assert set(arrivals) <= {m.arrived for m in sent}


def test_a_copy_arrives_twice() -> None:
    example = spent(LIVES["duplicate-data"], "duplicate-data")
    chunks = [m for m in messages(example.scenario, example.steps) if m.text.startswith("chunk")]
    pairs = [
        (a, b) for a, b in itertools.combinations(chunks, 2) if (a.sent, a.text, a.source) == (b.sent, b.text, b.source)
    ]
    assert len(pairs) == 1
