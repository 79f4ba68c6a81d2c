"""The failure algebra, one test per row: what each failure may cost, struck at every moment of several schedules.

A row names a failure and its promise. `strikes` forks a run wherever the failure can happen; each fork then runs to its
end under an own schedule, with every law checked at every step, and the promise is asserted of what the client has.
`test_each_row_can_fail` repeats the rows on a protocol that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.verify.driver import Run, strikes
from workbench.control import effects
from workbench.control.layout import (
    CLOSED,
    EPOCH,
    EXPOSED,
    OUTCOME,
    PHASE,
    REQUESTS,
    STAGES,
    STATUS,
    THEN,
    client,
    stage,
)
from workbench.control.lifecycle import touched
from workbench.control.phases import (
    AGAIN,
    CANCELLED,
    DRAINING,
    ERROR,
    OK,
    OPEN,
    REJECTED,
    RUNNING_PHASE,
    TIMEOUT,
)
from workbench.twin import Edit
from workbench.verify import wires
from workbench.verify.scenario import Scenario, bounded, chain, fork_join
from workbench.verify.wires import DETECT

CREDIT, LEDGER, LIFECYCLE = (f"workbench.control.{name}" for name in ("credit", "ledger", "lifecycle"))
MACHINE, OBJECTS = "workbench.control.machine", "workbench.control.objects"
Edits = Sequence[Edit]


@pytest.fixture
def edits() -> Edits:
    """No mutant; `test_each_row_can_fail` calls the rows with one."""
    return ()


def pair(requests: int = 1, chunks: int = 3, attempts: int = 2, replayable: bool = True, **faults: int) -> Scenario:
    """Two stages in a row with windows of two chunks, and budgets of faults."""
    plan = bounded(chain(2), requests, window=2, attempts=attempts, replayable=replayable, spare_bytes=2)
    return Scenario(plan, chunks, {name.replace("_", "-"): count for name, count in faults.items()})


def join(requests: int = 1, chunks: int = 2, **faults: int) -> Scenario:
    """A fork and a join with windows of one chunk."""
    plan = bounded(fork_join(), requests)
    return Scenario(plan, chunks, {name.replace("_", "-"): count for name, count in faults.items()})


def harmless(fault: str, edits: Edits) -> None:
    """A failure that costs nothing: exactly once, in the first epoch. A second one strikes at random."""
    struck = 0
    for scenario in (pair(2, 2, **{fault: 2}), join(**{fault: 2})):
        for run in strikes(scenario, fault, runs=2, edits=edits):
            run.settle(storm=0.1).exactly_once()
            assert run.get(EPOCH) == 0
            struck += 1
    assert struck > 40


def test_lost_data(edits: Edits) -> None:
    """The sender keeps a chunk until it is taken over and sends it again: exactly once."""
    harmless("lose-data", edits)


def test_duplicate_data(edits: Edits) -> None:
    """A number below the next one expected is a repeat: exactly once."""
    harmless("duplicate-data", edits)


def test_reordered_data(edits: Edits) -> None:
    """A number above the next one expected is a gap; it is dropped and comes again: exactly once."""
    struck = 0
    for run in strikes(pair(2, reorder_data=2), "reorder-data", runs=12, edits=edits):
        run.settle(storm=0.1).exactly_once()
        struck += 1
    assert struck > 20


def test_late_data(edits: Edits) -> None:
    """A chunk of an epoch that is over is dropped by whoever receives it: exactly once, of the second epoch."""
    late = 0
    for run in strikes(pair(kill=1, reorder_data=1), "kill", runs=8, edits=edits):
        if any(run.m[wires.data_wire(run.g, 0, e)] for e in range(2)) and run.until(again, hold=[wires.DATA]):
            if run.until(lambda run: bool(run.possible(wires.REORDER_DATA)), hold=[wires.DATA]):
                run.take(run.random.choice(run.possible(wires.REORDER_DATA)))
            run.settle().exactly_once()
            late += run.count(effects.DROPPED, epoch=0)
    assert late > 10


def test_lost_credit(edits: Edits) -> None:
    """Limits are absolute, so the next message or the refresh says all of it again: exactly once."""
    harmless("lose-credit", edits)


def test_duplicate_credit(edits: Edits) -> None:
    """A total that was seen before is no news, and returns nothing twice: exactly once."""
    harmless("duplicate-credit", edits)


def test_reordered_credit(edits: Edits) -> None:
    """A total below the largest one seen is no news: exactly once."""
    struck = 0
    for run in strikes(pair(2, reorder_credit=2), "reorder-credit", runs=25, edits=edits):
        run.settle(storm=0.1).exactly_once()
        struck += 1
    assert struck > 20


def test_late_credit(edits: Edits) -> None:
    """Credit of an epoch that is over says nothing to the next one: exactly once."""
    late = 0
    for run in strikes(pair(kill=1), "kill", runs=4, edits=edits):
        if any(run.m[wires.credit_wire(run.g, 0, e)] for e in range(2)) and run.until(reopened, hold=[wires.CREDIT]):
            run.settle().exactly_once()
            late += 1
    assert late > 10


def again(run: Run) -> bool:
    """Whether the second epoch has begun."""
    return run.get(EPOCH) == 1 and run.get(PHASE) == RUNNING_PHASE


def reopened(run: Run) -> bool:
    """Whether every stage works on the second epoch."""
    return again(run) and all(run.m[stage(run.g, 0, v) + STATUS] == OPEN for v in range(run.g[STAGES]))


def test_lost_control(edits: Edits) -> None:
    """A start or stop message is sent again until it is answered: exactly once."""
    harmless("lose-control", edits)


def test_duplicate_control(edits: Edits) -> None:
    """A start or stop that was obeyed already changes nothing: exactly once."""
    harmless("duplicate-control", edits)


def test_lost_reply(edits: Edits) -> None:
    """A stage that is told to stop again says again that it has: exactly once."""
    harmless("lose-reply", edits)


def test_duplicate_reply(edits: Edits) -> None:
    """A stage that has stopped twice has stopped: exactly once."""
    harmless("duplicate-reply", edits)


def test_late_reply(edits: Edits) -> None:
    """A stage's word that it stopped an epoch says nothing about the next one: exactly once."""
    late = 0
    for run in strikes(pair(kill=1, duplicate_reply=1), "kill", runs=2, edits=edits):
        if not run.until(lambda run: bool(run.possible(wires.DUPLICATE_REPLY)) and run.get(THEN) == AGAIN):
            continue
        code = run.possible(wires.DUPLICATE_REPLY)[0]
        run.take(code)
        stuck = [wires.code(run.g, wires.REPLY, 0, wires.place_of(run.g, code), 0)]
        if run.until(lambda run: run.get(EPOCH) == 1 and run.get(PHASE) == DRAINING, stuck=stuck):
            run.take(*stuck)
            late += 1
        run.settle().exactly_once()
    assert late > 10


def test_partition_and_heal(edits: Edits) -> None:
    """For a time nothing arrives; afterwards everything that was lost is said again: exactly once."""
    losses = {"lose-data": 8, "lose-credit": 8, "lose-control": 8, "lose-reply": 8}
    scenario = Scenario(bounded(chain(2), 2, window=2, spare_bytes=2), 3, losses)
    for seed in range(30):
        run = Run(scenario, seed, edits)
        for _ in range(seed * 2):
            run.advance()
        for _ in range(40):
            lost = run.possible(wires.LOSE_DATA, wires.LOSE_CREDIT, wires.LOSE_CONTROL, wires.LOSE_REPLY)
            if lost:
                run.take(run.random.choice(lost))
            else:
                run.advance(hold=[wires.DATA, wires.CREDIT, wires.CONTROL, wires.REPLY])
        run.settle().exactly_once()


def test_resized_window(edits: Edits) -> None:
    """A window that a credit protocol changes takes back nothing that was advertised: exactly once."""
    harmless("resize", edits)


def struck_by(scenario: Scenario, fault: str, edits: Edits, runs: int = 3) -> list[tuple[Run, bool, bool]]:
    """Runs in which a worker died and was replaced at once, each with what held then.

    Whether the request ran and had something at the dead worker's stage, and whether it was exposed.
    """
    found = []
    for run in strikes(scenario, fault, runs=runs, edits=edits):
        (code,) = run.possible(DETECT)
        v = wires.place_of(run.g, code)
        hit = run.get(PHASE) == RUNNING_PHASE and touched(run.g, run.m, 0, v)
        exposed = run.get(EXPOSED) == 1
        run.take(code)
        found.append((run.settle(), hit, exposed))
    return found


def test_killed_idle(edits: Edits) -> None:
    """A worker that held nothing of a request: the request goes on in its epoch, exactly once."""
    hits = [run for run, hit, _ in struck_by(pair(kill=1), "kill", edits) if not hit]
    assert len(hits) > 10
    for run in hits:
        run.exactly_once()
        assert run.get(EPOCH) == 0


def test_killed_before_exposure(edits: Edits) -> None:
    """Nothing could have reached the client: another epoch does it all, exactly once, replayable or not."""
    for replayable in (True, False):
        scenario = pair(kill=1, replayable=replayable)
        hits = [run for run, hit, exposed in struck_by(scenario, "kill", edits) if hit and not exposed]
        assert len(hits) > 5
        for run in hits:
            run.exactly_once()
            assert run.get(EPOCH) == 1
            assert run.count(effects.SUPPRESSED) == 0


def test_killed_after_exposure_replayable(edits: Edits) -> None:
    """The second epoch makes the same chunks, and the client's cursor skips those it has: exactly once."""
    hits = [run for run, hit, exposed in struck_by(pair(kill=1), "kill", edits) if hit and exposed]
    assert len(hits) > 20
    for run in hits:
        run.exactly_once()
        assert run.get(EPOCH) == 1
    assert any(run.count(effects.SUPPRESSED) for run in hits)


def test_killed_after_exposure_not_replayable(edits: Edits) -> None:
    """Other chunks must not follow those the client may have: an explicit error after a prefix of one epoch."""
    hits = [run for run, hit, exposed in struck_by(pair(kill=1, replayable=False), "kill", edits) if hit and exposed]
    assert len(hits) > 20
    for run in hits:
        run.ended(0, ERROR)
        assert run.get(EPOCH) == 0


def test_killed_unnoticed(edits: Edits) -> None:
    """Death is noticed late and strikes again: exactly once with attempts enough, whenever it is noticed."""
    struck = 0
    for scenario in (pair(2, chunks=2, kill=2, attempts=3), join(kill=1)):
        for run in strikes(scenario, "kill", runs=1, edits=edits):
            run.settle(storm=0.02).exactly_once()
            struck += 1
    assert struck > 50


def test_model_upgraded_before_exposure(edits: Edits) -> None:
    """Every running request starts again with the new model, whatever it held where: exactly once."""
    hits = []
    for run in strikes(pair(upgrade=1, replayable=False), "upgrade", edits=edits):
        ran = run.get(PHASE) == RUNNING_PHASE
        exposed = run.get(EXPOSED) == 1
        run.take(*run.possible(DETECT))
        run.settle()
        if ran and not exposed:
            hits.append(run)
    assert len(hits) > 5
    for run in hits:
        run.exactly_once()
        assert run.get(EPOCH) == 1


def test_model_upgraded_after_exposure(edits: Edits) -> None:
    """Chunks of two models never meet in one output: an explicit error, replayable or not."""
    hits = []
    for run in strikes(pair(upgrade=1), "upgrade", edits=edits):
        ran = run.get(PHASE) == RUNNING_PHASE
        exposed = run.get(EXPOSED) == 1
        run.take(*run.possible(DETECT))
        run.settle()
        if ran and exposed:
            hits.append(run)
    assert len(hits) > 20
    for run in hits:
        run.ended(0, ERROR)
        assert run.get(EPOCH) == 0


def test_attempts_exhausted(edits: Edits) -> None:
    """One death more than there are attempts left: an explicit error, and what was delivered is a prefix."""
    hits = [run for run, hit, _ in struck_by(pair(kill=1, attempts=1), "kill", edits) if hit]
    assert len(hits) > 20
    for run in hits:
        run.ended(0, ERROR)
        assert run.get(EPOCH) == 0


def test_task_error(edits: Edits) -> None:
    """A task that cannot be done fails its request, and no other one: an explicit error."""
    struck = 0
    for run in strikes(pair(2, fail=1), "fail", edits=edits):
        failed = [r for r in range(2) if run.get(OUTCOME, r) == ERROR]
        assert len(failed) <= 1, "a launch that ends after its request has nothing left to fail"
        run.settle()
        for r in range(2):
            run.ended(r, ERROR if r in failed else OK)
        struck += len(failed)
    assert struck > 20


def test_lost_branch(edits: Edits) -> None:
    """A stage that silently forgets a request: its deadline, armed on submission, ends it, never a hang."""
    timeouts = 0
    for run in strikes(join(lost_branch=1), "lost-branch", runs=2, edits=edits):
        run.settle()
        outcome = run.get(OUTCOME)
        assert outcome in (OK, TIMEOUT)
        run.ended(0, outcome)
        timeouts += outcome == TIMEOUT
    assert timeouts > 20


def test_reconnect(edits: Edits) -> None:
    """All that was on the way to the client and back is lost; chunks come again: exactly once."""
    harmless("reconnect", edits)


def test_cancel(edits: Edits) -> None:
    """A cancel races with the work and its end: one terminal state, nothing delivered after it, all released."""
    outcomes = []
    for scenario in (pair(2, cancel=2), join(cancel=1)):
        for run in strikes(scenario, "cancel", runs=2, edits=edits):
            had = [run.output(r, run.terminals[0]) for r in range(run.g[REQUESTS])]
            gone = [r for r in range(len(had)) if run.m[client(run.g, r) + CLOSED] == 1]
            assert gone
            run.settle(storm=0.05)
            for r in range(len(had)):
                outcomes.append(run.get(OUTCOME, r))
                run.ended(r, outcomes[-1])
                assert outcomes[-1] in (OK, CANCELLED)
                assert r not in gone or run.output(r, run.terminals[0]) == had[r]
    assert outcomes.count(CANCELLED) > 50


def test_deadline(edits: Edits) -> None:
    """A deadline races with the work and its end: one terminal state, a prefix, all released."""
    outcomes = []
    for scenario in (pair(2, deadline=2), join(deadline=1)):
        for run in strikes(scenario, "deadline", runs=2, edits=edits):
            run.settle(storm=0.05)
            for r in range(run.g[REQUESTS]):
                outcomes.append(run.get(OUTCOME, r))
                run.ended(r, outcomes[-1])
                assert outcomes[-1] in (OK, TIMEOUT)
    assert outcomes.count(TIMEOUT) > 50


def test_cancel_and_deadline(edits: Edits) -> None:
    """A cancel, a deadline and a death at once: whichever is first writes the only terminal state."""
    seen = set()
    for run in strikes(pair(cancel=1, deadline=1, kill=1), "cancel", "deadline", runs=4, edits=edits):
        run.settle(storm=0.3)
        run.ended(0, run.get(OUTCOME))
        seen.add(run.get(OUTCOME))
    assert {CANCELLED, TIMEOUT} <= seen


def family(**faults: int) -> Scenario:
    """A request and its companion, two stages in a row."""
    budgets = {name.replace("_", "-"): count for name, count in faults.items()}
    return Scenario(bounded(chain(2), 2, attempts=1), 2, budgets, parents=(-1, 0))


def test_child_failure(edits: Edits) -> None:
    """A companion that ends badly fails its parent: neither waits for ever, both have one terminal state."""
    struck = 0
    for run in strikes(family(fail=1), "fail", runs=5, edits=edits):
        if run.get(OUTCOME, 1) != ERROR:
            continue
        run.settle()
        run.ended(1, ERROR)
        run.ended(0, ERROR)
        struck += 1
    assert struck > 5


def test_parent_failure(edits: Edits) -> None:
    """A parent that ends badly takes its companion with it, or refuses one that comes later."""
    struck = 0
    for run in strikes(family(fail=1), "fail", runs=5, edits=edits):
        if run.get(OUTCOME, 0) != ERROR or run.get(OUTCOME, 1) == ERROR:
            continue
        before = run.get(OUTCOME, 1)
        run.settle()
        run.ended(0, ERROR)
        run.ended(1, before or CANCELLED)
        struck += 1
    assert struck > 5


def test_rejected(edits: Edits) -> None:
    """A request that cannot be admitted and may not wait is told so: explicit, nothing done, nothing held."""
    plan = bounded(chain(2), 2, total_bytes=2, waiting=0)
    outcomes = set()
    for seed in range(20):
        run = Run(Scenario(plan, 2), seed, edits).settle()
        for r in range(2):
            run.ended(r, run.get(OUTCOME, r))
            outcomes.add(run.get(OUTCOME, r))
            if run.get(OUTCOME, r) == REJECTED:
                assert run.count(effects.ADMITTED, r) == 0
                assert run.output(r, 1) == []
    assert outcomes == {OK, REJECTED}


# A row, and a protocol in which it must not hold.
WRONG = {
    test_lost_data: Edit(MACHINE, "m[end + TAKEN_KNOWN] <= seq < m[end + SENT]", "False"),
    test_duplicate_data: Edit(CREDIT, "if seq != m[at + RECEIVED]:", "if seq > m[at + RECEIVED]:"),
    test_reordered_data: Edit(CREDIT, "if seq != m[at + RECEIVED]:", "if seq < m[at + RECEIVED]:"),
    test_late_data: Edit(MACHINE, "OPEN and m[at + STAGE_EPOCH] == epoch\n", "OPEN\n"),
    test_lost_credit: Edit(
        MACHINE, "    if v == g[STAGES]:\n        credit.advertise(", "    if 0:\n        credit.advertise("
    ),
    test_duplicate_credit: Edit(
        LEDGER, "m[at + RETURNED_BYTES] = taken_bytes", "m[at + RETURNED_BYTES] += taken_bytes"
    ),
    test_reordered_credit: [
        Edit(CREDIT, "if taken > m[at + TAKEN_KNOWN]:", "if taken != m[at + TAKEN_KNOWN]:"),
        Edit(LEDGER, "if taken > m[at + RETURNED]:", "if taken != m[at + RETURNED]:"),
    ],
    test_late_credit: Edit(MACHINE, "OPEN or m[at + STAGE_EPOCH] != epoch:", "OPEN:"),
    test_lost_control: Edit(LIFECYCLE, "DRAINING and m[stage_control(g, r, v) + STOP] == WANTED", "DRAINING and False"),
    test_duplicate_control: Edit(MACHINE, "== IDLE or m[at + STAGE_EPOCH] < epoch:", "== IDLE or epoch == 0:"),
    test_lost_reply: Edit(MACHINE, "!= IDLE and m[at + STAGE_EPOCH] > epoch:", "!= IDLE and m[at + STATUS] != OPEN:"),
    test_duplicate_reply: Edit(LIFECYCLE, "for u in range(g[STAGES]):", "for u in range(1):"),
    test_late_reply: Edit(LIFECYCLE, "DRAINING or m[at + EPOCH] != epoch:", "DRAINING:"),
    test_partition_and_heal: Edit(MACHINE, "m[end + TAKEN_KNOWN] <= seq", "m[end + TAKEN_KNOWN] < seq"),
    test_resized_window: Edit(
        CREDIT, "    m[at + WIDTH] = width\n", "    m[at + WIDTH] = width\n    m[at + TAKEN] = 0\n"
    ),
    test_killed_idle: Edit(LIFECYCLE, "(changed == 1 or touched(g, m, r, v))", "True"),
    test_killed_before_exposure: Edit(LIFECYCLE, "    if m[at + EXPOSED] == 0:\n", "    if False:\n"),
    test_killed_after_exposure_replayable: Edit(MACHINE, "if seq == m[cursor(g, r, e)]:", "if True:"),
    test_killed_after_exposure_not_replayable: Edit(LIFECYCLE, "g[REPLAYABLE] == 1 and ", ""),
    test_killed_unnoticed: Edit(MACHINE, "    objects.lose_all(g, m, v)\n", ""),
    test_model_upgraded_before_exposure: Edit(
        LIFECYCLE, "(changed == 1 or touched(g, m, r, v))", "touched(g, m, r, v)"
    ),
    test_model_upgraded_after_exposure: Edit(LIFECYCLE, " and m[at + REVISION] == revision(g, m)", ""),
    test_attempts_exhausted: Edit(LIFECYCLE, "m[at + EPOCH] + 1 < g[ATTEMPTS]", "m[at + EPOCH] < g[ATTEMPTS]"),
    test_task_error: Edit(MACHINE, "    if failed == 1:\n", "    if failed == 2:\n"),
    test_lost_branch: Edit(LIFECYCLE, "    m[at + ARMED] = 1\n", "    m[at + ARMED] = 0\n"),
    test_reconnect: Edit(MACHINE, "m[cursor(g, r, e)] += 1", "m[cursor(g, r, e)] += m[at + CLIENT_EPOCH]"),
    test_cancel: Edit(
        MACHINE,
        "def client_cancels(g: Vector, m: Vector, r: int) -> None:",
        "def client_cancels(g: Vector, m: Vector, r: int) -> None:\n    return\n",
    ),
    test_deadline: Edit(MACHINE, "OPEN and m[at + RUNNING] == 1:", "OPEN and False:"),
    test_cancel_and_deadline: Edit(LIFECYCLE, "    if m[at + OUTCOME] != 0:\n        return\n    m[at", "    m[at"),
    test_child_failure: Edit(LIFECYCLE, "    conclude(g, m, out, root, ERROR)\n", ""),
    test_parent_failure: Edit(LIFECYCLE, "            conclude(g, m, out, child, CANCELLED)", "            pass"),
    test_rejected: Edit(LIFECYCLE, "        end(g, m, out, r, REJECTED)\n", "        pass\n"),
}


def test_every_row_has_a_mutant() -> None:
    own = {test_each_row_can_fail, test_every_row_has_a_mutant}
    rows = {value for name, value in globals().items() if name.startswith("test_")} - own
    assert rows == set(WRONG)


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row.__name__)
def test_each_row_can_fail(row: Callable[[Edits], None]) -> None:
    edits = WRONG[row]
    with pytest.raises(AssertionError):
        row(edits if isinstance(edits, list) else [edits])
