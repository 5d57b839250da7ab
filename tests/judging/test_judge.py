"""The judge: right on ground truth, steady under noise, and not to be fooled."""

import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.judging import (
    COLOURS,
    MOTIONS,
    SHAPES,
    Scene,
    Verdict,
    all_scenes,
    evaluation_scenes,
    judge,
    random_trajectory,
    render,
    tally,
)

SIZES = (48, 64, 96)
FRAMES = (1, 9, 17)
SCENES = all_scenes()


def clip(scene: Scene, num_frames: int, size: int, seed: int = 0) -> np.ndarray:
    trajectory = random_trajectory(scene.motion, random.Random(seed))
    return render(scene, num_frames, size, trajectory)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("num_frames", FRAMES)
def test_ground_truth_is_judged_right_in_everything(num_frames: int, size: int) -> None:
    scenes = evaluation_scenes(48)
    verdicts = [judge(clip(scene, num_frames, size, seed)) for seed, scene in enumerate(scenes)]
    counts = tally(verdicts, scenes)
    assert (counts.total, counts.right) == (48, 48)
    assert (counts.colour, counts.shape, counts.motion, counts.background) == (48, 48, 48, 48)
    assert min(verdict.iou for verdict in verdicts) > 0.97
    assert max(verdict.stray for verdict in verdicts) < 0.01


@pytest.mark.parametrize("size", SIZES)
def test_every_colour_and_shape_on_every_background_is_told_apart(size: int) -> None:
    scenes = [scene for scene in SCENES if scene.motion == "still"]
    counts = tally([judge(render(scene, 1, size)) for scene in scenes], scenes)
    assert (counts.total, counts.right) == (184, 184)


@settings(deadline=None, max_examples=40)
@given(
    scene=st.sampled_from(SCENES),
    size=st.sampled_from(SIZES),
    seed=st.integers(0, 1000),
    noise=st.integers(0, 8),
)
def test_small_noise_changes_nothing(scene: Scene, size: int, seed: int, noise: int) -> None:
    frames = clip(scene, 5, size, seed).astype(np.int16)
    frames += np.random.default_rng(seed).integers(-noise, noise, frames.shape, endpoint=True)
    assert judge(np.clip(frames, 0, 255).astype(np.uint8)).matches(scene)


@settings(deadline=None, max_examples=40)
@given(scene=st.sampled_from(SCENES), other=st.sampled_from(SCENES))
def test_a_clip_matches_its_own_scene_only(scene: Scene, other: Scene) -> None:
    assert judge(render(scene, 9, 48)).matches(other) == (scene == other)


@settings(deadline=None, max_examples=20)
@given(scene=st.sampled_from([s for s in SCENES if s.motion in ("left", "up", "grow")]))
def test_a_clip_played_backwards_moves_the_other_way(scene: Scene) -> None:
    opposite = {"left": "right", "up": "down", "grow": "shrink"}[scene.motion]
    backwards = judge(render(scene, 9, 48)[::-1])
    assert backwards.motion == opposite
    assert backwards.differences(scene) == ("motion",)


@settings(deadline=None, max_examples=20)
@given(shape=st.sampled_from(SHAPES), colour=st.sampled_from(sorted(COLOURS)))
def test_mirroring_left_to_right_keeps_the_shape(shape: str, colour: str) -> None:
    verdict = judge(render(Scene(colour, shape, "left"), 9, 64)[:, :, ::-1])
    assert (verdict.shape, verdict.colour, verdict.motion) == (shape, colour, "right")


def test_the_motion_of_an_image_is_not_judged() -> None:
    verdict = judge(render(Scene("red", "circle", "left"), 1, 64))
    assert verdict.motion is None
    assert all(verdict.matches(Scene("red", "circle", motion)) for motion in MOTIONS)


@pytest.mark.parametrize("value", [0, 97, 255])
def test_an_empty_clip_matches_nothing(value: int) -> None:
    verdict = judge(np.full((9, 48, 48, 3), value, np.uint8))
    assert verdict == Verdict(None, None, None, None, iou=0.0, stray=1.0)
    assert not verdict.matches(Scene("white", "circle"))


def test_pure_noise_fits_no_shape() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (9, 64, 64, 3), dtype=np.uint8)
    assert judge(noise).iou < 0.5


def test_a_shape_that_vanishes_matches_nothing() -> None:
    frames = render(Scene("red", "circle"), 9, 64)
    frames[-1] = frames[0, 0, 0]
    assert judge(frames).shape is None


def test_a_diagonal_way_is_no_motion_that_can_be_asked_for() -> None:
    first, last = (render(Scene("red", "circle", motion), 9, 64) for motion in ("left", "up"))
    frames = np.stack([first[0], last[-1]])
    assert judge(frames).motion == "diagonal"


def test_a_second_object_counts_as_stray() -> None:
    frames = render(Scene("red", "circle"), 9, 64)
    frames[:, 4:12, 4:12] = frames[0, 32, 32]
    verdict = judge(frames)
    assert verdict.shape == "circle"
    assert verdict.stray == pytest.approx(64 / (64 + np.pi * (0.22 * 64) ** 2), rel=0.05)


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((9, 48, 48, 3), np.float32),
        np.zeros((48, 48, 3), np.uint8),
        np.zeros((9, 48, 48, 4), np.uint8),
        np.zeros((0, 48, 48, 3), np.uint8),
    ],
)
def test_what_is_no_clip_is_refused(frames: np.ndarray) -> None:
    with pytest.raises(ValueError, match="want uint8"):
        judge(frames)


def test_more_verdicts_than_scenes_are_refused() -> None:
    verdict = judge(render(Scene("red", "circle"), 1, 48))
    with pytest.raises(ValueError, match="zip"):
        tally([verdict, verdict], [Scene("red", "circle")])


def test_judging_needs_neither_torch_nor_dask() -> None:
    code = (
        "import sys, elastic_dit.judging, elastic_dit.models; "
        "print(*{'torch', 'dask', 'distributed', 'diffusers'} & set(sys.modules))"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True
    ).stdout
    assert output.split() == []
