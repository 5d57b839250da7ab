"""The live page in a real browser, headless: a running load, a promotion, no complaint."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from distributed.utils_test import gen_test

from elastic_dit.cluster.plane.store_host import StoreHost
from elastic_dit.config import Config
from elastic_dit.control import actions
from elastic_dit.control.dispatch import register_dispatch
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.engine.fake_group import FakeGroups
from tests.cluster.conditions import eventually
from tests.cluster.scripted import Scripted
from tests.cluster.serving import QUICK, connect, prompts, serving

BROWSER = next(
    filter(None, map(shutil.which, ("chromium-headless-shell", "chromium", "google-chrome"))), None
)
playwright = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH"),
]

STEPS, STEP_S = 100, 1.5  # longer than the test, whatever else the machine does
PATIENCE_MS, PERIOD_S = 60_000, 0.1

register_dispatch("scripted in a browser", Scripted)
CONFIG = Config.parse(
    {
        **QUICK.model_dump(),
        "control": {**QUICK.control.model_dump(), "dispatch": "scripted in a browser"},
        "placement": {"policy": "colocated"},
    }
)

# What the page says of the present, and what its twin does; both static while nothing ends.
AGREES = """async () => {
  const number = (id) => parseInt(document.getElementById(id).textContent)
  const board = await (await fetch("elastic-dit.json")).json()
  const now = board.summary
  const rows = [...document.querySelectorAll("#requests tbody tr")].map(
    (row) => row.dataset.request)
  const tiles = [...document.querySelectorAll("#gpus .gpu")].map((tile) => tile.dataset.gpu)
  const shown = {
    busy: number("busy"), running: number("running"), waiting: number("waiting"),
    completed: number("completed"), failed: number("failed"), rows, tiles,
    working: [...document.querySelectorAll("#ratio tbody tr")].map(
      (row) => parseInt(row.lastElementChild.textContent)),
    decision: document.querySelector("#decisions .what").textContent,
  }
  const told = {
    busy: now.busy, running: now.running, waiting: now.waiting,
    completed: now.completed, failed: now.failed,
    rows: board.requests.map((request) => request.request_id),
    tiles: board.gpus.map((gpu) => String(gpu.gpu)),
    working: board.ratio.map((stage) => stage.working),
    decision: board.decisions[0].what,
  }
  return JSON.stringify(shown) === JSON.stringify(told) ? shown : null
}"""
# Promotions among the triangles that the browser holds.
PROMOTIONS = """() => {
  const timeline = Bokeh.documents[0].get_model_by_name("timeline")
  const sources = timeline.renderers.map((renderer) => renderer.data_source)
  const marks = sources.find((source) => "what" in Object.fromEntries(Object.entries(source.data)))
  return marks ? [...marks.data.what].filter((what) => what === "promotion").length : 0
}"""


@contextlib.asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A page that is live, and what it complained of."""
    complaints: list[str] = []
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        page = await browser.new_page(viewport={"width": 1440, "height": 900}, **options)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console",
            lambda said: complaints.append(said.text) if said.type in ("error", "warning") else 0,
        )
        await page.goto(url, timeout=PATIENCE_MS)
        await page.wait_for_selector("body[data-live=yes]", timeout=PATIENCE_MS)
        try:
            yield page, complaints
        finally:
            await browser.close()


async def found(page: Any, script: str, wanted: Callable[[Any], object] = bool) -> Any:
    """What a script gives as soon as it is what is wanted."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not ((value := await page.evaluate(script)) and wanted(value)):
        assert time.monotonic() < deadline, f"{value} within {PATIENCE_MS} ms of {script}"
        await asyncio.sleep(PERIOD_S)
    return value


@pytest.mark.timeout(180)
@gen_test(timeout=150)
async def test_shows_a_running_load_and_a_promotion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreHost, "open", lambda self: None)  # fake engines meet without one
    groups = FakeGroups()

    def make() -> FakeEngine:
        return FakeEngine(seconds=FakeSeconds(step=STEP_S), groups=groups)

    shown = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}
    async with serving(2, config=CONFIG, make=make, **shown) as cluster, connect(cluster) as client:
        reactor = cluster.control.reactor
        reactor.meet_at("nowhere:1")
        await eventually(lambda: all(len(gpu.resident) == 3 for gpu in reactor.controller.pool))
        first = await client.submit("a circle", request_id="r", num_inference_steps=STEPS)
        await eventually(lambda: first.progress().step >= 1)
        async with opened(client.dashboard_link, color_scheme="dark") as (page, complaints):
            assert await page.evaluate(PROMOTIONS) == 0
            reactor.controller.dispatch.orders.append(actions.Resize("r", (0, 1), "as told"))
            reactor.tick()
            assert await found(page, PROMOTIONS) == 1
            futures = [first, *await client.map(prompts(3))]
            table = reactor.controller.table
            await eventually(lambda: table.waiting == 3)
            numbers = await found(page, AGREES, lambda shown: shown["waiting"] == 3)
            assert (numbers["busy"], numbers["running"], numbers["waiting"]) == (2, 1, 3)
            assert numbers["rows"] == [future.key for future in futures]
            assert numbers["tiles"] == ["0", "1"]
            assert numbers["working"] == [0, 2, 0]
            theme = "document.documentElement.dataset.theme"
            assert await page.evaluate(theme) == "dark"
            await page.click("#theme")  # auto, then light
            assert await page.evaluate(theme) == "light"
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert await page.evaluate(wider) <= 0
            assert complaints == []
        for future in futures:
            await future.cancel()
        await cluster.is_clean()
