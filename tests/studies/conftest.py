from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from tests.studies.campaign import campaign
from workbench.studies import shadow_profile
from workbench.studies.runs import campaign_runs
from workbench.studies.shadow_profile import Profile
from workbench.testing.traces import write_folder
from workbench.trace import store


@pytest.fixture(scope="session")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the campaign's sealed runs."""
    folder = tmp_path_factory.mktemp("raw")
    for label, tables in campaign().items():
        write_folder(tables, folder / label)
    return folder


@pytest.fixture(scope="session")
def connection(raw: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with store.load_folders(campaign_runs(raw, "x", tier="full")) as opened:
        yield opened


@pytest.fixture(scope="session")
def profile(connection: duckdb.DuckDBPyConnection) -> Profile:
    return shadow_profile.profile(connection, "x")


@pytest.fixture(scope="session")
def smoke_profile(raw: Path) -> Iterator[Profile]:
    """The same campaign with the light load and two probe pairs only."""
    with store.load_folders(campaign_runs(raw, "x", tier="smoke")) as opened:
        yield shadow_profile.profile(opened, "x")
