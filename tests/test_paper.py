"""The paper types no result: every number is a macro of the generated ``figures/numbers.tex``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAPER = Path(__file__).resolve().parent.parent / "paper"

# Numbers that are definitions or names, not results.
NAMES = (r"95\\,\\%", r"SmolLM2-135M", r"\bp95\b", r"HiFi-GAN")


QUIET = re.compile(r"\\(cite|ref|label|includegraphics|begin|end|setlength\{\\tabcolsep\})(\[[^]]*\])?\{[^}]*\}")


def prose() -> list[str]:
    """Lines of the document's body without comments and without arguments that are names or lengths of the layout."""
    body = (PAPER / "main.tex").read_text().partition(r"\begin{document}")[2]
    return [QUIET.sub("", re.sub(r"(?<!\\)%.*", "", line)) for line in body.splitlines()]


def typed_numbers(line: str) -> list[str]:
    for name in NAMES:
        line = re.sub(name, "", line)
    return re.findall(r"\d[\d.,]*", line)


def sentences(line: str) -> int:
    return len(re.findall(r"[.?!](?:\s+[A-Z\\]|\s*$)", line.replace("e.g.", "").replace("i.e.", "")))


def test_no_result_is_typed_by_hand() -> None:
    assert [line for line in prose() if typed_numbers(line)] == []


@pytest.mark.parametrize("line", ["a median of 1.53 s", r"12\,\% earlier", "p99 of 3 requests"])
def test_a_typed_result_is_found(line: str) -> None:
    assert typed_numbers(line)


def test_one_sentence_per_line() -> None:
    assert [line for line in prose() if sentences(line) > 1] == []
    assert sentences("One thing. Another thing.") == 2


def test_every_citation_has_an_entry_and_every_entry_is_cited() -> None:
    cited = {
        key for group in re.findall(r"\\cite\{([^}]*)\}", (PAPER / "main.tex").read_text()) for key in group.split(",")
    }
    entries = set(re.findall(r"^@\w+\{([^,]+),", (PAPER / "references.bib").read_text(), flags=re.MULTILINE))
    assert cited == entries
