"""Stage graphs: which stages a request passes, which edges stream, where branches fork and join.

A graph is data. Presets lie in ``workbench/graphs/*.toml``; a run stores its own graph in the tables ``stage`` and
``edge``. The client is a stage of its own: requests leave it and outputs come back to it, so its in-edges are the
terminals.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.schema.enums import EDGE_KIND, MODALITY, STAGE_ROLE

CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage.

    Attributes
    ----------
    name : str
        Unique in the graph.
    role : str
        One of `workbench.schema.enums.STAGE_ROLE`.
    batch_limit : int or None
        Largest number of requests per launch; None = not stated.
    join : tuple of str
        In-edges that must *all* have delivered before the stage can start a request; empty when any one suffices.
    """

    name: str
    role: str
    batch_limit: int | None = None
    join: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge; `kind` is "stream" when the target starts on part of the payload, "whole" when it waits for all."""

    source: str
    target: str
    modality: str
    kind: str

    @property
    def name(self) -> str:
        """``source>target``: how traces name the edge."""
        return f"{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class StageGraph:
    """Stages and edges of one model's serving graph, validated on construction.

    Attributes
    ----------
    name, title, source : str
        Short name, one line for a reader, and where the shape comes from.
    stages : tuple of Stage
        The client included.
    edges : tuple of Edge
        At most one per (source, target). Without the client the graph is acyclic: loops over time (decode steps,
        denoising steps) are tasks of a stage, not edges.

    Raises
    ------
    UsageError
        Unknown role, modality or kind; duplicate or missing names; a cycle; a stage that no request reaches or that
        reaches no client; a join over an edge that does not exist.

    Examples
    --------
    >>> graph = preset("t1")
    >>> graph.order
    ('thinker', 'phonemizer', 'talker', 'code2wav')
    >>> [edge.name for edge in graph.terminals]
    ['code2wav>client']
    """

    name: str
    title: str
    source: str
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        where = f"graph {self.name!r}"
        names = [stage.name for stage in self.stages]
        _unique(names, "stage names", where)
        _unique([edge.name for edge in self.edges], "edges", where)
        if CLIENT not in names:
            raise UsageError(f"a stage named {CLIENT!r}", f"stages {names}", where=where)
        for stage in self.stages:
            _one_of(stage.role, STAGE_ROLE, f"{where}, role of stage {stage.name!r}")
            incoming = {edge.name for edge in self.edges if edge.target == stage.name}
            for name in stage.join:
                if name not in incoming:
                    raise UsageError(
                        f"join edges among {sorted(incoming)}", repr(name), where=f"{where}, stage {stage.name!r}"
                    )
        for edge in self.edges:
            _one_of(edge.modality, MODALITY, f"{where}, modality of edge {edge.name}")
            _one_of(edge.kind, EDGE_KIND, f"{where}, kind of edge {edge.name}")
            for end in (edge.source, edge.target):
                _one_of(end, names, f"{where}, edge {edge.name}")
            if edge.source == edge.target:
                raise UsageError("two different stages", f"edge {edge.name}", where=where)
        reached = self._closure(forward=True)
        answered = self._closure(forward=False)
        for name in names:
            if name not in reached:
                raise UsageError("every stage reachable from the client", f"unreachable {name!r}", where=where)
            if name not in answered:
                raise UsageError("every stage to reach the client", f"dead end {name!r}", where=where)
        if len(self.order) != len(names) - 1:
            raise UsageError("no cycle among stages", f"order stops after {self.order}", where=where)

    def _closure(self, *, forward: bool) -> set[str]:
        seen = {CLIENT}
        stack = [CLIENT]
        while stack:
            here = stack.pop()
            for edge in self.edges:
                a, b = (edge.source, edge.target) if forward else (edge.target, edge.source)
                if a == here and b not in seen:
                    seen.add(b)
                    stack.append(b)
        return seen

    @property
    def order(self) -> tuple[str, ...]:
        """Stages without the client in topological order; ties keep the order of `stages`."""
        pending = [stage.name for stage in self.stages if stage.name != CLIENT]
        done: list[str] = []
        while pending:
            ready = next(
                (
                    name
                    for name in pending
                    if all(e.source == CLIENT or e.source in done for e in self.edges if e.target == name)
                ),
                None,
            )
            if ready is None:
                break
            done.append(ready)
            pending.remove(ready)
        return tuple(done)

    @property
    def terminals(self) -> tuple[Edge, ...]:
        """Edges into the client: the outputs that a request owes."""
        return tuple(edge for edge in self.edges if edge.target == CLIENT)

    def stage(self, name: str) -> Stage:
        """The stage of that name; UsageError lists the names there are."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise UsageError(f"one of {[s.name for s in self.stages]}", repr(name), where=f"graph {self.name!r}")

    def edge(self, source: str, target: str) -> Edge:
        """The edge between two stages; UsageError lists the edges there are."""
        for edge in self.edges:
            if edge.source == source and edge.target == target:
                return edge
        raise UsageError(f"one of {[e.name for e in self.edges]}", f"{source}>{target}", where=f"graph {self.name!r}")

    def out_edges(self, name: str) -> tuple[Edge, ...]:
        """Edges that leave a stage; more than one is a fork."""
        return tuple(edge for edge in self.edges if edge.source == name)

    def in_edges(self, name: str) -> tuple[Edge, ...]:
        """Edges that enter a stage."""
        return tuple(edge for edge in self.edges if edge.target == name)


def _unique(names: Iterable[str], what: str, where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"unique {what}", f"{name!r} twice", where=where)
        seen.add(name)


def _one_of(value: str, allowed: Iterable[str], where: str) -> None:
    options = list(allowed)
    if value not in options:
        raise UsageError(f"one of {options}", repr(value), where=where)


def from_mapping(data: Mapping[str, Any], *, where: str) -> StageGraph:
    """Build a graph from parsed TOML: ``name``, ``title``, ``source``, ``[[stage]]`` and ``[[edge]]`` tables.

    Raises
    ------
    UsageError
        A missing or unknown key, a wrong type, or a graph that is not valid.
    """
    allowed = {"name": str, "title": str, "source": str, "stage": list, "edge": list}
    _keys(data, allowed, set(), where)
    stages = []
    for i, row in enumerate(data["stage"]):
        _keys(
            row,
            {"name": str, "role": str, "batch_limit": int, "join": list},
            {"batch_limit", "join"},
            f"{where}, stage {i}",
        )
        stages.append(Stage(row["name"], row["role"], row.get("batch_limit"), tuple(row.get("join", ()))))
    edges = []
    for i, row in enumerate(data["edge"]):
        _keys(row, {"source": str, "target": str, "modality": str, "kind": str}, set(), f"{where}, edge {i}")
        edges.append(Edge(row["source"], row["target"], row["modality"], row["kind"]))
    return StageGraph(data["name"], data["title"], data["source"], tuple(stages), tuple(edges))


def _keys(row: Any, allowed: Mapping[str, type], optional: set[str], where: str) -> None:
    if not isinstance(row, Mapping):
        raise UsageError("a table", repr(row), where=where)
    for key in row:
        if key not in allowed:
            raise UsageError(f"keys among {sorted(allowed)}", repr(key), where=where)
    for key, kind in allowed.items():
        if key not in row:
            if key in optional:
                continue
            raise UsageError(f"key {key!r}", "none", where=where)
        if not isinstance(row[key], kind) or isinstance(row[key], bool):
            raise UsageError(f"{key} as {kind.__name__}", repr(row[key]), where=where)


def load(path: str | Path) -> StageGraph:
    """Read a graph from a TOML file; UsageError names the file and what is wrong with it."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as err:
        raise UsageError("a graph file", "no such file", where=str(path)) from err
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise UsageError("TOML", str(err), where=str(path)) from err
    return from_mapping(data, where=str(path))


def presets() -> tuple[str, ...]:
    """Names of the graphs that ship with the package, sorted."""
    folder = resources.files("workbench") / "graphs"
    return tuple(sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml")))


def preset(name: str) -> StageGraph:
    """A graph that ships with the package.

    Raises
    ------
    UsageError
        No preset of that name; lists the names there are.

    Examples
    --------
    >>> presets()
    ('cfg-join', 't1', 't2', 't3')
    """
    _one_of(name, presets(), "graph preset")
    text = (resources.files("workbench") / "graphs" / f"{name}.toml").read_text(encoding="utf-8")
    return from_mapping(tomllib.loads(text), where=f"preset {name}")
