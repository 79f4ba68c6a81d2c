"""Named small worlds: which graph, bounds and faults meet in one exploration, and why that world exists.

The *small* ones are explored interpreted, one after another, while the tests run, and show the seeded mutants of
`workbench.verify.mutants`; the *medium* ones are explored compiled; the *large* ones belong to the long tier. Between
them they use every fault of `workbench.verify.scenario.FAULTS` and make every bound bite.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace

from workbench.control.layout import EdgePlan
from workbench.errors import UsageError
from workbench.verify.scenario import Scenario, bounded, chain, fork_join, joined, split, whole

SIZES = ("small", "medium", "large")


@dataclass(frozen=True, slots=True)
class Entry:
    """One named world.

    Attributes
    ----------
    name : str
        Kebab-case.
    why : str
        What only this world shows, in one line.
    size : str
        ``small`` (at most 60,000 states), ``medium`` (at most 2 million) or ``large``.
    scenario : Scenario
        The world.
    """

    name: str
    why: str
    size: str
    scenario: Scenario


def _narrow_right() -> Scenario:
    """A fork whose second edge has room for one chunk of both requests together."""
    plan = bounded(split(), 1, window=2, spare_bytes=4)
    narrow = EdgePlan(chunk_bytes=1, floor_chunks=1, window_chunks=2, window_bytes=2, max_bytes=1)
    return Scenario(replace(plan, edges={**plan.edges, "source>right": narrow}))


def _uneven(edge: str, *, coarse: bool = False) -> Scenario:
    """A fork that keeps a floor of two chunks on one edge, and no room beyond the floors."""
    plan = bounded(split(), 1, window=3, spare_bytes=1)
    deep = replace(plan.edges[edge], floor_chunks=2)
    return Scenario(replace(plan, edges={**plan.edges, edge: deep}), coarse=coarse)


def _exact() -> Scenario:
    """Two stages whose floors are all the room that there is, by every bound."""
    plan = bounded(chain(2), 1, total_bytes=2, tenant_bytes=2, request_bytes=2)
    edges = {name: replace(edge, max_bytes=1) for name, edge in plan.edges.items()}
    return Scenario(replace(plan, edges=edges, waiting=0))


def _one_edge() -> Scenario:
    """Two requests through one stage whose edge holds one chunk."""
    plan = bounded(chain(1), 2, spare_bytes=2)
    return Scenario(replace(plan, edges={"s0>client": replace(plan.edges["s0>client"], max_bytes=1)}))


def _far_ahead() -> Scenario:
    """A window of three chunks, and every bound has room for exactly that."""
    plan = bounded(chain(1), 1, window=3, total_bytes=3, tenant_bytes=3, request_bytes=3)
    return Scenario(replace(plan, edges={"s0>client": replace(plan.edges["s0>client"], max_bytes=3)}), chunks=4)


def _by_bytes() -> Scenario:
    """Two stages whose windows are bounded by bytes: two chunks where three would do, and less than one chunk."""
    plan = bounded(chain(2), 1, window=3, chunk_bytes=2, spare_bytes=8)
    edges = {"s0>s1": replace(plan.edges["s0>s1"], window_bytes=4)}
    edges["s1>client"] = replace(plan.edges["s1>client"], window_bytes=1)
    return Scenario(replace(plan, edges=edges), chunks=4)


def _entries() -> tuple[Entry, ...]:
    """All worlds, the small ones first."""
    one, two, pair = bounded(chain(1), 1), bounded(chain(1), 2), bounded(chain(2), 1)
    ahead = bounded(chain(1), 1, window=2, spare_bytes=1)
    loss = {"lose-data": 1, "lose-credit": 1, "lose-control": 1, "lose-reply": 1}
    copies = {"duplicate-data": 1, "duplicate-credit": 1, "duplicate-control": 1, "duplicate-reply": 1}
    narrow = bounded(chain(1), 2, slots={"s0": 1})
    shared = bounded(chain(1), 2, tenants=2, tenant_bytes=1, spare_bytes=1, window=2)
    own = bounded(chain(1), 2, request_bytes=2, window=3, spare_bytes=3)
    short = bounded(chain(1), 2, window=2, chunk_bytes=2, spare_bytes=1)
    crowded = bounded(chain(1), 3, total_bytes=2, waiting=1)
    crowd = bounded(chain(1), 3, slots={"s0": 1}, waiting=1)

    def small(name: str, why: str, scenario: Scenario) -> Entry:
        return Entry(name, why, "small", scenario)

    def medium(name: str, why: str, scenario: Scenario) -> Entry:
        return Entry(name, why, "medium", scenario)

    def large(name: str, why: str, scenario: Scenario) -> Entry:
        return Entry(name, why, "large", scenario)

    return (
        small("cancel", "the client gives up at any moment", Scenario(one, faults={"cancel": 1})),
        small("one-stage", "two requests share a stage, and one is cancelled", Scenario(two, faults={"cancel": 1})),
        small(
            "cancel-ahead",
            "the client gives up while the stage is two chunks ahead of it",
            Scenario(ahead, chunks=3, faults={"cancel": 1}),
        ),
        small("tight", "room for one of two requests", Scenario(replace(two, total_bytes=1), faults={"cancel": 1})),
        small("lossy", "each kind of message is lost once", Scenario(one, faults=loss)),
        small("copies", "each kind of message arrives twice", Scenario(one, faults=copies)),
        small(
            "reordered",
            "messages overtake each other in a window of two",
            Scenario(
                ahead,
                chunks=4,
                faults={"reorder-data": 1, "reorder-credit": 1, "duplicate-credit": 1, "lose-data": 1},
            ),
        ),
        small(
            "resized",
            "the credit protocol narrows and widens a window under way",
            Scenario(bounded(chain(2), 1, window=2, spare_bytes=1), chunks=3, faults={"resize": 2, "lose-credit": 1}),
        ),
        small(
            "pair",
            "two stages, a lost and a repeated chunk, and a cancel",
            Scenario(pair, faults={"cancel": 1, "lose-data": 1, "duplicate-data": 1}),
        ),
        small(
            "room-downstream",
            "the first stage runs ahead while the floors leave room for the second",
            Scenario(bounded(chain(2), 1, window=2), chunks=3),
        ),
        small(
            "failing",
            "a launch ends in an error while the next stage still works",
            Scenario(bounded(chain(2), 1, window=2, spare_bytes=1), faults={"fail": 1, "lose-credit": 1}),
        ),
        small(
            "deadline",
            "the deadline passes at any moment, while starts and stops are lost",
            Scenario(pair, faults={"deadline": 1, "lose-control": 1}),
        ),
        small(
            "lost-branch",
            "a stage silently forgets a request, and only the deadline helps",
            Scenario(pair, faults={"lost-branch": 1}),
        ),
        small("crash", "the worker under two requests dies", Scenario(two, chunks=1, faults={"kill": 1})),
        small(
            "crash-copies",
            "data of the first attempt arrives in the second",
            Scenario(pair, faults={"kill": 1, "duplicate-data": 1}),
        ),
        small(
            "crash-credit",
            "credit of the first attempt arrives in the second",
            Scenario(pair, faults={"kill": 1, "duplicate-credit": 1}),
        ),
        small(
            "crash-reordered",
            "a chunk of the second attempt overtakes one of the first",
            Scenario(pair, faults={"kill": 1, "reorder-data": 1}),
        ),
        small(
            "crash-stop",
            "starts and stops of the first attempt arrive in the second",
            Scenario(pair, chunks=1, faults={"kill": 1, "duplicate-control": 1}),
        ),
        small(
            "crash-answer",
            "the answer to a stop of the first attempt arrives in the second",
            Scenario(replace(one, attempts=3), faults={"kill": 2, "duplicate-reply": 1}),
        ),
        small(
            "crash-cancel",
            "the client gives up while another attempt is prepared",
            Scenario(one, faults={"kill": 1, "cancel": 1}),
        ),
        small(
            "crash-cancel-pair",
            "the client gives up while stages still drain for another attempt",
            Scenario(pair, chunks=1, faults={"kill": 1, "cancel": 1}),
        ),
        small(
            "retry",
            "three attempts are allowed, and two workers die",
            Scenario(replace(one, attempts=3), faults={"kill": 2, "duplicate-data": 1}),
        ),
        small("last-attempt", "no second attempt is allowed", Scenario(replace(pair, attempts=1), faults={"kill": 1})),
        small(
            "not-replayable",
            "a second attempt would make other chunks than the client has",
            Scenario(replace(one, replayable=False), faults={"kill": 1, "duplicate-data": 1}),
        ),
        small(
            "retry-upgrade",
            "a second attempt runs when the model is replaced, and the client has chunks of the first",
            Scenario(replace(one, attempts=3), faults={"kill": 1, "upgrade": 1}),
        ),
        small(
            "retry-forgotten",
            "a second attempt is silently forgotten",
            Scenario(one, chunks=1, faults={"kill": 1, "lost-branch": 1}),
        ),
        small("upgrade", "the model is replaced under a request", Scenario(one, faults={"upgrade": 1})),
        small(
            "upgrade-pair",
            "the model of a later stage is replaced before the request reaches it",
            Scenario(pair, faults={"upgrade": 1}),
        ),
        small(
            "upgrade-waiting",
            "the model is replaced while a second attempt waits for admission",
            Scenario(one, faults={"kill": 1, "upgrade": 1}),
        ),
        small(
            "slots",
            "two requests, one state slot, a cancel and a lost answer",
            Scenario(narrow, faults={"cancel": 1, "lose-reply": 1}),
        ),
        small("queue", "one of three may wait", Scenario(crowd, chunks=1, faults={"cancel": 1})),
        small(
            "queue-of-two",
            "two of three wait at once",
            Scenario(replace(crowd, waiting=2), chunks=1, faults={"cancel": 1}, coarse=True),
        ),
        small("tenants", "each tenant has room for one chunk", Scenario(shared, faults={"cancel": 1})),
        small(
            "tenant-bound",
            "two requests of a tenant that has room for one",
            Scenario(replace(two, tenant_bytes=1, total_bytes=2), faults={"cancel": 1}),
        ),
        small(
            "too-large",
            "a request whose floors can never fit is turned away",
            Scenario(replace(pair, request_bytes=1)),
        ),
        small("just-fits", "a request that fills every bound exactly", _exact()),
        small("edge-shared", "two requests and an edge with room for one", _one_edge()),
        small("request-bound", "a window wider than what one request may hold", Scenario(own, chunks=3)),
        small("edge-bound", "one edge of a fork is narrower than the other", _narrow_right()),
        small(
            "uneven-floors",
            "a fork with room on one edge that must not be lent to the other",
            _uneven("source>left"),
        ),
        small(
            "uneven-floors-right",
            "the same the other way round: the last edge looked at needs nothing, the first does",
            _uneven("source>right", coarse=True),
        ),
        small("short-last", "the last chunk is smaller than what was reserved", Scenario(short, short_last=True)),
        small(
            "short-last-crash",
            "a worker dies after a short last chunk, and the next attempt begins with a clean account",
            Scenario(bounded(chain(1), 1, window=2, chunk_bytes=2, spare_bytes=1), short_last=True, faults={"kill": 1}),
        ),
        small(
            "short-last-split",
            "a short last chunk on both edges of a fork",
            Scenario(bounded(split(), 1, chunk_bytes=2), short_last=True, coarse=True),
        ),
        small("byte-windows", "windows that bound bytes before they bound chunks", _by_bytes()),
        small(
            "far-ahead",
            "a stage runs three chunks ahead, two of them beyond its floor",
            _far_ahead(),
        ),
        small("join", "two branches and their join", Scenario(bounded(joined(), 1))),
        small(
            "join-ahead",
            "a branch runs ahead of the other within a shared bound",
            Scenario(bounded(joined(), 1, window=2, spare_bytes=1)),
        ),
        small(
            "join-lost-branch",
            "one branch of a join dies without a word",
            Scenario(bounded(joined(), 1), faults={"lost-branch": 1}),
        ),
        small(
            "join-slots",
            "two requests and one slot at each branch of a join",
            Scenario(bounded(joined(), 2, slots={"left": 1, "right": 1}), coarse=True),
        ),
        small(
            "split-copies",
            "two outputs, and credit that arrives twice",
            Scenario(bounded(split(), 1), chunks=1, faults={"duplicate-credit": 1}),
        ),
        small(
            "split-crash",
            "two outputs, one of them delivered before a worker dies",
            Scenario(bounded(split(), 1), chunks=1, faults={"kill": 1}, coarse=True),
        ),
        small("split", "two outputs, both owed", Scenario(bounded(split(), 1), faults={"lose-credit": 1})),
        small(
            "whole-edge",
            "the second stage starts when all of the payload is there",
            Scenario(bounded(whole(), 1, window=2, spare_bytes=1), faults={"lose-data": 1, "lose-credit": 1}),
        ),
        small(
            "whole-edge-crash",
            "what a stage took over piece by piece dies with it",
            Scenario(bounded(whole(), 1), faults={"kill": 1}),
        ),
        small(
            "family",
            "a parent and a child, one of which fails or is forgotten",
            Scenario(two, chunks=1, parents=(-1, 0), faults={"fail": 1}),
        ),
        small(
            "family-and-stranger",
            "a family that fails, and a request that has nothing to do with it",
            Scenario(bounded(chain(1), 3), chunks=1, parents=(-1, 0, -1), faults={"fail": 1}, coarse=True),
        ),
        small(
            "family-split",
            "a parent and a child with two outputs each",
            Scenario(bounded(split(), 2), chunks=1, parents=(-1, 0), coarse=True),
        ),
        small(
            "family-lost",
            "a parent or its child is silently forgotten",
            Scenario(two, chunks=1, parents=(-1, 0), faults={"lost-branch": 1}),
        ),
        small(
            "family-crash",
            "the worker under a parent and its child dies",
            Scenario(two, chunks=1, parents=(-1, 0), faults={"kill": 1}),
        ),
        small(
            "family-queue",
            "a family and a stranger, room for two, and one may wait",
            Scenario(crowded, chunks=1, parents=(-1, 0, -1), faults={"cancel": 1}, coarse=True),
        ),
        small(
            "family-slots",
            "a family and a stranger, and state slots for two of the three",
            Scenario(bounded(chain(1), 3, slots={"s0": 2}), chunks=1, parents=(-1, 0, -1), coarse=True),
        ),
        small(
            "reconnect",
            "the client's connection breaks, and a worker dies",
            Scenario(ahead, chunks=3, faults={"reconnect": 1, "kill": 1, "reorder-data": 1}),
        ),
        medium(
            "one-stage-crash",
            "two requests, a cancel and the death of their worker",
            Scenario(two, faults={"cancel": 1, "kill": 1}),
        ),
        medium("three-requests", "three requests share a stage", Scenario(bounded(chain(1), 3), faults={"cancel": 1})),
        medium(
            "join-cancel", "a join of which the client gives up", Scenario(bounded(joined(), 1), faults={"cancel": 1})
        ),
        medium("join-crash", "a worker of a join dies", Scenario(bounded(joined(), 1), faults={"kill": 1})),
        medium("fork-join", "one stage feeds two and a last one joins them", Scenario(bounded(fork_join(), 1))),
        medium(
            "family-of-three",
            "a parent and two children",
            Scenario(bounded(chain(1), 3), chunks=1, parents=(-1, 0, 0), faults={"fail": 1}, coarse=True),
        ),
        medium(
            "family-crash-late",
            "a worker dies when one child of two has succeeded",
            Scenario(bounded(chain(1), 3), chunks=1, parents=(-1, 0, 0), faults={"kill": 1}, coarse=True),
        ),
        medium(
            "everything-once",
            "two requests, a cancel, a death and a repeated chunk",
            Scenario(two, faults={"cancel": 1, "kill": 1, "duplicate-data": 1}),
        ),
        medium(
            "two-joins",
            "two requests and one slot per branch: neither may hold half of what it needs",
            Scenario(bounded(joined(), 2, slots={"left": 1, "right": 1}), faults={"cancel": 1}, coarse=True),
        ),
        large(
            "pair-cancel",
            "two requests through two stages, and a cancel",
            Scenario(bounded(chain(2), 2), faults={"cancel": 1}),
        ),
        large(
            "fork-join-cancel",
            "a fork and a join of which the client gives up",
            Scenario(bounded(fork_join(), 1), faults={"cancel": 1}),
        ),
    )


CATALOG: dict[str, Entry] = {entry.name: entry for entry in _entries()}


def named(name: str) -> Entry:
    """The world of that name; UsageError with the nearest name if there is none."""
    if name in CATALOG:
        return CATALOG[name]
    near = difflib.get_close_matches(name, CATALOG, n=1)
    raise UsageError(
        "a scenario of the catalog",
        repr(name),
        where="explore",
        fix=f"Did you mean {near[0]}?" if near else "`workbench explore --list` names them.",
    )


def of_size(size: str) -> list[Entry]:
    """The worlds of one size, in the order of the catalog."""
    return [entry for entry in CATALOG.values() if entry.size == size]
