"""The driver: runs, caches, fails, dies and is interrupted without ever leaving half a result."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import nbformat
import papermill
import pytest

from workbench import notebook_form
from workbench.errors import UsageError
from workbench.notebook import NotebookResult, exit_code, run_notebooks
from workbench.notebook_job import Tier
from workbench.provenance import Scalar

ROOT = Path(__file__).parent.parent
PARAMETERS = """
tier: str = "full"  # how much to do
figures: str = "figures"  # where figures go
seed: int = 0  # of the generator
rate: float = 1.5  # requests per second
run: str = ""  # folder of a run
quiet: bool = False  # say nothing
"""
FIGURE = """
from pathlib import Path
Path(figures, f"{name}.csv").write_text(f"{tier},{seed}\\n")
print(tier, seed, rate, run, quiet)
"""


class Project:
    """A project folder with notebooks made of plain cells, each ending with an assertion."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lines: list[str] = []
        (root / "notebooks").mkdir(parents=True)

    def add(self, name: str, *cells: str, parameters: str = PARAMETERS) -> None:
        sources = [parameters.strip(), *(textwrap.dedent(cell).strip() for cell in cells), "assert True"]
        notebook = {"cells": [{"cell_type": "code", "metadata": {}, "source": source} for source in sources]}
        if parameters:
            notebook["cells"][0]["metadata"] = {"tags": ["parameters"]}
        path = self.root / "notebooks" / f"{name}.ipynb"
        path.write_text(notebook_form.dumps(notebook_form.normalized(notebook)))

    def run(
        self,
        names: Sequence[str] | str = "all",
        parameters: dict[str, Scalar] | None = None,
        *,
        tier: Tier = "full",
        jobs: int = 2,
        force: bool = False,
    ) -> list[NotebookResult]:
        self.lines.clear()
        options = {"tier": tier, "jobs": jobs, "force": force}
        return run_notebooks(names, parameters, root=self.root, progress=self.lines.append, **options)  # type: ignore[arg-type]

    def one(self, parameters: dict[str, Scalar] | None = None, *, force: bool = False) -> NotebookResult:
        (result,) = self.run("all", parameters, force=force)
        return result

    def files(self) -> dict[str, bytes]:
        """Every file built, by path; hidden ones too, except the lock."""
        built = [*(self.root / "build").rglob("*"), *(self.root / "figures").rglob("*")]
        return {
            path.relative_to(self.root).as_posix(): path.read_bytes()
            for path in built
            if path.is_file() and path.name != ".lock"
        }


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "a project {with} braces")


# --- running and caching ---


def test_a_run_publishes_and_an_equal_run_is_cached(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    result = project.one()
    assert (result.status, result.message, result.figures) == ("ran", "", ("fig1.csv",))
    assert exit_code([result]) == 0
    assert re.fullmatch(r"01_waits +full +\d+\.\d s", project.lines[0])
    assert sorted(project.files()) == [
        "build/notebooks/01_waits.ipynb",
        "build/notebooks/01_waits.key",
        "figures/fig1.csv",
    ]
    assert (project.root / "figures" / "fig1.csv").read_text() == "full,0\n"
    if sys.platform == "linux":
        assert result.peak_bytes is not None
        assert 10 << 20 < result.peak_bytes < 1 << 30

    text = result.notebook.read_text()
    nbformat.validate(nbformat.reads(text, as_version=4))
    assert "full 0 1.5" in text
    assert str(project.root) not in text
    assert "papermill" not in text
    assert not re.search(r"\d\d:\d\d:\d\d", text)

    again = project.one()
    assert (again.status, again.seconds, again.figures) == ("cached", result.seconds, result.figures)
    assert project.lines[0].endswith("s  cached")
    before = project.files()
    assert project.one(force=True).status == "ran"
    after = project.files()
    changed = {name for name in before if before[name] != after[name]} - {"build/notebooks/01_waits.key"}
    assert changed == set(), "an equal run writes equal bytes"


def test_what_makes_a_result_stale(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    (project.root / "locks").mkdir()
    lock = project.root / "locks" / "base.txt"
    lock.write_text("numpy==1\n")
    raw = project.root / "data" / "raw" / "light-1"
    raw.mkdir(parents=True)
    manifest = raw / "manifest.json"
    manifest.write_text("{}")
    own = project.root / "own"
    own.mkdir()
    (own / "manifest.json").write_text("{}")

    # An executed copy cannot be had cheaper than by a run, so the key alone is asked after the first one.
    parameters: dict[str, Scalar] = {"run": "own"}
    assert project.one(parameters).status == "ran"
    assert project.one(parameters).status == "cached"
    keys = {json.loads(project.files()["build/notebooks/01_waits.key"])["key"]}
    for change in (
        lambda: lock.write_text("numpy==2\n"),
        lambda: manifest.write_text('{"rows": 1}'),
        lambda: (own / "manifest.json").write_text('{"rows": 1}'),
        lambda: project.add("01_waits", 'name = "fig1"' + FIGURE, "1 + 1"),
    ):
        change()
        keys.add(key_of(project, parameters))
    keys.add(key_of(project, {"run": "own", "seed": 1}))
    keys.add(key_of(project, {"run": "own"}, tier="smoke"))
    assert len(keys) == 7


def key_of(project: Project, parameters: dict[str, Scalar], tier: Tier = "full") -> str:
    from workbench.notebook import _key, _shared_key

    path = project.root / "notebooks" / "01_waits.ipynb"
    return _key(path, parameters, tier, project.root, _shared_key(project.root))


@pytest.mark.parametrize(
    "victim", ["figures/fig1.csv", "build/notebooks/01_waits.ipynb", "build/notebooks/01_waits.key"]
)
@pytest.mark.parametrize("damage", ["edited", "removed"])
def test_a_result_that_was_touched_is_made_again(tmp_path: Path, victim: str, damage: str) -> None:
    from workbench.notebook_job import Job, Place

    project = Project(tmp_path)
    place = Place.of(tmp_path, "full", None)
    job = Job(tmp_path / "notebooks" / "01_waits.ipynb", place, "full", {}, "key")
    (job.staging / "figures").mkdir(parents=True)
    (job.staging / "figures" / "fig1.csv").write_text("1\n")
    (job.staging / "notebook.ipynb").write_text("{}")
    assert job._publish(1.5).status == "ran"
    assert job.cached() is not None
    path = project.root / victim
    if damage == "edited":
        path.write_text(path.read_text()[1:])
    else:
        path.unlink()
    assert job.cached() is None


def test_a_cached_run_imports_neither_papermill_nor_altair(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    code = """
import sys
from pathlib import Path
from workbench.notebook import run_notebooks
(result,) = run_notebooks(root=Path(sys.argv[1]))
print(result.status, sorted({"papermill", "altair", "polars", "nbformat"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", code, str(project.root)]
    outputs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)
    ]
    assert outputs == ["ran ['nbformat', 'papermill']", "cached []"]


def test_smoke_has_folders_of_its_own(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    project.run(tier="smoke")
    assert (project.root / "build/smoke/figures/fig1.csv").read_text() == "smoke,0\n"
    assert (project.root / "build/smoke/notebooks/01_waits.ipynb").exists()
    assert not (project.root / "figures").exists()


def test_two_run_at_the_same_time(project: Project) -> None:
    meet = """
        import time
        from pathlib import Path
        Path({mine!r}).touch()
        end = time.monotonic() + 30
        while not Path({other!r}).exists():
            assert time.monotonic() < end, "the other one is not running"
            time.sleep(0.01)
    """
    project.add("01_a", meet.format(mine="a", other="b"))
    project.add("02_b", meet.format(mine="b", other="a"))
    assert [result.status for result in project.run(jobs=2)] == ["ran", "ran"]


def test_kernels_use_one_thread_this_interpreter_and_the_project_folder(project: Project) -> None:
    check = """
        import os, sys
        assert os.environ["OMP_NUM_THREADS"] == os.environ["POLARS_MAX_THREADS"] == "1"
        assert sys.executable == {python!r}, sys.executable
        assert os.path.samefile(os.getcwd(), {root!r}), os.getcwd()
    """
    project.add("01_env", check.format(python=sys.executable, root=str(project.root)))
    assert project.one().message == ""


# --- parameters and names ---


def test_parameters_are_read_by_their_declared_types(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE, "assert (seed, rate, quiet, run) == (7, 2.0, True, '1e3')")
    result = project.one({"seed": "7", "rate": "2", "quiet": "true", "run": "1e3"})
    assert result.message == ""
    assert "7 2.0 1e3 True" in result.notebook.read_text()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"sead": 1}, r"01_waits\.ipynb: expected a parameter out of tier, .*, found 'sead'\. Did you mean seed\?"),
        ({"zzz": 1}, r"found 'zzz'\.$"),
        ({"seed": "many"}, "expected seed of type int, found seed='many'"),
        ({"seed": 1.5}, "expected seed of type int, found seed=1.5"),
        ({"seed": True}, "expected seed of type int, found seed=True"),
        ({"quiet": "maybe"}, "expected quiet of type bool, found quiet='maybe'"),
        ({"tier": "smoke"}, "expected `tier` as an option of the run"),
    ],
)
def test_parameters_that_cannot_be_used(project: Project, parameters: dict[str, Scalar], message: str) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    with pytest.raises(UsageError, match=message):
        project.run("all", parameters)
    assert project.files() == {}


def test_names_prefixes_and_paths(project: Project) -> None:
    from workbench.notebook import _find

    for name in ("01_waits", "02_replay", "02_regret"):
        project.add(name)
    find = lambda *names: [path.stem for path in _find(project.root, names)]  # noqa: E731
    assert find("01", "notebooks/02_regret.ipynb", "01_waits") == ["01_waits", "02_regret"]
    assert [path.stem for path in _find(project.root, "all")] == ["01_waits", "02_regret", "02_replay"]
    with pytest.raises(UsageError, match=r"found '01_wait5'\. Did you mean 01_waits\?"):
        find("01_wait5")
    with pytest.raises(UsageError, match="expected one notebook out of"):
        find("02")


@pytest.mark.parametrize("parameters", ["", "seed: int = 0  # no tier", 'tier: str = "full"  # no figures'])
def test_a_notebook_without_its_contract_is_refused_before_anything_runs(project: Project, parameters: str) -> None:
    project.add("01_fine")
    project.add("02_odd", parameters=parameters)
    with pytest.raises(UsageError, match=r"02_odd\.ipynb: expected a cell tagged `parameters` that declares tier"):
        project.run()
    assert project.files() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"nbformat": 3}', '{"nbformat": 4, "cells": 1}'])
def test_a_file_that_is_no_notebook_is_named(project: Project, text: str) -> None:
    (project.root / "notebooks" / "01_odd.ipynb").write_text(text)
    with pytest.raises(UsageError, match=r"01_odd\.ipynb: expected a"):
        project.run()


# --- failure, death, interruption ---


def test_a_failure_keeps_the_last_good_results_and_is_never_cached(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE, "# why\nlimit = 5\nassert seed < limit, 'too many'")
    assert project.one().status == "ran"
    good = project.files()

    failed = project.one({"seed": 9})
    assert failed.status == "failed"
    assert failed.message == "In [4] `limit = 5` raised AssertionError: too many"
    assert project.lines == [failed.line()]
    assert exit_code([failed]) == 1
    assert failed.notebook.name == "01_waits.failed.ipynb"
    assert "too many" in failed.notebook.read_text()
    kept = project.files()
    assert {name: kept[name] for name in good if not name.endswith(".key")} == {
        name: content for name, content in good.items() if not name.endswith(".key")
    }
    assert set(kept) - set(good) == {"build/notebooks/01_waits.failed.ipynb"}

    assert project.one({"seed": 9}).status == "failed"
    assert project.one().status == "ran"
    assert not failed.notebook.exists(), "a success removes the failed copy"


def test_other_notebooks_go_on(project: Project) -> None:
    project.add("01_bad", "raise ValueError('first line\\nsecond line')")
    project.add("02_good", 'name = "fig2"' + FIGURE)
    results = project.run(jobs=1)
    assert [result.status for result in results] == ["failed", "ran"]
    assert results[0].message.endswith("raised ValueError: first line")
    assert exit_code(results) == 1


def test_a_dead_kernel_says_how_it_died(project: Project) -> None:
    die = """
        import os, signal, sys, time
        print("cannot allocate", file=sys.__stderr__, flush=True)
        ballast = b"x" * (200 << 20)
        time.sleep(0.8)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    project.add("01_greedy", "print('so far')", die)
    result = project.one()
    assert result.status == "died"
    assert exit_code([result]) == 138
    assert "most often because memory ran out" in result.message
    assert result.message.endswith("Its last words: cannot allocate")
    if sys.platform == "linux":
        assert result.peak_bytes is not None
        assert result.peak_bytes > 200 << 20
    assert "so far" in result.notebook.read_text(), "the part that ran is kept"


def test_leaving_early_and_impossible_outputs_are_failures(project: Project) -> None:
    project.add("01_exit", "import sys\nsys.exit(0)")
    bundle = "{'application/vnd.vegalite.v6.json': {'a': 1}}"
    project.add("02_mime", f"from IPython.display import display\ndisplay({bundle}, raw=True)")
    early, impossible = project.run()
    assert (early.status, impossible.status) == ("failed", "failed")
    assert early.message == "it left early: cell 3 was never run"
    assert "a cell made an output that no notebook may hold" in impossible.message


def test_a_figure_has_one_maker(project: Project) -> None:
    project.add("01_a", 'name = "fig1"' + FIGURE)
    project.add("02_b", 'name = "fig1"' + FIGURE, "seed")
    results = project.run(jobs=1)
    assert [result.status for result in results] == ["ran", "failed"]
    assert results[1].message == "01_a makes a figure of the same name: fig1.csv"


def test_ctrl_c_ends_kernels_and_leaves_the_last_good_results(project: Project, tmp_path: Path) -> None:
    project.add("01_slow", 'name = "fig1"' + FIGURE)
    assert project.one().status == "ran"
    good = {name: content for name, content in project.files().items() if not name.endswith(".key")}
    pids = tmp_path / "pids"
    pids.mkdir()
    wait = f"import os, time\nfrom pathlib import Path\nPath({str(pids)!r}, str(os.getpid())).touch()\ntime.sleep(600)"
    for name in ("01_slow", "02_slow", "03_queued"):
        project.add(name, f'name = "{name}"' + FIGURE, wait)
    code = """
import signal, sys
from pathlib import Path
from workbench.notebook import run_notebooks
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    run_notebooks(root=Path(sys.argv[1]), jobs=2)
except KeyboardInterrupt:
    sys.exit(130)
"""
    driver = subprocess.Popen([sys.executable, "-c", code, str(project.root)], cwd=ROOT, stderr=subprocess.PIPE)
    until(lambda: len(list(pids.iterdir())) == 2)
    driver.send_signal(signal.SIGINT)
    _, stderr = driver.communicate(timeout=30)
    assert driver.returncode == 130, stderr.decode()
    assert stderr == b"", "no traceback, no noise"
    until(lambda: not any(alive(int(path.name)) for path in pids.iterdir()))
    assert len(list(pids.iterdir())) == 2, "the queued one never started"
    assert project.files() == good


def test_kernels_do_not_outlive_a_killed_driver(project: Project, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    wait = f"import os, time\nfrom pathlib import Path\nPath({str(pids)!r}, str(os.getpid())).touch()\ntime.sleep(600)"
    project.add("01_slow", 'name = "fig1"' + FIGURE, wait)
    code = "import sys\nfrom pathlib import Path\nfrom workbench.notebook import run_notebooks\n"
    code += "run_notebooks(root=Path(sys.argv[1]))"
    driver = subprocess.Popen([sys.executable, "-c", code, str(project.root)], cwd=ROOT, stderr=subprocess.DEVNULL)
    until(lambda: any(pids.iterdir()))
    driver.kill()
    driver.wait()
    until(lambda: not any(alive(int(path.name)) for path in pids.iterdir()))
    assert not (project.root / "figures").exists()
    project.add("01_slow", 'name = "fig1"' + FIGURE)
    assert project.one().status == "ran"
    assert not list(project.root.rglob("*.partial")), "what the killed run left is gone"


def test_a_second_run_waits_for_the_first(project: Project) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    folder = project.root / "build" / "notebooks"
    folder.mkdir(parents=True)
    with open(folder / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        thread = threading.Thread(target=project.one)
        thread.start()
        until(lambda: bool(project.lines))
        assert project.lines == [f"another run writes to {folder}; waiting for it"]
        assert list(folder.glob("*.key")) == []
    thread.join(60)
    assert (folder / "01_waits.key").exists()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{pid}/stat").exists() or Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"


def until(condition: object, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_papermill_alone_runs_a_committed_notebook(project: Project, tmp_path: Path) -> None:
    project.add("01_waits", 'name = "fig1"' + FIGURE)
    (tmp_path / "out").mkdir()
    path = str(project.root / "notebooks" / "01_waits.ipynb").replace("{", "{{").replace("}", "}}")
    papermill.execute_notebook(
        path, str(tmp_path / "out.ipynb"), {"figures": str(tmp_path / "out")}, progress_bar=False
    )
    assert (tmp_path / "out" / "fig1.csv").read_text() == "full,0\n"
