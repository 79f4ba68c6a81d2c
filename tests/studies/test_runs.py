"""Which runs a study reads, and a store that is built once and again only when they change."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pytest

from tests.studies.campaign import run
from workbench.errors import UsageError
from workbench.studies import runs
from workbench.studies.runs import campaign_runs, open_runs
from workbench.testing.traces import write_folder


def names(folders: list[Path]) -> list[str]:
    return [folder.name for folder in folders]


# --- which ---


def test_full_is_every_run_of_the_campaign_by_label(raw: Path) -> None:
    assert names(campaign_runs(raw, "x", tier="full")) == sorted(path.name for path in raw.iterdir())


def test_smoke_is_the_light_load_two_pairs_and_the_isolated_run(raw: Path) -> None:
    assert names(campaign_runs(str(raw), "x", tier="smoke")) == [
        "x-isolated",
        "x-light-a",
        "x-light-b",
        "x-pair1-off",
        "x-pair1-on",
        "x-pair2-off",
        "x-pair2-on",
    ]


def sealed(folder: Path, *labels: str) -> None:
    for label in labels:
        (folder / label).mkdir(parents=True)
        (folder / label / "manifest.json").write_text("{}")


def test_only_sealed_folders_of_the_prefix_count(tmp_path: Path) -> None:
    sealed(tmp_path, "gpu-light-a", "cpu-light-a", "cpu-light-b", ".cpu-light-c", "cpux-light-a")
    (tmp_path / "cpu-light-z").mkdir()
    (tmp_path / "cpu-notes.txt").write_text("")
    assert names(campaign_runs(tmp_path, "cpu", tier="full")) == ["cpu-light-a", "cpu-light-b"]


def test_a_relative_folder_counts_from_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sealed(tmp_path / "project" / "data" / "raw", "cpu-light-a")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(runs, "ROOT", tmp_path / "project")
    assert campaign_runs("data/raw", "cpu", tier="full") == [tmp_path / "project" / "data" / "raw" / "cpu-light-a"]


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected runs named cpu-\.\.\., found no run\. Record some"):
        campaign_runs(tmp_path / "absent", "cpu", tier="full")
    sealed(tmp_path, "gpu-near-a")
    with pytest.raises(UsageError, match=r"expected runs named cpu-\.\.\., found \['gpu-near-a'\]"):
        campaign_runs(tmp_path, "cpu", tier="full")
    with pytest.raises(UsageError, match="expected runs named gpu-"):
        campaign_runs(tmp_path, "gpu", tier="smoke")
    with pytest.raises(UsageError, match="expected tier full or smoke, found 'tiny'"):
        campaign_runs(tmp_path, "gpu", tier="tiny")


# --- the store ---


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(runs, "STORES", tmp_path / "stores")
    return tmp_path / "stores"


def counted(folders: list[Path], name: str = "x-full") -> int:
    with open_runs(folders, name) as connection:
        return int(connection.execute("SELECT count(*) FROM request").fetchall()[0][0])


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_an_unchanged_store_is_not_built_again(tmp_path: Path, stores: Path) -> None:
    folders = [write_folder(run(label, seed=1, requests=3), tmp_path / label) for label in ("x-light-a", "x-light-b")]
    assert counted(folders) == 6
    built = state(stores)
    assert len(built) == 1
    assert next(iter(built)).startswith("x-full-")
    assert counted(folders) == 6
    assert state(stores) == built


def test_a_changed_run_builds_the_store_again(tmp_path: Path, stores: Path) -> None:
    folder = write_folder(run("x-light-a", seed=1, requests=3), tmp_path / "x-light-a")
    assert counted([folder]) == 3
    built = state(stores)
    shutil.rmtree(folder)
    write_folder(run("x-light-a", seed=1, requests=5), folder)
    assert counted([folder]) == 5
    assert state(stores).keys() == built.keys(), "the new store takes the place of the old one"
    assert state(stores) != built


def test_two_sets_of_runs_never_share_a_store(tmp_path: Path, stores: Path) -> None:
    folders = [write_folder(run(label, seed=1, requests=3), tmp_path / label) for label in ("x-light-a", "x-light-b")]
    assert (counted(folders), counted(folders[:1]), counted(folders)) == (6, 3, 6)
    assert len(state(stores)) == 2


def test_a_store_is_read_only(tmp_path: Path, stores: Path) -> None:
    folder = write_folder(run("x-light-a", seed=1, requests=3), tmp_path / "x-light-a")
    with open_runs([folder], "x-full") as connection, pytest.raises(duckdb.Error, match="read-only"):
        connection.execute("DELETE FROM request")
