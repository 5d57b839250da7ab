"""``kill -9`` of the scheduler and all engines in mid-load, and a second life."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

import elastic_dit
from elastic_dit.engine.fake import fake_frames
from elastic_dit.errors import ElasticDitError, NotReady, RequestConflict
from elastic_dit.state import Phase
from tests.cluster.processes import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ENGINES = 2
REQUESTS = 14
STEPS = 8
RESULT_S = 60.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def life(config: Path, log: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Scheduler and engines in processes of their own, killed at the end at the latest."""
    port = str(free_port())
    roles = (
        ["scheduler", port, str(config)],
        ["engines", port, str(config), str(ENGINES), str(log)],
    )
    with contextlib.ExitStack() as stack:
        processes = []
        for arguments in roles:
            command = [sys.executable, "-m", "tests.cluster.life", *arguments]
            errors = stack.enter_context((log.parent / f"{arguments[0]}.txt").open("ab"))
            processes.append(subprocess.Popen(command, stderr=errors))
            stack.callback(kill, processes[-1])
        yield f"tcp://127.0.0.1:{port}", processes


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def connect(address: str) -> elastic_dit.Client:
    """As soon as somebody answers who has the settings."""

    def attempt() -> elastic_dit.Client | None:
        with contextlib.suppress(ElasticDitError):
            return elastic_dit.Client(address)
        return None

    def is_settled() -> bool:
        with contextlib.suppress(NotReady):
            client.requests()
            return True
        return False

    client: elastic_dit.Client = until(attempt)
    until(is_settled)
    return client


def test_every_accepted_request_ends_once_over_a_kill_of_everything(tmp_path: Path) -> None:
    config, log = tmp_path / "config.yaml", tmp_path / "decoded.txt"
    settings = {
        "models": [{"name": "fake", "path": "nowhere"}],
        "journal": {"path": str(tmp_path / "journal.sqlite")},
        "control": {"tick_s": 0.1},
        "placement": {"interval_s": 0.2},
    }
    config.write_text(yaml.safe_dump(settings))
    with life(config, log) as (address, processes):
        client = connect(address)
        futures = [
            client.submit("a circle", request_id=f"r{index}", num_inference_steps=STEPS)
            for index in range(REQUESTS)
        ]
        requests = {future.key: future.request for future in futures}
        until(lambda: sum(future.done() for future in futures) >= 3)
        until(lambda: any(future.progress().phase is Phase.DENOISING for future in futures))
        for process in processes:
            process.send_signal(signal.SIGKILL)
        done = {future.key for future in futures if future.status == "finished"}
        assert 3 <= len(done) < REQUESTS
        before = Counter(log.read_text().split())
        client.close()
    with life(config, log) as (address, _), connect(address) as client:
        for name, request in requests.items():
            future = client.future(name)
            assert future.request == request
            assert np.array_equal(future.result(RESULT_S).frames, fake_frames(request))
        with pytest.raises(RequestConflict):
            client.submit("a square", request_id="r0", num_inference_steps=STEPS)
        statuses = client.requests(limit=REQUESTS, newest_first=False)
        assert [status.request_id for status in statuses] == list(requests)
        assert all(status.phase is Phase.COMPLETED for status in statuses)
        assert all(status.has_result for status in statuses)
    decoded = Counter(log.read_text().split())
    assert set(decoded) == set(requests)
    # What its client had seen done is not done again; nor is what had its result written.
    assert all(decoded[name] == before[name] == 1 for name in done)
    files = {path.stem for path in tmp_path.rglob("*.safetensors")}
    assert files == set(requests)
