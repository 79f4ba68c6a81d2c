"""What a request still needs, against a longest path found by recursion over every task and edge."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import ints
from workbench.control import remaining as r
from workbench.control.ranges import MAX_TIME_NS
from workbench.control.signals import UNKNOWN
from workbench.graph import preset, presets
from workbench.twin import twin

fast = twin("workbench.control.remaining")
Task = tuple[int, int]


class Case:
    """A random graph, how far a request has come in it, and the service of every chunk."""

    def __init__(self, shape: list[int], progress: list[int], services: list[int]) -> None:
        self.shape, self.progress, self.services = shape, progress, services
        self.stages = range(shape[r.STAGES])
        self.edges = [
            tuple(shape[at : at + r.EDGE_ROW])
            for at in range(r.SHAPE_HEAD, r.SHAPE_HEAD + shape[r.EDGES] * r.EDGE_ROW, r.EDGE_ROW)
        ]
        self.room = len(self.stages) + sum(self.total(v) for v in self.stages)

    def done(self, v: int) -> int:
        return self.progress[v * r.PROGRESS + r.DONE]

    def total(self, v: int) -> int:
        return self.progress[v * r.PROGRESS + r.TOTAL]

    def service(self, v: int, k: int) -> int:
        at = self.progress[v * r.PROGRESS + r.CHUNKS_AT]
        return self.services[at + k - 1] if at >= 0 else self.progress[v * r.PROGRESS + r.PER_CHUNK]

    def before(self, v: int, k: int) -> list[Task]:
        """Tasks that chunk `k` of `v` comes after by definition, ended ones left out."""
        found = [(v, k - 1)] if k > 1 else []
        for u, w, whole in self.edges:
            if w == v:
                found.append((u, self.total(u) if whole else -(-k * self.total(u) // self.total(v))))
        return [(u, j) for u, j in found if j > self.done(u)]

    def left(self) -> list[Task]:
        return [(v, k) for v in self.stages for k in range(self.done(v) + 1, self.total(v) + 1)]

    def tails(self) -> dict[Task, int]:
        after: dict[Task, list[Task]] = {task: [] for task in self.left()}
        for task in self.left():
            for earlier in self.before(*task):
                after[earlier].append(task)

        @cache
        def tail(task: Task) -> int:
            return self.service(*task) + max((tail(each) for each in after[task]), default=0)

        return {task: tail(task) for task in self.left()}

    def heads(self) -> dict[Task, int]:
        @cache
        def head(task: Task) -> int:
            return self.service(*task) + max((head(each) for each in self.before(*task)), default=0)

        return {task: head(task) for task in self.left()}

    def needing(self, task: Task) -> set[Task]:
        found: set[Task] = set()
        grown = {task}
        while grown:
            grown = {each for each in self.left() if each not in found and grown & set(self.before(*each))}
            found |= grown
        return found


@st.composite
def cases(draw: st.DrawFn) -> Case:
    stages = draw(st.integers(1, 4))
    shape = [stages, 0]
    for u in range(stages):
        for v in range(u + 1, stages):
            if draw(st.sampled_from([True, True, False])):
                shape += [u, v, draw(st.sampled_from([0, 0, 1]))]
                shape[r.EDGES] += 1
    progress: list[int] = []
    services: list[int] = []
    same = draw(st.sampled_from([None, None, 1, 3]))
    for _ in range(stages):
        total = same if same is not None else draw(st.integers(1, 5))
        done = draw(st.integers(0, total) | st.just(0))
        if draw(st.booleans()):
            progress += [done, total, UNKNOWN, len(services)]
            services += draw(st.lists(st.integers(0, 50), min_size=total, max_size=total))
        else:
            progress += [done, total, draw(st.integers(0, 50)), UNKNOWN]
    return Case(shape, progress, services)


@given(cases())
def test_tails_are_the_longest_chains_to_the_end(case: Case) -> None:
    expected = case.tails()
    out, compiled = [-7] * case.room, ints([-7] * case.room)
    longest = r.tails(case.shape, case.progress, 0, case.services, out, 0)
    assert longest == max(expected.values(), default=0)
    for v in case.stages:
        found = [out[out[v] + k - 1] for k in range(1, case.total(v) + 1)]
        assert found == [expected.get((v, k), 0) for k in range(1, case.total(v) + 1)]
    assert fast.tails(ints(case.shape), ints(case.progress), 0, ints(case.services), compiled, 0) == longest
    assert compiled.tolist() == out


@given(cases())
def test_a_path_to_a_task_is_the_longest_chain_it_waits_for(case: Case) -> None:
    expected = case.heads()
    vectors = (ints(case.shape), ints(case.progress), 0, ints(case.services))
    for v in case.stages:
        for k in range(1, case.total(v) + 1):
            found = r.path_to(case.shape, case.progress, 0, case.services, v, k, [0] * case.room, 0)
            assert found == expected.get((v, k), 0)
            assert found == fast.path_to(*vectors, v, k, ints([0] * case.room), 0)
    assert max(expected.values(), default=0) == max(case.tails().values(), default=0)


@given(cases())
def test_work_is_the_sum_and_fan_out_the_number_of_tasks(case: Case) -> None:
    arrays = (ints(case.shape), ints(case.progress), 0)
    assert r.work(case.shape, case.progress, 0, case.services) == sum(case.service(*task) for task in case.left())
    assert fast.work(*arrays, ints(case.services)) == r.work(case.shape, case.progress, 0, case.services)
    for v, k in case.left():
        found = r.fan_out(case.shape, case.progress, 0, v, k, [0] * 4, 0)
        assert found == len(case.needing((v, k)))
        assert found == fast.fan_out(*arrays, v, k, ints([0] * 4), 0)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=5), st.integers(1, 6))
def test_a_chain_of_equal_chunks_has_a_closed_form(per_chunk: list[int], chunks: int) -> None:
    """One chunk through every stage, and the other chunks at the slowest one."""
    stages = len(per_chunk)
    shape = [stages, stages - 1, *(value for v in range(stages - 1) for value in (v, v + 1, 0))]
    progress = [value for each in per_chunk for value in (0, chunks, each, UNKNOWN)]
    out = [0] * (stages + stages * chunks)
    assert r.tails(shape, progress, 0, [], out, 0) == sum(per_chunk) + (chunks - 1) * max(per_chunk)


def test_whole_edges_wait_for_all() -> None:
    progress = [0, 3, 5, UNKNOWN, 0, 3, 8, UNKNOWN]
    assert r.tails([2, 1, 0, 1, 0], progress, 0, [], [0] * 8, 0) == 5 + 3 * 8
    assert r.tails([2, 1, 0, 1, 1], progress, 0, [], [0] * 8, 0) == 3 * 5 + 3 * 8


@pytest.mark.parametrize(
    ("chunks", "next_chunks", "ends"),
    [(2, 4, [11, 12, 21, 22]), (4, 2, [21, 41]), (2, 3, [11, 21, 22]), (3, 3, [11, 21, 31])],
)
def test_streams_of_unequal_rates_take_what_they_need(chunks: int, next_chunks: int, ends: list[int]) -> None:
    """10 ns per chunk upstream, 1 ns downstream: when each chunk of the second stage can end."""
    shape, progress = [2, 1, 0, 1, 0], [0, chunks, 10, UNKNOWN, 0, next_chunks, 1, UNKNOWN]
    for rules, vector in ((r, list), (fast, ints)):
        given = (vector(shape), vector(progress), 0, vector([0]))
        for k, end in enumerate(ends, start=1):
            assert rules.path_to(*given, 1, k, vector([0] * 10), 0) == end
        assert rules.tails(*given, vector([0] * 10), 0) == ends[-1]


def test_an_unknown_service_that_is_needed_makes_the_path_unknown() -> None:
    shape = [2, 1, 0, 1, 0]
    needed, ended = [0, 1, 5, -1, 0, 1, -1, -1], [0, 1, 5, -1, 1, 1, -1, -1]
    for rules, vector in ((r, list), (fast, ints)):
        assert rules.tails(vector(shape), vector(needed), 0, vector([0]), vector([0] * 4), 0) == UNKNOWN
        assert rules.work(vector(shape), vector(needed), 0, vector([0])) == UNKNOWN
        assert rules.path_to(vector(shape), vector(needed), 0, vector([0]), 0, 1, vector([0] * 4), 0) == UNKNOWN
        assert rules.tails(vector(shape), vector(ended), 0, vector([0]), vector([0] * 4), 0) == 5


def test_times_stop_at_the_largest_one() -> None:
    shape, progress = [2, 1, 0, 1, 0], [0, 2, MAX_TIME_NS, -1, 0, 2, MAX_TIME_NS, -1]
    for rules, vector in ((r, list), (fast, ints)):
        assert rules.tails(vector(shape), vector(progress), 0, vector([0]), vector([0] * 6), 0) == MAX_TIME_NS
        assert rules.work(vector(shape), vector(progress), 0, vector([0])) == MAX_TIME_NS


@pytest.mark.parametrize("name", presets())
def test_every_preset_has_a_shape(name: str) -> None:
    graph = preset(name)
    shape = r.shape_of(graph)
    case = Case(shape, [value for _ in graph.order for value in (0, 3, 10, UNKNOWN)], [])
    assert len(case.edges) == shape[r.EDGES] == sum("client" not in (e.source, e.target) for e in graph.edges)
    assert all(u < v for u, v, _ in case.edges)
    assert r.tails(shape, case.progress, 0, [], [0] * case.room, 0) == max(case.tails().values())


# --- Estimates ---


@given(st.lists(st.integers(0, 1 << 40), max_size=20), st.integers(-1, 1 << 40))
def test_an_estimate_is_the_mean_of_what_ended_and_the_prior_before(values: list[int], prior: int) -> None:
    plain, compiled = [0, 0, prior], ints([0, 0, prior])
    assert r.mean(plain, 0) == prior
    for count, value in enumerate(values, start=1):
        r.observe(plain, 0, value)
        fast.observe(compiled, 0, value)
        assert r.mean(plain, 0) == sum(values[:count]) // count == fast.mean(compiled, 0)
    assert compiled.tolist() == plain


def test_a_full_sum_is_halved_and_keeps_its_mean() -> None:
    plain, compiled = [0, 0, UNKNOWN], ints([0, 0, UNKNOWN])
    for _ in range(9):
        r.observe(plain, 0, MAX_TIME_NS // 2)
        fast.observe(compiled, 0, MAX_TIME_NS // 2)
        assert r.mean(plain, 0) == MAX_TIME_NS // 2
        assert plain[r.SUM] <= MAX_TIME_NS
    assert compiled.tolist() == plain


@given(st.integers(-1, 10), st.integers(0, 10), st.integers(0, 1))
def test_a_stream_that_is_open_always_has_one_more_chunk(mean_total: int, done: int, closed: int) -> None:
    found = r.expected_total(mean_total, done, closed)
    assert found == (done if closed else max(mean_total, done + 1))
    assert found == fast.expected_total(mean_total, done, closed)
