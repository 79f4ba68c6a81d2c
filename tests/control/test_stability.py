"""Loads, windows and queues: closed forms against simulation, the verdict, and the page docs/stability.md."""

from __future__ import annotations

import ast
import doctest
import itertools
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control.capacity import (
    batch_sojourn_bound_ns,
    busy_window_bytes,
    busy_window_items,
    credit_hold_ns,
    tandem_capacity_per_s,
    window_capacity_per_s,
)
from workbench.control.layout import EdgePlan, Plan
from workbench.control.ranges import UNBOUNDED
from workbench.control.skew import edge_skews
from workbench.control.stability import (
    StageService,
    TrafficClass,
    Visit,
    admissible_requests,
    device_loads,
    effective_rates_per_s,
    feasible,
    mean_attempts,
)
from workbench.errors import UsageError
from workbench.graph import preset
from workbench.testing import queues
from workbench.testing.queues import area, batch_server, credit_line, exponential, first_come, poisson
from workbench.units import MS_NS, S_NS

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "stability.md"
TIMES = st.integers(1, 40)


# --- the load ---------------------------------------------------------------------------------------------------------


def attempts_of(failure: float, attempts_max: int, rng: random.Random) -> int:
    """Runs of one task until it succeeds or its attempts are used up."""
    return next((n for n in range(1, attempts_max) if rng.random() >= failure), attempts_max)


@pytest.mark.parametrize(("failure", "attempts_max"), [(0.0, 3), (0.3, 3), (0.9, 5), (1.0, 4)])
def test_the_effective_rate_counts_every_run(failure: float, attempts_max: int) -> None:
    rng = random.Random(3)
    seconds, rejected, tasks, dropped = 6_000, 0.2, 5, 0.1
    runs = sum(
        attempts_of(failure, attempts_max, rng)
        for _ in range(seconds)  # one request per second
        if rng.random() >= rejected
        for _ in range(tasks)
        if rng.random() >= dropped
    )
    visit = Visit("talker", tasks, mean_attempts(failure, attempts_max), dropped)
    rates = effective_rates_per_s([TrafficClass("a", 0.75, (visit,), rejected), TrafficClass("b", 0.25, (visit,), 0.2)])
    assert rates["talker"] == pytest.approx(runs / seconds, rel=0.02)


def backlog(arrivals: Sequence[float], departures: Sequence[float], at: float) -> int:
    return sum(t <= at for t in arrivals) - sum(t <= at for t in departures)


def test_an_overloaded_device_falls_behind_at_the_rate_of_the_excess() -> None:
    rng = random.Random(5)
    mean_ns = MS_NS
    for load in (0.9, 1.1):
        arrivals = poisson(round(mean_ns / load), 30_000, rng)
        departures = first_come(arrivals, exponential(mean_ns, 30_000, rng))
        left = backlog(arrivals, departures, arrivals[-1])
        excess = (load - 1) * arrivals[-1] / mean_ns
        assert left < 200 if load < 1 else left == pytest.approx(excess, rel=0.25)


def test_retries_alone_overload_a_stage_that_its_arrivals_do_not() -> None:
    # 0.7 requests per service time; half of the runs fail and are tried up to four times: 0.7 * 1.875 = 1.31.
    rng = random.Random(7)
    count, mean_ns = 10_000, MS_NS
    arrivals = poisson(round(mean_ns / 0.7), count, rng)
    once = exponential(mean_ns, count, rng)
    tried = [sum(exponential(mean_ns, attempts_of(0.5, 4, rng), rng)) for _ in range(count)]
    service = [StageService("asr", "gpu0", mean_ns, 0)]
    for services, attempts, grows in ((once, 1.0, False), (tried, mean_attempts(0.5, 4), True)):
        rates = effective_rates_per_s([TrafficClass("a", 0.7 * S_NS / mean_ns, (Visit("asr", 1, attempts),))])
        assert (device_loads(rates, service)["gpu0"] >= 1) == grows
        left = backlog(arrivals, first_come(arrivals, services), arrivals[-1])
        assert (left > 0.1 * count) == grows


def test_the_load_of_a_device_adds_the_stages_on_it_at_their_largest_launch() -> None:
    services = [
        StageService("talker", "gpu0", 4 * MS_NS, 1 * MS_NS, batch_cap=4, share=0.5),
        StageService("talker", "gpu1", 4 * MS_NS, 1 * MS_NS, batch_cap=8, share=0.5),
        StageService("vocoder", "gpu1", 0, 3 * MS_NS, batch_cap=None),
    ]
    assert device_loads({"talker": 100, "vocoder": 200}, services) == pytest.approx({"gpu0": 0.1, "gpu1": 0.675})
    with pytest.raises(UsageError, match=r"services of stage 'talker': expected shares that add up to 1, found 0\.5"):
        device_loads({"talker": 1}, services[:1])
    with pytest.raises(UsageError, match="expected a service for stage 'mux'"):
        device_loads({"mux": 1}, services)


def test_a_batching_server_is_stable_exactly_while_its_largest_launch_keeps_up() -> None:
    rng = random.Random(11)
    fixed, per_item, count = 4 * MS_NS, 1 * MS_NS, 20_000
    for cap, edge in ((4, 4 / 8), (16, 16 / 20), (None, 1.0)):  # tasks per ms
        for factor, grows in ((0.94, False), (1.06, True)):
            arrivals = poisson(round(MS_NS / (edge * factor)), count, rng)
            left = backlog(arrivals, batch_server(arrivals, fixed, per_item, cap=cap), arrivals[-1])
            assert (left > 0.03 * count) == grows, (cap, factor, left)
            service = StageService("v", "d", fixed, per_item, cap)
            assert (device_loads({"v": edge * factor * 1_000}, [service])["d"] > 1) == grows


@pytest.mark.parametrize(("per_ms", "slack"), [(1.0, 0.10), (3.0, 0.04), (5.0, 0.04)])
def test_the_mean_time_in_an_uncapped_batch_server_stays_below_its_bound(per_ms: float, slack: float) -> None:
    rng = random.Random(13)
    arrivals = poisson(round(MS_NS / per_ms), 60_000, rng)
    fixed, per_item = 1_047_700, 143_800
    departures = batch_server(arrivals, fixed, per_item)
    mean_ns = (sum(departures) - sum(arrivals)) / len(arrivals)
    bound_ns = batch_sojourn_bound_ns(per_ms * 1_000, fixed, per_item)
    assert (1 - slack) * bound_ns < mean_ns < 1.02 * bound_ns  # 2 %: the noise of one run
    assert batch_sojourn_bound_ns(7_000, fixed, per_item) == float("inf")


# --- the simulators themselves ----------------------------------------------------------------------------------------


def test_the_simulators_reproduce_the_textbook() -> None:
    rng = random.Random(17)
    count, gap = 60_000, 2 * MS_NS
    arrivals = poisson(gap, count, rng)

    def mean_ms(services: Sequence[int], servers: int = 1) -> float:
        return (sum(first_come(arrivals, services, servers=servers)) - sum(arrivals)) / count / MS_NS

    assert mean_ms(exponential(MS_NS, count, rng)) == pytest.approx(2.0, rel=0.04)  # M/M/1: 1 / (mu - lambda)
    assert mean_ms([MS_NS] * count) == pytest.approx(1.5, rel=0.03)  # M/D/1: half of that wait
    assert mean_ms(exponential(2 * MS_NS, count, rng), 2) == pytest.approx(8 / 3, rel=0.04)  # M/M/2, Erlang C = 1/3
    single = [queues.batch_server(arrivals, MS_NS, 0, cap=1), first_come(arrivals, [MS_NS] * count)]
    assert single[0] == single[1]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), min_size=1), st.integers(1, 3))
def test_little_is_exact_from_empty_to_empty(jobs: list[tuple[int, int]], servers: int) -> None:
    arrivals = sorted(arrival for arrival, _ in jobs)
    departures = first_come(arrivals, [service for _, service in jobs], servers=servers)
    sizes = [7 * i + 1 for i in range(len(jobs))]
    visits = list(zip(arrivals, departures, strict=True))
    # Count moment by moment, without the intervals' lengths.
    held = [[size for (start, end), size in zip(visits, sizes, strict=True) if start <= t < end] for t in range(2_000)]
    assert sum(map(len, held)) == area(visits) == sum(end - start for start, end in visits)
    assert sum(map(sum, held)) == area(visits, sizes)
    # Cut before the end, the law fails by exactly what the cut took away.
    cut = max(departures) - 1
    clipped = [(min(start, cut), min(end, cut)) for start, end in visits]
    late = sum(max(0, end - cut) - max(0, start - cut) for start, end in visits)
    assert area(clipped) == area(visits) - late


def test_little_is_exact_at_every_station_of_a_network() -> None:
    policy = queues.last_stage_first
    run = queues.two_way(policy, mean_gap=100, mean_in=10, mean_out=60, until=20_000, seed=2, drain=True)
    for route, step in itertools.product((0, 1), (0, 1)):
        visits = [(start, end) for r, s, start, end in run.visits if (r, s) == (route, step)]
        assert len(visits) > 100
        assert area(visits) == sum(end - start for start, end in visits)


# --- the window -------------------------------------------------------------------------------------------------------


@given(TIMES, TIMES, st.integers(0, 60), st.integers(0, 60), st.sampled_from(["start", "end"]))
def test_the_busy_window_is_the_smallest_that_costs_nothing(
    make: int, service: int, forward: int, back: int, returned: str
) -> None:
    hold = credit_hold_ns(service, forward + back, make_ns=make, returned=returned)
    slower = max(make, service)
    window = busy_window_items(slower, hold)
    count = 4 * window + 4
    free = credit_line([make] * count, [service] * count, window=None, forward=forward, back=back)

    def starts(chunks: int) -> list[int]:
        return credit_line(
            [make] * count, [service] * count, window=chunks, forward=forward, back=back, returned=returned
        )

    assert starts(window) == free
    assert free[-1] - free[-2] == slower
    if window > 1:
        short = starts(window - 1)
        assert short != free
        # What is left is window / hold, exactly: a window's worth of starts per hold.
        assert short[-1] - short[-window] == hold
        rate = window_capacity_per_s(S_NS / slower, window - 1, hold)
        assert rate == pytest.approx((window - 1) * S_NS / hold)


@given(TIMES, st.integers(0, 60), st.integers(0, 60))
def test_with_instant_making_the_busy_window_is_the_round_trip_in_chunks_plus_one(
    service: int, forward: int, back: int
) -> None:
    window = busy_window_items(service, credit_hold_ns(service, forward + back))
    assert window == -(-(forward + back) // service) + 1
    count = 3 * window
    line = credit_line([0] * count, [service] * count, window=window, forward=forward, back=back)
    assert line == [forward + i * service for i in range(count)]


@given(TIMES, st.integers(0, 60), st.integers(0, 60), st.integers(1, 5), st.sampled_from(["start", "end"]))
def test_a_full_launch_needs_the_busy_window_times_its_size(
    service: int, forward: int, back: int, batch: int, returned: str
) -> None:
    window = busy_window_items(service, credit_hold_ns(service, forward + back, returned=returned), batch=batch)
    launches = 2 * window // batch + 4

    def starts(chunks: int | None) -> list[int]:
        makes, services = [0] * launches * batch, [service] * launches
        return credit_line(makes, services, window=chunks, forward=forward, back=back, batch=batch, returned=returned)

    assert starts(window) == starts(None)
    if batch > 1:
        assert starts(batch - 1) == []  # the launch is never full: a window below the batch stands still
    if window > batch:
        assert len(starts(window - 1)) == launches
        assert starts(window - 1) != starts(None)


@given(TIMES, TIMES, st.integers(0, 60), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_busy_window_is_enough_when_launches_are_full_and_making_takes_time(
    make: int, service: int, travel: int, batch: int, rng: random.Random
) -> None:
    period = max(batch * make, service)
    hold = credit_hold_ns(service, travel, make_ns=make, batch=batch)
    window = busy_window_items(period, hold, batch=batch)
    launches = 2 * window // batch + 4
    makes, services = [make] * launches * batch, [service] * launches
    assert credit_line(makes, services, window=window, forward=travel, batch=batch) == credit_line(
        makes, services, window=None, forward=travel, batch=batch
    )


@given(TIMES, st.integers(0, 60), st.integers(1, 9), st.lists(st.integers(1, 9), min_size=60, max_size=60))
def test_the_busy_window_in_bytes_is_exact_for_equal_chunks_and_enough_for_smaller_ones(
    service: int, travel: int, chunk_bytes: int, drawn: list[int]
) -> None:
    hold = credit_hold_ns(service, travel)
    window_bytes = busy_window_bytes(service, hold, chunk_bytes)
    count = len(drawn)
    free = credit_line([0] * count, [service] * count, window=None, forward=travel)
    equal = [chunk_bytes] * count
    mixed = [min(size, chunk_bytes) for size in drawn]
    for sizes in (equal, mixed):
        line = credit_line([0] * count, [service] * count, window=window_bytes, forward=travel, sizes=sizes)
        assert line == free
    if chunk_bytes < window_bytes and count > busy_window_items(service, hold):
        assert credit_line([0] * count, [service] * count, window=window_bytes - 1, forward=travel, sizes=equal) != free


@pytest.mark.parametrize(
    ("up", "down", "window", "returned", "places"),
    [
        (1.0, 1.0, 1, "end", 1),
        (1.0, 1.0, 2, "end", 2),
        (1.0, 1.0, 5, "end", 5),
        (1.0, 1.0, 4, "start", 5),
        (1.2, 1.0, 5, "end", 5),
        (1.0, 1.2, 5, "end", 5),
    ],
)
def test_a_line_of_two_exponential_servers_carries_what_the_formula_says(
    up: float, down: float, window: int, returned: str, places: int
) -> None:
    rng = random.Random(19)
    count = 25_000
    makes, services = (exponential(round(MS_NS / rate), count, rng) for rate in (up, down))
    starts = credit_line(makes, services, window=window, returned=returned)
    rate = count * MS_NS / starts[-1]
    assert rate == pytest.approx(tandem_capacity_per_s(up, down, places), rel=0.02)
    hold = 1 / up + (1 / down if returned == "end" else 0)
    assert rate < 1.02 * min(up, down, window / hold)  # Little: only a bound once times are random


def test_the_tandem_formula_is_the_queue_of_so_many_places() -> None:
    for up, down, places in itertools.product((0.5, 1.0, 3.0), (0.5, 1.0, 3.0), (1, 2, 7)):
        weights = [(up / down) ** i for i in range(places + 1)]
        assert tandem_capacity_per_s(up, down, places) == pytest.approx(down * (1 - 1 / sum(weights)))
    for slots in (0, 3, 10):
        assert tandem_capacity_per_s(1, 1, slots + 2) == pytest.approx((slots + 2) / (slots + 3))
    assert tandem_capacity_per_s(1e9, 1.0, 1 << 20) == pytest.approx(1.0)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=40), st.integers(0, 4))
def test_blocking_with_n_slots_is_a_window_of_n_plus_two(times: list[tuple[int, int]], slots: int) -> None:
    makes, services = [make for make, _ in times], [service for _, service in times]
    leaves: list[int] = []  # when each item leaves the first server, which keeps it until there is a slot
    ends: list[int] = []
    for i, (make, service) in enumerate(times):
        done = (leaves[-1] if leaves else 0) + make
        leaves.append(max(done, ends[i - slots - 1]) if i > slots else done)
        ends.append(max(leaves[-1], ends[-1] if ends else 0) + service)
    line = credit_line(makes, services, window=slots + 2)
    assert [start + service for start, service in zip(line, services, strict=True)] == ends


# --- what is not guaranteed -------------------------------------------------------------------------------------------

SECOND = 1_000_000
POLICIES = {
    "oldest first": queues.oldest_first,
    "last stage first": queues.last_stage_first,
    "last stage first, aged": queues.last_stage_first_aged(5 * SECOND),
}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_priority_for_the_last_stage_diverges_at_a_load_of_seven_tenths(seed: int) -> None:
    loads = device_loads({"in": 1, "out": 1}, [StageService("in", "a", 1e8, 0), StageService("out", "a", 6e8, 0)])
    assert loads["a"] == pytest.approx(0.7)

    def run(policy: queues.Policy, mean_out: int) -> list[int]:
        mean_in, until = SECOND // 10, 2_000 * SECOND
        return queues.two_way(
            policy, mean_gap=SECOND, mean_in=mean_in, mean_out=mean_out, until=until, seed=seed
        ).backlog

    long_out, short_out = 6 * SECOND // 10, 4 * SECOND // 10
    growing = run(queues.last_stage_first, long_out)
    assert growing == sorted(growing)
    assert growing[-1] > 250
    policies = POLICIES | {"max-weight": queues.max_weight(SECOND // 10, long_out)}
    del policies["last stage first"]
    assert {name: max(run(policy, long_out)) < 100 for name, policy in policies.items()} == dict.fromkeys(
        policies, True
    )
    # The two exits are hardly ever served at once, so together they are one server: 0.6 + 0.6 > 1, but 0.4 + 0.4 < 1.
    assert max(run(queues.last_stage_first, short_out)) < 100


# --- the verdict ------------------------------------------------------------------------------------------------------


def verdict_inputs() -> tuple[Plan, list[TrafficClass], list[StageService], dict[str, int]]:
    """A linear speech graph that meets every condition."""
    graph = preset("t1")
    plan = Plan(
        graph,
        requests=8,
        edges={
            edge.name: EdgePlan(chunk_bytes=1_000, window_chunks=4, max_bytes=40_000)
            for edge in graph.edges
            if edge.source != "client"
        },
        total_bytes=100_000,
        request_bytes=20_000,
    )
    stages = ("thinker", "phonemizer", "talker", "code2wav")
    classes = [TrafficClass("talk", 2.0, tuple(Visit(name, 10) for name in stages))]
    services = [StageService(name, f"gpu{i % 2}", 5 * MS_NS, 5 * MS_NS, 2) for i, name in enumerate(stages)]
    holds_ns = {edge.name: 400 * MS_NS for edge in plan.carried}
    return plan, classes, services, holds_ns


def test_a_verdict_names_each_violated_condition_with_its_numbers() -> None:
    plan, classes, services, holds_ns = verdict_inputs()
    good = feasible(plan, classes, services, requests=8, holds_ns=holds_ns)
    assert good.holds
    assert good.unchecked == ()
    assert (good.requests_safe, good.requests_unhindered) == (25, 6)  # 100 kB / 4 kB; 100 kB / 16 kB

    def broken(**changes: object) -> list[tuple[str, str]]:
        edges = {name: replace(bounds, **changes.get("edge", {})) for name, bounds in plan.edges.items()}
        other = replace(plan, edges=edges, **changes.get("plan", {}))
        rate = TrafficClass("talk", changes.get("arrivals_per_s", 2.0), classes[0].visits)
        found = feasible(
            other,
            [rate],
            services,
            requests=changes.get("requests", 8),
            holds_ns=holds_ns,
            skews=changes.get("skews"),
        )
        assert not found.holds
        return [(condition.name, condition.subject) for condition in found.violated]

    edges = [edge.name for edge in plan.carried]
    assert broken(arrivals_per_s=7.0) == [("device-load", "gpu0"), ("device-load", "gpu1")]
    assert broken(edge={"window_bytes": 1_000}) == [("edge-rate", name) for name in edges]
    assert broken(edge={"floor_chunks": 0}) == [("edge-floor", name) for name in edges]
    assert broken(skews={edges[0]: 1}) == [("edge-floor", edges[0])]
    assert broken(skews={edges[0]: 4}) == [("edge-floor", edges[0]), ("edge-window", edges[0])]
    assert broken(plan={"request_bytes": 3_999}) == [("request-bytes", "a request")]
    assert broken(edge={"max_bytes": 7_999}) == [("edge-bytes", name) for name in edges]
    assert broken(plan={"total_bytes": 31_999}) == [("total-bytes", "all edges")]
    assert broken(requests=26)[-1] == ("total-bytes", "all edges")
    text = str(feasible(plan, [TrafficClass("talk", 7.0, classes[0].visits)], services, requests=8))
    assert "VIOLATED  device-load of gpu0: busy 1.050 of the time < 1" in text
    assert f"unknown  edge-rate of {edges[0]}: how long a credit is out is not stated" in text


def test_the_largest_number_of_requests_is_the_last_that_fits() -> None:
    plan, *_ = verdict_inputs()
    assert admissible_requests(plan) == 25
    assert admissible_requests(Plan(plan.graph, requests=1, request_bytes=3)) == 0
    assert admissible_requests(Plan(plan.graph, requests=1, total_bytes=UNBOUNDED)) == 1 << 20
    narrow = Plan(plan.graph, requests=1, edges={"talker>code2wav": EdgePlan(chunk_bytes=10, max_bytes=39)})
    assert admissible_requests(narrow) == 3


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Visit("a", -1), "visit to stage 'a', tasks_per_request: expected a number from 0 to inf, found -1"),
        (lambda: Visit("a", 1, attempts=0.5), "attempts: expected a number from 1"),
        (lambda: Visit("a", 1, dropped=float("nan")), "dropped: expected a number from 0 to 1, found nan"),
        (lambda: TrafficClass("a", 1, (Visit("x", 1), Visit("x", 1))), "class 'a': expected one visit per stage"),
        (lambda: StageService("a", "d", 0, 0), "expected a launch that takes time"),
        (lambda: StageService("a", "d", 1, 0, 0), "batch_cap: expected an integer from 1"),
        (lambda: busy_window_items(0, 1), "service_ns: expected an integer from 1"),
        (lambda: edge_skews(preset("t1"), 0), "stream_chunks: expected an integer from 1"),
        (lambda: edge_skews(preset("t1"), 1, lookahead={"tts": 1}), "found 'tts'"),
        (lambda: feasible(verdict_inputs()[0], [], [], requests=1, holds_ns={"a>b": 1}), "found 'a>b'"),
        (
            lambda: feasible(verdict_inputs()[0], [], [StageService("tts", "d", 1, 1)], requests=1),
            "graph 't1': expected one of",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        make()


# --- the page ---------------------------------------------------------------------------------------------------------


def statements(text: str) -> dict[str, str]:
    """Id -> paragraph of each numbered statement, with the lines on its test."""
    parts = re.split(r"^\*\*(S\d+)\.", text, flags=re.MULTILINE)
    return {name: body.split("\n## ")[0] for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def links(body: str) -> list[tuple[str, str]]:
    """(test, file) of each link to a test."""
    return re.findall(r"\[`(test_\w+)`\]\(([^)]+)\)", body)


@lru_cache
def functions_of(file: str) -> frozenset[str]:
    """Names of the functions in a file given relative to the page; none if there is no such file."""
    path = PAGE.parent / file
    tree = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.is_file() else ()
    return frozenset(node.name for node in tree if isinstance(node, ast.FunctionDef))


def faults(text: str) -> list[str]:
    """What is wrong with the links of a page at the place of PAGE: nothing when all is well."""
    found = statements(text)
    in_order = list(found) == [f"S{i}" for i in range(1, len(found) + 1)]
    wrong = [] if in_order else ["statements are not numbered in order"]
    for name, body in found.items():
        if not links(body) and not re.search(r"^\*No test:\* \S", body, flags=re.MULTILINE):
            wrong.append(f"{name} has neither a test nor a reason for having none")
    wrong += [f"no {test} in {file}" for test, file in links(text) if test not in functions_of(file)]
    return wrong


def test_every_statement_of_the_page_links_to_a_test_that_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(statements(text)) > 20
    assert faults(text) == []
    assert len(faults(text + "\n**S99.** More.\n")) == 2
    assert faults(text.replace("`test_", "`test_no_", 1)) != []


def test_the_examples_of_the_page_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 3
    assert result.failed == 0
