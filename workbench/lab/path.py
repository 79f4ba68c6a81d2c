"""The critical path of a run as a reader wants it: per request, summed over requests, beside the drag of each stage."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from workbench import markup
from workbench.errors import UsageError
from workbench.markup import Table
from workbench.metrics.critical_path import CriticalPaths
from workbench.metrics.participation import participation
from workbench.metrics.task_graph import TERMINALS
from workbench.schema.enums import WAIT_KINDS
from workbench.units import format_ns

if TYPE_CHECKING:
    import altair as alt

HAND_OVER = "hand-over"
TERMINAL_TITLES = {"first": "first output", "job": "end of the job"}

# Measures of a stage's part of the path, as the chart of participation names them.
WORK, WAITING, LAG, DRAG = "work on path", "waiting on path", "dispatch lag on path", "drag"

# Drags of a run in which nothing happened.
NO_DRAGS = pl.DataFrame(
    schema={
        "request": pl.Int64,
        "terminal": pl.Enum(TERMINALS),
        "stage": pl.String,
        "edge": pl.String,
        "drag_ns": pl.Int64,
        "duration_ns": pl.Int64,
    }
)


@dataclass(frozen=True)
class CriticalPath:
    """Critical paths of all requests of a run to one terminal, in the view of the request.

    Attributes
    ----------
    label : str
        Label of the run.
    terminal : str
        ``first`` (first consumable output) or ``job`` (last chunk of the last client stream).
    stages : list of str
        Stages in graph order.
    paths : CriticalPaths
        Of both terminals; see `workbench.metrics.critical_path`.
    drags : polars.DataFrame
        Of both terminals; see `workbench.metrics.drag.stage_drag`.

    Raises
    ------
    UsageError
        Another terminal.
    """

    label: str
    terminal: str
    stages: list[str]
    paths: CriticalPaths
    drags: pl.DataFrame

    def __post_init__(self) -> None:
        if self.terminal not in TERMINALS:
            raise UsageError(f"one of {', '.join(TERMINALS)}", repr(self.terminal), where="terminal")

    @cached_property
    def segments(self) -> pl.DataFrame:
        """Segments of every path; columns as in `workbench.metrics.critical_path.CriticalPaths`."""
        return self.paths.segments.filter(pl.col("terminal") == self.terminal)

    @cached_property
    def requests(self) -> pl.DataFrame:
        """One row per request, those without a path included: ``latency_ns`` and why there is none (``missing``)."""
        return self.paths.requests.filter(pl.col("terminal") == self.terminal)

    @cached_property
    def participation(self) -> pl.DataFrame:
        """``stage, edge, kind, path_ns, share, requests``: sums over requests, largest first; shares add up to 1."""
        return participation(self.paths, self.terminal).drop("low", "high")

    @cached_property
    def drag(self) -> pl.DataFrame:
        """How much latency would go, over all requests, if a request's own work at a stage (or edge) took no time.

        Columns ``stage, edge`` (one of both is NULL), ``drag_ns, share``, largest first. Other requests keep their work
        and with it the queues.
        """
        mine = self.drags.filter(pl.col("terminal") == self.terminal)
        summed = mine.group_by("stage", "edge").agg(pl.col("drag_ns").sum())
        return summed.with_columns(share=pl.col("drag_ns") / self.latency_ns).sort(
            "drag_ns", "stage", "edge", descending=[True, False, False]
        )

    @property
    def latency_ns(self) -> int:
        """Latency summed over the requests that have a path."""
        return int(self.requests["latency_ns"].sum())

    @property
    def with_path(self) -> int:
        """Requests that have a path."""
        return self.requests.height - self.requests["latency_ns"].null_count()

    def by_kind(self) -> pl.DataFrame:
        """``kind, path_ns, share``: what the time on the path was, over all stages, largest first."""
        kinds = self.participation.group_by(pl.col("kind").cast(pl.String)).agg(pl.col("path_ns", "share").sum())
        return kinds.sort("path_ns", "kind", descending=[True, False])

    def by_stage(self) -> pl.DataFrame:
        """Participation beside drag: one row per stage in graph order, hand-overs together at the end.

        Returns
        -------
        polars.DataFrame
            ``stage, path_ns, work_ns, waiting_ns, lag_ns, drag_ns, path_share, drag_share``; the parts add up to
            ``path_ns``, unattributed time counting as waiting; drag of a hand-over is not added up over edges (NULL).
        """
        shares = _measures(self.participation)
        wide = {(place, measure): spent_ns for place, measure, spent_ns in shares.iter_rows()}
        drag = {stage: drag_ns for stage, _, drag_ns, _ in self.drag.iter_rows() if stage is not None}
        rows = []
        for place in [*self.stages, HAND_OVER]:
            parts = [wide.get((place, measure), 0) for measure in (WORK, WAITING, LAG)]
            rows.append([place, sum(parts), *parts, drag.get(place)])
        names = ("stage", "path_ns", "work_ns", "waiting_ns", "lag_ns", "drag_ns")
        schema = {name: pl.String if name == "stage" else pl.Int64 for name in names}
        frame = pl.DataFrame(rows, schema=schema, orient="row").filter(
            (pl.col("path_ns") > 0) | (pl.col("drag_ns").fill_null(0) > 0)
        )
        return frame.with_columns(
            path_share=pl.col("path_ns") / self.latency_ns, drag_share=pl.col("drag_ns") / self.latency_ns
        )

    def mostly(self, count: int = 2) -> pl.DataFrame:
        """What most of each request's time went to.

        Returns
        -------
        polars.DataFrame
        ``request, mostly``: the `count` largest (stage or edge, kind) groups in words, for requests with a path; the
        kind is left out where it is the place's own work.
        """
        place = pl.coalesce(pl.col("stage").cast(pl.String), pl.col("edge").cast(pl.String))
        parts = (
            self.segments.group_by("request", place.alias("place"), pl.col("kind").cast(pl.String))
            .agg(spent_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
            .with_columns(share=pl.col("spent_ns") / pl.col("spent_ns").sum().over("request"))
            .sort("request", "spent_ns", "place", "kind", descending=[False, True, False, False])
        )
        what = (
            pl.when(pl.col("kind").is_in(["service", "transfer", "deliver"]))
            .then(pl.lit(""))
            .otherwise(" " + pl.col("kind").str.replace_all("_", " "))
        )
        words = pl.format("{}{} {} %", pl.col("place"), what, (pl.col("share") * 100).round().cast(pl.Int64))
        return (
            parts.with_columns(words=words)
            .group_by("request", maintain_order=True)
            .agg(pl.col("words").head(count).str.join(", ").first().alias("mostly"))
        )

    def shares(self) -> pl.DataFrame:
        """Rows for the chart of participation, both terminals: ``terminal, stage, measure, share``."""
        frames = []
        for terminal in TERMINALS:
            mine = pl.col("terminal") == terminal
            total = int(self.paths.requests.filter(mine)["latency_ns"].sum())
            if not total:
                continue
            measured = _measures(participation(self.paths, terminal))
            drag = (
                self.drags.filter(mine & pl.col("stage").is_not_null())
                .group_by(pl.col("stage").cast(pl.String).alias("place"))
                .agg(spent_ns=pl.col("drag_ns").sum())
                .select("place", pl.lit(DRAG).alias("measure"), "spent_ns")
            )
            frames.append(
                pl.concat([measured, drag]).select(
                    pl.lit(terminal).alias("terminal"),
                    pl.col("place").alias("stage"),
                    "measure",
                    share=pl.col("spent_ns") / total,
                )
            )
        empty = {"terminal": pl.String, "stage": pl.String, "measure": pl.String, "share": pl.Float64}
        return pl.concat(frames) if frames else pl.DataFrame(schema=empty)

    def chart(self) -> alt.HConcatChart:
        """Participation beside drag, to the first output and to the end of the job.

        Raises
        ------
        UsageError
            No request has a path to either.
        """
        from workbench import charts
        from workbench.charts.participation import participation as draw

        shares = self.shares()
        if shares.is_empty():
            raise UsageError("a request with a critical path", "none", where=f"run {self.label!r}")
        charts.enable()
        return draw(shares, stages=[*self.stages, HAND_OVER], title=markup.plain(f"Critical path of {self.label}"))[0]

    def tables(self) -> list[Table]:
        """By kind, and by stage beside drag."""
        known, total = self.with_path, self.latency_ns
        title = f"Critical path to the {TERMINAL_TITLES[self.terminal]}"
        if not known:
            return [Table(title, ("kind",), (), f"None of {self.requests.height} requests has a path to it.")]
        left_out = self.requests.filter(pl.col("latency_ns").is_null())["missing"].value_counts().sort("missing")
        reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.iter_rows())
        note = f"Without a path: {reasons}." if reasons else ""
        kinds = [
            (kind.replace("_", " "), format_ns(spent_ns / known), f"{share:.1%}")
            for kind, spent_ns, share in self.by_kind().iter_rows()
        ]
        stages = [
            (
                row["stage"], format_ns(row["path_ns"] / known), f"{row['path_share']:.1%}",
                *(format_ns(row[f"{part}_ns"] / known) for part in ("work", "waiting", "lag")),
                "" if row["drag_ns"] is None else format_ns(row["drag_ns"] / known),
                "" if row["drag_share"] is None else f"{row['drag_share']:.1%}",
            )
            for row in self.by_stage().iter_rows(named=True)
        ]  # fmt: skip
        return [
            Table(
                f"{title}: mean of {known} of {self.requests.height} requests, {format_ns(total / known)}",
                ("kind", "per request>", "share>"),
                kinds,
                note,
            ),
            Table(
                f"{title}: where, beside drag",
                ("stage", "on path>", "share>", "work>", "waiting>", "dispatch lag>", "drag>", "share>"),
                stages,
                "Drag is what would go if a request's own work there took no time while other requests, and with them "
                "the queues, kept theirs: a large share with a small drag is a matter of load, not of one request's "
                "work.",
            ),
        ]

    def __repr__(self) -> str:
        return "\n\n".join(table.text() for table in self.tables())

    def _repr_html_(self) -> str:
        from workbench.charts import theme

        drawn = markup.inline_svg(theme.specification(self.chart())) if self.with_path else ""
        return markup.block(*(table.html() for table in self.tables()), drawn)


def _measures(parts: pl.DataFrame) -> pl.DataFrame:
    """``place, measure, spent_ns`` of participation rows: work, waiting and lag per stage, hand-overs as one place."""
    kind = pl.col("kind").cast(pl.String)
    waits = kind.is_in([*WAIT_KINDS, "unattributed"])
    measure = pl.when(waits).then(pl.lit(WAITING)).when(kind == "host").then(pl.lit(LAG)).otherwise(pl.lit(WORK))
    return (
        parts.group_by(pl.col("stage").cast(pl.String).fill_null(HAND_OVER).alias("place"), measure.alias("measure"))
        .agg(spent_ns=pl.col("path_ns").sum())
        .sort("place", "measure")
    )
