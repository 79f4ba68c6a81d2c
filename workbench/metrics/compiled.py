"""Compiled loops: numba functions whose machine code is kept between processes where the disk allows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call and keep the result beside the source or in the user's cache folder.

    Functions that call each other belong in one module: numba's cache notices a change of the file that holds the
    caller only. The same is true of constants imported from another module, so touch the caller when one changes. Where
    no folder can be written (a read-only install without a home), the code is compiled once per process;
    ``NUMBA_CACHE_DIR`` names a better place.
    """
    try:
        kept = numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        kept = numba.njit(nogil=True)(function)
    return cast("Callable[P, R]", kept)
