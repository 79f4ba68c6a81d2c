"""What a *world* offers to the explorer and to the walker: six rules over two flat vectors.

A world is a module of rules (see `workbench.twin`). Its configuration `g` never changes, its state `m` is rewritten in
place; both are lists of integers in the interpreted form and int64 arrays in the compiled one.

========================  =============================================================================================
``actions(g, m, acts)``   Writes the codes of the enabled actions to `acts` and returns their number (`MAX_ACTIONS` at
                          most). A code is an integer from 1 to `MAX_CODE`. The order decides between equal traces.
``apply(g, m, a, out)``   Performs action `a` on `m`; returns 0, or the code of a property that the step itself broke.
                          `out` holds the effects of the step (`MAX_EFFECTS` integers); ``out[0]`` is 0 before each
                          call, so that it may count them; the rest keeps what earlier steps left.
``kind(g, a)``            `PROGRESS`, `TIMER` (a deadline runs out) or `FAULT` (faults, and clients that cancel).
``broken(g, m)``          0, or the code of a property that the state violates.
``flags(g, m)``           `GOAL` if all is terminal and released; plus `UNTIMED` if from here the goal must be reachable
                          by progress alone, without any deadline.
``canonical(g, m, s)``    Rewrites `m` to the representative of its class of symmetric states; `s` is scratch space of
                          `MAX_SCRATCH` integers. It may do nothing. It must be idempotent, and symmetric states must
                          have actions of equal kinds that lead to symmetric states.
========================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from workbench.errors import UsageError
from workbench.twin import Edit, twin

PROGRESS, TIMER, FAULT = range(3)
GOAL, UNTIMED = 1, 2

MAX_ACTIONS = 256
MAX_CODE = (1 << 16) - 1
MAX_EFFECTS = 1024
MAX_SCRATCH = 4096
# A world that forgets MAX_ACTIONS writes past it; within this many integers that is reported instead of a crash.
ACTIONS_SPACE = 4 * MAX_ACTIONS


class Rules(NamedTuple):
    """The rules of one world, all plain or all compiled; see the head of this module."""

    actions: Callable[..., int]
    apply: Callable[..., int]
    kind: Callable[..., int]
    broken: Callable[..., int]
    flags: Callable[..., int]
    canonical: Callable[..., None]


# Vectors (v) and integers (i) that each rule takes, and what it returns; n is nothing.
SHAPES = {"actions": "ivvv", "apply": "ivviv", "kind": "ivi", "broken": "ivv", "flags": "ivv", "canonical": "nvvv"}


def signature(shape: str) -> Any:
    """Numba's signature of a rule of that shape: the letter of the result first, then those of the arguments."""
    from numba import types

    letters = {"v": types.int64[::1], "i": types.int64, "n": types.none}
    return letters[shape[0]](*(letters[letter] for letter in shape[1:]))


def bind(world: str, *, compiled: bool, edits: Sequence[Edit] = ()) -> Rules:
    """The rules of the module `world`, compiled now if asked for.

    Raises
    ------
    UsageError
        The module is none, holds no rule, lacks one of the six, or one returns something other than an integer.
    """
    module = twin(world, compiled=compiled, edits=edits)
    missing = [name for name in Rules._fields if not hasattr(module, name)]
    if missing:
        raise UsageError(f"the rules {', '.join(Rules._fields)}", f"no {', '.join(missing)}", where=f"module {world}")
    rules = Rules(*(getattr(module, name) for name in Rules._fields))
    if not compiled:
        return rules
    return Rules(*(compile_as(rule, SHAPES[name], f"{world}.{name}") for name, rule in rules._asdict().items()))


@lru_cache(maxsize=256)
def compile_as(rule: Any, shape: str, where: str) -> Any:
    """The rule, compiled for that shape; UsageError if it returns something else."""
    import numba

    wanted = signature(shape)
    rule.compile(wanted.args)
    found = rule.overloads[wanted.args].signature.return_type
    if found == wanted.return_type:
        return rule
    if shape[0] == "i" and isinstance(found, numba.types.Integer | numba.types.Boolean):
        # Numba took it for something narrower than an integer, such as the constant 0 or a truth value.
        again: Any = numba.njit(nogil=True)(rule.py_func)
        again.compile(wanted)
        return again
    raise UsageError(f"a rule that returns {wanted.return_type}", str(found), where=where)
