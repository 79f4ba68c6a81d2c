"""The command ``workbench``: one verb per question, the same options everywhere, exit codes that a script can use.

Results go to standard output, progress and errors to standard error. With ``--json`` exactly one JSON object goes to
standard output, whatever happens. Imports stay light so that ``--help`` answers at once: verbs load what they need.

====  ==================================================================
code  meaning
====  ==================================================================
0     done, and what was checked holds
1     a check did not hold: a broken rule, a failed notebook, a void run
2     usage: an argument, a name or a path that cannot be used as given
3     something is missing: a package, a device, weights
4     data that does not match its manifest or the trace contract
70    a defect of the workbench
130   interrupted
138   a notebook's kernel died
141   the reader of the output went away
====  ==================================================================
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from workbench import __version__
from workbench.errors import MissingPrerequisite, UsageError, WorkbenchError

SCHEMA_VERSION = 1  # of the object that --json prints

DEFECT, INTERRUPTED, GONE = 70, 130, 141
# Verbs that keep what they finished and go on from there.
RESUMABLE = ("record", "figures", "smoke")

SETUP = "`make figures` installs what reading and drawing need, `make test` adds torch, `make weights` the weights."


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors of ours."""

    def error(self, message: str) -> NoReturn:
        """Raise UsageError instead of leaving the process."""
        fix = f"See `{self.prog} --help`."
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            choices = [choice.strip("' ") for choice in wrong[2].split(",")]
            if near := difflib.get_close_matches(wrong[1], choices, n=1):
                fix = f"Did you mean {near[0]}? {fix}"
        raise UsageError("valid arguments", message, where=self.prog, fix=fix)


class _Help(argparse.HelpFormatter):
    """Verbs and what they do on one line each."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=18, width=100)


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line. Options cannot be abbreviated."""
    about = "Record, profile and draw streaming stage-graph serving."
    top = _Parser(prog="workbench", description=about, allow_abbrev=False, formatter_class=_Help)
    top.add_argument("--version", action="version", version=f"workbench {__version__}")
    common = _Parser(add_help=False)
    common.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    common.add_argument("-v", "--verbose", action="store_true", help="show where an unexpected error came from")
    verbs = top.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, help_: str) -> argparse.ArgumentParser:
        about = f"{help_[0].upper()}{help_[1:]}."
        return verbs.add_parser(name, help=help_, description=about, parents=[common], allow_abbrev=False)

    _record(verb("record", "record the speech pipeline under load, resumable"))
    _validate(verb("validate", "judge traces: hashes, schema, rules, and what they can answer"))
    _profile(verb("profile", "say where the time of a run went"))
    _explore(verb("explore", "search small worlds for a state in which the protocol fails"))
    verb("coverage", "list the research agenda: what serves each entry, and what is open")
    _info(verb("info", "describe this installation, for bug reports"))
    _figures(verb("figures", "run the notebooks that changed and publish their figures"))
    _figures(verb("smoke", "run every notebook on a tiny input"))
    _notebooks(verb("notebooks", "check the committed form of the notebooks, or restore it"))
    return top


def _record(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the models run (default: cpu)")
    verb.add_argument("--budget", metavar="TIME", help="record what fits, e.g. 90s, 8m or 2h (default: everything)")
    verb.add_argument("--into", metavar="DIR", default="data/raw", help="folder of runs (default: data/raw)")
    verb.add_argument("--prefix", metavar="NAME", help="first part of every run's name (default: the device)")
    verb.add_argument(
        "--weights",
        choices=("auto", "pretrained", "full-twin", "twin"),
        default="auto",
        help="auto: the pretrained weights, or the small random-init twin where they are absent (default: auto)",
    )
    verb.add_argument(
        "--scale",
        choices=("full", "small"),
        default="full",
        help="small rehearses with a few requests on the twin (default: full)",
    )


def _validate(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("path", metavar="PATH", nargs="+", help="run folder, folder of runs, or store")
    verb.add_argument("--rows", metavar="N", type=int, default=5, help="rows to list per broken rule (default: 5)")


def _profile(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("path", metavar="RUN", help="run folder, or a folder of runs or store with --run")
    verb.add_argument("--run", metavar="LABEL", help="which run, where RUN holds several")
    verb.add_argument(
        "--by", choices=("ttfa", "ttfo", "ttft", "jct"), help="what the worst requests are worst by (default: ttfa)"
    )
    verb.add_argument("--worst", metavar="N", type=int, default=10, help="how many of them (default: 10)")
    verb.add_argument("--html", metavar="FILE", help="also write the profile as one self-contained page")


def _explore(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("scenario", metavar="SCENARIO", nargs="*", help="name in the catalog (default: all small ones)")
    verb.add_argument("--list", action="store_true", help="name the scenarios and the mutants")
    verb.add_argument(
        "--mutant", metavar="NAME", action="append", default=[], help="break the protocol first, as this mutant does"
    )
    verb.add_argument("--mutants", action="store_true", help="hunt every mutant and print the table")
    verb.add_argument(
        "--edit",
        nargs=3,
        metavar=("MODULE", "OLD", "NEW"),
        action="append",
        default=[],
        help="break it your way: put NEW for OLD in the source of MODULE; repeatable",
    )
    verb.add_argument("--limit", metavar="N", type=int, help="give up beyond N states (default: 10000000)")
    verb.add_argument("--interpreted", action="store_true", help="do not compile the larger worlds either")
    verb.add_argument(
        "--graph", metavar="GRAPH", help="a world of your own: chain-N, fork-join, join, split, whole or a preset"
    )
    verb.add_argument("--requests", metavar="N", type=int, default=1, help="its requests (default: 1)")
    verb.add_argument("--chunks", metavar="N", type=int, default=2, help="its chunks per stream (default: 2)")
    verb.add_argument("--window", metavar="N", type=int, default=1, help="its window in chunks (default: 1)")
    verb.add_argument(
        "--spare", metavar="N", type=int, default=0, help="room beyond the floors, in chunks (default: 0)"
    )
    verb.add_argument("--coarse", action="store_true", help="its credit, starts and answers travel at once")
    verb.add_argument(
        "--fault",
        metavar="NAME=N",
        action="append",
        default=[],
        help="let a fault happen up to N times on each path, in the place of those of the scenario; repeatable",
    )
    verb.add_argument("--faults", metavar="FILE", help="take them from a fault plan, each once at most")


def _info(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--data", metavar="DIR", default="data/raw", help="folder of runs to list (default: data/raw)")


def _figures(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("notebook", metavar="NOTEBOOK", nargs="*", help="name or first digits, e.g. 01 (default: all)")
    verb.add_argument("--force", action="store_true", help="run also what has not changed")
    verb.add_argument("--jobs", metavar="N", type=int, help="notebooks at once (default: usable cores)")
    verb.add_argument(
        "-p", "--parameter", metavar="NAME=VALUE", action="append", default=[], help="set a parameter; repeatable"
    )


def _notebooks(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("notebook", metavar="NOTEBOOK", nargs="*", help="file (default: all of notebooks/)")
    what = verb.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="say what is out of form (default)")
    what.add_argument("--normalize", action="store_true", help="rewrite the files that are out of form")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Read the arguments.

    Raises
    ------
    UsageError
        They cannot be used; names what was found and what may have been meant.
    SystemExit
        ``--help`` or ``--version`` was asked for and has been printed.
    """
    top = parser()
    arguments, unknown = top.parse_known_args(words)
    if unknown:
        verb = _verbs(top)[arguments.verb]
        options = [option for action in verb._actions for option in action.option_strings]
        near = difflib.get_close_matches(unknown[0], options, n=1)
        guess = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"the arguments of {verb.prog}", repr(unknown[0]), where=verb.prog, fix=f"{guess}See `{verb.prog} --help`."
        )
    return arguments


def _verbs(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (action,) = (action for action in top._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments without the program's name; those of the process by default.

    Returns
    -------
    int
        Exit code; see the table above.
    """
    try:
        with _interrupts() as pressed:
            return _answer(list(sys.argv[1:] if argv is None else argv), pressed)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GONE
    except OSError as error:  # standard output itself cannot be written, so there is nowhere else to say it
        print(f"error: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UsageError.exit_code


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """Note when Ctrl-C is pressed; yields a function that says whether it was.

    A compiler at work hears of it in a call back into Python, where the exception is swallowed: the verb gets another
    error instead, or none. Such an exception is not printed but raised again a moment later.
    """
    count = 0
    timers: list[threading.Timer] = []

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        signal.default_int_handler(number, frame)

    def swallowed(what: sys.UnraisableHookArgs) -> None:
        if isinstance(what.exc_value, KeyboardInterrupt):
            timers.append(threading.Timer(0.1, signal.raise_signal, (signal.SIGINT,)))
            timers[-1].start()
        else:
            hook(what)

    hook, in_main = sys.unraisablehook, threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False  # whoever calls has a handler of their own
        return
    signal.signal(signal.SIGINT, press)
    sys.unraisablehook = swallowed
    try:
        yield lambda: count > 0
    finally:
        for timer in timers:
            timer.cancel()
        sys.unraisablehook = hook
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _answer(words: list[str], pressed: Callable[[], bool]) -> int:
    """Run one command line and print its answer or its error."""
    wants_json, is_verbose = "--json" in words, "-v" in words or "--verbose" in words
    verb = next((word for word in words if not word.startswith("-")), "")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        arguments = parse(words)
        try:
            code, text, data = _run(arguments)
        except ModuleNotFoundError as error:
            raise _missing(error) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _unusable(error) from error
        _print(json.dumps(_object(verb, code, data), ensure_ascii=False, allow_nan=False) if wants_json else text)
        return code
    except WorkbenchError as error:
        return _complain(verb, error.exit_code, str(error), error.as_dict(), wants_json)
    except KeyboardInterrupt:
        return _interrupted(verb, wants_json)
    except OSError:
        raise
    except Exception as error:
        if pressed():
            return _interrupted(verb, wants_json)
        if is_verbose:
            raise
        said = f"a defect of the workbench: {type(error).__name__}: {error}. Run it again with -v to see where."
        return _complain(verb, DEFECT, said, {"error": type(error).__name__, "found": str(error)}, wants_json)


def _run(arguments: argparse.Namespace) -> tuple[int, str, dict[str, Any]]:
    from workbench import verbs

    code, text, data = getattr(verbs, arguments.verb)(arguments)
    return int(code), str(text), dict(data)


def _interrupted(verb: str, wants_json: bool) -> int:
    kept = "; what was finished is kept, and the same command goes on from there" if verb in RESUMABLE else ""
    said = f"interrupted{kept}"
    return _complain(verb, INTERRUPTED, said, {"error": "KeyboardInterrupt", "found": said}, wants_json)


def _unusable(error: OSError) -> UsageError:
    """What the system says of a file; one that was open already has no name any more."""
    where = "" if error.filename is None else os.fsdecode(error.filename)[:300]
    return UsageError("a file that can be read and written", error.strerror or str(error), where=where)


def _missing(error: ModuleNotFoundError) -> WorkbenchError | ModuleNotFoundError:
    """A package that is not installed, unless it is a module of ours."""
    name = (error.name or "").partition(".")[0]
    if name in ("", "workbench"):
        return error
    return MissingPrerequisite(f"the package {name}", "none", where="this Python", fix=SETUP)


def _object(verb: str, code: int, data: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": SCHEMA_VERSION, "verb": verb, "exit_code": code, **data}


def _complain(verb: str, code: int, text: str, error: dict[str, Any], wants_json: bool) -> int:
    if wants_json:
        _print(json.dumps(_object(verb, code, {"error": error}), ensure_ascii=False))
    else:
        from workbench.markup import plain

        print(f"error: {plain(text)}", file=sys.stderr)
    return code


def _print(text: str) -> None:
    print(text)
    sys.stdout.flush()
