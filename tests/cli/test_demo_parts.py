"""The demo's plan, report, pictures and summary, without a cluster."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as Picture
from rich.console import Console

from elastic_dit.cli import demo_report
from elastic_dit.cli.demo_plan import demo_submissions
from elastic_dit.cli.demo_report import Made, assemble, compare, write_pictures
from elastic_dit.cli.output import write_json
from elastic_dit.cli.summary import print_summary
from elastic_dit.config import Config
from elastic_dit.errors import SaveError
from elastic_dit.judging import COLOURS, MOTIONS, SHAPES, parse_prompt, render
from elastic_dit.report.build import Ended, judge_result
from elastic_dit.report.plain import PlainRun, frames_digest
from elastic_dit.report.schema import DemoReport
from elastic_dit.request import Stage
from elastic_dit.results import make_result
from elastic_dit.state import StageRecord
from tests.cli.requests import request
from tests.cli.running import run


def made(number: int, gpu: int = 0) -> Made:
    asked = request(number)
    scene = parse_prompt(asked.prompt)
    assert scene is not None
    record = StageRecord(
        stage=Stage.DIT, gpus=(gpu,), started_at=10.0 + number, seconds=0.5, attempt=1
    )
    result = make_result(render(scene, asked.num_frames, asked.width), asked, [record])
    ended = Ended(
        request=asked, status="completed", latency_s=1.0, records=(record,), result=result
    )
    return Made(number, ended, judge_result(result))


def failed(number: int) -> Made:
    ended = Ended(request=request(number), status="failed", latency_s=1.0, error="boom")
    return Made(number, ended, None)


def test_plan_is_drawn_from_its_seed() -> None:
    plan = demo_submissions(16, seed=3, model="shapes")
    assert plan == demo_submissions(16, seed=3, model="shapes")
    assert plan != demo_submissions(16, seed=4, model="shapes")
    assert [each["seed"] for each in plan] == list(range(3, 19))
    assert len({each["request_id"] for each in plan}) == 16
    scenes = [parse_prompt(each["prompt"]) for each in plan]
    assert Counter(scene.shape for scene in scenes if scene) == dict.fromkeys(SHAPES, 2)
    assert Counter(scene.colour for scene in scenes if scene) == dict.fromkeys(COLOURS, 2)
    assert {scene.motion for scene in scenes if scene} == set(MOTIONS)


def test_plan_of_a_thousand_repeats_no_id() -> None:
    plan = demo_submissions(1500, seed=0, model="shapes")
    assert len({each["request_id"] for each in plan}) == 1500


def test_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = made(1), made(2)
    assert one.ended.result is not None

    def run_plain(model: Any, requests: Any, threads: int) -> Iterator[PlainRun]:
        assert [each.request_id for each in requests] == ["r1", "r2"]
        yield PlainRun("r1", True, frames_digest(one.ended.result.frames), 0.7)
        yield PlainRun("r2", False, "another", 0.8)

    monkeypatch.setattr(demo_report, "run_plain", run_plain)
    console = Console(file=io.StringIO())
    plain = compare([one, failed(3), two], Config().models[0], Config(), console)
    assert plain["r1"].identical
    assert (plain["r2"].identical, plain["r2"].ok) == (False, False)

    report = assemble([one, failed(3), two], plain, Config(), 4, wall_s=2.0)
    assert (report.totals.identical, report.totals.plain_right) == (1, 1)
    assert [each.status for each in report.requests] == ["completed", "failed", "completed"]
    assert report.requests[1].plain is None
    assert [each.stages[0].started_s for each in report.requests[::2]] == [0.0, 1.0]
    assert DemoReport.model_validate_json(report.model_dump_json()) == report


def report_of(*outcomes: Made, plain: dict[str, Any] | None = None) -> DemoReport:
    return assemble(outcomes, plain or {}, Config(), 4, wall_s=2.0)


def test_pictures(tmp_path: Path) -> None:
    outcomes = [made(1), failed(2), made(3, gpu=9)]
    write_pictures(outcomes, report_of(*outcomes), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sheet.png", "timeline.png"]
    for path in tmp_path.iterdir():
        with Picture.open(path) as picture:
            picture.verify()


def test_no_sheet_of_nothing(tmp_path: Path) -> None:
    write_pictures([failed(1)], report_of(failed(1)), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.png"]


def test_summary() -> None:
    console = Console(file=io.StringIO(), width=120)
    print_summary(console, report_of(made(1), failed(2)), Path("somewhere"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1 of 1" in shown
    assert "plain" not in shown
    assert "In somewhere: clips/, sheet.png, timeline.png, report.json." in shown


def test_json_goes_where_it_was_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_json("-", "{}")
    assert capsys.readouterr().out == "{}\n"
    write_json(str(tmp_path / "a.json"), "{}")
    assert (tmp_path / "a.json").read_text() == "{}\n"
    write_json(None, "{}")
    assert capsys.readouterr().out == ""
    with pytest.raises(SaveError):
        write_json(str(tmp_path / "none" / "a.json"), "{}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--output", "file/out"), "cannot save file/out: Not a directory"),
        (("--json", "none/a.json"), "cannot save none/a.json: No such file"),
        (("--config", "none.yaml"), "config = 'none.yaml': must be a readable file"),
        (("--config", "other.yaml"), "models = '/models/wan': must be a list that holds"),
        (("--config", "wrong.yaml"), "control.tick_s = 0: must be greater than 0"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "other.yaml").write_text("models: [{name: wan, path: /models/wan}]")
    (tmp_path / "wrong.yaml").write_text("control: {tick_s: 0}")
    output = () if "--output" in arguments else ("--output", "out")
    ran = run(capsys, "demo", *output, *arguments)
    assert ran.code == 1
    assert said in ran.error
