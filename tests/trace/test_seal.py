"""A sealed run holds every recorded row once, in one order, with one outcome per request, or it is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trace.recordings import EDGE_ROWS, EDGES, OWN, STAGE_ROWS, STAGES, at_rest, record, recorder, rows
from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.enums import OUTCOME_STATUS
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import manifest
from workbench.trace.columns import CODE, RECORDED, arrow_schema
from workbench.trace.environment import Environment
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.seal import ALWAYS, ORDER, RunInfo, one_outcome_each, seal

ROOT = Path(__file__).resolve().parents[2]
OK, ERROR = CODE["outcome_status"]["ok"], CODE["outcome_status"]["error"]


def sealed(segments: Path, destination: Path, **options: Any) -> Path:
    info = RunInfo(destination.name, "testbed:t1", config={"rate": 2}, seeds={"arrival": 1}, models={"thinker": "r1"})
    options = {"stages": STAGE_ROWS, "edges": EDGE_ROWS, "environment": Environment(commit="c0ffee"), **options}
    return seal(segments, destination, options.pop("info", info), **options)


def request(writer: Any, number: int, scheduled_ns: int) -> None:
    writer.request(number, None, None, None, None, "short", "a", 1.0, scheduled_ns)


@pytest.fixture
def segments(tmp_path: Path) -> Path:
    """Two processes; requests 1 (ok) and 2 (no outcome); rows out of order."""
    folder = tmp_path / "segments"
    with recorder(folder, 1) as client, recorder(folder, 0) as server:
        for number, scheduled_ns in ((2, 200), (1, 100)):
            request(client.writer(f"c{number}"), number, scheduled_ns)
        client.writer("outcomes").outcome(1, OK, 150, 300)
        for name, start_ns in (("b", 50), ("a", 40), ("c", 50)):
            server.writer(name).span(1, 1, 0, 0, 0, 2, start_ns, 60, 1)
    return folder


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.stem: pq.read_table(path).to_pylist() for path in folder.glob("*.parquet")}


def test_a_sealed_folder_follows_the_contract(segments: Path, tmp_path: Path) -> None:
    folder = sealed(segments, tmp_path / "raw" / "run-1")
    assert manifest.verify(folder)
    assert {path.stem for path in folder.glob("*.parquet")} == {*ALWAYS, "clock_sync", "import_note"}
    for path in folder.glob("*.parquet"):
        assert pq.read_schema(path).equals(arrow_schema(TABLES[path.stem]))
        assert (
            pq.read_metadata(path).row_group(0).column(0).compression == "ZSTD"
            if pq.read_metadata(path).num_rows
            else 1
        )
    tables = read(folder)
    [run] = tables["run"]
    assert (run["label"], run["provenance"], run["schema_version"]) == ("run-1", "measured", SCHEMA_VERSION)
    assert (run["first_ns"], run["last_ns"], run["probes"], run["commit"]) == (100, 300, "on", "c0ffee")
    assert json.loads(run["config"]) == {"rate": 2}
    assert run["events"] == 2 + 1 + 3 + len(tables["clock_sync"])
    assert run["events_lost"] == 0
    assert run["probe_ns_per_event"] > 0
    assert [row["proc"] for row in tables["proc"]] == [0, 1]
    assert [row["start_ns"] for row in tables["span"]] == [40, 50, 50]
    assert tables["span"][1]["span"] < tables["span"][2]["span"]
    assert tables["outcome"] == [
        {**dict.fromkeys(TABLES["outcome"].names), "request": 1, "status": "ok", "first_output_ns": 150, "end_ns": 300},
        {**dict.fromkeys(TABLES["outcome"].names), "request": 2, "status": "unfinished"},
    ]
    assert tables["import_note"] == [{"level": "warning", "code": "outcome-missing", "count": 1, "sample": "request 2"}]
    content = manifest.load(folder)
    assert content["models"] == {"thinker": "r1"}
    assert content["clocks"]["readings"] == len(tables["clock_sync"])
    assert content["recorder"]["events"] == run["events"]
    assert {process["proc"] for process in content["recorder"]["processes"]} == {0, 1}


def test_equal_segments_give_equal_bytes(segments: Path, tmp_path: Path) -> None:
    first, second = sealed(segments, tmp_path / "a" / "run"), sealed(segments, tmp_path / "b" / "run")
    assert manifest.verify(first) == manifest.verify(second)
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()


@settings(max_examples=15)
@given(
    tables=st.fixed_dictionaries(
        {}, optional={table: rows(table) for table in RECORDED if table not in {OWN, "outcome"}}
    )
)
def test_random_rows_reach_parquet_unchanged(tmp_path_factory: pytest.TempPathFactory, tables: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("round")
    expected: dict[str, list[dict[str, Any]]] = {}
    with recorder(folder / "segments") as recording:
        writer = recording.writer("w")
        for table, taken in tables.items():
            shown = [at_rest(table, row, 0) for row in record(writer, table, taken)]
            order = ORDER[table]
            expected[table] = sorted(shown, key=lambda row, order=order: [row[column] for column in order])
    found = read(sealed(folder / "segments", folder / "run"))
    assert {table: found.get(table, []) for table in expected} == expected


@given(
    requests=st.lists(st.integers(0, 6), unique=True),
    outcomes=st.lists(st.tuples(st.integers(0, 8), st.sampled_from(OUTCOME_STATUS), st.none() | st.integers(0, 9))),
)
def test_every_request_has_exactly_one_outcome(
    requests: list[int], outcomes: list[tuple[int, str, int | None]]
) -> None:
    request_table = pa.table({"request": pa.array(requests, pa.int64())})
    outcome_rows = [{"request": request, "status": status, "end_ns": end_ns} for request, status, end_ns in outcomes]
    table, notes = one_outcome_each(
        request_table, pa.Table.from_pylist(outcome_rows, schema=arrow_schema(TABLES["outcome"]))
    )
    assert sorted(table["request"].to_pylist()) == sorted(requests)
    counts = {note["code"]: note["count"] for note in notes}
    with_outcome = [outcome for outcome in outcomes if outcome[0] in requests]
    assert counts.get("outcome-without-request", 0) == len(outcomes) - len(with_outcome)
    assert counts.get("outcome-missing", 0) == len(set(requests) - {outcome[0] for outcome in outcomes})
    assert counts.get("outcome-duplicate", 0) == len(with_outcome) - len({outcome[0] for outcome in with_outcome})
    for row in table.to_pylist():
        ends = [end_ns for request, _, end_ns in with_outcome if request == row["request"] and end_ns is not None]
        assert row["end_ns"] == min(ends, default=None)
        assert row["status"] in {status for request, status, _ in with_outcome if request == row["request"]} or (
            row["status"] == "unfinished" and row["request"] not in {request for request, _, _ in with_outcome}
        )


def test_an_existing_destination_is_refused_and_left_alone(segments: Path, tmp_path: Path) -> None:
    folder = sealed(segments, tmp_path / "run-1")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("run-1", "empty", "dangling"):
        with pytest.raises(UsageError, match="immutable"):
            sealed(segments, tmp_path / name)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "empty", "run-1", "segments"]


def breaking_points() -> Iterator[str]:
    yield from ("pyarrow.parquet.write_table", "workbench.trace.manifest.write", "os.fsync", "pathlib.Path.rename")


@pytest.mark.parametrize("point", list(breaking_points()))
def test_a_failure_leaves_nothing(segments: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(point, fail)
    with pytest.raises(OSError, match="No space"):
        sealed(segments, tmp_path / "runs" / "run-1")
    assert list((tmp_path / "runs").iterdir()) == []
    monkeypatch.undo()
    assert manifest.verify(sealed(segments, tmp_path / "runs" / "run-1"))


@pytest.mark.parametrize("point", list(breaking_points()))
def test_kill_9_at_any_step_leaves_no_run(segments: Path, tmp_path: Path, point: str) -> None:
    module, _, function = point.rpartition(".")
    code = f"""
import os, signal, sys, pathlib, pyarrow.parquet, workbench.trace.manifest
from tests.trace.recordings import EDGE_ROWS, STAGE_ROWS
from workbench.trace.environment import Environment
from workbench.trace.seal import RunInfo, seal
real, calls = {point}, []
def killed(*arguments, **options):
    calls.append(1)
    if len(calls) == {1 if function != "write_table" else 3}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **options)
{module}.{function} = killed
seal(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), RunInfo("run-1", "t"),
     stages=STAGE_ROWS, edges=EDGE_ROWS, environment=Environment())
"""
    destination = tmp_path / "runs" / "run-1"
    done = subprocess.run(
        [sys.executable, "-c", code, str(segments), str(destination)],
        cwd=ROOT,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    assert [path.name for path in destination.parent.iterdir() if not path.name.startswith(".")] == []
    assert manifest.verify(sealed(segments, destination))


def test_what_the_recorder_lost_is_in_the_run(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    with recorder(segments, capacity=5) as recording:
        writer = recording.writer("w")
        for number in range(20):
            request(writer, number, number)
        writer.event(1, 99)
    tables = read(sealed(segments, tmp_path / "run"))
    [run] = tables["run"]
    assert run["events_lost"] == 15 + 1
    assert run["events"] == 20 + 1 + len(tables["clock_sync"])
    notes = {note["code"]: note["count"] for note in tables["import_note"]}
    assert notes == {"rows-dropped": 15, "rows-rejected": 1, "outcome-missing": 5}


def test_a_run_without_requests_can_be_sealed(tmp_path: Path) -> None:
    recorder(tmp_path / "segments").close()
    tables = read(sealed(tmp_path / "segments", tmp_path / "run"))
    assert tables["run"][0]["first_ns"] == tables["run"][0]["last_ns"] == tables["clock_sync"][0]["local_ns"]
    assert tables["request"] == tables["outcome"] == tables["span"] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"info": RunInfo("other", "t")}, "named 'other'"),
        ({"info": RunInfo("run", "t", provenance="dreamt")}, "'dreamt'"),
        ({"stages": [{**STAGE_ROWS[0], "role": "chef"}]}, "'chef'"),
        ({"stages": [{**STAGE_ROWS[0], "speed": 3}]}, "speed"),
        ({"stages": [{"stage": "a"}]}, "stage.role"),
        ({"edges": [{**EDGE_ROWS[0], "window_chunks": 2**40}]}, "edge"),
        ({"stages": [{**STAGE_ROWS[0], "replicas": "one"}]}, "stage"),
    ],
)
def test_rows_that_break_the_contract_are_refused(
    segments: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        sealed(segments, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_processes_must_share_a_clock_and_a_setting(tmp_path: Path) -> None:
    here = ProcInfo.here(0, "a")
    for name, second in (
        ("boots", {"proc": replace(here, proc=1, boot_id="another")}),
        ("probes", {"proc": replace(here, proc=1), "probes": "off"}),
    ):
        for options in ({"proc": here}, second):
            Recorder(tmp_path / name, stages=STAGES, edges=EDGES, **options).close()  # type: ignore[arg-type]
    with pytest.raises(DataIntegrityError, match="2 boot ids"):
        sealed(tmp_path / "boots", tmp_path / "run")
    with pytest.raises(DataIntegrityError, match="both on and off"):
        sealed(tmp_path / "probes", tmp_path / "run")


def test_processes_may_record_into_folders_of_their_own(tmp_path: Path) -> None:
    for proc in (0, 1):
        with recorder(tmp_path / str(proc), proc) as recording:
            request(recording.writer("w"), proc, 5)
    folder = seal(
        [tmp_path / "1", tmp_path / "0"],
        tmp_path / "run",
        RunInfo("run", "t"),
        stages=STAGE_ROWS,
        edges=EDGE_ROWS,
        slo=[{"class": "short", "metric": "ttfa", "limit_value": 5e8}],
    )
    tables = read(folder)
    assert [row["request"] for row in tables["request"]] == [0, 1]
    assert tables["slo"] == [{"class": "short", "metric": "ttfa", "limit_value": 5e8}]
    assert manifest.load(folder)["hardware"]["cores"] == len(os.sched_getaffinity(0))
