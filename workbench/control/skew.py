"""Floors of the byte bound: how much of an edge each admitted request must own so that no two wait for each other.

``docs/stability.md`` has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from workbench.control.ranges import MAX_CHUNKS, within
from workbench.graph import CLIENT, StageGraph


def rate_floor_chunks(produced: int, consumed: int) -> int:
    """Least floor of an edge whose source makes `produced` chunks per task and whose target takes `consumed` per task.

    ``produced + consumed - gcd(produced, consumed)``: 1 for one-to-one, the whole payload for an edge that is taken
    over at once. Exact in a graph without parallel paths.

    References
    ----------
    Bhattacharyya, Murthy & Lee (1996), *Software Synthesis from Dataflow Graphs*.
    """
    within(produced, 1, MAX_CHUNKS, "produced")
    within(consumed, 1, MAX_CHUNKS, "consumed")
    return produced + consumed - math.gcd(produced, consumed)


def edge_skews(
    graph: StageGraph,
    stream_chunks: int,
    *,
    lookahead: Mapping[str, int] | None = None,
    gathering: Collection[str] = (),
) -> dict[str, int]:
    """Chunks by which each edge must be able to run ahead of its target while the slowest branch catches up.

    Let ``A`` of a stage be the number of chunks beyond the first that must have left the client before its first task
    can run: the largest value, over its in-edges, of ``A`` of the source, plus ``stream_chunks - 1`` if the edge is
    "whole", plus the stage's own lookahead. The skew of a streaming edge is what its target must wait for beyond what
    the edge's own source waits for: 0 wherever branches are alike. Each edge needs a floor, and a window, of
    ``skew + 1`` chunks.

    Parameters
    ----------
    graph : StageGraph
        Every stage makes one chunk per task on every out-edge, and needs all of its in-edges.
    stream_chunks : int
        Most chunks of one stream; no edge needs room for more.
    lookahead : mapping of str to int, keyword-only
        Stage -> chunks beyond ``k`` that its task ``k`` needs of each in-edge, and takes over when they come; 0 where
        missing.
    gathering : collection of str, keyword-only
        Stages that take every chunk over when it comes, whatever their task waits for: the bytes are then the stage's
        state, to be bounded there. The client and the target of a "whole" edge always do.

    Returns
    -------
    dict of str to int
        Name of the edge -> chunks, at most ``stream_chunks - 1``.
    """
    lookahead = lookahead or {}
    within(stream_chunks, 1, MAX_CHUNKS, "stream_chunks")
    for name in (*lookahead, *gathering):
        graph.stage(name)
    ahead = {CLIENT: 0}
    skews = dict.fromkeys((edge.name for edge in graph.edges), 0)
    for name in graph.order:
        waits = {
            edge: ahead[edge.source] + (stream_chunks - 1 if edge.kind == "whole" else 0)
            for edge in graph.in_edges(name)
        }
        longest = max(waits.values())
        ahead[name] = longest + within(lookahead.get(name, 0), 0, MAX_CHUNKS, f"lookahead of stage {name!r}")
        for edge, wait in waits.items():
            if edge.kind == "stream" and name not in gathering:
                skews[edge.name] = min(longest - wait, stream_chunks - 1)
    return skews
