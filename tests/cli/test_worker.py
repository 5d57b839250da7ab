"""The worker command: its options, its errors, its ends."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed import Client, Scheduler, Security, SpecCluster

from elastic_dit.cli.worker import main
from elastic_dit.cli.worker_launch import Launch
from tests.cluster.processes import alive_in_session, until

FAKE = "engine: {backend: fake}\n"
COMMAND = [sys.executable, "-m", "elastic_dit.cli.worker"]


# ------------------------------------------------------------------------------------ options
@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def parse(*words: str) -> Launch:
    with main.make_context("elastic-dit-worker", list(words)) as context:
        return Launch.read(context.params)


def options_of(launch: Launch, name: str) -> dict[str, Any]:
    options: dict[str, Any] = launch.spec[name]["options"]
    return options


def test_the_options_that_deployments_pass_are_there() -> None:
    with main.make_context("elastic-dit-worker", ["tcp://s:1"]) as context:
        known = {word for p in main.get_params(context) for word in (*p.opts, *p.secondary_opts)}
    assert known >= {
        "scheduler", "--scheduler-file", "--devices", "--virtual-gpus", "--config",
        "--control-worker", "--no-control-worker", "--name", "--nthreads", "--nworkers",
        "--memory-limit", "--death-timeout", "--local-directory", "--interface", "--protocol",
        "--host", "--listen-address", "--contact-address", "--worker-port", "--nanny-port",
        "--tls-ca-file", "--tls-cert", "--tls-key", "--dashboard", "--no-dashboard",
        "--dashboard-address", "--nanny", "--no-nanny", "--pid-file", "--resources",
        "--lifetime", "--lifetime-stagger", "--lifetime-restart", "--preload", "--preload-nanny",
        "--scheduler-sni",
    }  # fmt: skip


def test_as_dask_jobqueue_starts_it() -> None:
    launch = parse(
        "tcp://s:1", "--virtual-gpus", "4", "--name", "job-7", "--nthreads", "2", "--nworkers",
        "4", "--memory-limit", "16GB", "--nanny", "--death-timeout", "60", "--local-directory",
        "/tmp", "--interface", "lo", "--protocol", "tcp://",
    )  # fmt: skip
    assert list(launch.spec) == ["job-7-0", "job-7-1", "job-7-2", "job-7-3", "job-7-control"]
    options = options_of(launch, "job-7-0")
    assert (options["nthreads"], options["memory_limit"]) == (2, "16GB")
    assert (options["interface"], options["protocol"]) == ("lo", "tcp://")
    assert options["local_directory"] == "/tmp"
    assert launch.timeout_s == 60.0


def test_as_the_kubernetes_operator_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    launch = parse("tcp://s:1", "--name", "pod-a", "--dashboard", "--dashboard-address", "8788")
    assert list(launch.spec) == ["pod-a", "pod-a-control"]
    assert options_of(launch, "pod-a")["dashboard_address"] == "8788"


def test_defaults_suit_weights_in_host_memory() -> None:
    launch = parse("tcp://s:1", "--virtual-gpus", "2")
    names = list(launch.spec)
    assert re.fullmatch(rf"{re.escape(socket.gethostname())}-{os.getpid()}-0", names[0])
    options = options_of(launch, names[0])
    assert str(options["memory_limit"]) == "0"
    assert options["nthreads"] == 1
    assert options["resources"] == {"GPU": 1.0}


def test_resources_add_to_the_gpu() -> None:
    launch = parse("tcp://s:1", "--virtual-gpus", "1", "--resources", "VRAM=80e9,FAST=1")
    name = next(iter(launch.spec))
    assert options_of(launch, name)["resources"] == {"GPU": 1.0, "VRAM": 80e9, "FAST": 1.0}


def test_without_a_nanny_there_is_one_worker() -> None:
    launch = parse("tcp://s:1", "--virtual-gpus", "1", "--no-nanny", "--name", "w")
    assert list(launch.spec) == ["w"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--virtual-gpus", "1"], "SCHEDULER"),
        (["tcp://s:1"], "devices"),
        (["tcp://s:1", "--virtual-gpus", "0"], "virtual-gpus"),
        (["tcp://s:1", "--devices", "a,b"], "devices = 'a,b'"),
        (["tcp://s:1", "--devices", "0", "--virtual-gpus", "2"], "devices"),
        (["tcp://s:1", "--virtual-gpus", "2", "--nworkers", "3"], "nworkers = 3: must be 2"),
        (["tcp://s:1", "--virtual-gpus", "2", "--no-nanny"], "no-nanny"),
        (["tcp://s:1", "--virtual-gpus", "1", "--resources", "VRAM"], "resources = 'VRAM'"),
        (["tcp://s:1", "--virtual-gpus", "1", "--config", "/no/file"], "config"),
        (["tcp://s:1", "--virtual-gpus", "1", "--nanny-port", "x"], "nanny-port = 'x'"),
        (["tcp://s:1", "--virtual-gpus", "1", "--death-timeout", "soon"], "death-timeout"),
        (["tcp://s:1", "--virtual-gpus", "1", "--pid-file", "/no/dir/pid"], "pid-file"),
        (["tcp://s:1", "--virtual-gpus", "1", "--nonsense"], "nonsense"),
        (
            ["tcp://s:1", "--virtual-gpus", "2", "--listen-address", "tcp://:9"],
            "listen-address",
        ),
    ],
)
def test_usage_errors_exit_with_2(words: list[str], told: str) -> None:
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 2, outcome.output
    assert told in outcome.output
    assert "Traceback" not in outcome.output


@pytest.mark.parametrize("option", ["--worker-port", "--nanny-port"])
def test_a_port_in_use_is_a_usage_error(option: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ["tcp://s:1", "--virtual-gpus", "1", "--host", "127.0.0.1", option, port]
        outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 2, outcome.output
    assert f"{option[2:]} = '{port}'" in outcome.output


def test_a_wrong_address_is_told_in_time() -> None:
    words = ["tcp://127.0.0.1:9", "--virtual-gpus", "1", "--death-timeout", "1"]
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 1, outcome.output
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in outcome.output
    assert "Traceback" not in outcome.output


def test_a_scheduler_file_that_never_comes_is_told_in_time(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.json"
    words = ["--scheduler-file", str(file), "--virtual-gpus", "1", "--death-timeout", "0.1"]
    outcome = CliRunner().invoke(main, words)
    assert outcome.exit_code == 1, outcome.output
    assert str(file) in outcome.output


def test_help_names_both_kinds_of_options() -> None:
    outcome = CliRunner().invoke(main, ["--help"])
    assert outcome.exit_code == 0
    assert "--virtual-gpus" in outcome.output
    assert "--scheduler-file" in outcome.output
    assert "--nworkers" not in outcome.output


def test_dask_knows_the_command() -> None:
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="dask_cli", name="elastic-dit-worker")
    assert entry.load() is main


# ---------------------------------------------------------------------------------- processes
class Worker:
    """A running worker command in a session of its own."""

    def __init__(self, folder: Path, *words: str, config: str = FAKE) -> None:
        settings = folder / "worker.yaml"
        settings.write_text(config)
        self._log = folder / "log.txt"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *words, "--config", str(settings), "--no-dashboard"],
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def end(self, number: int, *, group: bool = False) -> int:
        """Send a signal, as `kill` does or as a terminal's Ctrl-C; the exit code."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        return self.process.wait(60)

    def assert_nothing_left(self) -> None:
        until(lambda: not alive_in_session(self.process.pid), wait_s=10.0)
        assert "Traceback" not in self.log
        assert "KeyboardInterrupt" not in self.log

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)


@pytest.fixture
def scheduler() -> Iterator[SpecCluster]:
    options = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with SpecCluster(scheduler={"cls": Scheduler, "options": options}) as cluster:
        yield cluster


def names(client: Client) -> set[str]:
    return {w["name"] for w in client.scheduler_info(n_workers=-1)["workers"].values()}


def pids(dask_worker: Any) -> tuple[str, int]:
    return dask_worker.name, os.getpid()


@pytest.mark.cluster
@pytest.mark.slow
def test_it_joins_restarts_what_dies_and_ends_on_ctrl_c(
    scheduler: SpecCluster, tmp_path: Path
) -> None:
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": scheduler.scheduler_address}))
    pid_file = tmp_path / "pid"
    worker = Worker(
        tmp_path, "--scheduler-file", str(file), "--virtual-gpus", "2", "--name", "m",
        "--pid-file", str(pid_file),
    )  # fmt: skip
    try:
        with Client(scheduler) as client:
            until(lambda: names(client) == {"m-0", "m-1", "m-control"})
            assert int(pid_file.read_text()) == worker.process.pid
            before = dict(client.run(pids).values())
            os.kill(before["m-1"], signal.SIGKILL)
            after = until(
                lambda: (
                    (now := dict(client.run(pids, on_error="ignore").values()))
                    and now.keys() == before.keys()
                    and now["m-1"] != before["m-1"]
                    and now
                )
            )
            assert after["m-0"] == before["m-0"]
            assert worker.end(signal.SIGINT, group=True) == 0
            until(lambda: not names(client))
        worker.assert_nothing_left()
        assert not pid_file.exists()
    finally:
        worker.kill()


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize("preload", ["true", "false"])
def test_an_interrupt_amid_the_start_is_clean(
    scheduler: SpecCluster, tmp_path: Path, preload: str
) -> None:
    worker = Worker(
        tmp_path,
        scheduler.scheduler_address,
        "--virtual-gpus", "2", "--no-control-worker",
        config=f"engine: {{backend: fake, preload: {preload}}}\n",
    )  # fmt: skip
    try:
        until(lambda: "Start Nanny" in worker.log)
        assert worker.end(signal.SIGINT, group=True) == 0
        worker.assert_nothing_left()
    finally:
        worker.kill()


@pytest.mark.cluster
@pytest.mark.slow
def test_it_ends_with_the_scheduler(tmp_path: Path) -> None:
    options = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with SpecCluster(scheduler={"cls": Scheduler, "options": options}) as cluster:
        worker = Worker(tmp_path, cluster.scheduler_address, "--virtual-gpus", "1")
        with Client(cluster) as client:
            until(lambda: len(names(client)) == 2)
            until(lambda: "1 engine joined" in worker.log)
    try:
        assert worker.process.wait(60) == 0
        until(lambda: not alive_in_session(worker.process.pid), wait_s=10.0)
    finally:
        worker.kill()


@pytest.mark.cluster
@pytest.mark.slow
def test_a_model_that_is_not_there_ends_it_with_1(scheduler: SpecCluster, tmp_path: Path) -> None:
    worker = Worker(
        tmp_path,
        scheduler.scheduler_address,
        "--virtual-gpus", "1",
        config="models: [{name: m, path: /no/such/model}]\n",
    )  # fmt: skip
    try:
        assert worker.process.wait(90) == 1
        assert "Error: worker" in worker.log
        assert "/no/such/model" in worker.log
        worker.assert_nothing_left()
        assert not scheduler.scheduler_info["workers"]
    finally:
        worker.kill()


# ---------------------------------------------------------------------------------------- TLS
@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    """One self-signed certificate that is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "elastic-dit tests")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = {"certificate": tmp_path / "certificate.pem", "key": tmp_path / "key.pem"}
    files["certificate"].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files["key"].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return {name: str(path) for name, path in files.items()}


@pytest.mark.cluster
@pytest.mark.slow
def test_over_tls(certificates: dict[str, str], tmp_path: Path) -> None:
    certificate, key = certificates["certificate"], certificates["key"]
    papers = {f"tls_{role}_cert": certificate for role in ("client", "scheduler", "worker")}
    papers |= {f"tls_{role}_key": key for role in ("client", "scheduler", "worker")}
    security = Security(tls_ca_file=certificate, require_encryption=True, **papers)
    options = {
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": security,
        "dashboard": False,
        "dashboard_address": "127.0.0.1:0",
    }
    with SpecCluster(
        scheduler={"cls": Scheduler, "options": options}, security=security
    ) as cluster:
        worker = Worker(
            tmp_path, cluster.scheduler_address, "--virtual-gpus", "1", "--tls-ca-file",
            certificate, "--tls-cert", certificate, "--tls-key", key,
        )  # fmt: skip
        try:
            with Client(cluster, security=security) as client:
                until(lambda: len(names(client)) == 2)
                assert all(
                    address.startswith("tls://")
                    for address in client.scheduler_info(n_workers=-1)["workers"]
                )
            assert worker.end(signal.SIGTERM) == 0
            worker.assert_nothing_left()
        finally:
            worker.kill()
