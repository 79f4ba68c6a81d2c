"""What critical paths are made of, summed over the requests of a load: by kind, by stage, and beside drag."""

from __future__ import annotations

from typing import Final

import polars as pl

from workbench.metrics.drag import stage_drag
from workbench.schema.enums import WAIT_KINDS
from workbench.studies.shadow_profile import TERMINALS, Profile
from workbench.units import S_NS

HANDOVER: Final = "hand-over"  # row of the participation chart for time spent on edges


def path_breakdown(p: Profile) -> pl.DataFrame:
    """Mean time per request on the critical path by kind, over both repeats of a load.

    Returns
    -------
    polars.DataFrame
        ``load``, ``terminal``, ``kind``, ``mean_s`` (seconds per request that reached the terminal), ``share``.
    """
    rows = []
    for load in p.load_names:
        for terminal in TERMINALS:
            total, requests = _path_ns(p, load, terminal)
            whole = sum(total.values())
            for (_, kind), spent_ns in _summed(total, by_kind=True).items():
                rows.append(
                    {
                        "load": load,
                        "terminal": terminal,
                        "kind": kind,
                        "mean_s": spent_ns / S_NS / requests,
                        "share": spent_ns / whole,
                    }
                )
    schema = {"load": pl.String, "terminal": pl.String, "kind": pl.String, "mean_s": pl.Float64, "share": pl.Float64}
    return pl.DataFrame(rows, schema=schema).sort("load", "terminal", "kind")


def participation_shares(p: Profile, load: str) -> pl.DataFrame:
    """Share of latency per stage on the path, and the drag of the stage, at one load.

    Returns
    -------
    polars.DataFrame
        ``terminal``, ``stage`` (or "hand-over" for edges), ``measure`` ("waiting on path", "dispatch lag on path",
        "work on path", "drag"), ``share`` of summed latency. The drag is what re-timing gives with all services of the
        stage at zero and the resource order of other requests frozen.
    """
    rows = []
    for terminal in TERMINALS:
        total, _ = _path_ns(p, load, terminal)
        whole = sum(total.values())
        spent: dict[tuple[str, str], int] = {}
        for (place, kind), spent_ns in total.items():
            measure = "waiting on path" if kind in (*WAIT_KINDS, "unattributed") else "work on path"
            measure = "dispatch lag on path" if kind == "host" else measure
            spent[place, measure] = spent.get((place, measure), 0) + spent_ns
        for run in p.runs(load):
            drag = stage_drag(p.graphs[run]).filter((pl.col("terminal") == terminal) & pl.col("stage").is_not_null())
            for stage, drag_ns in (
                drag.group_by(pl.col("stage").cast(pl.String)).agg(pl.col("drag_ns").sum()).iter_rows()
            ):
                spent[stage, "drag"] = spent.get((stage, "drag"), 0) + drag_ns
        for (place, measure), spent_ns in spent.items():
            rows.append({"terminal": terminal, "stage": place, "measure": measure, "share": spent_ns / whole})
    schema = {"terminal": pl.String, "stage": pl.String, "measure": pl.String, "share": pl.Float64}
    return pl.DataFrame(rows, schema=schema).sort("terminal", "stage", "measure")


def _path_ns(p: Profile, load: str, terminal: str) -> tuple[dict[tuple[str, str], int], int]:
    """Path time by (stage or hand-over, kind), and requests with the terminal, over the repeats of a load."""
    total: dict[tuple[str, str], int] = {}
    requests = 0
    for run in p.runs(load):
        paths = p.paths[run]
        requests += paths.requests.filter((pl.col("terminal") == terminal) & pl.col("latency_ns").is_not_null()).height
        spent = (
            paths.segments.filter(pl.col("terminal") == terminal)
            .group_by(
                pl.col("stage").cast(pl.String).fill_null(HANDOVER).alias("place"), pl.col("kind").cast(pl.String)
            )
            .agg((pl.col("end_ns") - pl.col("start_ns")).sum())
        )
        for place, kind, spent_ns in spent.iter_rows():
            total[place, kind] = total.get((place, kind), 0) + spent_ns
    return total, requests


def _summed(total: dict[tuple[str, str], int], *, by_kind: bool) -> dict[tuple[str, str], int]:
    summed: dict[tuple[str, str], int] = {}
    for (place, kind), spent_ns in total.items():
        key = ("", kind) if by_kind else (place, "")
        summed[key] = summed.get(key, 0) + spent_ns
    return summed
