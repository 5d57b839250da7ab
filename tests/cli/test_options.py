from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import run, run_process


@pytest.mark.parametrize("content", ["", "{}", "[]", '"x"', '{"address": 3}'])
def test_scheduler_file_of_another_kind(
    content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scheduler.json"
    path.write_text(content)
    ran = run(capsys, "status", "--scheduler-file", path)
    assert ran.code == 1
    assert ran.error.startswith("scheduler-file = ")
    assert ran.error.endswith("must be written by dask scheduler")


def test_missing_scheduler_file_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "status", "--scheduler-file", tmp_path / "none.json")
    assert (ran.code, "No such file or directory" in ran.error) == (1, True)


@pytest.mark.parametrize("option", ["--tls-ca-file", "--tls-cert", "--tls-key"])
def test_missing_certificate(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--scheduler", "tls://127.0.0.1:9", option, tmp_path / "none.pem")
    ran = run(capsys, "status", *arguments)
    assert ran.code == 1
    assert ran.error.startswith(f"{option.removeprefix('--')} = ")


# In processes of their own: Dask's clients that never connected have a slow end.
@pytest.mark.parametrize("content", ["nonsense", ""])
def test_certificate_that_is_none(content: str, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(content)
    ran = run_process("status", "--scheduler", "tls://127.0.0.1:9", "--tls-ca-file", path)
    assert ran.code == 1
    assert "unexpected" not in ran.error


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("foo://bar", "scheduler = 'foo://bar': must be an address like tcp://host:8786"),
        ("host:port", "scheduler = 'host:port': must be an address like tcp://host:8786"),
        ("tls://127.0.0.1:9", "security = None: must be certificates"),
    ],
)
def test_wrong_address(address: str, said: str) -> None:
    ran = run_process("generate", "a circle", "--scheduler", address)
    assert ran.code == 1
    assert ran.error.startswith(said)


def test_address_of_dasks_configuration_is_used() -> None:
    ran = run_process("status", env={"DASK_SCHEDULER_ADDRESS": "foo://bar"})
    assert ran.code == 1
    assert ran.error.startswith("scheduler = 'foo://bar': must be an address like")
