"""A run as an object: what opens, what is refused, and that its numbers are those of the views and the path."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import workbench
from tests import hostile
from workbench.charts import participation as participation_chart
from workbench.charts import theme
from workbench.errors import DataIntegrityError, UsageError
from workbench.graph import preset, presets
from workbench.lab import Run, bars, drawings, latency, path
from workbench.lab.comparison import NO_INTERVAL
from workbench.schema import ddl
from workbench.testbed.run import RunPlan, record
from workbench.testbed.speech import Limits, load
from workbench.testing.example import ORIGIN_NS, worked_example
from workbench.testing.simulator import JOIN, LINEAR, Arrival, simulate
from workbench.testing.tables import changed, write_folder
from workbench.trace import store
from workbench.units import MS_NS
from workbench.workload.requests import Mix, RequestClass, Tenant

MIX = Mix(
    classes=(RequestClass("short", 0.6, (1, 3), 4, 60.0), RequestClass("long", 0.4, (4, 5), 4, 60.0)),
    tenants=(Tenant("a", 2.0, 0.5), Tenant("b", 1.0, 0.5)),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two runs of the random-init twin: one request at a time, and together."""
    folder = tmp_path_factory.mktemp("runs")
    models = load("twin", limits=Limits(thinker=4, talker=4, vocoder_streams=8), device=torch.device("cpu"), seed=1)
    plan = RunPlan("alone", 8, None, mix=MIX, max_submit_lag_ms=10_000.0)
    scratch = folder.parent / "scratch"
    record(models, plan, folder, scratch=scratch, say=lambda line: None)
    busy = replace(plan, label="busy", requests=16, rate_per_s=60.0, isolated_run="alone")
    record(models, busy, folder, scratch=scratch, say=lambda line: None)
    return folder


@pytest.fixture(scope="module")
def example_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(worked_example(), tmp_path_factory.mktemp("example") / "worked-example")


@pytest.fixture(scope="module")
def example(example_folder: Path) -> Run:
    return workbench.open(example_folder)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three random runs, all fates; the first two have equal requests."""
    fates = ("ok", "ok", "ok", "cancelled", "timeout", "error", "rejected", "retried")
    arrivals = [Arrival(k * 2 * MS_NS, chunks=1 + k % 4, fate=fates[k % 8]) for k in range(40)]
    folder = tmp_path_factory.mktemp("mixed")
    folders = [
        write_folder(simulate(LINEAR, arrivals, seed=1, label="left"), folder / "left"),
        write_folder(simulate(LINEAR, arrivals, seed=2, label="right"), folder / "right"),
        write_folder(simulate(JOIN, arrivals[:9], seed=3, label="join"), folder / "join"),
    ]
    store.build(folders, folder / "runs.duckdb")
    return folder / "runs.duckdb"


# --- Opening ---


def test_open_is_there_without_loading_anything_heavy() -> None:
    code = "import sys, workbench; print(*({'polars', 'duckdb', 'altair', 'torch'} & set(sys.modules))); workbench.open"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        workbench.close  # noqa: B018


def test_a_folder_opens_with_what_is_known_about_the_run(runs: Path) -> None:
    run = workbench.open(runs / "busy")
    assert run.label == "busy"
    assert run.stages == ["client", "thinker", "phonemizer", "talker", "code2wav"]
    assert run.info["config"]["requests"] == 16
    assert run.info["hardware"]["cores"] >= 1
    assert repr(run) == f"Run('busy', 16 requests, {run.spans.collect().height} spans)"


def test_rows_are_those_of_the_files(runs: Path) -> None:
    run = workbench.open(runs / "busy")
    for lazy, table in ((run.spans, "span"), (run.chunks, "chunk")):
        found, filed = lazy.collect(), pl.read_parquet(runs / "busy" / f"{table}.parquet")
        assert found.height == filed.height
        assert found["span"].to_list() == sorted(filed["span"])
        assert "run" not in found.columns
    requests = run.requests
    assert requests.select(pl.len()).collect().item() == requests.collect().height == 16, "a lazy frame answers twice"
    assert requests.collect()["jct_ns"].null_count() == 0
    longest = requests.join(run.spans.group_by("request").agg(pl.len()), on="request").collect()
    assert longest.height == 16, "lazy frames of one run join"


def test_the_isolated_run_beside_it_is_loaded_for_slowdown(runs: Path, tmp_path: Path) -> None:
    run = workbench.open(runs / "busy")
    assert run.notes == ("Its isolated run 'alone' is loaded with it, for slowdown.",)
    shared = run.requests.collect().filter(pl.col("slowdown").is_not_null())
    assert shared.height > 0
    moved = workbench.open(shutil.copytree(runs / "busy", tmp_path / "moved"))
    assert moved.notes == ("Its isolated run 'alone' is not beside it: slowdown is not known.",)
    assert moved.requests.collect()["slowdown"].null_count() == 16
    (fairness,) = (answer for answer in moved.answers() if answer.question == "fairness")
    assert (fairness.state, fairness.reason) == ("no", "its isolated run is not in this store")


def test_a_damaged_isolated_run_does_not_keep_the_run_from_opening(runs: Path, tmp_path: Path) -> None:
    for name in ("busy", "alone"):
        shutil.copytree(runs / name, tmp_path / name)
    (tmp_path / "alone" / "span.parquet").write_bytes(b"PAR1")
    run = workbench.open(tmp_path / "busy")
    assert run.notes[0].startswith("Its isolated run could not be loaded, so slowdown is not known.")
    assert run.requests.collect().height == 16


@pytest.mark.parametrize("name", ["../outside", "/etc", "a/b", ".", ".."])
def test_the_name_of_an_isolated_run_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    tables = changed(worked_example(), "run", lambda rows: [{**rows[0], "isolated_run": name}])
    outside = write_folder(worked_example(), tmp_path / "outside")
    run = workbench.open(write_folder(tables, tmp_path / "inside" / "run"))
    assert outside.exists()
    assert "is not beside it" in run.notes[0]


def test_a_store_wants_to_know_which_run(mixed: Path) -> None:
    with pytest.raises(UsageError, match=r"expected one run, found 3: join, left, right|found 3: left, right, join"):
        workbench.open(mixed)
    with pytest.raises(UsageError, match=r"found 'lef'\. Did you mean 'left'\?"):
        workbench.open(mixed, run="lef")
    run = workbench.open(mixed, run="right")
    assert run.label == "right"
    assert run.requests.collect().height == 40
    assert run.sql("SELECT count(DISTINCT run) AS runs FROM request").item() == 3, "sql sees the whole store"


def test_a_folder_of_runs_wants_to_know_which(runs: Path, example_folder: Path) -> None:
    with pytest.raises(UsageError, match=r"expected one run, found 2: alone, busy\. Name one: run=\"alone\""):
        workbench.open(runs)
    assert workbench.open(runs, run="busy").label == "busy"
    assert workbench.open(example_folder.parent).label == "worked-example", "the only run needs no name"
    with pytest.raises(UsageError, match="found 'other'"):
        workbench.open(example_folder, run="other")


def test_what_is_no_run_is_refused_with_a_hint(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such path\. Did you mean .*busy\?"):
        workbench.open(runs / "bussy")
    with pytest.raises(UsageError, match="a folder without any"):
        workbench.open(tmp_path)
    with pytest.raises(UsageError, match=r"without the suffix \.duckdb\. Name the folder that holds it"):
        workbench.open(runs / "busy" / "span.parquet")
    fake = tmp_path / "fake.duckdb"
    fake.write_text("no store")
    with pytest.raises(UsageError, match="another file"):
        workbench.open(fake)


def test_a_damaged_run_is_refused(example_folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(example_folder, tmp_path / "copy")
    (copy / "chunk.parquet").write_bytes((copy / "chunk.parquet").read_bytes()[:-9])
    with pytest.raises(DataIntegrityError, match=r"chunk\.parquet"):
        workbench.open(copy)


# --- Queries and metrics ---


def test_sql_answers_with_parameters(example: Run) -> None:
    assert example.sql("SELECT ? + 1 AS x", [2]).item() == 3
    query = "SELECT span FROM span WHERE kind = $kind ORDER BY span"
    assert example.sql(query, {"kind": "queue"}).height == 2
    assert example.sql("DESCRIBE span").height > 10


@pytest.mark.parametrize(
    "query",
    [
        "CREATE TABLE x (a INT)",
        "INSERT INTO span SELECT * FROM span",
        "DELETE FROM span",
        "DROP VIEW ttfa",
        "COPY span TO 'stolen.csv'",
        "ATTACH 'other.duckdb'",
        "SET threads = 1",
        "PRAGMA database_list",
        "EXPLAIN ANALYZE INSERT INTO span SELECT * FROM span",
        "WITH gone AS (DELETE FROM span RETURNING *) SELECT * FROM gone",
        "SELECT 1; SELECT 2",
        "SELECT 1; DROP TABLE span",
        "",
        "-- nothing",
    ],
)
def test_sql_only_reads(mixed: Path, query: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = hashlib.sha256(mixed.read_bytes()).hexdigest()
    run = workbench.open(mixed, run="left")
    with pytest.raises(UsageError, match=r"one query that only reads|a query that DuckDB can answer"):
        run.sql(query)
    assert run.sql("SELECT count(*) FROM span").item() > 0
    assert hashlib.sha256(mixed.read_bytes()).hexdigest() == before
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_query_says_what_there_is(example: Run) -> None:
    with pytest.raises(UsageError, match=r"Table with name spans.*There are run, proc, .*chunk, .*request_metrics"):
        example.sql("SELECT * FROM spans")
    with pytest.raises(UsageError, match="Parser Error"):
        example.sql("SELEC 1")


def test_every_view_is_a_metric_of_this_run_alone(mixed: Path) -> None:
    run = workbench.open(mixed, run="left")
    for view in ddl.views():
        rows = run.metric(view.name)
        whole = run.sql(f"SELECT count(*) AS n FROM {view.name} WHERE run = 'left'").item()
        assert rows.height == whole, view.name
        assert "run" not in rows.columns
        if rows.columns[0] == "request":
            assert rows["request"].is_sorted(), view.name


def test_a_metric_by_name(example: Run) -> None:
    assert example.metric("ttfa").rows() == [(1, 149 * MS_NS)]
    assert example.metric("jct").rows() == [(1, 209 * MS_NS)]
    with pytest.raises(UsageError, match=r"found 'tfta'\. Did you mean 'ttft'\?|Did you mean 'ttfa'\?"):
        example.metric("tfta")
    with pytest.raises(UsageError, match="Did you mean 'underrun_ns', a column of request_metrics"):
        example.metric("underun_ns")
    with pytest.raises(UsageError, match=r"run\.views\(\) lists them"):
        example.metric("; DROP TABLE span")


def test_the_catalog_is_complete(example: Run) -> None:
    views = example.views()
    assert views["name"].to_list() == sorted(view.name for view in ddl.views())
    assert views.columns == ["name", "definition", "unit", "denominator", "source"]
    assert views.null_count().row(0) == (0, 0, 0, 0, 0)


# --- Latency samples ---


def metric(name: str) -> latency.Metric:
    return next(metric for metric in latency.METRICS if metric.name == name)


def sample_of(name: str, rows: list[tuple[str | None, float | None, float | None]]) -> latency.Sample:
    """A sample from (status, value, time of cancel)."""
    column = metric(name).column
    schema = {"status": pl.String, column: pl.Float64, "cut_ns": pl.Float64}
    return latency.Sample.of(metric(name), pl.DataFrame(rows, schema=schema, orient="row"))


def test_failed_requests_stay_and_cancelled_ones_are_cut_off() -> None:
    rows: list[tuple[str | None, float | None, float | None]] = [
        ("ok", 10, None),
        ("ok", 30, None),
        ("error", None, None),
        ("cancelled", None, 7),
        ("cancelled", 5, 9),
        ("cancelled", None, None),
        (None, None, None),
        ("ok", None, None),
        ("timeout", 90, None),
        ("ok", -1, None),
    ]
    sample = sample_of("ttfa", rows)
    assert sample.values.tolist() == [5, 10, 30, 90]
    assert (sample.failed, sample.cut.tolist(), sample.unknown) == (2, [7], 3)
    assert sample.quantile(0.5) is None
    assert sample.shown(0.5) == "needs 20"
    happened = sample_of("underrun", rows)
    assert (len(happened), happened.failed, happened.unknown) == (4, 0, 6)


@pytest.mark.parametrize(("count", "known"), [(19, 0), (20, 1), (199, 1), (200, 2), (999, 2), (1000, 3)])
def test_a_quantile_needs_ten_requests_beyond_it(count: int, known: int) -> None:
    for name in ("jct", "underrun"):
        sample = sample_of(name, [("ok", float(k), None) for k in range(count)])
        assert sum(sample.quantile(q) is not None for q in latency.QUANTILES) == known
        reasons = [bool(entry["reason"]) for entry in sample.as_dict()["quantiles"].values()]
        assert reasons == [False] * known + [True] * (3 - known)


def test_cancelled_requests_count_until_they_are_cut_off() -> None:
    """100 of 200 requests are done at 1 to 100; the others were cancelled at 50.5: Kaplan-Meier by hand."""
    rows: list[tuple[str | None, float | None, float | None]] = [("ok", float(k), None) for k in range(1, 101)]
    rows += [("cancelled", None, 50.5)] * 100
    # 150 are at risk after 50, so that each further one moves the share by (1 - 50/200) / 50.
    assert sample_of("jct", rows).quantile(0.5) == 67.0
    assert sample_of("jct", rows).quantile(0.95) == 97.0


def test_a_quantile_among_failures_has_no_value() -> None:
    rows: list[tuple[str | None, float | None, float | None]] = [("ok", 1.0, None)] * 9 + [("error", None, None)] * 11
    sample = sample_of("jct", rows)
    assert sample.shown(0.5) == latency.NOT_REACHED
    assert sample.as_dict()["quantiles"]["p50"] == {
        "value": None,
        "reason": "it lies among requests that failed or were cancelled",
    }


# --- The critical path ---


def test_the_path_of_the_worked_example(example: Run) -> None:
    first, job = example.critical_path("first"), example.critical_path("job")
    assert (first.latency_ns, job.latency_ns) == (149 * MS_NS, 209 * MS_NS)
    assert (first.with_path, first.requests.height) == (1, 3)
    assert first.requests.filter(pl.col("request") != 1)["missing"].to_list() == ["unfinished", "unfinished"]
    for found in (first, job):
        assert found.participation["share"].sum() == pytest.approx(1)
        assert found.by_kind()["path_ns"].sum() == found.latency_ns
        stages = found.by_stage()
        assert stages["path_ns"].sum() == found.latency_ns
        parts = stages.select(pl.sum_horizontal("work_ns", "waiting_ns", "lag_ns"))["work_ns"]
        assert parts.to_list() == stages["path_ns"].to_list()
    segments = first.segments.filter(pl.col("request") == 1)
    assert segments["start_ns"][0] == ORIGIN_NS
    assert (segments["start_ns"][1:] == segments["end_ns"][:-1]).all()
    assert first.mostly(2).rows() == [(1, "ev 27 %, t 27 %")]


def test_drag_stands_beside_participation(example: Run) -> None:
    drag = dict(
        example.critical_path("job").drag.filter(pl.col("stage").is_not_null()).select("stage", "drag_ns").iter_rows()
    )
    on_path = dict(example.critical_path("job").by_stage().select("stage", "path_ns").iter_rows())
    # Without the talker's work the last audio follows the thinker's end at 140 ms by 1 + 2 + 15 + 1 ms.
    assert (drag["k"], on_path["k"]) == ((209 - 159) * MS_NS, 90 * MS_NS)
    assert drag["ea"] == 0, "the audio branch waits for the other one"


def test_path_tables_say_what_they_leave_out(example: Run) -> None:
    text = repr(example.critical_path("first"))
    assert "mean of 1 of 3 requests, 149 ms" in text
    assert "Without a path: 2 unfinished." in text
    with pytest.raises(UsageError, match="expected one of first, job, found 'first_output'"):
        example.critical_path("first_output")


def test_measures_are_those_of_the_chart() -> None:
    assert {path.WORK, path.WAITING, path.LAG, path.DRAG} == set(participation_chart.MEASURES)


def test_a_run_without_any_output_has_no_path_but_a_representation(tmp_path: Path) -> None:
    arrivals = [Arrival(k * MS_NS, fate="rejected") for k in range(4)]
    run = workbench.open(write_folder(simulate(LINEAR, arrivals, seed=1), tmp_path / "random"))
    found = run.critical_path("job")
    assert found.with_path == 0
    assert "None of 4 requests has a path" in repr(found)
    assert "None of 4 requests" in found._repr_html_()
    with pytest.raises(UsageError, match="expected a request with a critical path"):
        found.chart()
    assert theme.specification(run.overview())
    assert theme.specification(run.timeline(0))


# --- Charts ---


def rows_of(spec: dict[str, object]) -> list[list[dict[str, object]]]:
    datasets = spec["datasets"]
    assert isinstance(datasets, dict)
    return list(datasets.values())


def test_a_timeline_has_bars_marks_and_the_path(runs: Path) -> None:
    run = workbench.open(runs / "busy")
    spec = theme.specification(run.timeline(3, terminal="first"))
    sets = rows_of(spec)
    drawn = next(rows for rows in sets if "lane" in rows[0])
    marks = next(rows for rows in sets if "what" in rows[0])
    assert {row["what"] for row in marks} == {"chunk taken over", "first audio"}
    on_path = [row for row in drawn if row["stage"] == "path (first)"]
    latency_ms = run.metric("ttfo").filter(pl.col("request") == 3)["ttfo_ns"].item() / 1e6
    assert sum(row["end_ms"] - row["start_ms"] for row in on_path) == pytest.approx(latency_ms)  # type: ignore[operator]
    assert max(row["at_ms"] for row in marks) <= max(row["end_ms"] for row in drawn)  # type: ignore[type-var]


def test_a_timeline_by_its_id_in_the_source_system(tmp_path: Path) -> None:
    names = {1: "chat-1", 8: "twin", 9: "twin"}
    tables = changed(
        worked_example(), "request", lambda rows: [{**row, "external_id": names[row["request"]]} for row in rows]
    )
    run = workbench.open(write_folder(tables, tmp_path / "run"))
    assert run.number("chat-1") == run.number(1) == run.number("1") == run.number(np.int64(1)) == 1  # type: ignore[arg-type]
    for wrong in ("twin", "chat-2", 7, -1, 1.5, True, 2**70):
        with pytest.raises(UsageError, match="request"):
            run.timeline(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="request 8: unfinished"):
        run.timeline(8, terminal="job")


def test_credits_and_cancels_are_marked(mixed: Path) -> None:
    run = workbench.open(mixed, run="left")
    requests = run.requests.filter(pl.col("status") == "cancelled").collect()["request"]
    found: set[object] = set()
    for number in [
        *requests,
        *run.sql("SELECT DISTINCT request FROM credit WHERE run = 'left' ORDER BY 1 LIMIT 9")["request"],
    ]:
        for rows in rows_of(theme.specification(run.timeline(number))):
            found |= {row["what"] for row in rows if "what" in row}
    assert found >= {"cancelled", "credit returned", "chunk taken over"}


def test_a_long_request_is_drawn_with_joined_bars(tmp_path: Path) -> None:
    tables = simulate(LINEAR, [Arrival(0, chunks=700)], seed=1)
    run = workbench.open(write_folder(tables, tmp_path / "random"))
    spec = theme.specification(run.timeline(0))
    assert "bars" in str(spec["title"])
    assert all(len(rows) <= theme.MAX_ROWS for rows in rows_of(spec))


def test_an_overview_of_many_requests_keeps_its_budget_and_says_so(tmp_path: Path) -> None:
    arrivals = [Arrival(k * MS_NS, chunks=6, fate="error" if k % 50 == 7 else "ok") for k in range(400)]
    run = workbench.open(write_folder(simulate(LINEAR, arrivals, seed=1), tmp_path / "random"))
    spec = theme.specification(run.overview())
    sets = rows_of(spec)
    assert sum(map(len, sets)) <= theme.MAX_ROWS
    title = spec["title"]
    assert isinstance(title, dict)
    notes = " ".join(title["subtitle"])
    assert "Filled points have a timeline" in notes
    assert "too short to see are left out" in notes
    points = next(rows for rows in sets if "has_timeline" in rows[0])
    assert len(points) == 400
    with_timeline = {row["request"] for row in points if row["has_timeline"]}
    drawn = {row["request"] for rows in sets if "start_ms" in rows[0] for row in rows}
    assert drawn == with_timeline
    assert len(with_timeline) == bars.DETAILED
    slowest = sorted(points, key=lambda row: -float(str(row["latency_s"])))[: bars.SLOWEST]
    assert {row["request"] for row in slowest} <= with_timeline


def test_thousands_of_requests_are_thinned_and_said() -> None:
    many = pl.DataFrame({"request": range(5000), "status": ["ok"] * 5000, "latency_s": [float(k) for k in range(5000)]})
    kept = bars.thinned(many)
    assert kept.height == bars.MAX_POINTS
    assert kept["request"].n_unique() == bars.MAX_POINTS
    assert set(range(4500, 5000)) <= set(kept["request"])
    assert 0 in set(kept["request"])


INTERVALS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from("ab"),
        st.sampled_from(["queue", "service"]),
        st.integers(0, 60),
        st.integers(0, 9),
    ),
    max_size=40,
)


def as_intervals(rows: list[tuple[int, str, str, int, int]]) -> pl.DataFrame:
    schema = {"request": pl.Int64, "stage": pl.String, "kind": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64}
    return pl.DataFrame([(r, s, k, a, a + n) for r, s, k, a, n in rows], schema=schema, orient="row")


def covered(frame: pl.DataFrame) -> dict[tuple[object, ...], set[int]]:
    found: dict[tuple[object, ...], set[int]] = {}
    for request, stage, kind, start, end in frame.select("request", "stage", "kind", "start_ns", "end_ns").iter_rows():
        found.setdefault((request, stage, kind), set()).update(range(start, end))
    return {key: moments for key, moments in found.items() if moments}


@given(INTERVALS, st.integers(0, 12))
def test_joined_bars_cover_what_the_intervals_cover(rows: list[tuple[int, str, str, int, int]], gap_ns: int) -> None:
    intervals = as_intervals(rows)
    exact = bars.joined(intervals, 0)
    assert covered(exact) == covered(intervals)
    wide = bars.joined(intervals, gap_ns)
    assert wide["joined"].sum() == exact["joined"].sum() == intervals.height
    assert wide.height <= exact.height
    for key, moments in covered(intervals).items():
        assert covered(wide)[key] >= moments
    for _, part in wide.group_by("request", "stage", "kind"):
        ordered = part.sort("start_ns")
        assert (ordered["start_ns"][1:] - ordered["end_ns"][:-1] > gap_ns).all()


@given(INTERVALS, st.integers(0, 6))
def test_bars_keep_their_budget_and_count_what_is_gone(rows: list[tuple[int, str, str, int, int]], most: int) -> None:
    intervals = as_intervals(rows)
    made = bars.bars(intervals, most=most)
    counts = made.rows.group_by("request").len()["len"]
    assert all(count <= most for count in counts)
    assert int(made.rows["joined"].sum()) + made.unseen == intervals.height


def test_graphs_of_runs_and_presets_are_drawn(runs: Path) -> None:
    spec = theme.specification(workbench.open(runs / "busy").graph())
    assert any(row.get("name") == "code2wav" for rows in rows_of(spec) for row in rows)
    for name in presets():
        assert theme.specification(drawings.stage_graph(preset(name)))


# --- Validation and comparison ---


def test_a_run_is_judged_alone(mixed: Path) -> None:
    report = workbench.open(mixed, run="left").validate()
    assert report.runs == ("left",)
    assert report.is_valid, report.text()
    assert {answer.run for answer in report.answers} == {"left"}


def test_violations_of_this_run_are_found(example_folder: Path, tmp_path: Path) -> None:
    tables = changed(worked_example(), "span", lambda rows: [*rows, rows[-1]])
    broken = workbench.open(write_folder(tables, tmp_path / "broken"))
    report = broken.validate()
    assert not report.is_valid
    assert workbench.open(example_folder).validate().is_valid


def test_a_run_against_itself(mixed: Path) -> None:
    run = workbench.open(mixed, run="left")
    found = run.compare(run)
    jct = found.metrics.filter(pl.col("metric") == "jct").row(0, named=True)
    assert (jct["p50_ratio"], jct["pair_ratio"]) == (1.0, 1.0)
    assert jct["p95_ratio"] is jct["left_p95"] is None, "40 requests have no p95"
    assert found.statement == NO_INTERVAL
    assert NO_INTERVAL.split(":")[0] in repr(found)
    assert found.differences.is_empty()
    assert "pairs by request number" in found.pairing


def test_runs_of_the_same_requests_are_paired_by_number(mixed: Path) -> None:
    left, right = workbench.open(mixed, run="left"), workbench.open(mixed, run="right")
    found = left.compare(right)
    jct = found.metrics.filter(pl.col("metric") == "jct").row(0, named=True)
    both = left.metric("jct").join(right.metric("jct"), on="request")
    assert jct["pairs"] == both.height
    assert jct["pair_ratio"] == pytest.approx((both["jct_ns_right"] / both["jct_ns"]).median())
    assert found.outcomes["left"].sum() == found.outcomes["right"].sum() == 40


def test_runs_of_other_requests_are_paired_by_content(runs: Path) -> None:
    alone, busy = workbench.open(runs / "alone"), workbench.open(runs / "busy")
    found = alone.compare(busy)
    assert "pairs by content" in found.pairing
    assert found.metrics.filter(pl.col("metric") == "jct")["pairs"].item() > 0
    assert set(found.differences["what"]) >= {"load_kind", "rate_per_s", "config.requests"}
    assert "What else differs" in found._repr_html_()


def test_runs_without_common_content_are_not_paired(runs: Path, example: Run) -> None:
    found = workbench.open(runs / "busy").compare(example)
    assert found.pairing == "No pairs: the runs share no content."
    assert found.metrics["pairs"].to_list() == [0] * found.metrics.height


# --- Hostile names ---


@pytest.fixture(scope="module")
def attacker(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return workbench.open(write_folder(hostile.hostile_run(), tmp_path_factory.mktemp("hostile") / "run"))


def test_nothing_hostile_survives_in_a_notebook(attacker: Run) -> None:
    shown = [attacker, attacker.critical_path("first"), attacker.critical_path("job"), attacker.compare(attacker)]
    for thing in shown:
        assert hostile.complaints(thing._repr_html_()) == []
        assert "\x1b" not in repr(thing)
    for chart in (attacker.overview(), attacker.timeline(0), attacker.graph()):
        bundle = chart._repr_mimebundle_()
        assert hostile.complaints(bundle["image/svg+xml"]) == []
        assert "\x1b" not in bundle["text/plain"]
        json.dumps(bundle)


def test_hostile_names_are_still_the_names(attacker: Run) -> None:
    assert attacker.label == hostile.LABEL
    assert hostile.STAGE in attacker.stages
    assert attacker.requests.collect().height == 30
    assert attacker.metric("stage_wait").filter(pl.col("stage") == hostile.STAGE).height > 0
    assert attacker.validate().runs == (hostile.LABEL,)
