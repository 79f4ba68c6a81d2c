"""Where everything lies: the flat configuration vector `g` and the flat memory vector `m` of one protocol machine.

Rules read and write records of integers at addresses, so that one source serves a list in the explorer and an array in
the replay engine. Who may touch what is part of the protocol:

========== =============================================================== =======================================
party      memory                                                          read and written by
========== =============================================================== =======================================
controller ledger, request records, stop states, accounts                  `ledger`, `lifecycle`
stage      stage records, slots, sender and receiver ends at that stage    `credit`, `objects`, `machine`; lost when
                                                                           its worker dies
client     client record, cursors of the terminal edges                    `machine`; survives everything
========== =============================================================== =======================================

The ledger answers a stage by a synchronous call (shared memory, or one round trip); everything else travels as a
message that may be lost, late, repeated or out of order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from workbench.control.ranges import MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_EDGES, UNBOUNDED, shown, truth, within
from workbench.errors import UsageError
from workbench.graph import CLIENT, Edge, StageGraph
from workbench.twin import Vector, rule

# Head of `g`.
(
    REQUESTS,
    STAGES,
    EDGES,
    TENANTS,
    TOTAL_MAX,  # bytes that all requests together may hold: B_max
    TENANT_MAX,  # bytes per tenant
    REQUEST_MAX,  # bytes per request
    WAITING_MAX,  # requests that may wait for admission
    ATTEMPTS,  # epochs a request may use
    REPLAYABLE,  # 1: a second attempt makes the same chunks (seeded, same kernels), so delivery may resume after a loss
    REQUEST_AT,  # address in `m` of the first request
    REQUEST_SIZE,
    EDGE_AT,  # address in `g` of the first edge row
    STAGE_AT,  # address in `g` of the first stage row
    SLOT_AT,  # address in `m` of the first slot
    EXTRA,  # length of `g`: a driver's own configuration begins here
    G_HEAD,
) = range(17)

# Edge row in `g`. TO of a terminal edge is STAGES: the client.
FROM, TO, CHUNK_BYTES, FLOOR, WINDOW, WINDOW_BYTES, EDGE_MAX, WHOLE, EDGE_ROW = range(9)

# Stage row in `g`: slots, index of its first slot, and its edges as stretches of the edge lists that follow.
SLOTS, FIRST_SLOT, IN_AT, IN_COUNT, OUT_AT, OUT_COUNT, STAGE_ROW = range(7)

# Ledger at the front of `m`: bytes promised in all and requests waiting; then per tenant, per edge, per stage.
USED, WAITING, LEDGER_HEAD = range(3)

# Slot of a stage, in `m`: one resident state object (KV, vocoder state). OWNER is request + 1, or 0 when free.
OWNER, OWNER_EPOCH, GENERATION, SLOT_TENANT, SLOT_REVISION, SLOT_SIZE = range(6)

# Request record: the controller's view.
(
    PHASE,
    OUTCOME,  # 0, or the terminal state; written once
    THEN,  # what follows the drain: CLOSE or AGAIN
    EPOCH,
    DELIVERED,  # terminal edges whose final chunk the client has taken
    EXPOSED,  # 1 once a chunk may have reached the client in any epoch
    ARMED,  # 1 while a deadline timer exists
    NOTICE,  # news to the client: NO_NEWS, UNTOLD, TOLD
    TENANT,
    PARENT,  # request + 1 of the parent, 0 for none
    CHILDREN,  # children that have not ended well yet
    REVISION,  # model revision in force when this epoch started
    REQUEST_USED,  # bytes promised to this request
    REQUEST_HEAD,
) = range(14)

# Per (request, stage), the controller's part and the stage's part.
STOP, HOLDS_SLOT, STAGE_CONTROL = range(3)
STATUS, STAGE_EPOCH, READY, RUNNING, LAST, SLOT, SLOT_GENERATION, STAGE_SIZE = range(8)

# Per (request, edge): the account in the ledger, the sender's end, the receiver's end.
RESERVED, RESERVED_BYTES, TRIMMED_BYTES, RETURNED, RETURNED_BYTES, FLOORED, ACCOUNT_SIZE = range(7)
SENT, SENT_BYTES, TAKEN_KNOWN, TAKEN_KNOWN_BYTES, LIMIT, LIMIT_BYTES, FINAL_SENT, SENDER_SIZE = range(8)
(
    RECEIVED,
    TAKEN,
    TAKEN_BYTES,
    ADVERTISED,
    ADVERTISED_BYTES,
    WIDTH,  # window in force, chunks: what a credit protocol may change
    WIDTH_BYTES,
    FINAL_RECEIVED,
    RECEIVER_SIZE,
) = range(9)

# Client record of a request, then one cursor per edge (used on terminal edges).
CLOSED, CLIENT_EPOCH, CLIENT_HEAD = range(3)


@rule
def edge_row(g: Vector, e: int) -> int:
    """Address in `g` of edge `e`."""
    return g[EDGE_AT] + e * EDGE_ROW


@rule
def stage_row(g: Vector, v: int) -> int:
    """Address in `g` of stage `v`."""
    return g[STAGE_AT] + v * STAGE_ROW


@rule
def tenant_used(t: int) -> int:
    """Address in `m` of the bytes promised to tenant `t`."""
    return LEDGER_HEAD + t


@rule
def edge_used(g: Vector, e: int) -> int:
    """Address in `m` of the bytes promised on edge `e`, all requests together."""
    return LEDGER_HEAD + g[TENANTS] + e


@rule
def slots_used(g: Vector, v: int) -> int:
    """Address in `m` of the slots promised at stage `v`."""
    return LEDGER_HEAD + g[TENANTS] + g[EDGES] + v


@rule
def revision_of(g: Vector, v: int) -> int:
    """Address in `m` of the model revision that stage `v` runs."""
    return LEDGER_HEAD + g[TENANTS] + g[EDGES] + g[STAGES] + v


@rule
def slot(g: Vector, v: int, i: int) -> int:
    """Address in `m` of slot `i` of stage `v`."""
    return g[SLOT_AT] + (g[stage_row(g, v) + FIRST_SLOT] + i) * SLOT_SIZE


@rule
def request(g: Vector, r: int) -> int:
    """Address in `m` of request `r`."""
    return g[REQUEST_AT] + r * g[REQUEST_SIZE]


@rule
def stage_control(g: Vector, r: int, v: int) -> int:
    """Address in `m` of what the controller keeps about request `r` at stage `v`."""
    return request(g, r) + REQUEST_HEAD + v * STAGE_CONTROL


@rule
def account(g: Vector, r: int, e: int) -> int:
    """Address in `m` of the ledger's account of (`r`, `e`)."""
    return request(g, r) + REQUEST_HEAD + g[STAGES] * STAGE_CONTROL + e * ACCOUNT_SIZE


@rule
def client(g: Vector, r: int) -> int:
    """Address in `m` of the client's record of request `r`."""
    return account(g, r, g[EDGES])


@rule
def cursor(g: Vector, r: int, e: int) -> int:
    """Address in `m` of the number of chunks of terminal edge `e` that the client has committed, in any epoch."""
    return client(g, r) + CLIENT_HEAD + e


@rule
def stage(g: Vector, r: int, v: int) -> int:
    """Address in `m` of the stage's own record of request `r` at stage `v`."""
    return cursor(g, r, g[EDGES]) + v * STAGE_SIZE


@rule
def sender(g: Vector, r: int, e: int) -> int:
    """Address in `m` of the sending end of (`r`, `e`)."""
    return stage(g, r, g[STAGES]) + e * SENDER_SIZE


@rule
def receiver(g: Vector, r: int, e: int) -> int:
    """Address in `m` of the receiving end of (`r`, `e`)."""
    return sender(g, r, g[EDGES]) + e * RECEIVER_SIZE


@rule
def begin(g: Vector, m: Vector, r: int, tenant: int, parent: int) -> None:
    """Make record `r` that of a new request, of which nobody has heard.

    At the start of a run, and for a record whose last request is closed and whose client was told. `parent` is -1, or
    the record of a request of the same tenant that has no parent itself and stands before `r`.
    """
    at = request(g, r)
    for i in range(g[REQUEST_SIZE]):
        m[at + i] = 0
    m[at + TENANT] = tenant
    m[at + PARENT] = parent + 1
    if parent >= 0:
        m[request(g, parent) + CHILDREN] += 1
    for v in range(g[STAGES]):
        m[stage(g, r, v) + SLOT] = -1
    # The client's ends are open from the start: nobody tells it to open them in the first epoch.
    for e in range(g[EDGES]):
        row, end = edge_row(g, e), receiver(g, r, e)
        if g[row + TO] == g[STAGES]:
            m[end + WIDTH] = m[end + ADVERTISED] = g[row + WINDOW]
            m[end + WIDTH_BYTES] = m[end + ADVERTISED_BYTES] = g[row + WINDOW_BYTES]


@dataclass(frozen=True, slots=True)
class EdgePlan:
    """Bounds of one edge.

    Attributes
    ----------
    chunk_bytes : int
        Largest chunk: what is reserved before the chunk exists.
    floor_chunks : int
        Chunks per admitted request that nobody else may use; at least the skew of the branches that meet
        downstream, plus one. 0 turns the floor off.
    window_chunks, window_bytes : int
        How far the sender may run ahead of what the consumer has taken over, at the start.
    max_bytes : int
        Bound on the edge, all requests together.
    """

    chunk_bytes: int = 1
    floor_chunks: int = 1
    window_chunks: int = 1
    window_bytes: int = UNBOUNDED
    max_bytes: int = UNBOUNDED


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that the machine must know beforehand about one run.

    Attributes
    ----------
    graph : StageGraph
        Stages and edges. Edges from the client carry the request itself and are not under credit.
    requests, tenants : int
        Requests that are in the system at once (records are reused), and tenants.
    edges : mapping of str to EdgePlan
        Bounds per edge name ``source>target``; edges not named have the default bounds.
    slots : mapping of str to int
        State objects that a stage can keep at once; default `requests`.
    total_bytes, tenant_bytes, request_bytes : int
        Bounds on promised bytes: in all (`B_max`), per tenant, per request.
    waiting : int
        Requests that may wait for admission.
    attempts : int
        Epochs a request may use, the first included.
    replayable : bool
        Whether a second attempt makes the same chunks.

    Raises
    ------
    UsageError
        A name that the graph does not have, a number out of range, a graph with more edges than `MAX_EDGES`, or a stage
        that starts on any one of several in-edges: the machine joins them all.
    """

    graph: StageGraph
    requests: int
    tenants: int = 1
    edges: dict[str, EdgePlan] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    total_bytes: int = UNBOUNDED
    tenant_bytes: int = UNBOUNDED
    request_bytes: int = UNBOUNDED
    waiting: int = MAX_CHUNKS
    attempts: int = 2
    replayable: bool = True

    def __post_init__(self) -> None:
        where = f"plan of graph {self.graph.name!r}"
        within(self.requests, 1, MAX_CHUNKS, f"{where}, requests")
        within(self.tenants, 1, self.requests, f"{where}, tenants")
        within(self.attempts, 1, MAX_CHUNKS, f"{where}, attempts")
        within(self.waiting, 0, MAX_CHUNKS, f"{where}, waiting")
        truth(self.replayable, f"{where}, replayable")
        for name in ("total_bytes", "tenant_bytes", "request_bytes"):
            within(getattr(self, name), 0, UNBOUNDED, f"{where}, {name}")
        names = [edge.name for edge in self.carried]
        within(len(names), 1, MAX_EDGES, f"{where}, edges")
        for name, bounds in self.edges.items():
            if name not in names:
                raise UsageError(f"edges among {names}", shown(name), where=where)
            at = f"{where}, edge {name}"
            if not isinstance(bounds, EdgePlan):
                raise UsageError("an EdgePlan", shown(bounds), where=at)
            within(bounds.chunk_bytes, 1, MAX_CHUNK_BYTES, f"{at}, chunk_bytes")
            within(bounds.floor_chunks, 0, MAX_CHUNKS, f"{at}, floor_chunks")
            within(bounds.window_chunks, 1, UNBOUNDED, f"{at}, window_chunks")
            within(bounds.window_bytes, 1, UNBOUNDED, f"{at}, window_bytes")
            within(bounds.max_bytes, 0, UNBOUNDED, f"{at}, max_bytes")
        for name in self.stages:
            inputs = [edge.name for edge in self.carried if edge.target == name]
            if len(inputs) > 1 and not set(inputs) <= set(self.graph.stage(name).join):
                raise UsageError(
                    f"a join over all in-edges, {inputs}",
                    f"join {list(self.graph.stage(name).join)}",
                    where=f"{where}, stage {name}",
                    fix="The machine starts a task when all in-edges have a chunk; no stage starts on any one of them.",
                )
        for name, count in self.slots.items():
            if name not in self.stages:
                raise UsageError(f"stages among {list(self.stages)}", shown(name), where=where)
            within(count, 1, MAX_CHUNKS, f"{where}, slots of {name}")

    @property
    def stages(self) -> tuple[str, ...]:
        """Stage names in the machine's numbering: topological order."""
        return self.graph.order

    @property
    def carried(self) -> tuple[Edge, ...]:
        """Edges under credit, in the machine's numbering: the graph's order without those that leave the client."""
        return tuple(edge for edge in self.graph.edges if edge.source != CLIENT)

    def configuration(self) -> list[int]:
        """The vector `g`."""
        stages, edges = self.stages, self.carried
        number = {name: i for i, name in enumerate(stages)} | {CLIENT: len(stages)}
        g = [0] * G_HEAD
        g[EDGE_AT] = len(g)
        for edge in edges:
            bounds = self.edges.get(edge.name, EdgePlan())
            g += [
                number[edge.source],
                number[edge.target],
                bounds.chunk_bytes,
                bounds.floor_chunks,
                bounds.window_chunks,
                bounds.window_bytes,
                bounds.max_bytes,
                int(edge.kind == "whole" and edge.target != CLIENT),
            ]
        g[STAGE_AT] = len(g)
        lists_at = len(g) + len(stages) * STAGE_ROW
        lists: list[int] = []
        first_slot = 0
        for name in stages:
            slots = self.slots.get(name, self.requests)
            row = [slots, first_slot]
            first_slot += slots
            for end in ("target", "source"):
                mine = [i for i, edge in enumerate(edges) if getattr(edge, end) == name]
                row += [lists_at + len(lists), len(mine)]
                lists += mine
            g += row
        g += lists
        g[REQUESTS], g[STAGES], g[EDGES], g[TENANTS] = self.requests, len(stages), len(edges), self.tenants
        g[TOTAL_MAX], g[TENANT_MAX], g[REQUEST_MAX] = self.total_bytes, self.tenant_bytes, self.request_bytes
        g[WAITING_MAX], g[ATTEMPTS], g[REPLAYABLE] = self.waiting, self.attempts, int(self.replayable)
        g[SLOT_AT] = LEDGER_HEAD + self.tenants + len(edges) + 2 * len(stages)
        g[REQUEST_AT] = g[SLOT_AT] + first_slot * SLOT_SIZE
        g[REQUEST_SIZE] = receiver(g, 0, len(edges)) - request(g, 0)
        g[EXTRA] = len(g)
        return g

    def memory(self, tenants: Sequence[int] = (), parents: Sequence[int] = ()) -> list[int]:
        """The vector `m` at the start: nothing admitted, nothing held.

        Parameters
        ----------
        tenants : sequence of int
            Tenant of each request; empty: requests take turns, children as their parent.
        parents : sequence of int
            Parent of each request, -1 for none; empty: none. A parent must stand before its children.

        Raises
        ------
        UsageError
            A tenant or parent that cannot be, or not one for each request.
        """
        for name, given in (("tenants", tenants), ("parents", parents)):
            if len(given) not in (0, self.requests):
                raise UsageError(f"one for each of {self.requests} requests, or none", shown(given), where=name)
        g = self.configuration()
        m = [0] * (g[REQUEST_AT] + self.requests * g[REQUEST_SIZE])
        for r in range(self.requests):
            parent = within(parents[r], -1, r - 1, f"parent of request {r}") if parents else -1
            tenant = r % self.tenants
            if tenants:
                tenant = within(tenants[r], 0, self.tenants - 1, f"tenant of request {r}")
            if parent >= 0:
                above = request(g, parent)
                if m[above + PARENT] > 0:
                    raise UsageError("a parent that has none itself", str(parent), where=f"parent of request {r}")
                if tenants and tenant != m[above + TENANT]:
                    raise UsageError(
                        f"the tenant of its parent, {m[above + TENANT]}", str(tenant), where=f"tenant of request {r}"
                    )
                tenant = m[above + TENANT]
            begin(g, m, r, tenant, parent)
        return m
