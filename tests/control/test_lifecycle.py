from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.machines import Machine
from workbench.control import admission, effects, ledger, lifecycle, machine
from workbench.control.layout import (
    ARMED,
    CHILDREN,
    DELIVERED,
    EDGES,
    EPOCH,
    EXPOSED,
    NOTICE,
    OUTCOME,
    PARENT,
    PHASE,
    REQUESTS,
    STAGES,
    STOP,
    TENANTS,
    THEN,
    USED,
    WAITING,
    EdgePlan,
    Plan,
    request,
    slots_used,
    stage_control,
)
from workbench.control.phases import (
    AGAIN,
    CANCELLED,
    CLOSE,
    CLOSED_PHASE,
    CONFIRMED,
    DRAINING,
    ERROR,
    NEW,
    OK,
    PHASES,
    REJECTED,
    RUNNING_PHASE,
    TIMEOUT,
    TOLD,
    UNTOLD,
    WAITING_PHASE,
)
from workbench.graph import CLIENT, Edge, Stage, StageGraph
from workbench.schema.enums import OUTCOME_STATUS
from workbench.verify.scenario import chain, fork_join

# Request 1 is looked at; request 0 is there to be in its way.
SUBJECT = 1


def get(box: Machine, field: int, r: int = SUBJECT) -> int:
    return box.m[request(box.g, r) + field]


def submit(box: Machine, r: int) -> None:
    box(lifecycle.submit, r, -1, -1)


def new() -> Machine:
    return Machine(Plan(chain(2), 2, total_bytes=2))


def waiting() -> Machine:
    box = new()
    submit(box, 0)
    submit(box, SUBJECT)
    return box


def running() -> Machine:
    box = new()
    submit(box, SUBJECT)
    return box


def working() -> Machine:
    """The first stage has reserved a chunk on its way to the second one."""
    box = new()
    box.admit(SUBJECT)
    box(machine.reserve, SUBJECT, 0)
    return box


def exposed() -> Machine:
    """The second stage may have sent a chunk to the client."""
    box = working()
    box.m[request(box.g, SUBJECT) + EXPOSED] = 1
    return box


def draining() -> Machine:
    box = running()
    box(lifecycle.cancel, SUBJECT)
    return box


def again() -> Machine:
    """The worker of the first stage is dead: the second stage has to stop before the next epoch."""
    box = working()
    box(lifecycle.lost, 0, 0)
    return box


def closed() -> Machine:
    box = draining()
    for v in (0, 1):
        box(lifecycle.stopped, SUBJECT, v, 0)
    return box


STATES = {make.__name__: make for make in (new, waiting, running, working, exposed, draining, again, closed)}
EVENTS: dict[str, Callable[[Machine], object]] = {
    "submit": lambda box: submit(box, SUBJECT),
    "ask": lambda box: box(lifecycle.ask_again, SUBJECT, -1, -1),
    "start": lambda box: box(lifecycle.start, SUBJECT),
    "deliver": lambda box: box(lifecycle.delivered, SUBJECT, get(box, EPOCH)),
    "cancel": lambda box: box(lifecycle.cancel, SUBJECT),
    "expire": lambda box: box(lifecycle.expire, SUBJECT),
    "fail": lambda box: box(lifecycle.fail, SUBJECT, get(box, EPOCH)),
    "kill": lambda box: box(lifecycle.lost, 1, 0),
    "upgrade": lambda box: box(lifecycle.lost, 0, 1),
    "nag": lambda box: box(lifecycle.stop_again, SUBJECT, 1),
    "stopped": lambda box: box(lifecycle.stopped, SUBJECT, 1, get(box, EPOCH)),
    "tell": lambda box: box(lifecycle.tell, SUBJECT),
    "told": lambda box: box(lifecycle.told, SUBJECT),
}
# Every event in every state: the phase it leads to, or the outcome that it writes, after which a request drains (one
# that still waited holds nothing and is closed at once); "." is no change of either.
TABLE = """
event    new      waiting    running    working    exposed    draining  again      closed
submit   running  .          .          .          .          .         .          .
ask      .        .          .          .          .          .         .          .
start    .        .          .          .          .          .         .          .
deliver  .        .          ok         ok         ok         .         .          .
cancel   .        cancelled  cancelled  cancelled  cancelled  .         cancelled  .
expire   .        timeout    timeout    timeout    timeout    .         timeout    .
fail     .        .          error      error      error      .         .          .
kill     .        .          .          draining   draining   .         waiting    .
upgrade  .        .          draining   draining   error      .         .          .
nag      .        .          .          .          .          .         .          .
stopped  .        .          .          .          .          .         waiting    .
tell     .        .          .          .          .          .         .          .
told     .        .          .          .          .          .         .          .
"""
HEAD, *ROWS = [line.split() for line in TABLE.strip().splitlines()]
PAIRS = [(row[0], state, cell) for row in ROWS for state, cell in zip(HEAD[1:], row[1:], strict=True)]


def test_the_table_is_complete() -> None:
    assert [row[0] for row in ROWS] == list(EVENTS)
    assert HEAD[1:] == list(STATES)


@pytest.mark.parametrize(("event", "state", "cell"), PAIRS, ids=[f"{event}-{state}" for event, state, _ in PAIRS])
def test_every_event_in_every_state(event: str, state: str, cell: str) -> None:
    box = STATES[state]()
    phase, outcome = PHASES[get(box, PHASE)], get(box, OUTCOME)
    EVENTS[event](box)
    ends = [(effect.request, effect.a) for effect in box.effects if effect.kind == effects.ENDED]
    if cell in OUTCOME_STATUS:
        phase, outcome = "closed" if state == "waiting" else "draining", 1 + OUTCOME_STATUS.index(cell)
        assert ends == [(SUBJECT, outcome)]
    else:
        phase = phase if cell == "." else cell
        assert ends == []
    assert (PHASES[get(box, PHASE)], get(box, OUTCOME)) == (phase, outcome)
    coherent(box)


@pytest.mark.parametrize("state", STATES)
def test_word_of_another_epoch_changes_nothing(state: str) -> None:
    for epoch in (-1, 1, 7):
        box = STATES[state]()
        before = list(box.m)
        other = get(box, EPOCH) + epoch
        for event, args in ((lifecycle.delivered, ()), (lifecycle.fail, ())):
            box(event, SUBJECT, *args, other)
        for v in (0, 1):
            box(lifecycle.stopped, SUBJECT, v, other)
        assert box.m == before


def coherent(box: Machine) -> None:
    """What holds of the controller's memory whatever happened."""
    g, m = box.g, box.m
    assert m[WAITING] == sum(get(box, PHASE, r) == WAITING_PHASE for r in range(g[REQUESTS]))
    for r in range(g[REQUESTS]):
        phase, outcome = get(box, PHASE, r), get(box, OUTCOME, r)
        assert (outcome != 0) == (phase == CLOSED_PHASE or (phase == DRAINING and get(box, THEN, r) == CLOSE))
        assert get(box, ARMED, r) == (phase != NEW and outcome == 0), "whoever has been accepted has a deadline"
        assert (get(box, NOTICE, r) != 0) == (outcome != 0)
    held = [r for r in range(g[REQUESTS]) if ledger.promised(g, m, r)]
    for r in range(g[REQUESTS]):
        own = get(box, PHASE, r) in (RUNNING_PHASE, DRAINING)
        assert own <= (r in held), "whoever is in has its room"
        assert (r in held) <= (own or get(box, PARENT, r) > 0), "room before admission is brought by a parent"
    assert (m[USED] > 0) == bool(held)
    for v in range(g[STAGES]):
        assert m[slots_used(g, v)] <= len(held)


@pytest.mark.parametrize("state", ["draining", "again"])
def test_a_stage_that_has_not_stopped_is_told_again(state: str) -> None:
    box = STATES[state]()
    for v in (0, 1):
        confirmed = box.m[stage_control(box.g, SUBJECT, v) + STOP] == CONFIRMED
        box(lifecycle.stop_again, SUBJECT, v)
        assert [effect.kind for effect in box.effects] == ([] if confirmed else [effects.SEND_STOP])


@pytest.mark.parametrize("state", STATES)
def test_news_are_told_until_they_are_confirmed(state: str) -> None:
    box = STATES[state]()
    untold = get(box, NOTICE) == UNTOLD
    for _ in range(2):
        box(lifecycle.tell, SUBJECT)
        told = [(effect.kind, effect.a) for effect in box.effects]
        assert told == ([(effects.SEND_NOTICE, get(box, OUTCOME))] if untold else [])
    lifecycle.told(box.g, box.m, SUBJECT)
    box(lifecycle.tell, SUBJECT)
    assert box.effects == []
    assert get(box, NOTICE) == (TOLD if untold else 0)


def test_the_drain_waits_for_every_stage() -> None:
    box = draining()
    box(lifecycle.stopped, SUBJECT, 0, 0)
    box(lifecycle.stopped, SUBJECT, 0, 0)
    assert (get(box, PHASE), box.m[USED]) == (DRAINING, 2)
    box(lifecycle.stopped, SUBJECT, 1, 0)
    assert (get(box, PHASE), box.m[USED]) == (CLOSED_PHASE, 0)
    assert [effect.kind for effect in box.effects] == [effects.FREED]


def test_the_next_epoch_starts_afresh() -> None:
    box = again()
    box(lifecycle.stopped, SUBJECT, 1, 0)
    box(lifecycle.ask_again, SUBJECT, -1, -1)
    assert (get(box, PHASE), get(box, EPOCH), get(box, DELIVERED)) == (RUNNING_PHASE, 1, 0)
    starts = [(effect.where, effect.epoch) for effect in box.effects if effect.kind == effects.SEND_START]
    assert starts == [(0, 1)]


def test_an_epoch_that_waited_while_the_model_changed_does_not_go_on() -> None:
    """Its first chunks are with the client and came from the old model."""
    box = working()
    box.m[request(box.g, SUBJECT) + EXPOSED] = 1
    box(lifecycle.lost, 0, 0)
    box(lifecycle.stopped, SUBJECT, 1, 0)
    assert get(box, PHASE) == WAITING_PHASE
    box(lifecycle.lost, 1, 1)
    box(lifecycle.ask_again, SUBJECT, -1, -1)
    assert (get(box, PHASE), get(box, OUTCOME)) == (CLOSED_PHASE, ERROR)
    coherent(box)


def test_two_changes_of_models_never_cancel_out() -> None:
    """A model that is put back is a change too: what the client has came from neither mixture."""
    box = working()
    box.m[request(box.g, SUBJECT) + EXPOSED] = 1
    box(lifecycle.lost, 0, 0)
    box(lifecycle.stopped, SUBJECT, 1, 0)
    box(lifecycle.lost, 1, 1)
    box(lifecycle.lost, 1, 1)
    box(lifecycle.ask_again, SUBJECT, -1, -1)
    assert (get(box, PHASE), get(box, OUTCOME)) == (CLOSED_PHASE, ERROR)


# attempts, replayable, exposed, new model -> ends with an error instead of another epoch
REPEATS = [
    (2, True, False, False, False),
    (2, False, False, False, False),
    (2, True, True, False, False),
    (2, False, True, False, True),
    (2, True, True, True, True),
    (2, True, False, True, False),
    (1, True, False, False, True),
]


@pytest.mark.parametrize(("attempts", "replayable", "visible", "upgraded", "fails"), REPEATS)
def test_when_a_death_is_an_error(attempts: int, replayable: bool, visible: bool, upgraded: bool, fails: bool) -> None:
    box = Machine(Plan(chain(2), 2, attempts=attempts, replayable=replayable))
    box.admit(SUBJECT)
    box(machine.reserve, SUBJECT, 0)
    box.m[request(box.g, SUBJECT) + EXPOSED] = int(visible)
    box(lifecycle.lost, 0, int(upgraded))
    assert get(box, OUTCOME) == (ERROR if fails else 0)
    assert get(box, THEN) == (CLOSE if fails else AGAIN)
    coherent(box)


def test_a_death_elsewhere_leaves_a_request_alone() -> None:
    """Nothing was reserved around the second stage of a chain of three."""
    box = Machine(Plan(chain(3), 1))
    box.admit(0)
    box(machine.reserve, 0, 0)
    box(lifecycle.lost, 2, 0)
    assert get(box, PHASE, 0) == RUNNING_PHASE
    box(lifecycle.lost, 1, 0)
    assert get(box, PHASE, 0) == DRAINING


ADMISSION = [
    ({"total_bytes": 4}, RUNNING_PHASE, 0, admission.ADMIT, 0),
    ({"total_bytes": 2}, WAITING_PHASE, 0, admission.WAIT, admission.TOTAL_BYTES),
    ({"slots": {"s1": 1}}, WAITING_PHASE, 0, admission.WAIT, admission.SLOTS_TAKEN),
    ({"total_bytes": 2, "waiting": 0}, CLOSED_PHASE, REJECTED, admission.REJECT, admission.QUEUE_FULL),
    (
        {"edges": {"s0>s1": EdgePlan(9)}, "request_bytes": 9},
        CLOSED_PHASE,
        REJECTED,
        admission.REJECT,
        admission.REQUEST_BYTES,
    ),
]


@pytest.mark.parametrize(("bounds", "phase", "outcome", "verdict", "reason"), ADMISSION)
def test_admission_with_its_reason(bounds: dict, phase: int, outcome: int, verdict: int, reason: int) -> None:
    box = Machine(Plan(chain(2), 2, **bounds))
    submit(box, 0)
    submit(box, SUBJECT)
    assert (get(box, PHASE), get(box, OUTCOME)) == (phase, outcome)
    said = [(effect.a, effect.b) for effect in box.effects if effect.kind == effects.REFUSED]
    assert said == ([] if verdict == admission.ADMIT else [(verdict, reason)])
    coherent(box)


def test_a_deadline_that_cannot_be_met_is_a_reason() -> None:
    box = new()
    box(lifecycle.submit, SUBJECT, 5, 6)
    assert (box.effects[0].kind, box.effects[0].b) == (effects.REFUSED, admission.DEADLINE)
    assert get(box, OUTCOME) == REJECTED


def family(count: int = 3) -> Machine:
    """Request 0 and its companions, all submitted."""
    box = Machine(Plan(chain(2), count), parents=(-1, *[0] * (count - 1)))
    for r in range(count):
        submit(box, r)
    return box


def outcomes(box: Machine) -> list[int]:
    return [get(box, OUTCOME, r) for r in range(box.g[REQUESTS])]


BAD = {"fail": ERROR, "cancel": CANCELLED, "expire": TIMEOUT}


@pytest.mark.parametrize("event", BAD)
def test_a_child_that_ends_badly_fails_its_family(event: str) -> None:
    box = family()
    args = (0,) if event == "fail" else ()
    box(getattr(lifecycle, event), 2, *args)
    assert outcomes(box) == [ERROR, CANCELLED, BAD[event]]
    assert sorted(effect.request for effect in box.effects if effect.kind == effects.ENDED) == [0, 1, 2]


@pytest.mark.parametrize("event", BAD)
def test_a_parent_that_ends_badly_takes_its_children_with_it(event: str) -> None:
    box = family()
    args = (0,) if event == "fail" else ()
    box(getattr(lifecycle, event), 0, *args)
    assert outcomes(box) == [BAD[event], CANCELLED, CANCELLED]


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (1, 0, 2)])
def test_a_family_succeeds_when_all_of_it_has(order: tuple[int, ...]) -> None:
    box = family()
    for r in order:
        assert get(box, OUTCOME, 0) == 0
        box(lifecycle.delivered, r, 0)
    assert outcomes(box) == [OK, OK, OK]
    assert get(box, CHILDREN, 0) == 0


def test_a_child_that_has_ended_well_stays_so() -> None:
    box = family()
    box(lifecycle.delivered, 1, 0)
    box(lifecycle.fail, 0, 0)
    assert outcomes(box) == [ERROR, OK, CANCELLED]


def test_a_child_of_a_parent_that_has_ended_is_refused() -> None:
    box = Machine(Plan(chain(2), 2), parents=(-1, 0))
    submit(box, 0)
    box(lifecycle.fail, 0, 0)
    submit(box, 1)
    assert outcomes(box) == [ERROR, CANCELLED]
    assert (get(box, PHASE, 1), get(box, ARMED, 1)) == (CLOSED_PHASE, 0)
    assert effects.ADMITTED not in [effect.kind for effect in box.effects]


def test_a_parent_that_waits_for_an_unborn_child_has_a_deadline() -> None:
    box = Machine(Plan(chain(2), 2), parents=(-1, 0))
    submit(box, 0)
    box(lifecycle.delivered, 0, 0)
    assert (get(box, OUTCOME, 0), get(box, ARMED, 0)) == (0, 1)
    box(lifecycle.expire, 0)
    assert outcomes(box) == [TIMEOUT, 0]


def test_every_output_must_be_delivered() -> None:
    """A graph with two outputs."""
    stages = (Stage(CLIENT, "client"), Stage("a", "ar"), Stage("b", "ar"))
    edges = tuple(Edge(u, v, "tokens", "stream") for u, v in ((CLIENT, "a"), ("a", "b"), ("a", CLIENT), ("b", CLIENT)))
    box = Machine(Plan(StageGraph("two", "t", "s", stages, edges), 1))
    assert lifecycle.outputs(box.g) == 2
    submit(box, 0)
    box(lifecycle.delivered, 0, 0)
    assert get(box, OUTCOME, 0) == 0
    box(lifecycle.delivered, 0, 0)
    assert get(box, OUTCOME, 0) == OK


@given(st.lists(st.sampled_from([-1, -1, 0, 1]), min_size=1, max_size=4), st.integers(1, 3), st.booleans(), st.data())
def test_one_terminal_state_whatever_happens(
    wishes: list[int], attempts: int, replayable: bool, data: st.DataObject
) -> None:
    """Random events on a family and strangers: a terminal state is written once, and families end together."""
    parents: list[int] = []
    for r, wish in enumerate(wishes):
        parents.append(wish if wish < r and (wish < 0 or parents[wish] < 0) else -1)
    count = len(parents)
    edges = len(fork_join().edges) - 1
    plan = Plan(
        fork_join(), count, data.draw(st.integers(1, count)), attempts=attempts, replayable=replayable,
        total_bytes=data.draw(st.integers(0, count * edges)), waiting=data.draw(st.integers(0, count)),
    )  # fmt: skip
    box = Machine(plan, parents=parents)
    g, m = box.g, box.m
    assert g[TENANTS] == plan.tenants
    assert g[EDGES] == edges
    ended: dict[int, int] = {}
    events = ["submit", "submit", "ask", "deliver", "cancel", "expire", "fail", "lost", "stopped", "stopped", "work"]
    for _ in range(data.draw(st.integers(1, 40))):
        event, r = data.draw(st.sampled_from(events)), data.draw(st.integers(0, count - 1))
        v, epoch = data.draw(st.integers(0, 3)), get(box, EPOCH, r)
        if event == "submit":
            submit(box, r)
        elif event == "ask":
            box(lifecycle.ask_again, r, -1, -1)
        elif event == "deliver" and get(box, DELIVERED, r) == 0:
            box(lifecycle.delivered, r, epoch)
        elif event in ("cancel", "expire"):
            box(getattr(lifecycle, event), r)
        elif event == "fail":
            box(lifecycle.fail, r, epoch)
        elif event == "lost":
            box(lifecycle.lost, v, data.draw(st.integers(0, 1)))
        elif event == "stopped":
            box(lifecycle.stopped, r, v, epoch)
        elif event == "work" and get(box, PHASE, r) == RUNNING_PHASE:
            ledger.reserve(g, m, r, data.draw(st.integers(0, edges - 1)))
            box.out[0] = 0
        else:
            box.out[0] = 0
        for effect in box.effects:
            if effect.kind == effects.ENDED:
                assert effect.request not in ended
                ended[effect.request] = effect.a
        assert {r: get(box, OUTCOME, r) for r in range(count) if get(box, OUTCOME, r)} == ended
        assert all(get(box, EPOCH, r) < attempts for r in range(count))
        for child in range(count):
            root = get(box, PARENT, child) - 1
            if root >= 0 and get(box, PHASE, child) != NEW:
                assert get(box, OUTCOME, root) in (0, OK) or get(box, OUTCOME, child) != 0
            if root >= 0 and get(box, OUTCOME, root) == OK:
                assert get(box, OUTCOME, child) == OK
        coherent(box)
