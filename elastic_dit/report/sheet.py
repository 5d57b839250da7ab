"""Contact sheet: many clips at a glance, each a film strip with a caption and the verdict."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from elastic_dit.media import Frames

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

__all__ = ["Tile", "draw_sheet"]

_FRAMES = 5
_FRAME_HEIGHT = 96
_GAP, _PADDING, _MARGIN = 4, 14, 28
_CAPTION_HEIGHT = 52
_HEAD_HEIGHT = 56
_STRIP_WIDTH = _FRAMES * _FRAME_HEIGHT + (_FRAMES - 1) * _GAP
_TILE_WIDTH = _STRIP_WIDTH + 2 * _PADDING
_TILE_HEIGHT = _FRAME_HEIGHT + _CAPTION_HEIGHT + 2 * _PADDING
_COLUMNS = 3
_PAGE, _CARD, _BORDER = "#eef0f4", "#ffffff", "#dde0e7"
_INK, _FAINT, _GOOD, _BAD = "#22262e", "#7b828f", "#2b8a3e", "#c92a2a"


@dataclass(frozen=True)
class Tile:
    """One clip of a sheet.

    Parameters
    ----------
    frames : ndarray of uint8
        RGB, ``[T, H, W, 3]``; five evenly spaced ones are shown.
    caption : str
        First line, such as the prompt.
    detail : str
        Second line, such as size and seed.
    ok : bool or None
        The judge's verdict; None where there is none.
    verdict : str
        The verdict in words.
    """

    frames: Frames
    caption: str
    detail: str
    ok: bool | None = None
    verdict: str = ""


def draw_sheet(tiles: Sequence[Tile], title: str) -> bytes:
    """Draw the tiles in three columns under a headline.

    Parameters
    ----------
    tiles : sequence of Tile
        At least one.
    title : str
        Headline.

    Returns
    -------
    bytes
        A PNG.

    Raises
    ------
    ValueError
        Where there is no tile.

    Examples
    --------
    >>> tile = Tile(np.zeros((9, 64, 64, 3), np.uint8), "a red circle", "64x64, seed 1")
    >>> draw_sheet([tile], "one clip")[1:4]
    b'PNG'
    """
    from PIL import Image, ImageDraw

    if not tiles:
        raise ValueError("a contact sheet needs at least one clip")
    columns = min(_COLUMNS, len(tiles))
    rows = -(-len(tiles) // columns)
    width = 2 * _MARGIN + columns * _TILE_WIDTH + (columns - 1) * _PADDING
    height = _MARGIN + _HEAD_HEIGHT + rows * (_TILE_HEIGHT + _PADDING)
    sheet = Image.new("RGB", (width, height), _PAGE)
    draw = ImageDraw.Draw(sheet)
    draw.text((_MARGIN, _MARGIN - 4), title, _INK, _font(24, bold=True))
    for index, tile in enumerate(tiles):
        row, column = divmod(index, columns)
        left = _MARGIN + column * (_TILE_WIDTH + _PADDING)
        _draw_tile(sheet, draw, tile, left, _HEAD_HEIGHT + 14 + row * (_TILE_HEIGHT + _PADDING))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _draw_tile(
    sheet: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, left: int, top: int
) -> None:
    box = (left, top, left + _TILE_WIDTH, top + _TILE_HEIGHT)
    draw.rounded_rectangle(box, radius=10, fill=_CARD, outline=_BORDER)
    x, y = left + _PADDING, top + _PADDING
    for picture in _pictures(tile.frames):
        sheet.paste(picture, (x, y + (_FRAME_HEIGHT - picture.height) // 2))
        x += picture.width + _GAP
    x, y = left + _PADDING, y + _FRAME_HEIGHT + 10
    _draw_text(draw, (x, y), tile.caption, 15, _INK)
    _draw_text(draw, (x, y + 24), tile.detail, 13, _FAINT)
    if tile.ok is not None:
        mark = f"{'✓' if tile.ok else '✗'} {tile.verdict}".rstrip()
        right = (left + _TILE_WIDTH - _PADDING, y + 24)
        draw.text(right, mark, _GOOD if tile.ok else _BAD, _font(13, bold=True), anchor="ra")


def _draw_text(
    draw: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, colour: str
) -> None:
    """Write one line, cut with an ellipsis where the card ends."""
    font = _font(size)
    line = " ".join(text.split())
    if font.getlength(line) > _STRIP_WIDTH:
        while line and font.getlength(f"{line}…") > _STRIP_WIDTH:
            line = line[:-1]
        line = f"{line}…"
    draw.text(place, line, colour, font)


def _pictures(frames: Frames) -> list[Image.Image]:
    """Evenly spaced frames, scaled to fit squares of the strip's height."""
    from PIL import Image

    height, width = frames.shape[1:3]
    scale = _FRAME_HEIGHT / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    chosen = np.linspace(0, len(frames) - 1, min(_FRAMES, len(frames))).round().astype(int)
    return [Image.fromarray(frames[i]).resize(size, Image.Resampling.LANCZOS) for i in chosen]


@cache
def _font(size: int, *, bold: bool = False) -> ImageFont.FreeTypeFont:
    # Matplotlib brings a font with ticks and crosses; a bare machine has none of its own.
    import matplotlib as mpl
    from PIL import ImageFont

    folder = Path(mpl.get_data_path()) / "fonts" / "ttf"
    return ImageFont.truetype(folder / f"DejaVuSans{'-Bold' if bold else ''}.ttf", size)
