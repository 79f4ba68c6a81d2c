"""Priorities as data: rows that load or say what is wrong, what each may know, how long one can be overtaken."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import Job, built, chosen, serve
from workbench.control import remaining
from workbench.control import signals as s
from workbench.control.priorities import Priority, Term, formula, load, markdown, overtaking_bound_ns, preset
from workbench.control.priority import choose
from workbench.control.signals import CLASS_STATISTICS, INFORMATION, UNKNOWN, record
from workbench.errors import UsageError

RULES = list(load().values())

ROW = """
[mine]
title = "Mine"
information = "class-statistics"
weights = { path = -1.0, credit = -0.5 }
clip = { path = [0, 3], credit = [0.0, 1.0] }
aging = 0.25
source = "here"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "own.toml"
    path.write_text(text)
    return path


# --- Rows ---


def test_the_rules_that_must_exist_do() -> None:
    wanted = """stage-local static-replicas oldest-first queue-depth edf least-slack srpt-work srpt-path las first-chunk
    first-chunk-srpt joint-as-written joint-repaired max-weight critical-path-slack joint-without-path
    joint-without-urgency joint-without-credit joint-without-aging joint-without-siblings"""
    assert set(wanted.split()) <= set(load())


def test_a_row_of_your_own_runs_beside_the_others(tmp_path: Path) -> None:
    rules = load(written(tmp_path, ROW))
    assert list(rules)[:-1] == list(load())
    assert formula(rules["mine"]) == "- clip(path, 0, 3) - 0.5 clip(credit, 0, 1) + 0.25 age"
    tasks = [record(request=i, order=i, arrival_ns=0, path_ns=9 - i) for i in range(3)]
    assert chosen(rules["mine"], built(tasks, "class-statistics", 0)) == 2
    bare = load(written(tmp_path, '[plain]\ntitle = "x"\ninformation = "blind"\nsource = "y"\n'))["plain"]
    assert (bare.terms, bare.aging, bare.class_order, bare.replica_choice) == ((), 0.0, "none", "round-robin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[mine]", "[Mine]"), "a name in kebab-case"),
        (("[mine]", "[srpt-path]"), "expected a name of your own, found 'srpt-path'"),
        (('title = "Mine"\n', ""), "expected key 'title'"),
        (("aging = 0.25", "ageing = 0.25"), "found 'ageing'"),
        (("aging = 0.25", "aging = -0.25"), "aging: expected 0, or a number from 0.000001 to 1000000, found -0.25"),
        (("aging = 0.25", "aging = 5e-324"), "aging: expected 0, or a number from 0.000001"),
        (("aging = 0.25", "aging = nan"), "found nan"),
        (("aging = 0.25", "aging = true"), "found True"),
        (("path = -1.0", "pth = -1.0"), "weights: expected terms among ['wait', 'path'"),
        (("path = -1.0", "path = inf"), "weights, path: expected numbers up to 1000000 in size, found inf"),
        (("path = -1.0", 'path = "-1"'), "weights, path"),
        (("path = -1.0", "path = 0"), "expected a weight other than 0, found 0. Leave the term out."),
        (("{ path = -1.0, credit = -0.5 }", "[1.0]"), "weights: expected a table of terms"),
        (("path = [0, 3]", "path = [3, 0]"), "clip, path: expected [low, high] with low below high, found [3, 0]"),
        (("path = [0, 3]", "path = [3]"), "clip, path"),
        (("path = [0, 3]", "path = 3"), "clip, path"),
        (("path = [0, 3]", "path = [0, nan]"), "clip, path"),
        (("path = [0, 3]", "work = [0, 3]"), "a clip of a term that has a weight, found 'work'"),
        (('"class-statistics"', '"blind"'), "expected information 'class-statistics' or more, found 'blind'"),
        (('"class-statistics"', '"psychic"'), "information: expected one of ['blind'"),
        (("aging = 0.25", 'class_order = "late"'), "class_order: expected one of"),
    ],
)
def test_a_wrong_row_says_what_is_wrong(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert ROW.count(change[0]) == 1
    path = written(tmp_path, ROW.replace(*change))
    with pytest.raises(UsageError) as caught:
        load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_orders_that_look_at_paths_need_class_statistics(tmp_path: Path) -> None:
    for order in ('class_order = "on-time-first"', 'sibling_order = "longest-first"'):
        text = f'[x]\ntitle = "x"\ninformation = "blind"\nsource = "y"\n{order}\n'
        with pytest.raises(UsageError, match="'class-statistics' or more"):
            load(written(tmp_path, text))


def test_an_unknown_preset_lists_those_there_are() -> None:
    with pytest.raises(UsageError, match="stage-local"):
        preset("sjf")


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.name)
def test_every_shipped_row_is_described_and_declares_what_it_needs(row: Priority) -> None:
    assert INFORMATION.index(row.information) >= row.needed
    assert row.title
    assert row.source
    assert f"| `{row.name}` |" in markdown()


def test_ablations_differ_from_the_repaired_rule_in_one_thing() -> None:
    whole = preset("joint-repaired")
    for name, term in (("path", "class_path"), ("urgency", "urgency"), ("credit", "credit")):
        ablated = preset(f"joint-without-{name}")
        rest = tuple(each for each in whole.terms if each.name != term)
        assert (ablated.terms, ablated.aging, ablated.spec[:4]) == (rest, whole.aging, whole.spec[:4])
    assert dataclasses.replace(whole, aging=0.0).weights == preset("joint-without-aging").weights
    assert whole.weights == preset("joint-without-siblings").weights


# --- Information ---

SERVICES = st.lists(st.lists(st.integers(1, 1_000), min_size=6, max_size=6), min_size=2, max_size=4)


def world(past: list[int], future: list[list[int]], factors: list[int], information: str) -> list[int]:
    """Signals of one task per request on a chain of two stages, three chunks each, none of which has run.

    `past` are services of tasks that ended, `future` the true ones of each request, chunk by chunk, stage by stage.
    """
    shape = [2, 1, 0, 1, 0]
    estimates = [0, 0, 500] * 2
    for i, service in enumerate(past):
        remaining.observe(estimates, (i % 2) * remaining.ESTIMATE, service)
    means = [remaining.mean(estimates, v * remaining.ESTIMATE) for v in range(2)]
    estimated = [value for v in range(2) for value in (0, 3, means[v], UNKNOWN)]
    mean_path = remaining.tails(shape, estimated, 0, [], [0] * 8, 0)
    tasks = []
    for r, (services, factor) in enumerate(zip(future, factors, strict=False)):
        true, out = [0, 3, UNKNOWN, 0, 0, 3, UNKNOWN, 3], [0] * 8
        path = remaining.tails(shape, true, 0, services, out, 0)
        tasks.append(
            record(
                request=r,
                order=r,
                task=r,
                arrival_ns=10 * r,
                ready_ns=10 * r,
                deadline_ns=5_000 + 10 * (r % 2),
                class_path_ns=mean_path,
                factor=factor,
                path_ns=mean_path,
                work_ns=remaining.work(shape, estimated, 0, []),
                sibling_ns=mean_path,
                service_ns=means[0],
                fan_out=5,
                true_path_ns=path,
                true_work_ns=remaining.work(shape, true, 0, services),
                true_sibling_ns=out[out[0]],
                true_service_ns=services[0],
                true_fan_out=5,
                true_down_work_ns=sum(services[3:]),
            )
        )
    return built(tasks, information, 1_000)


@given(st.lists(st.integers(1, 1_000), max_size=6), SERVICES, st.permutations(range(6)), st.data())
def test_permuting_what_has_not_run_changes_no_choice_below_true_sizes(
    past: list[int], future: list[list[int]], order: list[int], data: st.DataObject
) -> None:
    permuted = [[services[i] for i in order] for services in data.draw(st.permutations(future))]
    factors = [1_000, 700, 1_300, 1_000]
    for rule in RULES:
        before, after = (world(past, each, factors, rule.information) for each in (future, permuted))
        if INFORMATION.index(rule.information) <= CLASS_STATISTICS:
            assert before == after, rule.name
            assert chosen(rule, before, both=False) == chosen(rule, after, both=False)


@pytest.mark.parametrize(
    ("name", "sees"), [("srpt-path", False), ("srpt-path-predicted", True), ("srpt-path-true", True)]
)
def test_permuting_what_has_not_run_changes_a_choice_that_may_see_it(name: str, sees: bool) -> None:
    rule = preset(name)
    future = [[9, 9, 9, 9, 9, 9], [1, 1, 1, 1, 1, 1]]
    choices = [chosen(rule, world([], each, [1_000] * 2, rule.information)) for each in (future, future[::-1])]
    assert choices == ([1, 0] if sees else [0, 0])


def test_a_prediction_is_as_good_as_its_factor() -> None:
    rule = preset("srpt-path-predicted")
    future = [[10] * 6, [11] * 6]
    assert chosen(rule, world([], future, [1_000, 1_000], rule.information)) == 0
    assert chosen(rule, world([], future, [1_500, 1_000], rule.information)) == 1


def test_estimates_move_with_the_past() -> None:
    """What ended does count: the gate lets the past through."""
    rule = preset("srpt-path")
    assert world([], [[5] * 6] * 2, [1_000] * 2, rule.information)[s.PATH] == 500 * 4
    assert world([8, 20], [[5] * 6] * 2, [1_000] * 2, rule.information)[s.PATH] == 8 + 3 * 20


# --- Starvation ---

AGED = [rule for rule in RULES if overtaking_bound_ns(rule, 1) is not None]


def test_which_rules_have_a_bound() -> None:
    bounded = {rule.name for rule in AGED}
    joint = {rule.name for rule in RULES if rule.name.startswith("joint-")}
    assert bounded == {"oldest-first", "critical-path-slack"} | joint - {"joint-as-written", "joint-without-aging"}


def test_the_bound_is_the_spread_of_the_clipped_part_over_the_rate() -> None:
    rule = preset("joint-repaired")  # clipped part from -3 to 2, rate 0.1
    assert overtaking_bound_ns(rule, 1_000) == 50 * 1_000 + 1
    assert overtaking_bound_ns(dataclasses.replace(rule, aging=0.2), 1_000) == 25 * 1_000 + 1
    assert overtaking_bound_ns(preset("oldest-first"), 1_000) == 0
    assert overtaking_bound_ns(dataclasses.replace(rule, class_order="first-chunk-first"), 1_000) is None


def test_the_bound_is_attained() -> None:
    """One nanosecond less than the spread over the rate is too little."""
    rule = preset("joint-repaired")
    bound = overtaking_bound_ns(rule, 1_000)
    assert bound is not None
    worst = {"path_ns": 9_000, "class_path_ns": 1_000, "credit_used": 1, "credit_limit": 1}
    best = {"path_ns": 0, "class_path_ns": 1_000, "credit_used": 0, "credit_limit": 1, "deadline_ns": 1}

    def overtakes(later: int) -> bool:
        old = record(request=0, order=0, arrival_ns=0, **worst, deadline_ns=1 << 60)
        new = record(request=1, order=1, task=1, arrival_ns=later, **best)
        signals = built([old, new], rule.information, later + 10)
        signals[s.SLACK] = signals[s.BUDGET] = 1 << 50  # urgency 0: all the time in the world
        return chosen(rule, signals) == 1

    assert overtakes(bound - 2)
    assert not overtakes(bound)


@given(
    st.sampled_from((1e6, 999_999.7, 12_345.678, -1e6, 1.0)),
    st.sampled_from((1e-4, 1e-3, 1e-2, 0.1)),
    st.sampled_from((1.0, 0.3, -1.0, -0.7)),
    st.sampled_from((1e-2, 0.1, 0.3)),
    st.sampled_from((10**8, 10**9 + 7, 3 * 10**9)),
    st.integers(1, 20),
    st.integers(0, 10**9),
)
def test_the_bound_covers_what_rounding_adds(
    high: float, width: float, weight: float, aging: float, scale: int, beyond: int, age: int
) -> None:
    """Scores near a million tell ages apart by several nanoseconds only; the bound must say so."""
    term = Term("slack", weight, high - width, high)
    rule = dataclasses.replace(preset("joint-repaired"), terms=(term,), aging=aging, sibling_order="none")
    bound = overtaking_bound_ns(rule, scale)
    assert bound is not None
    far = 1 << 60
    signals = [0] * (2 * s.SIGNALS)
    for at, order, slack, its_age in ((0, 0, -far, age + bound + beyond), (s.SIGNALS, 1, far, age)):
        signals[at + s.REQUEST] = signals[at + s.ORDER] = signals[at + s.TASK] = order
        signals[at + s.SLACK] = slack if weight > 0 else -slack
        signals[at + s.AGE] = its_age
    assert choose(rule.spec, rule.weights, signals, 0, 2, scale) == 0


def test_a_bound_that_no_float_holds_is_a_number() -> None:
    term = Term("slack", 1e6, -1e6, 1e6)
    rule = dataclasses.replace(preset("joint-repaired"), terms=(term,), aging=1e-6)
    bound = overtaking_bound_ns(rule, 1 << 61)
    assert bound is not None
    assert bound > (1 << 61) * 2 * 10**18


STREAM = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 3), st.integers(0, 4_000), st.integers(0, 4), st.integers(-1, 50)),
    min_size=2,
    max_size=25,
)


@pytest.mark.parametrize("row", AGED, ids=lambda row: row.name)
@given(STREAM)
def test_nobody_is_overtaken_past_the_bound(row: Priority, stream: list[tuple[int, int, int, int, int]]) -> None:
    """Any stream of requests with any signals, on one server: who arrives later than the bound never goes first."""
    scale, jobs, now = 2, [], 0
    for gap, chunks, path, credit, budget in stream:
        now += gap
        known = {"path_ns": path, "class_path_ns": 1_000, "credit_used": credit, "credit_limit": 4}
        jobs.append(Job(now, chunks, deadline=-1 if budget < 0 else now + budget, facts=known))
    bound = overtaking_bound_ns(row, scale)
    assert bound is not None
    finish, decisions = serve(row, jobs, scale=scale)
    for at, j in decisions:
        for i, job in enumerate(jobs):
            if job.arrival <= at < finish[i] and i != j:
                assert jobs[j].arrival - job.arrival <= bound
    for i, job in enumerate(jobs):
        # Hence a wait that depends on no arrival after the bound.
        work = sum(each.chunks for each in jobs if each.arrival <= job.arrival + bound)
        assert finish[i] - job.arrival <= work


def hostile(count: int) -> list[Job]:
    """A short request, then one newcomer per service time, each longer than the one before."""
    paths = [10, *(10**9 * (i + 1) for i in range(count))]
    arrivals = [0, *(10 * i for i in range(count))]
    return [
        Job(at, 1, chunk=10, facts={"path_ns": path, "class_path_ns": 1_000})
        for at, path in zip(arrivals, paths, strict=True)
    ]


@pytest.mark.parametrize("count", [10, 100, 400])
@pytest.mark.parametrize("aging", [0.0, 0.1])
def test_the_rule_as_written_starves_a_short_request_for_as_long_as_newcomers_come(count: int, aging: float) -> None:
    """Pitfall: terms without bound defeat aging. The wait grows with the stream, with aging added or not."""
    row = dataclasses.replace(preset("joint-as-written"), aging=aging)
    assert overtaking_bound_ns(row, 10) is None
    finish, _ = serve(row, hostile(count), scale=10)
    assert finish[0] == 10 * (count + 1)
    repaired, _ = serve(preset("joint-repaired"), hostile(count), scale=10)
    assert repaired[0] == 10


@pytest.mark.parametrize(
    ("rule", "starves"), [("srpt-path", True), ("joint-without-aging", True), ("joint-repaired", False)]
)
def test_without_aging_a_long_request_starves_under_short_ones(rule: str, starves: bool) -> None:
    waits = []
    for count in (100, 400):
        jobs = [Job(0, 1, chunk=10, facts={"path_ns": 2_000, "class_path_ns": 1_000})]
        jobs += [Job(10 * i, 1, chunk=10, facts={"path_ns": 10, "class_path_ns": 1_000}) for i in range(count)]
        finish, _ = serve(preset(rule), jobs, scale=10)
        waits.append(finish[0])
    assert waits[0] == (1_010 if starves else waits[1])
    if starves:
        assert waits[1] == 4_010
    else:
        bound = overtaking_bound_ns(preset(rule), 10)
        assert bound is not None
        assert waits[1] <= bound + 20
