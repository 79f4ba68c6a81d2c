"""The recorder loses nothing to threads, counts what it gives up, and costs its callers nothing but memory."""

from __future__ import annotations

import inspect
import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trace.recordings import EDGES, STAGES, recorder
from workbench.errors import UsageError
from workbench.schema.tables import TABLES
from workbench.trace.columns import CODE, RECORDED, recorded_columns
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.recording import read_segments
from workbench.trace.writer import WRITER_LIMIT, Writer

SERVICE = CODE["span_kind"]["service"]
DATA = CODE["cause"]["data"]


def span(writer: Writer, request: int, **columns: int) -> int:
    return writer.span(request, 1, 0, 0, 0, SERVICE, writer.now(), writer.now(), DATA, **columns)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("table", RECORDED)
@pytest.mark.parametrize("probes", ["on", "off"])
def test_arguments_follow_the_contract(tmp_path: Path, table: str, probes: str) -> None:
    with recorder(tmp_path, probes=probes) as recording:
        arguments = inspect.signature(getattr(recording.writer("w"), table)).parameters
    columns = [column for column in recorded_columns(table) if f"{column.name}_id" not in arguments]
    names = [name.rstrip("_") for name in arguments if not name.endswith("_id") or name == "external_id"]
    assert names == [column.name for column in columns]
    for name, argument in arguments.items():
        if argument.default is None and not name.endswith("_id"):
            assert next(column for column in columns if column.name == name.rstrip("_")).null
    assert set(names) | {"proc"} >= {column.name for column in TABLES[table].columns if not column.null} - {
        "span",
        "batch",
    }


def test_no_event_is_lost_with_calls_between_load_and_store(tmp_path: Path) -> None:
    """Two writers shared by four threads, which are switched as often as the interpreter can."""
    per_thread, threads = 100_000, 4
    interval = sys.getswitchinterval()
    with recorder(tmp_path, flush_interval_s=0.02) as recording:
        shared, other = recording.writer("shared"), recording.writer("other")

        def work(index: int) -> None:
            for event in range(per_thread):
                number = shared.new_id()
                span(shared, index * per_thread + event, span_id=number)
                other.event(other.now(), 7, index * per_thread + event)

        sys.setswitchinterval(1e-5)
        try:
            in_threads(threads, work)
        finally:
            sys.setswitchinterval(interval)
    taken = per_thread * threads
    result = read_segments(tmp_path)
    assert result.lost == 0
    assert result.notes() == []
    assert sorted(result.tables["event"]["request"].to_pylist()) == list(range(taken))
    assert sorted(result.tables["span"]["request"].to_pylist()) == list(range(taken))
    assert len(set(result.tables["span"]["span"].to_pylist())) == taken
    assert (
        recording.statistics().taken
        == recording.statistics().flushed
        == 2 * taken + result.tables["clock_sync"].num_rows
    )


def test_numbers_are_unique_over_tables_writers_and_processes(tmp_path: Path) -> None:
    numbers: list[int] = []
    recorders = [recorder(tmp_path, 0), recorder(tmp_path, 127, probes="off")]
    for recording in recorders:
        for writer in (recording.writer("a"), recording.writer("b", always=True)):
            for request in range(3):
                numbers += [
                    span(writer, request),
                    writer.chunk(0, request, 0, 0, 4, 1, 1, 2, 3, 4, None, None, True),
                    writer.batch(1, 0, 1, None, None, 0, 1, None, None, 2),
                    writer.new_id(),
                ]
        recording.close()
    assert len(set(numbers)) == len(numbers)
    assert all(0 < number < 2**63 for number in numbers)


def test_a_reserved_number_is_the_rows_number(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        writer = recording.writer("w")
        reserved = writer.new_id()
        first = span(writer, 1)
        assert span(writer, 2, span_id=reserved) == reserved
    spans = read_segments(tmp_path).tables["span"].select(["request", "span"]).to_pylist()
    assert spans == [{"request": 1, "span": first}, {"request": 2, "span": reserved}]


@pytest.mark.parametrize(("taken", "capacity"), [(10, 10), (11, 10), (1000, 10), (5, 1)])
def test_a_full_buffer_drops_the_oldest_and_counts_them(tmp_path: Path, taken: int, capacity: int) -> None:
    with recorder(tmp_path, capacity=capacity) as recording:
        writer = recording.writer("w")
        for request in range(taken):
            span(writer, request)
        recording.flush()
        span(writer, taken)
    dropped = taken - min(taken, capacity)
    statistics = recording.statistics()
    assert statistics.dropped == dropped
    assert statistics.taken == statistics.flushed + dropped
    result = read_segments(tmp_path)
    assert result.lost == dropped
    assert result.tables["span"]["request"].to_pylist() == list(range(dropped, taken + 1))
    assert [(note["code"], note["count"]) for note in result.notes()] == (
        [("rows-dropped", dropped)] if dropped else []
    )


def test_off_keeps_nothing_but_the_clients_rows(tmp_path: Path) -> None:
    with recorder(tmp_path, probes="off") as recording:
        stage, client = recording.writer("stage"), recording.writer("client", always=True)
        assert (stage.on, client.on) == (False, True)
        assert span(stage, 1, span_id=stage.new_id()) != span(stage, 1)
        for table in RECORDED:
            arguments = inspect.signature(getattr(stage, table)).parameters.values()
            getattr(stage, table)(*[0 for argument in arguments if argument.default is inspect.Parameter.empty])
        client.request(7, None, None, None, None, "short", "a", 1.0, 5)
    result = read_segments(tmp_path)
    rows = {name: table.num_rows for name, table in result.tables.items() if table.num_rows}
    assert rows == {"clock_sync": 2, "request": 1}
    assert result.headers[0].probes == "off"
    assert result.lost == 0


def test_a_row_that_does_not_fit_is_rejected_alone(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        writer = recording.writer("w")
        for request in range(5):
            span(writer, request)
        writer.span("seven", 1, 0, 0, 0, SERVICE, 1, 2, DATA)
        writer.span(None, 1, 0, 0, 0, SERVICE, 1, 2, DATA)
        writer.span(9, len(STAGES), 0, 0, 0, SERVICE, 1, 2, DATA)
        writer.span(9, 1, 40_000, 0, 0, SERVICE, 1, 2, DATA)
        writer.span(2**63, 1, 0, 0, 0, SERVICE, 1, 2, DATA)
        writer.credit(len(EDGES), 1, 0, 0, 0, 1)
        writer.event(1, -1)
        span(writer, 5)
    result = read_segments(tmp_path)
    assert result.tables["span"]["request"].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert recording.statistics().rejected == result.lost == 7
    [note] = result.notes()
    assert (note["code"], note["count"]) == ("rows-rejected", 7)
    assert "span row" in note["sample"]
    assert "'seven'" in note["sample"]


def test_text_survives_unicode_and_lone_surrogates(tmp_path: Path) -> None:
    texts = ["", "naïve 日本語 🎧", "nul \0 tab\t", "cut \ud83d", 'quote "', "x" * 100_000]
    with recorder(tmp_path) as recording:
        for text in texts:
            recording.writer(text).event(1, 7, None, None, text)
    expected = [text if text.isprintable() else text.encode("utf-8", "backslashreplace").decode() for text in texts]
    assert read_segments(tmp_path).tables["event"]["detail"].to_pylist() == expected


def test_the_clock_is_read_at_both_ends(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        inside_ns = recording.writer("w").now()
    first, last = read_segments(tmp_path).tables["clock_sync"].to_pylist()
    assert first["local_ns"] < inside_ns < last["local_ns"]
    for reading in (first, last):
        assert reading["ref_ns"] == reading["local_ns"]
        assert 0 <= reading["err_ns"] < 10_000_000
    drift_ns = (last["wall_ns"] - last["local_ns"]) - (first["wall_ns"] - first["local_ns"])
    assert abs(drift_ns) < 100_000_000


def test_costs_are_calibrated_before_and_after(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    span(recording.writer("w"), 1)
    recording.close()
    [segment] = read_segments(tmp_path).segments
    assert segment.header is not None
    assert segment.footer is not None
    for cost in ("ns_per_event", "ns_per_span"):
        before, after = segment.header.calibration[cost], segment.footer["calibration"][cost]
        assert 0 < before < 1e6
        assert math.isclose(getattr(recording.statistics(), cost), (before + after) / 2)
    assert recording.statistics().flush_ns_per_event


def test_closing_twice_and_recording_afterwards(tmp_path: Path) -> None:
    recording = recorder(tmp_path)
    writer = recording.writer("w")
    span(writer, 1)
    recording.close()
    recording.close()
    span(writer, 2)
    result = read_segments(tmp_path)
    assert result.tables["span"]["request"].to_pylist() == [1]
    assert result.lost == 1
    assert [note["code"] for note in result.notes()] == ["rows-unflushed"]


def test_attached_statistics_are_in_the_footer(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        recording.attach("helper", lambda: {"cpu_ns": 12})
    [segment] = read_segments(tmp_path).segments
    assert segment.footer is not None
    assert segment.footer["attached"] == {"helper": {"cpu_ns": 12}}


def test_misuse_is_refused_with_the_value(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        recording.writer("w")
        with pytest.raises(UsageError, match="'w'"):
            recording.writer("w")
        with pytest.raises(UsageError, match=r"segment-0\.wbseg"):
            recorder(tmp_path)
    with pytest.raises(UsageError, match="128"):
        ProcInfo.here(128, "x")
    with pytest.raises(UsageError, match="maybe"):
        recorder(tmp_path, 1, probes="maybe")
    with pytest.raises(UsageError, match="0 rows"):
        recorder(tmp_path, 1, capacity=0)
    assert [path.name for path in sorted(tmp_path.glob("*.wbseg"))] == ["segment-0.wbseg"]


def test_writers_run_out_with_advice(tmp_path: Path) -> None:
    with Recorder(tmp_path, ProcInfo.here(0, "p"), stages=(), edges=(), capacity=1, probes="off") as recording:
        for index in range(WRITER_LIMIT - 1):
            recording.writer(str(index))
        with pytest.raises(UsageError, match="not per request"):
            recording.writer("one more")
