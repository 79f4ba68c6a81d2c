"""Graphs from the tables of `workbench.testing`, and the worked example in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
import pyarrow as pa

from workbench.metrics.critical_path import CriticalPaths
from workbench.metrics.task_graph import TaskGraph
from workbench.testing.example import ORIGIN_NS
from workbench.testing.traces import Row, Tables, changed
from workbench.units import MS_NS

NEEDED = ("span", "chunk", "stage", "edge", "request", "outcome", "credit")


def polars_tables(tables: Mapping[str, pa.Table]) -> dict[str, pl.DataFrame]:
    """The tables that a task graph is built from."""
    return {name: pl.DataFrame(tables[name]) for name in NEEDED if name in tables}


def graph_of(tables: Mapping[str, pa.Table]) -> TaskGraph:
    return TaskGraph.from_tables(**polars_tables(tables))


def edited(tables: Tables, name: str, where: Mapping[str, Any], **values: Any) -> Tables:
    """The tables with `values` in the rows of table `name` that match `where`; there must be one."""
    hits = 0

    def change(rows: list[Row]) -> list[Row]:
        nonlocal hits
        for row in rows:
            if all(row[key] == value for key, value in where.items()):
                row.update(values)
                hits += 1
        return rows

    result = changed(tables, name, change)
    assert hits, f"no row of {name} with {where}"
    return result


def ms(value_ns: int) -> int:
    """Milliseconds from the example's moment 0, exactly."""
    assert value_ns % MS_NS == 0
    return (value_ns - ORIGIN_NS) // MS_NS


def in_ms(paths: CriticalPaths, request: int, terminal: str) -> list[tuple[str, str, int, int]]:
    """Segments of one path as (place, kind, start, end) in milliseconds."""
    rows = paths.segments.filter((pl.col("request") == request) & (pl.col("terminal") == terminal))
    place = pl.coalesce(pl.col("stage").cast(pl.String), pl.col("edge").cast(pl.String))
    return [
        (where, kind, ms(start), ms(end))
        for where, kind, start, end in rows.select(place, "kind", "start_ns", "end_ns").rows()
    ]
