"""Charts of one run: which rows go into them, in what form, and what they leave out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from workbench import markup
from workbench.errors import UsageError
from workbench.graph import StageGraph
from workbench.units import format_ns

if TYPE_CHECKING:
    import altair as alt

    from workbench.lab.run import Run

MAX_MARKS = 1_500
UNKNOWN_STAGE = "(unknown)"

# A residency overlaps every other interval of its stage, and a chunk that never arrived has no end.
_INTERVALS = f"""
    SELECT request, coalesce(stage::VARCHAR, '{UNKNOWN_STAGE}') AS stage, kind::VARCHAR AS kind, start_ns, end_ns
    FROM interval
    WHERE run = $run AND list_contains($requests, request) AND end_ns >= start_ns AND kind <> 'residency'
    ORDER BY request, start_ns, end_ns, stage, kind, span
"""
_MARKS = f"""
    SELECT coalesce(e.target::VARCHAR, '{UNKNOWN_STAGE}') AS stage, c.taken_ns AS at_ns, 'chunk taken over' AS what
    FROM chunk AS c
    LEFT JOIN edge AS e ON e.run = c.run AND e.edge = c.edge
    WHERE c.run = $run AND c.request = $request AND c.taken_ns IS NOT NULL
    UNION ALL
    SELECT coalesce(e.source::VARCHAR, '{UNKNOWN_STAGE}'), r.at_ns, 'credit returned'
    FROM credit AS r
    LEFT JOIN edge AS e ON e.run = r.run AND e.edge = r.edge
    WHERE r.run = $run AND r.request = $request AND r.event = 'return'
    UNION ALL
    SELECT coalesce(v.stage::VARCHAR, $client), v.at_ns,
           CASE v.kind WHEN 'epoch' THEN 'next attempt' ELSE v.kind::VARCHAR END
    FROM event AS v
    WHERE v.run = $run AND coalesce(v.request = $request, true) AND v.kind IN ('fault', 'deadline', 'epoch')
    ORDER BY at_ns, stage, what
"""
_POINTS = """
    SELECT m.request, m.class, coalesce(m.status::VARCHAR, 'unfinished') AS status,
           (m.scheduled_ns - u.first_ns) / 1e9 AS arrival_s,
           coalesce(m.jct_ns, greatest(coalesce(o.end_ns, u.last_ns) - m.scheduled_ns, 0)) / 1e9 AS latency_s,
           m.scheduled_ns, m.scheduled_ns + m.ttfo_ns AS first_ns
    FROM request_metrics AS m
    JOIN run AS u ON u.run = m.run
    LEFT JOIN outcome AS o ON o.run = m.run AND o.request = m.request
    WHERE m.run = $run
    ORDER BY m.request
"""


def timeline(run: Run, number: int, *, terminal: str | None = None) -> alt.LayerChart:
    """One request: stages as rows, waits light, work solid, chunks and credits marked; see `Run.timeline`."""
    from workbench import charts
    from workbench.charts.timeline import MAX_BARS
    from workbench.charts.timeline import timeline as draw
    from workbench.lab import bars

    charts.enable()
    row = run.request_rows.filter(pl.col("request") == number).row(0, named=True)
    intervals = _intervals(run, [number])
    title = f"Request {number} ({row['class']}, {row['status'] or 'no outcome'})"
    title += f": first output {format_ns(row['ttfo_ns'])}, done {format_ns(row['jct_ns'])}"
    if intervals.height > MAX_BARS:
        drawn = bars.bars(intervals, most=MAX_BARS // 2)
        title += f"; {intervals.height:,} intervals as {drawn.rows.height:,} bars"
        intervals = drawn.rows
    stages = _stages_of(run, intervals)
    marks = _marks(run, number, row)
    if marks.height > MAX_MARKS:
        title += f"; {marks.height - MAX_MARKS:,} marks left out"
        marks = marks.head(MAX_MARKS)
    stages += sorted(set(marks["stage"]) - set(stages))
    if terminal is not None:
        name = f"path ({terminal})"
        intervals = pl.concat([intervals, _path_row(run, number, terminal, name)], how="diagonal_relaxed")
        stages.append(name)
    return draw(intervals, stages=stages, origin_ns=row["scheduled_ns"], marks=marks, title=markup.plain(title))[0]


def overview(run: Run) -> alt.VConcatChart:
    """All requests, a list of the brushed ones and the timeline of the clicked one; see `Run.overview`."""
    from workbench import charts
    from workbench.charts.overview import overview as draw
    from workbench.lab import bars

    charts.enable()
    mostly = run.critical_path("job").mostly()
    every = run.sql(_POINTS, {"run": run.label}).join(mostly, on="request", how="left", maintain_order="left")
    requests = bars.thinned(every)
    chosen = bars.detailed(requests)
    has_timeline = pl.col("request").is_in(chosen.implode())
    room = (bars.MAX_ROWS - requests.height) // max(chosen.len(), 1) - 1
    drawn = bars.bars(_intervals(run, chosen.to_list()), most=room)
    notes = []
    if requests.height < every.height:
        notes.append(f"{requests.height:,} of {every.height:,} requests: the slowest and an even sample of the others.")
    if chosen.len() < requests.height:
        notes.append(
            f"Filled points have a timeline: the {bars.SLOWEST} slowest, up to {bars.FAILED} that did not end ok, "
            f"an even sample. {requests.height - chosen.len():,} hollow ones have none."
        )
    if drawn.rows.height:
        notes.append(
            f"Bars join neighbors of one stage and kind up to {format_ns(drawn.gap_ns)} apart; "
            f"{drawn.unseen:,} intervals too short to see are left out."
        )
    first = requests.filter(has_timeline & pl.col("first_ns").is_not_null()).select(
        "request",
        pl.lit(_client(run)).alias("stage"),
        pl.col("first_ns").alias("start_ns"),
        pl.col("first_ns").alias("end_ns"),
        pl.lit("first output").alias("what"),
    )
    since = [
        ((pl.col(f"{end}_ns") - pl.col("scheduled_ns")) / 1e6).round(3).alias(f"{end}_ms") for end in ("start", "end")
    ]
    intervals = (
        pl.concat([drawn.rows, first], how="diagonal_relaxed")
        .join(requests.select("request", "scheduled_ns"), on="request", how="left", maintain_order="left")
        .select("request", "stage", "kind", *since, "joined", "what")
    )
    points = requests.select(
        "request",
        pl.col("class").map_elements(markup.plain, return_dtype=pl.String),
        "status",
        pl.col("arrival_s", "latency_s").round(6),
        pl.col("mostly").fill_null("no path to the end of the job"),
        has_timeline.alias("has_timeline"),
    )
    return draw(
        points,
        intervals,
        stages=_stages_of(run, intervals),
        latency_title="time until the end (s)",
        notes=tuple(notes),
        title=markup.plain(f"Run {run.label}"),
    )[0]


def graph(run: Run) -> alt.LayerChart:
    """The stages of a run with their devices, and the edges between them."""
    from workbench import charts
    from workbench.charts.graph_drawing import graph_drawing

    charts.enable()
    named = {"run": run.label}
    stages = run.sql("SELECT stage, role, device AS note FROM stage WHERE run = $run ORDER BY stage.stage", named)
    edges = run.sql("SELECT source, target, modality, kind FROM edge WHERE run = $run ORDER BY edge.edge", named)
    return graph_drawing(stages, edges, title=markup.plain(f"Stages of {run.label}"))[0]


def stage_graph(shape: StageGraph) -> alt.LayerChart:
    """A stage graph that is not of a run: a preset, or one from a file."""
    from workbench import charts
    from workbench.charts.graph_drawing import graph_drawing

    charts.enable()
    stages = pl.DataFrame([{"stage": stage.name, "role": stage.role} for stage in shape.stages])
    edges = pl.DataFrame(
        [{"source": e.source, "target": e.target, "modality": e.modality, "kind": e.kind} for e in shape.edges]
    )
    return graph_drawing(stages, edges, title=shape.title)[0]


def _intervals(run: Run, requests: Sequence[int]) -> pl.DataFrame:
    return run.sql(_INTERVALS, {"run": run.label, "requests": list(requests)})


def _stages_of(run: Run, intervals: pl.DataFrame) -> list[str]:
    """Declared stages, then those that only rows name."""
    return [*run.stages, *sorted(set(intervals["stage"]) - set(run.stages))]


def _client(run: Run) -> str:
    query = (
        "SELECT stage::VARCHAR AS stage FROM stage WHERE run = $run AND role = 'client' ORDER BY stage.stage LIMIT 1"
    )
    found = run.sql(query, {"run": run.label})["stage"]
    return str(found[0]) if found.len() else UNKNOWN_STAGE


def _path_row(run: Run, number: int, terminal: str, name: str) -> pl.DataFrame:
    path = run.critical_path(terminal)
    mine = path.segments.filter(pl.col("request") == number)
    if mine.is_empty():
        why = path.requests.filter(pl.col("request") == number)["missing"].to_list()
        raise UsageError(
            f"a request with a path to {terminal}", f"request {number}: {(why or ['no row'])[0]}", where="terminal"
        )
    return mine.select("request", pl.lit(name).alias("stage"), pl.col("kind").cast(pl.String), "start_ns", "end_ns")


def _marks(run: Run, number: int, row: Mapping[str, Any]) -> pl.DataFrame:
    """Moments of one request: first output, cancel, take-overs of chunks, returned credits, faults and deadlines."""
    client = _client(run)
    moments: list[tuple[str, int, str]] = []
    if row["ttfo_ns"] is not None:
        what = "first audio" if row["ttfa_ns"] == row["ttfo_ns"] else "first output"
        moments.append((client, row["scheduled_ns"] + row["ttfo_ns"], what))
    named = {"run": run.label, "request": number}
    query = "SELECT cancel_ns FROM outcome WHERE run = $run AND request = $request AND cancel_ns IS NOT NULL"
    moments += [(client, at_ns, "cancelled") for at_ns in run.sql(query, named)["cancel_ns"]]
    schema = {"stage": pl.String, "at_ns": pl.Int64, "what": pl.String}
    return pl.concat([pl.DataFrame(moments, schema=schema, orient="row"), run.sql(_MARKS, named | {"client": client})])
