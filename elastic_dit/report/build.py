"""From results to reports: what the models of `elastic_dit.report.schema` are filled with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from elastic_dit.judging import judge, parse_prompt
from elastic_dit.report.schema import JudgeReport, RequestReport, StageReport, Totals
from elastic_dit.report.sheet import Tile
from elastic_dit.report.timeline import Span
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.results import Image, Video
from elastic_dit.state import StageRecord

__all__ = [
    "Ended",
    "first_start",
    "judge_result",
    "request_report",
    "spans",
    "tile",
    "totals",
    "verdict_text",
]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A request that is over.

    Parameters
    ----------
    request : GenerationRequest
        What was asked for.
    status : str
        ``completed``, ``failed`` or ``cancelled``.
    latency_s : float
        From submission to the end at the client, seconds.
    submitted_s : float
        When it was submitted, seconds from the first submission.
    records : tuple of StageRecord
        Stages that ran.
    result : Video or Image, optional
        What came of it.
    error : str, optional
        Why nothing came of it.
    file : str, optional
        Where the result lies.
    """

    request: GenerationRequest
    status: Literal["completed", "failed", "cancelled"]
    latency_s: float
    submitted_s: float = 0.0
    records: tuple[StageRecord, ...] = ()
    result: Video | Image | None = None
    error: str | None = None
    file: str | None = None


def judge_result(result: Video | Image) -> JudgeReport | None:
    """Judge a result by its own prompt; None where the prompt names no scene."""
    scene = parse_prompt(result.request.prompt)
    if scene is None:
        return None
    verdict = judge(result.frames)
    differences = verdict.differences(scene)
    return JudgeReport(
        ok=not differences,
        colour=verdict.colour,
        shape=verdict.shape,
        motion=verdict.motion,
        background=verdict.background,
        iou=round(verdict.iou, 4),
        stray=round(verdict.stray, 4),
        differences=differences,
    )


def first_start(ended: Iterable[Ended]) -> float:
    """When the first stage of all started, seconds on the control plane's clock; 0 if none did."""
    return min((record.started_at for one in ended for record in one.records), default=0.0)


def request_report(
    ended: Ended, origin_s: float, judged: JudgeReport | None = None
) -> RequestReport:
    """Put one request's outcome in the report's form.

    Parameters
    ----------
    ended : Ended
        The request.
    origin_s : float
        What to count stage times from, seconds on the control plane's clock: `first_start`.
    judged : JudgeReport, optional
        What its result shows.

    Returns
    -------
    RequestReport
        Without a comparison to the plain pipeline.
    """
    request = ended.request
    last = _last_attempts(ended.records)
    working_s = sum(record.seconds for record in ended.records)
    return RequestReport(
        request_id=request.request_id,
        model=request.model,
        prompt=request.prompt,
        size=f"{request.width}x{request.height}",
        frames=request.num_frames,
        fps=request.fps,
        steps=request.num_inference_steps,
        guidance_scale=request.guidance_scale,
        seed=request.seed,
        status=ended.status,
        error=ended.error,
        file=ended.file,
        submitted_seconds=ended.submitted_s,
        latency_seconds=ended.latency_s,
        stage_seconds={stage: sum(each.seconds for each in last[stage]) for stage in last},
        queue_seconds=max(0.0, ended.latency_s - working_s),
        engines={
            stage: tuple(dict.fromkeys(gpu for each in last[stage] for gpu in each.gpus))
            for stage in last
        },
        stages=tuple(_stage_report(record, origin_s) for record in ended.records),
        judge=judged,
    )


def totals(reports: Sequence[RequestReport], gpus: int, wall_s: float) -> Totals:
    """Sum up.

    Parameters
    ----------
    reports : sequence of RequestReport
        All requests, compared with the plain pipeline or not.
    gpus : int
        Engines there were.
    wall_s : float
        From the first submission to the last result, seconds.

    Returns
    -------
    Totals
    """
    verdicts = [report.judge for report in reports if report.judge is not None]
    plain = [report.plain for report in reports if report.plain is not None]
    busy_s = sum(stage.seconds * len(stage.gpus) for one in reports for stage in one.stages)
    return Totals(
        requests=len(reports),
        completed=sum(report.status == "completed" for report in reports),
        judged=len(verdicts),
        right=sum(verdict.ok for verdict in verdicts),
        plain_right=sum(one.ok for one in plain) if plain else None,
        identical=sum(one.identical for one in plain) if plain else None,
        wall_seconds=wall_s,
        plain_wall_seconds=sum(one.seconds for one in plain) if plain else None,
        gpu_busy_share=min(1.0, busy_s / (gpus * wall_s)) if wall_s > 0 else 0.0,
    )


def spans(reports: Iterable[RequestReport]) -> list[Span]:
    """Bars of a timeline, requests numbered from 1."""
    return [
        Span(
            label=str(number),
            detail=f"{report.size}, {_frames(report.frames)}",
            stage=stage.stage,
            gpus=stage.gpus,
            start_s=stage.started_s,
            seconds=stage.seconds,
            # The two clocks start within milliseconds of each other.
            submitted_s=min(report.submitted_seconds, report.stages[0].started_s),
        )
        for number, report in enumerate(reports, start=1)
        for stage in report.stages
    ]


def tile(number: int, result: Video | Image, judged: JudgeReport | None) -> Tile:
    """A result's place on a contact sheet."""
    request = result.request
    size = f"{request.width}x{request.height}"
    return Tile(
        frames=result.frames,
        caption=request.prompt,
        detail=f"#{number} · {size} · {_frames(request.num_frames)} · seed {request.seed}",
        ok=None if judged is None else judged.ok,
        verdict="" if judged is None else verdict_text(judged),
    )


def verdict_text(judged: JudgeReport) -> str:
    """A verdict in a few words: ``right``, or what was seen instead.

    >>> seen = JudgeReport(ok=False, colour="red", shape="ring", motion=None, background="black",
    ...                    iou=0.8, stray=0.0, differences=("shape",))
    >>> verdict_text(seen)
    'shape is ring'
    """
    if judged.ok:
        return "right"
    if judged.shape is None:
        return "no shape visible"
    seen = (f"{name} is {getattr(judged, name)}" for name in judged.differences)
    return ", ".join(seen)


def _last_attempts(records: Iterable[StageRecord]) -> dict[Stage, list[StageRecord]]:
    """Per stage what its last attempt did: one record for each group that worked on it."""
    last: dict[Stage, list[StageRecord]] = {}
    for record in records:
        known = last.setdefault(record.stage, [])
        if known and known[-1].attempt != record.attempt:
            known.clear()
        known.append(record)
    return last


def _stage_report(record: StageRecord, origin_s: float) -> StageReport:
    return StageReport(
        stage=record.stage,
        gpus=record.gpus,
        started_s=record.started_at - origin_s,
        seconds=record.seconds,
        attempt=record.attempt,
    )


def _frames(count: int) -> str:
    return "image" if count == 1 else f"{count} frames"
