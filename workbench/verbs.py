"""What each verb of the command line does: arguments in; exit code, text and data out.

Only the standard library is imported here; each verb imports what it needs, so that recording works on a machine that
has torch, numpy and pyarrow alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from workbench.errors import DataIntegrityError, MissingPrerequisite, UsageError

if TYPE_CHECKING:
    from workbench.notebook_job import Tier
    from workbench.testbed.run import RunPlan
    from workbench.testbed.speech import SpeechModels
    from workbench.verify.scenario import Scenario

# exit code, text for a reader, data for --json
Result = tuple[int, str, dict[str, Any]]

ROOT = Path(__file__).resolve().parent.parent
# What a world of one's own is unless its options say otherwise.
OWN_WORLD = {"requests": 1, "chunks": 2, "window": 1, "spare": 0, "coarse": False}
UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600}


def say(line: str) -> None:
    """A line of progress."""
    print(line, file=sys.stderr, flush=True)


def record(arguments: argparse.Namespace) -> Result:
    """Record a campaign, or go on with one."""
    budget_s = math.inf if arguments.budget is None else seconds(arguments.budget)
    prefix = _prefix(arguments.device if arguments.prefix is None else arguments.prefix)
    destination = Path(arguments.into)
    if destination.exists() and not destination.is_dir():
        raise UsageError("a folder", "a file", where=f"--into {destination}")
    try:
        import torch
    except ModuleNotFoundError as error:
        raise MissingPrerequisite(
            "the package torch, which runs the models",
            "none",
            where="this Python",
            fix="`make test` installs it, `make weights` the pretrained weights.",
        ) from error
    from workbench.testbed import campaign as campaigns

    if arguments.device == "cuda" and not torch.cuda.is_available():
        raise MissingPrerequisite(
            "a CUDA device", "none that torch sees", where="--device cuda", fix="Use --device cpu."
        )
    small = arguments.scale == "small"
    if small and arguments.weights == "pretrained":
        raise UsageError("--weights auto or twin", "pretrained", where="--scale small", fix="It rehearses on the twin.")
    models, kind, fallback = _models("twin" if small else arguments.weights, torch.device(arguments.device))
    plan = campaigns.CampaignPlan(prefix, budget_s=budget_s)
    if small:
        plan = dataclasses.replace(plan, saturation_requests=6, load_requests=8, pair_s=0.1)
    labels = [f"{prefix}-saturation", *(run.label for run in campaigns.plans(plan, 1.0))]
    _refuse_mixture(destination, labels, models.revisions)
    before = {label for label in labels if (destination / label).exists()}
    started_s = time.monotonic()
    if small:
        sealed = campaigns.campaign(models, plan, destination, adjust=_lenient, say=say)
    else:
        sealed = campaigns.campaign(models, plan, destination, say=say)
    runs = [{"run": folder.name, "path": str(folder), **_outcomes(folder)} for folder in sealed]
    left_out = [label for label in labels if label not in {folder.name for folder in sealed}]
    lines = [f"{run['run']:<24} {run['requests']:>5} requests, {run['ok']} ok" for run in runs]
    lines.append(f"{len(runs)} runs of {len(labels)} in {destination}, weights: {kind}")
    if len(before) == len(labels):
        lines.append("Nothing was left to record. --prefix NAME begins another campaign.")
    if left_out:
        lines.append(f"Left out for now: {', '.join(left_out)}. The same command goes on from here.")
    data = {
        "runs": runs,
        "recorded": [folder.name for folder in sealed if folder.name not in before],
        "left_out": left_out,
        "weights": kind,
        "fallback": fallback,
        "models": dict(models.revisions),
        "seconds": round(time.monotonic() - started_s, 1),
    }
    return 0, "\n".join(lines), data


def seconds(text: str) -> float:
    """Seconds of a time such as 90, 90s, 8m or 2h.

    >>> seconds("8m"), seconds("1.5h")
    (480.0, 5400.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise UsageError("a time such as 90s, 8m or 2h", repr(text), where="--budget")
    return float(found[1]) * UNITS_S[found[2]]


def _prefix(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise UsageError("a name of letters, digits, '.', '_' and '-'", repr(name), where="--prefix")
    return name


def _models(wanted: str, device: Any) -> tuple[SpeechModels, str, str | None]:
    """The models, what their weights are, and why they are not the pretrained ones if those were wanted."""
    from workbench.testbed import speech, weights

    if wanted in ("full-twin", "twin"):
        return speech.load(cast("speech.WeightsKind", wanted), limits=speech.Limits(), device=device), wanted, None
    absent = [role for role in ("thinker", "voice") if not weights.available()[role]]
    try:
        if wanted == "pretrained" or not absent:
            return speech.load("pretrained", limits=speech.Limits(), device=device), "pretrained", None
        reason = f"the weights of {' and '.join(absent)} are not installed"
    except MissingPrerequisite as error:
        if wanted == "pretrained":
            raise
        reason = str(error)
    say(f"NO PRETRAINED WEIGHTS: {reason}.")
    say("Recording the random-init twin instead: smaller models, other times, noise for audio. Each run says so.")
    say("`make weights` installs the pretrained weights.")
    return speech.load("twin", limits=speech.Limits(), device=device), "twin", reason


def _refuse_mixture(destination: Path, labels: Sequence[str], models: Mapping[str, str]) -> None:
    """Raise UsageError if sealed runs of this campaign were recorded with other models: they would not compare."""
    from workbench.trace import manifest

    for label in labels:
        if (destination / label).exists():
            theirs = manifest.load(destination / label).get("models")
            if theirs != models:
                raise UsageError(
                    f"runs of these models ({', '.join(models.values())})",
                    f"{label}, recorded with {theirs}",
                    where=str(destination),
                    fix="Choose another --prefix or --into: one campaign has one set of models.",
                )


def _lenient(run: RunPlan) -> RunPlan:
    """A rehearsal is not published, so that a busy machine does not void it."""
    return dataclasses.replace(run, max_submit_lag_ms=10_000.0, drain_s=30.0)


def _outcomes(folder: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    counted = Counter(pq.read_table(folder / "outcome.parquet", columns=["status"])["status"].to_pylist())
    return {"requests": sum(counted.values()), "ok": counted["ok"], "outcomes": dict(sorted(counted.items()))}


def validate(arguments: argparse.Namespace) -> Result:
    """Judge every run that the paths name; go on after one that cannot be read."""
    from workbench.markup import plain
    from workbench.trace.validate import validate as judge

    if arguments.rows < 0:
        raise UsageError("0 rows or more", str(arguments.rows), where="--rows")
    targets = [target for path in arguments.path for target in _targets(Path(path))]
    texts, reports, codes = [], [], [0]
    for number, target in enumerate(targets, start=1):
        if len(targets) > 1:
            say(f"[{number}/{len(targets)}] {target}")
        try:
            report = judge(target, rows=max(arguments.rows, 1))
        except DataIntegrityError as error:
            codes.append(error.exit_code)
            texts.append(f"{target}: damaged. {error}")
            reports.append({"path": str(target), "valid": False, "error": error.as_dict()})
            continue
        codes.append(0 if report.is_valid else 1)
        texts.append(report.text(shown_rows=arguments.rows))
        reports.append({"path": str(target), **report.as_dict()})
    valid = sum(1 for report in reports if report["valid"])
    if len(targets) > 1:
        texts.append(f"{valid} of {len(targets)} are valid.")
    text = "\n".join(plain(line) for part in texts for line in part.split("\n"))
    return max(codes), text, {"valid": valid == len(targets), "reports": reports}


def _targets(path: Path) -> list[Path]:
    """What one argument of `validate` names: a store, a run folder, or the runs below a folder."""
    from workbench.lab import source
    from workbench.trace import manifest

    if path.is_dir() and not (path / manifest.NAME).exists() and (runs := source.run_folders(path)):
        return runs
    if not path.exists():
        raise UsageError("a run folder, a folder of runs or a store", "no such path", where=str(path))
    return [path]


def profile(arguments: argparse.Namespace) -> Result:
    """Say where the time of a run went, and write it as a page if asked to."""
    from workbench import report
    from workbench.lab import open as open_run
    from workbench.profile import profile as compute

    found = compute(open_run(arguments.path, arguments.run), by=arguments.by, worst=arguments.worst)
    if arguments.html is not None:
        report.write(found, Path(arguments.html))
        say(f"wrote {arguments.html}")
    if arguments.json:
        return 0, "", {**found.as_dict(), "html": arguments.html}
    return 0, report.text(found), {}


def coverage(arguments: argparse.Namespace) -> Result:
    """List the agenda ledger of the checkout that this package is in."""
    del arguments
    from workbench import agenda

    found = agenda.coverage(ROOT)
    return 0, found.text(), found.as_dict()


def info(arguments: argparse.Namespace) -> Result:
    """What a bug report needs: versions, machine, weights, tools and recorded runs."""
    from workbench import __version__, provenance
    from workbench.testbed import weights
    from workbench.trace import environment

    data = {
        "workbench": __version__,
        "commit": environment.commit(),
        "hardware": environment.hardware(),
        "versions": {**environment.versions(), **provenance.versions()},
        "weights": dict(weights.available()),
        "tools": {name: shutil.which(name) is not None for name in ("chromium", "git", "latexmk", "make")},
        "runs": _listed(Path(arguments.data)),
    }
    return 0, _info_text(data, arguments.data), data


def _listed(folder: Path) -> list[dict[str, Any]]:
    """Runs in a folder as their manifests describe them; contents are not read."""
    from workbench.trace import manifest

    runs: list[dict[str, Any]] = []
    for run in sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}")):
        try:
            content = manifest.load(run)
            files = content["files"]
            size = sum(int(entry["bytes"]) for entry in files.values())
            requests = files.get("request.parquet", {}).get("rows")
            runs.append({"run": run.name, "requests": requests, "bytes": size, "commit": content.get("commit")})
        except (DataIntegrityError, TypeError, ValueError) as error:
            runs.append({"run": run.name, "problem": str(error)})
    return runs


def _info_text(data: Mapping[str, Any], folder: str) -> str:
    from workbench.markup import plain
    from workbench.units import format_bytes

    hardware = data["hardware"]
    versions = data["versions"]
    accelerators = [f"{device['name']}, {format_bytes(device['memory_bytes'])}" for device in hardware["accelerators"]]
    lines = [
        f"workbench {data['workbench']}, commit {data['commit'] or 'not known'}",
        f"python {versions['python']}, {hardware['system']}, {hardware['machine']}",
        f"{hardware['cpu']}, {hardware['cores']} cores, {format_bytes(hardware['memory_bytes'])}",
        f"accelerators: {'; '.join(accelerators) or 'none'}",
        "packages: " + ", ".join(f"{name} {version}" for name, version in sorted(versions.items()) if name != "python"),
        "weights: " + ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in data["weights"].items()),
        "tools: " + ", ".join(f"{name} {'yes' if there else 'no'}" for name, there in data["tools"].items()),
        f"runs in {folder}: {len(data['runs'])}",
    ]
    for run in data["runs"]:
        what = run.get("problem") or f"{run['requests']} requests, {format_bytes(run['bytes'])}"
        lines.append(f"  {run['run']}: {what}")
    return "\n".join(plain(line) for line in lines)


def figures(arguments: argparse.Namespace) -> Result:
    """Run the notebooks that changed and publish their figures."""
    return _notebooks_run(arguments, "full")


def smoke(arguments: argparse.Namespace) -> Result:
    """Run every notebook on a tiny input."""
    return _notebooks_run(arguments, "smoke")


def _notebooks_run(arguments: argparse.Namespace, tier: Tier) -> Result:
    from workbench import notebook
    from workbench.notebook_job import Place

    if arguments.jobs is not None and arguments.jobs < 1:
        raise UsageError("at least 1 notebook at once", str(arguments.jobs), where="--jobs")
    parameters = dict(_parameter(text) for text in arguments.parameter)
    results = notebook.run_notebooks(
        arguments.notebook or "all",
        parameters,
        tier=tier,
        jobs=arguments.jobs,
        force=arguments.force,
        root=ROOT,
        progress=say,
    )
    place = Place.of(ROOT, tier, None)
    states = Counter(result.status for result in results)
    made = sum(len(result.figures) for result in results)
    counted = ", ".join(f"{count} {state}" for state, count in sorted(states.items())) or "none"
    lines = [
        f"{result.name} {result.status}: {result.message} See {result.notebook}" for result in results if result.message
    ]
    lines.append(f"{len(results)} notebooks ({counted}); {made} figure files in {place.figures.relative_to(ROOT)}/")
    rows = [
        {
            "name": result.name,
            "status": result.status,
            "seconds": result.seconds,
            "peak_bytes": result.peak_bytes,
            "notebook": str(result.notebook),
            "figures": list(result.figures),
            "message": result.message,
        }
        for result in results
    ]
    data = {"tier": tier, "notebooks": rows, "figures_dir": str(place.figures)}
    return notebook.exit_code(results), "\n".join(lines), data


def _parameter(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError("NAME=VALUE", repr(text), where="-p", fix="For example: -p seed=3")
    return name, value


def notebooks(arguments: argparse.Namespace) -> Result:
    """Say which notebooks are out of their committed form, or bring them into it."""
    from workbench import notebook_form

    named = [Path(name) for name in arguments.notebook]
    paths = named or sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path in paths:
        notebook_form.read(path)  # a file that is none stops the verb before any other is rewritten
    if arguments.normalize:
        changed = [str(path) for path in paths if notebook_form.normalize(path)]
        lines = [f"rewrote {path}" for path in changed] or [f"{len(paths)} notebooks were in form"]
        return 0, "\n".join(lines), {"changed": changed, "notebooks": len(paths)}
    problems = {str(path): found for path in paths if (found := notebook_form.problems(path))}
    lines = [f"{path}: {problem}" for path, found in problems.items() for problem in found]
    if problems:
        lines.append("`workbench notebooks --normalize` repairs outputs, ids and metadata.")
    lines = lines or [f"{len(paths)} notebooks are in form"]
    return (1 if problems else 0), "\n".join(lines), {"problems": problems, "notebooks": len(paths)}


def explore(arguments: argparse.Namespace) -> Result:
    """Explore small worlds around the protocol machine, as it is or changed."""
    from workbench.verify import command

    alone = {"--list": arguments.list, "--mutants": arguments.mutants}
    plain = {**OWN_WORLD, **dict.fromkeys(("limit", "graph", "faults")), "interpreted": False}
    others = [bool(getattr(arguments, name)) for name in ("scenario", "mutant", "edit", "fault")]
    others += [getattr(arguments, name) != value for name, value in plain.items()]
    for option, given in alone.items():
        if given and (any(others) or all(alone.values())):
            raise UsageError("nothing else to explore beside it", "more", where=option)
    if arguments.list:
        return command.listing()
    if arguments.mutants:
        return command.hunt_all()
    if len(arguments.mutant) > 1:
        fix = "More changes go with --edit."
        raise UsageError("one mutant", ", ".join(map(repr, arguments.mutant)), where="--mutant", fix=fix)
    world, faults = _own_world(arguments)
    order = command.Order(
        arguments.scenario,
        arguments.mutant[0] if arguments.mutant else None,
        arguments.edit,
        command.LIMIT_STATES if arguments.limit is None else arguments.limit,
        interpreted=arguments.interpreted,
        world=world,
        faults=faults,
    )
    return command.run(order, say)


def _own_world(arguments: argparse.Namespace) -> tuple[Scenario | None, dict[str, int] | None]:
    """The world that ``--graph`` asks for and the budgets of ``--fault`` and ``--faults``; None for each not given."""
    from workbench.control.ranges import shown, within
    from workbench.verify.scenario import budgets, graph_named, own_world
    from workbench.workload.fault_file import load

    faults: dict[str, int] | None = None
    if arguments.faults is not None:
        faults = budgets(load(Path(arguments.faults)))
    for given in arguments.fault:
        asked = re.fullmatch(r"([^=]+)=([0-9]{1,9})", given)
        if not asked:
            raise UsageError("NAME=N with a number N, such as kill=1", shown(given), where="--fault")
        faults = {**(faults or {}), asked[1]: int(asked[2])}
    sized = {name: getattr(arguments, name) for name in OWN_WORLD}
    if arguments.graph is None:
        if changed := [f"--{name}" for name, value in sized.items() if value != OWN_WORLD[name]]:
            raise UsageError("--graph beside it", "none", where=changed[0])
        return None, faults
    if arguments.scenario:
        raise UsageError("no scenario of the catalog beside it", repr(arguments.scenario[0]), where="--graph")
    for name in ("requests", "chunks", "window", "spare"):
        within(sized[name], 0 if name == "spare" else 1, 64, f"--{name}")
    return own_world(graph_named(arguments.graph), **sized, faults=faults), faults
