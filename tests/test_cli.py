"""The command line: every verb, its exit codes, one JSON object whatever happens, and a manual that keeps up."""

from __future__ import annotations

import argparse
import dataclasses
import doctest
import errno
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import hostile
from workbench import cli, notebook_form, verbs
from workbench.errors import CheckFailed, DataIntegrityError
from workbench.testing.example import worked_example
from workbench.testing.tables import changed, write_folder
from workbench.trace import manifest, store

ROOT = Path(__file__).resolve().parent.parent
MANUAL = (ROOT / "docs" / "cli.md").read_text()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(worked_example(), tmp_path_factory.mktemp("example") / "worked-example")


def called(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = cli.main([str(word) for word in words])
    out, err = capsys.readouterr()
    return code, out, err


def as_json(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    """The object that a call with --json prints; fails unless it is the only thing on standard output."""
    code, out, _ = called(capsys, *words, "--json")
    assert out.count("\n") == 1
    data = json.loads(out)
    assert data["schema_version"] == cli.SCHEMA_VERSION
    assert data["exit_code"] == code
    return code, data


# --- The manual ---


def parsers() -> dict[str, argparse.ArgumentParser]:
    return cli._verbs(cli.parser())


def section(verb: str) -> str:
    found = re.search(rf"^### `workbench {verb}\b.*?(?=^##)", MANUAL + "\n## end", re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section `workbench {verb}`"
    return found[0]


@pytest.mark.parametrize("verb", list(parsers()))
def test_every_verb_and_flag_is_documented(verb: str) -> None:
    text = section(verb)
    for action in parsers()[verb]._actions:
        for option in action.option_strings:
            where = MANUAL if option in ("--json", "-v", "--verbose", "-h", "--help") else text
            assert re.search(rf"`[^`]*(?<![\w-]){re.escape(option)}(?![\w-])", where), f"{verb} {option}"
        if not action.option_strings:
            assert str(action.metavar) in text
        assert action.help, f"{verb} {action.dest} has no help"


def test_no_documented_flag_is_gone() -> None:
    known = {option for verb in parsers().values() for action in verb._actions for option in action.option_strings}
    assert set(re.findall(r"(?<![\w-])--[a-z]+", MANUAL)) - {"--jsn"} <= known | {"--version"}
    assert set(re.findall(r"^### `workbench (\w+)", MANUAL, re.MULTILINE)) == set(parsers())


def test_exit_codes_are_documented() -> None:
    documented = set(re.findall(r"^\| (\d+) \|", MANUAL, re.MULTILINE))
    assert documented == set(re.findall(r"^(\d+) ", cli.__doc__ or "", re.MULTILINE))


EXAMPLES = re.findall(r"^\$ workbench (.*)\n((?:(?!\$ |```).*\n)*)", MANUAL, re.MULTILINE)


@pytest.mark.parametrize(("words", "expected"), EXAMPLES, ids=[words for words, _ in EXAMPLES])
def test_examples_of_the_manual_print_what_it_says(
    words: str, expected: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = called(capsys, *(str(run) if word == "RUN" else word for word in shlex.split(words)))
    found = (out if code in (0, CheckFailed.exit_code) else err).replace(str(run), "RUN")
    assert doctest.OutputChecker().check_output(expected, found, doctest.ELLIPSIS), found


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


# --- Starting ---


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom workbench import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit as end:\n    assert end.code == 0\n"
        "print('LOADED', *({'numpy', 'polars', 'duckdb', 'altair', 'torch', 'pyarrow', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("LOADED")
    assert set(re.findall(r"^    ([a-z]+)\b", done.stdout, re.MULTILINE)) == set(parsers())


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "workbench", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == "workbench 0.1.0\n"


def test_recording_imports_no_reader() -> None:
    """`record` must run where there is torch, numpy and pyarrow alone."""
    code = (
        "import sys\nfor name in ('polars', 'duckdb', 'altair', 'numba'):\n    sys.modules[name] = None\n"
        "from workbench import cli\nprint(cli.main(['record', '--prefix', 'a/b']), cli.main(['info', '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "2 0", done.stdout + done.stderr


# --- Wrong arguments ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: VERB"),
        (["profil"], "Did you mean profile?"),
        (["profile"], "the following arguments are required: RUN"),
        (["profile", "x", "--htlm", "y"], "found '--htlm'. Did you mean --html? See `workbench profile --help`."),
        (["profile", "x", "--by", "p99"], "invalid choice: 'p99'"),
        (["profile", "x", "--worst", "ten"], "invalid int value: 'ten'"),
        (["profile", "x", "y"], "found 'y'"),
        (["record", "--bud", "8m"], "found '--bud'. Did you mean --budget?"),
        (["record", "--budget", "soon"], "--budget: expected a time such as 90s, 8m or 2h, found 'soon'"),
        (["record", "--budget", "0"], "--budget: expected a time"),
        (["record", "--budget", "-5m"], "--budget"),
        (["record", "--prefix", "../up"], "--prefix: expected a name of letters"),
        (["record", "--prefix", ""], "--prefix: expected a name of letters"),
        (["record", "--into", __file__], "expected a folder, found a file"),
        (["record", "--scale", "small", "--weights", "pretrained"], "It rehearses on the twin"),
        (["validate"], "the following arguments are required: PATH"),
        (["validate", "nowhere-at-all"], "nowhere-at-all: expected a run folder"),
        (["validate", "x", "--rows", "-1"], "--rows"),
        (["figures", "no-such-notebook"], "found 'no-such-notebook'"),
        (["figures", "-p", "seed"], "-p: expected NAME=VALUE, found 'seed'"),
        (["figures", "--jobs", "0"], "--jobs: expected at least 1"),
        (["notebooks", "nowhere.ipynb"], "nowhere.ipynb: expected a Jupyter notebook"),
        (["notebooks", "--check", "--normalize"], "not allowed with argument"),
        (["explore", "cancle"], "expected a scenario of the catalog, found 'cancle'. Did you mean cancel?"),
        (["explore", "--mutant", "credit-on-sent"], "Did you mean credit-on-send?"),
        (["explore", "--edit", "credit", "a"], "--edit: expected 3 arguments"),
        (["explore", "--edit", "cradit", "a", "b"], "found 'cradit'"),
        (["explore", "--edit", "credit", "if seq == m[at + RECEIVED]:", ""], "The nearest line is 'if seq != m[at"),
        (["explore", "--limit", "0"], "--limit: expected an integer from 1"),
        (["explore", "--list", "cancel"], "--list: expected nothing else to explore beside it"),
        (["explore", "--list", "--mutants"], "--list: expected"),
        (["explore", "--list", "--faults", "plan.toml"], "--list: expected"),
        (["explore", "--mutants", "--graph", "join"], "--mutants: expected"),
        (["explore", "--mutants", "--limit", "5"], "--mutants: expected"),
        (
            ["explore", "--mutant", "no-floor", "--mutant", "no-drain"],
            "--mutant: expected one mutant, found 'no-floor', 'n",
        ),
        (["explore", "--mutant", ""], "--mutant: expected a mutant, found ''"),
        (["explore", "--graph", ""], "expected a graph among"),
        (["explore", "--faults", ""], "expected a .toml or .json file"),
        (["explore", "cancel", "--fault", "cancel=" + "9" * 5000], "--fault: expected NAME=N"),
        (["explore", "--graph", "chain-" + "9" * 5000], "expected a graph among"),
        (["info", "--verbos"], "Did you mean --verbose?"),
    ],
)
def test_wrong_arguments_say_what_to_do(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    code, data = as_json(capsys, *words)
    assert code == 2
    assert data["error"]["error"] == "UsageError"
    assert set(data["error"]) == {"error", "expected", "found", "where", "fix"}


def test_a_missing_package_is_a_prerequisite(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, err = called(capsys, "record")
    assert code == 3
    assert "`make test` installs it" in err
    assert as_json(capsys, "record")[1]["error"]["error"] == "MissingPrerequisite"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there is a GPU")
def test_a_missing_device_is_a_prerequisite(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(capsys, "record", "--device", "cuda")
    assert code == 3
    assert "Use --device cpu" in err


def test_other_missing_packages_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def absent(arguments: argparse.Namespace) -> verbs.Result:
        raise ModuleNotFoundError("No module named 'polars'", name="polars")

    monkeypatch.setattr(verbs, "coverage", absent)
    code, _, err = called(capsys, "coverage")
    assert code == 3
    assert "expected the package polars" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CheckFailed("a", "b"), 1),
        (DataIntegrityError("a", "b"), 4),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("oops\nmore"), 70),
        (ModuleNotFoundError("No module named 'workbench.x'", name="workbench.x"), 70),
    ],
)
def test_errors_have_their_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: argparse.Namespace) -> verbs.Result:
        raise error

    monkeypatch.setattr(verbs, "coverage", fail)
    found, out, err = called(capsys, "coverage")
    assert (found, out) == (code, "")
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert as_json(capsys, "coverage")[0] == code
    if code == 70:
        with pytest.raises(type(error)):
            cli.main(["coverage", "-v"])


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m workbench coverage | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] in ("141", "0")


INTERRUPTED_IN_A_CALLBACK = """
import ctypes, signal, sys
from workbench import cli, verbs

def native(arguments):
    def back():
        signal.raise_signal(signal.SIGINT)
        return 0
    ctypes.CFUNCTYPE(ctypes.c_int)(back)()
    if sys.argv[1] == "another-error":
        raise RuntimeError("no compiled object yet")
    while True:
        pass

verbs.coverage = native
sys.exit(cli.main(["coverage"]))
"""


@pytest.mark.parametrize("then", ["another-error", "none"])
def test_an_interrupt_that_native_code_swallows_is_one(then: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IN_A_CALLBACK, then]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_only_verbs_that_go_on_say_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(arguments: argparse.Namespace) -> verbs.Result:
        raise KeyboardInterrupt

    for verb, goes_on in (("explore", False), ("smoke", True)):
        monkeypatch.setattr(verbs, verb, interrupted)
        code, _, err = called(capsys, verb)
        assert (code, "goes on from there" in err) == (130, goes_on)


def test_a_disk_that_fills_up_is_not_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(arguments: argparse.Namespace) -> verbs.Result:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(verbs, "coverage", full)
    code, _, err = called(capsys, "coverage")
    assert (code, err) == (2, "error: expected a file that can be read and written, found No space left on device.\n")


# --- profile and validate ---


def test_profile_prints_and_writes_a_page(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    code, out, err = called(capsys, "profile", run, "--html", page, "--by", "jct", "--worst", 3)
    assert code == 0
    assert "Worst 1 requests by jct" in out
    assert err == f"wrote {page}\n"
    assert page.read_text().startswith("<!DOCTYPE html>")
    code, data = as_json(capsys, "profile", run)
    assert code == 0
    assert data["critical_path"]["first"]["latency_ns"] == 149_000_000
    assert data["html"] is None


def test_profile_of_one_run_of_many(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = changed(worked_example(), "run", lambda rows: [{**rows[0], "label": "other"}])
    path = tmp_path / "two.duckdb"
    store.build([run, write_folder(other, tmp_path / "other")], path)
    code, _, err = called(capsys, "profile", path)
    assert code == 2
    assert "found 2: worked-example, other. Name one" in err
    assert as_json(capsys, "profile", path, "--run", "other")[1]["run"] == "other"


def test_validate_judges_runs_stores_and_folders(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(capsys, "validate", run)
    assert code == 0
    assert out.startswith("worked-example: valid")
    path = tmp_path / "one.duckdb"
    store.build([run], path)
    code, data = as_json(capsys, "validate", path, run.parent)
    assert (code, data["valid"], len(data["reports"])) == (0, True, 2)


def test_validate_goes_on_after_damage_and_says_the_worst(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(run, runs / "a-damaged")
    (runs / "a-damaged" / "span.parquet").write_bytes(b"")
    write_folder(changed(worked_example(), "span", lambda rows: [*rows, rows[-1]]), runs / "b-broken")
    shutil.copytree(run, runs / "c-good")
    code, out, err = called(capsys, "validate", runs, "--rows", 1)
    assert code == 4
    assert "a-damaged: damaged." in out
    assert "NOT valid" in out
    assert out.rstrip().endswith("1 of 3 are valid.")
    assert err.count("\n") == 3
    code, data = as_json(capsys, "validate", runs / "b-broken", runs / "c-good")
    assert code == 1
    assert [report["valid"] for report in data["reports"]] == [False, True]


def test_hostile_runs_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_folder(changed(hostile.hostile_run(), "span", lambda rows: [*rows, rows[-1]]), tmp_path / "run")
    store.build([run, write_folder(worked_example(), tmp_path / "other")], tmp_path / "both.duckdb")
    for words in (("validate", run), ("profile", run), ("profile", tmp_path / "both.duckdb")):
        _, out, err = called(capsys, *words)
        assert "\x1b" not in out + err
        assert "\x07" not in out + err
    as_json(capsys, "profile", run)


# --- record ---


def test_a_rehearsal_records_resumes_and_refuses_a_mixture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("record", "--scale", "small", "--budget", "1s", "--into", tmp_path / "runs", "--prefix", "try")
    code, data = as_json(capsys, *words)
    assert code == 0
    assert data["weights"] == "twin"
    assert data["fallback"] is None
    assert [run["run"] for run in data["runs"]] == data["recorded"] == ["try-saturation"]
    assert len(data["runs"]) + len(data["left_out"]) == 24
    sealed = manifest.verify(tmp_path / "runs" / "try-saturation")
    assert called(capsys, "validate", tmp_path / "runs")[0] == 0

    code, out, err = called(capsys, *words)
    assert code == 0
    assert manifest.verify(tmp_path / "runs" / "try-saturation") == sealed, "what is sealed is kept"
    assert "The same command goes on from here." in out
    assert "saturation throughput" in err

    path = tmp_path / "runs" / "try-saturation" / manifest.NAME
    path.write_text(path.read_text().replace("random:0", "random:9"))
    code, _, err = called(capsys, *words)
    assert code == 2
    assert "one campaign has one set of models" in err


@pytest.mark.soak
def test_a_whole_rehearsal_is_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of the recording script, on the CPU and the twin: loads, repeats, and pairs with probes on and off."""
    monkeypatch.chdir(tmp_path)
    code, data = as_json(capsys, "record", "--scale", "small", "--into", tmp_path / "runs", "--prefix", "all")
    assert code == 0
    assert len(data["runs"]) == 24
    assert data["left_out"] == []
    code, data = as_json(capsys, "validate", tmp_path / "runs")
    assert (code, data["valid"]) == (0, True)
    assert (
        "Nothing was left to record."
        in called(capsys, "record", "--scale", "small", "--into", tmp_path / "runs", "--prefix", "all")[1]
    )


def test_absent_weights_are_said_loudly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.testbed import campaign, weights

    monkeypatch.setattr(weights, "available", lambda: {"thinker": False, "voice": True, "judge": False})
    monkeypatch.setattr(campaign, "campaign", lambda *arguments, **options: [])
    code, out, err = called(capsys, "record", "--into", tmp_path)
    assert code == 0
    assert "NO PRETRAINED WEIGHTS: the weights of thinker are not installed." in err
    assert "weights: twin" in out
    monkeypatch.setattr(weights, "load", lambda role: weights.locate(role))
    monkeypatch.setattr(weights, "_installed", lambda name: "")
    code, _, err = called(capsys, "record", "--into", tmp_path, "--weights", "pretrained")
    assert code == 3
    assert "make weights" in err


# --- explore ---


def test_explore_says_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = as_json(capsys, "explore", "cancel", "tight")
    assert (code, data["holds"], data["diff"]) == (0, True, "")
    assert [row["scenario"] for row in data["explorations"]] == ["cancel", "tight"]
    assert all(row["verdict"] == "holds" and row["goals"] > 0 for row in data["explorations"])
    code, out, err = called(capsys, "explore", "cancel", "tight")
    assert code == 0
    assert out.count(" holds") == 2
    assert err.splitlines() == ["[1/2] cancel", "[2/2] tight"]


def test_explore_tells_how_a_property_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = as_json(capsys, "explore", "--mutant", "credit-on-send")
    assert (code, data["holds"], data["mutant"]) == (1, False, "credit-on-send")
    (row,) = data["explorations"]
    assert (row["scenario"], row["verdict"], row["property"]) == ("cancel", "violated", "held")
    assert len([line for line in row["story"] if re.match(r" *\d+\.", line)]) == row["steps"]
    assert "+        ledger.give_back" in data["diff"]


def test_explore_gives_up_at_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = as_json(capsys, "explore", "cancel", "--limit", "50")
    assert (code, data["explorations"][0]["verdict"]) == (1, "limit")


def test_explore_takes_a_changed_protocol(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explore", "copies", "--edit", "credit", "if seq != m[at + RECEIVED]:", "if False:")
    code, out, _ = called(capsys, *words)
    assert code == 1
    assert "-    if seq != m[at + RECEIVED]:\n+    if False:" in out
    assert "FAULT: A's chunk 0 of epoch 0 arrives" in out


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ("m[at + RECEIVED] += (", "SyntaxError"),
        ("m[at + RECEIVED] += 1\\nx", "IndentationError"),
        ("m[1_000_000_000] = 1", "IndexError"),
        ("nobody(g, m)", "NameError"),
        ("m[at + RECEIVED] += 1 # \udcff", "UnicodeEncodeError"),
        ("raise SystemExit(0)", "SystemExit"),
    ],
)
def test_a_change_that_does_not_run_is_the_users(capsys: pytest.CaptureFixture[str], new: str, found: str) -> None:
    code, out, err = called(capsys, "explore", "cancel", "--edit", "credit", "m[at + RECEIVED] += 1", new)
    assert (code, out) == (2, "")
    assert f"cancel: expected a change with which the rules still run, found {found}:" in err


def test_a_changed_world_is_looked_at_before_it_is_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.verify import command

    ways = []

    def explore(*args: Any, compiled: bool, **kwargs: Any) -> Any:
        ways.append(compiled)
        return real(*args, compiled=compiled, **kwargs)

    real = command.explore
    monkeypatch.setattr(command, "explore", explore)
    code, _, err = called(capsys, "explore", "fork-join", "--edit", "credit", "m[at + RECEIVED] += 1", "m[1 << 40] = 1")
    assert (code, ways) == (2, [False])
    assert "IndexError" in err
    assert "compiling" not in err


def test_explore_says_which_faults_of_a_plan_it_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'name = "p"\nseed = 1\nheal_ns = 9\n[[fault]]\nkind = "slow"\nstage = "s0"\nfactor_permille = 2000\nat_ns = 1\n'
    )
    assert called(capsys, "explore", "cancel", "--faults", file)[2] == "faults on each path: none\n"
    assert called(capsys, "explore", "cancel", "--fault", "cancel=1")[2] == "faults on each path: cancel=1\n"


def test_explore_lists_everything(capsys: pytest.CaptureFixture[str]) -> None:
    from workbench.verify import catalog, mutants

    code, data = as_json(capsys, "explore", "--list")
    assert code == 0
    assert [row["name"] for row in data["scenarios"]] == list(catalog.CATALOG)
    assert [row["name"] for row in data["mutants"]] == [*mutants.MUTANTS, *mutants.SURVIVORS]
    out = called(capsys, "explore", "--list")[1]
    assert all(f"  {name} " in out for name in (*catalog.CATALOG, *mutants.MUTANTS, *mutants.SURVIVORS))


def test_explore_prints_the_table_of_mutants(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from workbench.verify import mutants

    few = {name: mutants.MUTANTS[name] for name in ("credit-on-send", "ended-twice")}
    monkeypatch.setattr(mutants, "MUTANTS", few)
    code, out, _ = called(capsys, "explore", "--mutants")
    assert code == 0
    assert out.endswith("2 of 2 mutants are found by the property that they violate.\n")
    few["harmless"] = dataclasses.replace(mutants.SURVIVORS["stop-unheard"], violates="leak")
    code, data = as_json(capsys, "explore", "--mutants")
    assert (code, data["found"], [row["property"] for row in data["mutants"]]) == (1, 2, ["held", "terminal", ""])


# --- info, coverage, notebooks, figures ---


def test_info_describes_the_installation(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / manifest.NAME).write_text("{}")
    code, data = as_json(capsys, "info", "--data", tmp_path)
    assert code == 0
    assert data["versions"]["polars"]
    assert set(data["weights"]) == {"thinker", "voice", "judge"}
    bad, good = data["runs"]
    assert (good["run"], good["requests"]) == ("good", 3)
    assert "schema_version" in bad["problem"]
    code, out, _ = called(capsys, "info", "--data", tmp_path)
    assert "good: 3 requests" in out


def test_coverage_is_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    code, data = as_json(capsys, "coverage")
    assert code == 0
    assert set(data["totals"]) >= {"G1", "G10"}
    assert all(entry["served"] or entry["open"] for entry in data["entries"])


PARAMETERS = 'tier: str = "full"  # how much\nfigures: str = "figures"  # where figures go\nseed: int = 0  # of it all'
DRAW = "from pathlib import Path\nPath(figures, 'fig1.csv').write_text(f'{tier},{seed}')"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one small notebook in place of this one."""
    (tmp_path / "notebooks").mkdir()
    cells = [
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": PARAMETERS},
        {"cell_type": "code", "metadata": {}, "source": DRAW},
        {"cell_type": "code", "metadata": {}, "source": "assert seed != 13, 'unlucky'"},
    ]
    path = tmp_path / "notebooks" / "01_draw.ipynb"
    path.write_text(notebook_form.dumps(notebook_form.normalized({"cells": cells})))
    monkeypatch.setattr(verbs, "ROOT", tmp_path)
    return tmp_path


def test_figures_and_smoke_run_notebooks(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = called(capsys, "figures")
    assert code == 0
    assert out == "1 notebooks (1 ran); 1 figure files in figures/\n"
    assert "01_draw" in err
    assert (project / "figures" / "fig1.csv").read_text() == "full,0"
    code, data = as_json(capsys, "figures", "01")
    assert data["notebooks"][0]["status"] == "cached"
    assert data["notebooks"][0]["figures"] == ["fig1.csv"]
    code, out, _ = called(capsys, "smoke", "-p", "seed=13")
    assert code == 1
    assert "unlucky" in out
    assert not (project / "build" / "smoke" / "figures" / "fig1.csv").exists()


def test_notebooks_are_checked_and_brought_into_form(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "notebooks") == (0, "1 notebooks are in form\n", "")
    path = project / "notebooks" / "01_draw.ipynb"
    form = path.read_text()
    content = json.loads(form)
    content["cells"][1]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x"}]
    path.write_text(json.dumps(content))
    code, out, _ = called(capsys, "notebooks", "--check")
    assert code == 1
    assert "it has outputs" in out
    code, data = as_json(capsys, "notebooks", "--normalize")
    assert (code, data["changed"]) == (0, [str(path)])
    assert path.read_text() == form


def test_ordinary_failures_of_the_system_are_no_defects(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    under_a_file = tmp_path / "file"
    under_a_file.write_text("")
    code, answer = as_json(capsys, "profile", run, "--html", under_a_file / "page.html", "--json")
    assert code == 2, answer
    code, answer = as_json(capsys, "profile", run, "--html", "/dev/null", "--json")
    assert code == 2
    assert "device" in answer["error"]["found"]
    assert Path("/dev/null").is_char_device()


def test_times_that_overflow_are_bad_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = changed(worked_example(), "span", lambda rows: [{**rows[0], "end_ns": -(2**63)}, *rows[1:]])
    code, answer = as_json(capsys, "validate", write_folder(far, tmp_path / "far"), "--json")
    assert code == 4, answer


def test_a_full_standard_output_is_said_once() -> None:
    if not Path("/dev/full").is_char_device():
        raise AssertionError("this test needs /dev/full, which every Linux has")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", "validate", "NOWHERE", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: standard output:")
    assert "Traceback" not in done.stderr


def test_explore_takes_a_world_of_ones_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, data = as_json(capsys, "explore", "--graph", "join", "--requests", "2", "--coarse")
    assert (code, data["holds"]) == (0, True)
    (one,) = data["explorations"]
    assert one["scenario"] == "own"
    assert one["goals"] > 0
    plain = as_json(capsys, "explore", "cancel")[1]["explorations"][0]["states"]
    file = tmp_path / "plan.toml"
    file.write_text('name = "p"\nseed = 1\nheal_ns = 9\n[[fault]]\nkind = "lose"\nmessage = "data"\nat_ns = 1\n')
    lossy = as_json(capsys, "explore", "cancel", "--faults", str(file), "--fault", "cancel=1")[1]["explorations"][0]
    assert lossy["verdict"] == "holds"
    assert lossy["states"] > plain


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--graph", "ring"), "expected a graph among"),
        (("--graph", "join", "cancel"), "--graph: expected no scenario of the catalog beside it"),
        (("--requests", "2"), "--requests: expected --graph beside it"),
        (("--graph", "join", "--requests", "0"), "--requests: expected an integer from 1 to 64, found 0"),
        (("--fault", "kill"), "--fault: expected NAME=N"),
        (("--graph", "join", "--fault", "kil=1"), "expected faults among"),
    ],
)
def test_explore_refuses_a_world_that_makes_no_sense(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    code, _, err = called(capsys, "explore", *words)
    assert code == 2
    assert says in err
