"""How the number of reachable states grows with the world: one dimension at a time, from one small base."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from workbench.verify.explorer import explore
from workbench.verify.scenario import Scenario, bounded, chain
from workbench.verify.survey import WORLD

# Faults in the order in which the last dimension adds them, each with a budget of one.
ADDED_FAULTS = ("lose-data", "cancel", "duplicate-credit", "kill", "deadline")
DIMENSIONS = ("requests", "stages in a row", "chunks", "faults")


def worlds() -> Iterator[tuple[str, int, Scenario]]:
    """Dimension, size and world: up to three requests, four stages, six chunks, and faults one after another."""
    for requests in (1, 2, 3):
        yield "requests", requests, Scenario(bounded(chain(1), requests), 2)
    for stages in (1, 2, 3, 4):
        yield "stages in a row", stages, Scenario(bounded(chain(stages), 1), 2)
    for chunks in (1, 2, 3, 4, 5, 6):
        yield "chunks", chunks, Scenario(bounded(chain(2), 1, window=2, spare_bytes=2), chunks)
    for count in range(1, len(ADDED_FAULTS) + 1):
        yield "faults", count, Scenario(bounded(chain(1), 1), 2, dict.fromkeys(ADDED_FAULTS[:count], 1))


def sizes(*, limit_states: int, compiled: bool = False) -> pl.DataFrame:
    """Explore the worlds.

    Parameters
    ----------
    limit_states : int
        A world with more states is reported with verdict ``limit`` and this number.
    compiled : bool
        Compiled search: sooner above some 100,000 states, after a minute of compiling once per machine.

    Returns
    -------
    polars.DataFrame
        ``dimension``, ``size``, ``states``, ``transitions``, ``depth``, ``verdict``; sorted as `worlds`.
    """
    rows = []
    for dimension, size, scenario in worlds():
        g, m = scenario.vectors()
        found = explore(WORLD, g, m, limit_states=limit_states, compiled=compiled)
        rows.append(
            {"dimension": dimension, "size": size, "states": found.states, "transitions": found.transitions}
            | {"depth": found.depth, "verdict": found.verdict}
        )
    return pl.DataFrame(rows)
