"""What a run is, how its requests ended and how long they took, as tables for a reader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lab.latency import QUANTILES, samples
from workbench.markup import Table
from workbench.units import S_NS, format_ns

if TYPE_CHECKING:
    from workbench.lab.run import Run


def facts(run: Run) -> Table:
    """What was recorded, under which load, on what, at what cost."""
    info = run.info
    load = info["load_kind"] or "load not stated"
    if info["rate_per_s"] is not None:
        load += f", {info['rate_per_s']:g} requests/s offered"
    hardware = info["hardware"] if isinstance(info["hardware"], dict) else {}
    machine = [str(hardware.get("cpu") or "CPU not stated"), f"{hardware.get('cores') or 'unknown number of'} cores"]
    machine += [str(d.get("name")) for d in hardware.get("accelerators") or [] if isinstance(d, dict)]
    lost = f"{info['events_lost']:,} lost" if info["events_lost"] else "none lost"
    cost = "cost not calibrated"
    if info["probe_ns_per_event"] is not None:
        cost = f"{format_ns(info['probe_ns_per_event'])} each"
    rows = [
        ("what", f"{info['provenance']} by {info['source']}, control {info['control_plan']}"),
        ("load", f"{load}, over {(info['last_ns'] - info['first_ns']) / S_NS:.1f} s"),
        ("machine", ", ".join(machine)),
        ("probes", f"{info['probes']}; {info['events']:,} rows recorded, {lost}, {cost}"),
        ("code", info["commit"] or "not stated"),
    ]
    weights = "SELECT stage::VARCHAR, weights FROM stage WHERE run = $run AND weights <> 'none' ORDER BY stage.stage"
    rows += [("weights", f"{stage}: {what}") for stage, what in run.sql(weights, {"run": run.label}).iter_rows()]
    rows += [("note", note) for note in run.notes]
    return Table(f"Run {run.label}", ("", ""), rows)


def outcomes(run: Run) -> Table:
    """How requests ended, out of all scheduled ones."""
    rows = run.metric("outcome_counts")
    scheduled = int(rows["scheduled"][0]) if rows.height else 0
    missing = scheduled - int(rows["requests"].sum())
    cells = [
        (str(status), f"{count:,}", "n/a" if share is None else f"{share:.1%}")
        for status, count, share in rows.select("status", "requests", "share").iter_rows()
    ]
    note = f"{missing:,} requests have no outcome row." if missing else ""
    return Table(f"Outcomes of {scheduled:,} scheduled requests", ("status", "requests>", "share>"), cells, note)


def latencies(run: Run) -> Table:
    """Quantiles of each metric; a thin tail gives no number."""
    cells = []
    for sample in samples(run.request_rows):
        shown = sample.metric.format
        cells.append(
            (
                sample.metric.name, sample.metric.title, f"{len(sample):,}", str(sample.failed), str(len(sample.cut)),
                shown(float(sample.values[0])), *(sample.shown(q) for q in QUANTILES), shown(float(sample.values[-1])),
            )
        )  # fmt: skip
    columns = ("metric", "", "requests>", "failed>", "cancelled>", "least>", "p50>", "p95>", "p99>", "largest>")
    return Table(
        "Latency from the scheduled arrival",
        columns,
        cells,
        "A request that failed never gets there; one that the client cancelled is cut off at that moment "
        "(Kaplan-Meier), which assumes that the moment had nothing to do with the request. A quantile needs 10 "
        "requests beyond it.",
    )
