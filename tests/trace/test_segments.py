"""Damage at any byte of a segment costs what lies behind it, never what lies before it, and is told with numbers."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trace.recordings import NAMES, OWN, at_rest, record, recorder, rows
from workbench.errors import DataIntegrityError, UsageError
from workbench.trace import frames
from workbench.trace.columns import ID_COLUMN, RECORDED, decode, encode
from workbench.trace.recording import Recording, read_segments

TABLES_OF_ROWS = st.fixed_dictionaries({}, optional={table: rows(table) for table in RECORDED if table != OWN})


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed segment with several blocks of several tables, text and NULLs included."""
    folder = tmp_path_factory.mktemp("intact")
    with recorder(folder) as recording:
        writer = recording.writer("w")
        for block in range(4):
            for index in range(3):
                request = 3 * block + index
                writer.span(request, 1, 0, 0, 0, 2, 10, 20, 1, None if index else request, None, None, 4)
                writer.event(request, 7, request, None, f"note ü {request}")
            recording.flush()
    return folder


def layout(folder: Path) -> list[frames.Frame]:
    return list(frames.Scan(folder / "segment-0.wbseg"))


def damaged(intact: Path, folder: Path, content: bytes, *, counts: bool = True) -> Recording:
    for path in folder.glob("*.wb*"):
        path.unlink()
    (folder / "segment-0.wbseg").write_bytes(content)
    if counts:
        (folder / "segment-0.wbcount").write_bytes((intact / "segment-0.wbcount").read_bytes())
    return read_segments(folder)


def assert_prefix(result: Recording, intact: Path, until: int) -> None:
    """All rows of frames that end at or before byte `until` are there, and the account is whole."""
    expected = read_segments(intact)
    kept = [frame for frame in layout(intact) if frame.offset + frames.FRAME.size + len(frame.payload) <= until]
    for number, name in enumerate(RECORDED):
        count = sum(frame.rows for frame in kept if frame.kind == frames.ROWS and frame.table == number)
        assert result.tables[name].equals(expected.tables[name].slice(0, count))
    assert result.taken == expected.taken
    [segment] = result.segments
    assert segment.lost == segment.taken - segment.rows == segment.dropped + segment.rejected + segment.unflushed
    counted = {note["code"]: note["count"] for note in result.notes()}
    assert counted.get("rows-unflushed", 0) == segment.lost
    whole = sum(frame.rows for frame in layout(intact))
    assert segment.rows + segment.lost == whole


@settings(max_examples=60)
@given(data=st.data())
def test_a_cut_keeps_all_frames_before_it(
    intact: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = (intact / "segment-0.wbseg").read_bytes()
    boundaries = [frame.offset for frame in layout(intact)]
    at = data.draw(st.integers(0, len(content) - 1) | st.sampled_from(boundaries), label="cut")
    result = damaged(intact, tmp_path_factory.mktemp("cut"), content[:at])
    if at < boundaries[1]:
        assert all(table.num_rows == 0 for table in result.tables.values())
        assert result.lost == read_segments(intact).taken
    else:
        assert_prefix(result, intact, at)
    codes = [note["code"] for note in result.notes()]
    assert "segment-not-closed" in codes
    on_boundary = at in boundaries or at == frames.PREAMBLE.size
    assert ("segment-damaged" in codes) == (not on_boundary)
    [segment] = result.segments
    assert segment.good_bytes <= segment.size_bytes == at


@settings(max_examples=80)
@given(data=st.data())
def test_a_flipped_bit_anywhere_ends_the_reading_there(
    intact: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Every field of a frame head and every part of a payload is drawn as often as any other."""
    content = bytearray((intact / "segment-0.wbseg").read_bytes())
    frame = data.draw(st.sampled_from(layout(intact)), label="frame")
    field = st.integers(0, frames.FRAME.size - 1) | st.integers(
        frames.FRAME.size, frames.FRAME.size + len(frame.payload) - 1
    )
    content[frame.offset + data.draw(field, label="byte")] ^= 1 << data.draw(st.integers(0, 7), label="bit")
    if frame.kind == frames.HEADER:
        result = damaged(intact, tmp_path_factory.mktemp("flip"), bytes(content))
        assert result.headers == []
        assert result.lost == read_segments(intact).taken
        return
    result = damaged(intact, tmp_path_factory.mktemp("flip"), bytes(content))
    assert_prefix(result, intact, frame.offset)
    [damage] = [note for note in result.notes() if note["code"] == "segment-damaged"]
    assert damage["count"] == len(content) - frame.offset
    assert f"read up to byte {frame.offset} of {len(content)}" in damage["sample"]
    assert f"{result.segments[0].rows} rows kept" in damage["sample"]


@given(at=st.integers(0, frames.PREAMBLE.size - 1), bit=st.integers(0, 7))
def test_another_file_is_an_error(intact: Path, tmp_path_factory: pytest.TempPathFactory, at: int, bit: int) -> None:
    content = bytearray((intact / "segment-0.wbseg").read_bytes())
    content[at] ^= 1 << bit
    with pytest.raises(DataIntegrityError, match=r"segment-0\.wbseg"):
        damaged(intact, tmp_path_factory.mktemp("other"), bytes(content))


def test_without_counts_the_heartbeat_bounds_the_loss(intact: Path, tmp_path: Path) -> None:
    content = (intact / "segment-0.wbseg").read_bytes()
    last_rows = [frame for frame in layout(intact) if frame.kind == frames.ROWS][-1]
    result = damaged(intact, tmp_path, content[: last_rows.offset + 40], counts=False)
    assert result.lost == 0
    assert [note["code"] for note in result.notes()] == ["segment-damaged", "segment-not-closed"]
    assert "last heartbeat at" in result.notes()[1]["sample"]


@given(size=st.integers(0, 2**32 - 1), count=st.integers(0, 2**32 - 1), kind=st.integers(0, 3))
def test_claimed_sizes_allocate_nothing(
    intact: Path, tmp_path_factory: pytest.TempPathFactory, size: int, count: int, kind: int
) -> None:
    """A frame head that claims gigabytes, signed with a right checksum over what is really there."""
    payload = bytes(64)
    head = frames.FRAME.pack(frames.FRAME_MAGIC, kind, 3, 0, count, size, 1, 0)[:-4]
    frame = head + zlib.crc32(payload, zlib.crc32(head)).to_bytes(4, "little") + payload
    content = (intact / "segment-0.wbseg").read_bytes()
    tracemalloc.start()
    result = damaged(intact, tmp_path_factory.mktemp("claim"), content + frame)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 20 << 20
    assert result.lost == 0
    assert result.segments[0].damage is not None
    assert result.segments[0].good_bytes == len(content)


@settings(max_examples=150)
@given(
    kind=st.integers(1, 3),
    table=st.integers(0, 255),
    writer=st.integers(0, 2**16 - 1),
    count=st.integers(0, 40),
    payload=st.binary(max_size=400)
    | st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ).map(lambda value: json.dumps(value).encode()),
)
def test_hostile_content_under_a_right_checksum_is_damage(
    intact: Path,
    tmp_path_factory: pytest.TempPathFactory,
    kind: int,
    table: int,
    writer: int,
    count: int,
    payload: bytes,
) -> None:
    content = (intact / "segment-0.wbseg").read_bytes()
    frame = frames.pack(kind, payload, table=table, writer=writer, rows=count, last=2**63)
    result = damaged(intact, tmp_path_factory.mktemp("hostile"), content + frame)
    assert result.tables["span"].num_rows == 12
    [segment] = result.segments
    assert segment.damage is not None or (kind == frames.ROWS and count == 0)


@settings(max_examples=150)
@given(table=st.sampled_from(RECORDED), data=st.data())
def test_decoding_changed_payloads_never_reads_outside(table: str, data: st.DataObject) -> None:
    """Columns with wrong flags, offsets, bitmaps or codes: a valid table or an error, nothing else."""
    taken = data.draw(rows(table).filter(bool))
    payload = bytearray(encode(table, [(0, *numbered) for numbered in with_numbers(table, taken)], NAMES))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        result = decode(table, bytes(payload), len(taken), NAMES, 0)
    except ValueError:
        return
    result.validate(full=True)
    assert result.num_rows == len(taken)


def with_numbers(table: str, taken: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(number, *row) if table in ID_COLUMN else row for number, row in enumerate(taken)]


@settings(max_examples=40)
@given(first=TABLES_OF_ROWS, second=TABLES_OF_ROWS)
def test_what_writers_take_is_what_tables_hold(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, Any], second: dict[str, Any]
) -> None:
    """Random rows of every table from two processes, read back: equal, in the order they were taken."""
    folder = tmp_path_factory.mktemp("round")
    expected: dict[str, list[dict[str, Any]]] = {table: [] for table in RECORDED if table != OWN}
    for proc, tables in enumerate((first, second)):
        with recorder(folder, proc) as recording:
            writer = recording.writer("w")
            for table, taken in tables.items():
                expected[table] += [at_rest(table, row, proc) for row in record(writer, table, taken)]
                recording.flush()
    result = read_segments(folder)
    assert result.notes() == []
    assert {table: result.tables[table].to_pylist() for table in expected} == expected


def header(intact: Path, **changes: Any) -> bytes:
    content = json.loads(layout(intact)[0].payload)
    return frames.preamble() + frames.pack(frames.HEADER, json.dumps({**content, **changes}).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"columns": {}},
        {"names": {}},
        {"names": {name: [1] for name in NAMES}},
        {"proc": {"proc": 128, "name": "", "host": "", "pid": None, "boot_id": None}},
        {"proc": None},
        {"probes": "perhaps"},
        {"calibration": []},
        {"flush_interval_s": "soon"},
    ],
)
def test_a_header_of_another_contract_is_an_error(intact: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    assert damaged(intact, tmp_path, header(intact)).taken == read_segments(intact).taken
    with pytest.raises(DataIntegrityError, match="Seal it with the version"):
        damaged(intact, tmp_path, header(intact, **changes))


def test_a_first_frame_that_is_no_header_is_an_error(intact: Path, tmp_path: Path) -> None:
    for content in (frames.pack(frames.HEARTBEAT, b"{}"), frames.pack(frames.HEADER, b"[" * 100_000)):
        with pytest.raises(DataIntegrityError, match="Seal it with the version"):
            damaged(intact, tmp_path, frames.preamble() + content)


def test_a_newer_format_says_so(intact: Path, tmp_path: Path) -> None:
    content = struct.pack("<8sI4x", frames.MAGIC, frames.FORMAT + 1)
    with pytest.raises(DataIntegrityError, match=f"found format {frames.FORMAT + 1}"):
        damaged(intact, tmp_path, content)


def test_folders_of_two_runs_do_not_mix(intact: Path, tmp_path: Path) -> None:
    recorder(tmp_path).close()
    with pytest.raises(DataIntegrityError, match="several of process 0"):
        read_segments(intact, tmp_path)


def test_an_empty_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="segment-"):
        read_segments(tmp_path)
