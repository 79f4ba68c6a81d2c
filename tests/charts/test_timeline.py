"""The timeline of one request: waits above, work below, marks in shapes of their own, and what is refused."""

from __future__ import annotations

import polars as pl
import pytest

from tests.charts.drawings import HOSTILE, assert_same, drawn, encoding, shuffled, table, texts
from workbench.charts import theme
from workbench.charts.timeline import MAX_BARS, timeline
from workbench.errors import UsageError
from workbench.schema.enums import CREDIT_EVENT, SPAN_KIND, WAIT_KINDS
from workbench.units import MS_NS

ORIGIN_NS = 5_000 * MS_NS
STAGES = ["client", "thinker", "talker"]
ROWS = [
    ("client", "host", 0, 1),
    ("client", "transfer", 1, 2),
    ("thinker", "queue", 2, 5),
    ("thinker", "service", 5, 9),
    ("talker", "credit_stall", 9, 10),
    ("talker", "service", 10, 10),
    ("talker", "deliver", 10, None),
]
MARKS = [("talker", 10, "chunk taken over"), ("client", 12, "first audio"), ("talker", 9, "credit return")]


def intervals(rows: list[tuple[str, str, int, int | None]] = ROWS) -> pl.DataFrame:
    schema = {"stage": pl.String, "kind": pl.Enum(SPAN_KIND), "start_ns": pl.Int64, "end_ns": pl.Int64}
    placed = [(s, k, ORIGIN_NS + a * MS_NS, None if b is None else ORIGIN_NS + b * MS_NS) for s, k, a, b in rows]
    return pl.DataFrame(placed, schema=schema, orient="row")


def marks(rows: list[tuple[str, int, str]] = MARKS) -> pl.DataFrame:
    schema = {"stage": pl.String, "at_ns": pl.Int64, "what": pl.String}
    return pl.DataFrame([(s, ORIGIN_NS + at * MS_NS, w) for s, at, w in rows], schema=schema, orient="row")


def test_rows_in_the_order_of_time_and_marks_after_them() -> None:
    chart, frame = timeline(intervals(), stages=STAGES, origin_ns=ORIGIN_NS, marks=marks())
    assert frame.columns == ["stage", "kind", "lane", "start_ms", "end_ms"]
    assert frame.rows() == [
        ("client", "host", "work", 0.0, 1.0),
        ("client", "transfer", "work", 1.0, 2.0),
        ("thinker", "queue", "wait", 2.0, 5.0),
        ("thinker", "service", "work", 5.0, 9.0),
        ("talker", "credit_stall", "wait", 9.0, 10.0),
        ("talker", "service", "work", 10.0, 10.0),
        ("talker", "mark: credit return", "mark", 9.0, 9.0),
        ("talker", "mark: chunk taken over", "mark", 10.0, 10.0),
        ("client", "mark: first audio", "mark", 12.0, 12.0),
    ]
    assert {"credit stall", "queue", "chunk taken over", *STAGES} <= set(texts(drawn(chart)))
    assert len(table(frame)) == 10
    assert "its last interval ends after 10 ms" in theme.specification(chart)["description"]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_order_of_the_rows_given_changes_nothing(seed: int) -> None:
    options = {"stages": STAGES, "origin_ns": ORIGIN_NS}
    first = timeline(intervals(), marks=marks(), **options)  # type: ignore[arg-type]
    again = timeline(shuffled(intervals(), seed), marks=shuffled(marks(), seed), **options)  # type: ignore[arg-type]
    assert_same(first, again)


def test_what_waits_is_never_drawn_as_work() -> None:
    rows: list[tuple[str, str, int, int | None]] = [("talker", kind, i, i + 1) for i, kind in enumerate(SPAN_KIND)]
    chart, frame = timeline(intervals(rows), stages=STAGES, origin_ns=ORIGIN_NS)
    drawn(chart)
    assert set(frame.filter(pl.col("lane") == "wait")["kind"]) == {*WAIT_KINDS, "unattributed"}
    assert set(frame["lane"]) == {"wait", "work"}


def test_marks_of_every_kind_have_shapes_of_their_own() -> None:
    whats = ["chunk taken over", "first audio", *(f"credit {event}" for event in CREDIT_EVENT)]
    every = marks([("talker", at, what) for at, what in enumerate(whats)])
    chart, _ = timeline(intervals(), stages=STAGES, origin_ns=ORIGIN_NS, marks=every)
    (shape,) = encoding(theme.specification(chart), "shape")
    assert shape["scale"]["domain"] == sorted(whats)
    assert len(set(shape["scale"]["range"])) == len(whats)
    drawn(chart)


@pytest.mark.parametrize("given", [None, marks([])])
def test_without_marks(given: pl.DataFrame | None) -> None:
    chart, frame = timeline(intervals(), stages=STAGES, origin_ns=ORIGIN_NS, marks=given, width_in=3.33, title="One")
    assert frame.height == 6
    assert "One" in texts(drawn(chart))
    assert encoding(theme.specification(chart), "shape") == []


def test_one_kind_on_one_stage_without_length() -> None:
    chart, frame = timeline(intervals([("talker", "queue", 3, 3)]), stages=["talker"], origin_ns=ORIGIN_NS)
    drawn(chart)
    assert frame.rows() == [("talker", "queue", "wait", 3.0, 3.0)]
    assert encoding(theme.specification(chart), "color")[0]["scale"]["domain"] == ["queue"]


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    rows: list[tuple[str, str, int, int | None]] = [(name, "service", 0, 1), ("client", "queue", 0, 2)]
    marked = marks([(name, 1, "first audio")])
    chart, frame = timeline(intervals(rows), stages=["client", name], origin_ns=ORIGIN_NS, marks=marked)
    svg = drawn(chart)
    assert "<script" not in svg
    assert name.strip() in [text.strip() for text in texts(svg)]
    assert table(frame)[1][0] == name


def test_a_name_outside_ascii_is_refused() -> None:
    chart, _ = timeline(intervals([("µ", "service", 0, 1)]), stages=["µ"], origin_ns=ORIGIN_NS)
    with pytest.raises(UsageError, match=r"expected ASCII text in a figure, found .*µ"):
        drawn(chart)


def test_at_most_two_thousand_intervals() -> None:
    rows: list[tuple[str, str, int, int | None]] = [("talker", "service", i, i + 1) for i in range(MAX_BARS + 1)]
    _, frame = timeline(intervals(rows[1:]), stages=STAGES, origin_ns=ORIGIN_NS)
    assert frame.height == MAX_BARS
    with pytest.raises(UsageError, match=r"expected at most 2,000 intervals in one timeline, found 2,001.*filter"):
        timeline(intervals(rows), stages=STAGES, origin_ns=ORIGIN_NS)


def test_what_has_no_row_or_no_color_is_refused() -> None:
    with pytest.raises(UsageError, match=r"timeline: expected stages among \['client'\], found 'talker'"):
        timeline(intervals(), stages=["client"], origin_ns=ORIGIN_NS)
    with pytest.raises(UsageError, match=r"timeline: expected stages among .*, found 'vocoder'"):
        timeline(intervals(), stages=STAGES, origin_ns=ORIGIN_NS, marks=marks([("vocoder", 1, "first audio")]))
    odd = intervals().with_columns(pl.lit("sleep").alias("kind"))
    with pytest.raises(UsageError, match=r"expected interval kinds out of .*, found 'sleep'"):
        timeline(odd, stages=STAGES, origin_ns=ORIGIN_NS)
