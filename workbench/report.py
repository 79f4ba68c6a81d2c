"""A profile for readers: as text for a terminal, or as one page that holds its drawings and refers to nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from workbench.errors import UsageError, WorkbenchError
from workbench.lab import summary
from workbench.lab.latency import METRICS
from workbench.lab.path import TERMINAL_TITLES
from workbench.markup import STYLE, Table, escape, inline_svg, plain
from workbench.profile import Profile
from workbench.stats import minimum_size
from workbench.trace import manifest
from workbench.units import S_NS, format_bytes, format_ns

if TYPE_CHECKING:
    import altair as alt

MAX_FAILED = 10

RECORDED, WHERE, STAGES, WORST, DOUBT = (
    "What was recorded",
    "Where the time went",
    "Stages and hand-overs",
    "The worst requests",
    "What to doubt",
)

# Nothing may be loaded and nothing may run, whatever a trace brought in.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_CSS = (
    f"body{{{STYLE};margin:24px auto;max-width:1100px;padding:0 16px}}"
    "h1{font-size:22px;margin:0 0 8px}h2{margin:28px 0 6px;font-size:17px}p{margin:2px 0}"
    "svg{display:block;margin:10px 0;max-width:100%;height:auto}"
)


def sections(profile: Profile) -> dict[str, list[Table]]:
    """The tables of a profile under their headings, in the order in which they are asked for."""
    run = profile.run
    recorded = [summary.facts(run), summary.outcomes(run), summary.latencies(run)]
    if profile.failed.height:
        recorded.insert(2, _failed(profile))
    stages = [_waits(profile), _work(profile), _edges(profile)]
    if profile.objectives.height:
        stages.append(_objectives(profile))
    doubt = [_open(profile)]
    if profile.report.findings:
        doubt.insert(0, _findings(profile))
    return {
        RECORDED: recorded,
        WHERE: [*profile.first.tables(), *profile.job.tables()],
        STAGES: stages,
        WORST: [_worst(profile)],
        DOUBT: doubt,
    }


def text(profile: Profile) -> str:
    """The profile for a terminal."""
    tables = [table for part in sections(profile).values() for table in part]
    sentences = "\n".join(plain(sentence) for sentence in profile.headline())
    return "\n\n".join([sentences, *(table.text() for table in tables)])


def page(profile: Profile) -> str:
    """The profile as an HTML document.

    It refers to nothing outside itself and holds no script, all text of the trace is escaped, and it depends on the run
    and this package alone: the same run gives the same bytes.
    """
    drawings = {
        RECORDED: [_svg(profile.run.graph())] if profile.run.stages else [],
        WHERE: [_breakdown(profile), _svg(profile.first.chart())] if profile.job.shares().height else [],
        WORST: [_timeline(profile, request) for request in profile.worst["request"]],
    }
    title = f"Profile of {escape(profile.run.label)}"
    body = [f"<h1>{title}</h1>", *(f"<p>{escape(sentence)}</p>" for sentence in profile.headline())]
    for heading, tables in sections(profile).items():
        body += [f"<h2>{heading}</h2>", *(table.html() for table in tables), *drawings.get(heading, [])]
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{title}</title><style>{_CSS}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def write(profile: Profile, path: Path) -> None:
    """Write the page, whole or not at all.

    Raises
    ------
    UsageError
        `path` is a folder, or lies in a sealed run, which is immutable.
    """
    path = path.resolve()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UsageError("a file to write to", "a device or socket", where=str(path), fix="Name a regular file.")
    if path.is_dir():
        raise UsageError("a file to write to", "a folder", where=str(path), fix=f"Name a file: {path / 'profile.html'}")
    if (path.parent / manifest.NAME).exists():
        raise UsageError("a place outside of runs", "a sealed run folder", where=str(path), fix="A run is immutable.")
    content = page(profile)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(content, encoding="utf-8")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _svg(chart: alt.TopLevelMixin) -> str:
    from workbench.charts import theme

    return inline_svg(theme.specification(chart))


def _timeline(profile: Profile, request: int) -> str:
    """A timeline with its path; a request that cannot be drawn says why instead."""
    reached = profile.path.requests.filter(pl.col("request") == request)["latency_ns"].count() > 0
    try:
        return _svg(profile.run.timeline(request, terminal=profile.terminal if reached else None))
    except WorkbenchError as error:
        return f"<p>Request {request}: {escape(error)}</p>"


def _breakdown(profile: Profile) -> str:
    from workbench.charts.breakdown import breakdown

    rows = [
        {"load": "all requests", "terminal": path.terminal, "kind": kind, "mean_s": spent_ns / S_NS / path.with_path}
        for path in (profile.first, profile.job)
        if path.with_path
        for kind, spent_ns, _ in path.by_kind().iter_rows()
    ]
    return _svg(breakdown(pl.DataFrame(rows), loads=["all requests"])[0])


def _worst(profile: Profile) -> Table:
    rows = [
        (
            str(row["request"]),
            row["class"],
            row["status"],
            *(format_ns(row[f"{name}_ns"]) for name in ("ttfo", "jct", "wait", "service")),
            row["mostly"],
        )
        for row in profile.worst.iter_rows(named=True)
    ]
    columns = ("request>", "class", "status", "first output>", "done>", "waits>", "services>")
    mostly = f"path to the {TERMINAL_TITLES[profile.terminal]}"
    note = "Waits and services are summed over stages that work at the same time: they do not add up to the latency."
    return Table(f"Worst {len(rows)} requests by {profile.by}", (*columns, mostly), rows, note)


def _failed(profile: Profile) -> Table:
    rows = [
        (str(request), klass, status, format_ns(after_ns), detail or "")
        for request, klass, status, after_ns, detail in profile.failed.head(MAX_FAILED).iter_rows()
    ]
    more = profile.failed.height - len(rows)
    note = f"And {more:,} more." if more else ""
    return Table("Requests that did not end ok", ("request>", "class", "status", "after>", "detail"), rows, note)


def _waits(profile: Profile) -> Table:
    names = ("queue", "batch_wait", "credit_stall", "join_wait")
    rows = [
        (
            row["stage"],
            f"{row['requests']:,}",
            *(format_ns(row[f"{name}_mean_ns"]) for name in names),
            format_ns(row["wait_p50_ns"]),
            _p95(row["wait_p95_ns"], row["requests"]),
            _count(row["deepest_queue"]),
            format_ns(row["oldest_wait_ns"]),
        )
        for row in profile.waits.iter_rows(named=True)
    ]
    columns = ("stage", "requests>", "queue>", "batch wait>", "credit stall>", "join wait>", "W p50>", "W p95>")
    return Table(
        "Waiting per stage (W_v)",
        (*columns, "deepest queue>", "oldest wait>"),
        rows,
        "Kinds of wait are means per request over all its tasks at the stage. n/a: this trace does not record it.",
    )


def _work(profile: Profile) -> Table:
    rows = [
        (
            row["stage"],
            str(row["replicas"]),
            _count(row["requests"]),
            _count(row["launches"]),
            format_ns(row["service_p50_ns"]),
            _p95(row["service_p95_ns"], row["requests"]),
            _share(row["busy_share"]),
            _ratio(row["load"]),
            _ratio(row["members_per_launch"]),
            _share(row["batch_fill"]),
        )
        for row in profile.work.iter_rows(named=True)
    ]
    columns = ("stage", "replicas>", "requests>", "launches>", "S p50>", "S p95>", "busy>", "load>")
    return Table(
        "Work per stage (S_v)",
        (*columns, "members per launch>", "batch fill>"),
        rows,
        "Busy is the share of the measured window in which a replica worked, as the host sees it; load is demand over "
        "capacity. A launch counts in full for each of its members.",
    )


def _edges(profile: Profile) -> Table:
    rows = [
        (
            row["edge"],
            row["modality"],
            _count(row["chunks"]),
            _count(row["not_received"]),
            format_ns(row["transfer_per_chunk_ns"]),
            format_bytes(row["bytes"]),
            format_bytes(row["high_water_bytes"]),
            _count(row["high_water_chunks"]),
        )
        for row in profile.edges.iter_rows(named=True)
    ]
    columns = ("edge", "", "chunks>", "not received>", "per chunk>", "bytes>", "most in flight>", "chunks in flight>")
    return Table("Hand-overs", columns, rows)


def _objectives(profile: Profile) -> Table:
    rows = [
        (
            row["class"],
            row["metric"],
            _limit(row["metric"], row["limit_value"]),
            f"{row['requests']:,}",
            f"{row['met']:,}",
            f"{row['unknown']:,}",
            _share(row["attainment"]),
        )
        for row in profile.objectives.iter_rows(named=True)
    ]
    columns = ("class", "metric", "limit>", "requests>", "met>", "unknown>", "attainment>")
    return Table("Objectives, over all scheduled requests", columns, rows)


def _limit(metric: str, value: float) -> str:
    """A limit in the unit of its metric, bare where the metric is none of ours."""
    known = next((known for known in METRICS if known.name == metric), None)
    return f"{value:g}" if known is None else known.format(value)


def _findings(profile: Profile) -> Table:
    rows = [(found.severity, found.rule, f"{found.count:,}", found.holds) for found in profile.report.findings]
    note = "`workbench validate` lists the rows."
    if not profile.report.is_valid:
        note += " Numbers that use rows with errors are wrong."
    return Table("Rules that the trace breaks", ("", "rule", "rows>", "what should hold"), rows, note)


def _open(profile: Profile) -> Table:
    rows = [
        (answer.text, "only partly" if answer.state == "partly" else "no", answer.reason)
        for answer in profile.report.answers
        if answer.state != "yes"
    ]
    report = profile.report
    note = f"{report.rules} rules were checked: {report.errors} errors, {report.warnings} warnings."
    return Table("What this trace cannot tell", ("question", "answered", "why"), rows, note)


def _p95(value_ns: int | None, requests: int | None) -> str:
    """A p95, or how many requests it would need."""
    needed = minimum_size(0.95)
    return format_ns(value_ns) if (requests or 0) >= needed else f"needs {needed}"


def _count(value: int | None) -> str:
    return "n/a" if value is None else f"{value:,}"


def _share(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1%}"


def _ratio(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.2f}"
