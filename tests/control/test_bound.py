"""``B(t) <= B_max`` on the ledger in force: random histories against books kept apart, and each guard is needed."""

from __future__ import annotations

import itertools
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import layout, ledger
from workbench.control.layout import EdgePlan, Plan
from workbench.control.ranges import UNBOUNDED
from workbench.control.stability import admissible_requests
from workbench.graph import preset
from workbench.twin import Edit, twin

CHUNK = 5
GRAPH = preset("cfg-join")
EDGES = [edge for edge in GRAPH.edges if edge.source != "client"]
FLOORS = {edge.name: 2 if edge.name == "parent>guidance" else 1 for edge in EDGES}
FLOORS_BYTES = sum(FLOORS.values()) * CHUNK  # of one request
REQUESTS, TENANTS = 4, 2


def plan_of(**bounds: int) -> Plan:
    """Four requests of two tenants; `edge_bytes` bounds every edge, other bounds are the plan's own."""
    edge_bytes = bounds.pop("edge_bytes", UNBOUNDED)
    edges = {name: EdgePlan(CHUNK, floor, max_bytes=edge_bytes) for name, floor in FLOORS.items()}
    return Plan(GRAPH, REQUESTS, TENANTS, edges, **bounds)


PLANS = st.builds(
    plan_of,
    total_bytes=st.integers(FLOORS_BYTES, 5 * FLOORS_BYTES),
    tenant_bytes=st.integers(FLOORS_BYTES, 4 * FLOORS_BYTES),
    request_bytes=st.integers(FLOORS_BYTES, 2 * FLOORS_BYTES),
    edge_bytes=st.integers(2 * CHUNK, 12 * CHUNK),
)
OPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "reserve", "reserve", "reserve", "return", "repeat", "reclaim"]),
        st.integers(0, REQUESTS - 1),
        st.integers(0, 5),
        st.integers(0, CHUNK),
    ),
    max_size=120,
)


class Books:
    """What is out, kept chunk by chunk beside the ledger and without its sums."""

    def __init__(self, plan: Plan, rules: ModuleType = ledger) -> None:
        self.plan, self.rules = plan, rules
        self.g, self.m = plan.configuration(), plan.memory()
        self.held: dict[int, list[list[int]]] = {}  # admitted request -> per edge, sizes of the chunks that are out
        self.said: dict[int, list[list[tuple[int, int]]]] = {}  # per edge, (chunks, bytes) of each return so far

    def apply(self, op: str, r: int, which: int, size: int) -> None:
        """One step of request `r` at stage or on edge `which`, if it is allowed; then compare."""
        if op == "admit" and r not in self.held and self.rules.short_of(self.g, self.m, r, 0) == 0:
            self.rules.admit(self.g, self.m, r)
            self.held[r] = [[] for _ in EDGES]
            self.said[r] = [[(0, 0)] for _ in EDGES]
        elif op == "reserve" and r in self.held:
            self.reserve(r, which % len(self.plan.stages), size)
        elif op == "return" and r in self.held and (held := self.held[r][which]):
            said = self.said[r][which]
            said.append((said[-1][0] + 1, said[-1][1] + held.pop(0)))
            self.rules.give_back(self.g, self.m, r, which, *said[-1])
        elif op == "repeat" and r in self.held:
            said = self.said[r][which]
            self.rules.give_back(self.g, self.m, r, which, *said[size % len(said)])
        elif op == "reclaim" and r in self.held:
            self.rules.reclaim(self.g, self.m, r)
            del self.held[r]
        self.compare()

    def reserve(self, r: int, v: int, size: int) -> None:
        if not self.rules.can_reserve(self.g, self.m, r, v):
            return
        out = [e for e, edge in enumerate(EDGES) if edge.source == self.plan.stages[v]]
        for e in out:
            self.rules.reserve(self.g, self.m, r, e)
            self.held[r][e].append(CHUNK)
        self.compare()
        for e in out:
            self.rules.trim(self.g, self.m, r, e, CHUNK - size)
            self.held[r][e][-1] = size

    def compare(self) -> None:
        """The ledger's sums are those of the books, and none is above its bound."""
        g, m, plan = self.g, self.m, self.plan
        counted = {
            (r, e): max(FLOORS[edge.name] * CHUNK, sum(held[e]))
            for r, held in self.held.items()
            for e, edge in enumerate(EDGES)
        }
        assert m[layout.USED] == sum(counted.values()) <= plan.total_bytes
        for t in range(TENANTS):
            mine = sum(size for (r, _), size in counted.items() if r % TENANTS == t)
            assert m[layout.tenant_used(t)] == mine <= plan.tenant_bytes
        for r in range(REQUESTS):
            mine = sum(size for (other, _), size in counted.items() if other == r)
            assert m[layout.request(g, r) + layout.REQUEST_USED] == mine <= plan.request_bytes
        for e, edge in enumerate(EDGES):
            mine = sum(size for (_, other), size in counted.items() if other == e)
            assert m[layout.edge_used(g, e)] == mine <= plan.edges[edge.name].max_bytes


@given(PLANS, OPS)
def test_promised_bytes_are_the_sum_of_floors_and_never_exceed_a_bound(
    plan: Plan, ops: list[tuple[str, int, int, int]]
) -> None:
    books = Books(plan)
    for op in ops:
        books.apply(*op)
    for r in range(REQUESTS):
        books.apply("reclaim", r, 0, 0)
    assert books.m[layout.USED] == 0


def fill(plan: Plan, edits: tuple[Edit, ...] = ()) -> Books:
    """Admit all that may come in, reserve all that there is room for, return one chunk, and say so twice."""
    books = Books(plan, twin("workbench.control.ledger", compiled=False, edits=edits))
    for r in range(REQUESTS):
        books.apply("admit", r, 0, 0)
    for _, r, v in itertools.product(range(6), range(REQUESTS), range(len(plan.stages))):
        books.apply("reserve", r, v, CHUNK)
    for op, said in (("return", 0), ("repeat", 1), ("repeat", 0)):
        books.apply(op, 0, 2, said)
    return books


GUARDS = [
    ({"total_bytes": FLOORS_BYTES + 3 * CHUNK}, "and m[USED] + total <= g[TOTAL_MAX]", "and m[USED] <= g[TOTAL_MAX]"),
    (
        {"tenant_bytes": FLOORS_BYTES + 3 * CHUNK},
        "and m[tenant_used(m[at + TENANT])] + total <= g[TENANT_MAX]",
        "",
    ),
    ({"request_bytes": FLOORS_BYTES + 2 * CHUNK}, "m[at + REQUEST_USED] + total <= g[REQUEST_MAX]", "True"),
    (
        {"edge_bytes": 5 * CHUNK},
        "if rise > 0 and m[edge_used(g, e)] + rise > g[edge_row(g, e) + EDGE_MAX]:",
        "if False:",
    ),
    (
        {"total_bytes": FLOORS_BYTES + 3 * CHUNK},
        "if count > 0 and used * m[USED] + count * total > g[TOTAL_MAX]:",
        "if False:",
    ),
    (
        {"tenant_bytes": FLOORS_BYTES + 3 * CHUNK},
        "if count > 0 and used * m[tenant_used(m[at + TENANT])] + count * total > g[TENANT_MAX]:",
        "if False:",
    ),
    ({"request_bytes": FLOORS_BYTES - 1}, "if total > g[REQUEST_MAX]:", "if False:"),
    (
        {"edge_bytes": 5 * CHUNK},
        "if count > 0 and used * m[edge_used(g, e)] + count * floor_bytes(g, e) > g[edge_row(g, e) + EDGE_MAX]:",
        "if False:",
    ),
    ({}, "if taken > m[at + RETURNED]:", "if True:"),
    ({}, "return max(m[at + FLOORED] * floor_bytes(g, e), outstanding(m, at))", "return outstanding(m, at)"),
]


@pytest.mark.parametrize(("bounds", "old", "new"), GUARDS)
def test_each_guard_of_the_bound_is_needed(bounds: dict[str, int], old: str, new: str) -> None:
    plan = plan_of(**bounds)
    fill(plan)
    with pytest.raises(AssertionError):
        fill(plan, (Edit("workbench.control.ledger", old, new),))


def test_a_bound_that_holds_nobody_admits_nobody_and_one_that_holds_all_admits_all() -> None:
    for total_bytes, admitted in ((FLOORS_BYTES - 1, 0), (3 * FLOORS_BYTES, 3), (UNBOUNDED, 4)):
        plan = plan_of(total_bytes=total_bytes)
        assert len(fill(plan).held) == admitted == min(REQUESTS, admissible_requests(plan))
