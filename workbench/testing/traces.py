"""What tests of a trace need: the worked example, random valid runs, and their rows to damage."""

from __future__ import annotations

from hypothesis import strategies as st

from workbench.testing.example import worked_example
from workbench.testing.simulator import FATES, JOIN, LINEAR, Arrival, simulate
from workbench.testing.tables import Row, Tables, changed, from_rows, run_row, to_rows, write_folder
from workbench.units import MS_NS

__all__ = [
    "JOIN",
    "LINEAR",
    "Arrival",
    "Row",
    "Tables",
    "arrivals",
    "changed",
    "from_rows",
    "random_traces",
    "run_row",
    "simulate",
    "to_rows",
    "worked_example",
    "write_folder",
]


def arrivals(max_requests: int = 8) -> st.SearchStrategy[list[Arrival]]:
    """Lists of one to `max_requests` requests, many of them at one moment, every second one without mishap."""
    return st.lists(
        st.builds(
            Arrival,
            at_ns=st.integers(0, 20).map(lambda ms: ms * MS_NS),
            chunks=st.integers(1, 4),
            klass=st.sampled_from(("short", "long")),
            tenant=st.sampled_from(("a", "b", "c")),
            weight=st.just(1.0),
            fate=st.one_of(st.just("ok"), st.sampled_from(FATES)),
        ),
        min_size=1,
        max_size=max_requests,
    )


def random_traces(*, label: str = "random", max_requests: int = 8) -> st.SearchStrategy[Tables]:
    """Valid runs of both graphs.

    Parameters
    ----------
    label : str
        Label of the run.
    max_requests : int
        Most requests in a run.
    """
    return st.builds(
        simulate,
        st.sampled_from((LINEAR, JOIN)),
        arrivals(max_requests),
        seed=st.integers(0, 2**32 - 1),
        label=st.just(label),
    )
