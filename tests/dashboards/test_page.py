"""The page and its twin on a real scheduler's HTTP server."""

from __future__ import annotations

import json
import re

import pytest
from distributed.utils_test import gen_test
from tornado.httpclient import AsyncHTTPClient, HTTPResponse

from elastic_dit.dashboards.link import JSON_PAGE, PAGE, page_link
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from tests.cluster.conditions import eventually
from tests.cluster.serving import Cluster, connect, prompts, serving

pytestmark = pytest.mark.cluster

SHOWN = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}


async def fetch(cluster: Cluster, path: str, **options: object) -> HTTPResponse:
    url = f"http://127.0.0.1:{cluster.scheduler.http_server.port}{path}"
    return await AsyncHTTPClient().fetch(url, request_timeout=30, raise_error=False, **options)


@gen_test()
async def test_page_link_and_twin() -> None:
    async with serving(2, **SHOWN) as cluster:
        page = await fetch(cluster, f"/{PAGE}")
        assert page.code == 200
        html = page.body.decode()
        for part in ("gpus", "requests", "decisions", "failures", "ratio"):
            assert f'id="{part}"' in html
        assert not re.findall(r"""(?:src|href)=["']/(?!/)""", html)  # works behind any prefix
        status = (await fetch(cluster, "/status")).body.decode()
        assert f'href="{PAGE}"' in status
        twin = await fetch(cluster, f"/{JSON_PAGE}")
        assert (twin.code, twin.headers["Content-Type"].split(";")[0]) == (200, "application/json")
        assert json.loads(twin.body)["summary"]["gpus"] == 2


@gen_test()
async def test_the_twin_agrees_with_the_control_plane() -> None:
    slow = FakeSeconds(step=60.0)
    async with (
        serving(2, make=lambda: FakeEngine(seconds=slow), **SHOWN) as cluster,
        connect(cluster) as client,
    ):
        futures = await client.map(prompts(5))
        table = cluster.control.reactor.controller.table
        await eventually(lambda: [r.phase for r in table.live.values()].count("denoising") == 2)
        await eventually(lambda: cluster.control.dashboard.tick() or table.waiting == 3)
        board = json.loads((await fetch(cluster, f"/{JSON_PAGE}")).body)
        status = await client.status()
        assert board["summary"]["running"] == 2
        assert board["summary"]["waiting"] == sum(q["waiting"] for q in status["queues"]) == 3
        assert {r["request_id"] for r in board["requests"]} == {f.key for f in futures}
        assert [g["request_id"] for g in board["gpus"]] == [g["request_id"] for g in status["gpus"]]
        assert {s["request_id"] for s in board["spans"] if s["end"] is None} == {
            r["request_id"] for r in board["requests"] if r["place"] == -1
        }
        assert client.dashboard_link == page_link(client.dask.dashboard_link)
        assert client.dashboard_link.endswith(f"/{PAGE}")
        for future in futures:
            await future.cancel()
        await cluster.is_clean()


@gen_test()
async def test_behind_a_prefix() -> None:
    async with serving(1, http_prefix="hub/dask", **SHOWN) as cluster:
        for page in (PAGE, JSON_PAGE):
            assert (await fetch(cluster, f"/hub/dask/{page}")).code == 200
        status = (await fetch(cluster, "/hub/dask/status")).body.decode()
        assert f'href="{PAGE}"' in status


@gen_test()
async def test_without_a_dashboard_there_is_the_twin() -> None:
    async with serving(1) as cluster, connect(cluster) as client:
        await (await client.submit("a circle"))
        answer = await fetch(cluster, f"/{PAGE}")  # leads to it
        assert answer.code == 200
        assert answer.effective_url.endswith(f"/{JSON_PAGE}")
        assert json.loads(answer.body)["summary"]["gpus"] == 1


def test_no_dashboard_no_link() -> None:
    assert page_link(None) == page_link("") == ""
