"""One recorded run as an object: its rows, its metrics, its charts, and any query over it."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl

from workbench import markup
from workbench.errors import UsageError
from workbench.lab import drawings, source
from workbench.lab.comparison import Comparison
from workbench.schema import ddl
from workbench.schema.tables import RUN, TABLES
from workbench.trace import store
from workbench.trace.answers import Answer, answers
from workbench.trace.validate import Report, validate

if TYPE_CHECKING:
    import altair as alt

    from workbench.lab.path import CriticalPath
    from workbench.metrics.critical_path import CriticalPaths
    from workbench.metrics.task_graph import TaskGraph

HINT = 'run.overview()  run.critical_path("first")  run.timeline(0)  run.metric("ttfa")  run.views()  run.sql("...")'

_REQUESTS = """
    SELECT m.* EXCLUDE (run), o.cancel_ns - m.scheduled_ns AS cut_ns
    FROM request_metrics AS m
    LEFT JOIN outcome AS o ON o.run = m.run AND o.request = m.request
    WHERE m.run = $run
    ORDER BY m.request
"""

Parameters = Sequence[Any] | Mapping[str, Any] | None


def open(path: str | os.PathLike[str], run: str | None = None) -> Run:
    """Open a recorded run.

    Parameters
    ----------
    path : path
        A sealed run folder, a folder of such folders, or a ``.duckdb`` store.
    run : str, optional
        Label of the run, where the path holds several.

    Returns
    -------
    Run
        Read-only: nothing that is done with it changes the recording.

    Raises
    ------
    UsageError
        Nothing there, or several runs and none named: the message lists them.
    DataIntegrityError
        A file does not match its manifest or the trace contract.

    Examples
    --------
    In a notebook::

        run = workbench.open("data/raw/cpu-light-a")
        run.overview()
    """
    return Run(source.find(path, run))


class Run:
    """One run. In a notebook its representation is a summary; start with `overview` and `critical_path`.

    Times are int64 nanoseconds on the run's clock, NULL = not known.

    Attributes
    ----------
    label : str
        Name of the run.
    path : Path
        Folder or store that it was opened from.
    notes : tuple of str
        What a reader should know about what was loaded.
    """

    def __init__(self, found: source.Source) -> None:
        self._source = found
        self.label: str = found.label
        self.path: Path = found.path
        self.notes: tuple[str, ...] = found.notes

    # --- rows -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def info(self) -> dict[str, Any]:
        """The row of table ``run``: provenance, hardware, versions, configuration; JSON columns as Python values."""
        row = self.sql("SELECT * EXCLUDE (run) FROM run WHERE run = $run", {"run": self.label}).row(0, named=True)
        parsed = {column.name for column in RUN.columns if column.type == "json"}
        return {name: json.loads(value) if name in parsed else value for name, value in row.items()}

    @property
    def requests(self) -> pl.LazyFrame:
        """View ``request_metrics``: one row per scheduled request, failed ones included, with every metric."""
        return self.request_rows.drop("cut_ns").lazy()

    @functools.cached_property
    def request_rows(self) -> pl.DataFrame:
        """The rows of `requests` in memory, with ``cut_ns``: scheduled arrival to the client's cancel, NULL if none."""
        return self.sql(_REQUESTS, {"run": self.label})

    @property
    def spans(self) -> pl.LazyFrame:
        """Table ``span``: waits and work per request, stage and chunk."""
        return self._lazy("span")

    @property
    def chunks(self) -> pl.LazyFrame:
        """Table ``chunk``: hand-offs between stages and to the client."""
        return self._lazy("chunk")

    @functools.cached_property
    def stages(self) -> list[str]:
        """Stages in the order in which the trace declares them, the client included."""
        rows = self.sql(
            "SELECT stage::VARCHAR AS stage FROM stage WHERE run = $run ORDER BY stage.stage", {"run": self.label}
        )
        return rows["stage"].to_list()

    def sql(self, query: str, params: Parameters = None) -> pl.DataFrame:
        """Run one read-only query over the tables and views; see `views`.

        Parameters
        ----------
        query : str
            One SELECT (or DESCRIBE, SHOW, SUMMARIZE). Every table and view has a column ``run``: an isolated run may be
            loaded with this one.
        params : sequence or mapping, optional
            Values of ``?`` or ``$name``.

        Raises
        ------
        UsageError
            Not one query, one that would write, or one that DuckDB refuses: the message lists what there is.
        """
        cursor = self._source.cursor()
        try:
            statements = cursor.extract_statements(query)
            kinds = [statement.type for statement in statements]
            if kinds != [duckdb.StatementType.SELECT]:
                found = ", ".join(kind.name for kind in kinds) or "none"
                raise UsageError("one query that only reads", found, where="sql", fix="A recording is never changed.")
            frame: pl.DataFrame = cursor.sql(query, params=params).pl()
            return frame
        except duckdb.Error as error:
            raise source.as_query_error(error, [*TABLES, *(view.name for view in ddl.views())]) from error

    def metric(self, name: str) -> pl.DataFrame:
        """All rows of one metric view for this run, sorted by its key columns.

        Parameters
        ----------
        name : str
            Name of a view, such as ``ttfa``, ``stage_wait`` or ``replica_busy``; `views` lists them with definitions.

        Raises
        ------
        UsageError
            No such view; suggests the nearest name.
        """
        names = [view.name for view in ddl.views()]
        if name not in names:
            columns = list(self.requests.collect_schema())
            near = difflib.get_close_matches(name, [*names, *columns], n=1)
            guess = near[0] if near else ""
            fix = f"Did you mean {guess!r}" + (", a column of request_metrics?" if guess not in names else "?")
            raise UsageError(
                f"one of the {len(names)} metric views",
                repr(name),
                where="metric",
                fix=fix if guess else "run.views() lists them.",
            )
        return self.sql(f"SELECT * EXCLUDE (run) FROM {name} WHERE run = $run ORDER BY ALL", {"run": self.label})

    def views(self) -> pl.DataFrame:
        """The catalog of metrics: ``name, definition, unit, denominator, source``."""
        fields = ("name", *ddl.FIELDS)
        return pl.DataFrame({field: [getattr(view, field) for view in ddl.views()] for field in fields}).sort("name")

    def number(self, request: int | str) -> int:
        """Number of a request that is given by number or by its id in the source system.

        Raises
        ------
        UsageError
            No such request, or an id of several.
        """
        if isinstance(request, str):
            query = "SELECT request FROM request WHERE run = $run AND external_id = $id ORDER BY request"
            named = self.sql(query, {"run": self.label, "id": request})["request"].to_list()
            if len(named) == 1:
                return int(named[0])
            if named:
                raise UsageError("an id of one request", f"{request!r} of requests {named[:5]}", where="request")
        query = "SELECT request FROM request WHERE run = $run ORDER BY request"
        numbers = self.sql(query, {"run": self.label})["request"].to_list()
        number: int | None = None
        if isinstance(request, str) and request.isdecimal():
            number = int(request)
        elif hasattr(request, "__index__") and not isinstance(request, bool):
            number = operator.index(request)
        if number is None or number not in numbers:
            span = f"{numbers[0]} to {numbers[-1]}" if numbers else "none"
            raise UsageError(
                f"one of {len(numbers)} requests ({span})",
                repr(request),
                where="request",
                fix="run.requests lists them.",
            )
        return number

    # --- charts -----------------------------------------------------------------------------------------------------

    def timeline(self, request: int | str, *, terminal: str | None = None) -> alt.LayerChart:
        """Draw one request: stages as rows, waits light, work solid, chunks and credits marked.

        Parameters
        ----------
        request : int or str
            Number of the request, or its id in the source system.
        terminal : str, optional
            ``first`` or ``job``: also draw the critical path to it, as a row of its own.

        Raises
        ------
        UsageError
            No such request, or one without a path to `terminal`.
        """
        return drawings.timeline(self, self.number(request), terminal=terminal)

    def overview(self) -> alt.VConcatChart:
        """All requests in one linked chart: drag over points to list them, click one in the list to see its timeline.

        A chart holds 5,000 rows, so not every request of a long run has a timeline in it: the 25 slowest, some that did
        not end ok and an even sample have one. The notes under the title say what was left out.
        """
        return drawings.overview(self)

    def graph(self) -> alt.LayerChart:
        """Draw the run's stage graph, with the device of each stage."""
        return drawings.graph(self)

    # --- analyses ---------------------------------------------------------------------------------------------------

    def critical_path(self, terminal: str = "first") -> CriticalPath:
        """What every request waited for and worked on between its scheduled arrival and `terminal`.

        Parameters
        ----------
        terminal : str
            ``first`` (first consumable output) or ``job`` (end of the last client stream).
        """
        from workbench.lab.path import CriticalPath

        return CriticalPath(self.label, terminal, self.stages, self._paths, self._drags)

    def validate(self) -> Report:
        """Judge this run alone: which questions it can answer, and each row that breaks a rule."""
        cursor = self._source.cursor()
        tables = {}
        for name in TABLES:
            query = f"SELECT * EXCLUDE (run) FROM {ddl.quote_name(name)} WHERE run = $run"
            tables[name] = cursor.sql(query, params={"run": self.label}).to_arrow_table()
        with store.load_tables([tables]) as alone:
            report = validate(alone)
        return dataclasses.replace(report, answers=self.answers())

    def answers(self) -> tuple[Answer, ...]:
        """Which questions the run can answer, with what was loaded beside it."""
        return tuple(answer for answer in answers(self._source.cursor()) if answer.run == self.label)

    def compare(self, other: Run) -> Comparison:
        """Set this run beside another: quantiles of each metric, and pairs of requests that ask for the same work."""
        return Comparison.of(self, other)

    # --- representations --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        counts = [
            self.sql(f"SELECT count(*) FROM {table} WHERE run = $run", {"run": self.label}).item()
            for table in ("request", "span")
        ]
        return f"Run({markup.plain(self.label)!r}, {counts[0]} requests, {counts[1]} spans)"

    def _repr_html_(self) -> str:
        from workbench.lab import summary

        parts = [table.html() for table in (summary.facts(self), summary.outcomes(self), summary.latencies(self))]
        return markup.block(*parts, f"<p><code>{markup.escape(HINT)}</code></p>")

    # --- inside -----------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _graph(self) -> TaskGraph:
        from workbench.metrics.task_graph import TaskGraph

        return TaskGraph.from_store(self._source.cursor(), self.label)

    @functools.cached_property
    def _paths(self) -> CriticalPaths:
        from workbench.metrics.critical_path import critical_paths

        return critical_paths(self._graph)

    @functools.cached_property
    def _drags(self) -> pl.DataFrame:
        from workbench.lab.path import NO_DRAGS
        from workbench.metrics.drag import stage_drag

        return stage_drag(self._graph) if len(self._graph) else NO_DRAGS

    def _lazy(self, table: str) -> pl.LazyFrame:
        query = f"SELECT * EXCLUDE (run) FROM {table} WHERE run = $run ORDER BY span"
        lazy: pl.LazyFrame = self._source.cursor().sql(query, params={"run": self.label}).pl(lazy=True)
        return lazy
