"""The profile of a run: its numbers are those of the views, its page is harmless, whole and the same each time."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest

import workbench
from tests import hostile
from workbench import report
from workbench.errors import DataIntegrityError, UsageError
from workbench.lab import Run
from workbench.profile import WORST_BY, Profile, profile
from workbench.testing.example import worked_example
from workbench.testing.simulator import JOIN, LINEAR, Arrival, simulate
from workbench.testing.tables import Row, Tables, changed, write_folder
from workbench.units import MS_NS

FATES = ("ok", "ok", "ok", "ok", "cancelled", "timeout", "error", "rejected", "retried", "ok")


def crowd(count: int, fates: Sequence[str] = FATES) -> list[Arrival]:
    return [Arrival(k * 4 * MS_NS, chunks=1 + k % 4, fate=fates[k % len(fates)]) for k in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(simulate(LINEAR, crowd(60), seed=4, label="crowd"), tmp_path_factory.mktemp("runs") / "crowd")


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return workbench.open(folder)


@pytest.fixture(scope="module")
def found(run: Run) -> Profile:
    return profile(run)


def test_every_part_is_there(found: Profile) -> None:
    text = report.text(found)
    for words in (
        "To the first output:",
        "To the end of the job:",
        "Outcomes of 60 scheduled requests",
        "Requests that did not end ok",
        "Latency from the scheduled arrival",
        "Critical path to the first output: where, beside drag",
        "Critical path to the end of the job: where, beside drag",
        "Waiting per stage (W_v)",
        "Work per stage (S_v)",
        "Hand-overs",
        "Worst 10 requests by ttfa",
        "What this trace cannot tell",
        "needs 1,000",
    ):
        assert words in text, words


def test_numbers_are_those_of_the_views(found: Profile, run: Run) -> None:
    data = found.as_dict()
    requests = run.requests.collect()
    assert sum(data["outcomes"].values()) == data["scheduled"] == 60
    assert data["outcomes"]["ok"] == requests.filter(pl.col("status") == "ok").height
    assert [row["request"] for row in data["failed"]] == requests.filter(pl.col("status") != "ok")["request"].to_list()
    for path in (found.first, found.job):
        whole = data["critical_path"][path.terminal]
        assert whole["latency_ns"] == sum(row["path_ns"] for row in whole["by_stage"])
        assert whole["latency_ns"] == sum(row["path_ns"] for row in whole["by_kind"])
        assert whole["with_path"] + sum(whole["missing"].values()) == whole["requests"] == 60
    waits = {row["stage"]: row for row in data["waits"]}
    by_stage = run.metric("stage_wait").group_by("stage").agg(pl.col("queue_ns").sum() // pl.len())
    assert {stage: row["queue_mean_ns"] for stage, row in waits.items()} == dict(by_stage.iter_rows())
    deepest = run.metric("queue_depth").group_by("stage").agg(pl.col("depth").max())
    for stage, depth in deepest.iter_rows():
        assert waits[stage]["deepest_queue"] == depth
    busy = dict(run.metric("replica_busy").group_by("stage").agg(pl.col("busy_share").mean()).iter_rows())
    assert {row["stage"]: pytest.approx(row["busy_share"]) for row in data["work"]} == busy
    assert sum(row["chunks"] for row in data["edges"]) == run.chunks.collect().height


@pytest.mark.parametrize("by", list(WORST_BY))
def test_the_worst_are_worst_by_what_was_asked(run: Run, by: str) -> None:
    found = profile(run, by=by, worst=7)
    values = run.requests.collect()[f"{by}_ns"].drop_nulls().sort(descending=True)
    expected = values.head(7).to_list()
    shown = run.requests.collect().join(
        found.worst.select("request"), on="request", how="right", maintain_order="right"
    )
    assert shown[f"{by}_ns"].to_list() == expected
    assert found.worst.height == len(expected)
    if found.worst.height:
        assert found.worst["mostly"].null_count() == 0


def test_shares_of_the_dominant_segments_are_of_the_right_path(found: Profile) -> None:
    request, mostly = found.worst.row(0, named=True)["request"], found.worst.row(0, named=True)["mostly"]
    share = int(re.findall(r"(\d+) %", mostly)[0])
    segments = found.first.segments.filter(pl.col("request") == request)
    spent = segments.group_by("stage", "edge", "kind").agg((pl.col("end_ns") - pl.col("start_ns")).sum())["end_ns"]
    assert share == round(100 * spent.max() / spent.sum())  # type: ignore[operator]


def test_wrong_arguments_are_refused(run: Run) -> None:
    with pytest.raises(UsageError, match="expected one of ttfa, ttfo, ttft, jct, found 'p99'"):
        profile(run, by="p99")
    with pytest.raises(UsageError, match="at least 1 request"):
        profile(run, worst=0)


def test_data_is_json_without_numbers_that_json_lacks(found: Profile) -> None:
    text = json.dumps(found.as_dict(), allow_nan=False)
    assert json.loads(text)["run"] == "crowd"


def test_a_value_that_is_no_number_becomes_null(folder: Path, tmp_path: Path) -> None:
    def spoil(rows: list[Row]) -> list[Row]:
        return [{**rows[0], "config": '{"rate": NaN}', "rate_per_s": float("inf")}]

    tables = changed(simulate(LINEAR, crowd(6), seed=4), "run", spoil)
    try:
        run = workbench.open(write_folder(tables, tmp_path / "run"))
    except workbench.errors.DataIntegrityError:
        pytest.skip("the contract refuses it")
    data = profile(run).as_dict()
    assert data["info"]["rate_per_s"] is None
    json.dumps(data, allow_nan=False)


# --- Runs that lack something ---


@dataclass
class Lack:
    """A way in which a run can be poor."""

    name: str
    tables: Tables


def without(tables: Tables, name: str) -> Tables:
    return changed(tables, name, lambda rows: [])


def poor_runs() -> list[Lack]:
    base = simulate(LINEAR, crowd(12), seed=5)
    client_only = {
        "span": lambda rows: [row for row in rows if row["stage"] == "client"],
        "chunk": lambda rows: [row for row in rows if row["edge"] == "code2wav>client"],
        "batch": lambda rows: [],
        "credit": lambda rows: [],
        "run": lambda rows: [{**rows[0], "probes": "off"}],
    }
    probes_off = base
    for name, change in client_only.items():
        probes_off = changed(probes_off, name, change)
    nothing = base
    for name in base:
        if name not in ("run", "proc", "stage", "edge"):
            nothing = without(nothing, name)
    return [
        Lack("probes off", probes_off),
        Lack("no request at all", nothing),
        Lack("no outcome", without(base, "outcome")),
        Lack("no chunk", without(base, "chunk")),
        Lack("all rejected", simulate(LINEAR, crowd(5, ["rejected"]), seed=1)),
        Lack("join of two branches", simulate(JOIN, crowd(12), seed=2)),
        Lack("a span twice", changed(base, "span", lambda rows: [*rows, rows[0]])),
        Lack("backwards", changed(base, "span", lambda rows: [{**r, "end_ns": r["start_ns"] - 5} for r in rows])),
    ]


@pytest.mark.parametrize("lack", poor_runs(), ids=lambda lack: lack.name)
def test_a_poor_trace_still_gets_a_profile(lack: Lack, tmp_path: Path) -> None:
    run = workbench.open(write_folder(lack.tables, tmp_path / "run"))
    found = profile(run, worst=2)
    assert "What this trace cannot tell" in report.text(found)
    assert hostile.complaints(report.page(found)) == []
    json.dumps(found.as_dict(), allow_nan=False)


def test_a_trace_with_undeclared_stages_is_refused_with_one_clear_error(tmp_path: Path) -> None:
    tables = changed(worked_example(), "span", lambda rows: [{**row, "stage": "nowhere"} for row in rows])
    with pytest.raises(DataIntegrityError, match=r"span\.stage: expected one of .*, found 'nowhere'"):
        profile(workbench.open(write_folder(tables, tmp_path / "run")))


def test_the_worked_example_says_what_it_cannot_tell(tmp_path: Path) -> None:
    found = profile(workbench.open(write_folder(worked_example(), tmp_path / "run")))
    assert found.headline()[0].startswith("To the first output: 149 ms on average")
    unanswered = {row["question"]: row["reason"] for row in found.as_dict()["cannot_tell"]}
    assert unanswered["device"] == "no device clock"
    assert unanswered["quality"] == "not measured"


# --- The page ---


def test_the_page_holds_everything_and_refers_to_nothing(found: Profile) -> None:
    page = report.page(found)
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<svg") == 3 + found.worst.height
    assert "default-src 'none'" in page
    assert "://" not in page
    assert hostile.complaints(page) == []
    for words in ("Where the time went", "The worst requests", "What this trace cannot tell"):
        assert words in page


def test_the_page_is_the_same_bytes_in_another_process(run: Run, folder: Path) -> None:
    code = (
        "import sys, workbench; from workbench import report; from workbench.profile import profile;"
        "sys.stdout.buffer.write(report.page(profile(workbench.open(sys.argv[1]), worst=2)).encode())"
    )
    other = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, check=True).stdout
    assert other == report.page(profile(run, worst=2)).encode()


def test_a_hostile_trace_is_shown_and_nothing_of_it_runs(tmp_path: Path) -> None:
    found = profile(workbench.open(write_folder(hostile.hostile_run(), tmp_path / "run")), worst=2)
    page, text = report.page(found), report.text(found)
    assert hostile.complaints(page) == []
    assert "alert(1)" in page, "it is shown as text"
    assert "\x1b" not in page + text
    assert "\u202e" not in page + text
    json.dumps(found.as_dict(), allow_nan=False)


def test_a_page_is_written_whole_or_not_at_all(run: Run, folder: Path, tmp_path: Path) -> None:
    found = profile(run, worst=1)
    path = tmp_path / "new" / "folder" / "profile.html"
    report.write(found, path)
    first = path.read_bytes()
    report.write(found, path)
    assert path.read_bytes() == first
    assert [entry.name for entry in path.parent.iterdir()] == ["profile.html"]
    with pytest.raises(UsageError, match="A run is immutable"):
        report.write(found, folder / "profile.html")
    with pytest.raises(UsageError, match="Name a file"):
        report.write(found, tmp_path)
    assert not (folder / "profile.html").exists()
