"""The store holds exactly what the folders say, or nothing: whole, rebuilt only when needed, deaf to hostile files."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from workbench.errors import DataIntegrityError, UsageError, WorkbenchError
from workbench.schema import ddl
from workbench.schema.tables import TABLES
from workbench.testing.traces import JOIN, Arrival, Tables, changed, simulate, to_rows, worked_example, write_folder
from workbench.trace import incoming, manifest, store
from workbench.units import MS_NS

ARRIVALS = [Arrival(at_ns=n * MS_NS, chunks=1 + n % 3, fate=("ok", "cancelled")[n % 2]) for n in range(8)]


def labelled(label: str, tables: Tables | None = None) -> Tables:
    source = tables or worked_example()
    return changed(source, "run", lambda rows: [row | {"label": label} for row in rows])


def with_column(tables: Tables, table: str, column: str, values: pa.Array) -> Tables:
    """The tables with one column replaced, whatever its type."""
    part = tables[table]
    return {**tables, table: part.set_column(part.schema.get_field_index(column), column, values)}


def contents(con: duckdb.DuckDBPyConnection, table: str) -> list[dict[str, Any]]:
    relation = con.sql(f'SELECT * EXCLUDE (run) FROM "{table}"')
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def no_leftovers(folder: Path) -> bool:
    return not [name for name in os.listdir(folder) if name.startswith(".") or name.endswith((".part", ".wal"))]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Two sealed runs."""
    runs = {"b": worked_example(), "a": simulate(JOIN, ARRIVALS, seed=1)}
    return [write_folder(labelled(label, tables), tmp_path / "raw" / label) for label, tables in runs.items()]


def test_every_row_and_value_arrives(folders: list[Path], tmp_path: Path) -> None:
    assert store.build(folders, tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as con:
        for folder in folders:
            for name in TABLES:
                path = folder / f"{name}.parquet"
                expected = pq.ParquetFile(path).read().to_pylist() if path.exists() else []
                found = con.execute(f'SELECT * EXCLUDE (run) FROM "{name}" WHERE run = ?', [folder.name])
                columns = [column[0] for column in found.description]
                assert [dict(zip(columns, row, strict=True)) for row in found.fetchall()] == expected, name


def test_columns_have_the_types_of_the_contract(folders: list[Path], tmp_path: Path) -> None:
    store.build(folders, tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as con:
        for table in TABLES.values():
            found = con.execute(f'DESCRIBE "{table.name}"').fetchall()
            assert [row[0] for row in found] == ["run", *table.names]
            for column, (_, type_, null, *_) in zip(table.columns, found[1:], strict=True):
                expected = ddl.sql_type(table, column)
                assert type_ == expected or (type_.startswith("ENUM") and expected.islower()), (table.name, column.name)
                assert (null == "YES") == column.null
        assert con.execute("SELECT run FROM run ORDER BY run").fetchall() == [("b",), ("a",)], "order of the folders"
        stages = con.execute("SELECT DISTINCT stage FROM stage WHERE run = 'b' ORDER BY stage").fetchall()
        assert [name for (name,) in stages] == ["client", "ea", "ev", "t", "k", "v"], "order of declaration"


def test_an_unchanged_store_is_not_rebuilt(folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    assert store.build(folders, path)
    before = path.stat()
    assert not store.build(folders, path)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert store.build(folders[:1], path)
    assert store.build(list(reversed(folders)), path), "another order is another store"


def test_a_new_recording_is_seen_while_the_old_store_is_open(folders: list[Path], tmp_path: Path) -> None:
    """A notebook that holds the old store keeps it, and the next one to open gets the new."""
    path = tmp_path / "runs.duckdb"
    store.build(folders[:1], path)
    with store.open_store(path) as old:
        assert old.execute("SELECT count(*) FROM run").fetchone() == (1,)
        assert store.build(folders, path)
        with store.open_store(path) as new:
            assert new.execute("SELECT count(*) FROM run").fetchone() == (2,)
        assert old.execute("SELECT count(*) FROM run").fetchone() == (1,)


def test_an_open_store_cannot_be_written(folders: list[Path], tmp_path: Path) -> None:
    store.build(folders, tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as con:
        for statement in (
            "DELETE FROM span",
            "CREATE TABLE extra (a INT)",
            "DROP VIEW jct",
            "UPDATE run SET label = ''",
        ):
            with pytest.raises(duckdb.Error, match="read-only"):
                con.execute(statement)


def read_in_another_process(path: str, results: Any) -> None:
    with store.open_store(path) as con:
        results.put(con.execute("SELECT count(*) FROM span").fetchone()[0])


def test_two_processes_read_at_once(folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    store.build(folders, path)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with store.open_store(path) as con:
        reader = context.Process(target=read_in_another_process, args=(str(path), results))
        reader.start()
        found = results.get(timeout=60)
        reader.join(timeout=60)
        assert con.execute("SELECT count(*) FROM span").fetchone() == (found,)


def test_a_missing_extension_fails_at_once(folders: list[Path], tmp_path: Path) -> None:
    store.build(folders, tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as con:
        settings = dict(
            con.execute("SELECT name, value FROM duckdb_settings() WHERE name LIKE 'auto%known_extensions'").fetchall()
        )
    assert set(settings.values()) == {"false"}


def test_progress_counts_every_row(folders: list[Path], tmp_path: Path) -> None:
    calls: list[tuple[int, int, str]] = []
    store.build(folders, tmp_path / "runs.duckdb", progress=lambda *call: calls.append(call))
    done, totals, names = zip(*calls, strict=True)
    assert list(done) == sorted(done)
    assert set(totals) == {done[-1]}
    assert {"b/span", "a/credit"} <= set(names)
    rows = sum(pq.read_metadata(path).num_rows for folder in folders for path in folder.glob("*.parquet"))
    assert done[-1] == rows


def test_interrupted_build_leaves_the_old_store(folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "runs.duckdb"
    store.build(folders[:1], path)
    before = path.read_bytes()

    def interrupt(done: int, total: int, name: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.build(folders, path, progress=interrupt)
    assert path.read_bytes() == before
    assert no_leftovers(tmp_path)


def test_memory_and_file_hold_the_same(folders: list[Path], tmp_path: Path) -> None:
    store.build(folders, tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as file, store.load_folders(folders) as memory:
        for view in ("request_metrics", "stage_summary", "in_flight_high_water"):
            assert sorted(map(str, contents(file, view))) == sorted(map(str, contents(memory, view)))


def test_tables_in_memory_can_be_kept(tmp_path: Path) -> None:
    path = tmp_path / "kept.duckdb"
    with store.load_tables([worked_example()], path=path) as con:
        con.execute("CREATE TABLE mine AS SELECT 1 AS a")
    with store.open_store(path) as con:
        assert con.execute("SELECT jct_ns FROM jct").fetchone() == (209 * MS_NS,)
    with pytest.raises(UsageError, match="does not exist yet"):
        store.load_tables([worked_example()], path=path)


@pytest.mark.parametrize("name", ["it's", 'a "quoted" run', "a*b[x]?", "back\\slash", "<b>&amp;", "a=b", "ünï", "-- x"])
def test_any_path_and_label_works(name: str, tmp_path: Path) -> None:
    folder = write_folder(labelled(name), tmp_path / name / name)
    path = tmp_path / "runs.duckdb"
    assert store.build([folder], path)
    assert not store.build([folder], path)
    with store.open_store(path) as con:
        assert con.execute("SELECT DISTINCT run FROM request_metrics").fetchall() == [(name,)]


@pytest.mark.parametrize("name", ["a*b", "a?b", "a[x]b", "a[!y]b"])
def test_a_folder_is_not_a_pattern(name: str, tmp_path: Path) -> None:
    """Names that would match their neighbors are read as they are written."""
    for number, neighbor in enumerate(("axb", "ayb", name)):
        write_folder(labelled(f"run {number}"), tmp_path / neighbor)
    with store.load_folder(tmp_path / name) as con:
        assert con.execute("SELECT label FROM run").fetchall() == [("run 2",)]
        assert len(contents(con, "span")) == worked_example()["span"].num_rows
    odd = write_folder(worked_example(), tmp_path / "both\\and*")
    with pytest.raises(UsageError, match="without both"):
        store.load_folder(odd)


@pytest.mark.parametrize(
    "name", ["x'; DROP TABLE span; --", '"; SELECT 1', "<script>alert(1)</script>", "../../etc/passwd", "%s{}", "\\"]
)
def test_names_from_outside_are_values(name: str) -> None:
    tables = worked_example()
    for table in ("stage", "span", "batch"):
        tables = changed(tables, table, lambda rows: [r | {"stage": name} if r["stage"] == "k" else r for r in rows])
    tables = changed(
        tables,
        "edge",
        lambda rows: [
            row
            | {end: name if row[end] == "k" else row[end] for end in ("source", "target")}
            | {"edge": row["edge"] + name}
            for row in rows
        ],
    )
    tables = changed(tables, "chunk", lambda rows: [row | {"edge": row["edge"] + name} for row in rows])
    tables = changed(tables, "request", lambda rows: [row | {"class": name, "tenant": name} for row in rows])
    with store.load_tables([labelled(name, tables)]) as con:
        assert con.execute(
            "SELECT service_ns FROM stage_service WHERE stage = ? AND request = 1", [name]
        ).fetchall() == [(90 * MS_NS,)]
        assert len(contents(con, "span")) == len(to_rows(tables, "span"))


# --- hostile folders --------------------------------------------------------------------------------------------------


def wrong_type(tables: Tables) -> Tables:
    return with_column(tables, "span", "start_ns", tables["span"]["start_ns"].cast(pa.float64()))


def text_time(tables: Tables) -> Tables:
    return with_column(tables, "span", "start_ns", tables["span"]["start_ns"].cast(pa.string()))


def number_as_name(tables: Tables) -> Tables:
    return with_column(tables, "span", "stage", pa.array([1] * tables["span"].num_rows))


def number_as_kind(tables: Tables) -> Tables:
    return with_column(tables, "span", "kind", pa.array([0] * tables["span"].num_rows))


def timestamps(tables: Tables) -> Tables:
    return with_column(tables, "span", "end_ns", tables["span"]["end_ns"].cast(pa.timestamp("ns")))


def nested(tables: Tables) -> Tables:
    return with_column(tables, "span", "bytes", pa.array([[1]] * tables["span"].num_rows))


def missing_column(tables: Tables) -> Tables:
    return {**tables, "span": tables["span"].drop_columns(["cause"])}


def extra_column(tables: Tables) -> Tables:
    return {**tables, "span": tables["span"].append_column("x'y", tables["span"]["span"])}


def value_of(table: str, row: int, column: str, value: Any, type_: pa.DataType | None = None):
    """Damage of one value."""

    def damage(tables: Tables) -> Tables:
        values = tables[table][column].to_pylist()
        values[row] = value
        return with_column(tables, table, column, pa.array(values, type_ or tables[table].schema.field(column).type))

    return damage


def without_table(name: str):
    return lambda tables: {key: value for key, value in tables.items() if key != name}


def doubled_run(tables: Tables) -> Tables:
    return {**tables, "run": pa.concat_tables([tables["run"]] * 2)}


def many_names(tables: Tables) -> Tables:
    return with_column(tables, "span", "stage", pa.array([f"s{n}" for n in range(tables["span"].num_rows)]))


HOSTILE = {
    "float for a time": (wrong_type, ["span.parquet", "start_ns", "int64", "double"]),
    "text for a time": (text_time, ["span.parquet", "start_ns", "int64", "string"]),
    "timestamp for a time": (timestamps, ["span.parquet", "end_ns", "int64", "timestamp"]),
    "number for a name": (number_as_name, ["span.parquet", "stage", "text", "int64"]),
    "number for a vocabulary": (number_as_kind, ["span.parquet", "kind", "int64"]),
    "list for a number": (nested, ["span.parquet", "bytes", "list"]),
    "column missing": (missing_column, ["span.parquet", "one column cause"]),
    "column too many": (extra_column, ["span.parquet", '"x\'y"']),
    "unknown word": (
        value_of("span", 4, "kind", "lunch"),
        ["span.parquet", "column kind", "row 4", "'lunch'", "queue"],
    ),
    "hostile word": (value_of("chunk", 0, "edge", None), ["chunk.parquet", "column edge", "row 0", "NULL"]),
    "NULL in a time": (value_of("span", 7, "end_ns", None), ["span.parquet", "column end_ns", "row 7", "NULL"]),
    "NULL label": (value_of("run", 0, "label", None), ["run.parquet", "column label"]),
    "empty label": (value_of("run", 0, "label", ""), ["run.parquet", "column label", "''"]),
    "number too large": (
        value_of("span", 3, "replica", 40_000, pa.int64()),
        ["span.parquet", "column replica", "row 3", "40000", "int16"],
    ),
    "not JSON": (
        value_of("run", 0, "config", "{broken"),
        ["run.parquet", "column config", "row 0", "'{broken'", "json"],
    ),
    "long name": (value_of("stage", 2, "stage", "x" * 300), ["stage.parquet", "column stage", "300", "255"]),
    "other contract": (value_of("run", 0, "schema_version", 99), ["run.parquet", "schema_version", "99"]),
    "no spans": (without_table("span"), ["no span"]),
    "two runs in one": (doubled_run, ["run.parquet", "2 rows"]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_folder_is_one_clear_error(what: str, tmp_path: Path) -> None:
    damage, words = HOSTILE[what]
    good = write_folder(labelled("good"), tmp_path / "good")
    folder = write_folder(damage(worked_example()), tmp_path / "bad")
    path = tmp_path / "runs.duckdb"
    with pytest.raises(DataIntegrityError) as caught:
        store.build([good, folder], path)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert str(folder) in str(caught.value)
    assert len(str(caught.value)) < 1_500
    assert not path.exists()
    assert no_leftovers(tmp_path)
    with pytest.raises(DataIntegrityError):
        store.load_folder(folder)


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_tables_are_one_clear_error(what: str) -> None:
    damage, words = HOSTILE[what]
    with pytest.raises(DataIntegrityError) as caught:
        store.load_tables([damage(worked_example())])
    expected = [word.removesuffix(".parquet") for word in words]
    assert all(word in str(caught.value) for word in expected), str(caught.value)


def resealed(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and make the manifest agree, as an attacker would."""
    (folder / name).write_bytes(content)
    path = folder / "manifest.json"
    about = json.loads(path.read_text())
    about["files"][name] |= {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
    path.write_text(json.dumps(about))


@pytest.mark.parametrize("cut", [0, 3, 200, -1, -8, -300])
@pytest.mark.parametrize("name", ["span.parquet", "run.parquet"])
def test_cut_parquet(cut: int, name: str, tmp_path: Path) -> None:
    folder = write_folder(worked_example(), tmp_path / "run")
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:cut])
    with pytest.raises(DataIntegrityError, match=name):
        store.build([folder], tmp_path / "runs.duckdb")
    resealed(folder, name, content[:cut])
    with pytest.raises(DataIntegrityError, match=name):
        store.build([folder], tmp_path / "runs.duckdb")
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("name", ["span.parquet", "run.parquet", "chunk.parquet"])
def test_flipped_bytes(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a manifest that agrees: one clear error, or rows that Parquet's own checks cannot tell from good ones."""
    monkeypatch.setattr(manifest, "verify", lambda folder: "0" * 64)
    folder = write_folder(worked_example(), tmp_path / "run")
    content = (folder / name).read_bytes()
    errors = 0
    for position in range(4, len(content), max(1, len(content) // 8)):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        (folder / name).write_bytes(damaged)
        try:
            store.load_folder(folder).close()
        except DataIntegrityError as error:
            errors += name in str(error)
    assert errors > 0


def test_absurd_row_count_is_refused_before_reading(tmp_path: Path) -> None:
    folder = write_folder(worked_example(), tmp_path / "run")
    with pytest.raises(DataIntegrityError, match=r"span\.parquet: expected at most 19 rows, found 20"):
        store.build([folder], tmp_path / "runs.duckdb", max_rows=19)


@pytest.mark.parametrize("name", ["what?.duckdb", "back\\slash.duckdb"])
def test_store_path_that_duckdb_would_change(name: str, folders: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"without '\?' and backslash"):
        store.build(folders, tmp_path / name)
    with pytest.raises(UsageError, match=r"without '\?' and backslash"):
        store.open_store(tmp_path / name)


def test_too_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "MAX_NAMES", 10)
    with pytest.raises(DataIntegrityError, match="at most 10 different names"):
        store.load_tables([many_names(worked_example())])


def test_two_runs_of_one_label(folders: list[Path], tmp_path: Path) -> None:
    other = write_folder(labelled("b", simulate(JOIN, ARRIVALS, seed=2)), tmp_path / "other")
    with pytest.raises(DataIntegrityError, match=r"other.*different labels, found label 'b' in .*raw"):
        store.build([*folders, other], tmp_path / "runs.duckdb")


def test_no_folders_and_no_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one run folder"):
        store.build([], tmp_path / "runs.duckdb")
    with pytest.raises(WorkbenchError, match=str(tmp_path / "nowhere")):
        store.build([tmp_path / "nowhere"], tmp_path / "runs.duckdb")


def test_unknown_table_in_memory() -> None:
    with pytest.raises(DataIntegrityError, match="'lunch'"):
        store.load_tables([{**worked_example(), "lunch": pa.table({"a": [1]})}])


@pytest.mark.parametrize("content", [b"", b"my notes", b"\x00" * 20_000])
def test_another_file_is_left_alone(content: bytes, folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"notes\.txt"):
        store.build(folders, path)
    with pytest.raises(UsageError, match=r"notes\.txt"):
        store.open_store(path)
    assert path.read_bytes() == content


def test_another_database_is_left_alone(folders: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "other.duckdb"
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE TABLE mine AS SELECT 1 AS a")
    with pytest.raises(UsageError, match="another file"):
        store.build(folders, path)
    with duckdb.connect(str(path)) as con:
        assert con.execute("SELECT a FROM mine").fetchone() == (1,)


def test_open_without_a_store(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        store.open_store(tmp_path / "none.duckdb")


def test_a_store_of_another_contract_is_rebuilt_not_read(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "runs.duckdb"
    store.build(folders, path)
    monkeypatch.setattr(store, "SCHEMA_VERSION", 2)
    with pytest.raises(DataIntegrityError, match="Build it again"):
        store.open_store(path)
    assert store.build(folders, path)
    store.open_store(path).close()
