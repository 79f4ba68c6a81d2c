from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.machines import Machine, plans
from workbench.control import effects, ledger, lifecycle, machine, objects
from workbench.control.layout import (
    ADVERTISED,
    CLIENT_EPOCH,
    EPOCH,
    EXPOSED,
    GENERATION,
    LAST,
    LIMIT,
    OUTCOME,
    OWNER,
    PHASE,
    READY,
    RECEIVED,
    REQUEST_USED,
    RUNNING,
    SLOT,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    TRIMMED_BYTES,
    USED,
    EdgePlan,
    Plan,
    account,
    client,
    cursor,
    receiver,
    request,
    revision_of,
    sender,
    slot,
    slots_used,
    stage,
)
from workbench.control.machine import BAD_STATE, BUSY, GO, NO_INPUT, NO_ROOM, NO_SLOT, NO_WINDOW, NOT_OPEN
from workbench.control.phases import CLOSED_PHASE, ERROR, IDLE, OPEN, RUNNING_PHASE, STOPPED, STOPPING
from workbench.graph import CLIENT, Edge, Stage, StageGraph
from workbench.verify.scenario import chain, fork_join

PAIR = {"s0>s1": EdgePlan(3, 1, 2), "s1>client": EdgePlan(3, 1, 2)}


def pair(**plan) -> Machine:
    """Two stages in a row, chunks of three bytes, windows of two chunks; request 0 is admitted."""
    box = Machine(Plan(chain(2), 2, edges=PAIR, **plan))
    box.admit()
    return box


def get(box: Machine, v: int, field: int, r: int = 0) -> int:
    return box.m[stage(box.g, r, v) + field]


def sent(box: Machine) -> list[tuple[int, int, int, int]]:
    """Edge, number, size and final mark of the chunks sent by the last call."""
    return [(x.where, x.a, x.b, x.c) for x in box.effects if x.kind == effects.SEND_DATA]


def kinds(box: Machine) -> list[int]:
    return [effect.kind for effect in box.effects]


def test_a_stage_opens_for_the_epoch_that_runs() -> None:
    box = Machine(Plan(chain(2), 1, edges=PAIR))
    for epoch in (0, 1):
        box(machine.on_start, 0, 0, epoch)
        assert get(box, 0, STATUS) == IDLE
    box(lifecycle.submit, 0, -1, -1)
    box(machine.on_start, 0, 0, 1)
    assert get(box, 0, STATUS) == IDLE
    box(machine.on_start, 0, 0, 0)
    assert (get(box, 0, STATUS), get(box, 0, STAGE_EPOCH)) == (OPEN, 0)
    assert box.m[sender(box.g, 0, 0) + LIMIT] == 2


def test_a_start_that_comes_twice_starts_nothing_again() -> None:
    box = pair()
    box.make(0)
    before = list(box.m)
    box(machine.on_start, 0, 0, 0)
    assert box.m == before


def test_data_opens_the_next_stage() -> None:
    box = pair()
    box.make(0)
    ((edge, seq, size, final),) = sent(box)
    box(machine.on_data, 0, edge, 0, seq, size, final)
    assert (get(box, 1, STATUS), box.m[receiver(box.g, 0, 0) + RECEIVED]) == (OPEN, 1)
    assert kinds(box) == [], "a chunk that lies in the inbox returns nothing"


@pytest.mark.parametrize(("seq", "epoch", "answered"), [(0, 0, True), (2, 0, True), (1, 1, False), (1, -1, False)])
def test_what_is_not_next_is_dropped(seq: int, epoch: int, answered: bool) -> None:
    """A repeat and a gap are answered with the present numbers, another epoch with silence."""
    box = pair()
    box(machine.on_data, 0, 0, 0, 0, 3, 0)
    before = list(box.m)
    box(machine.on_data, 0, 0, epoch, seq, 3, 0)
    assert kinds(box) == ([effects.DROPPED, effects.SEND_CREDIT] if answered else [effects.DROPPED])
    assert box.m == before


def test_launch_takes_over_and_returns_credit() -> None:
    box = pair()
    for seq in (0, 1):
        box(machine.on_data, 0, 0, 0, seq, 3, 0)
    assert box(machine.reserve, 0, 1) == GO
    assert box.m[receiver(box.g, 0, 0) + TAKEN] == 0
    assert box(machine.launch, 0, 1, [2, 0]) == GO
    launched, said = box.effects
    assert (launched.kind, launched.a, launched.b) == (effects.LAUNCHED, 0, 0)
    assert (said.kind, said.a, said.b, said.c) == (effects.SEND_CREDIT, 1, 2, 3)


def obstacles() -> dict[int, Machine]:
    """A machine for each obstacle of the first stage (of the second for missing input), and why."""
    found = {NOT_OPEN: Machine(Plan(chain(2), 1, edges=PAIR)), GO: pair(), BUSY: pair(), NO_WINDOW: pair()}
    found[BUSY](machine.reserve, 0, 0)
    for _ in range(2):
        found[NO_WINDOW].make(0)
    found[NO_SLOT] = pair(slots={"s0": 1})
    found[NO_SLOT].m[slot(found[NO_SLOT].g, 0, 0) + OWNER] = 2
    found[NO_ROOM] = pair(total_bytes=8)
    found[NO_ROOM].make(0)
    return found


@pytest.mark.parametrize("why", [NOT_OPEN, GO, BUSY, NO_SLOT, NO_WINDOW, NO_ROOM])
def test_each_obstacle_is_named_and_changes_nothing(why: int) -> None:
    box = obstacles()[why]
    before = list(box.m)
    assert box(machine.obstacle, 0, 0) == why
    assert box.m == before
    assert box(machine.reserve, 0, 0) == why
    assert (box.m == before) == (why != GO)


def test_a_stage_without_input_waits() -> None:
    box = pair()
    box(machine.on_data, 0, 0, 0, 0, 3, 0)
    assert box(machine.obstacle, 0, 1) == GO
    box(machine.reserve, 0, 1)
    box(machine.launch, 0, 1, box.sizes)
    box(machine.finish, 0, 1, box.sizes, 0, 0)
    assert box(machine.obstacle, 0, 1) == NO_INPUT


def test_a_join_waits_for_every_branch() -> None:
    box = Machine(Plan(fork_join(), 1))
    box.admit()
    left, right = box.edges.index("left>join"), box.edges.index("right>join")
    join = box.plan.stages.index("join")
    box(machine.on_data, 0, left, 0, 0, 1, 0)
    assert box(machine.obstacle, 0, join) == NO_INPUT
    box(machine.on_data, 0, right, 0, 0, 1, 0)
    assert box(machine.obstacle, 0, join) == GO


def whole() -> Machine:
    """A stage that waits for all of its input, behind one that streams."""
    stages = (Stage(CLIENT, "client"), Stage("s0", "ar"), Stage("s1", "ar"))
    edges = (
        Edge(CLIENT, "s0", "tokens", "stream"),
        Edge("s0", "s1", "tokens", "whole"),
        Edge("s1", CLIENT, "tokens", "stream"),
    )
    box = Machine(Plan(StageGraph("w", "t", "s", stages, edges), 1, edges=PAIR))
    box.admit()
    return box


def test_a_whole_edge_is_taken_piece_by_piece_and_used_at_its_end() -> None:
    box = whole()
    for seq, final in ((0, 0), (1, 0), (2, 1)):
        box(machine.on_data, 0, 0, 0, seq, 3, final)
        assert [(x.kind, x.a, x.b) for x in box.effects] == [(effects.SEND_CREDIT, seq + 1, 3 * seq + 3)]
        assert box(machine.obstacle, 0, 1) == (GO if final else NO_INPUT)
    box(machine.reserve, 0, 1)
    box(machine.launch, 0, 1, box.sizes)
    assert kinds(box) == [effects.LAUNCHED], "its credit has been returned already"


def test_a_task_that_reaches_the_client_counts_as_exposed_when_it_is_reserved() -> None:
    box = pair()
    box.make(0)
    assert box.m[request(box.g, 0) + EXPOSED] == 0
    box(machine.on_data, 0, 0, 0, 0, 3, 0)
    box(machine.reserve, 0, 1)
    assert box.m[request(box.g, 0) + EXPOSED] == 1


@pytest.mark.parametrize("size", [0, 1, 3])
def test_what_a_chunk_does_not_need_goes_back(size: int) -> None:
    box = pair()
    box(machine.reserve, 0, 0)
    box(machine.launch, 0, 0, box.sizes)
    box(machine.finish, 0, 0, [size, 0], 0, 0)
    assert sent(box) == [(0, 0, size, 0)]
    assert box.m[account(box.g, 0, 0) + TRIMMED_BYTES] == 3 - size
    assert ledger.outstanding(box.m, account(box.g, 0, 0)) == size


@pytest.mark.parametrize(("size", "failed"), [(4, 0), (-1, 0), (3, 1)])
def test_a_launch_that_fails_or_makes_too_much_ends_the_request(size: int, failed: int) -> None:
    box = pair()
    box(machine.reserve, 0, 0)
    box(machine.launch, 0, 0, box.sizes)
    box(machine.finish, 0, 0, [size, 0], 0, failed)
    assert sent(box) == []
    assert (box.effects[0].kind, box.effects[0].a) == (effects.RECORDED, 1)
    assert box.m[request(box.g, 0) + OUTCOME] == ERROR


def test_the_last_task_gives_its_state_and_slot_back() -> None:
    box = pair()
    box.make(0, final=1)
    assert effects.RELEASED in kinds(box)
    assert (get(box, 0, SLOT), get(box, 0, LAST)) == (objects.NONE, 1)
    assert [box.m[slots_used(box.g, v)] for v in range(2)] == [0, 1]
    assert box(machine.obstacle, 0, 0) == NOT_OPEN


def test_a_state_object_lasts_from_the_first_task_to_the_last() -> None:
    box = pair()
    box.make(0)
    held = (get(box, 0, SLOT), box.m[slot(box.g, 0, 0) + GENERATION])
    box.make(0, final=1)
    assert held == (0, 0)
    assert box.m[slot(box.g, 0, 0) + GENERATION] == 1


def test_a_model_that_changed_under_a_state_object_is_an_error() -> None:
    box = pair()
    box(machine.reserve, 0, 0)
    box.m[revision_of(box.g, 0)] += 1
    assert box(machine.launch, 0, 0, box.sizes) == BAD_STATE
    assert box.m[request(box.g, 0) + OUTCOME] == ERROR
    assert effects.LAUNCHED not in kinds(box)


def test_a_launch_on_the_device_ends_before_its_stage_has_stopped() -> None:
    box = pair()
    box(machine.reserve, 0, 0)
    box(machine.launch, 0, 0, box.sizes)
    box(lifecycle.cancel, 0)
    box(machine.on_stop, 0, 0, 0)
    assert (get(box, 0, STATUS), kinds(box)) == (STOPPING, [])
    assert box.m[slot(box.g, 0, 0) + OWNER] == 1, "the state under the launch stays"
    box(machine.finish, 0, 0, box.sizes, 0, 0)
    assert kinds(box) == [effects.RECORDED, effects.RELEASED, effects.SEND_STOPPED]
    assert box.effects[0].a == 1, "thrown away, and recorded"
    assert get(box, 0, STATUS) == STOPPED


def test_a_reserved_task_is_given_up_by_a_stop() -> None:
    box = pair()
    box(machine.reserve, 0, 0)
    box(lifecycle.cancel, 0)
    box(machine.on_stop, 0, 0, 0)
    assert (get(box, 0, READY), get(box, 0, STATUS)) == (0, STOPPED)
    assert box(machine.launch, 0, 0, box.sizes) == NOT_OPEN


def test_nothing_is_reserved_once_the_controller_has_ended_it() -> None:
    """The stage has not heard of the cancel; the ledger has."""
    box = pair()
    box(lifecycle.cancel, 0)
    before = list(box.m)
    assert box(machine.reserve, 0, 0) == NOT_OPEN
    assert box.m == before


def test_a_stop_that_comes_before_the_start_is_remembered() -> None:
    box = Machine(Plan(chain(2), 1, edges=PAIR))
    box(lifecycle.submit, 0, -1, -1)
    box(lifecycle.cancel, 0)
    box(machine.on_stop, 0, 0, 0)
    box(machine.on_start, 0, 0, 0)
    assert get(box, 0, STATUS) == STOPPED


def test_a_stop_of_an_older_epoch_does_not_stop_the_next() -> None:
    box = pair()
    box.m[request(box.g, 0) + EPOCH] = 1
    box(machine.on_start, 0, 0, 1)
    assert get(box, 0, STAGE_EPOCH) == 1
    before = list(box.m)
    box(machine.on_stop, 0, 0, 0)
    assert (box.m, kinds(box)) == (before, [])


def test_a_dead_worker_forgets_its_own_part_only() -> None:
    box = pair()
    box.make(0)
    box(machine.on_data, 0, 0, 0, 0, 3, 0)
    box(machine.reserve, 0, 1)
    keep = stage(box.g, 0, 0), sender(box.g, 0, 0), account(box.g, 0, 0)
    before = [box.m[at : at + 6] for at in keep]
    box(machine.wipe, 1)
    assert [box.m[at : at + 6] for at in keep] == before
    assert (get(box, 1, STATUS), get(box, 1, SLOT), get(box, 1, RUNNING)) == (IDLE, objects.NONE, 0)
    assert box.m[receiver(box.g, 0, 0) + RECEIVED] == 0
    assert box.m[slot(box.g, 1, 0) + OWNER] == 0


@pytest.mark.parametrize(
    ("seq", "known", "again"), [(0, 0, True), (1, 0, True), (2, 0, False), (0, 1, False), (1, 1, True)]
)
def test_what_was_sent_and_is_not_known_to_be_taken_is_sent_again(seq: int, known: int, again: bool) -> None:
    box = pair()
    box.make(0)
    box.make(0)
    box(machine.on_credit, 0, 0, 0, known, 3 * known, 2 + known, 99)
    box(machine.resend, 0, 0, seq, 3, 0)
    assert sent(box) == ([(0, seq, 3, 0)] if again else [])


def test_credit_of_another_epoch_is_ignored() -> None:
    box = pair()
    box.make(0)
    before = list(box.m)
    for epoch in (-1, 1):
        box(machine.on_credit, 0, 0, epoch, 1, 3, 9, 99)
        assert box.m == before


def test_the_refresh_states_the_present_numbers() -> None:
    box = pair()
    box(machine.refresh, 0, 0)
    assert box.effects == [], "a stage that has not opened says nothing"
    box(machine.on_data, 0, 0, 0, 0, 3, 0)
    box(machine.refresh, 0, 0)
    assert [(x.kind, x.where, x.a, x.c) for x in box.effects] == [(effects.SEND_CREDIT, 0, 0, 2)]
    box(machine.refresh, 0, 1)
    assert [(x.kind, x.where, x.a, x.c) for x in box.effects] == [(effects.SEND_CREDIT, 1, 0, 2)]


def deliver(box: Machine, epoch: int, seq: int, final: int = 0) -> list[int]:
    box(machine.on_delivery, 0, 1, epoch, seq, 3, final)
    return kinds(box)


def test_the_cursor_of_the_client_outlives_an_epoch() -> None:
    box = pair()
    said = effects.SEND_CREDIT
    assert deliver(box, 0, 0) == [effects.COMMITTED, said]
    assert deliver(box, 0, 0) == [effects.DROPPED, said]
    assert deliver(box, 0, 2) == [effects.DROPPED, said]
    assert deliver(box, 0, 1) == [effects.COMMITTED, said]
    assert deliver(box, 1, 0) == [effects.SUPPRESSED, said]
    assert box.m[client(box.g, 0) + CLIENT_EPOCH] == 1
    assert deliver(box, 0, 2) == [effects.DROPPED], "an older epoch is not even answered"
    assert deliver(box, 1, 1) == [effects.SUPPRESSED, said]
    assert deliver(box, 1, 2, final=1) == [effects.COMMITTED, said]
    assert box.m[cursor(box.g, 0, 1)] == 3


@pytest.mark.parametrize("ending", [machine.on_notice, machine.client_cancels])
def test_a_closed_client_commits_nothing(ending) -> None:
    box = pair()
    ending(box.g, box.m, 0)
    assert deliver(box, 0, 0) == [effects.DROPPED]
    assert deliver(box, 1, 0) == [effects.DROPPED]
    assert box.m[cursor(box.g, 0, 1)] == 0


def test_the_end_of_the_output_is_reported_once() -> None:
    """Only when the client has taken the final chunk, and not again by a repeat of its word."""
    box = pair()
    box(machine.on_data, 0, 0, 0, 0, 3, 1)
    box.make(1, final=1)
    said = (0, 1, 0, 1, 3, 3, 9)
    box(machine.on_credit, 0, 1, 0, 0, 0, 3, 9)
    assert box.m[request(box.g, 0) + OUTCOME] == 0
    box(machine.on_credit, *said)
    assert kinds(box).count(effects.ENDED) == 1
    before = list(box.m)
    box(machine.on_credit, *said)
    assert (box.m, kinds(box)) == (before, [])


def test_the_first_epoch_of_a_client_is_under_credit_too() -> None:
    box = pair()
    assert box.m[receiver(box.g, 0, 1) + ADVERTISED] == 2


@given(plans(requests=1), st.integers(1, 4))
def test_every_graph_runs_to_its_end_without_faults(plan: Plan, chunks: int) -> None:
    """Messages at once, work in stage order: each stage makes every chunk once and all is given back."""
    box = Machine(plan)
    g, m = box.g, box.m
    box.admit()
    queue = []
    made = [0] * g[STAGES]
    assert m[request(g, 0) + PHASE] == RUNNING_PHASE
    progress = True
    while progress:
        progress = False
        for v in range(g[STAGES]):
            if made[v] < chunks and box(machine.reserve, 0, v) == GO:
                box(machine.launch, 0, v, box.sizes)
                queue += box.effects
                made[v] += 1
                box(machine.finish, 0, v, box.sizes, int(made[v] == chunks), 0)
                queue += box.effects
                progress = True
        while queue:
            x = queue.pop(0)
            if x.kind == effects.SEND_DATA:
                target = machine.on_delivery if plan.carried[x.where].target == CLIENT else machine.on_data
                box(target, 0, x.where, x.epoch, x.a, x.b, x.c)
            elif x.kind == effects.SEND_CREDIT:
                box(machine.on_credit, 0, x.where, x.epoch, x.a, x.b, x.c, x.d)
            elif x.kind == effects.SEND_STOP:
                box(machine.on_stop, 0, x.where, x.epoch)
            elif x.kind == effects.SEND_STOPPED:
                box(lifecycle.stopped, 0, x.where, x.epoch)
            else:
                continue
            queue += box.effects
            progress = True
    assert m[request(g, 0) + OUTCOME] == 1
    assert made == [chunks] * g[STAGES]
    assert m[USED] == m[request(g, 0) + REQUEST_USED] == 0
    assert m[request(g, 0) + PHASE] == CLOSED_PHASE
    for e, edge in enumerate(plan.carried):
        assert m[cursor(g, 0, e)] == (chunks if edge.target == CLIENT else 0)
