"""The ground truth renderer."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.judging.render import (
    OUTER_RADIUS,
    coverage,
    default_trajectory,
    random_trajectory,
    render,
)
from elastic_dit.judging.scenes import MOTIONS, SHAPES, Scene


@given(motion=st.sampled_from(MOTIONS), seed=st.integers(0, 2**32), spread=st.floats(0, 1))
def test_shapes_stay_inside_the_frame(motion: str, seed: int, spread: float) -> None:
    trajectory = random_trajectory(motion, random.Random(seed), spread)
    for progress in (0.0, 0.5, 1.0):
        centre, radius = trajectory.at(progress)
        reach = radius * OUTER_RADIUS
        assert all(reach - 1e-9 <= place <= 1 - reach + 1e-9 for place in centre)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_shape_reaches_beyond_the_outer_radius(shape: str) -> None:
    mask = coverage(shape, (50, 50), 30, 100, 100)
    places = np.argwhere(mask > 0.5) + 0.5
    assert np.abs(places - 50).max() <= 30 * OUTER_RADIUS + 0.5


@pytest.mark.parametrize("shape", SHAPES)
def test_the_area_grows_with_the_square_of_the_radius(shape: str) -> None:
    small, large = (coverage(shape, (48, 48), radius, 96, 96).sum() for radius in (10, 20))
    assert large / small == pytest.approx(4, rel=0.06)


def test_a_circle_has_the_area_of_a_circle() -> None:
    assert coverage("circle", (32, 32), 20, 64, 64).sum() == pytest.approx(np.pi * 400, rel=0.01)


def test_coverage_moves_with_its_centre() -> None:
    here, there = (coverage("star", (x, 20), 12, 48, 64) for x in (20, 33))
    np.testing.assert_allclose(here[:, :40], there[:, 13:53], atol=1e-6)


def test_colours_are_exact_away_from_the_edge() -> None:
    frame = render(Scene("red", "square"), 1, 64, colour=(1, 0, 0), background=(0, 0, 1))[0]
    assert frame[32, 32].tolist() == [255, 0, 0]
    assert frame[0, 0].tolist() == [0, 0, 255]


def test_a_single_image_shows_the_middle_of_the_motion() -> None:
    scene = Scene("green", "heart", "left", "gray")
    np.testing.assert_array_equal(render(scene, 1, 48)[0], render(scene, 9, 48)[4])


@pytest.mark.parametrize("motion", MOTIONS)
def test_the_default_trajectory_is_always_the_same(motion: str) -> None:
    assert default_trajectory(motion) == default_trajectory(motion)


@pytest.mark.parametrize(("num_frames", "size"), [(0, 64), (9, 0), (-1, 64)])
def test_empty_clips_are_refused(num_frames: int, size: int) -> None:
    with pytest.raises(ValueError, match="cannot render"):
        render(Scene("red", "circle"), num_frames, size)


def test_an_unknown_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="no shape"):
        coverage("hexagon", (8, 8), 4, 16, 16)
