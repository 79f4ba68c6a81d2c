"""Task graph of a run: what happened for each request, and what each of these activities had to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from workbench.errors import UsageError
from workbench.metrics.activities import CONSUMABLE, FINAL, Activities, Places, Requests, read_activities
from workbench.metrics.dependencies import Dependencies, Replicas, check, collect, lags, levels, rooted
from workbench.metrics.tables import COLUMNS, Bools, Ints, named
from workbench.metrics.waits import Chains, Links, Waits, read_waits
from workbench.schema.enums import OUTCOME_STATUS, SPAN_KIND

if TYPE_CHECKING:
    import duckdb

TERMINALS = ("first", "job")

_OK = OUTCOME_STATUS.index("ok")


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Activities of a run in an order in which causes come first, their dependencies, and the waits between them.

    The members of one device launch start and end together. A launch starts at the latest dependency of its members
    plus its lag, so the graph reproduces every recorded time exactly; `retiming` relies on that.

    Dependencies are: ``data`` (chunks that the service consumed; the service that produced a chunk), ``state`` (the
    previous service of the same request, stage and epoch), ``resource`` (the launch before on the same replica, if it
    had ended; of launches that start in one nanosecond none is before the other), and what recorded waits name:
    credit, last member of a batch, timer. What contradicts the recording is listed in `violations`; its request leaves
    every analysis and is counted.

    Attributes
    ----------
    places, requests, activities, dependencies, waits
        Flat arrays; see their classes.
    lag_ns : ndarray of int64, shape (n_launches,)
        Dispatch lag: start minus latest dependency. At least 0 unless a request is excluded.
    busy : ndarray of bool, shape (n_launches,)
        Whether another launch still ran on the replica at the start.
    rooted : ndarray of bool, shape (n_activities,)
        Whether the arrival of the request is cause enough.
    excluded : ndarray of bool, shape (n_requests,)
        Requests that take part in no path because their rows contradict each other.
    violations : polars.DataFrame
        Columns ``code, request, span, other, excess_ns, excluded``: one row per contradiction (see `activities` and
        `dependencies` for the codes). `other` is the span, chunk or batch it conflicts with.
    """

    places: Places
    requests: Requests
    activities: Activities
    dependencies: Dependencies
    waits: Waits
    lag_ns: Ints
    busy: Bools
    rooted: Bools
    excluded: Bools
    violations: pl.DataFrame

    @classmethod
    def from_tables(
        cls,
        *,
        span: pl.DataFrame,
        chunk: pl.DataFrame,
        stage: pl.DataFrame,
        edge: pl.DataFrame,
        request: pl.DataFrame,
        outcome: pl.DataFrame | None = None,
        credit: pl.DataFrame | None = None,
    ) -> TaskGraph:
        """Build the graph from trace tables of one run.

        Parameters
        ----------
        span, chunk, stage, edge, request : polars.DataFrame
            Tables of the trace contract; names may be strings, categoricals or enums, a leading ``run`` is ignored.
        outcome : polars.DataFrame, optional
            Without it a request counts as finished when the last chunk of one of its client streams has arrived.
        credit : polars.DataFrame, optional
            Credit events; they explain stalls that end with the return trip of a credit.

        Raises
        ------
        DataIntegrityError
            A column is missing, a name is unknown, or a required value is NULL.
        """
        places, requests = Places.of(stage, edge), Requests.of(request, outcome)
        activities, violations = read_activities(span, chunk, places, requests)
        for again in (False, True):
            links = Links.of(activities)
            chains = Chains.of(activities, len(requests.request), len(places.stages))
            waits = read_waits(span, credit, activities, chains, places, requests, links)
            replicas = Replicas.of(activities)
            found = collect(activities, waits, chains, links, requests, replicas)
            level = None if again else levels(activities, found)
            if level is None:
                break
            activities = activities.reordered(level)
        dependencies, contradictions = check(activities, found, links, requests)
        listed = pl.concat(violations + contradictions).sort("code", "request", "span", "other", nulls_last=True)
        wrong = np.isin(requests.request, listed.filter(pl.col("excluded"))["request"].to_numpy())
        family = np.zeros(len(requests.request), dtype=np.bool_)
        family[requests.family[wrong]] = True
        return cls(
            places=places,
            requests=requests,
            activities=activities,
            dependencies=dependencies,
            waits=waits,
            lag_ns=lags(activities, dependencies, requests),
            busy=replicas.busy,
            rooted=rooted(activities),
            excluded=family[requests.family],
            violations=listed,
        )

    @classmethod
    def from_store(cls, connection: duckdb.DuckDBPyConnection, run: str) -> TaskGraph:
        """Build the graph of one run of an open store; raises UsageError if the store has no such run."""
        known = [label for (label,) in connection.execute("SELECT label FROM run ORDER BY label").fetchall()]
        if run not in known:
            raise UsageError(f"one of the store's runs ({', '.join(known)})", repr(run), where="run")
        tables = {}
        for name, columns in COLUMNS.items():
            names = ", ".join(f'"{column}"' for column in columns)
            tables[name] = connection.sql(f'SELECT {names} FROM "{name}" WHERE run = $1', params=[run]).pl()
        return cls.from_tables(**tables)

    def __len__(self) -> int:
        return len(self.activities)

    def durations(self) -> Ints:
        """Recorded length of every activity, int64 nanoseconds: a copy to change for a what-if."""
        return self.activities.end_ns - self.activities.start_ns

    def where(
        self,
        *,
        stage: str | None = None,
        edge: str | None = None,
        kind: str | None = None,
        request: int | None = None,
        chunk: Sequence[int] | None = None,
    ) -> Bools:
        """Activities that fulfill all given conditions, as a mask over the graph's arrays.

        Parameters
        ----------
        stage : str, optional
            Work of this stage (spans only).
        edge : str, optional
            Hand-offs on this edge.
        kind : str, optional
            One of SPAN_KIND.
        request : int, optional
            Request id.
        chunk : sequence of int, optional
            Task numbers (spans) or sequence numbers (hand-offs).

        Raises
        ------
        UsageError
            A name does not exist.
        """
        a = self.activities
        mask = np.ones(len(a), dtype=np.bool_)
        if stage is not None:
            mask &= (a.stage == _number(stage, self.places.stages, "stage")) & (a.edge < 0)
        if edge is not None:
            mask &= a.edge == _number(edge, self.places.edges, "edge")
        if kind is not None:
            mask &= a.kind == _number(kind, SPAN_KIND, "kind")
        if request is not None:
            mask &= self.requests.request[a.request] == request
        if chunk is not None:
            mask &= np.isin(a.chunk, list(chunk))
        return mask

    def request_number(self, request: int) -> int:
        """Number of a request id; raises UsageError if the run has no such request."""
        at = int(np.searchsorted(self.requests.request, request))
        if at == len(self.requests.request) or self.requests.request[at] != request:
            raise UsageError("a request of the run", str(request), where="request")
        return at

    def lags(self) -> pl.DataFrame:
        """Dispatch lag of every launch, in order of start: what a hand-over to the device or the wire cost the host.

        Returns
        -------
        polars.DataFrame
            ``stage`` (of a hand-off the producing one), ``edge`` (NULL for work), ``replica`` (-1 for a hand-off),
            ``members``, ``start_ns``, ``lag_ns`` (start minus the latest dependency of all members) and ``busy``
            (another launch still ran on the replica, so that the lag is not the host's alone).
        """
        a = self.activities
        first = a.launch_ptr[:-1]
        return pl.DataFrame(
            {
                "stage": named(a.stage[first], self.places.stages),
                "edge": named(a.edge[first], self.places.edges),
                "replica": a.replica[first],
                "members": np.diff(a.launch_ptr),
                "start_ns": a.start_ns[first],
                "lag_ns": self.lag_ns,
                "busy": self.busy,
            }
        )

    def terminal_candidates(self, terminal: str) -> Ints:
        """Deliveries that decide a terminal, as activity numbers in order.

        ``first``: every consumable output at a client; the earliest is the terminal. ``job``: the last chunk of every
        client stream, if the request ended well; the latest is the terminal. Excluded requests have none.
        """
        if terminal not in TERMINALS:
            raise UsageError(f"one of {', '.join(TERMINALS)}", repr(terminal), where="terminal")
        a = self.activities
        status = self.requests.status[a.request]
        keep = ~self.excluded[a.request]
        if terminal == "first":
            keep &= (a.output & CONSUMABLE) > 0
        else:
            keep &= ((a.output & FINAL) > 0) & ((status == _OK) | (status < 0))
        return np.flatnonzero(keep)

    def terminals(self, terminal: str) -> Ints:
        """Activity number of each request's terminal, -1 where it has none; shape (n_requests,)."""
        a = self.activities
        at = self.terminal_candidates(terminal)
        time = a.end_ns[at] if terminal == "first" else -a.end_ns[at]
        at = at[np.lexsort((a.span[at], time, a.request[at]))]
        first = np.diff(a.request[at], prepend=-1) != 0
        chosen = np.full(len(self.requests.request), -1, dtype=np.int64)
        chosen[a.request[at[first]]] = at[first]
        return chosen


def _number(name: str, names: Sequence[str], what: str) -> int:
    if name not in names:
        raise UsageError(f"one of {', '.join(names)}", repr(name), where=what)
    return list(names).index(name)
