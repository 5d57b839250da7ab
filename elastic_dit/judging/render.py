"""Ground truth for scenes: an anti-aliased renderer in numpy.

Every length is a fraction of the frame's side, so one trajectory renders at any size. Shapes are
signed distance fields, sampled once on a fine grid and interpolated, which gives edges at sub-pixel
places for the price of a table look-up.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from scipy import ndimage

from elastic_dit.judging.scenes import BACKGROUNDS, COLOURS, RGB, SHAPES, Scene

__all__ = [
    "OUTER_RADIUS",
    "Trajectory",
    "coverage",
    "default_trajectory",
    "random_trajectory",
    "render",
]

Point = tuple[float, float]
FloatArray = npt.NDArray[np.float32]

OUTER_RADIUS = 1.12
"""How far any shape reaches from its centre along either axis, in units of its radius."""

_FIELD_HALF_WIDTH = 1.6
"""The sampled field covers this many radii to each side of the centre."""
_FIELD_SAMPLES = 96
_FIELD_SUPERSAMPLING = 8
_EDGE_WIDTH = 1.2
"""Width of the soft edge, in pixels."""

_RING_HOLE = 0.55
_STAR_TIPS, _STAR_NOTCHES = 1.12, 0.46
_CROSS_ARM = 0.34
_HEART_POINTS = 200

_STEADY_RADII = (0.19, 0.25)
_SMALL_RADII = (0.12, 0.15)
_LARGE_RADII = (0.27, 0.32)
_DISTANCES = (0.34, 0.44)
_DIRECTIONS: Mapping[str, Point] = MappingProxyType(
    {"left": (-1.0, 0.0), "right": (1.0, 0.0), "up": (0.0, -1.0), "down": (0.0, 1.0)}
)


@dataclass(frozen=True)
class Trajectory:
    """Where the shape is and how large, from the first frame to the last.

    Parameters
    ----------
    start : tuple of float
        Centre ``(x, y)`` in the first frame, as fractions of the side; ``y`` points down.
    shift : tuple of float
        How far the centre moves until the last frame, as fractions of the side.
    start_radius, end_radius : float
        Radius in the first and the last frame, as fractions of the side.
    """

    start: Point
    shift: Point
    start_radius: float
    end_radius: float

    def at(self, progress: float) -> tuple[Point, float]:
        """Centre and radius at a moment from 0 (first frame) to 1 (last frame)."""
        (x, y), (dx, dy) = self.start, self.shift
        radius = self.start_radius + progress * (self.end_radius - self.start_radius)
        return (x + progress * dx, y + progress * dy), radius


def default_trajectory(motion: str) -> Trajectory:
    """The trajectory in the middle of all those that `random_trajectory` draws.

    Parameters
    ----------
    motion : str
        One of `elastic_dit.judging.scenes.MOTIONS`.

    Returns
    -------
    Trajectory
        Stays inside the frame.
    """
    return random_trajectory(motion, random.Random(0), spread=0.0)


def random_trajectory(motion: str, rng: random.Random, spread: float = 1.0) -> Trajectory:
    """Draw a trajectory for a motion.

    Parameters
    ----------
    motion : str
        One of `elastic_dit.judging.scenes.MOTIONS`.
    rng : random.Random
        Source of the draw.
    spread : float
        0 keeps to the middle of every range, 1 uses all of it.

    Returns
    -------
    Trajectory
        Stays inside the frame.
    """

    def draw(low: float, high: float) -> float:
        return (low + high) / 2 + (rng.random() - 0.5) * (high - low) * spread

    start_radius = end_radius = draw(*_STEADY_RADII)
    if motion in ("grow", "shrink"):
        small, large = draw(*_SMALL_RADII), draw(*_LARGE_RADII)
        start_radius, end_radius = (small, large) if motion == "grow" else (large, small)
    distance = draw(*_DISTANCES)
    direction = _DIRECTIONS.get(motion, (0.0, 0.0))
    margin = max(start_radius, end_radius) * OUTER_RADIUS
    shift = (direction[0] * distance, direction[1] * distance)
    start = tuple(draw(margin - min(0.0, step), 1 - margin - max(0.0, step)) for step in shift)
    return Trajectory((start[0], start[1]), shift, start_radius, end_radius)


def render(
    scene: Scene,
    num_frames: int,
    size: int,
    trajectory: Trajectory | None = None,
    colour: RGB | None = None,
    background: RGB | None = None,
) -> npt.NDArray[np.uint8]:
    """Draw the frames that a scene asks for.

    Parameters
    ----------
    scene : Scene
        What to draw.
    num_frames : int
        Number of frames; a single frame shows the middle of the motion.
    size : int
        Height and width, in pixels.
    trajectory : Trajectory, optional
        `default_trajectory` of the scene's motion if not given.
    colour, background : tuple of float, optional
        Exact colours from 0 to 1; those of the scene's names if not given.

    Returns
    -------
    numpy.ndarray
        ``uint8`` of shape ``(num_frames, size, size, 3)``, RGB.

    Raises
    ------
    ValueError
        `num_frames` or `size` is not positive.

    Examples
    --------
    >>> frames = render(Scene("red", "circle", "left"), num_frames=9, size=64)
    >>> frames.shape, frames.dtype
    ((9, 64, 64, 3), dtype('uint8'))
    """
    if num_frames < 1 or size < 1:
        raise ValueError(f"cannot render {num_frames} frames of {size} pixels")
    path = trajectory or default_trajectory(scene.motion)
    moments = np.linspace(0.0, 1.0, num_frames) if num_frames > 1 else np.array([0.5])
    masks = []
    for moment in moments:
        (x, y), radius = path.at(float(moment))
        masks.append(coverage(scene.shape, (x * size, y * size), radius * size, size, size))
    alpha = np.stack(masks)[..., None]
    shape_rgb = np.asarray(colour or COLOURS[scene.colour], np.float32)
    ground_rgb = np.asarray(background or BACKGROUNDS[scene.background], np.float32)
    frames = ground_rgb + alpha * (shape_rgb - ground_rgb)
    pixels: npt.NDArray[np.uint8] = np.round(frames * 255).astype(np.uint8)
    return pixels


def coverage(shape: str, centre: Point, radius: float, height: int, width: int) -> FloatArray:
    """How much of each pixel a shape covers.

    Parameters
    ----------
    shape : str
        One of `elastic_dit.judging.scenes.SHAPES`.
    centre : tuple of float
        ``(x, y)`` of the shape's centre, in pixels from the top left corner.
    radius : float
        The shape's radius, in pixels.
    height, width : int
        Size of the mask, in pixels.

    Returns
    -------
    numpy.ndarray
        ``float32`` of shape ``(height, width)``, from 0 to 1.

    Examples
    --------
    >>> mask = coverage("square", (8, 8), 4, 16, 16)
    >>> float(mask[8, 8]), float(mask[0, 0])
    (1.0, 0.0)
    """
    columns = _field_index((np.arange(width) + 0.5 - centre[0]) / radius)
    rows = _field_index((np.arange(height) + 0.5 - centre[1]) / radius)
    grid = np.stack(np.meshgrid(rows, columns, indexing="ij"))
    distance = ndimage.map_coordinates(_distance_field(shape), grid, order=1, mode="nearest")
    mask: FloatArray = np.clip(0.5 - distance * radius / _EDGE_WIDTH, 0, 1).astype(np.float32)
    return mask


def _field_index(place: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """Index into the distance field of a place given in radii from the centre."""
    return (place / _FIELD_HALF_WIDTH + 1) * _FIELD_SAMPLES / 2 - 0.5


@lru_cache(maxsize=len(SHAPES))
def _distance_field(shape: str) -> FloatArray:
    """Signed distance to the outline in radii, negative inside, on the sampling grid."""
    side = _FIELD_SAMPLES * _FIELD_SUPERSAMPLING
    inside = _fine_mask(shape, side)
    pixels = ndimage.distance_transform_edt(~inside) - ndimage.distance_transform_edt(inside)
    fine = pixels * (2 * _FIELD_HALF_WIDTH / side)
    blocks = fine.reshape(_FIELD_SAMPLES, _FIELD_SUPERSAMPLING, _FIELD_SAMPLES, -1)
    field: FloatArray = blocks.mean((1, 3)).astype(np.float32)
    return field


def _fine_mask(shape: str, side: int) -> npt.NDArray[np.bool_]:
    """The shape as a hard mask of `side` x `side` pixels over the field's extent."""

    def pixel(point: Point) -> Point:
        x, y = ((value / _FIELD_HALF_WIDTH + 1) * side / 2 for value in point)
        return x, y

    image = Image.new("L", (side, side), 0)
    canvas = ImageDraw.Draw(image)
    if shape in ("circle", "ring"):
        canvas.ellipse([pixel((-1, -1)), pixel((1, 1))], fill=255)
        if shape == "ring":
            hole = _RING_HOLE
            canvas.ellipse([pixel((-hole, -hole)), pixel((hole, hole))], fill=0)
    else:
        canvas.polygon([pixel(point) for point in _outline(shape)], fill=255)
    return np.asarray(image) > 127


def _outline(shape: str) -> list[Point]:
    """Corners of a shape in radii from its centre; y points down."""
    if shape == "square":
        return [(-0.86, -0.86), (0.86, -0.86), (0.86, 0.86), (-0.86, 0.86)]
    if shape == "diamond":
        return [(0, -1.1), (0.8, 0), (0, 1.1), (-0.8, 0)]
    if shape == "triangle":
        return [(0, -0.95), (1.0, 0.8), (-1.0, 0.8)]
    if shape == "star":
        return _star()
    if shape == "cross":
        return _cross()
    if shape == "heart":
        return [_heart(2 * math.pi * step / _HEART_POINTS) for step in range(_HEART_POINTS)]
    raise ValueError(f"no shape is called {shape!r}")


def _star() -> list[Point]:
    """A star of five tips, one of them up."""
    corners = []
    for corner in range(10):
        angle = math.pi * corner / 5 - math.pi / 2
        reach = _STAR_TIPS if corner % 2 == 0 else _STAR_NOTCHES
        corners.append((reach * math.cos(angle), reach * math.sin(angle)))
    return corners


def _cross() -> list[Point]:
    """A cross with arms of equal length."""
    arm = _CROSS_ARM
    quarter = [(-arm, -1.0), (arm, -1.0), (arm, -arm)]
    corners: list[Point] = []
    for _ in range(4):
        corners += quarter
        quarter = [(-y, x) for x, y in quarter]
    return corners


def _heart(angle: float) -> Point:
    """A point of the classic sine-and-cosine heart curve, scaled to the unit radius."""
    x = 16 * math.sin(angle) ** 3
    y = (
        13 * math.cos(angle)
        - 5 * math.cos(2 * angle)
        - 2 * math.cos(3 * angle)
        - math.cos(4 * angle)
    )
    return x / 16.0, -(y + 2.5) / 15.5
