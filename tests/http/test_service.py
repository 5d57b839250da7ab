"""Models, health, readiness, metrics, keys, request ids, logs."""

from __future__ import annotations

import json
import logging

import pytest

from elastic_dit.errors import ConfigError
from elastic_dit.http.app import make_app
from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.keys import KEYS_VARIABLE, ApiKeys
from elastic_dit.http.logs import JsonLines
from elastic_dit.http.server import Place, bind, check_exposure
from tests.http.asgi import KEY, api, run

FORM = {"prompt": "a red ring"}


# ---------------------------------------------------------------------------------- operation
def test_alive_is_not_ready():
    async def main():
        desk = FakeDesk(cards=())
        async with api(desk) as client:
            for desk.unreachable in (False, True):
                assert (await client.get("/health")).json() == {"status": "alive"}
                answer = await client.get("/ready")
                assert (answer.status_code, answer.json()["status"]) == (503, "not_ready")
            assert "did not answer" in answer.json()["message"]
        async with api(FakeDesk()) as client:
            answer = await client.get("/ready")
            assert (answer.status_code, answer.json()["models"]) == (200, ["fake"])

    run(main())


def test_models():
    async def main():
        async with api(FakeDesk()) as client:
            listed = (await client.get("/v1/models")).json()
            assert [model["id"] for model in listed["data"]] == ["fake"]
            one = (await client.get("/v1/models/fake")).json()
            assert one == listed["data"][0]
            assert one["card"]["max_frames"] == 17
            assert (await client.get("/v1/models/sora-2")).status_code == 404

    run(main())


def test_metrics_count_answers_by_route_and_outlive_the_cluster():
    async def main():
        desk = FakeDesk()
        async with api(desk) as client:
            for name in ("a", "b"):
                await client.get(f"/v1/videos/video_{name}")
            await client.get("/nowhere/at/all")
            text = (await client.get("/metrics")).text
            labels = 'method="GET",route="/v1/videos/{video_id}",status="404"'
            assert f"elastic_dit_http_requests_total{{{labels}}} 2.0" in text
            assert 'route="unknown",status="404"} 1.0' in text
            assert "elastic_dit_http_requests_open 1.0" in text
            assert "elastic_dit_cluster_up 1.0" in text
            desk.unreachable = True
            assert "elastic_dit_cluster_up 0.0" in (await client.get("/metrics")).text

    run(main())


def test_other_sites_may_not_use_it():
    async def main():
        async with api(FakeDesk()) as client:
            answer = await client.options(
                "/v1/videos",
                headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"},
            )
            assert answer.status_code == 405
            assert not [name for name in answer.headers if name.startswith("access-control")]

    run(main())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-origin", "Origin": "https://public.example"}, 200),
        ({"Origin": "http://test"}, 200),
        ({}, 200),
    ],
)
def test_a_form_of_another_sites_page_makes_no_job(headers, status):
    async def main():
        desk = FakeDesk()
        async with api(desk) as client:
            answer = await client.post("/v1/videos", data=FORM, headers=headers)
            assert answer.status_code == status
            assert len(desk._jobs) == (status == 200)
            if status == 403:
                assert answer.json()["error"]["code"] == "cross_site"
            assert (await client.get("/v1/videos", headers=headers)).status_code == 200
        async with api(desk, keys=ApiKeys([KEY])) as client:
            with_key = {**headers, "Authorization": f"Bearer {KEY}"}
            answer = await client.post("/v1/videos", data=FORM, headers=with_key)
            assert answer.status_code == 200

    run(main())


def test_methods_of_strangers_are_counted_as_one():
    async def main():
        async with api(FakeDesk()) as client:
            for method in ("BREW", "PROPFIND"):
                assert (await client.request(method, "/v1/videos")).status_code == 405
            text = (await client.get("/metrics")).text
            assert 'method="other",route="/v1/videos",status="405"} 2.0' in text
            assert "BREW" not in text

    run(main())


def test_an_error_that_nobody_foresaw_is_told_without_its_details():
    async def main():
        desk = FakeDesk()
        desk.models = None  # type: ignore[assignment]
        async with api(desk) as client:
            answer = await client.get("/v1/models")
            assert answer.status_code == 500
            assert answer.json()["error"]["code"] == "internal_error"
            assert "NoneType" not in answer.text

    run(main())


# --------------------------------------------------------------------------------------- keys
@pytest.mark.parametrize(
    "headers",
    [{}, {"Authorization": f"Bearer {KEY}x"}, {"Authorization": f"Basic {KEY}"},
     {"Authorization": "Bearer"}, {"Authorization": "Bearer \xff"}],
)  # fmt: skip
def test_without_a_good_key_nothing_but_operation_opens(headers):
    async def main():
        async with api(FakeDesk(), keys=ApiKeys([KEY])) as client:
            raw = {name: value.encode("latin-1") for name, value in headers.items()}
            for method, path in (("GET", "/v1/videos"), ("POST", "/v1/videos"),
                                 ("GET", "/v1/models"), ("POST", "/v1/images/generations"),
                                 ("GET", "/v1/images/img_a/content")):  # fmt: skip
                answer = await client.request(method, path, headers=raw)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["error"]["code"] == "invalid_api_key"
            for path in ("/health", "/ready", "/metrics", "/openapi.json"):
                assert (await client.get(path)).status_code == 200

    run(main())


def test_keys_come_from_a_file_and_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "keys"
    file.write_text("# ours\nsk-in-the-file  # Ann's\n\n")
    monkeypatch.setenv(KEYS_VARIABLE, "sk-of-the-environment, sk-another-one")
    keys = ApiKeys.load(str(file))
    assert len(keys) == 3
    owners = {keys.owner(key) for key in ("sk-in-the-file", "sk-another-one")}
    assert len(owners) == 2
    assert None not in owners
    assert "sk-" not in repr(keys)


@pytest.mark.parametrize("content", ["", "# none\n", "short\n", "with space in it\n", None])
def test_what_is_no_file_of_keys(content, tmp_path):
    file = tmp_path / "keys"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigError, match="must be"):
        ApiKeys.load(str(file))


def test_it_is_shown_to_the_world_on_purpose_only():
    nobody, somebody = ApiKeys([]), ApiKeys([KEY])
    check_exposure("127.0.0.1", nobody, allow_anonymous=False)
    check_exposure("0.0.0.0", somebody, allow_anonymous=False)
    check_exposure("0.0.0.0", nobody, allow_anonymous=True)
    for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-3"):
        with pytest.raises(ConfigError, match="--api-key-file"):
            check_exposure(host, nobody, allow_anonymous=False)


def test_a_taken_port_is_said_and_no_other_taken():
    with bind(Place(host="127.0.0.1", port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            bind(Place(host="127.0.0.1", port=port))
    with pytest.raises(ConfigError, match="of this machine"):
        bind(Place(host="192.0.2.1", port=0))


# --------------------------------------------------------------------------- ids and log lines
def test_a_request_keeps_its_id_through_answer_and_log(caplog):
    async def main():
        async with api(FakeDesk()) as client:
            with caplog.at_level(logging.INFO, logger="elastic_dit.access"):
                answer = await client.get("/v1/models", headers={"X-Request-Id": "from.proxy-1"})
            assert answer.headers["x-request-id"] == "from.proxy-1"
            forged = await client.get("/health", headers={"X-Request-Id": "a b\tc"})
            assert forged.headers["x-request-id"].startswith("req-")

    run(main())
    [record] = [each for each in caplog.records if each.name == "elastic_dit.access"]
    assert record.facts["path"] == "/v1/models"


def test_log_lines_are_objects(caplog):
    lines: list[dict] = []

    class Lines(logging.Handler):
        def emit(self, record):
            lines.append(json.loads(self.format(record)))

    handler = Lines()
    handler.setFormatter(JsonLines())
    logger = logging.getLogger("elastic_dit")
    logger.addHandler(handler)

    async def main():
        desk = FakeDesk()
        desk.models = None  # type: ignore[assignment]
        async with api(desk) as client:
            await client.get("/v1/models%1B?a=1", headers={"X-Request-Id": "one"})
            await client.get("/v1/models", headers={"X-Request-Id": "two"})

    try:
        with caplog.at_level(logging.INFO, logger="elastic_dit"):
            run(main())
    finally:
        logger.removeHandler(handler)
    assert [(line["request_id"], line["level"]) for line in lines] == [
        ("one", "info"), ("two", "error"), ("two", "info"),
    ]  # fmt: skip
    assert "Traceback" in lines[1]["error"]
    assert (lines[2]["status"], lines[2]["method"], lines[2]["path"]) == (500, "GET", "/v1/models")
    assert lines[2]["duration_s"] > 0


def test_the_published_document_names_every_route_and_both_bodies():
    app = make_app(FakeDesk()).app
    document = app.openapi()
    assert {
        "/v1/videos", "/v1/videos/{video_id}", "/v1/videos/{video_id}/content",
        "/v1/videos/{video_id}/events", "/v1/videos/{video_id}/cancel",
        "/v1/images/generations", "/v1/images/{image_id}/content",
        "/v1/models", "/v1/models/{model}", "/health", "/ready", "/metrics",
    } == set(document["paths"])  # fmt: skip
    content = document["paths"]["/v1/videos"]["post"]["requestBody"]["content"]
    assert set(content) == {"application/json", "multipart/form-data"}
    text = json.dumps(document)
    named = {part.partition('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])
    assert '"422"' not in text
