"""One request in full: what its timeline draws."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from workbench.errors import DataIntegrityError
from workbench.studies.shadow_profile import Profile


@dataclass(frozen=True, slots=True)
class RequestIntervals:
    """What the timeline of one request draws: its intervals, its zero, and the moments to mark."""

    intervals: pl.DataFrame
    scheduled_ns: int
    marks: pl.DataFrame


def typical_request(p: Profile, load: str) -> tuple[str, int]:
    """Run and number of the request whose completion time is the (lower) median of the load's first repeat.

    Raises
    ------
    DataIntegrityError
        No request of that run ended ok.
    """
    run = p.runs(load)[0]
    jct = p.connection.sql(
        "SELECT request, jct_ns FROM jct WHERE run = ? AND jct_ns IS NOT NULL ORDER BY jct_ns, request", params=[run]
    ).pl()
    if jct.is_empty():
        ((requests,),) = p.connection.execute("SELECT count(*) FROM request WHERE run = ?", [run]).fetchall()
        raise DataIntegrityError(
            "a request that ended ok", f"none of {requests}", where=run, fix="Draw a request of a lighter load."
        )
    return run, int(jct["request"][(jct.height - 1) // 2])


def request_intervals(p: Profile, which: tuple[str, int]) -> RequestIntervals:
    """Intervals of one request, with its chunk take-overs, credit events and first audio as marks."""
    run, request = which
    con, at = p.connection, [run, request]
    intervals = con.sql(
        "SELECT stage, kind, start_ns, end_ns FROM interval WHERE run = ? AND request = ? ORDER BY start_ns, span",
        params=at,
    ).pl()
    marks = con.sql(
        """
        SELECT e.target::VARCHAR AS stage, c.taken_ns AS at_ns, 'chunk taken over' AS what
        FROM chunk AS c JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
        WHERE c.run = $1 AND c.request = $2 AND c.taken_ns IS NOT NULL
        UNION ALL
        SELECT e.source::VARCHAR, c.at_ns, 'credit ' || c.event
        FROM credit AS c JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
        WHERE c.run = $1 AND c.request = $2
        UNION ALL
        SELECT 'client', first_output_ns, 'first audio' FROM outcome
        WHERE run = $1 AND request = $2 AND first_output_ns IS NOT NULL
        ORDER BY 2, 1
        """,
        params=at,
    ).pl()
    (scheduled_ns,) = con.execute("SELECT scheduled_ns FROM request WHERE run = ? AND request = ?", at).fetchall()[0]
    return RequestIntervals(intervals, scheduled_ns, marks)
