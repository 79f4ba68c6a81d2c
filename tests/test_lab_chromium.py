"""A chart in JupyterLab, offline, in a real browser: it is drawn, it answers a brush, nothing leaves the machine."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench import notebook_form
from workbench.notebook import run_notebooks

ROOT = Path(__file__).parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DEADLINE_S = 120
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--window-size=1300,900",
    # Any name but this machine's own fails at once, so a page that needs the network cannot pass by luck.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
]

PARAMETERS = 'tier: str = "full"  # how much\nfigures: str = "figures"  # where figures go'
DRAW = """
import altair as alt
import polars as pl
from workbench.charts import enable, figure
from workbench.charts.theme import MUTED, PAGE_IN, stage_scale

enable()
stages = ["thinker", "talker", "code2wav"]
frame = pl.DataFrame({"t_ms": list(range(60)), "wait_ms": [i * 37 % 23 for i in range(60)], "stage": stages * 20})
brush = alt.selection_interval(encodings=["x"], name="brush")
color = alt.Color("stage:N", scale=stage_scale(stages), title=None)
bars = alt.Chart(frame).mark_bar(size=5).encode(x="t_ms:Q", y="wait_ms:Q").add_params(brush)
bars = bars.encode(color=alt.when(brush).then(color).otherwise(alt.value(MUTED)))
figure(bars, width_in=PAGE_IN, title="Waits", alt_text="Waits of sixty requests.")
"""

CANVAS = """(() => {
  const canvas = document.querySelector('.jp-OutputArea-output .vega-embed canvas.marks');
  if (!canvas) return null;
  canvas.scrollIntoView({block: 'center'});
  const box = canvas.getBoundingClientRect();
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colors = new Set();
  for (let i = 0; i < pixels.length; i += 4) colors.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
  return {x: box.x, y: box.y, width: box.width, height: box.height,
          drawn: [0x0072B2, 0xE69F00, 0x009E73].filter(c => colors.has(c)).length, image: canvas.toDataURL()};
})()"""
OUTPUT_TEXT = "Array.from(document.querySelectorAll('.jp-OutputArea-output')).map(e => e.innerText).join('\\n')"


class Browser:
    """A page of a headless Chromium, over its DevTools socket."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.requests: list[str] = []
        self.exceptions: list[str] = []
        self.sent = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.sent += 1
        await self.connection.write_message(json.dumps({"id": self.sent, "method": method, "params": parameters}))
        while True:
            text = await asyncio.wait_for(self.connection.read_message(), DEADLINE_S)
            assert text is not None, "Chromium closed the connection"
            message: dict[str, Any] = json.loads(text)
            if message.get("method") == "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            elif message.get("method") == "Network.webSocketCreated":
                self.requests.append(message["params"]["url"])
            elif message.get("method") == "Runtime.exceptionThrown":
                self.exceptions.append(json.dumps(message["params"]["exceptionDetails"])[:500])
            elif message.get("id") == self.sent:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def evaluate(self, expression: str) -> Any:
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Evaluate until the value is truthy; a timeout shows what the page says instead."""
        end = time.monotonic() + DEADLINE_S
        while not (value := await self.evaluate(expression)):
            if time.monotonic() > end:
                page = await self.evaluate("document.body.innerText")
                pytest.fail(f"nothing matched within {DEADLINE_S} s; the page says: {page!r}; {self.exceptions}")
            await asyncio.sleep(0.2)
        return value

    async def drag(self, x0: float, x1: float, y: float) -> None:
        for kind, x, buttons in (
            ("mouseMoved", x0, 0),
            ("mousePressed", x0, 1),
            ("mouseMoved", (x0 + x1) / 2, 1),
            ("mouseMoved", x1, 1),
            ("mouseReleased", x1, 0),
        ):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=buttons, clickCount=1
            )

    async def screenshot(self, path: Path) -> None:
        shot = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def started(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process group that is gone afterwards."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(ready: Any, process: subprocess.Popen[bytes], log: Path) -> Any:
    """Poll `ready` until it gives a value, the process ends or the time is up."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            return ready()
        time.sleep(0.1)
    pytest.fail(f"not ready ({process.poll()}): {log.read_text(errors='replace')[-2000:]}")


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an executed notebook whose output is one interactive chart."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    project = tmp_path / "project"
    (project / "notebooks").mkdir(parents=True)
    cells = [
        {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": PARAMETERS},
        {"cell_type": "code", "metadata": {}, "source": DRAW},
        {"cell_type": "code", "metadata": {}, "source": "assert frame.height == 60"},
    ]
    source = project / "notebooks" / "chart.ipynb"
    source.write_text(notebook_form.dumps(notebook_form.normalized({"cells": cells})))
    (result,) = run_notebooks(root=project, progress=lambda line: None)
    assert result.status == "ran", result.message
    return result.notebook.parent


@pytest.mark.chromium
def test_an_executed_chart_is_drawn_and_answers_a_brush_offline(executed: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"HOME": str(tmp_path / "home"), "JUPYTER_NO_CONFIG": "1", "XDG_CONFIG_HOME": ""}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        environment[name] = str(tmp_path / name.lower())
    (tmp_path / "home").mkdir()
    lab = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"),
        *(f"--ServerApp.port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={executed}"),
        *("--IdentityProvider.token=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"),
    ]
    profile = tmp_path / "profile"
    browser = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    lab_log, browser_log = tmp_path / "lab.log", tmp_path / "chromium.log"
    with (
        started(lab, lab_log, environment) as lab_process,
        started(browser, browser_log, environment) as browser_process,
    ):
        wait_for(lambda: fetch(f"http://127.0.0.1:{port}/api"), lab_process, lab_log)
        devtools = wait_for(
            lambda: int((profile / "DevToolsActivePort").read_text().splitlines()[0]), browser_process, browser_log
        )
        asyncio.run(look(devtools, f"http://127.0.0.1:{port}/lab/tree/chart.ipynb", tmp_path))


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.loads(answer.read())


async def look(devtools: int, url: str, out: Path) -> None:
    from tornado.websocket import websocket_connect

    target = next(page for page in fetch(f"http://127.0.0.1:{devtools}/json/list") if page["type"] == "page")
    connection = await websocket_connect(target["webSocketDebuggerUrl"], max_message_size=1 << 28)
    browser = Browser(connection)
    for domain in ("Network", "Page", "Runtime"):
        await browser.call(f"{domain}.enable")
    await browser.call("Page.navigate", url=url)

    await browser.until(f"({CANVAS} || {{}}).drawn === 3")
    before = await browser.evaluate(CANVAS)
    await browser.screenshot(out / "drawn.png")
    text = await browser.evaluate(OUTPUT_TEXT)
    assert before["width"] > 500, before
    assert before["height"] > 150, before
    assert "error" not in text.lower(), text

    middle = before["y"] + before["height"] / 2
    await browser.drag(before["x"] + 150, before["x"] + 300, middle)
    await browser.until(f"{CANVAS}.image !== {json.dumps(before['image'])}")
    await browser.screenshot(out / "brushed.png")

    hosts = {urllib.parse.urlsplit(request).hostname for request in browser.requests} - {None}
    assert hosts == {"127.0.0.1"}, hosts
    assert browser.exceptions == []
    connection.close()
