from __future__ import annotations

import json

import pytest

from elastic_dit.cli.drill import NAMES
from elastic_dit.drill.faults import FAULTS
from elastic_dit.drill.run import CHECKPOINT_EVERY
from tests.cli.running import run, run_process

TRIED = ("kill-engine", "out-of-memory", "restart")


def test_the_help_names_every_fault() -> None:
    assert tuple(FAULTS) == NAMES


def test_a_fault_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "drill", "--faults", "earthquake").code == 2


@pytest.mark.cluster
@pytest.mark.slow
def test_nothing_is_lost_where_engines_die_lack_memory_and_begin_again() -> None:
    arguments = ("--fake", "--requests", "6", "--virtual-gpus", "3", "--json", "-")
    ran = run_process("drill", *arguments, "--faults", ",".join(TRIED), timeout_s=240)
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    killed, starved, again = report["faults"]
    assert [fault["fault"] for fault in report["faults"]] == list(TRIED)
    assert report["totals"]["accepted"] == report["totals"]["completed"] == 6
    assert (killed["injected"], starved["injected"], again["injected"]) == (1, 2, 1)
    # From its checkpoint, and not from the beginning: what a copy takes comes on top.
    assert killed["steps_repeated"] <= 2 * CHECKPOINT_EVERY
    assert starved["steps_repeated"] == 0
