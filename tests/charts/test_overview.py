"""The overview: what it draws, what it refuses, and that a brush and a click lead to a timeline in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import vl_convert

from workbench.charts import renderer, save, theme
from workbench.charts.overview import LIST_ROWS, STATUS_COLORS, overview
from workbench.errors import UsageError
from workbench.schema.enums import OUTCOME_STATUS

STAGES = ["client", "thinker", "talker"]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), "")


def points(count: int = 40, **changes: Any) -> pl.DataFrame:
    rows = [
        {
            "request": k,
            "class": ["short", "long"][k % 2],
            "status": "error" if k % 9 == 8 else "ok",
            "arrival_s": k / 10,
            "latency_s": 1 + (k * 7 % 40) / 10,
            "mostly": f"thinker queue {k} %",
            "has_timeline": k % 3 != 0,
            **changes,
        }
        for k in range(count)
    ]
    return pl.DataFrame(rows)


def intervals(requests: pl.DataFrame) -> pl.DataFrame:
    rows: list[dict[str, Any]] = []
    for request in requests.filter("has_timeline")["request"]:
        end = 10.0 + request
        for stage in STAGES[1:]:
            for kind in ("queue", "service"):
                rows.append(
                    {"request": request, "stage": stage, "kind": kind, "start_ms": end, "end_ms": end + 5, "joined": 2}
                )
                end += 5
        rows.append(
            {"request": request, "stage": "client", "kind": None, "start_ms": end, "end_ms": end, "joined": None}
        )
    schema = {"request": pl.Int64, "stage": pl.String, "kind": pl.String, "start_ms": pl.Float64, "end_ms": pl.Float64}
    frame = pl.DataFrame(rows, schema={**schema, "joined": pl.Int64})
    return frame.with_columns(what=pl.when(pl.col("kind").is_null()).then(pl.lit("first output")))


def drawn(requests: pl.DataFrame, **options: Any) -> dict[str, Any]:
    chart, _ = overview(requests, intervals(requests), stages=STAGES, latency_title="latency (s)", **options)
    return theme.specification(chart)


def test_rows_are_given_back_and_bounded() -> None:
    requests = points()
    bars = intervals(requests)
    _, frame = overview(requests, bars, stages=STAGES, latency_title="latency (s)")
    assert frame.height == requests.height + bars.height
    assert frame["latency_s"].drop_nulls().to_list() == sorted(requests["latency_s"], reverse=True)
    with pytest.raises(UsageError, match="at most 5,000 rows"):
        overview(points(4990), bars, stages=STAGES, latency_title="latency (s)")


def test_every_status_has_a_color() -> None:
    assert set(STATUS_COLORS) == set(OUTCOME_STATUS)


def test_the_slowest_listed_request_is_picked_at_first() -> None:
    requests = points()
    slowest = requests.filter("has_timeline").sort("latency_s", "request", descending=[True, False])["request"][0]
    assert {"request": slowest} in [entry for param in parameters(drawn(requests)) for entry in param.get("value", [])]
    assert {"request": 4} in [
        entry for param in parameters(drawn(requests, picked=4)) for entry in param.get("value", [])
    ]


def parameters(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec.get("params", []))


def test_a_picture_of_it_shows_list_and_timeline() -> None:
    svg = renderer.to_svg(drawn(points(), notes=("A note.",), title="Run x"))
    for words in ("Run x", "A note.", "time since scheduled arrival (ms)", "mostly", "thinker queue"):
        assert words in svg
    assert len(re.findall(r">thinker queue \d+ %<", svg)) == LIST_ROWS


def test_it_can_be_saved_as_a_figure(tmp_path: Path) -> None:
    requests = points()
    chart, frame = overview(requests, intervals(requests), stages=STAGES, latency_title="latency (s)")
    provenance = {"raw": {}, "parameters": {}, "code_sha256": "0", "versions": {}}
    assert len(save(chart, frame, tmp_path / "overview", provenance)) == 5


def test_without_requests_or_timelines_it_is_still_a_chart() -> None:
    for requests in (points(3, has_timeline=False), points(1).clear()):
        assert renderer.to_svg(drawn(requests)).startswith("<svg")


def test_hostile_text_is_text() -> None:
    requests = points(5, **{"class": "<script>alert(1)</script>", "mostly": '"><img src=x onerror=alert(2)>'})
    svg = renderer.to_svg(drawn(requests))
    assert "<script" not in svg
    assert "<img" not in svg


DRIVE = """
vegaEmbed('#vega-chart', spec, opts).then(async ({view}) => {
  const svg = document.querySelector('#vega-chart svg'), box = svg.getBoundingClientRect();
  const pause = () => new Promise(done => setTimeout(done, 60));
  const fire = (x, y, names) => {
    const target = document.elementFromPoint(x, y) || svg;
    for (const name of names) {
      const Kind = name.startsWith('pointer') ? PointerEvent : MouseEvent;
      const buttons = name.endsWith('up') ? 0 : 1;
      target.dispatchEvent(new Kind(name, {bubbles: true, clientX: x, clientY: y, view: window, buttons}));
    }
  };
  const listed = () => [...svg.querySelectorAll('.mark-text.role-mark text')].map(t => t.textContent)
    .filter(t => t.startsWith('thinker queue')).map(t => Number(t.split(' ')[2]));
  const bars = () => [...svg.querySelectorAll('path[aria-label*="start_ms"], path[aria-label*="time since"]')]
    .map(p => p.getAttribute('aria-label'));
  const state = () => ({listed: listed(), picked: view.data('pick_store').map(t => t.values[0]), bars: bars()});
  const log = [state()];
  const frame = svg.querySelector('.mark-symbol.role-mark').getBoundingClientRect();
  let [x0, y0, x1, y1] = [frame.x + frame.width * .45, frame.y + frame.height * .3, frame.right, frame.bottom];
  fire(x0, y0, ['pointerdown', 'mousedown']); await pause();
  fire((x0 + x1) / 2, (y0 + y1) / 2, ['pointermove', 'mousemove']); await pause();
  fire(x1, y1, ['pointermove', 'mousemove']); await pause();
  fire(x1, y1, ['pointerup', 'mouseup', 'click']); await pause();
  log.push(state());
  const texts = [...svg.querySelectorAll('.mark-text.role-mark text')];
  const row = texts.filter(t => t.textContent.startsWith('thinker queue'))[2];
  const at = row.getBoundingClientRect();
  fire(at.x + 4, at.y + 4, ['pointerdown', 'mousedown', 'pointerup', 'mouseup', 'click']); await pause();
  log.push(state());
  document.title = 'done';
  const note = Object.assign(document.createElement('pre'), {id: 'log', textContent: JSON.stringify(log)});
  document.body.appendChild(note);
}).catch(error => document.body.appendChild(document.createTextNode('FAILED ' + error)));
"""


@pytest.mark.chromium
def test_a_brush_lists_and_a_click_shows_the_timeline(tmp_path: Path) -> None:
    """With the Vega-Lite 5 that JupyterLab draws with, in a page of its own that cannot reach a network."""
    spec = drawn(points()) | {"$schema": renderer.VEGALITE_SCHEMA}
    html = vl_convert.vegalite_to_html(spec, vl_version="5.21", bundle=True, renderer="svg")
    start = "vegaEmbed('#vega-chart', spec, opts).catch(console.error);"
    assert start in html
    page = tmp_path / "page.html"
    page.write_text(html.replace(start, DRIVE))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    log = re.search(r'<pre id="log">(.*?)</pre>', done.stdout, re.DOTALL)
    assert log, done.stdout[-500:] + done.stderr[-500:]
    start_state, brushed, clicked = json.loads(log[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))
    assert len(start_state["listed"]) == LIST_ROWS
    assert len(start_state["picked"]) == 1
    assert set(brushed["listed"]) != set(start_state["listed"])
    inside = set(points().filter(pl.col("arrival_s") > 1.5)["request"])
    assert set(brushed["listed"]) <= inside, "only requests of the brushed arrivals are listed"
    assert brushed["picked"] == start_state["picked"]
    assert clicked["picked"] == [clicked["listed"][2]] != start_state["picked"]
    assert clicked["bars"] != start_state["bars"]
