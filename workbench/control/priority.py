"""Who runs next, and where: one rule reads a priority as data, whatever its name.

A priority is two flat vectors. `spec` (integers) says which class order, sibling order and terms it uses, `weights`
(floats) holds the aging rate and per term its weight and clip bounds. `priorities` makes them from a TOML row.

The score of a task is ``sum(weight * clip(term, low, high)) + aging * age / scale``, added up in the order of the row.
Candidates compare by class (smaller first), score (greater first), order of arrival, request and task (smaller first),
so that equal scores never leave a choice open. Where the row orders siblings, the request is chosen first and then,
among its tasks of the same class, the one that starts the longest remaining chain. Comparing siblings and strangers in
one step would make circles: a before its sibling b, b before c, c before a.
"""

from __future__ import annotations

from workbench.control.ranges import clip
from workbench.control.signals import AGE, FIRST, ORDER, REQUEST, SIBLING, SIGNALS, SLACK, TASK
from workbench.control.terms import FAR, Floats, ratio, term
from workbench.twin import Vector, rule

# Fields of `spec`; the codes of its terms follow. INFORMATION is read by whoever builds the signals.
CLASSES, SIBLINGS, REPLICAS, INFORMATION_CLASS, COUNT, SPEC_HEAD = range(6)
# Fields of `weights`: the aging rate, then per term weight and clip bounds.
AGING, WEIGHTS_HEAD = range(2)
WEIGHT_OF, LOW, HIGH, WEIGHTS_ROW = range(4)

# Class orders; the position is the code.
CLASS_ORDERS = ("none", "first-chunk-first", "on-time-first")
NO_CLASSES, FIRST_CHUNK_FIRST, ON_TIME_FIRST = range(len(CLASS_ORDERS))

SIBLING_ORDERS = ("none", "longest-first")
NO_SIBLINGS, LONGEST_FIRST = range(len(SIBLING_ORDERS))

# How a replica is chosen for a request that has none at the stage yet.
REPLICA_CHOICES = ("round-robin", "shortest-queue", "fewest-bytes")
ROUND_ROBIN, SHORTEST_QUEUE, FEWEST_BYTES = range(len(REPLICA_CHOICES))
# Record of a replica: tasks that wait or run there, bytes that it holds, and 1 if it takes work, else 0.
REPLICA_TASKS, REPLICA_BYTES, REPLICA_UP, REPLICA = range(4)


@rule
def contribution(spec: Vector, weights: Floats, signals: Vector, s: int, scale: int, at: int) -> float:
    """Weight times clipped term for term number `at` of the row; for ``at == spec[COUNT]`` what aging adds."""
    if at >= spec[COUNT]:
        return weights[AGING] * ratio(signals[s + AGE], scale, 0.0)
    w = WEIGHTS_HEAD + at * WEIGHTS_ROW
    value = clip(term(signals, s, spec[SPEC_HEAD + at], scale), weights[w + LOW], weights[w + HIGH])
    return weights[w + WEIGHT_OF] * value


@rule
def score(spec: Vector, weights: Floats, signals: Vector, s: int, scale: int) -> float:
    """Score of the task whose signals start at `s`, greater is sooner; not-a-number becomes ``-FAR``, so it comes last.

    Parameters
    ----------
    spec, weights : int vector, float vector
        The priority.
    signals : int vector
        Records of `workbench.control.signals`.
    scale : int
        Unit of time in ns, at least 1, the same for all candidates of a decision (`scale_ns`).
    """
    total = 0.0
    for at in range(spec[COUNT] + 1):
        total += contribution(spec, weights, signals, s, scale, at)
    return clip(total, -FAR, FAR)


@rule
def class_of(spec: Vector, signals: Vector, s: int) -> int:
    """Class of the task under the row's class order; class 0 runs before class 1 whatever the scores.

    A task whose slack is unknown is on time, one whose place in the output is unknown is in steady state.
    """
    if spec[CLASSES] == FIRST_CHUNK_FIRST:
        return 0 if signals[s + FIRST] > 0 else 1
    if spec[CLASSES] == ON_TIME_FIRST:
        return 1 if signals[s + SLACK] < 0 else 0
    return 0


@rule
def earlier(signals: Vector, a: int, b: int) -> bool:
    """Whether the task at `a` comes before the one at `b` when nothing else tells them apart."""
    if signals[a + ORDER] != signals[b + ORDER]:
        return signals[a + ORDER] < signals[b + ORDER]
    if signals[a + REQUEST] != signals[b + REQUEST]:
        return signals[a + REQUEST] < signals[b + REQUEST]
    return signals[a + TASK] < signals[b + TASK]


@rule
def better(spec: Vector, weights: Floats, signals: Vector, a: int, b: int, scale: int) -> bool:
    """Whether the task at `a` comes before the one at `b`, siblings aside: a strict total order of distinct tasks."""
    class_a = class_of(spec, signals, a)
    class_b = class_of(spec, signals, b)
    if class_a != class_b:
        return class_a < class_b
    score_a = score(spec, weights, signals, a, scale)
    score_b = score(spec, weights, signals, b, scale)
    if score_a != score_b:
        return score_a > score_b
    return earlier(signals, a, b)


@rule
def choose(spec: Vector, weights: Floats, signals: Vector, s: int, count: int, scale: int) -> int:
    """Index of the task that runs next, -1 if there is none.

    Parameters
    ----------
    signals : int vector
        `count` records of `SIGNALS` integers from address `s`, in any order.
    """
    best = -1
    best_class = 0
    best_score = 0.0
    for i in range(count):
        a = s + i * SIGNALS
        its_class = class_of(spec, signals, a)
        if best >= 0 and its_class > best_class:
            continue
        its_score = score(spec, weights, signals, a, scale)
        if (
            best < 0
            or its_class < best_class
            or its_score > best_score
            or (its_score == best_score and earlier(signals, a, s + best * SIGNALS))
        ):
            best = i
            best_class = its_class
            best_score = its_score
    if best < 0 or spec[SIBLINGS] != LONGEST_FIRST:
        return best
    request = signals[s + best * SIGNALS + REQUEST]
    for i in range(count):
        a = s + i * SIGNALS
        if signals[a + REQUEST] == request and class_of(spec, signals, a) == best_class:
            gain = signals[a + SIBLING] - signals[s + best * SIGNALS + SIBLING]
            if gain > 0 or (gain == 0 and better(spec, weights, signals, a, s + best * SIGNALS, scale)):
                best = i
    return best


@rule
def replica(choice: int, order: int, replicas: Vector, r: int, count: int) -> int:
    """Replica for a request that comes to a stage; whoever calls keeps it for the life of the request (sticky).

    Parameters
    ----------
    choice : int
        Code of the way to choose. Round robin takes ``order % count`` or the next one that is up, so it needs no memory
        and gives the same answer again; the others take the least (join the shortest queue), ties the smaller number.
    order : int
        Place of the request in order of arrival.
    replicas : int vector
        `count` records of `REPLICA` integers from address `r`.

    Returns
    -------
    int
        Number of the replica, -1 if none is up.
    """
    best = -1
    least = 0
    for i in range(count):
        at = i
        load = 0
        if choice == ROUND_ROBIN:
            at = (order + i) % count
            load = i
        elif choice == SHORTEST_QUEUE:
            load = replicas[r + at * REPLICA + REPLICA_TASKS]
        else:
            load = replicas[r + at * REPLICA + REPLICA_BYTES]
        if replicas[r + at * REPLICA + REPLICA_UP] != 0 and (best < 0 or load < least):
            best = at
            least = load
    return best
