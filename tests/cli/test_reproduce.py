from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastic_dit.reproduce import ddit, disagfusion, mixed_priority, predictor
from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport
from elastic_dit.reproduce.predictor_schema import PredictorReport
from elastic_dit.reproduce.schema import DditReport, MixedReport
from tests.cli.running import run
from tests.reproduce.disagfusion_report import small_report


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = replace(
        ddit.DditExperiment(), mixes=((1, 1, 1),), rates=(0.5, None), seeds=(0, 1),
        policies=("static-1", "ddit", "elastic"), burst_policies=("ddit", "elastic"),
    )  # fmt: skip
    monkeypatch.setattr(ddit, "DditExperiment", lambda: grid)
    mixed = replace(
        mixed_priority.MixedExperiment(), profiles=("foreground_burst",), loads=("default",),
        policies=("edf", "elastic"), seeds=(0, 1),
    )  # fmt: skip
    monkeypatch.setattr(mixed_priority, "MixedExperiment", lambda: mixed)
    held_out = predictor.PredictorExperiment(situations=2, requests=30, moves=1, traces=1)
    monkeypatch.setattr(predictor, "PredictorExperiment", lambda: held_out)


@pytest.mark.usefixtures("_small")
def test_ddit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(
        capsys, "reproduce", "ddit", "--output", str(tmp_path), "--seeds", "1", "--requests", "10",
        "--processes", "1", "--json", "-",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = DditReport.model_validate_json(ran.out)
    assert (report.setting.seeds, report.setting.requests) == (1, 10)
    assert {path.name for path in tmp_path.iterdir()} == {
        "ddit.md", "ddit-grid.png", "ddit-cells.png",
    }  # fmt: skip
    assert "theirs beside ours" in ran.err


@pytest.mark.usefixtures("_small")
def test_mixed_priority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mixed.json"
    ran = run(
        capsys, "reproduce", "mixed-priority", "--output", str(tmp_path / "results"),
        "--seeds", "1", "--processes", "1", "--json", str(path),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = MixedReport.model_validate_json(path.read_text())
    assert set(report.mixed_priority["foreground_burst@default"]) == {"edf", "elastic"}
    assert {each.name for each in (tmp_path / "results").iterdir()} == {
        "mixed-priority.md", "mixed-priority.png",
    }  # fmt: skip
    assert "Deadlines met" in ran.out


@pytest.mark.usefixtures("_small")
def test_predictor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = run(
        capsys, "reproduce", "predictor", "--output", str(tmp_path), "--seeds", "1",
        "--requests", "20", "--processes", "1", "--json", "-",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = PredictorReport.model_validate_json(ran.out)
    assert (report.setting.arrival_seeds, report.setting.requests) == ((0,), 20)
    assert [path.name for path in tmp_path.iterdir()] == ["predictor.md"]
    assert "of the best static throughput" in ran.err


def test_disagfusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def reproduce(experiment: disagfusion.DisagFusionExperiment, **_: object) -> DisagFusionReport:
        asked.append(experiment)
        return small_report()

    monkeypatch.setattr(disagfusion, "reproduce_disagfusion", reproduce)
    output = ("--output", str(tmp_path), "--json", "-")
    ran = run(capsys, "reproduce", "disagfusion", "--seeds", "1", *output)
    assert ran.code == 0, ran.err
    assert DisagFusionReport.model_validate_json(ran.out) == small_report()
    assert asked[0].seeds == (0,)
    assert {path.name for path in tmp_path.iterdir()} == {
        "disagfusion.md", "disagfusion.png", "disagfusion-scaling.png",
    }  # fmt: skip
    assert "theirs beside ours" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("ddit", "--seeds", "6"), 1, "seeds = 6"),
        (("ddit", "--json", "/no/such/file"), 1, "cannot save"),
        (("ddit", "--output", "/proc/nope"), 1, "cannot save"),
        (("disagreement",), 2, "disagreement"),
    ],
)
def test_bad_input(
    arguments: tuple[str, ...],
    code: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = run(capsys, "reproduce", *arguments)
    assert ran.code == code
    assert said in ran.err
    assert "Traceback" not in ran.err
