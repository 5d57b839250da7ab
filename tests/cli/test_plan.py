from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastic_dit.simulate.plan import PlanReport
from tests.cli.running import run

MIX = ("plan", "--mix", "ddit:1:1:1@0.5", "--requests", "20")


def test_compares_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    ran = run(
        capsys, *MIX, "--policy", "static-1", "--policy", "ddit", "--gpus", "16", "--json", "-",
        "--output", str(tmp_path / "new" / "folder"), "--trace-out", str(trace),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = PlanReport.model_validate_json(ran.out)
    assert [(row.policy, row.gpus, row.nodes) for row in report.runs] == [
        ("static-1", 16, 2),
        ("ddit", 16, 2),
    ]
    assert all(row.completed == row.submitted == 20 for row in report.runs)
    assert set(report.runs[0].classes) == {"144p", "240p", "360p"}
    assert (report.target, report.answer) == (None, {})
    assert "ddit:1:1:1@0.5" in ran.err
    assert (tmp_path / "new" / "folder" / "plan.png").stat().st_size > 1000
    spans = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"]
    assert {span["args"]["what"] for span in spans} == {"dit", "decoder"}


def test_finds_how_many_gpus_it_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{at_s},640,360,51,30,360p\n" for at_s in range(0, 240, 4))
    trace.write_text(f"at_s,width,height,num_frames,num_inference_steps,label\n{rows}")
    ran = run(
        capsys, "plan", "--trace", str(trace), "--policy", "static-1", "--target", "p99<25",
        "--output", str(tmp_path), "--json", str(tmp_path / "plan.json"),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = PlanReport.model_validate_json((tmp_path / "plan.json").read_text())
    # One takes 20.9 s at DoP 1, and one comes every 4 s: four GPUs fall behind.
    assert report.answer == {"static-1": 8}
    assert {row.gpus: row.meets_target for row in report.runs} == {
        1: False, 2: False, 4: False, 8: True,
    }  # fmt: skip
    assert "static-1: 8 GPUs keep p99 <= 25 s." in ran.out


def test_says_where_nothing_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(capsys, *MIX, "--target", "p99<0.1", "--gpus", "8", "--json", "-")
    assert ran.code == 0
    assert json.loads(ran.out)["answer"] == {"elastic": None}
    assert "not even 8 GPUs" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mix", "x"), "mix = 'x'"),
        (("--trace", "/nope.csv"), "/nope.csv"),
        (("--mix", "ddit:1:1:1@1", "--policy", "foo"), "control.dispatch = 'foo'"),
        (("--mix", "ddit:1:1:1@1", "--target", "fast"), "target = 'fast'"),
        (("--mix", "ddit:1:1:1@1", "--cost", "/nope"), "cost = '/nope'"),
        (("--mix", "ddit:1:1:1@1", "--gpus", "9", "--nodes", "2"), "nodes = 2"),
        (("--mix", "ddit:1:1:1@1", "--json", "/no/such/file.json"), "cannot save"),
        (("--mix", "ddit:1:1:1@1", "--output", "/proc/nope"), "cannot save"),
    ],
)
def test_bad_input_is_one_line(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = run(capsys, "plan", *arguments)
    assert ran.code == 1
    assert said in ran.error
    assert len(ran.err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [(), ("--mix", "x", "--trace", "y"), ("--mix", "x", "--target", "p99<1", "--nodes", "2")],
)
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "plan", *arguments).code == 2
