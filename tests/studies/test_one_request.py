"""The request that stands for its load, and everything that its timeline draws."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tests.studies.campaign import LOADS, latencies_ns, rows, run
from workbench.errors import DataIntegrityError
from workbench.studies import shadow_profile
from workbench.studies.one_request import request_intervals, typical_request
from workbench.studies.shadow_profile import Profile
from workbench.trace import store


@pytest.mark.parametrize("load", LOADS)
def test_the_typical_request_is_the_median_of_the_first_repeat(profile: Profile, raw: Path, load: str) -> None:
    run_name, request = typical_request(profile, load)
    assert run_name == f"x-{load}-a"
    jobs = dict(latencies_ns(raw, run_name).drop_nulls("job_ns").select("request", "job_ns").iter_rows())
    below = sum(job_ns < jobs[request] for job_ns in jobs.values())
    above = sum(job_ns > jobs[request] for job_ns in jobs.values())
    assert below <= (len(jobs) - 1) // 2
    assert above <= len(jobs) // 2
    ties = [other for other, job_ns in jobs.items() if job_ns == jobs[request]]
    assert request == sorted(ties)[(len(jobs) - 1) // 2 - below]
    assert typical_request(profile, load) == (run_name, request)


def test_a_load_where_nothing_finished_has_no_typical_request() -> None:
    tables = run("x-over-a", seed=1, requests=4, fates=dict.fromkeys(range(10), "error"))
    with store.load_tables([tables]) as connection:
        p = shadow_profile.profile(connection, "x")
        with pytest.raises(DataIntegrityError, match="x-over-a: expected a request that ended ok, found none of 4"):
            typical_request(p, "over")


def test_intervals_and_marks_are_all_of_the_request(profile: Profile, raw: Path) -> None:
    label, request = typical_request(profile, "near")
    one = request_intervals(profile, (label, request))
    mine = {name: rows(raw, label, name).filter(pl.col("request") == request) for name in ("span", "chunk", "credit")}
    kinds = Counter(mine["span"]["kind"]) + Counter(
        "deliver" if edge.endswith(">client") else "transfer" for edge in mine["chunk"]["edge"]
    )
    assert Counter(one.intervals["kind"].cast(pl.String)) == kinds
    assert one.intervals.columns == ["stage", "kind", "start_ns", "end_ns"]
    assert one.intervals["start_ns"].is_sorted()
    starts = [*mine["span"]["start_ns"], *mine["chunk"]["sent_ns"]]
    assert sorted(one.intervals["start_ns"]) == sorted(starts)
    client = latencies_ns(raw, label).row(request, named=True)
    assert one.scheduled_ns == client["scheduled_ns"]

    marks = Counter(one.marks["what"])
    taken = mine["chunk"]["taken_ns"].drop_nulls()
    assert marks.pop("chunk taken over") == len(taken)
    assert marks.pop("first audio") == 1
    assert marks == Counter(f"credit {event}" for event in mine["credit"]["event"])
    assert one.marks["at_ns"].is_sorted()
    first = one.marks.filter(pl.col("what") == "first audio")
    assert first.select("stage", "at_ns").rows() == [("client", client["scheduled_ns"] + client["first_ns"])]
    assert set(one.marks["stage"]) <= set(profile.stages)


def test_a_request_that_failed_still_has_its_intervals(profile: Profile, raw: Path) -> None:
    label = profile.runs("over")[0]
    failed = latencies_ns(raw, label).filter(pl.col("status") == "error")["request"][0]
    one = request_intervals(profile, (label, failed))
    assert one.intervals.height > 0
    assert "first audio" not in one.marks["what"].to_list()
