"""The controller's side of a request's life: admission, the one terminal state, the drain, and the next attempt.

::

    new -> waiting -> running -> draining -> closed
     |        |  ^        |          |
     |        |  +--------|----------+   another attempt: epoch + 1
     +--------+-> closed  +-> (terminal state written, then draining)

A terminal state is written once, before anything is cleaned up; whatever comes later (a cancel after the last chunk, a
deadline during clean-up) finds it written. Every way to the end passes through the same drain: each stage is told to
stop, and only when all of them have said that they hold nothing of this epoch is the rest of the credit taken back and
either the request closed or its next epoch admitted. So a slot or a byte cannot be forgotten on one path only.
"""

from __future__ import annotations

from workbench.control import admission, ledger
from workbench.control.effects import ADMITTED, ENDED, FREED, REFUSED, SEND_NOTICE, SEND_START, SEND_STOP, emit
from workbench.control.layout import (
    ARMED,
    ATTEMPTS,
    CHILDREN,
    DELIVERED,
    EDGES,
    EPOCH,
    EXPOSED,
    IN_AT,
    IN_COUNT,
    NOTICE,
    OUT_AT,
    OUT_COUNT,
    OUTCOME,
    PARENT,
    PHASE,
    REPLAYABLE,
    REQUESTS,
    RESERVED,
    REVISION,
    STAGES,
    STOP,
    THEN,
    TO,
    WAITING,
    WAITING_MAX,
    account,
    edge_row,
    request,
    revision_of,
    stage_control,
    stage_row,
)
from workbench.control.phases import (
    AGAIN,
    CANCELLED,
    CLOSE,
    CLOSED_PHASE,
    CONFIRMED,
    DRAINING,
    ERROR,
    FREE,
    NEW,
    OK,
    REJECTED,
    RUNNING_PHASE,
    TIMEOUT,
    TOLD,
    UNTOLD,
    WAITING_PHASE,
    WANTED,
)
from workbench.twin import Vector, rule


@rule
def revision(g: Vector, m: Vector) -> int:
    """One number for the model revisions of all stages: it changes when any of them does."""
    total = 0
    for v in range(g[STAGES]):
        total += m[revision_of(g, v)]
    return total


@rule
def submit(g: Vector, m: Vector, out: Vector, r: int, slack_ns: int, path_ns: int) -> None:
    """A client asks: admit, let wait, or reject, with the reason. Slack and path as in `admission.decide`.

    The deadline timer is armed here, before anything can be lost, and for children too: a parent that waits for a child
    which nobody times is a hang. A child whose parent has ended is refused.
    """
    at = request(g, r)
    if m[at + PHASE] != NEW:
        return
    m[at + ARMED] = 1
    parent = m[at + PARENT]
    if parent > 0 and m[request(g, parent - 1) + OUTCOME] != 0:
        emit(out, REFUSED, r, 0, 0, admission.REJECT, admission.DEADLINE)
        end(g, m, out, r, CANCELLED)
        return
    enter(g, m, out, r, 0, slack_ns, path_ns)


@rule
def ask_again(g: Vector, m: Vector, out: Vector, r: int, slack_ns: int, path_ns: int) -> None:
    """Something was freed: look at a waiting request again. Who is asked first is a matter of priority, not safety."""
    if m[request(g, r) + PHASE] == WAITING_PHASE:
        enter(g, m, out, r, 1, slack_ns, path_ns)


@rule
def children_waiting(g: Vector, m: Vector, r: int) -> int:
    """Number of children of request `r` that wait for it: they do not stand before it in the queue."""
    count = 0
    if m[request(g, r) + CHILDREN] > 0:
        for child in range(r + 1, g[REQUESTS]):
            at = request(g, child)
            if m[at + PARENT] == r + 1 and m[at + PHASE] == WAITING_PHASE:
                count += 1
    return count


@rule
def enter(g: Vector, m: Vector, out: Vector, r: int, waited: int, slack_ns: int, path_ns: int) -> None:
    """Ask for admission and act on the verdict. One that has `waited` was accepted and is not turned away any more.

    A family enters as a whole: its parent's admission promises the children their room, and a child waits for it. A
    second epoch that waited while a model was replaced may no longer continue the output of the first.
    """
    at = request(g, r)
    if m[at + EPOCH] > 0 and not may_repeat(g, m, r):
        end(g, m, out, r, ERROR)
        return
    # Whoever comes along with an accepted request is accepted.
    accepted = 1 if waited == 1 or m[at + PARENT] > 0 else 0
    now, ever = ledger.short_of(g, m, r, 0), ledger.short_of(g, m, r, 1)
    others = m[WAITING] - children_waiting(g, m, r)
    verdict, reason = admission.decide(now, ever, accepted, others, g[WAITING_MAX], slack_ns, path_ns)
    if verdict == admission.REJECT:
        emit(out, REFUSED, r, 0, m[at + EPOCH], verdict, reason)
        end(g, m, out, r, REJECTED)
    elif verdict == admission.WAIT:
        if waited == 0:
            m[at + PHASE] = WAITING_PHASE
            m[WAITING] += 1
        emit(out, REFUSED, r, 0, m[at + EPOCH], verdict, reason)
    else:
        m[WAITING] -= waited
        m[at + PHASE] = RUNNING_PHASE
        m[at + DELIVERED] = 0
        m[at + REVISION] = revision(g, m)
        ledger.admit(g, m, r)
        for v in range(g[STAGES]):
            m[stage_control(g, r, v) + STOP] = FREE
        emit(out, ADMITTED, r, 0, m[at + EPOCH])
        start(g, m, out, r)


@rule
def start(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """Tell the first stages to begin: on admission, and again by a timer as long as nothing is heard of them."""
    at = request(g, r)
    if m[at + PHASE] == RUNNING_PHASE:
        for v in range(g[STAGES]):
            if g[stage_row(g, v) + IN_COUNT] == 0:
                emit(out, SEND_START, r, v, m[at + EPOCH])


@rule
def conclude(g: Vector, m: Vector, out: Vector, r: int, outcome: int) -> None:
    """Write the terminal state of one request, once, and begin to stop its work."""
    at = request(g, r)
    if m[at + OUTCOME] != 0:
        return
    m[at + OUTCOME] = outcome
    m[at + ARMED] = 0
    m[at + NOTICE] = UNTOLD
    m[at + THEN] = CLOSE
    emit(out, ENDED, r, 0, m[at + EPOCH], outcome)
    emit(out, SEND_NOTICE, r, g[STAGES], m[at + EPOCH], outcome)
    if m[at + PHASE] == RUNNING_PHASE:
        drain(g, m, out, r)
    elif m[at + PHASE] != DRAINING:
        if m[at + PHASE] == WAITING_PHASE:
            m[WAITING] -= 1
        m[at + PHASE] = CLOSED_PHASE
        emit(out, FREED, r, 0, m[at + EPOCH])


@rule
def end(g: Vector, m: Vector, out: Vector, r: int, outcome: int) -> None:
    """Write the terminal state of a request and draw the consequences for its family.

    A family is a parent and its children (a guided image and its companion pass), one level deep. All succeed or none:
    a child that ends badly fails its parent, and a parent that ends badly cancels its children.
    """
    at = request(g, r)
    if m[at + OUTCOME] != 0:
        return
    conclude(g, m, out, r, outcome)
    root = r
    if m[at + PARENT] > 0:
        root = m[at + PARENT] - 1
    if outcome == OK:
        if root != r:
            m[request(g, root) + CHILDREN] -= 1
            conclude_if_done(g, m, out, root)
        return
    conclude(g, m, out, root, ERROR)
    if m[request(g, root) + CHILDREN] == 0:
        return
    for child in range(root + 1, g[REQUESTS]):
        if m[request(g, child) + PARENT] == root + 1 and m[request(g, child) + PHASE] != NEW:
            conclude(g, m, out, child, CANCELLED)
        if m[request(g, child) + PARENT] == root + 1 and m[request(g, child) + PHASE] in (NEW, CLOSED_PHASE):
            ledger.reclaim(g, m, child)  # what its parent's admission had brought it


@rule
def outputs(g: Vector) -> int:
    """Number of terminal edges: the outputs that a request owes its client."""
    count = 0
    for e in range(g[EDGES]):
        if g[edge_row(g, e) + TO] == g[STAGES]:
            count += 1
    return count


@rule
def conclude_if_done(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """A parent succeeds when the client has all its outputs and all its children have succeeded."""
    at = request(g, r)
    if m[at + PHASE] == RUNNING_PHASE and m[at + DELIVERED] == outputs(g) and m[at + CHILDREN] == 0:
        conclude(g, m, out, r, OK)


@rule
def delivered(g: Vector, m: Vector, out: Vector, r: int, epoch: int) -> None:
    """A last stage reports that the client has taken the final chunk of one terminal edge."""
    at = request(g, r)
    if not ledger.open_to(g, m, r, epoch):
        return
    m[at + DELIVERED] += 1
    if m[at + PARENT] == 0:
        conclude_if_done(g, m, out, r)
        return
    if m[at + DELIVERED] == outputs(g):
        end(g, m, out, r, OK)


@rule
def cancel(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """The client no longer wants it. Before admission or after the end there is nothing to do but to answer."""
    if m[request(g, r) + PHASE] != NEW:
        end(g, m, out, r, CANCELLED)


@rule
def expire(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """The deadline timer of the request fires."""
    if m[request(g, r) + ARMED] == 1:
        end(g, m, out, r, TIMEOUT)


@rule
def fail(g: Vector, m: Vector, out: Vector, r: int, epoch: int) -> None:
    """A stage reports that its task cannot be done (bad input, out of memory): trying again would fail again."""
    if ledger.open_to(g, m, r, epoch):
        end(g, m, out, r, ERROR)


@rule
def touched(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether stage `v` may hold anything of the running epoch of request `r`: something was reserved around it."""
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        if m[account(g, r, g[g[row + IN_AT] + i]) + RESERVED] > 0:
            return True
    found = False
    for i in range(g[row + OUT_COUNT]):
        found = found or m[account(g, r, g[g[row + OUT_AT] + i]) + RESERVED] > 0
    return found


@rule
def may_repeat(g: Vector, m: Vector, r: int) -> bool:
    """Whether another epoch may continue the output of this one.

    Nothing exposed yet: any second attempt is as good as the first. Something exposed: only chunks that come out the
    same may follow what the client has, so the work must be replayable and the model revisions unchanged.
    """
    at = request(g, r)
    if m[at + EXPOSED] == 0:
        return True
    return g[REPLAYABLE] == 1 and m[at + REVISION] == revision(g, m)


@rule
def lost(g: Vector, m: Vector, out: Vector, v: int, changed: int) -> None:
    """The worker of stage `v` is gone and its successor is empty; `changed` = 1 if that one runs another model.

    Each change counts as a new revision, the return to an earlier model too, so equal sums mean that nothing changed.

    Requests that had nothing there go on, unless the model changed under them. The others get another epoch if that can
    continue their output, and a plain error if it cannot. To a drain the dead worker counts as stopped.
    """
    m[revision_of(g, v)] += changed
    for r in range(g[REQUESTS]):
        at = request(g, r)
        if m[at + PHASE] == DRAINING:
            stopped(g, m, out, r, v, m[at + EPOCH])
        elif m[at + PHASE] == RUNNING_PHASE and (changed == 1 or touched(g, m, r, v)):
            if m[at + EPOCH] + 1 < g[ATTEMPTS] and may_repeat(g, m, r):
                m[at + THEN] = AGAIN
                drain(g, m, out, r)
            else:
                end(g, m, out, r, ERROR)
            stopped(g, m, out, r, v, m[at + EPOCH])


@rule
def drain(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """Tell every stage to stop this epoch; `stopped` collects the answers."""
    at = request(g, r)
    m[at + PHASE] = DRAINING
    for v in range(g[STAGES]):
        m[stage_control(g, r, v) + STOP] = WANTED
        emit(out, SEND_STOP, r, v, m[at + EPOCH])


@rule
def stop_again(g: Vector, m: Vector, out: Vector, r: int, v: int) -> None:
    """Timer: a stage that has not answered is told again."""
    at = request(g, r)
    if m[at + PHASE] == DRAINING and m[stage_control(g, r, v) + STOP] == WANTED:
        emit(out, SEND_STOP, r, v, m[at + EPOCH])


@rule
def stopped(g: Vector, m: Vector, out: Vector, r: int, v: int, epoch: int) -> None:
    """Stage `v` holds nothing of `epoch` any more. The last one to say so ends the drain."""
    at = request(g, r)
    if m[at + PHASE] != DRAINING or m[at + EPOCH] != epoch:
        return
    m[stage_control(g, r, v) + STOP] = CONFIRMED
    for u in range(g[STAGES]):
        if m[stage_control(g, r, u) + STOP] != CONFIRMED:
            return
    ledger.reclaim(g, m, r)
    emit(out, FREED, r, 0, epoch)
    if m[at + THEN] == CLOSE:
        m[at + PHASE] = CLOSED_PHASE
    else:
        m[at + EPOCH] += 1
        m[at + PHASE] = WAITING_PHASE
        m[WAITING] += 1


@rule
def tell(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """Timer: a client that has not confirmed the end of its request is told again."""
    at = request(g, r)
    if m[at + NOTICE] == UNTOLD:
        emit(out, SEND_NOTICE, r, g[STAGES], m[at + EPOCH], m[at + OUTCOME])


@rule
def told(g: Vector, m: Vector, r: int) -> None:
    """The client has the news."""
    if m[request(g, r) + NOTICE] == UNTOLD:
        m[request(g, r) + NOTICE] = TOLD
