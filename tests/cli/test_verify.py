from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.cli.running import run, run_process
from tests.cluster.processes import alive_in_session, until

SMALL = ("--size", "48x80", "--frames", "5", "--steps", "5")
PLANS = ("1,2,4,2,1", "@1,@1+3,@1", "2,1,@0+2,@2", "1,3,1")


@pytest.mark.cluster
@pytest.mark.slow
def test_the_embedded_model_passes() -> None:
    chosen = [word for plan in PLANS for word in ("--plan", plan)]
    ran = run_process("verify", *SMALL, *chosen, "--json", "-", timeout_s=110)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["ok"], report["backend"], report["size"]) == (True, "gloo", "48x80")
    assert report["allowed_dops"] == [1, 2, 4]
    assert [plan["plan"] for plan in report["plans"]] == [
        "1→2→4→2→1", "{1}→{1,3}→{1}", "2→1→{0,2}→{2}", "1→3→1"
    ]  # fmt: skip
    *ran_plans, refused = report["plans"]
    for plan in ran_plans:
        assert plan["ok"], plan
        assert plan["max_abs_error"] <= report["max_abs_error_allowed"]
    assert (refused["status"], refused["ok"], refused["max_abs_error"]) == ("refused", None, None)
    assert refused["reason"] == "degrees of parallelism allowed: 1, 2, 4"
    assert "passed  1→2→4→2→1  max_abs_error" in ran.err
    assert "refused 1→3→1  degrees" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--plan", "1,@1"), "plan = '1,@1': must be stages with commas between"),
        (("--dtype", "int8"), "dtype = 'int8': must be one of float32, bfloat16, float16"),
        (("--model", "/nowhere"), "/nowhere: no such folder; models are local diffusers folders"),
        (("--json", "/nowhere/v.json"), "cannot save /nowhere/v.json"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    ran = run(capsys, "verify", *arguments)
    assert ran.code == 1
    assert ran.error.startswith(said)


@pytest.mark.parametrize("dops", ["0", "1,,2", "two", "65", "-1"])
def test_degrees_that_are_none(capsys: pytest.CaptureFixture[str], dops: str) -> None:
    ran = run(capsys, "verify", "--dops", dops)
    assert ran.code == 2
    assert "write whole numbers from 1 to 64, such as 1,2,4" in ran.err


@pytest.mark.cluster
@pytest.mark.slow
def test_ctrl_c_leaves_no_process() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "elastic_dit.cli.main", "verify", *SMALL, "--steps", "200"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        # the command, multiprocessing's tracker, the fork server, and four members
        until(lambda: len(alive_in_session(process.pid)) >= 7)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT
        assert process.stderr is not None
        assert process.stderr.read().strip() == ""
    until(lambda: not alive_in_session(process.pid))
