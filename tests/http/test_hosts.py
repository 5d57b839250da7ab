"""Names that a server may be asked by: a page that points its own at it stays out."""

from __future__ import annotations

import pytest

from elastic_dit.http.fake_desk import FakeDesk
from elastic_dit.http.hosts import Hosts
from elastic_dit.http.keys import ApiKeys
from tests.http.asgi import KEY, client_of, living, run

PATHS = ("/health", "/ready", "/metrics", "/openapi.json", "/v1/videos", "/nowhere")


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_on_the_loopback_interface_only_its_own_names_are_answered(address):
    async def main():
        desk = FakeDesk()
        hosts = Hosts.of(address, ApiKeys([]), ["gpu-3.Example"])
        async with living(desk, hosts=hosts) as app, client_of(app) as client:
            for name in ("localhost", "LocalHost", "127.0.0.1", "[::1]", "GPU-3.example"):
                for host in (name, f"{name}:8000"):
                    answer = await client.get("/v1/videos", headers={"Host": host})
                    assert answer.status_code == 200, host
            for host in (
                "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000",
                "evil.example@localhost", "localhost:8000:9", "[::1", "10.0.0.1", "",
            ):  # fmt: skip
                for path in PATHS:
                    answer = await client.get(path, headers={"Host": host})
                    error = answer.json()["error"]
                    assert (answer.status_code, error["code"]) == (403, "unknown_host"), host
                    assert set(error) == {"type", "message", "param", "code"}
                    assert "x-request-id" in answer.headers
            made = await client.post(
                "/v1/videos", json={"prompt": "a"}, headers={"Host": "evil.example"}
            )
            assert (made.status_code, desk._jobs) == (403, {})
            told = (await client.get("/metrics", headers={"Host": "localhost"})).text
            assert 'method="POST",route="unknown",status="403"} 1.0' in told

    run(main())


@pytest.mark.parametrize(
    ("address", "keys", "further", "answered"),
    [
        ("127.0.0.1", (), (), []),
        ("127.0.0.1", (KEY,), (), ["gpu-3", "10.0.0.1", "evil.example"]),
        ("0.0.0.0", (), (), ["gpu-3", "10.0.0.1", "evil.example"]),
        ("gpu-3", (), (), ["gpu-3", "10.0.0.1", "evil.example"]),
        ("10.0.0.1", (), ("gpu-3",), ["gpu-3", "10.0.0.1"]),
        ("127.0.0.1", (KEY,), ("gpu-3",), ["gpu-3"]),
    ],
)
def test_elsewhere_all_names_will_do_until_one_is_given(address, keys, further, answered):
    async def main():
        hosts = Hosts.of(address, ApiKeys(keys), further)
        async with living(FakeDesk(), hosts=hosts) as app, client_of(app) as client:
            found = []
            for name in ("localhost", "gpu-3", "10.0.0.1", "evil.example"):
                answer = await client.get("/health", headers={"Host": f"{name}:8000"})
                if answer.status_code == 200:
                    found.append(name)
            assert found == ["localhost", *answered]

    run(main())


def test_an_address_of_ipv6_is_a_name_in_brackets():
    hosts = Hosts.of("FD00::5", ApiKeys([]), ["gpu-3"])
    assert hosts is not None
    hosts.check("[fd00::5]:8000")
