"""Contact sheet and timeline: what must be visible is looked for in the pixels."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageColor

from elastic_dit.report.sheet import Tile, draw_sheet
from elastic_dit.report.timeline import STAGE_COLOURS, Span, draw_timeline, waiting_over_time
from elastic_dit.request import Stage


def count_pixels(picture: Image.Image, colour: str) -> int:
    pixels = np.asarray(picture.convert("RGB"))
    return int((pixels == ImageColor.getrgb(colour)).all(-1).sum())


def clip(count: int, height: int, width: int, value: int = 200) -> np.ndarray:
    return np.full((count, height, width, 3), value, np.uint8)


@pytest.mark.parametrize(
    ("count", "height", "width"), [(1, 48, 48), (9, 96, 64), (17, 16, 512), (2, 512, 16), (5, 1, 1)]
)
def test_sheet_takes_any_clip(count: int, height: int, width: int) -> None:
    tile = Tile(clip(count, height, width), "提示 😀 " * 60, "detail " * 60, ok=False, verdict="x")
    four, five = (Image.open(io.BytesIO(draw_sheet([tile] * n, "title"))) for n in (4, 5))
    assert four.size == five.size


def test_sheet_shows_frames_and_verdicts() -> None:
    tile = Tile(clip(9, 64, 64, 123), "a", "b", ok=True, verdict="right")
    sheet = Image.open(io.BytesIO(draw_sheet([tile], "t")))
    assert count_pixels(sheet, "#7b7b7b") > 5 * 90 * 90
    assert count_pixels(sheet, "#2b8a3e") > 0
    assert count_pixels(sheet, "#c92a2a") == 0


def test_sheet_wants_a_clip() -> None:
    with pytest.raises(ValueError, match="at least one clip"):
        draw_sheet([], "t")


def span(label: str, stage: Stage, gpu: int, start_s: float, seconds: float) -> Span:
    return Span(label=label, stage=stage, gpus=(gpu,), start_s=start_s, seconds=seconds)


def stage_pixels(ran: list[Span], gpus: list[int]) -> dict[Stage, int]:
    with Image.open(io.BytesIO(draw_timeline(ran, gpus, "title"))) as picture:
        return {stage: count_pixels(picture, STAGE_COLOURS[stage]) for stage in Stage}


def test_timeline_shows_how_long_each_stage_ran() -> None:
    legend = stage_pixels([], [0, 1, 2, 8])
    ran = [span("1", stage, index, index, 1.0 + index) for index, stage in enumerate(Stage)]
    shown = stage_pixels(ran, [0, 1, 2, 8])
    bars = {stage: shown[stage] - legend[stage] for stage in Stage}
    assert bars[Stage.ENCODER] > 1000
    assert bars[Stage.DIT] == pytest.approx(2 * bars[Stage.ENCODER], rel=0.1)
    assert bars[Stage.DECODER] == pytest.approx(3 * bars[Stage.ENCODER], rel=0.1)


def test_timeline_gives_each_gpu_of_a_group_a_bar() -> None:
    legend = stage_pixels([], [0, 1])[Stage.DIT]
    alone = Span(label="", stage=Stage.DIT, gpus=(0,), start_s=0.0, seconds=1.0)
    pair = Span(label="", stage=Stage.DIT, gpus=(0, 1), start_s=0.0, seconds=1.0)
    one, two = (stage_pixels([each], [0, 1])[Stage.DIT] - legend for each in (alone, pair))
    assert two == 2 * one > 0


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.floats(0.01, 2), st.floats(0, 5), st.floats(0.01, 2)),
        max_size=8,
    )
)
@settings(deadline=None)
def test_waits_end_and_are_never_negative(requests: list[tuple[float, ...]]) -> None:
    ran = []
    for number, (encode_at, encode_s, wait_s, denoise_s) in enumerate(requests):
        ran.append(span(str(number), Stage.ENCODER, 0, encode_at, encode_s))
        denoise_at = encode_at + encode_s + wait_s
        ran.append(span(str(number), Stage.DIT, 1, denoise_at, denoise_s))
    times_s, counts = waiting_over_time(ran)
    assert times_s == sorted(times_s)
    for stage in Stage:
        assert all(count >= 0 for count in counts[stage])
        assert len(counts[stage]) == len(times_s)
        assert not counts[stage] or counts[stage][-1] == 0
