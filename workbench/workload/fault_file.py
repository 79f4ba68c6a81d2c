"""Fault plans as files: TOML or JSON in, canonical JSON and its hash out."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from workbench.control.ranges import shown
from workbench.errors import UsageError
from workbench.workload.fault_plan import Fault, FaultPlan, Watch

MAX_BYTES = 1 << 20  # 1,000 faults take about 200 KB
# A file says `class`, which Python does not allow as the name of a field.
KEYS = {field.name.replace("request_class", "class"): field for field in fields(Fault)}
TEXT = ("kind", "stage", "edge", "direction", "message", "class", "tenant")


def load(path: str | Path) -> FaultPlan:
    """Read a plan from a ``.toml`` or ``.json`` file.

    Raises
    ------
    UsageError
        No such file, another suffix, more than MAX_BYTES, not TOML or JSON, or not a plan; names file, fault and field.
    """
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise UsageError("a .toml or .json file", shown(path.name), where=str(path))
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:
        raise UsageError("a readable file", getattr(err, "strerror", None) or str(err), where=str(path)) from err
    if len(raw) > MAX_BYTES:
        raise UsageError(f"at most {MAX_BYTES} bytes", "more", where=str(path))
    kind = path.suffix[1:].upper()
    try:
        text = raw.decode("utf-8")
        data = tomllib.loads(text) if kind == "TOML" else json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as err:
        raise UsageError(kind, str(err)[:200], where=str(path)) from err
    return from_mapping(data, where=str(path))


def from_mapping(data: Any, *, where: str) -> FaultPlan:
    """Build a plan from parsed TOML or JSON: ``name``, ``seed``, ``heal_ns`` and the tables ``fault``.

    Raises
    ------
    UsageError
        A missing or unknown key, a wrong type, or a plan that is not valid.
    """
    _only(data, ("name", "seed", "heal_ns", "fault"), where)
    for key in ("name", "seed", "heal_ns"):
        if key not in data:
            raise UsageError(f"key {key!r}", "none", where=where)
    rows = data.get("fault", [])
    if not isinstance(rows, list):
        raise UsageError("fault as a list of tables", shown(rows), where=where)
    faults = [_fault(row, f"{where}, fault {i}") for i, row in enumerate(rows)]
    try:
        return FaultPlan(data["name"], data["seed"], data["heal_ns"], tuple(faults))
    except UsageError as err:
        raise _within(err, where) from err


def _fault(row: Any, where: str) -> Fault:
    _only(row, KEYS, where)
    values = {}
    for key, value in row.items():
        if key in TEXT:
            _text(value, f"{where}, {key}")
        elif key != "on" and (isinstance(value, bool) or not isinstance(value, int)):
            raise UsageError(f"{key} as an integer", shown(value), where=where)
        values[KEYS[key].name] = value
    if "kind" not in values:
        raise UsageError("key 'kind'", "none", where=where)
    try:
        if "on" in values:
            _only(values["on"], ("event", "stage", "edge"), f"{where}, on")
            for key, value in values["on"].items():
                _text(value, f"on.{key}")
            if "event" not in values["on"]:
                raise UsageError("key 'event'", "none", where="on")
            values["on"] = Watch(**values["on"])
        return Fault(**values)
    except UsageError as err:
        raise err if err.where.startswith(where) else _within(err, where) from err


def _within(err: UsageError, where: str) -> UsageError:
    """The same error with the place in the file before the name of the field."""
    return UsageError(err.expected, err.found, where=f"{where}, {err.where}", fix=err.fix)


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise UsageError("text", shown(value), where=where)


def _only(row: Any, allowed: Iterable[str], where: str) -> None:
    if not isinstance(row, Mapping):
        raise UsageError("a table", shown(row), where=where)
    for key in row:
        if key not in allowed:
            raise UsageError(f"keys among {sorted(allowed)}", shown(key), where=where)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; a key that occurs twice is an error, as it is in TOML."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found


def to_mapping(plan: FaultPlan) -> dict[str, Any]:
    """The plan as `from_mapping` reads it, without what is at its default."""
    rows = []
    for fault in plan.faults:
        row = {key: getattr(fault, field.name) for key, field in KEYS.items()}
        row = {key: value for key, value in row.items() if key == "kind" or value != KEYS[key].default}
        if fault.on is not None:
            watched = {"event": fault.on.event, "stage": fault.on.stage, "edge": fault.on.edge}
            row["on"] = {key: value for key, value in watched.items() if value is not None}
        rows.append(row)
    return {"name": plan.name, "seed": plan.seed, "heal_ns": plan.heal_ns, "fault": rows}


def canonical(plan: FaultPlan) -> str:
    """The plan as JSON in one fixed form: sorted keys, no spaces, defaults left out. Equal plans give equal text."""
    return json.dumps(to_mapping(plan), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(plan: FaultPlan) -> str:
    """SHA-256 of the canonical form, in hexadecimal: what a run is stamped with.

    >>> digest(FaultPlan("none", 0, 0))[:16]
    '543b7a5b535285ac'
    """
    return hashlib.sha256(canonical(plan).encode()).hexdigest()


def to_toml(plan: FaultPlan) -> str:
    """The plan as TOML that `load` reads back.

    >>> print(to_toml(FaultPlan("one", 7, 10**9, (Fault("pause", stage="code2wav", at_ns=0, duration_ns=10**8),))))
    name = "one"
    seed = 7
    heal_ns = 1000000000
    <BLANKLINE>
    [[fault]]
    kind = "pause"
    stage = "code2wav"
    at_ns = 0
    duration_ns = 100000000
    <BLANKLINE>
    """
    data = to_mapping(plan)
    lines = [f"{key} = {_value(data[key])}" for key in ("name", "seed", "heal_ns")]
    for row in data["fault"]:
        lines += ["", "[[fault]]", *(f"{key} = {_value(value)}" for key, value in row.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A text, integer or flat table in TOML; JSON's escapes are TOML's, since only printable text is allowed."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def save(plan: FaultPlan, path: str | Path) -> None:
    """Write a plan to a ``.toml`` file, or in canonical form to a ``.json`` file; UsageError for another suffix."""
    path = Path(path)
    if path.suffix not in (".toml", ".json"):
        raise UsageError("a .toml or .json file", shown(path.name), where=str(path))
    path.write_text(to_toml(plan) if path.suffix == ".toml" else canonical(plan) + "\n", encoding="utf-8")
