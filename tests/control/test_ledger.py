from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.machines import Machine, plans
from workbench.control import ledger
from workbench.control.admission import EDGE_BYTES, REQUEST_BYTES, SLOTS_TAKEN, TENANT_BYTES, TOTAL_BYTES, TURN
from workbench.control.layout import (
    EPOCH,
    PHASE,
    REQUEST_USED,
    RESERVED,
    RETURNED,
    TENANT,
    USED,
    EdgePlan,
    Plan,
    account,
    edge_used,
    request,
    slots_used,
    tenant_used,
)
from workbench.control.phases import DRAINING, RUNNING_PHASE
from workbench.graph import CLIENT
from workbench.verify.scenario import chain, fork_join


class Books:
    """The ledger as a dictionary: what each (request, edge) has reserved, trimmed and returned, in bytes."""

    def __init__(self, plan: Plan, tenants: list[int]) -> None:
        self.plan, self.tenants = plan, tenants
        self.bounds = [plan.edges[edge.name] for edge in plan.carried]
        self.accounts: dict[tuple[int, int], list[int]] = {}
        self.slots: set[tuple[int, int]] = set()

    def floor(self, e: int) -> int:
        return self.bounds[e].floor_chunks * self.bounds[e].chunk_bytes

    def outstanding(self, r: int, e: int) -> int:
        reserved, trimmed, returned = self.accounts.get((r, e), [0, 0, 0])
        return reserved - trimmed - returned

    def used(self, requests: list[int] | None = None, edges: list[int] | None = None) -> int:
        """Bytes used by some requests on some edges; None: by all."""
        return sum(
            max(self.floor(e), self.outstanding(r, e))
            for r, e in self.accounts
            if (requests is None or r in requests) and (edges is None or e in edges)
        )

    def of_tenant(self, t: int) -> list[int]:
        return [r for r, tenant in enumerate(self.tenants) if tenant == t]

    def over(self) -> bool:
        """Whether any bound is exceeded."""
        plan = self.plan
        return (
            self.used() > plan.total_bytes
            or any(self.used(self.of_tenant(t)) > plan.tenant_bytes for t in range(plan.tenants))
            or any(self.used([r]) > plan.request_bytes for r in range(plan.requests))
            or any(self.used(edges=[e]) > bounds.max_bytes for e, bounds in enumerate(self.bounds))
            or any(sum(u == v for _, u in self.slots) > plan.slots[name] for v, name in enumerate(plan.stages))
        )

    def admit(self, r: int) -> None:
        for e in range(len(self.bounds)):
            self.accounts[r, e] = [0, 0, 0]
        self.slots |= {(r, v) for v in range(len(self.plan.stages))}

    def reserve(self, r: int, edges: list[int]) -> None:
        for e in edges:
            self.accounts[r, e][0] += self.bounds[e].chunk_bytes


def agree(box: Machine, books: Books) -> None:
    """The machine's sums are what the books add up to."""
    g, m = box.g, box.m
    assert m[USED] == books.used()
    for t in range(books.plan.tenants):
        assert m[tenant_used(t)] == books.used(books.of_tenant(t))
    for r in range(books.plan.requests):
        assert m[request(g, r) + REQUEST_USED] == books.used([r])
    for e in range(len(books.bounds)):
        assert m[edge_used(g, e)] == books.used(edges=[e])
        for r in range(books.plan.requests):
            assert ledger.outstanding(m, account(g, r, e)) == books.outstanding(r, e)
    for v in range(len(books.plan.stages)):
        assert m[slots_used(g, v)] == sum(u == v for _, u in books.slots)


@given(plans(most=4), st.data())
def test_the_ledger_is_a_dictionary_with_bounds(plan: Plan, data: st.DataObject) -> None:
    """Random sequences: verdicts and sums equal those of the books, and no bound is ever exceeded."""
    box = Machine(plan)
    g, m = box.g, box.m
    tenants = [m[request(g, r) + TENANT] for r in range(plan.requests)]
    books = Books(plan, tenants)
    for _ in range(data.draw(st.integers(1, 40))):
        r = data.draw(st.integers(0, plan.requests - 1))
        e = data.draw(st.integers(0, len(books.bounds) - 1))
        v = data.draw(st.integers(0, len(plan.stages) - 1))
        act = data.draw(st.sampled_from(["admit", "reserve", "trim", "give", "slot", "reclaim"]))
        held = (r, e) in books.accounts
        if act == "admit" and not held:
            trial = Books(plan, tenants)
            trial.accounts, trial.slots = {k: list(x) for k, x in books.accounts.items()}, set(books.slots)
            trial.admit(r)
            assert (ledger.short_of(g, m, r, 0) == 0) == (not trial.over())
            if not trial.over():
                ledger.admit(g, m, r)
                books.admit(r)
        elif act == "reserve" and held:
            outs = [i for i, edge in enumerate(plan.carried) if edge.source == plan.stages[v]]
            trial = Books(plan, tenants)
            trial.accounts = {k: list(x) for k, x in books.accounts.items()}
            trial.reserve(r, outs)
            assert ledger.can_reserve(g, m, r, v) == (not trial.over())
            if not trial.over():
                for out in outs:
                    ledger.reserve(g, m, r, out)
                books.reserve(r, outs)
        elif act == "trim" and held:
            spare = data.draw(st.integers(0, books.outstanding(r, e)))
            ledger.trim(g, m, r, e, spare)
            books.accounts[r, e][1] += spare
        elif act == "give" and held:
            at = account(g, r, e)
            taken = data.draw(st.integers(0, m[at + RESERVED]))
            reserved, trimmed, returned = books.accounts[r, e]
            size = data.draw(st.integers(returned, reserved - trimmed))
            if taken > m[at + RETURNED]:
                books.accounts[r, e][2] = size
            ledger.give_back(g, m, r, e, taken, size)
        elif act == "slot" and held:
            ledger.return_slot(g, m, r, v)
            books.slots.discard((r, v))
        elif act == "reclaim":
            ledger.reclaim(g, m, r)
            books.accounts = {key: value for key, value in books.accounts.items() if key[0] != r}
            books.slots = {key for key in books.slots if key[0] != r}
        agree(box, books)
        assert not books.over()


TIGHT = {
    REQUEST_BYTES: {"request_bytes": 3},
    EDGE_BYTES: {"edges": {"s1>client": EdgePlan(2, max_bytes=3)}},
    TENANT_BYTES: {"tenant_bytes": 7},
    TOTAL_BYTES: {"total_bytes": 7},
    SLOTS_TAKEN: {"slots": {"s1": 1}},
}


@pytest.mark.parametrize("bound", TIGHT)
def test_each_bound_is_looked_at(bound: int) -> None:
    """Two requests of four bytes each, and one bound for less; the bound of one request is too small for ever."""
    edges = {"s0>s1": EdgePlan(2), "s1>client": EdgePlan(2)}
    options = {"edges": edges, **TIGHT[bound]}
    options["edges"] = {**edges, **options["edges"]}
    box = Machine(Plan(chain(2), 2, **options))
    if bound != REQUEST_BYTES:
        assert box(ledger.short_of, 0, 0) == 0
        box(ledger.admit, 0)
    assert box(ledger.short_of, 1, 0) == bound
    assert box(ledger.short_of, 1, 1) == (bound if bound == REQUEST_BYTES else 0)


def test_a_return_that_is_no_news_returns_nothing() -> None:
    box = Machine(Plan(chain(1), 1, edges={"s0>client": EdgePlan(4, 0)}))
    box(ledger.admit, 0)
    for _ in range(3):
        box(ledger.reserve, 0, 0)
    for taken, size, used in ((1, 4, 8), (1, 4, 8), (0, 0, 8), (3, 12, 0), (2, 8, 0), (3, 12, 0)):
        box(ledger.give_back, 0, 0, taken, size)
        assert box.m[USED] == used


def test_a_floor_is_kept_while_others_use_the_pool() -> None:
    """One request takes all that is free; the other still has its floor, and no more."""
    box = Machine(Plan(chain(1), 2, total_bytes=5))
    for r in (0, 1):
        box(ledger.admit, r)
    while box(ledger.can_reserve, 0, 0):
        box(ledger.reserve, 0, 0)
    assert box.m[request(box.g, 0) + REQUEST_USED] == 4
    assert box(ledger.can_reserve, 1, 0)
    box(ledger.reserve, 1, 0)
    assert not box(ledger.can_reserve, 1, 0)
    assert box.m[USED] == 5


def test_both_branches_of_a_fork_or_none() -> None:
    """Room on one branch alone is no room: nothing is held while the other branch is waited for."""
    edges = {"source>left": EdgePlan(1, 1), "source>right": EdgePlan(1, 1, max_bytes=1)}
    box = Machine(Plan(fork_join(), 1, edges=edges))
    box(ledger.admit, 0)
    assert box(ledger.can_reserve, 0, 0)
    for e, edge in enumerate(box.plan.carried):
        if edge.source == "source":
            box(ledger.reserve, 0, e)
    before = list(box.m)
    assert not box(ledger.can_reserve, 0, 0)
    assert box.m == before


def test_a_slot_is_returned_once() -> None:
    box = Machine(Plan(chain(2), 1))
    box(ledger.admit, 0)
    for _ in range(2):
        box(ledger.return_slot, 0, 0)
        assert [box.m[slots_used(box.g, v)] for v in range(2)] == [0, 1]
    for _ in range(2):
        box(ledger.reclaim, 0)
        assert [box.m[slots_used(box.g, v)] for v in range(2)] == [0, 0]
        assert box.m[USED] == 0


def test_only_the_running_epoch_may_work() -> None:
    box = Machine(Plan(chain(1), 1))
    at = request(box.g, 0)
    for phase, epoch, asked, answer in (
        (RUNNING_PHASE, 1, 1, True),
        (RUNNING_PHASE, 1, 0, False),
        (RUNNING_PHASE, 1, 2, False),
        (DRAINING, 1, 1, False),
        (0, 0, 0, False),
    ):
        box.m[at + PHASE], box.m[at + EPOCH] = phase, epoch
        assert box(ledger.open_to, 0, asked) == answer


def test_terminal_edges_are_on_the_books_too() -> None:
    """Output that the client has not taken counts like any other."""
    box = Machine(Plan(chain(1), 1))
    assert [edge.target for edge in box.plan.carried] == [CLIENT]
    box(ledger.admit, 0)
    box(ledger.reserve, 0, 0)
    box(ledger.reserve, 0, 0)
    assert box.m[USED] == 2


def test_a_family_comes_in_together() -> None:
    """The parent's admission promises the children their room; alone a child has to wait for it."""
    box = Machine(Plan(chain(1), 3, total_bytes=3), parents=(-1, 0, -1))
    assert box(ledger.short_of, 1, 0) == TURN
    box(ledger.admit, 0)
    assert [box(ledger.promised, r) for r in range(3)] == [True, True, False]
    assert box.m[USED] == 2
    box(ledger.admit, 1)
    assert box.m[USED] == 2, "what was promised once is not promised again"
    assert box(ledger.short_of, 2, 0) == 0
    box(ledger.admit, 2)
    box(ledger.reclaim, 0)
    assert box.m[USED] == 2
    assert box(ledger.promised, 1), "each gives back its own"


def test_a_family_that_does_not_fit_waits_as_a_whole() -> None:
    box = Machine(Plan(chain(1), 3, total_bytes=2), parents=(-1, 0, -1))
    box(ledger.admit, 2)
    assert box(ledger.short_of, 0, 0) == TOTAL_BYTES
    assert box(ledger.short_of, 0, 1) == 0
    box(ledger.reclaim, 2)
    assert box(ledger.short_of, 0, 0) == 0
