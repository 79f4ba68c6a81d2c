"""The recording campaign: the runs that the published figures rest on, in order of value, each sealed before the next.

A campaign can be interrupted at any moment and started again: runs that are sealed are kept and skipped. With a time
budget it records what fits and says what it left out.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow.parquet as pq
import torch

from workbench.errors import UsageError
from workbench.testbed.run import RunPlan, record
from workbench.testbed.speech import SpeechModels
from workbench.trace import manifest
from workbench.units import S_NS
from workbench.workload.requests import SPEECH_MIX

# Offered load as a part of the measured saturation throughput.
LOADS = {"light": 0.4, "near": 0.8, "over": 1.3}
REPEATS = ("a", "b")  # identical requests at identical offsets: their difference is noise
PAIRS = 8
PAIR_LOAD = 0.6
MIN_REQUESTS = 24


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """Sizes of a campaign.

    Attributes
    ----------
    prefix : str
        First part of every label, e.g. "cpu".
    saturation_requests : int
        Requests of the burst that measures the saturation throughput.
    isolated_rounds : int
        How often the isolated run goes through the content pool.
    load_requests : int
        Requests of each load run.
    pair_s : float
        Length of each run of a probes on/off pair.
    budget_s : float
        Time for the whole campaign; infinite = all of it.
    """

    prefix: str
    saturation_requests: int = 48
    isolated_rounds: int = 1
    load_requests: int = 200
    pair_s: float = 60.0
    budget_s: float = math.inf

    def __post_init__(self) -> None:
        if self.budget_s <= 0 or self.pair_s <= 0 or min(self.saturation_requests, self.load_requests) < 2:
            raise UsageError("positive sizes and budget", f"{self}")


def saturation_per_s(run: Path) -> float:
    """Throughput of a sealed burst run: completed requests over the time from first arrival to last output."""
    outcome = pq.read_table(run / "outcome.parquet", columns=["status", "end_ns"]).to_pylist()
    scheduled = pq.read_table(run / "request.parquet", columns=["scheduled_ns"])["scheduled_ns"].to_pylist()
    ends = [row["end_ns"] for row in outcome if row["status"] == "ok"]
    makespan_ns: int = max(ends) - min(scheduled)
    return len(ends) * S_NS / makespan_ns


def plans(plan: CampaignPlan, rate_per_s: float) -> Iterator[RunPlan]:
    """The runs after the burst, in order of value, for a measured saturation throughput."""
    isolated = f"{plan.prefix}-isolated"
    pool = sum(c.contents for c in SPEECH_MIX.classes)
    yield RunPlan(isolated, pool * plan.isolated_rounds, None)
    for repeat in REPEATS:
        for name, load in LOADS.items():
            yield RunPlan(
                f"{plan.prefix}-{name}-{repeat}",
                plan.load_requests,
                round(load * rate_per_s, 3),
                arrival_seed=1,
                length_seed=2,
                content_seed=3,
                isolated_run=isolated,
                parent_run=None if repeat == REPEATS[0] else f"{plan.prefix}-{name}-{REPEATS[0]}",
            )
    rate = round(PAIR_LOAD * rate_per_s, 3)
    for pair in range(1, PAIRS + 1):
        order = ("on", "off") if pair % 2 else ("off", "on")  # a drift of the machine hits both sides alike
        for probes in order:
            yield RunPlan(
                f"{plan.prefix}-pair{pair}-{probes}",
                max(MIN_REQUESTS, round(rate * plan.pair_s)),
                rate,
                arrival_seed=100 + pair,
                length_seed=200 + pair,
                content_seed=300 + pair,
                probes=probes,
                isolated_run=isolated,
            )


def campaign(
    models: SpeechModels,
    plan: CampaignPlan,
    destination: Path,
    *,
    adjust: Callable[[RunPlan], RunPlan] = lambda run: run,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> list[Path]:
    """Record what is not recorded yet.

    Parameters
    ----------
    models : SpeechModels
        Loaded models.
    plan : CampaignPlan
        Sizes and budget.
    destination : Path
        Folder of sealed runs.
    adjust : callable
        Applied to every run before it is recorded, e.g. to keep the audio for grading.
    say : callable
        Receives lines of progress.

    Returns
    -------
    list of Path
        Sealed runs of this campaign, old and new, in order.
    """
    started_s = time.perf_counter()
    burst = RunPlan(
        f"{plan.prefix}-saturation", plan.saturation_requests, 1000.0, arrival_seed=1, length_seed=2, content_seed=3,
    )  # fmt: skip
    patient = tuple(replace(c, job_deadline_s=None) for c in burst.mix.classes)
    mix = replace(burst.mix, classes=patient, cancel_share=0.0, oversized_share=0.0)
    sealed = [_one(models, replace(burst, mix=mix), destination, adjust, say)]
    rate_per_s = saturation_per_s(sealed[0])
    say(f"saturation throughput {rate_per_s:.2f} requests/s")
    queue = list(plans(plan, rate_per_s))
    for i, run in enumerate(queue):
        if not (destination / run.label).exists():
            expected_s = run.requests / (min(run.rate_per_s, rate_per_s) if run.rate_per_s else rate_per_s / 2)
            spent_s = time.perf_counter() - started_s
            if spent_s + expected_s > plan.budget_s:
                say(f"budget of {plan.budget_s:.0f} s: left out {', '.join(r.label for r in queue[i:])}")
                break
            say(f"[{i + 1}/{len(queue)}] {run.label}: about {expected_s:.0f} s, {spent_s:.0f} s spent")
        sealed.append(_one(models, run, destination, adjust, say))
    return sealed


def _one(
    models: SpeechModels,
    run: RunPlan,
    destination: Path,
    adjust: Callable[[RunPlan], RunPlan],
    say: Callable[[str], None],
) -> Path:
    """Record a run, or find it recorded and intact."""
    if (destination / run.label).exists():
        manifest.verify(destination / run.label)
        return destination / run.label
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    run = adjust(run)
    audio = destination.parent / "audio" / f"{run.label}.npz" if run.keep_audio else None
    return record(models, run, destination, audio=audio, say=say)
