"""Symmetric states: requests that differ in name only may change places."""

from __future__ import annotations

from workbench.control.layout import OWNER, REQUEST_AT, REQUEST_SIZE, REQUESTS, SLOT_AT, SLOT_SIZE, request
from workbench.twin import Vector, rule
from workbench.verify.wires import SYMMETRIC, WORLD_SIZE, config, wires


@rule
def canonical(g: Vector, m: Vector, scratch: Vector) -> None:
    """Order requests that differ in name only, so that of all renamings one state is kept."""
    if config(g, SYMMETRIC) == 0:
        return
    for i in range(g[REQUESTS] - 1):
        for j in range(g[REQUESTS] - 1 - i):
            if follows(g, m, j):
                swap(g, m, j)


@rule
def follows(g: Vector, m: Vector, r: int) -> bool:
    """Whether request `r` is larger than its neighbor, read as one long number."""
    size, at = g[REQUEST_SIZE], request(g, r)
    for i in range(size):
        if m[at + i] != m[at + size + i]:
            return m[at + i] > m[at + size + i]
    size, at = config(g, WORLD_SIZE), wires(g, r)
    for i in range(size):
        if m[at + i] != m[at + size + i]:
            return m[at + i] > m[at + size + i]
    return False


@rule
def swap(g: Vector, m: Vector, r: int) -> None:
    """Rename requests `r` and `r` + 1 into each other, in their records and in the slots they own."""
    size, at = g[REQUEST_SIZE], request(g, r)
    for i in range(size):
        m[at + i], m[at + size + i] = m[at + size + i], m[at + i]
    size, at = config(g, WORLD_SIZE), wires(g, r)
    for i in range(size):
        m[at + i], m[at + size + i] = m[at + size + i], m[at + i]
    for at in range(g[SLOT_AT], g[REQUEST_AT], SLOT_SIZE):
        if m[at + OWNER] == r + 1:
            m[at + OWNER] = r + 2
        elif m[at + OWNER] == r + 2:
            m[at + OWNER] = r + 1
