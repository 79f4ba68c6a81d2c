"""A workbench for people who serve omni-modal models through a graph of stages.

Where did the time go, what would another scheduler have done, and is that difference real? In a notebook start with
``workbench.open(PATH)``; in a shell with ``workbench --help``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.lab import open as open

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load what opens runs when it is asked for: the recorder must import this package without polars or DuckDB."""
    if name == "open":
        from workbench.lab import open as open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
