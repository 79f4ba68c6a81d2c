"""A recorded campaign: its load runs, its probe pairs, and their critical paths."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import duckdb
import polars as pl

from workbench.errors import DataIntegrityError
from workbench.metrics.critical_path import CriticalPaths, critical_paths
from workbench.metrics.retiming import reproduces
from workbench.metrics.task_graph import TaskGraph

LOADS: Final = ("light", "near", "over")
TERMINALS: Final = ("first", "job")
_LABEL = re.compile(r"^(?P<prefix>.+)-(?P<load>light|near|over)-(?P<repeat>[a-z])$")
_PAIR = re.compile(r"^(?P<prefix>.+)-pair(?P<pair>\d+)-(?P<probes>on|off)$")


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs of one campaign and their critical paths.

    Attributes
    ----------
    loads : polars.DataFrame
        ``run``, ``load``, ``repeat``, ``rate_per_s``, ``first_ns``, ``last_ns``, sorted by load and repeat.
    pairs : polars.DataFrame
        ``run``, ``pair``, ``probes``.
    stages : list of str
        Graph order, the client first.
    graphs, paths : dict of str
        Run -> task graph and critical paths, for the runs of `loads`.
    """

    connection: duckdb.DuckDBPyConnection
    loads: pl.DataFrame
    pairs: pl.DataFrame
    stages: list[str]
    graphs: dict[str, TaskGraph]
    paths: dict[str, CriticalPaths]

    @property
    def load_names(self) -> list[str]:
        """Loads present, from light to overloaded."""
        present = set(self.loads["load"])
        return [load for load in LOADS if load in present]

    def runs(self, load: str) -> list[str]:
        """Runs of one load, by repeat."""
        return self.loads.filter(pl.col("load") == load)["run"].to_list()


def profile(connection: duckdb.DuckDBPyConnection, prefix: str) -> Profile:
    """Read a campaign's runs from a store and walk their critical paths.

    Raises
    ------
    DataIntegrityError
        The store holds no load run of that prefix.
    """
    runs = connection.sql("SELECT run, label, rate_per_s, first_ns, last_ns FROM run ORDER BY label").pl()
    runs = runs.with_columns(pl.col("run").cast(pl.String))
    loads, pairs = [], []
    for row in runs.iter_rows(named=True):
        if (found := _LABEL.match(row["label"])) and found["prefix"] == prefix:
            loads.append({**row, "load": found["load"], "repeat": found["repeat"]})
        elif (found := _PAIR.match(row["label"])) and found["prefix"] == prefix:
            pairs.append({"run": row["run"], "pair": int(found["pair"]), "probes": found["probes"]})
    if not loads:
        raise DataIntegrityError(
            f"runs named {prefix}-light-a and so on",
            f"runs {runs['label'].to_list()}",
            where="store",
            fix="Record a campaign with `make record`, or name another prefix.",
        )
    frame = pl.DataFrame(loads).sort(pl.col("load").cast(pl.Enum(LOADS)), "repeat")
    graphs = {run: TaskGraph.from_store(connection, run) for run in frame["run"]}
    return Profile(
        connection=connection,
        loads=frame.select("run", "load", "repeat", "rate_per_s", "first_ns", "last_ns"),
        pairs=pl.DataFrame(pairs, schema={"run": pl.String, "pair": pl.Int64, "probes": pl.String}),
        stages=_stage_order(connection, frame["run"][0]),
        graphs=graphs,
        paths={run: critical_paths(graph) for run, graph in graphs.items()},
    )


def _stage_order(connection: duckdb.DuckDBPyConnection, run: str) -> list[str]:
    """Client first, then the others in the order in which edges reach them."""
    edges = connection.execute(
        "SELECT source::VARCHAR, target::VARCHAR FROM edge WHERE run = ? ORDER BY edge", [run]
    ).fetchall()
    order = ["client"]
    for name in order:
        order += sorted({target for source, target in edges if source == name and target not in order})
    return order


def rebuild(p: Profile) -> pl.DataFrame:
    """Does the trace rebuild end-to-end time? One row per run and terminal.

    Returns
    -------
    polars.DataFrame
        ``load``, ``run``, ``terminal``, ``requests`` (with that terminal), ``untiled`` (requests whose segments do not
        sum to latency exactly; must be 0), ``not_reproduced`` (activities that re-timing without a change moves; must
        be 0), ``violations`` (lags below zero), ``unattributed_share``, ``host_share`` (of summed latency).
    """
    rows = []
    for run, load in p.loads.select("run", "load").iter_rows():
        paths, moved = p.paths[run], reproduces(p.graphs[run]).height
        untiled = paths.untiled()
        for terminal in TERMINALS:
            requests = paths.requests.filter((pl.col("terminal") == terminal) & pl.col("latency_ns").is_not_null())
            total_ns = int(requests["latency_ns"].sum())
            segments = paths.segments.filter(pl.col("terminal") == terminal)
            by_kind = dict(
                segments.group_by(pl.col("kind").cast(pl.String))
                .agg((pl.col("end_ns") - pl.col("start_ns")).sum())
                .iter_rows()
            )
            rows.append(
                {
                    "load": load,
                    "run": run,
                    "terminal": terminal,
                    "requests": requests.height,
                    "untiled": untiled.filter(pl.col("terminal") == terminal).height,
                    "not_reproduced": moved,
                    "violations": p.graphs[run].violations.height,
                    "unattributed_share": by_kind.get("unattributed", 0) / total_ns if total_ns else None,
                    "host_share": by_kind.get("host", 0) / total_ns if total_ns else None,
                }
            )
    return pl.DataFrame(rows)
