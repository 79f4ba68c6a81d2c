"""States per second of the explorer, compiled and plain, and of Spin on the same edge; steps per second of the walker.

Run from the top folder: python -m benchmarks.bench_explorer. Times are processor seconds of one thread, compilation
apart. Spin's lines appear if `spin` and `gcc` are on the path (Debian: apt-get install spin gcc); the edge is then
`benchmarks/edge.pml`, searched in full without partial-order reduction, as the explorer does, but for safety only.
Spin must count exactly as many states as the explorer.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numba

from tests.verify import edge_world as edge
from workbench.twin import Edit
from workbench.verify import search
from workbench.verify.explorer import explore
from workbench.verify.outcome import Exploration
from workbench.verify.walker import walk

WORLD = "tests.verify.edge_world"
SMALL = {"k": 5, "w": 3, "loss": 2, "dup": 2, "kill": 1, "cancel": 1}
LARGE = {"k": 6, "w": 3, "loss": 3, "dup": 2, "kill": 2, "cancel": 1}


def report(what: str, states: int, seconds: float, note: str = "") -> float:
    rate = states / seconds
    print(f"{what:<44} {states:>10,} in {seconds:7.3f} s  {rate:>12,.0f} /s  {note}")
    return rate


def explored(what: str, variant: dict[str, int], **options) -> tuple[float, Exploration]:
    g = edge.config(**variant)
    found = explore(WORLD, g, edge.initial(g), **options)
    assert found.verdict == "holds", found
    note = f"{found.bytes_per_state:.0f} B/state" if found.bytes_per_state else ""
    return report(what, found.states, found.cpu_seconds, note), found


def embedded(variant: dict[str, int]) -> float:
    """The search with the rules compiled into it instead of called through pointers."""
    kept = search.compiled_advance
    loop = numba.njit(nogil=True)(search.advance.py_func)
    search.compiled_advance = lambda: loop
    try:
        began = time.perf_counter()
        explored("compiled, rules in the loop, first call", variant)
        print(f"{'':<44} {'':>10}    {time.perf_counter() - began:7.3f} s with compiling, for each world or mutant")
        return explored("compiled, rules in the loop", variant)[0]
    finally:
        search.compiled_advance = kept


def spin(variant: dict[str, int], states: int) -> float | None:
    """States per second of Spin, which must count as many; None where it is missing."""
    absent = [tool for tool in ("spin", "gcc") if not shutil.which(tool)]
    if absent:
        print(f"{'spin':<44} absent: {' and '.join(absent)} not on the path")
        return None
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(Path(__file__).with_name("edge.pml"), folder)
        sizes = [f"-D{name.upper()}={value}" for name, value in variant.items() if name != "cancel"]
        subprocess.run(["spin", *sizes, "-a", "edge.pml"], cwd=folder, check=True)
        compile_it = ["gcc", "-O2", "-DSAFETY", "-DNOREDUCE", "-DMEMLIM=8000", "-o", "pan", "pan.c"]
        subprocess.run(compile_it, cwd=folder, check=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        text = subprocess.run(["./pan", "-m300000"], cwd=folder, check=True, capture_output=True, text=True).stdout
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    found = int(re.search(r"(\d+) states, stored", text)[1])
    assert "errors: 0" in text, text
    assert found == states, (found, states)
    memory = float(re.search(r"([\d.]+)\s+total actual memory", text)[1])
    return report("spin (safety only)", found, seconds, f"{memory * 2**20 / found:.0f} B/state")


def main() -> None:
    g = edge.config(k=2)
    warm = explore(WORLD, g, edge.initial(g))
    print(f"compile or load machine code {warm.compile_seconds:.2f} s")
    mutant = Edit(WORLD, "m[LIMIT] -= 1", "m[LIMIT] -= 0")
    compiling = explore(WORLD, g, edge.initial(g), edits=[mutant]).compile_seconds
    print(f"compile a mutant of the world {compiling:.2f} s\n")
    plain, small = explored("plain Python", SMALL, compiled=False)
    fast, large = explored("compiled", LARGE)
    explored("compiled, safety only", LARGE, liveness=False)
    inner = embedded(LARGE)
    spin(SMALL, small.states)
    other = spin(LARGE, large.states)
    ratio = f" : {other / plain:.1f} (spin, safety only)" if other else ""
    print(f"\nratio plain 1 : compiled {fast / plain:.1f} : in the loop {inner / plain:.1f}{ratio}\n")
    g = edge.config(**LARGE)
    for compiled, steps in ((False, 200_000), (True, 10_000_000)):
        found = walk(WORLD, g, edge.initial(g), steps=steps, compiled=compiled)
        report(f"walker, {'compiled' if compiled else 'plain'} (steps)", found.steps, found.seconds)


if __name__ == "__main__":
    main()
