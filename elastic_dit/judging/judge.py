"""Judge a generated clip by plain image analysis: no network and no human.

Each frame is split into background (median of the border) and foreground (projection on the colour
difference), which gives a soft mask. The mask's area and centroid place every candidate shape,
and the one that overlaps best wins. Motion is read from the first and the last frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from elastic_dit.judging.render import coverage
from elastic_dit.judging.scenes import BACKGROUNDS, COLOURS, RGB, SHAPES, Scene

__all__ = ["Verdict", "judge"]

FloatArray = npt.NDArray[np.float32]

_VISIBLE = 0.12
"""Least distance from the background, of colours from 0 to 1, that counts as a shape."""
_CORE_QUANTILE, _CORE_SHARE = 0.985, 0.6
_MASK_LEVEL = 0.4
"""Coverage above which a pixel belongs to the shape."""
_MOVED = 0.15
"""Least way of the centroid, as a fraction of the side, that counts as moving."""
_DIAGONAL = 0.5
_GREW, _SHRANK = 1.6, 0.63
"""Ratios of last to first area beyond which a shape grew or shrank."""
_SHAPE_FRAMES = 5
"""At most this many frames vote on the shape."""
_RADIUS_FACTORS = (0.92, 0.96, 1.0, 1.04, 1.08)
_LEAST_RADIUS = 2.0
_UNIT_RADIUS, _UNIT_SIDE = 32.0, 128


@dataclass(frozen=True)
class Verdict:
    """What a clip shows.

    Parameters
    ----------
    colour, shape, background : str or None
        Names from `elastic_dit.judging.scenes`; None where no shape is visible.
    motion : str or None
        A name, ``"diagonal"``, or None for a single image, whose motion is not judged.
    iou : float
        Overlap of the mask with the best shape, 0 to 1, mean over the frames looked at.
    stray : float
        Share of the foreground that is not part of the shape, 0 to 1.
    """

    colour: str | None
    shape: str | None
    motion: str | None
    background: str | None
    iou: float
    stray: float

    def differences(self, scene: Scene) -> tuple[str, ...]:
        """Names of what differs from the scene.

        Parameters
        ----------
        scene : Scene
            What was asked for.

        Returns
        -------
        tuple of str
            Some of ``"colour"``, ``"shape"``, ``"motion"``, ``"background"``; empty if all is
            right.
        """
        differing = [
            name
            for name in ("colour", "shape", "background")
            if getattr(self, name) != getattr(scene, name)
        ]
        if self.motion is not None and self.motion != scene.motion:
            differing.append("motion")
        return tuple(differing)

    def matches(self, scene: Scene) -> bool:
        """Whether the clip shows all that the scene asks for."""
        return not self.differences(scene)


@dataclass(frozen=True)
class _Frame:
    """One frame taken apart: soft mask ``(H, W)``, its colours, and its first moments in pixels.

    All candidate shapes fit into the window, which is much smaller than the frame.
    """

    mask: FloatArray
    window: tuple[slice, slice]
    colour: FloatArray
    background: FloatArray
    stray: float
    area: float
    centroid: tuple[float, float]


def judge(frames: npt.NDArray[np.uint8]) -> Verdict:
    """Say what a clip shows.

    Parameters
    ----------
    frames : numpy.ndarray
        ``uint8`` RGB of shape ``(T, H, W, 3)``; ``T`` = 1 for an image.

    Returns
    -------
    Verdict
        Nothing but Nones where a shape is missing in the first, the last, or several frames.

    Raises
    ------
    ValueError
        The array has another dtype or shape, or is empty.

    Examples
    --------
    >>> from elastic_dit.judging.render import render
    >>> scene = Scene("cyan", "heart", "up", "white")
    >>> judge(render(scene, num_frames=9, size=64)).matches(scene)
    True
    """
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[-1] != 3 or not frames.size:
        raise ValueError(f"want uint8 (T, H, W, 3), got {frames.dtype} {frames.shape}")
    parsed = [_take_apart(frame.astype(np.float32) / 255) for frame in frames]
    seen = [frame for frame in parsed if frame is not None]
    first, last = parsed[0], parsed[-1]
    if first is None or last is None or len(seen) < len(parsed) - 1:
        return Verdict(None, None, None, None, iou=0.0, stray=1.0)
    shape, iou = _shape(seen[:: math.ceil(len(seen) / _SHAPE_FRAMES)])
    return Verdict(
        colour=_nearest(np.median([frame.colour for frame in seen], axis=0), COLOURS),
        shape=shape,
        motion=_motion(first, last) if len(parsed) > 1 else None,
        background=_nearest(np.median([frame.background for frame in seen], axis=0), BACKGROUNDS),
        iou=iou,
        stray=float(np.mean([frame.stray for frame in seen])),
    )


def _take_apart(frame: FloatArray) -> _Frame | None:
    """Separate the largest connected foreground object; None if nothing stands out."""
    border = np.concatenate([frame[0], frame[-1], frame[:, 0], frame[:, -1]])
    background = np.median(border, axis=0)
    distance = np.linalg.norm(frame - background, axis=-1)
    if distance.max() < _VISIBLE:
        return None
    core = distance > _CORE_SHARE * np.quantile(distance, _CORE_QUANTILE)
    colour = np.median(frame[core], axis=0)
    axis = colour - background
    alpha = np.clip((frame - background) @ axis / max(float(axis @ axis), 1e-6), 0, 1)
    labels, count = ndimage.label(alpha > _MASK_LEVEL)
    if count == 0:
        return None
    largest = 1 + int(np.argmax(np.bincount(labels.ravel())[1:]))
    # One pixel more, to keep the soft edge of the object.
    keep = ndimage.binary_dilation(labels == largest)
    mask = (alpha * keep).astype(np.float32)
    stray = float((alpha * ~keep).sum() / alpha.sum())
    area, x, y = _moments(mask)
    rows, columns = ndimage.find_objects(keep.astype(np.int8))[0]
    window = _widened(rows, mask.shape[0]), _widened(columns, mask.shape[1])
    return _Frame(mask, window, colour, background, stray, area, (x, y))


def _widened(extent: slice, limit: int) -> slice:
    """The extent and half as much again to each side, within the frame."""
    margin = math.ceil((extent.stop - extent.start) / 2)
    return slice(max(0, extent.start - margin), min(limit, extent.stop + margin))


def _moments(mask: FloatArray) -> tuple[float, float, float]:
    """Area in pixels, and centroid (x, y) in pixels from the top left corner."""
    area = float(mask.sum())
    height, width = mask.shape
    x = float(mask.sum(0) @ (np.arange(width) + 0.5)) / area
    y = float(mask.sum(1) @ (np.arange(height) + 0.5)) / area
    return area, x, y


def _nearest(colour: npt.NDArray[np.float32], table: Mapping[str, RGB]) -> str:
    """Name of the table's colour that is nearest in RGB."""
    return min(table, key=lambda name: float(np.sum((np.asarray(table[name]) - colour) ** 2)))


def _shape(frames: list[_Frame]) -> tuple[str, float]:
    """The shape with the best mean overlap, and that overlap."""
    scores = {
        shape: float(np.mean([_overlap(frame, shape) for frame in frames])) for shape in SHAPES
    }
    best = max(scores, key=lambda shape: scores[shape])
    return best, scores[best]


def _overlap(frame: _Frame, shape: str) -> float:
    """Best soft intersection over union with the shape, placed by area and centroid."""
    unit_area, offset_x, offset_y = _unit_moments(shape)
    radius = max(_LEAST_RADIUS, float(np.sqrt(frame.area / unit_area)))
    rows, columns = frame.window
    mask = frame.mask[frame.window]
    x, y = frame.centroid[0] - columns.start, frame.centroid[1] - rows.start
    best = 0.0
    for factor in _RADIUS_FACTORS:
        scaled = radius * factor
        centre = (x - offset_x * scaled, y - offset_y * scaled)
        template = coverage(shape, centre, scaled, *mask.shape)
        overlap = np.minimum(mask, template).sum() / np.maximum(mask, template).sum()
        best = max(best, float(overlap))
    return best


@lru_cache(maxsize=len(SHAPES))
def _unit_moments(shape: str) -> tuple[float, float, float]:
    """Area and centroid (x, y) from the centre, of the shape of radius 1."""
    middle = _UNIT_SIDE / 2
    mask = coverage(shape, (middle, middle), _UNIT_RADIUS, _UNIT_SIDE, _UNIT_SIDE)
    area, x, y = _moments(mask)
    return area / _UNIT_RADIUS**2, (x - middle) / _UNIT_RADIUS, (y - middle) / _UNIT_RADIUS


def _motion(first: _Frame, last: _Frame) -> str:
    """What happened to the shape between two frames."""
    height, width = first.mask.shape
    dx = (last.centroid[0] - first.centroid[0]) / width
    dy = (last.centroid[1] - first.centroid[1]) / height
    if max(abs(dx), abs(dy)) > _MOVED:
        if min(abs(dx), abs(dy)) > _DIAGONAL * max(abs(dx), abs(dy)):
            return "diagonal"
        if abs(dx) > abs(dy):
            return "right" if dx > 0 else "left"
        return "down" if dy > 0 else "up"
    ratio = last.area / first.area
    if ratio > _GREW:
        return "grow"
    return "shrink" if ratio < _SHRANK else "still"
