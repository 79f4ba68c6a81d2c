"""Drawings of the protocol: everything in the frame is drawn, nothing else is, and they can be printed."""

from __future__ import annotations

import polars as pl
import pytest

from tests.charts.drawings import assert_same, drawn, shuffled, table, texts
from workbench.charts.mutants import mutants
from workbench.charts.protocols import MEASURES, protocol_memory
from workbench.charts.sequence import MAX_LINES, sequence
from workbench.charts.state_diagram import BOX_PX, stacked, state_diagram
from workbench.charts.state_space import state_space
from workbench.errors import UsageError

EDGES = pl.DataFrame(
    [
        ("new", "running", "submit", "machine", 3),
        ("running", "done", "last chunk", "machine", 2),
        ("running", "done", "kill", "environment", 1),
        ("new", "done", "rejected", "machine", 1),
        ("done", "running", "again", "machine", 1),
    ],
    schema=["source", "target", "label", "cause", "transitions"],
    orient="row",
)
PLACES = {"new": (0.0, 0.0), "running": (0.0, 1.0), "done": (0.0, 2.0)}


def lines(*texts: str, kind: str = "step") -> pl.DataFrame:
    return pl.DataFrame(
        [{"step": number, "kind": kind, "text": text} for number, text in enumerate(texts, start=1)],
        schema={"step": pl.Int64, "kind": pl.String, "text": pl.String},
    )


def sent(*rows: tuple[str, str, str, int, int | None, bool]) -> pl.DataFrame:
    names = ["source", "target", "text", "sent", "arrived", "lost"]
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    return frame.select(
        pl.lit("A").alias("request"),
        "source",
        "target",
        "text",
        pl.col("sent", "arrived").cast(pl.Int64),
        pl.col("lost").cast(pl.Boolean),
    )


NO_WORK = pl.DataFrame(schema={"request": pl.String, "stage": pl.String, "start": pl.Int64, "end": pl.Int64})


def test_a_state_diagram_says_every_cause_and_names_every_state() -> None:
    chart, frame = state_diagram(EDGES, PLACES)
    words = texts(drawn(chart))
    assert set(words) >= {*PLACES, *EDGES["label"]}
    assert frame.height == EDGES.height
    assert len(table(frame)) == 6
    assert_same((chart, frame), state_diagram(shuffled(EDGES, 3), PLACES))


def test_arrows_end_outside_the_boxes() -> None:
    chart, _ = state_diagram(EDGES, PLACES)
    tips = next(rows for rows in chart.to_dict()["datasets"].values() if rows and "angle" in rows[0])
    boxes = next(rows for rows in chart.to_dict()["datasets"].values() if rows and "state" in rows[0])
    for tip in tips:
        for box in boxes:
            assert abs(tip["x"] - box["x"]) >= BOX_PX[0] / 2 or abs(tip["y"] - box["y"]) >= BOX_PX[1] / 2


def test_a_state_without_a_place_is_named() -> None:
    with pytest.raises(UsageError, match="done"):
        state_diagram(EDGES, {"new": (0.0, 0.0), "running": (0.0, 1.0)})


def test_machines_are_stacked_in_one_figure() -> None:
    one = state_diagram(EDGES, PLACES)
    chart, frame = stacked([("First", *one), ("Second", *one)])
    words = texts(drawn(chart))
    assert {"First", "Second"} <= set(words)
    assert frame["machine"].value_counts()["count"].to_list() == [5, 5]


def test_a_sequence_says_each_step_and_each_message() -> None:
    messages = sent(("s0", "client", "chunk 0", 1, 2, False), ("client", "s0", "taken 1", 2, None, False),
                    ("s0", "client", "chunk 1", 2, 3, True))  # fmt: skip
    work = pl.DataFrame([{"request": "A", "stage": "s0", "start": 1, "end": 2}])
    chart, frame = sequence(lines("one", "two", "three"), messages, work, lanes=["s0", "client"], title="Title")
    words = texts(drawn(chart))
    assert {"one", "two", "three", "1", "2", "3", "chunk 0", "taken 1", "chunk 1", "s0", "client", "Title", "x"} <= set(
        words
    )
    assert frame["part"].to_list() == ["line"] * 3 + ["message", "message", "message lost", "launch"]
    assert frame.filter(pl.col("text") == "taken 1")["until"].to_list() == [None]


def test_long_lines_are_wrapped_and_counted_once() -> None:
    text = "word " * 60
    chart, frame = sequence(lines(text, "end"), sent(), NO_WORK, lanes=["a", "b", "c", "d"])
    words = texts(drawn(chart))
    assert sum(word.strip().startswith("word") for word in words) > 3
    assert words.count("1") == 1
    assert frame["text"].to_list() == [text, "end"]


def test_a_sequence_refuses_what_it_cannot_place() -> None:
    with pytest.raises(UsageError, match="nobody"):
        sequence(lines("one"), sent(("nobody", "s0", "x", 1, 1, False)), NO_WORK, lanes=["s0"])
    with pytest.raises(UsageError, match=str(MAX_LINES)):
        sequence(lines(*["x"] * (MAX_LINES + 1)), sent(), NO_WORK, lanes=["s0"])


def test_every_mutant_has_its_own_dot_and_the_named_ones_their_names() -> None:
    found = pl.DataFrame(
        [("a", "bound", 3), ("b", "bound", 3), ("c", "bound", 5), ("d", "order", 3)],
        schema=["mutant", "property", "steps"],
        orient="row",
    )
    chart, frame = mutants(found, named=["b", "d"])
    dots = next(rows for rows in chart.to_dict()["datasets"].values() if rows and "level" in rows[0])
    assert len({(dot["steps"], dot["y"]) for dot in dots}) == 4
    words = texts(drawn(chart))
    assert {"bound", "order", "b: 3", "d: 3"} <= set(words)
    assert frame["mutant"].to_list() == ["a", "b", "c", "d"]
    assert_same((chart, frame), mutants(shuffled(found, 1), named=["b", "d"]))


def test_a_world_at_its_limit_is_drawn_hollow() -> None:
    rows = [("requests", 1, 10, "holds"), ("requests", 2, 500, "limit"), ("chunks", 1, 20, "holds")]
    sizes = pl.DataFrame(rows, schema=["dimension", "size", "states", "verdict"], orient="row")
    chart, frame = state_space(sizes, dimensions=["requests", "chunks"])
    words = texts(drawn(chart))
    assert {"requests", "chunks"} <= set(words)
    assert frame["dimension"].to_list() == ["requests", "requests", "chunks"]
    layers = chart.to_dict()["layer"]
    filled = {layer["mark"].get("filled"): layer["transform"][0]["filter"] for layer in layers if "transform" in layer}
    assert filled == {True: "datum.verdict != 'limit'", False: "datum.verdict == 'limit'"}


def test_worst_cases_and_timed_runs_are_told_apart() -> None:
    worst = pl.DataFrame(
        {"form": ["free", "free", "bound", "bound"], "requests": [1, 2, 1, 2], "peak_bytes": [2, 4, 2, 2]}
    )
    timed = pl.DataFrame(
        [
            {"protocol": name, "case": case, **dict.fromkeys(MEASURES, 10.0)}
            for name in ("p", "q")
            for case in ("x", "y")
        ]
    )
    chart, frame = protocol_memory(worst, timed, b_max=2)
    words = " ".join(texts(drawn(chart)))
    assert "Worst case over all schedules" in words
    assert "One timed run each" in words
    assert all(title in words for title in MEASURES.values())
    assert frame.group_by("part").len().sort("part")["len"].to_list() == [4 * len(MEASURES), 4]
