"""Every broken protocol is found, by the property that it is said to violate, and told as a story."""

from __future__ import annotations

import re

import pytest

from workbench.errors import UsageError
from workbench.verify import laws, mutants, story
from workbench.verify.catalog import CATALOG


@pytest.mark.parametrize("name", list(mutants.MUTANTS))
def test_it_is_found_and_its_story_ends_with_what_it_violates(name: str) -> None:
    mutant = mutants.MUTANTS[name]
    found = mutants.hunt(mutant)
    assert (found.verdict, mutants.property_name(found)) == ("violated", mutant.violates), str(found)
    told = mutants.story(mutant, found)
    says = story.PROPERTIES.get(found.code) or story.KINDS[found.kind]
    assert told.endswith(f"violated: {says}")
    assert len(re.findall(r"^ *\d+\. ", told, re.MULTILINE)) == len(found.trace)
    assert re.search(r"^[-+] ", mutant.diff(), re.MULTILINE)


@pytest.mark.parametrize("name", list(mutants.SURVIVORS))
def test_a_survivor_breaks_nothing_where_it_would_show(name: str) -> None:
    mutant = mutants.SURVIVORS[name]
    assert mutants.hunt(mutant).verdict == "holds"
    assert mutant.because
    assert not mutant.violates


def test_every_property_is_violated_by_some_mutant() -> None:
    """What no mutant violates might as well not be checked."""
    assert set(mutants.PROPERTY_NAMES) == set(story.PROPERTIES)
    violated = {mutant.violates for mutant in mutants.MUTANTS.values()}
    assert {*mutants.PROPERTY_NAMES.values(), *story.KINDS} - violated == set()


def test_the_codes_of_the_laws_are_all_named() -> None:
    for code, name in mutants.PROPERTY_NAMES.items():
        assert getattr(laws, name.upper().replace("-", "_")) == code


def test_mutants_show_in_small_worlds_and_say_what_they_break() -> None:
    for mutant in (*mutants.MUTANTS.values(), *mutants.SURVIVORS.values()):
        assert CATALOG[mutant.scenario].size == "small"
        assert mutant.breaks.endswith(".")
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", mutant.name)
    assert len(mutants.MUTANTS) >= 30
    assert not set(mutants.MUTANTS) & set(mutants.SURVIVORS)


def test_the_table_is_measured() -> None:
    (row,) = mutants.table(["credit-on-send"])
    found = mutants.hunt(mutants.named("credit-on-send"))
    assert (row.name, row.scenario, row.property) == ("credit-on-send", "cancel", "held")
    assert (row.steps, row.states, row.is_expected) == (len(found.trace), found.states, True)


def test_anybody_can_try_an_edit() -> None:
    old, new = r"    if seq != m[at + RECEIVED]:\n        return False", r"    if seq < 0:\n        return False"
    tried = mutants.Mutant("mine", "No order.", "copies", (mutants.edit("credit", old, new),))
    assert mutants.hunt(tried).verdict == "violated"
    assert "-    if seq != m[at + RECEIVED]:\n+    if seq < 0:" in tried.diff()


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: mutants.named("credit-on-sent"), "Did you mean credit-on-send?"),
        (lambda: mutants.named("zzz"), "--list"),
        (lambda: mutants.edit("cradit", "a", "b"), "a module among .*credit"),
        (lambda: mutants.edit("credit", "", "b"), "an empty text"),
        (lambda: mutants.edit("credit", "m[at + RECEIVED]", "0"), "Give more of the text around it"),
        (
            lambda: mutants.edit("credit", "if seq == m[at + RECEIVED]:", "if True:"),
            "The nearest line is 'if seq != m\\[at",
        ),
    ],
)
def test_what_cannot_be_changed_is_said(call, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        call()
