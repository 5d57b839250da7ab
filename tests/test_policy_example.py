"""The example of docs/write-a-policy.md is the file, and the file is a policy that works."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from elastic_dit.control import dispatch
from elastic_dit.control.dispatch import dispatch_policies
from elastic_dit.cost import read_stage_latencies
from elastic_dit.request import Stage
from elastic_dit.simulate.ddit_grid import SINGLE_NODE
from elastic_dit.simulate.setup import set_up
from elastic_dit.simulate.trace import named_workload

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "longest_wait_policy.py"


@pytest.fixture(autouse=True)
def _forget_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_REGISTRY", dict(dispatch._REGISTRY))


def test_page_shows_the_file() -> None:
    page = (ROOT / "docs" / "write-a-policy.md").read_text(encoding="utf-8")
    code = page.partition("```python\n")[2].partition("```")[0]
    assert code in EXAMPLE.read_text(encoding="utf-8")
    assert "register_dispatch" in code
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.parametrize("load", ["ddit:1:1:1@0.25", "ddit:2:2:6@burst"])
def test_it_serves_everybody_in_groups_that_may_be(load: str) -> None:
    runpy.run_path(str(EXAMPLE))
    assert "longest-wait" in dispatch_policies()
    arrivals = named_workload(load, count=40)
    cluster = set_up(
        arrivals, policy="longest-wait", cost=read_stage_latencies(), deployment=SINGLE_NODE
    )
    result = cluster.run()
    cluster.controller.check()
    assert cluster.controller.refused == 0
    assert len(result.latencies_s()) == 40
    widths = {
        len(record.gpus)
        for outcome in result.requests
        for record in outcome.records
        if record.stage is Stage.DIT
    }
    assert min(widths) == 1 < max(widths)


def test_it_runs_as_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    printed = capsys.readouterr().out
    page = (ROOT / "docs" / "write-a-policy.md").read_text(encoding="utf-8")
    ours = printed.splitlines()[0]
    assert ours.startswith("longest-wait")
    assert ours in page
