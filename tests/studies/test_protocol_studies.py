"""What notebook 09 computes: lives of requests and chunks, sizes of worlds, memory of protocols, stories of mutants."""

from __future__ import annotations

import polars as pl
import pytest

from tests.charts.drawings import drawn
from workbench.charts.sequence import sequence
from workbench.control import window
from workbench.control.phases import PHASES
from workbench.studies import mutant_stories, protocol_memory, state_machine, state_space
from workbench.verify.mutants import MUTANTS


@pytest.fixture(scope="module")
def requests() -> pl.DataFrame:
    return state_machine.request_life(state_machine.request_worlds())


@pytest.fixture(scope="module")
def chunks() -> pl.DataFrame:
    return state_machine.chunk_life(state_machine.chunk_worlds())


def arrows(frame: pl.DataFrame) -> set[tuple[str, str]]:
    return set(frame.select("source", "target").iter_rows())


def test_a_request_lives_as_the_controller_says(requests: pl.DataFrame) -> None:
    # The figure in the docstring of `workbench.control.lifecycle`, and the ways that need no drain.
    assert arrows(requests) == {
        ("new", "waiting"), ("new", "running"), ("new", "closed"), ("waiting", "running"), ("waiting", "closed"),
        ("running", "draining"), ("draining", "closed"), ("draining", "waiting"), ("running", "waiting"),
        ("running", "closed"),
    }  # fmt: skip
    outcomes = {label.partition(": ")[2] for label in requests["label"]} - {""}
    assert outcomes == {"ok", "error", "cancelled", "rejected", "timeout", "next attempt"}
    assert not requests.filter(pl.col("source") == "closed").height
    assert set(state_machine.REQUEST_PLACES) == set(PHASES)


def test_a_chunk_is_reserved_before_it_is_made_and_pays_back_when_taken(chunks: pl.DataFrame) -> None:
    seen = arrows(chunks)
    assert {target for source, target in seen if source == "not begun"} == {"reserved"}
    assert ("in the inbox", "taken over") in seen
    assert ("in the inbox", "credit is back") not in seen
    assert {source for source, target in seen if target == "credit is back"} == {"taken over", "in the drain"}
    assert {target for source, target in seen if source == "lost"} == {"under way", "in the drain"}
    assert set(state_machine.CHUNK_PLACES) == set(state_machine.CHUNK_STATES)


def test_every_action_of_the_world_has_words() -> None:
    from workbench.verify import wires

    assert set(state_machine.WORDS) == set(range(wires.SUBMIT, wires.ACTIONS))


def test_sizes_grow_along_every_dimension_and_all_hold() -> None:
    sizes = state_space.sizes(limit_states=400)
    for _, part in sizes.group_by("dimension"):
        assert part.sort("size")["states"].is_sorted()
    assert set(sizes["verdict"]) == {"holds", "limit"}
    assert sizes.filter(pl.col("verdict") == "limit")["states"].unique().to_list() == [400]
    assert sizes["dimension"].unique(maintain_order=True).to_list() == list(state_space.DIMENSIONS)


def test_worst_cases_are_what_the_windows_add_up_to() -> None:
    worst = protocol_memory.worst_cases((1, 2))
    peaks = {form: part["peak_bytes"].to_list() for (form,), part in worst.group_by("form", maintain_order=True)}
    assert peaks == {
        "a window that never binds": [2, 4],
        "a fixed window per stream": [1, 2],
        "a window under B_max": [2, protocol_memory.SMALL_B_MAX],
    }
    named = {name for names in worst["protocols"] for name in names.split(", ")}
    assert named == set(window.load())


def test_timed_runs_compare_what_a_bound_costs() -> None:
    timed = protocol_memory.timed_runs(("unbounded", "closed-loop"))
    bound = protocol_memory.TIMED_B_MAX // protocol_memory.CHUNK_BYTES
    for case in protocol_memory.CASES:
        free, held = (timed.filter((pl.col("case") == case) & (pl.col("protocol") == name)).row(0, named=True)
                      for name in ("unbounded", "closed-loop"))  # fmt: skip
        assert held["promised_chunks"] <= bound < free["promised_chunks"]
        assert free["stall_ms"] == 0 < held["stall_ms"]
        assert held["end_ms"] >= free["end_ms"]
        assert free["in_flight_chunks"] <= free["promised_chunks"]


@pytest.mark.parametrize("name", ["credit-added-twice", "state-freed-under-launch", "shared-pool"])
def test_a_mutant_is_told_in_words_and_drawn(name: str) -> None:
    example = mutant_stories.example(name)
    lines, messages, launches = mutant_stories.sequence_rows(example)
    chart, frame = sequence(lines, messages, launches, lanes=mutant_stories.lanes(example), title=example.title)
    svg = drawn(chart)
    assert str(len(example.steps)) in example.title
    assert lines.filter(pl.col("kind") == "wrong").height == 1
    assert lines["step"].max() == len(example.steps) + 1
    assert frame.filter(pl.col("part") == "line").height == lines.height
    assert svg.count("<text") > len(example.steps)
    assert mutant_stories.breaks(name) == MUTANTS[name].breaks


def test_a_standstill_says_what_was_waited_for() -> None:
    lines, _, _ = mutant_stories.sequence_rows(mutant_stories.example("shared-pool"))
    waits = lines.filter(pl.col("text").str.contains("waits for"))["text"].to_list()
    assert waits == ["until then A at join waits for room under a bound"]


def test_found_measures_the_shortest_counterexample() -> None:
    found = mutant_stories.found(["credit-added-twice"])
    assert found["steps"].item() == len(mutant_stories.example("credit-added-twice").steps)
    assert found["expected"].item()
