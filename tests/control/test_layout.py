from __future__ import annotations

import pytest
from hypothesis import given

from tests.control.machines import Machine, plans
from workbench.control import layout
from workbench.control.layout import (
    CHILDREN,
    CLIENT_HEAD,
    EDGES,
    EXTRA,
    FROM,
    IN_AT,
    IN_COUNT,
    OUT_AT,
    OUT_COUNT,
    PARENT,
    REQUEST_HEAD,
    REQUESTS,
    SLOT,
    SLOT_SIZE,
    SLOTS,
    STAGES,
    TENANT,
    TENANTS,
    TO,
    WHOLE,
    EdgePlan,
    Plan,
)
from workbench.control.ranges import MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_EDGES, UNBOUNDED
from workbench.errors import UsageError
from workbench.graph import CLIENT, Edge, Stage, StageGraph
from workbench.verify.scenario import chain, fork_join

PAIR = chain(2)


def pieces(g: list[int]) -> list[tuple[int, int]]:
    """Every record of the memory: address and size."""
    found = [(layout.USED, layout.LEDGER_HEAD)]
    found += [(layout.tenant_used(t), 1) for t in range(g[TENANTS])]
    found += [(layout.edge_used(g, e), 1) for e in range(g[EDGES])]
    for v in range(g[STAGES]):
        found += [(layout.slots_used(g, v), 1), (layout.revision_of(g, v), 1)]
        found += [(layout.slot(g, v, i), SLOT_SIZE) for i in range(g[layout.stage_row(g, v) + SLOTS])]
    for r in range(g[REQUESTS]):
        found += [(layout.request(g, r), REQUEST_HEAD), (layout.client(g, r), CLIENT_HEAD)]
        for v in range(g[STAGES]):
            found += [(layout.stage_control(g, r, v), layout.STAGE_CONTROL), (layout.stage(g, r, v), layout.STAGE_SIZE)]
        for e in range(g[EDGES]):
            found += [(layout.account(g, r, e), layout.ACCOUNT_SIZE), (layout.cursor(g, r, e), 1)]
            found += [(layout.sender(g, r, e), layout.SENDER_SIZE), (layout.receiver(g, r, e), layout.RECEIVER_SIZE)]
    return found


@given(plans())
def test_records_fill_the_memory_without_a_gap_or_an_overlap(plan: Plan) -> None:
    g, m = plan.configuration(), plan.memory()
    at = 0
    for address, size in sorted(pieces(g)):
        assert address == at
        at += size
    assert at == len(m)


@given(plans())
def test_the_configuration_says_what_the_graph_says(plan: Plan) -> None:
    g = plan.configuration()
    assert g[EXTRA] == len(g)
    names = [*plan.stages, CLIENT]
    incoming: dict[int, list[int]] = {v: [] for v in range(len(names))}
    outgoing: dict[int, list[int]] = {v: [] for v in range(len(names))}
    for e, edge in enumerate(plan.carried):
        row = layout.edge_row(g, e)
        assert (names[g[row + FROM]], names[g[row + TO]]) == (edge.source, edge.target)
        assert g[row + WHOLE] == (edge.kind == "whole")
        assert g[row + FROM] < g[row + TO], "stages are numbered so that edges go up"
        outgoing[g[row + FROM]].append(e)
        incoming[g[row + TO]].append(e)
    for v in range(g[STAGES]):
        row = layout.stage_row(g, v)
        assert g[g[row + IN_AT] : g[row + IN_AT] + g[row + IN_COUNT]] == incoming[v]
        assert g[g[row + OUT_AT] : g[row + OUT_AT] + g[row + OUT_COUNT]] == outgoing[v]
        assert g[row + SLOTS] == plan.slots[plan.stages[v]]


def test_a_whole_edge_to_the_client_is_taken_chunk_by_chunk() -> None:
    stages = (Stage(CLIENT, "client"), Stage("only", "ar"))
    edges = (Edge(CLIENT, "only", "tokens", "whole"), Edge("only", CLIENT, "tokens", "whole"))
    g = Plan(StageGraph("g", "t", "s", stages, edges), 1).configuration()
    assert g[layout.edge_row(g, 0) + WHOLE] == 0


def test_the_size_of_a_memory_is_the_sum_of_its_parts() -> None:
    """Two requests over two stages and two edges, by hand."""
    ledger = 2 + 1 + 2 + 2 + 2
    slots = 2 * 2 * 5
    controller = 13 + 2 * 2 + 2 * 6
    client = 2 + 2
    stages = 2 * 7 + 2 * 7 + 2 * 8
    assert len(Plan(PAIR, 2).memory()) == ledger + slots + 2 * (controller + client + stages)


def test_requests_take_turns_among_tenants_unless_told() -> None:
    plan = Plan(PAIR, 5, tenants=2)
    for tenants, expected in (((), [0, 1, 0, 1, 0]), ((1, 1, 0, 0, 1), [1, 1, 0, 0, 1])):
        box = Machine(plan, tenants=tenants)
        assert [box.m[layout.request(box.g, r) + TENANT] for r in range(5)] == expected


def test_a_parent_counts_its_children() -> None:
    box = Machine(Plan(PAIR, 4), parents=(-1, 0, 0, -1))
    assert [box.m[layout.request(box.g, r) + PARENT] for r in range(4)] == [0, 1, 1, 0]
    assert [box.m[layout.request(box.g, r) + CHILDREN] for r in range(4)] == [2, 0, 0, 0]


def test_nothing_is_held_at_the_start() -> None:
    box = Machine(Plan(fork_join(), 3))
    assert all(box.m[layout.stage(box.g, r, v) + SLOT] == -1 for r in range(3) for v in range(4))
    assert box.m[layout.USED] == box.m[layout.WAITING] == 0


WRONG = [
    ({"requests": 0}, "requests", "1 to", "0"),
    ({"requests": MAX_CHUNKS + 1}, "requests", "1 to", str(MAX_CHUNKS + 1)),
    ({"requests": True}, "requests", "1 to", "True"),
    ({"tenants": 3}, "tenants", "1 to 2", "3"),
    ({"attempts": 0}, "attempts", "1 to", "0"),
    ({"waiting": -1}, "waiting", "0 to", "-1"),
    ({"total_bytes": UNBOUNDED + 1}, "total_bytes", f"0 to {UNBOUNDED}", str(UNBOUNDED + 1)),
    ({"tenant_bytes": -5}, "tenant_bytes", "0 to", "-5"),
    ({"request_bytes": 1.5}, "request_bytes", "0 to", "1.5"),
    ({"edges": {"s0>s2": EdgePlan()}}, "plan of graph 'chain-2'", "s0>s1", "s0>s2"),
    ({"edges": {"client>s0": EdgePlan()}}, "plan of graph 'chain-2'", "s0>s1", "client>s0"),
    ({"edges": {"s0>s1": EdgePlan(chunk_bytes=0)}}, "edge s0>s1, chunk_bytes", "1 to", "0"),
    ({"edges": {"s0>s1": EdgePlan(chunk_bytes=MAX_CHUNK_BYTES + 1)}}, "chunk_bytes", "1 to", str(MAX_CHUNK_BYTES + 1)),
    ({"edges": {"s0>s1": EdgePlan(floor_chunks=-1)}}, "floor_chunks", "0 to", "-1"),
    ({"edges": {"s0>s1": EdgePlan(window_chunks=0)}}, "window_chunks", "1 to", "0"),
    ({"edges": {"s0>s1": EdgePlan(window_bytes=0)}}, "window_bytes", "1 to", "0"),
    ({"edges": {"s0>s1": EdgePlan(max_bytes=-1)}}, "max_bytes", "0 to", "-1"),
    ({"edges": {"s0>s1": 3}}, "edge s0>s1", "an EdgePlan", "3"),
    ({"replayable": 2}, "replayable", "true or false", "2"),
    ({"replayable": None}, "replayable", "true or false", "None"),
    ({"slots": {"s9": 1}}, "plan of graph 'chain-2'", "s0", "s9"),
    ({"slots": {"s0": 0}}, "slots of s0", "1 to", "0"),
]


@pytest.mark.parametrize(("change", "where", "expected", "found"), WRONG, ids=[str(row[0])[:60] for row in WRONG])
def test_a_plan_out_of_range_is_refused_with_values(change: dict, where: str, expected: str, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        Plan(**{"graph": PAIR, "requests": 2, **change})
    for word in (where, expected, found):
        assert word in str(caught.value)


def test_a_graph_with_too_many_edges_is_refused() -> None:
    with pytest.raises(UsageError, match=f"from 1 to {MAX_EDGES}"):
        Plan(chain(MAX_EDGES + 1), 1)
    assert len(Plan(chain(MAX_EDGES), 1).carried) == MAX_EDGES


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ({"tenants": (0, 2)}, "tenant of request 1"),
        ({"tenants": (0, -1)}, "tenant of request 1"),
        ({"parents": (0, -1)}, "parent of request 0"),
        ({"parents": (-1, 1)}, "parent of request 1"),
        ({"parents": (-1, 0, 1)}, "parent of request 2"),
    ],
)
def test_a_family_or_tenant_that_cannot_be_is_refused(memory: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Plan(PAIR, len(next(iter(memory.values()))), tenants=2).memory(**memory)


@pytest.mark.parametrize("name", ["tenants", "parents"])
@pytest.mark.parametrize("count", [1, 3])
def test_tenants_and_parents_are_one_for_each_request(name: str, count: int) -> None:
    with pytest.raises(UsageError, match=f"{name}: expected one for each of 2 requests, or none"):
        Plan(PAIR, 2).memory(**{name: (0 if name == "tenants" else -1,) * count})


def test_the_largest_sums_of_rules_stay_in_64_bits() -> None:
    """A bound plus the floors of one more request, and a window on top of all bytes of a stream."""
    assert UNBOUNDED + MAX_EDGES * MAX_CHUNKS * MAX_CHUNK_BYTES < 1 << 63
    assert UNBOUNDED + MAX_CHUNKS * MAX_CHUNK_BYTES < 1 << 63


def test_a_record_that_is_used_again_is_as_at_the_start() -> None:
    """Of another tenant and without a parent; nothing else of the memory changes."""
    box = Machine(Plan(fork_join(), 2, tenants=2))
    at = layout.request(box.g, 1)
    before = list(box.m)
    for i in range(at, at + box.g[layout.REQUEST_SIZE]):
        box.m[i] = 7
    box(layout.begin, 1, 0, -1)
    before[at + TENANT] = 0
    assert box.m == before


def test_a_stage_that_any_input_starts_is_refused() -> None:
    names = ("a", "b", "c")
    edges = ((CLIENT, "a"), (CLIENT, "b"), ("a", "c"), ("b", "c"), ("c", CLIENT))
    stages = (Stage(CLIENT, "client"), *(Stage(name, "ar") for name in names))
    graph = StageGraph("any", "", "", stages, tuple(Edge(a, b, "tokens", "stream") for a, b in edges))
    with pytest.raises(
        UsageError, match=r"stage c: expected a join over all in-edges, \['a>c', 'b>c'\], found join \[\]"
    ):
        Plan(graph, 1)
