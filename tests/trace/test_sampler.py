"""The sampler reads what the machine offers and says once, with a reason, what it does not."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trace.recordings import recorder
from workbench.errors import UsageError
from workbench.trace import meters
from workbench.trace.recording import Recording, read_segments
from workbench.trace.sampler import Sampler

INTERVAL_S = 0.005


@pytest.fixture
def sampled(tmp_path: Path) -> Recording:
    """About a quarter of a second of sampling with a busy and an idle thread and some registered gauges."""
    release = threading.Event()
    with recorder(tmp_path) as recording, Sampler(recording, interval_s=INTERVAL_S) as sampler:
        depths = iter(range(5))

        def depth() -> int:
            return next(depths)

        sampler.add_gauge("queue_depth", depth, stage=1, replica=0)
        sampler.add_gauge("active", lambda: 4, stage=2, replica=1)
        sampler.add_model("cpu", lambda: 1500)
        idle = threading.Thread(target=lambda: (sampler.watch_thread(stage=0, replica=0), release.wait()))
        idle.start()
        sampler.watch_thread(stage=1, replica=0)
        until = time.thread_time_ns() + 150_000_000
        while time.thread_time_ns() < until:
            pass
        time.sleep(0.1)
        release.set()
        idle.join()
        time.sleep(20 * INTERVAL_S)
    return read_segments(tmp_path)


def column(recording: Recording, table: str, wanted: str, /, **where: Any) -> list[Any]:
    rows = recording.tables[table].to_pylist()
    return [row[wanted] for row in rows if all(row[key] == value for key, value in where.items())]


def test_readings(sampled: Recording) -> None:
    assert sampled.notes() == []
    rss = column(sampled, "gauge", "value", name="rss_bytes")
    assert len(rss) >= 10
    assert all(10 << 20 < value < 100 << 30 for value in rss)
    for name in ("process_cpu_ns", "machine_cpu_ns"):
        values = column(sampled, "gauge", "value", name=name)
        assert values == sorted(values)
        assert values[-1] - values[0] > 50_000_000
    assert set(column(sampled, "gauge", "value", name="active", stage="Stufe ü", replica=1)) == {4}
    times = column(sampled, "gauge", "at_ns", name="active")
    assert times == sorted(times)


def test_a_gauge_that_fails_is_null_once_with_the_reason(sampled: Recording) -> None:
    assert column(sampled, "gauge", "value", name="queue_depth", stage="thinker") == [0, 1, 2, 3, 4, None]
    [event] = [row for row in sampled.tables["event"].to_pylist() if "queue_depth" in row["detail"]]
    assert (event["kind"], event["stage"], event["detail"]) == (
        "unavailable",
        "thinker",
        "queue_depth: StopIteration()",
    )


def test_threads(sampled: Recording) -> None:
    busy = sum(column(sampled, "host", "cpu_ns", stage="thinker"))
    idle = sum(column(sampled, "host", "cpu_ns", stage="client"))
    assert busy >= 140_000_000 > 20_000_000 > idle
    assert sum(column(sampled, "host", "voluntary_switches", stage="thinker")) >= 1
    assert all(value > 0 for value in column(sampled, "host", "interval_ns"))
    assert column(sampled, "host", "gil_wait_ns") == [None] * sampled.tables["host"].num_rows
    [event] = [row for row in sampled.tables["event"].to_pylist() if row["detail"].startswith("thread ")]
    assert (event["kind"], event["stage"]) == ("unavailable", "client")


def test_modeled_energy_never_shares_a_column(sampled: Recording) -> None:
    modeled = [row for row in sampled.tables["energy"].to_pylist() if row["source"] == "model"]
    assert {(row["counter_mj"], row["power_mw"], row["modeled_mj"]) for row in modeled} == {(None, None, 1500)}
    measured = [row for row in sampled.tables["energy"].to_pylist() if row["source"] != "model"]
    assert all(row["modeled_mj"] is None for row in measured)
    assert all(row["before_ns"] <= row["after_ns"] for row in measured)


def why_no_device() -> str | None:
    try:
        meters.Device(0)
    except meters.Unreadable as error:
        return str(error)
    return None


def test_a_device_that_is_not_here_is_null_with_the_reason(sampled: Recording) -> None:
    memory = column(sampled, "gauge", "value", name="device_memory_bytes", replica=0)
    if reason := why_no_device():
        assert memory == [None]
        assert column(sampled, "gauge", "value", name="device_busy_permille", replica=0) == [None]
        assert column(sampled, "energy", "counter_mj", source="nvml", device="cuda:0") == [None]
        assert f"energy and gauges of cuda:0: {reason}" in column(sampled, "event", "detail", kind="unavailable")
    else:
        assert min(memory) > 0


def test_cost_is_stated(sampled: Recording) -> None:
    [segment] = sampled.segments
    assert segment.footer is not None
    cost = segment.footer["attached"]["sampler"]
    assert cost["samples"] >= 10
    assert 0 < cost["cpu_ns"] < 250_000_000
    assert cost["interval_ns"] == INTERVAL_S * 1e9


def test_off_samples_nothing(tmp_path: Path) -> None:
    with recorder(tmp_path, probes="off") as recording, Sampler(recording, interval_s=INTERVAL_S) as sampler:
        sampler.add_gauge("active", lambda: 1)
        sampler.watch_thread(stage=0)
        time.sleep(4 * INTERVAL_S)
    assert sampler.statistics()["samples"] == 0
    assert {name for name, table in read_segments(tmp_path).tables.items() if table.num_rows} == {"clock_sync"}


def test_misuse_is_refused(tmp_path: Path) -> None:
    with recorder(tmp_path) as recording:
        with pytest.raises(UsageError, match="0 s"):
            Sampler(recording, interval_s=0)
        with pytest.raises(UsageError, match="'speed'"):
            Sampler(recording).add_gauge("speed", lambda: 1)
