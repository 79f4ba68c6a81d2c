"""The recording command on a machine that has torch, numpy and pyarrow only, as a bare GPU machine does.

This is also the rehearsal of a GPU recording: the same command with ``--device cuda`` does the same steps in the same
order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq

from workbench.trace import manifest

ABSENT = (
    "altair", "duckdb", "gguf", "jupyterlab", "numba", "onnx", "onnxruntime", "pandas", "papermill", "polars", "scipy",
    "statsmodels", "tokenizers",
)  # fmt: skip


BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def test_a_rehearsal_records_in_order_of_value_and_resumes(tmp_path: Path) -> None:
    block = tmp_path / "site"
    block.mkdir()
    (block / "sitecustomize.py").write_text(BLOCK)
    raw = tmp_path / "raw"
    command = [sys.executable, "-m", "workbench", "record", "--device", "cpu", "--weights", "twin", "--scale", "small"]
    command += ["--into", str(raw), "--prefix", "rehearsal"]
    path = os.pathsep.join([str(block), str(Path(__file__).parents[1])])
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}

    def run(budget: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, "--budget", budget, "--json"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280
        )

    first = run("9s")
    assert first.returncode == 0, first.stderr
    sealed = {path.name: manifest.verify(path) for path in raw.iterdir()}
    assert "rehearsal-saturation" in sealed, "the burst sizes all other runs, so it comes first"
    assert "left out" in first.stderr, "a budget of seconds cannot hold the campaign, and it must say what it dropped"
    again = run("25s")
    assert again.returncode == 0, again.stderr
    now = {path.name: manifest.verify(path) for path in raw.iterdir()}
    assert sealed.items() <= now.items(), "sealed runs are kept as they are"
    assert len(now) > len(sealed)
    labels = json.loads(again.stdout)
    assert labels["schema_version"] == 1
    for run_folder in raw.iterdir():
        stage = pq.read_table(run_folder / "stage.parquet").to_pylist()
        assert {row["weights"] for row in stage if row["stage"] == "thinker"} == {"random:0"}
