"""``elastic-dit serve`` as its users meet it: OpenAI's own client, curl, signals."""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest

from elastic_dit.media import read_comment
from tests.cli.running import run
from tests.cluster.processes import alive_in_session, until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    # OpenAI announces the end of its own service for the API that this client speaks.
    pytest.mark.filterwarnings("ignore:The Sora API:DeprecationWarning"),
]

DOCS = Path(__file__).parents[2] / "docs" / "http.md"
START_S = 90.0
KEY = "sk-of-the-tests"
UNFINISHED = (
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    b"Authorization: Bearer " + KEY.encode() + b"\r\n\r\n"
)


class Served:
    """A server in a process, and a session, of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        config = folder / "fake.yaml"
        config.write_text("engine: {backend: fake}\nhttp: {shutdown_s: 1}\n")
        self._files = [folder / "out", folder / "log"]
        out, log = (path.open("w") for path in self._files)
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "elastic_dit.cli.main", "serve", "--port", "0",
                "--virtual-gpus", "1", "--config", str(config), "--log-format", "json",
                "--allowed-host", "gpu-3.example",
                *arguments,
            ],
            stdout=out, stderr=log, start_new_session=True,
            env={**os.environ, "ELASTIC_DIT_API_KEYS": KEY},
        )  # fmt: skip
        out.close()
        log.close()
        self.url = until(self._address, START_S)

    def _address(self) -> str | None:
        assert self.process.poll() is None, self.said()
        found = re.search(r"serves at (http://\S+)", self._files[0].read_text())
        return found[1] if found else None

    def said(self) -> str:
        return self._files[1].read_text()

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("serve"))
    try:
        yield server
        host, port = server.url.removeprefix("http://").split(":")
        # Somebody who never finishes the request; it is not waited for long.
        with socket.create_connection((host, int(port))) as open_request:
            open_request.sendall(UNFINISHED)
            code = server.end(signal.SIGINT)
    finally:
        server.process.kill()
    assert code == 130
    until(lambda: not alive_in_session(server.process.pid))


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """The command arranges its process's log, which here is pytest's."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def client(served: Served) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0, timeout=60)


def test_openais_client_makes_polls_lists_and_fetches_videos(client, tmp_path) -> None:
    made = client.videos.create_and_poll(
        prompt="a red ring",
        model="fake",
        size="96x48",
        seconds="1",
        extra_body={"num_inference_steps": 3, "seed": 11, "guidance_scale": 1.5},
    )
    assert (made.status, made.progress, made.error) == ("completed", 100, None)
    assert (made.size, made.seconds, made.model, made.prompt) == (
        "96x48", "1.125", "fake", "a red ring",
    )  # fmt: skip
    client.videos.download_content(made.id).write_to_file(tmp_path / "a.mp4")
    request = json.loads(read_comment(tmp_path / "a.mp4"))["request"]
    assert (request["seed"], request["num_inference_steps"]) == (11, 3)
    thumbnail = client.videos.download_content(made.id, variant="thumbnail").read()
    assert thumbnail[:4] == b"RIFF"
    others = [client.videos.create(prompt=f"a ring {number}").id for number in range(4)]
    listed = [video.id for video in client.videos.list(limit=2)]  # over all pages
    assert listed[:5] == [*reversed(others), made.id]
    assert client.videos.retrieve(others[0]).id == others[0]


def test_openais_client_cancels_and_deletes(client) -> None:
    video = client.videos.create(prompt="a ring", extra_body={"num_inference_steps": 100})
    cancelled = client.post(f"/videos/{video.id}/cancel", cast_to=openai.types.Video)
    assert cancelled.status in ("cancelled", "completed")
    assert client.videos.poll(video.id).status == cancelled.status
    assert client.videos.delete(video.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.videos.retrieve(video.id)


def test_openais_client_makes_images(client) -> None:
    answer = client.images.generate(
        prompt="a ring", model="fake", n=2, size="64x48", extra_body={"seed": 3}
    )
    assert [base64.b64decode(image.b64_json)[:4] for image in answer.data] == [b"\x89PNG"] * 2
    [image] = client.images.generate(prompt="a ring", response_format="url").data
    file = httpx2.get(image.url, headers={"Authorization": f"Bearer {KEY}"})
    assert file.content[:4] == b"\x89PNG"
    assert [model.id for model in client.models.list()] == ["fake"]


def test_openais_client_understands_what_it_is_refused_with(client, served) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.videos.create(prompt="a", size="33x64")
    assert (wrong.value.param, wrong.value.code) == ("width", "invalid_value")
    assert wrong.value.type == "invalid_request_error"
    headers = {"Idempotency-Key": "once"}
    first, second = (client.videos.create(prompt="a", extra_headers=headers).id for _ in range(2))
    assert first == second
    with pytest.raises(openai.ConflictError) as conflict:
        client.videos.create(prompt="b", extra_headers=headers)
    assert conflict.value.code == "conflict"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=f"{served.url}/v1", api_key="sk-wrong").models.list()


def test_every_command_of_the_quickstart(served, tmp_path) -> None:
    text = DOCS.read_text(encoding="utf-8")
    quickstart = text.partition("## Over a cluster that is there")[0]
    commands = [
        line.removeprefix("$ ")
        for block in re.findall(r"```console\n(.*?)```", quickstart, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("$ ") and ("curl" in line or line.startswith("$ ID="))
    ]
    assert len(commands) == 6
    script = "set -euo pipefail\n" + "\n".join(commands).replace(
        "http://127.0.0.1:8000", served.url
    ).replace("curl ", f"curl -fH 'Authorization: Bearer {KEY}' ")
    ran = subprocess.run(
        [shutil.which("bash") or "bash", "-c", script],
        check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert "event: completed" in ran.stdout
    assert json.loads(read_comment(tmp_path / "circle.mp4"))["request"]["seed"] == 7
    assert (tmp_path / "star.png").read_bytes()[:4] == b"\x89PNG"
    [program] = re.findall(r"```python\n(.*?)```", quickstart, re.DOTALL)
    program = program.replace("http://127.0.0.1:8000", served.url).replace('"none"', repr(KEY))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        check=False, capture_output=True, text=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def test_its_log_is_json_with_request_ids(served) -> None:
    headers = {"X-Request-Id": "seen-in-the-log", "Authorization": f"Bearer {KEY}"}
    httpx2.get(f"{served.url}/v1/models", headers=headers)
    until(lambda: "seen-in-the-log" in served.said())
    lines = [json.loads(line) for line in served.said().splitlines()]
    [line] = [line for line in lines if line["request_id"] == "seen-in-the-log"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/v1/models", 200)
    assert KEY not in served.said()


def test_names_that_are_given_are_all_it_is_asked_by(served) -> None:
    for host, status in (("gpu-3.example", 200), ("evil.example", 403)):
        assert httpx2.get(f"{served.url}/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0", "--virtual-gpus", 1), "host = '0.0.0.0': must be a loopback"),
        (("--host", "192.0.2.1", "--allow-anonymous", "--virtual-gpus", 1), "of this machine"),
        (("--api-key-file", "/nowhere", "--virtual-gpus", 1), "api-key-file = '/nowhere'"),
        (("--scheduler", "tcp://127.0.0.1:9", "--port", 0, "--config", "{hasty}"),
         "no Dask scheduler answers"),
        (("--allowed-host", "http://a", "--virtual-gpus", 1), "allowed_hosts.0 = 'http://a'"),
        (("--root-path", "video", "--virtual-gpus", 1), "root-path"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(
    arguments, said, capsys, monkeypatch, tmp_path, logs_as_before
) -> None:
    monkeypatch.delenv("ELASTIC_DIT_API_KEYS", raising=False)
    hasty = tmp_path / "hasty.yaml"
    hasty.write_text("client: {connect_timeout_s: 0.5}\n")
    ran = run(capsys, "serve", *(str(each).format(hasty=hasty) for each in arguments))
    assert ran.code == 1
    assert said in ran.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("--virtual-gpus", 1, "--scheduler", "tcp://127.0.0.1:9"),
        ("--virtual-gpus", 1, "--ssl-certfile", "a.pem"),
        (),
    ],
)
def test_wrong_usage(arguments, capsys) -> None:
    ran = run(capsys, "serve", "--port", 0, *arguments)
    assert ran.code == 2
