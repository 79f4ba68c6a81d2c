"""The speech graph end to end on its random-init twin: real threads, real sockets, real audio, sealed traces."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from workbench.errors import CheckFailed, UsageError
from workbench.testbed import run as testbed_run
from workbench.testbed.run import RunPlan, record, schedule
from workbench.testbed.server import Server
from workbench.testbed.speech import Limits, SpeechModels, load
from workbench.testbed.wire import Submit
from workbench.trace import manifest
from workbench.workload.requests import OVERSIZED_DIGITS, Mix, RequestClass, Tenant

CALM = Mix(
    classes=(
        RequestClass("short", 0.6, (1, 3), 6, job_deadline_s=60.0),
        RequestClass("long", 0.4, (6, 8), 6, job_deadline_s=60.0),
    ),
    tenants=(Tenant("a", 2.0, 0.5), Tenant("b", 1.0, 0.5)),
)
# The generator's lag is judged where latencies are published; a shared test machine may be late.
LENIENT_MS = 10_000.0


@pytest.fixture(scope="module")
def models() -> SpeechModels:
    return load("twin", limits=Limits(thinker=4, talker=4, vocoder_streams=8), device=torch.device("cpu"), seed=1)


def plan_of(label: str, requests: int, rate_per_s: float | None, **changes: Any) -> RunPlan:
    return replace(RunPlan(label, requests, rate_per_s, mix=CALM, max_submit_lag_ms=LENIENT_MS), **changes)


SCRATCH = Path(tempfile.mkdtemp(prefix="workbench-test-"))


def silent(line: str) -> None:
    del line


QUIET: dict[str, Any] = {"scratch": SCRATCH, "say": silent}


@pytest.fixture(scope="module")
def calm(models: SpeechModels, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    audio = folder / "calm.npz"
    return record(models, plan_of("calm", 30, 60.0, keep_audio=True), folder, audio=audio, **QUIET), audio


def test_every_request_ends_well_and_every_stream_is_whole(calm: tuple[Path, Path]) -> None:
    run, _ = calm
    manifest.verify(run)
    outcome = pl.read_parquet(run / "outcome.parquet")
    assert outcome["status"].to_list() == ["ok"] * 30
    request = pl.read_parquet(run / "request.parquet")
    assert sorted(outcome["request"]) == sorted(request["request"]) == list(range(30))
    audio = pl.read_parquet(run / "chunk.parquet").filter(pl.col("edge") == "code2wav>client").sort("request", "seq")
    for _, stream in audio.group_by("request", maintain_order=True):
        starts, samples = stream["sample_start"].to_list(), stream["samples"].to_list()
        assert starts == [sum(samples[:i]) for i in range(len(samples))]
        assert stream["final"].to_list() == [False] * (len(samples) - 1) + [True]


def test_concurrency_changes_no_sample(calm: tuple[Path, Path], models: SpeechModels, tmp_path: Path) -> None:
    """State isolation: what a request says does not depend on its neighbors in the batch."""
    run, audio = calm
    alone = tmp_path / "alone.npz"
    isolated = record(models, plan_of("alone", 12, None, keep_audio=True), tmp_path, audio=alone, **QUIET)
    content = dict(pl.read_parquet(isolated / "request.parquet").select("request", "content").iter_rows())
    reference = {content[int(name)]: samples for name, samples in np.load(alone).items()}
    compared = 0
    for r, c in pl.read_parquet(run / "request.parquet").select("request", "content").iter_rows():
        got = np.load(audio)[str(r)]
        assert len(got) == len(reference[c]), f"request {r} ({c})"
        assert np.abs(got.astype(np.int32) - reference[c]).max() <= 1, f"request {r} ({c})"
        compared += 1
    assert compared == 30
    members = pl.read_parquet(run / "batch.parquet")["members"].max()
    assert isinstance(members, int)
    assert members > 1, "the run never batched, so it proved nothing"


def test_edges_stream(calm: tuple[Path, Path]) -> None:
    """A consumer has its first chunk before the producer ends: certain where the producer's own thread hands over.

    When another thread gets to run is the system's choice; the recordings of the real models show the whole chain.
    """
    run, _ = calm
    long_requests = pl.read_parquet(run / "request.parquet").filter(pl.col("class") == "long").select("request")
    span = pl.read_parquet(run / "span.parquet").filter(pl.col("kind") == "service")
    last = span.group_by("request", "stage").agg(pl.max("end_ns"))
    first = pl.read_parquet(run / "chunk.parquet").filter(pl.col("seq") == 0).join(long_requests, on="request")
    for edge, producer in (("thinker>phonemizer", "thinker"), ("talker>code2wav", "talker")):
        arrivals = first.filter(pl.col("edge") == edge)
        ended = arrivals.join(last.filter(pl.col("stage") == producer), on="request")
        assert len(ended) == len(long_requests) > 0
        assert (ended["received_ns"] < ended["end_ns"]).all(), edge


def test_members_of_a_launch_share_its_interval_and_waits_end_at_their_cause(calm: tuple[Path, Path]) -> None:
    span = pl.read_parquet(calm[0] / "span.parquet")
    batch = pl.read_parquet(calm[0] / "batch.parquet")
    service = span.filter(pl.col("kind") == "service")
    joined = service.join(batch, on="batch", how="left")
    assert joined["members"].null_count() == 0
    assert (joined["start_ns"] == joined["dispatch_ns"]).all()
    assert (joined["end_ns"] == joined["end_ns_right"]).all()
    counted = service.group_by("batch").len().join(batch, on="batch")
    assert (counted["len"] == counted["members"]).all()
    waits = span.filter(pl.col("kind") == "queue").join(
        span.select(cause_span="span", cause_end_ns="end_ns"), on="cause_span", how="left"
    )
    assert len(waits)
    assert (waits["end_ns"] == waits["cause_end_ns"]).all()


def test_cancel_deadline_and_oversized_all_end_explicitly(models: SpeechModels, tmp_path: Path) -> None:
    mix = replace(
        CALM,
        classes=(
            RequestClass("hurried", 0.4, (6, 8), 6, job_deadline_s=0.02),
            RequestClass("patient", 0.6, (6, 8), 6, job_deadline_s=60.0),
        ),
        cancel_share=0.35,
        cancel_after_s=(0.0, 0.03),
        oversized_share=0.15,
    )
    run = record(models, plan_of("mixed", 60, 200.0, mix=mix), tmp_path, **QUIET)
    outcome = pl.read_parquet(run / "outcome.parquet")
    status = dict(outcome.group_by("status").len().iter_rows())
    assert sum(status.values()) == 60
    assert set(status) == {"ok", "cancelled", "timeout", "error"}, status
    assert "unfinished" not in status
    errors = outcome.filter(pl.col("status") == "error")["detail"].to_list()
    assert 8 <= models.longest_digits < OVERSIZED_DIGITS
    assert set(errors) == {f"{OVERSIZED_DIGITS} digits, more than the {models.longest_digits} that fit"}
    # Nothing works for a request once its end was reported: every stage had let go by then.
    ended = outcome.filter(pl.col("status").is_in(["cancelled", "timeout"])).select("request", ended_ns="end_ns")
    late = pl.read_parquet(run / "span.parquet").join(ended, on="request").filter(pl.col("end_ns") > pl.col("ended_ns"))
    assert late.is_empty()
    held = pl.read_parquet(run / "object.parquet").group_by("object").agg(pl.col("event").sort())
    assert all(sorted(events) == ["allocate", "release"] for events in held["event"].to_list())


def test_probes_off_keeps_the_client_rows_only(models: SpeechModels, tmp_path: Path) -> None:
    run = record(models, plan_of("off", 12, 60.0, probes="off"), tmp_path, **QUIET)
    assert pl.read_parquet(run / "outcome.parquet")["status"].to_list() == ["ok"] * 12
    assert pl.read_parquet(run / "run.parquet")["probes"].to_list() == ["off"]
    assert set(pl.read_parquet(run / "span.parquet")["stage"]) <= {"client"}
    assert set(pl.read_parquet(run / "chunk.parquet")["edge"]) == {"code2wav>client"}


def test_a_launch_that_raises_ends_its_members_and_no_one_else(
    models: SpeechModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned = schedule(plan_of("x", 20, 60.0))[5].digits
    real = models.thinker.prefill
    bad = models.grammar.prompt(poisoned)

    def prefill(slot: int, ids: list[int], allowed: torch.Tensor) -> torch.Tensor:
        if ids == bad:
            raise RuntimeError("device-side assert")
        return real(slot, ids, allowed)

    monkeypatch.setattr(models.thinker, "prefill", prefill)
    run = record(models, plan_of("poisoned", 20, 60.0), tmp_path, **QUIET)
    rows = pl.read_parquet(run / "outcome.parquet").join(pl.read_parquet(run / "request.parquet"), on="request")
    hit = rows["content"] == "digits:" + "".join(map(str, poisoned))
    assert rows.filter(hit)["status"].unique().to_list() == ["error"]
    assert rows.filter(~hit)["status"].unique().to_list() == ["ok"]
    assert "device-side assert" in rows.filter(hit)["detail"][0]


def test_a_dead_worker_voids_the_run(models: SpeechModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.testbed.stages.talker import TalkerWorker

    def broken(self: TalkerWorker, time_ns: int) -> None:
        raise SystemError("scheduler bug")

    monkeypatch.setattr(TalkerWorker, "choose", broken)
    monkeypatch.setattr("threading.excepthook", lambda args: None)
    with pytest.raises(CheckFailed, match="talker-0 died: SystemError"):
        record(models, plan_of("dead", 3, 60.0, drain_s=5.0), tmp_path, **QUIET)
    assert list(tmp_path.iterdir()) == []


def test_a_late_generator_voids_the_run(models: SpeechModels, tmp_path: Path) -> None:
    mix = replace(CALM, cancel_share=1.0, cancel_after_s=(0.1, 0.1))  # a flood that no generator can send on time
    with pytest.raises(CheckFailed, match="submit lag"):
        record(models, plan_of("late", 3000, 1e9, mix=mix, max_submit_lag_ms=0.0), tmp_path, **QUIET)
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_overwritten(calm: tuple[Path, Path], models: SpeechModels) -> None:
    run, _ = calm
    with pytest.raises(UsageError, match="immutable"):
        record(models, plan_of("calm", 1, 60.0), run.parent, **QUIET)


def test_an_interrupted_recording_is_salvaged_by_the_next_attempt(
    models: SpeechModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in the middle of a run: the rows on disk become a run of their own, and the loss is said."""
    monkeypatch.setattr(testbed_run, "SALVAGED", tmp_path / "salvaged")
    submit = Server._submit

    def interrupted(self: Server, message: Submit, received_ns: int) -> None:
        if message.request == 30:
            time.sleep(0.5)  # a few flushes of the recorder
            raise KeyboardInterrupt
        submit(self, message, received_ns)

    monkeypatch.setattr(Server, "_submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        record(models, plan_of("cut", 400, 40.0), tmp_path / "runs", scratch=tmp_path / "scratch", say=silent)
    monkeypatch.setattr(Server, "_submit", submit)
    assert not (tmp_path / "runs").exists()
    said: list[str] = []
    record(models, plan_of("cut", 3, 40.0), tmp_path / "runs", scratch=tmp_path / "scratch", say=said.append)
    assert "cut was interrupted" in said[0]
    salvaged = tmp_path / "salvaged" / "cut-1"
    manifest.verify(salvaged)
    status = set(pl.read_parquet(salvaged / "outcome.parquet")["status"])
    assert status & {"ok", "unfinished"}
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == [".lock"]


def test_two_recordings_never_run_beside_each_other(models: SpeechModels, tmp_path: Path) -> None:
    with testbed_run._alone(tmp_path / "scratch"), pytest.raises(UsageError, match="no other recording"):
        record(models, plan_of("second", 3, 40.0), tmp_path / "runs", scratch=tmp_path / "scratch", say=silent)
    record(models, plan_of("second", 3, 40.0), tmp_path / "runs", scratch=tmp_path / "scratch", say=silent)


def test_a_run_that_lost_a_request_is_void(
    models: SpeechModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = testbed_run._refuse_void
    monkeypatch.setattr(testbed_run, "_refuse_void", lambda folder, run, planned: real(folder, run, planned + 1))
    with pytest.raises(CheckFailed, match="4 requests with an outcome each"):
        record(models, plan_of("short", 3, 40.0), tmp_path / "runs", scratch=tmp_path / "scratch", say=silent)
    assert not (tmp_path / "runs").exists()
