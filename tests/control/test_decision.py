"""Explaining a decision: the terms add up to the score bit for bit, and the row fits the table."""

from __future__ import annotations

import json
from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import built, chosen, several
from workbench.control import decision as d
from workbench.control import signals as s
from workbench.control.priorities import load, preset
from workbench.control.priority import score
from workbench.control.signals import SIGNALS, record
from workbench.errors import UsageError
from workbench.schema.enums import CONTROL_MODE
from workbench.schema.tables import DECISION

RULES = list(load().values())


def total(terms: dict[str, float]) -> float:
    # Built-in sum() compensates its rounding errors from Python 3.12 on; the rule does not.
    return reduce(add, terms.values(), 0.0)


@given(several(), st.integers(0, 10**7))
def test_the_terms_are_the_score_and_the_choice_is_the_rule_s(tasks: list[list[int]], now: int) -> None:
    for rule in RULES:
        signals = built(tasks, rule.information, now)
        found = d.explain(rule, signals, 1_000)
        assert found.chosen == chosen(rule, signals, both=False)
        assert found.static == chosen(preset("stage-local"), signals, both=False)
        a = found.chosen * SIGNALS
        assert found.score == score(rule.spec, rule.weights, signals, a, 1_000) == total(dict(found.terms))
        row = found.row(at_ns=now, cost_ns=5, mode="shadow", stage="talker")
        assert total(json.loads(str(row["terms"]))) == found.score, "JSON keeps every bit"
        assert row["chosen_request"] == signals[a + s.REQUEST]
        assert found.text().count(f"request {found.chosen_request}") >= 1


@given(several(), st.integers(0, 10**7))
def test_the_runner_up_would_run_if_the_chosen_task_were_absent(tasks: list[list[int]], now: int) -> None:
    rule = preset("joint-repaired")
    signals = built(tasks, rule.information, now)
    found = d.explain(rule, signals, 1_000)
    rest = [i for i in range(len(tasks)) if i != found.chosen]
    if not rest:
        assert (found.runner_up, found.margin, found.ground) == (None, None, "only candidate")
        return
    left = [value for i in rest for value in signals[i * SIGNALS : (i + 1) * SIGNALS]]
    assert found.runner_up == rest[chosen(rule, left, both=False)]
    b = found.runner_up * SIGNALS
    assert found.margin == found.score - score(rule.spec, rule.weights, signals, b, 1_000)


def test_a_row_is_a_row_of_the_table() -> None:
    signals = built([record(request=4, order=0, arrival_ns=0)], "blind", 9)
    row = d.explain(preset("edf"), signals, 1).row(
        at_ns=9, cost_ns=700, mode="joint", replica=2, fallback_reason="late"
    )
    assert tuple(row) == DECISION.names
    for column in DECISION.columns:
        assert row[column.name] is not None or column.null, column.name
    assert (row["stage"], row["replica"], row["mode"], row["rule"], row["candidates"]) == (None, 2, "joint", "edf", 1)
    assert (row["chosen_request"], row["static_request"], row["fallback_reason"]) == (4, 4, "late")
    assert {d.explain(preset("edf"), signals, 1).row(at_ns=0, cost_ns=0, mode=mode)["mode"] for mode in CONTROL_MODE}
    with pytest.raises(UsageError, match="a mode among"):
        d.explain(preset("edf"), signals, 1).row(at_ns=0, cost_ns=0, mode="loud")


@pytest.mark.parametrize(
    ("rule", "one", "other", "ground"),
    [
        ("first-chunk", {"first": 0, "ready_ns": 0}, {"first": 1, "ready_ns": 50}, "class"),
        ("edf", {"deadline_ns": 500}, {"deadline_ns": 400}, "score"),
        ("edf", {"deadline_ns": 400, "order": 1}, {"deadline_ns": 400, "order": 0}, "order of arrival"),
        (
            "joint-repaired",
            {"sibling_ns": 5, "path_ns": 1},
            {"request": 0, "order": 0, "sibling_ns": 9},
            "sibling path",
        ),
    ],
)
def test_the_ground_is_what_decided(rule: str, one: dict[str, int], other: dict[str, int], ground: str) -> None:
    tasks = [
        record(**({"request": 0, "order": 0, "task": 0, "arrival_ns": 0, "class_path_ns": 9} | one)),
        record(**({"request": 1, "order": 1, "task": 1, "arrival_ns": 0, "class_path_ns": 9} | other)),
    ]
    found = d.explain(preset(rule), built(tasks, preset(rule).information, 100), 1_000)
    assert (found.chosen, found.ground) == (1, ground)
    assert ground in d.GROUNDS
    assert f"decided by {ground}" in found.text()


def test_the_paragraph_says_who_won_and_why() -> None:
    tasks = [
        record(request=7, order=0, task=70, arrival_ns=0, ready_ns=0, path_ns=3_000_000, class_path_ns=2_000_000),
        record(request=9, order=1, task=90, arrival_ns=0, ready_ns=500_000, path_ns=500_000, class_path_ns=2_000_000,
               deadline_ns=4_000_000),
    ]  # fmt: skip
    found = d.explain(preset("joint-repaired"), built(tasks, "class-statistics", 1_000_000), 2_000_000)
    assert found.text() == (
        "joint-repaired chose request 9 (task 90; age 1 ms, 500 us of path left, slack 2.5 ms) among 2: "
        "score 0.175 = class_path -0.25, urgency +0.375, aging +0.05. "
        "Next would have been request 7, decided by score, ahead by 1.62. "
        "Stage-local order would have chosen request 7."
    )


@pytest.mark.parametrize(("signals", "scale"), [([], 1), ([0] * (SIGNALS + 1), 1), ([0] * SIGNALS, 0)])
def test_what_cannot_be_explained_is_refused(signals: list[int], scale: int) -> None:
    with pytest.raises(UsageError):
        d.explain(preset("edf"), signals, scale)
