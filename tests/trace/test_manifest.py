"""A run folder that differs from its manifest in any way is one clear error."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trace.recordings import EDGE_ROWS, STAGE_ROWS, recorder
from workbench.errors import DataIntegrityError
from workbench.trace import manifest
from workbench.trace.environment import Environment
from workbench.trace.seal import RunInfo, seal


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    with recorder(folder / "segments") as recording:
        writer = recording.writer("w")
        for request in range(20):
            writer.span(request, 1, 0, 0, 0, 2, request, request + 1, 1)
    return seal(
        folder / "segments",
        folder / "run-1",
        RunInfo("run-1", "test"),
        stages=STAGE_ROWS,
        edges=EDGE_ROWS,
        environment=Environment({"cpu": "x"}, {"python": "3"}, None),
    )


@pytest.fixture
def copy(sealed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sealed, tmp_path / "run-1"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / manifest.NAME).read_text())
    change(content)
    (folder / manifest.NAME).write_text(json.dumps(content))


def test_an_intact_folder_is_identified_by_its_manifest(sealed: Path) -> None:
    assert manifest.verify(sealed) == hashlib.sha256((sealed / manifest.NAME).read_bytes()).hexdigest()
    content = manifest.load(sealed)
    assert content["hardware"] == {"cpu": "x"}
    for name, entry in content["files"].items():
        path = sealed / name
        assert entry == {
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "rows": pq.read_table(path).num_rows,
            "bytes": path.stat().st_size,
        }
    assert content["files"]["span.parquet"]["rows"] == 20


@given(data=st.data())
def test_any_changed_byte_of_any_file_is_found(
    sealed: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = Path(shutil.copytree(sealed, tmp_path_factory.mktemp("changed") / "run-1"))
    path = folder / data.draw(st.sampled_from(sorted(manifest.load(folder)["files"])))
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    with pytest.raises(DataIntegrityError, match=path.name):
        manifest.verify(folder)


def test_the_error_states_both_hashes_and_row_counts_and_a_way_out(sealed: Path, copy: Path) -> None:
    path = copy / "span.parquet"
    expected = manifest.load(copy)["files"]["span.parquet"]
    pq.write_table(pq.read_table(path).slice(1), path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DataIntegrityError) as caught:
        manifest.verify(copy)
    error = caught.value
    assert f"{expected['sha256']} (20 rows, {expected['bytes']:,} bytes)" in error.expected
    assert f"{found} (19 rows, {path.stat().st_size:,} bytes)" in error.found
    assert error.where == str(path)
    assert f"git checkout -- {path}" in error.fix
    path.write_bytes(b"PAR1")
    with pytest.raises(DataIntegrityError, match="not readable as Parquet"):
        manifest.verify(copy)


def test_missing_and_extra_files_are_named(copy: Path) -> None:
    (copy / "notes.txt").write_text("x")
    (copy / "batch.parquet").write_text("x")
    with pytest.raises(DataIntegrityError, match=r"also 'batch\.parquet', 'notes\.txt'"):
        manifest.verify(copy)
    (copy / "span.parquet").unlink()
    with pytest.raises(DataIntegrityError, match=r"no span\.parquet"):
        manifest.verify(copy)


def test_links_are_not_followed(sealed: Path, copy: Path) -> None:
    (copy / "span.parquet").unlink()
    (copy / "span.parquet").symlink_to(sealed / "span.parquet")
    with pytest.raises(DataIntegrityError, match="a regular file"):
        manifest.verify(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.update(schema_version=99), "found 99"),
        (lambda content: content.update(files=[]), "files"),
        (lambda content: content.update(files={}), "files"),
        (lambda content: content["files"].update({"../span.parquet": {}}), r"\.\./span"),
        (lambda content: content["files"].update({"span.parquet": 1}), r"files\['span\.parquet'\]"),
        (lambda content: content["files"]["span.parquet"].pop("rows"), "rows"),
        (lambda content: content["files"]["span.parquet"].update(rows=21), "21 rows"),
        (lambda content: content["files"]["span.parquet"].update(bytes="many"), "many"),
    ],
)
def test_a_damaged_manifest_is_named(copy: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    rewrite(copy, change)
    with pytest.raises(DataIntegrityError, match=message):
        manifest.verify(copy)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b" " * (manifest.MAX_BYTES + 1)])
def test_what_is_no_manifest_is_refused(copy: Path, text: bytes) -> None:
    (copy / manifest.NAME).write_bytes(text)
    with pytest.raises(DataIntegrityError, match=r"manifest\.json"):
        manifest.load(copy)


def test_a_folder_without_one_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataIntegrityError, match=r"a run folder with a manifest\.json"):
            manifest.verify(folder)
