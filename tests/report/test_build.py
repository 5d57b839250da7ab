from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from elastic_dit.judging import Scene, render
from elastic_dit.report.build import (
    Ended,
    first_start,
    judge_result,
    request_report,
    spans,
    tile,
    totals,
    verdict_text,
)
from elastic_dit.report.schema import DemoReport, PlainReport, RequestReport
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.results import make_result
from elastic_dit.state import StageRecord

SCENE = Scene("blue", "cross", "down", "gray")


def record(stage: Stage, gpu: int, started_at: float, seconds: float, attempt: int = 1):
    return StageRecord(
        stage=stage, gpus=(gpu,), started_at=started_at, seconds=seconds, attempt=attempt
    )


RECORDS = (
    record(Stage.ENCODER, 0, 100.0, 0.5),
    record(Stage.DIT, 1, 101.0, 2.0),
    record(Stage.DECODER, 2, 104.0, 1.0),
)


def request(num_frames: int = 9, prompt: str = SCENE.prompt) -> GenerationRequest:
    return GenerationRequest.parse(
        request_id="r1", model="shapes", prompt=prompt, width=64, height=64,
        num_frames=num_frames, fps=8, num_inference_steps=12, guidance_scale=4.0, seed=7,
    )  # fmt: skip


def completed(records=RECORDS, latency_s: float = 6.0) -> Ended:
    result = make_result(render(SCENE, 9, 64), request(), records)
    return Ended(
        request=request(), status="completed", latency_s=latency_s, records=records, result=result
    )


def report(ended: Ended) -> RequestReport:
    judged = None if ended.result is None else judge_result(ended.result)
    return request_report(ended, first_start([ended]), judged)


def test_report_of_a_completed_request() -> None:
    made = report(completed())
    assert (made.size, made.frames, made.steps, made.seed) == ("64x64", 9, 12, 7)
    assert made.stage_seconds == {Stage.ENCODER: 0.5, Stage.DIT: 2.0, Stage.DECODER: 1.0}
    assert made.engines == {Stage.ENCODER: (0,), Stage.DIT: (1,), Stage.DECODER: (2,)}
    assert [stage.started_s for stage in made.stages] == [0.0, 1.0, 4.0]
    assert made.queue_seconds == pytest.approx(2.5)
    assert made.judge is not None
    assert made.judge.ok
    assert (made.judge.colour, made.judge.shape) == ("blue", "cross")


def test_repeated_stage_counts_its_last_attempt_and_all_its_work() -> None:
    again = (*RECORDS, record(Stage.DECODER, 3, 105.5, 0.4, attempt=2))
    made = report(completed(again))
    assert made.stage_seconds[Stage.DECODER] == 0.4
    assert made.engines[Stage.DECODER] == (3,)
    assert len(made.stages) == 4
    assert made.queue_seconds == pytest.approx(6.0 - 3.9)


def test_a_stage_whose_group_changed_counts_all_its_groups() -> None:
    wider = StageRecord(stage=Stage.DIT, gpus=(1, 3), started_at=103.0, seconds=0.5, attempt=1)
    made = report(completed((RECORDS[0], RECORDS[1], wider, RECORDS[2])))
    assert made.stage_seconds[Stage.DIT] == 2.5
    assert made.engines[Stage.DIT] == (1, 3)
    assert [stage.gpus for stage in made.stages] == [(0,), (1,), (1, 3), (2,)]


def test_report_of_a_failed_request() -> None:
    made = report(Ended(request=request(), status="failed", latency_s=1.0, error="boom"))
    assert (made.status, made.error, made.judge, made.stages) == ("failed", "boom", None, ())
    assert made.queue_seconds == 1.0


def test_prompt_without_a_scene_is_not_judged() -> None:
    result = make_result(render(SCENE, 9, 64), request(prompt="a corgi"))
    assert judge_result(result) is None
    assert tile(1, result, None).ok is None


def test_wrong_clip_is_told_apart() -> None:
    other = Scene("blue", "ring", "down", "gray")
    judged = judge_result(make_result(render(other, 9, 64), request()))
    assert judged is not None
    assert judged.differences == ("shape",)
    assert verdict_text(judged) == "shape is ring"


def test_empty_clip_shows_nothing() -> None:
    judged = judge_result(make_result(np.zeros((9, 64, 64, 3), np.uint8), request()))
    assert judged is not None
    assert verdict_text(judged) == "no shape visible"


def test_totals() -> None:
    good = report(completed())
    plain = PlainReport(ok=False, identical=True, seconds=3.0)
    failed = report(Ended(request=request(), status="failed", latency_s=1.0, error="boom"))
    sums = totals([good.model_copy(update={"plain": plain}), failed], gpus=2, wall_s=7.0)
    assert (sums.requests, sums.completed, sums.judged, sums.right) == (2, 1, 1, 1)
    assert (sums.plain_right, sums.identical, sums.plain_wall_seconds) == (0, 1, 3.0)
    assert sums.gpu_busy_share == pytest.approx(3.5 / 14)
    assert totals([good], gpus=2, wall_s=7.0).plain_right is None


def test_report_survives_json() -> None:
    made = report(completed())
    assert RequestReport.model_validate_json(made.model_dump_json()) == made
    assert DemoReport.model_fields["schema_version"].default == 1


def test_spans_are_numbered_by_request() -> None:
    bars = spans([report(completed()), report(completed())])
    assert [bar.label for bar in bars] == ["1", "1", "1", "2", "2", "2"]
    assert bars[1].detail == "64x64, 9 frames"
    assert bars[1].end_s == pytest.approx(3.0)


def test_bars_know_when_their_request_was_submitted() -> None:
    late = replace(completed(), submitted_s=0.4)
    origin_s = first_start([late]) - 2.0
    bars = spans([request_report(late, origin_s), request_report(completed(), origin_s + 2.1)])
    assert [bar.submitted_s for bar in bars] == pytest.approx([0.4] * 3 + [-0.1] * 3)
