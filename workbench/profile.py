"""Where the time of one run went: what a serving engineer asks first, computed in one place; `report` shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import polars as pl

from workbench.errors import UsageError
from workbench.lab.latency import samples
from workbench.lab.path import TERMINAL_TITLES, CriticalPath
from workbench.lab.run import Run
from workbench.trace.validate import Report
from workbench.units import format_ns

# Metric that "worst" may mean -> terminal whose path explains it.
WORST_BY = {"ttfa": "first", "ttfo": "first", "ttft": "first", "jct": "job"}
WORST = 10

_WAITS = """
    SELECT w.stage::VARCHAR AS stage, count(*) AS requests,
           (sum(w.queue_ns) // count(w.queue_ns))::BIGINT AS queue_mean_ns,
           (sum(w.batch_wait_ns) // count(w.batch_wait_ns))::BIGINT AS batch_wait_mean_ns,
           (sum(w.credit_stall_ns) // count(w.credit_stall_ns))::BIGINT AS credit_stall_mean_ns,
           (sum(w.join_wait_ns) // count(w.join_wait_ns))::BIGINT AS join_wait_mean_ns,
           any_value(s.wait_p50_ns) AS wait_p50_ns, any_value(s.wait_p95_ns) AS wait_p95_ns,
           CASE WHEN count(w.wait_ns) > 0 THEN coalesce(any_value(d.deepest), 0) END AS deepest_queue,
           CASE WHEN count(w.wait_ns) > 0 THEN coalesce(any_value(o.oldest_ns), 0) END AS oldest_wait_ns
    FROM stage_wait AS w
    LEFT JOIN stage_summary AS s ON s.run = w.run AND s.stage = w.stage
    LEFT JOIN (SELECT run, stage, max(depth) AS deepest FROM queue_depth GROUP BY run, stage) AS d
        ON d.run = w.run AND d.stage = w.stage
    LEFT JOIN (SELECT run, stage, max(oldest_wait_ns) AS oldest_ns FROM oldest_wait GROUP BY run, stage) AS o
        ON o.run = w.run AND o.stage = w.stage
    WHERE w.run = $run
    GROUP BY w.stage
    ORDER BY w.stage
"""
_WORK = """
    SELECT s.stage::VARCHAR AS stage, s.replicas, r.requests, r.launches, m.service_p50_ns, m.service_p95_ns,
           b.busy_share, r.load, f.fill AS batch_fill, f.members_per_launch
    FROM stage AS s
    LEFT JOIN service_rate AS r ON r.run = s.run AND r.stage = s.stage
    LEFT JOIN stage_summary AS m ON m.run = s.run AND m.stage = s.stage
    LEFT JOIN batch_fill AS f ON f.run = s.run AND f.stage = s.stage
    LEFT JOIN (
        SELECT run, stage, sum(busy_ns) / nullif(sum(window_ns), 0) AS busy_share FROM replica_busy GROUP BY run, stage
    ) AS b ON b.run = s.run AND b.stage = s.stage
    WHERE s.run = $run AND s.role <> 'client'
    ORDER BY s.stage
"""
_EDGES = """
    SELECT e.edge::VARCHAR AS edge, e.modality::VARCHAR AS modality, count(t.request) AS requests,
           sum(t.chunks)::BIGINT AS chunks, sum(t.chunks - t.received)::BIGINT AS not_received,
           (sum(t.transfer_ns) // nullif(sum(t.received), 0))::BIGINT AS transfer_per_chunk_ns,
           CASE WHEN count(t.bytes) = count(*) THEN sum(t.bytes)::BIGINT END AS bytes,
           any_value(h.bytes) AS high_water_bytes, any_value(h.chunks) AS high_water_chunks
    FROM edge AS e
    LEFT JOIN edge_transfer AS t ON t.run = e.run AND t.edge = e.edge
    LEFT JOIN in_flight_high_water AS h ON h.run = e.run AND h.edge = e.edge
    WHERE e.run = $run
    GROUP BY e.edge, e.modality
    ORDER BY e.edge
"""
_OBJECTIVES = """
    SELECT class, metric, limit_value, requests, met, unknown, attainment
    FROM slo_attainment
    WHERE run = $run
    ORDER BY class, metric
"""
_FAILED = """
    SELECT r.request, r.class, coalesce(o.status::VARCHAR, 'no outcome') AS status,
           o.end_ns - r.scheduled_ns AS after_ns, o.detail
    FROM request AS r
    LEFT JOIN outcome AS o ON o.run = r.run AND o.request = r.request
    WHERE r.run = $run AND o.status IS DISTINCT FROM 'ok'
    ORDER BY r.request
"""


@dataclass(frozen=True, slots=True)
class Profile:
    """The answer.

    Attributes
    ----------
    run : Run
        What was profiled.
    by : str
        Metric that the worst requests are worst by: a key of ``WORST_BY``.
    first, job : CriticalPath
        Paths to both terminals.
    waits, work, edges, objectives, failed, worst : polars.DataFrame
        Per stage, per stage, per edge, per objective; requests that did not end ok; the worst ones, worst first, with
        ``mostly``: where most of their time went.
    report : Report
        What the validator found, and which questions the trace can answer.
    """

    run: Run
    by: str
    first: CriticalPath
    job: CriticalPath
    waits: pl.DataFrame
    work: pl.DataFrame
    edges: pl.DataFrame
    objectives: pl.DataFrame
    failed: pl.DataFrame
    worst: pl.DataFrame
    report: Report

    @property
    def terminal(self) -> str:
        """Terminal whose path explains the worst requests."""
        return WORST_BY[self.by]

    @property
    def path(self) -> CriticalPath:
        """The path to `terminal`."""
        return self.first if self.terminal == "first" else self.job

    def headline(self) -> list[str]:
        """One sentence per terminal: how long, where most of it passed, and what of it would go."""
        sentences = []
        for path in (self.first, self.job):
            title = TERMINAL_TITLES[path.terminal]
            if not path.with_path:
                sentences.append(f"No request has a path to the {title}.")
                continue
            rows = path.by_stage().sort("path_ns", "stage", descending=[True, False])
            top = rows.row(0, named=True)
            waiting = int(rows["waiting_ns"].sum()) / path.latency_ns
            sentence = (
                f"To the {title}: {format_ns(path.latency_ns / path.with_path)} on average, "
                f"{top['path_share']:.0%} of it at {top['stage']}; {waiting:.0%} is waiting"
            )
            if top["drag_share"] is not None:
                sentence += (
                    f"; {top['drag_share']:.0%} would go if a request's own work at {top['stage']} took no time and "
                    "others kept theirs"
                )
            sentences.append(f"{sentence}.")
        return sentences

    def as_dict(self) -> dict[str, Any]:
        """The profile as JSON values: times in ns, shares in [0, 1], null = not known."""
        outcomes = self.run.metric("outcome_counts").select(pl.col("status").cast(pl.String), "requests")
        content = {
            "run": self.run.label,
            "info": self.run.info,
            "notes": list(self.run.notes),
            "headline": self.headline(),
            "scheduled": self.first.requests.height,
            "outcomes": dict(outcomes.iter_rows()),
            "latency": [sample.as_dict() for sample in samples(self.run.request_rows)],
            "critical_path": {path.terminal: _path_dict(path) for path in (self.first, self.job)},
            "waits": self.waits.to_dicts(),
            "work": self.work.to_dicts(),
            "edges": self.edges.to_dicts(),
            "objectives": self.objectives.to_dicts(),
            "failed": self.failed.to_dicts(),
            "worst_by": self.by,
            "worst": self.worst.to_dicts(),
            "valid": self.report.is_valid,
            "findings": [
                {"rule": found.rule, "severity": found.severity, "holds": found.holds, "rows": found.count}
                for found in self.report.findings
            ],
            "cannot_tell": [
                {"question": answer.question, "text": answer.text, "state": answer.state, "reason": answer.reason}
                for answer in self.report.answers
                if answer.state != "yes"
            ],
        }
        return {name: _finite(value) for name, value in content.items()}


def profile(run: Run, *, by: str | None = None, worst: int = WORST) -> Profile:
    """Profile a run.

    Parameters
    ----------
    run : Run
        From `workbench.open`.
    by : str, optional
        What the worst requests are worst by: ttfa, ttfo, ttft or jct. Default: the first of ttfa, ttfo and jct that any
        request has.
    worst : int
        How many of them.

    Raises
    ------
    UsageError
        Another metric, or `worst` below 1.
    """
    if worst < 1:
        raise UsageError("at least 1 request", str(worst), where="worst")
    requests = run.request_rows
    if by is None:
        by = next((name for name in ("ttfa", "ttfo", "jct") if requests[f"{name}_ns"].count()), "jct")
    if by not in WORST_BY:
        raise UsageError(f"one of {', '.join(WORST_BY)}", repr(by), where="by")
    first, job = run.critical_path("first"), run.critical_path("job")
    named = {"run": run.label}
    mostly = (first if WORST_BY[by] == "first" else job).mostly(3)
    ranked = requests.filter(pl.col(f"{by}_ns").is_not_null()).sort(f"{by}_ns", "request", descending=[True, False])
    shown = ranked.head(worst).select(
        "request", "class", pl.col("status").cast(pl.String).fill_null("no outcome"),
        "ttfo_ns", "ttfa_ns", "jct_ns", "wait_ns", "service_ns",
    )  # fmt: skip
    return Profile(
        run=run,
        by=by,
        first=first,
        job=job,
        waits=run.sql(_WAITS, named),
        work=run.sql(_WORK, named),
        edges=run.sql(_EDGES, named),
        objectives=run.sql(_OBJECTIVES, named),
        failed=run.sql(_FAILED, named),
        worst=shown.join(mostly, on="request", how="left", maintain_order="left").with_columns(
            pl.col("mostly").fill_null("no path")
        ),
        report=run.validate(),
    )


def _path_dict(path: CriticalPath) -> dict[str, Any]:
    missing = path.requests.filter(pl.col("latency_ns").is_null())["missing"].value_counts().sort("missing")
    return {
        "requests": path.requests.height,
        "with_path": path.with_path,
        "latency_ns": path.latency_ns,
        "missing": dict(missing.iter_rows()),
        "by_kind": path.by_kind().to_dicts(),
        "by_stage": path.by_stage().to_dicts(),
    }


def _finite(value: Any) -> Any:
    """The value with every number that JSON does not have as None."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
