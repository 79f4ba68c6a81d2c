"""The rules that choose: equal in both executions, indifferent to order and units, optimal where theory says so."""

from __future__ import annotations

import itertools
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import Job, built, chosen, facts, floats, ints, priority_twin, serve, several, told
from workbench.control import priority as p
from workbench.control import signals as s
from workbench.control.priorities import Priority, Term, load, preset
from workbench.control.ranges import MAX_TIME_NS
from workbench.control.terms import FAR

RULES = list(load().values())
IDS = [rule.name for rule in RULES]
SCALES = st.sampled_from([1, 1_000, 10**9, MAX_TIME_NS])
# Rules whose score has a unit: a change of unit may change what they do.
RAW = {"joint-as-written"}


def of(signals: list[int], index: int) -> list[int]:
    return signals[index * s.SIGNALS : (index + 1) * s.SIGNALS]


# --- Both executions ---


@given(several(), st.integers(0, MAX_TIME_NS), SCALES)
def test_both_executions_choose_and_score_the_same(tasks: list[list[int]], now: int, scale: int) -> None:
    for rule in RULES:
        signals = built(tasks, rule.information, now)
        chosen(rule, signals, scale)
        spec, weights, vector = ints(rule.spec), floats(rule.weights), ints(signals)
        for a in range(0, len(signals), s.SIGNALS):
            plain = p.score(rule.spec, rule.weights, signals, a, scale)
            assert plain == priority_twin.score(spec, weights, vector, a, scale), rule.name
            assert abs(plain) < FAR
            plain_better = p.better(rule.spec, rule.weights, signals, a, 0, scale)
            assert plain_better == priority_twin.better(spec, weights, vector, a, 0, scale), rule.name


@given(several(), st.integers(0, 10**7), st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_numbers_that_are_none_still_leave_an_order(tasks: list[list[int]], now: int, odd: float) -> None:
    rule = preset("joint-repaired")
    signals = built(tasks, rule.information, now)
    for at in range(len(rule.weights)):
        weights = [odd if i == at else value for i, value in enumerate(rule.weights)]
        index = p.choose(rule.spec, weights, signals, 0, len(tasks), 1_000)
        assert 0 <= index < len(tasks)
        compiled = priority_twin.choose(ints(rule.spec), floats(weights), ints(signals), 0, len(tasks), 1_000)
        assert compiled == index


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_nothing_to_choose_from_is_said_so(rule: Priority) -> None:
    assert chosen(rule, []) == -1


# --- Order ---


@given(several(), st.integers(0, 10**7), st.randoms(use_true_random=False))
def test_the_order_of_candidates_does_not_matter(tasks: list[list[int]], now: int, rng: Random) -> None:
    mixed = list(tasks)
    rng.shuffle(mixed)
    for rule in RULES:
        signals, again = built(tasks, rule.information, now), built(mixed, rule.information, now)
        one, other = chosen(rule, signals, both=False), chosen(rule, again, both=False)
        assert of(signals, one) == of(again, other), rule.name


@given(st.sampled_from(RULES), several(), st.integers(0, 10**7))
def test_better_is_a_strict_total_order_and_choose_takes_its_first(
    rule: Priority, tasks: list[list[int]], now: int
) -> None:
    signals = built(tasks, rule.information, now)

    def better(a: int, b: int) -> bool:
        return p.better(rule.spec, rule.weights, signals, a * s.SIGNALS, b * s.SIGNALS, 1_000)

    n = len(tasks)
    for a, b in itertools.product(range(n), repeat=2):
        assert better(a, b) + better(b, a) == (a != b)
        for c in range(n):
            assert not (better(a, b) and better(b, c)) or better(a, c)
    first = next(a for a in range(n) if all(better(a, b) for b in range(n) if b != a))
    index = chosen(rule, signals)
    if rule.sibling_order == "none":
        assert index == first
    else:
        assert of(signals, index)[s.REQUEST] == of(signals, first)[s.REQUEST]


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_ties_go_by_arrival_then_request_then_task(rule: Priority) -> None:
    def task(request: int, order: int, number: int) -> list[int]:
        return s.record(request=request, order=order, task=number, arrival_ns=5)

    tasks = [task(4, 1, 0), task(3, 1, 9), task(3, 1, 2), task(9, 0, 8), task(9, 0, 7)]
    for last in (7, 8, 2, 9, 0):
        signals = built(tasks, rule.information, 50)
        index = chosen(rule, signals)
        assert tasks[index][s.TASK] == last
        del tasks[index]


@given(several(), st.integers(0, 10**7))
def test_among_siblings_the_longest_branch_runs_and_the_request_stays(tasks: list[list[int]], now: int) -> None:
    with_order, without = preset("joint-repaired"), preset("joint-without-siblings")
    signals = built(tasks, with_order.information, now)
    one, other = of(signals, chosen(with_order, signals)), of(signals, chosen(without, signals))
    assert one[s.REQUEST] == other[s.REQUEST]
    same = [each for i in range(len(tasks)) if (each := of(signals, i))[s.REQUEST] == one[s.REQUEST]]
    assert one[s.SIBLING] == max(each[s.SIBLING] for each in same)


def test_comparing_siblings_and_strangers_in_one_step_would_make_a_circle() -> None:
    """Pitfall: a before its sibling c by path, c before the stranger b by score, b before a by score."""
    rule = preset("joint-repaired")
    tasks = [
        s.record(request=0, order=0, task=0, arrival_ns=0, path_ns=9, class_path_ns=9, sibling_ns=9),
        s.record(request=1, order=1, task=1, arrival_ns=0, path_ns=8, class_path_ns=9, sibling_ns=8),
        s.record(request=0, order=0, task=2, arrival_ns=0, path_ns=7, class_path_ns=9, sibling_ns=7),
    ]
    signals = built(tasks, rule.information, 0)
    scores = [p.score(rule.spec, rule.weights, signals, i * s.SIGNALS, 1_000) for i in range(3)]
    assert scores[2] > scores[1] > scores[0]
    assert of(signals, 0)[s.SIBLING] > of(signals, 2)[s.SIBLING]
    assert chosen(rule, signals) == 0, "the request of the best score, and in it the longest branch"


def test_siblings_do_not_cross_classes() -> None:
    rule = Priority("x", "x", "class-statistics", (), 0.0, "first-chunk-first", "longest-first", "round-robin", "here")
    tasks = [
        s.record(request=0, order=0, task=0, arrival_ns=0, first=1, sibling_ns=5),
        s.record(request=0, order=0, task=1, arrival_ns=0, first=0, sibling_ns=9),
    ]
    assert chosen(rule, built(tasks, rule.information, 1)) == 0


@pytest.mark.parametrize("name", ["first-chunk", "first-chunk-srpt"])
@given(several(), st.integers(0, 10**7))
def test_first_chunks_come_first(name: str, tasks: list[list[int]], now: int) -> None:
    rule = preset(name)
    signals = built(tasks, rule.information, now)
    firsts = {of(signals, i)[s.FIRST] == 1 for i in range(len(tasks))}
    assert (of(signals, chosen(rule, signals))[s.FIRST] == 1) == (True in firsts)


@given(several(), st.integers(0, 10**7))
def test_late_requests_come_after_those_that_can_be_on_time(tasks: list[list[int]], now: int) -> None:
    rule = preset("least-slack-on-time")
    signals = built(tasks, rule.information, now)
    on_time = [of(signals, i)[s.SLACK] >= 0 for i in range(len(tasks))]
    assert on_time[chosen(rule, signals)] == any(on_time)


# --- Units and monotony ---

BYTES = ("credit_used", "credit_limit")
SMALL = {name: st.integers(0, 1_000) for name, *_ in s.FACT_RANGES if name.endswith("_ns") or name in BYTES}


@st.composite
def scalable(draw: st.DrawFn) -> list[dict[str, int]]:
    """Tasks of one request each, whose times and bytes are small enough to be multiplied."""
    tasks = []
    for number in range(draw(st.integers(2, 5))):
        given = {name: draw(strategy) for name, strategy in SMALL.items()}
        given |= {"request": number, "order": number, "task": number, "first": draw(st.integers(0, 1))}
        given |= {"own_chunks": draw(st.integers(0, 9)), "down_chunks": draw(st.integers(0, 9))}
        given |= {"fan_out": draw(st.integers(0, 9)), "weight": draw(st.integers(1, 3_000))}
        tasks.append(given)
    return tasks


def choice(rule: Priority, tasks: list[dict[str, int]], now: int, scale: int, time: int = 1, size: int = 1) -> int:
    factors = {name: size if name in BYTES else time for name in SMALL}
    scaled = [{name: value * factors.get(name, 1) for name, value in task.items()} for task in tasks]
    signals = built([s.record(**task) for task in scaled], rule.information, now * time)
    return chosen(rule, signals, scale * time, both=False)


@given(scalable(), st.integers(0, 2_000), st.sampled_from([2, 1 << 10, 1 << 30]), st.sampled_from([2, 1 << 20]))
def test_another_unit_of_time_or_size_changes_no_choice(
    tasks: list[dict[str, int]], now: int, time: int, size: int
) -> None:
    # Powers of two are exact in floats; zero denominators count as 1 in every unit and are left out.
    tasks = [{name: value or (1 if name in SMALL else 0) for name, value in task.items()} for task in tasks]
    tasks = [task | {"deadline_ns": task["arrival_ns"] + task["deadline_ns"]} for task in tasks]
    for rule in RULES:
        if rule.name not in RAW:
            assert choice(rule, tasks, now, 500, time, size) == choice(rule, tasks, now, 500), rule.name


def test_the_rule_as_written_changes_with_the_unit_of_time() -> None:
    """Pitfall: seconds, chunks and 1/s in one sum."""
    rule = preset("joint-as-written")
    tasks = [
        {"request": 0, "order": 0, "task": 0, "arrival_ns": 0, "path_ns": 3, "down_chunks": 0},
        {"request": 1, "order": 1, "task": 1, "arrival_ns": 0, "path_ns": 1, "down_chunks": 1},
    ]
    assert choice(rule, tasks, 1, 1, time=1) == 1
    assert choice(rule, tasks, 1, 1, time=10**9) == 0


MONOTONE = ["least-slack", "critical-path-slack", "joint-repaired", "joint-without-path", "edf"]


@pytest.mark.parametrize("name", MONOTONE)
@given(facts(), st.integers(0, MAX_TIME_NS), st.integers(0, MAX_TIME_NS), st.integers(0, MAX_TIME_NS))
def test_less_slack_never_lowers_a_score(name: str, task: list[int], now: int, one: int, other: int) -> None:
    rule = preset(name)
    scores = []
    for slack in sorted((one, other)):
        signals = built([task], rule.information, now)
        signals[s.SLACK] = slack - MAX_TIME_NS // 2
        signals[s.TIME_LEFT] = slack
        scores.append(p.score(rule.spec, rule.weights, signals, 0, 1_000))
    assert scores[0] >= scores[1]


@given(facts(), st.integers(0, MAX_TIME_NS), st.integers(0, MAX_TIME_NS))
def test_waiting_never_lowers_a_score(task: list[int], one: int, other: int) -> None:
    for rule in RULES:
        scores = []
        for wait in sorted((one, other)):
            signals = built([task], rule.information, 0)
            signals[s.AGE], signals[s.WAIT] = wait, wait
            scores.append(p.score(rule.spec, rule.weights, signals, 0, 1_000))
        assert scores[0] <= scores[1], rule.name


def test_the_rule_as_written_lets_the_late_fall_behind() -> None:
    """Pitfall: 1/slack is singular at 0 and negative beyond; the repaired urgency goes on growing."""
    written, repaired = preset("joint-as-written"), preset("joint-repaired")
    tasks = [
        s.record(request=0, order=0, arrival_ns=0, deadline_ns=10**9, path_ns=0, class_path_ns=1),
        s.record(request=1, order=1, arrival_ns=0, deadline_ns=10**10, path_ns=0, class_path_ns=1),
    ]
    just_late = 10**9 + 1
    assert chosen(written, built(tasks, written.information, just_late), 10**9) == 1
    assert chosen(repaired, built(tasks, repaired.information, just_late), 10**9) == 0


def test_the_rule_as_written_takes_the_longest_first_and_fills_the_full() -> None:
    """Pitfalls: the signs of L and of Q_down."""
    written, repaired = preset("joint-as-written"), preset("joint-repaired")
    short_and_long = [
        s.record(request=0, order=0, arrival_ns=0, path_ns=10**9, class_path_ns=10**9),
        s.record(request=1, order=1, arrival_ns=0, path_ns=2 * 10**9, class_path_ns=10**9),
    ]
    assert chosen(written, built(short_and_long, written.information, 0), 10**9) == 1
    assert chosen(repaired, built(short_and_long, repaired.information, 0), 10**9) == 0
    free_and_full = [
        s.record(request=0, order=0, arrival_ns=0, down_chunks=0, credit_used=0, credit_limit=8),
        s.record(request=1, order=1, arrival_ns=0, down_chunks=8, credit_used=8, credit_limit=8),
    ]
    for name, expected in (("joint-as-written", 1), ("joint-repaired", 0), ("max-weight", 0)):
        rule = preset(name)
        both = [task[:] for task in free_and_full]
        for task in both:
            task[s.OWN_CHUNKS] = 4
        assert chosen(rule, built(both, rule.information, 0), 10**9) == expected


def test_the_rule_as_written_forgets_a_request_it_has_begun() -> None:
    """Pitfall: -B prefers newcomers while the remaining path, mended in sign, prefers the nearly done."""
    mended = Priority(
        "mended", "", "class-statistics", (Term("raw_path", -1.0), Term("raw_attained", -1.0)), 0.0,
        "none", "none", "round-robin", "here",
    )  # fmt: skip
    nearly_done = s.record(request=0, order=0, arrival_ns=0, path_ns=10**9, attained_ns=9 * 10**9)
    newcomer = s.record(request=1, order=1, arrival_ns=0, path_ns=9 * 10**9, attained_ns=0)
    signals = built([nearly_done, newcomer], "class-statistics", 0)
    assert chosen(preset("srpt-path"), signals) == 0
    assert chosen(mended, signals) == 1


def test_a_chunk_more_or_less_downstream_can_turn_a_choice_and_turn_it_back() -> None:
    """Pitfall that the repaired form keeps: q moves with every chunk and nothing damps it."""
    rule = preset("joint-repaired")
    turns = []
    for used in (3, 5, 3, 5):
        tasks = [
            s.record(request=0, order=0, arrival_ns=0, credit_used=used, credit_limit=8),
            s.record(request=1, order=1, arrival_ns=0, credit_used=4, credit_limit=8),
        ]
        turns.append(chosen(rule, built(tasks, rule.information, 0)))
    assert turns == [0, 1, 0, 1]


# --- Optimal where theory says so ---

JOBS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=4)


def best(jobs: list[tuple[int, int]], cost: str) -> float:
    """Least total flow, or least maximum flow, over every schedule of unit chunks, idling included."""

    @cache
    def least(now: int, left: tuple[int, ...]) -> float:
        if not any(left):
            return 0
        ways = [least(now + 1, left)] if any(r > now and n for (r, _), n in zip(jobs, left, strict=True)) else []
        for j, (release, _) in enumerate(jobs):
            if left[j] and release <= now:
                rest = tuple(n - (i == j) for i, n in enumerate(left))
                flow = now + 1 - release if left[j] == 1 else 0
                later = least(now + 1, rest)
                ways.append(flow + later if cost == "total" else max(flow, later))
        return min(ways)

    return least(0, tuple(n for _, n in jobs))


@given(JOBS)
def test_srpt_has_the_least_mean_flow_on_one_preemptible_stage(jobs: list[tuple[int, int]]) -> None:
    for name in ("srpt-work", "srpt-path"):
        finish, _ = serve(told(preset(name), "true-sizes"), [Job(*job) for job in jobs])
        assert sum(end - release for end, (release, _) in zip(finish, jobs, strict=True)) == best(jobs, "total")


@given(JOBS)
def test_oldest_first_has_the_least_maximum_flow_on_one_machine(jobs: list[tuple[int, int]]) -> None:
    finish, _ = serve(preset("oldest-first"), [Job(*job) for job in jobs])
    assert max(end - release for end, (release, _) in zip(finish, jobs, strict=True)) == best(jobs, "most")


@given(st.lists(st.integers(0, 12), min_size=1, max_size=6))
def test_class_statistics_of_one_class_make_srpt_the_oldest_first(arrivals: list[int]) -> None:
    """Equal expected sizes: what is nearly done is what came first."""
    jobs = [Job(at, 3) for at in arrivals]
    assert serve(preset("srpt-path"), jobs)[1] == serve(preset("oldest-first"), jobs)[1]


def test_neither_is_the_other() -> None:
    """The two tests above can fail: each rule loses at the other's objective."""
    jobs = [(0, 3), (1, 1), (2, 1)]
    oldest, _ = serve(preset("oldest-first"), [Job(*job) for job in jobs])
    srpt, _ = serve(told(preset("srpt-work"), "true-sizes"), [Job(*job) for job in jobs])
    assert sum(end - release for end, (release, _) in zip(oldest, jobs, strict=True)) > best(jobs, "total")
    assert max(end - release for end, (release, _) in zip(srpt, jobs, strict=True)) > best(jobs, "most")


@given(JOBS, st.lists(st.integers(1, 9), min_size=4, max_size=4))
def test_edf_meets_every_deadline_that_can_be_met(jobs: list[tuple[int, int]], allowed: list[int]) -> None:
    deadlines = [release + extra for (release, _), extra in zip(jobs, allowed, strict=False)]

    @cache
    def feasible(now: int, left: tuple[int, ...]) -> bool:
        if any(n and now + n > deadline for n, deadline in zip(left, deadlines, strict=True)):
            return False
        if not any(left):
            return True
        runs = [j for j, (release, _) in enumerate(jobs) if left[j] and release <= now]
        return any(feasible(now + 1, tuple(n - (i == j) for i, n in enumerate(left))) for j in runs or [-1])

    finish, _ = serve(preset("edf"), [Job(r, n, deadline=d) for (r, n), d in zip(jobs, deadlines, strict=True)])
    met = all(end <= deadline for end, deadline in zip(finish, deadlines, strict=True))
    assert met == feasible(0, tuple(n for _, n in jobs))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=5))
def test_weighted_srpt_has_the_least_weighted_completion_without_releases(jobs: list[tuple[int, int]]) -> None:
    """Smith's rule: whole jobs, all there at time 0."""

    def cost(order: list[int]) -> int:
        ends = itertools.accumulate(jobs[j][0] for j in order)
        return sum(jobs[j][1] * end for j, end in zip(order, ends, strict=True))

    rule = told(preset("weighted-srpt"), "true-sizes")
    _, decisions = serve(rule, [Job(0, 1, chunk=n, facts={"weight": w * 1_000}) for n, w in jobs])
    assert cost([j for _, j in decisions]) == min(map(cost, map(list, itertools.permutations(range(len(jobs))))))


# --- Replicas ---


@given(
    st.integers(0, 2),
    st.integers(0, MAX_TIME_NS),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, MAX_TIME_NS), st.integers(0, 1)), max_size=5),
)
def test_a_replica_that_is_up_is_found(way: int, order: int, replicas: list[tuple[int, int, int]]) -> None:
    flat, n = [value for each in replicas for value in each], len(replicas)
    index = p.replica(way, order, flat, 0, n)
    assert index == priority_twin.replica(way, order, ints(flat), 0, n)
    up = [i for i in range(n) if replicas[i][p.REPLICA_UP]]
    if way == p.ROUND_ROBIN:
        turn = [(order + i) % n for i in range(n)]
        assert index == next((i for i in turn if i in up), -1)
    else:
        field = p.REPLICA_TASKS if way == p.SHORTEST_QUEUE else p.REPLICA_BYTES
        assert index == min(up, key=lambda i: (replicas[i][field], i), default=-1)


def test_round_robin_is_even_and_sticky() -> None:
    up = [value for _ in range(4) for value in (0, 0, 1)]
    turns = [p.replica(p.ROUND_ROBIN, order, up, 0, 4) for order in range(12)]
    assert turns == [0, 1, 2, 3] * 3
    assert turns == [p.replica(p.ROUND_ROBIN, order, up, 0, 4) for order in range(12)]
