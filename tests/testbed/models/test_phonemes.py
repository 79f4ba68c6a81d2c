"""Digits need no phonemizer; other text goes through one process that may die, hang or talk nonsense."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from workbench.errors import DataIntegrityError, MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models import phonemes as module
from workbench.testbed.models.phonemes import EspeakProcess, Phonemes, PhonemizerFailed, digit_table

CHILD = """
import json, sys
print(json.dumps({"ready": "test"}), flush=True)
for line in sys.stdin:
    text = json.loads(line)["text"]
    if text == "die":
        sys.exit(1)
    if text == "hang":
        import time
        time.sleep(60)
    if text == "bad":
        print("not json", flush=True)
    elif text == "refuse":
        print(json.dumps({"error": "no"}), flush=True)
    else:
        print(json.dumps({"phonemes": list(text)}), flush=True)
"""


@pytest.fixture
def child(tmp_path: Path) -> list[str]:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    return [sys.executable, str(path)]


def test_digit_phrases_are_the_sum_of_their_words() -> None:
    speller = Phonemes()
    one, two = speller.ids("one,"), speller.ids("Two.")
    assert speller.ids("one, two.") == one[:-1] + two[2:]
    assert one[0] == 1
    assert one[-1] == 2
    assert max(one) < speller.size


@pytest.mark.parametrize("phrase", ["one", "eleven,", "one two,", "seven!", ""])
def test_other_text_without_a_phonemizer_is_one_clear_error(phrase: str) -> None:
    with pytest.raises(MissingPrerequisite, match="phonemizer"):
        Phonemes().ids(phrase)


def test_unknown_phonemes_are_left_out(child: list[str]) -> None:
    alphabet = {"^": [1], "_": [0], "$": [2], "a": [7]}
    with EspeakProcess(command=child) as process:
        assert Phonemes(alphabet, process).ids("aba") == [1, 0, 7, 0, 7, 0, 2]


def test_a_process_that_died_is_started_again(child: list[str]) -> None:
    with EspeakProcess(command=child) as process:
        assert process.phonemes("hi") == ["h", "i"]
        with pytest.raises(PhonemizerFailed, match="died twice"):
            process.phonemes("die")
        assert process.phonemes("ok") == ["o", "k"]
        process.close()
        assert process.phonemes("again")[0] == "a"


@pytest.mark.parametrize(("text", "message"), [("hang", "within 0.5 s"), ("bad", "line of JSON"), ("refuse", "no")])
def test_a_process_that_hangs_or_babbles_is_stopped(child: list[str], text: str, message: str) -> None:
    with EspeakProcess(command=child, timeout_s=5.0) as process:
        assert process.phonemes("a") == ["a"]
        process._timeout_s = 0.5
        with pytest.raises(PhonemizerFailed, match=message):
            process.phonemes(text)
        process._timeout_s = 5.0
        assert process.phonemes("b") == ["b"]


def test_a_missing_phonemizer_is_named(tmp_path: Path) -> None:
    """The real child, in a Python that cannot see its packages."""
    command = [sys.executable, "-S", "-I", str(Path(module.__file__).with_name("phonemizer_child.py"))]
    with EspeakProcess(command=command) as process, pytest.raises(MissingPrerequisite, match="piper-tts"):
        process.phonemes("hello")


def test_a_damaged_table_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "table.json"
    broken.write_text('{"words": ')
    monkeypatch.setattr(module, "TABLE", broken)
    with pytest.raises(DataIntegrityError, match=r"table\.json"):
        Phonemes()


@pytest.mark.weights
@pytest.mark.skipif(importlib.util.find_spec("piper") is None, reason="piper-tts is not installed")
def test_the_committed_table_is_what_espeak_says() -> None:
    alphabet = json.loads(weights.load("voice")["phonemes"].tobytes())
    with EspeakProcess() as process:
        table = digit_table(process, alphabet)
        speller = Phonemes(alphabet, process)
        assert speller.ids("Hello world.") == speller.ids("hello world.")
        assert len(speller.ids("Hello world.")) > 20
    committed = json.loads(module.TABLE.read_text())
    for part in ("words", "marks", "alphabet"):
        assert table[part] == committed[part]
    assert "piper" not in sys.modules
