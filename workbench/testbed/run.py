"""One recorded run from plan to sealed folder: server, load generator, recorder, sampler, and what voids a run."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import multiprocessing
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import torch

from workbench.errors import CheckFailed, UsageError, WorkbenchError
from workbench.graph import CLIENT
from workbench.testbed.client import HOST, ClientPlan, main
from workbench.testbed.server import Server
from workbench.testbed.speech import SpeechModels
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.recording import read_segments
from workbench.trace.sampler import Sampler
from workbench.trace.seal import RunInfo, seal
from workbench.units import MS_NS, S_NS, format_ns
from workbench.workload.arrivals import poisson
from workbench.workload.requests import SPEECH_MIX, Mix, PlannedRequest, contents, plan

SERVER_PROC = 0
SCRATCH = Path("build/recording")
SALVAGED = Path("build/salvaged")
WARMUP_REQUESTS = 3  # first launches pay for allocation and thread start; they are not part of the run
MAX_SUBMIT_LAG_SHARE = 0.01  # of the median latency


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run before it happens.

    Attributes
    ----------
    label : str
        Name of the run and its folder.
    requests : int
        How many.
    rate_per_s : float or None
        Offered Poisson rate; None = one request at a time (the isolated run).
    arrival_seed, length_seed, content_seed : int
        Separate streams; equal seeds give the same requests at the same offsets.
    probes : {"on", "off"}
        Whether stage rows are recorded. Client rows always are.
    mix : Mix
        Classes, tenants, cancellations.
    isolated_run, parent_run : str or None
        Labels of related runs.
    drain_s : float
        How long open requests may take after the last arrival.
    flush_interval_s, sample_interval_s : float
        Intervals of the recorder's flusher and of the sampler. Both wake beside the stages and take the interpreter
        lock from them: flushes every 0.2 s and samples every 50 ms made the median request 7 % slower on two cores
        (eight pairs, 95 % interval 2 to 12 %, 2026-11-30).
    max_submit_lag_ms : float
        The run is void if the p99 of the generator's lag exceeds this and 1 % of the median latency: its load was then
        not the load that was planned.
    keep_audio : bool
        Write the PCM of every request to ``build/audio/<label>.npz`` for grading.
    """

    label: str
    requests: int
    rate_per_s: float | None
    arrival_seed: int = 0
    length_seed: int = 0
    content_seed: int = 0
    probes: str = "on"
    mix: Mix = field(default=SPEECH_MIX)
    isolated_run: str | None = None
    parent_run: str | None = None
    drain_s: float = 120.0
    flush_interval_s: float = 1.0
    sample_interval_s: float = 0.25
    max_submit_lag_ms: float = 5.0
    keep_audio: bool = False


def schedule(run: RunPlan) -> list[PlannedRequest]:
    """The requests of a run; the isolated run asks for every content of the pool once per round, without failures."""
    if run.rate_per_s is not None:
        offsets = poisson(run.requests, rate_per_s=run.rate_per_s, seed=run.arrival_seed)
        return plan(offsets, run.mix, length_seed=run.length_seed, content_seed=run.content_seed)
    pool = [(name, digits) for name, several in contents(run.mix, seed=0).items() for digits in several]
    tenant = run.mix.tenants[0]
    return [
        PlannedRequest(
            i, 0, pool[i % len(pool)][0], tenant.name, tenant.weight, pool[i % len(pool)][1],
            "digits:" + "".join(map(str, pool[i % len(pool)][1])), None, None, False,
        )
        for i in range(run.requests)
    ]  # fmt: skip


def record(
    models: SpeechModels,
    run: RunPlan,
    destination: Path,
    *,
    audio: Path | None = None,
    scratch: Path = SCRATCH,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> Path:
    """Record one run and seal it.

    Parameters
    ----------
    models : SpeechModels
        Loaded models; one run at a time may use them.
    run : RunPlan
        What to do.
    destination : Path
        Folder of runs; the sealed run becomes ``destination / run.label``.
    audio : Path or None
        Where to put the PCM of all requests (``.npz``, request number -> int16), if ``run.keep_audio``.
    scratch : Path
        Where segments lie while the run goes on. What an interrupted run left there is salvaged by the next attempt.
    say : callable
        Receives one line of progress now and then.

    Returns
    -------
    Path
        The sealed folder.

    Raises
    ------
    UsageError
        The folder exists already, or another recording is going on in `scratch`.
    CheckFailed
        The run is void: a worker or the generator died, or the generator could not keep its schedule. Nothing is kept.
    """
    target = Path(destination) / run.label
    if target.exists():
        raise UsageError("a new run", f"{target} exists", fix="Runs are immutable: choose another label.")
    torch.set_num_threads(1)  # one thread per stage; OpenMP teams would fight for the cores
    requests = schedule(run)
    segments = scratch / run.label
    with _alone(scratch):
        if segments.exists():
            _salvage(models, run, segments, say)
        segments.mkdir()
        _warm_up(models)
        try:
            _run(models, run, requests, segments, say)
            _refuse_void(segments, run, len(requests))
        except CheckFailed:
            shutil.rmtree(segments)
            raise
        if run.keep_audio and audio is not None:
            audio.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(segments / "audio.npz", audio)
        sealed = _seal(models, run, segments, target)
        shutil.rmtree(segments)
    return sealed


@contextlib.contextmanager
def _alone(scratch: Path) -> Iterator[None]:
    """Hold the recording lock: two recordings beside each other would measure each other, and share segment folders."""
    scratch.mkdir(parents=True, exist_ok=True)
    with (scratch / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise UsageError(
                "no other recording", "one that is going on", where=str(scratch), fix="Wait until it has ended."
            ) from err
        yield


def _seal(models: SpeechModels, run: RunPlan, segments: Path, target: Path) -> Path:
    return seal(
        segments,
        target,
        replace(_info(models, run), label=target.name),
        stages=models.stage_rows(),
        edges=models.edge_rows(),
        slo=[{"class": name, "metric": metric, "limit_value": limit} for name, metric, limit in SPEECH_SLO],
    )


def _salvage(models: SpeechModels, run: RunPlan, segments: Path, say: Callable[[str], None]) -> None:
    """Seal what an interrupted recording left, away from published runs, and say what was lost."""
    try:
        left = read_segments(segments)
        if left.taken:
            taken = {path.name for path in SALVAGED.glob(f"{run.label}-*")}
            name = next(f"{run.label}-{k}" for k in itertools.count(1) if f"{run.label}-{k}" not in taken)
            _seal(models, run, segments, SALVAGED / name)
            kept = left.taken - left.lost
            say(f"{run.label} was interrupted: {kept} rows kept as {SALVAGED / name}, {left.lost} lost")
    except WorkbenchError as err:
        say(f"{run.label} was interrupted and left nothing readable: {err}")
    shutil.rmtree(segments)


# Objectives of the testbed's classes; a choice of this project, not of any standard.
SPEECH_SLO: tuple[tuple[str, str, float], ...] = (
    ("short", "ttfa", 1.5 * S_NS),
    ("short", "jct", 4.0 * S_NS),
    ("long", "ttfa", 1.5 * S_NS),
    ("long", "jct", 10.0 * S_NS),
)


def _run(
    models: SpeechModels,
    run: RunPlan,
    requests: list[PlannedRequest],
    segments: Path,
    say: Callable[[str], None],
) -> None:
    stages = tuple(stage.name for stage in models.graph.stages)
    edges = tuple(edge.name for edge in models.graph.edges)
    client_plan = ClientPlan(
        planned=requests,
        sequential=run.rate_per_s is None,
        drain_s=run.drain_s,
        input_edge=edges.index(f"{CLIENT}>thinker"),
        output_edge=edges.index(f"code2wav>{CLIENT}"),
        stages=stages,
        edges=edges,
        spec=models.spec,
        probes=run.probes,
        flush_interval_s=run.flush_interval_s,
        keep_audio=run.keep_audio,
    )
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    generator = context.Process(target=main, args=(client_plan, theirs, str(segments)), name="client", daemon=True)
    generator.start()
    theirs.close()  # so that the death of the generator ends the stream here
    proc = replace(ProcInfo.here(SERVER_PROC, "server"), host=HOST)
    recorder = Recorder(
        segments, proc, stages=stages, edges=edges, probes=run.probes, flush_interval_s=run.flush_interval_s
    )
    server = Server(
        connection,
        input_edge=client_plan.input_edge,
        longest_digits=models.longest_digits,
    )
    workers = models.workers(server, recorder)
    started_s = time.perf_counter()
    try:
        with Sampler(recorder, interval_s=run.sample_interval_s) as sampler:
            server.start(workers, entry="thinker")
            for name, worker in workers.items():
                code = recorder.stage_code[name]
                sampler.add_gauge("queue_depth", worker.depth, stage=code, replica=0)
                sampler.watch_thread(stage=code, replica=0, thread=worker.native_id)
            server.serve()
    finally:
        recorder.close()
        connection.close()
        generator.join(30.0)
        if generator.is_alive():
            generator.terminate()
    if generator.exitcode != 0:
        raise CheckFailed("a load generator that ends by itself", f"exit code {generator.exitcode}", where=run.label)
    say(f"{run.label}: {len(requests)} requests in {time.perf_counter() - started_s:.0f} s")


def _warm_up(models: SpeechModels) -> None:
    """Run every model a few times without recording, so that first-use costs stay out of the run."""
    ids = models.grammar.prompt((1, 2))
    allowed = torch.tensor(models.grammar.ids, device=models.device)
    for _ in range(WARMUP_REQUESTS):
        models.thinker.prefill(0, ids, allowed)
        for _ in range(2):
            models.thinker.decode([0], [models.grammar.ids[0]], allowed)
        models.thinker.free(0)
        models.talker.start(0, models.phonemes.ids("one,"))
        codes, _ = models.talker.step([0])
        models.talker.free(0)
        models.code2wav.start(0)
        latent = models.codebooks.latent(codes[None].expand(1, models.limits.steady_frames, -1))
        models.code2wav.push([0], latent, [True])


def _refuse_void(segments: Path, run: RunPlan, planned: int) -> None:
    """Raise CheckFailed if the generator lagged behind its schedule, or rows of requests are missing."""
    tables = read_segments(segments).tables
    request, outcome = tables["request"], tables["outcome"]
    if (request.num_rows, outcome.num_rows) != (planned, planned):
        raise CheckFailed(
            f"{planned} requests with an outcome each",
            f"{request.num_rows} requests and {outcome.num_rows} outcomes",
            where=run.label,
            fix="The run is void and was not kept.",
        )
    scheduled_ns = dict(zip(request["request"].to_pylist(), request["scheduled_ns"].to_pylist(), strict=True))
    lag_ns = pc.subtract(request["arrival_ns"], request["scheduled_ns"]).to_numpy()
    ended = outcome.filter(pc.equal(outcome["status"], "ok"))
    latency_ns = [
        end_ns - scheduled_ns[number]
        for number, end_ns in zip(ended["request"].to_pylist(), ended["end_ns"].to_pylist(), strict=True)
    ]
    median_ns = float(np.median(latency_ns)) if latency_ns else 0.0
    p99_ns = int(np.quantile(lag_ns, 0.99))
    limit_ns = max(round(run.max_submit_lag_ms * MS_NS), round(MAX_SUBMIT_LAG_SHARE * median_ns))
    if p99_ns > limit_ns:
        raise CheckFailed(
            f"p99 submit lag of at most {format_ns(limit_ns)}",
            format_ns(p99_ns),
            where=run.label,
            fix="The run is void and was not kept: free the machine, or lower the rate.",
        )


def _info(models: SpeechModels, run: RunPlan) -> RunInfo:
    return RunInfo(
        label=run.label,
        source=f"testbed:{models.graph.name}",
        parent_run=run.parent_run,
        isolated_run=run.isolated_run,
        control_plan="static",
        config={
            "limits": dataclasses.asdict(models.limits),
            "mix": dataclasses.asdict(run.mix),
            "requests": run.requests,
            "drain_s": run.drain_s,
            "device": str(models.device),
            "dtype": "float32",
            "torch_threads": 1,
            "flush_interval_s": run.flush_interval_s,
            "sample_interval_s": run.sample_interval_s,
        },
        seeds={
            "arrival": run.arrival_seed,
            "length": run.length_seed,
            "content": run.content_seed,
            "sampling": None,
        },
        models=models.revisions,
        load_kind="open-loop" if run.rate_per_s is not None else "closed-loop",
        rate_per_s=run.rate_per_s,
    )
