"""Saved figures: the same bytes each time, whole files or none, rows that a checker can compare, and clear refusals."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import altair as alt
import pikepdf
import polars as pl
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from workbench.charts import figure, renderer, save, theme
from workbench.charts.save import _csv, _pdf
from workbench.errors import DataIntegrityError, UsageError
from workbench.provenance import inputs

ROOT = Path(__file__).parents[2]
SUFFIXES = [".svg", ".pdf", ".png", ".csv", ".json"]
PROVENANCE = {"raw": {"light-1": "ab" * 32}, "parameters": {"seed": 1}, "code_sha256": "cd" * 32, "versions": {}}

# Two charts that have what could vary: four font faces, clip paths, a gradient, dashes; and one process drawing both.
DRAW = """
import sys
from pathlib import Path
import altair as alt
import polars as pl
from workbench.charts import figure, save, theme

rows = [{"x": i, "y": i * 37 % 101 / 7, "s": ["thinker", "talker", "code2wav"][i % 3]} for i in range(60)]
frame = pl.DataFrame(rows)
base = alt.Chart(frame).encode(x="x:Q", y=alt.Y("y:Q", title="latency (ms)"))
points = base.mark_point(clip=True).encode(color="y:Q", shape="s:N")
words = base.mark_text(font="Liberation Mono", fontStyle="italic").encode(text="s:N").transform_filter("datum.x < 9")
bold = base.mark_text(fontWeight="bold").encode(text="y:Q").transform_filter("datum.x > 50")
rule = alt.Chart(frame).mark_rule(strokeDash=[4, 2]).encode(y="mean(y):Q")
charts = {"many": figure(points + words + bold + rule, title="Fonts"), "plain": figure(base.mark_line())}
provenance = {"raw": {}, "parameters": {}, "code_sha256": "", "versions": {}}
"""


def chart() -> alt.Chart:
    return figure(alt.Chart(frame()).mark_bar().encode(x="x:O", y="y:Q"), alt_text="Bars.")


def frame() -> pl.DataFrame:
    return pl.DataFrame({"x": [1, 2, 3], "y": [0.1, 2 / 3, 1e9]})


def digests(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def python(source: str, *arguments: object, **environment: str) -> list[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-c", source, *map(str, arguments)]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.splitlines()


# --- bytes ---


def test_the_five_files(tmp_path: Path) -> None:
    written = save(chart(), frame(), tmp_path / "new" / "fig1", PROVENANCE)
    assert written == [tmp_path / "new" / f"fig1{suffix}" for suffix in SUFFIXES]
    assert sorted(tmp_path.joinpath("new").iterdir()) == sorted(written)
    assert written[0].read_text().startswith("<svg")
    assert written[2].read_bytes().startswith(b"\x89PNG")
    assert written[3].read_text() == "x,y\n1,0.1\n2,0.666667\n3,1e+09\n"
    assert json.loads(written[4].read_text()) == {"figure": "fig1", **PROVENANCE}


def test_the_pdf_has_the_printed_size_and_embedded_fonts(tmp_path: Path) -> None:
    _, pdf, *_ = save(chart(), frame(), tmp_path / "fig1", PROVENANCE)
    with pikepdf.open(pdf) as document:
        (page,) = document.pages
        assert [float(edge) for edge in page.MediaBox] == [0, 0, 240, 144]
        fonts = list(page.Resources.Font.values())
        assert fonts
        for font in fonts:
            assert "LiberationSans" in str(font.BaseFont)
            assert "/FontFile2" in font.DescendantFonts[0].FontDescriptor


def test_processes_with_other_hash_seeds_and_another_order_write_the_same_bytes(tmp_path: Path) -> None:
    loop = "for name in sys.argv[2:]: save(charts[name], frame, Path(sys.argv[1]) / name, provenance)"
    orders = [("many", "plain"), ("plain", "many", "many")]
    seen = []
    for seed, names in enumerate(orders):
        python(DRAW + loop, tmp_path / str(seed), *names, PYTHONHASHSEED=str(seed))
        seen.append(digests(tmp_path / str(seed)))
    assert len(seen[0]) == 10
    assert seen[0] == seen[1]


def test_pdf_objects_are_put_in_order(tmp_path: Path) -> None:
    scope: dict[str, Any] = {}
    exec(DRAW, scope)
    save(scope["charts"]["many"], scope["frame"], tmp_path / "many", PROVENANCE)
    pdf = (tmp_path / "many.pdf").read_bytes()
    svg = (tmp_path / "many.svg").read_text()
    assert len({hashlib.sha256(vl_convert.svg_to_pdf(svg)).hexdigest() for _ in range(12)}) > 1, (
        "nothing to put in order"
    )
    assert {_pdf(svg) for _ in range(24)} == {pdf}


# --- rows ---


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**63), 2**63 - 1))
def test_floats_have_six_digits_and_integers_all(
    tmp_path_factory: pytest.TempPathFactory, real: float, whole: int
) -> None:
    rows = list(csv.DictReader(io.StringIO(_csv(pl.DataFrame({"real": [real], "whole": [whole]}), "fig"))))
    assert int(rows[0]["whole"]) == whole
    assert math.isclose(float(rows[0]["real"]), real, rel_tol=5.1e-6)
    assert len(re.sub(r"e.*|\D", "", rows[0]["real"]).lstrip("0")) <= 6


def test_values_that_are_not_numbers(tmp_path: Path) -> None:
    rows = pl.DataFrame(
        {
            "a": [None, 'x,"y"\nz'],
            "b": [True, None],
            "c": [float("nan"), float("inf")],
            "d": [-0.0, None],
            "e": [1, None],
        }
    )
    text = save(chart(), rows, tmp_path / "fig", PROVENANCE)[3].read_text()
    assert text == 'a,b,c,d,e\n,true,nan,0,1\n"x,""y""\nz",,inf,,\n'


# --- refusals: one sentence that names the value, and nothing written ---


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (pl.DataFrame({"x": []}), "expected plotted rows, found an empty frame"),
        (pl.DataFrame({"x": range(5_001)}), "expected at most 5,000 rows in one chart, found 5,001"),
        (pl.DataFrame({"x": [[1, 2]]}), r"fig, column 'x': expected plain values in plotted rows, found List"),
    ],
)
def test_rows_that_cannot_be_plotted(tmp_path: Path, rows: pl.DataFrame, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        save(chart(), rows, tmp_path / "fig", PROVENANCE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("drawing", "message"),
    [
        (lambda base: base.mark_point(opacity=0.5), 'expected opaque marks, found opacity="0.5"'),
        (lambda base: base.mark_bar(color="rgba(0,0,0,0.2)"), 'expected opaque marks, found "rgba'),
        (lambda base: base.mark_bar().properties(title="5 µs"), "expected ASCII text in a figure, found .*5 µs"),
        (lambda base: base.mark_bar().properties(width=700), r"expected a chart of at most 7.0 in, found 8\.\d+ in"),
    ],
)
def test_drawings_that_would_not_print(tmp_path: Path, drawing: Any, message: str) -> None:
    base = alt.Chart(frame()).encode(x="x:O", y="y:Q")
    with pytest.raises(UsageError, match=message):
        save(drawing(base), frame(), tmp_path / "fig", PROVENANCE)
    assert list(tmp_path.iterdir()) == []


def test_provenance_that_is_incomplete_or_not_plain(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="found no code_sha256, versions"):
        save(chart(), frame(), tmp_path / "fig", {"raw": {}, "parameters": {}})
    with pytest.raises(UsageError, match="expected provenance of plain JSON values"):
        save(chart(), frame(), tmp_path / "fig", PROVENANCE | {"parameters": {"when": Path("x")}})
    with pytest.raises(UsageError, match="expected provenance of plain JSON values"):
        save(chart(), frame(), tmp_path / "fig", PROVENANCE | {"parameters": {"x": math.nan}})
    assert list(tmp_path.iterdir()) == []


# --- whole files ---


def test_an_error_between_renames_leaves_whole_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(chart(), frame(), tmp_path / "fig", PROVENANCE)
    before = digests(tmp_path)
    rename = os.replace

    def fail_at_csv(source: Path, target: Path) -> None:
        if target.suffix == ".csv":
            raise OSError("disk full")
        rename(source, target)

    monkeypatch.setattr(os, "replace", fail_at_csv)
    with pytest.raises(OSError, match="disk full"):
        save(chart(), frame().head(2), tmp_path / "fig", PROVENANCE | {"parameters": {"seed": 2}})
    after = digests(tmp_path)
    assert sorted(after) == sorted(before), "no temporary file stays"
    assert after["fig.json"] == before["fig.json"], "the JSON comes last: the set is marked as old"


def test_a_kill_leaves_whole_files_and_the_next_save_cleans_up(tmp_path: Path) -> None:
    loop = """
for i in range(10_000):
    seed = provenance | {"parameters": {"seed": i % 2}}
    save(charts["plain"], frame.head(1 + i % 2), Path(sys.argv[1]) / "plain", seed)
    if i == 1: print("ready", flush=True)
"""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        command = [sys.executable, "-c", DRAW + loop, str(tmp_path)]
        process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        pikepdf.open(tmp_path / "plain.pdf").close()
        assert (tmp_path / "plain.svg").read_text().rstrip().endswith("</svg>")
        assert (tmp_path / "plain.png").read_bytes().endswith(b"IEND\xaeB`\x82")
        assert len((tmp_path / "plain.csv").read_text().splitlines()) in (2, 3)
        assert json.loads((tmp_path / "plain.json").read_text())["parameters"]["seed"] in (0, 1)
    dead = tmp_path / f".plain.{process.pid}.partial"
    dead.mkdir(exist_ok=True)
    save(chart(), frame(), tmp_path / "plain", PROVENANCE)
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(f"plain{suffix}" for suffix in SUFFIXES)


# --- provenance ---


def test_inputs_name_hashes_parameters_code_and_versions_and_no_place_or_time(tmp_path: Path) -> None:
    for name in ("light-1", "light-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(json.dumps({"name": name}))
    record = inputs([tmp_path / "light-2", tmp_path / "light-1"], {"seed": 3, "load": 0.5})
    assert list(record["raw"]) == ["light-1", "light-2"]  # type: ignore[call-overload]
    assert record["parameters"] == {"load": 0.5, "seed": 3}
    assert re.fullmatch(r"[0-9a-f]{64}", str(record["code_sha256"]))
    assert record["versions"]["altair"] == alt.__version__  # type: ignore[index]
    text = json.dumps(record)
    assert str(tmp_path) not in text
    assert str(ROOT) not in text
    save(chart(), frame(), tmp_path / "fig", record)
    first = (tmp_path / "fig.json").read_bytes()
    save(
        chart(),
        frame(),
        tmp_path / "fig",
        inputs([tmp_path / "light-1", tmp_path / "light-2"], {"load": 0.5, "seed": 3}),
    )
    assert (tmp_path / "fig.json").read_bytes() == first


def test_inputs_refuse_a_folder_without_manifest_and_a_name_twice(tmp_path: Path) -> None:
    with pytest.raises(DataIntegrityError, match=r"expected a run folder with a manifest\.json, found none"):
        inputs([tmp_path], {})
    for place in ("a", "b"):
        (tmp_path / place / "run").mkdir(parents=True)
        (tmp_path / place / "run" / "manifest.json").write_text("{}")
    with pytest.raises(UsageError, match="found 'run' twice"):
        inputs([tmp_path / "a" / "run", tmp_path / "b" / "run"], {})


def test_the_svg_is_what_the_notebook_shows(tmp_path: Path) -> None:
    (svg, *_) = save(chart(), frame(), tmp_path / "fig", PROVENANCE)
    assert svg.read_text() == renderer.to_svg(theme.specification(chart())) + "\n"
