"""Frames to the bytes of a media file: mp4 by PyAV, everything else by Pillow.

Every format carries a comment, which holds as JSON how the frames were made (`read_comment`).
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from PIL import Image

__all__ = [
    "Frames",
    "encode_gif",
    "encode_jpeg",
    "encode_mp4",
    "encode_png",
    "encode_webp",
    "film_strip",
    "read_comment",
]

Frames = npt.NDArray[np.uint8]
"""RGB, ``[T, H, W, 3]``."""

_QUALITY: Mapping[str, str] = {"crf": "16", "preset": "medium"}
"""x264 settings: visually without loss, at a fraction of a second for a short clip."""
_BT709 = 1
"""Number of ITU-T H.273 for the BT.709 primaries, transfer and matrix: what players expect."""
_LIMITED_RANGE = 1
_STRIP_FRAMES = 8
_STRIP_GAP = 2
"""Pixels between two frames of a strip."""
_LOSSY_QUALITY = 92
_GIF_TICK_MS = 10
_EXIF_DESCRIPTION = 0x010E
_JPEG_EXIF_BYTES = 65_533
"""Most that a JPEG can hold."""
_COMMENT = "Comment"
"""The PNG specification's keyword for a free text."""


def encode_mp4(frames: Frames, fps: int, comment: str) -> bytes:
    """H.264 in an mp4 container, ``yuv420p``, BT.709.

    Odd widths and heights gain one repeated pixel, because chroma is stored at half size. Bytes
    may differ between versions and machines; frames are close to what went in, not equal.

    Parameters
    ----------
    frames : ndarray of uint8
        ``[T, H, W, 3]``.
    fps : int
        Frames per second.
    comment : str
        Text for the container's comment.

    Returns
    -------
    bytes
        A whole file.
    """
    import av

    even = np.pad(
        frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge"
    )
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as container:
        container.metadata["comment"] = comment
        stream = container.add_stream("libx264", rate=fps, options=dict(_QUALITY))
        stream.height, stream.width = even.shape[1:3]
        stream.pix_fmt = "yuv420p"
        context = stream.codec_context
        context.colorspace = context.color_primaries = context.color_trc = _BT709
        context.color_range = _LIMITED_RANGE
        for pixels in even:
            picture = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            picture = picture.reformat(format="yuv420p", dst_colorspace="ITU709")
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return buffer.getvalue()


def encode_gif(frames: Frames, fps: int, comment: str) -> bytes:
    """Endless GIF; 256 colours a frame, frame times in hundredths of a second.

    Parameters are those of `encode_mp4`. Equal frames in a row are stored once.
    """
    duration_ms = max(_GIF_TICK_MS, round(1000 / fps / _GIF_TICK_MS) * _GIF_TICK_MS)
    return _animation(frames, "GIF", duration=duration_ms, comment=comment.encode())


def encode_webp(frames: Frames, fps: int, comment: str) -> bytes:
    """Endless WebP animation, or a still picture of one frame; parameters as `encode_mp4`."""
    options: dict[str, Any] = {"quality": _LOSSY_QUALITY, "exif": _exif(comment)}
    return _animation(frames, "WEBP", duration=round(1000 / fps), **options)


def encode_png(frames: Frames, fps: int, comment: str) -> bytes:  # noqa: ARG001  (one signature)
    """One frame without loss, or a `film_strip` of several; `fps` has no meaning here."""
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_itxt(_COMMENT, comment)
    return _saved(_picture(film_strip(frames)), "PNG", pnginfo=text)


def encode_jpeg(frames: Frames, fps: int, comment: str) -> bytes:  # noqa: ARG001  (one signature)
    """One frame with loss, or a `film_strip` of several; `fps` has no meaning here.

    A comment of more than 64 kB, for which the format has no room, is left out.
    """
    exif = _exif(comment)
    room = exif if len(exif) <= _JPEG_EXIF_BYTES else b""  # no comment shall cost the picture
    return _saved(_picture(film_strip(frames)), "JPEG", quality=_LOSSY_QUALITY, exif=room)


def film_strip(frames: Frames, count: int = _STRIP_FRAMES) -> npt.NDArray[np.uint8]:
    """Evenly spaced frames side by side, first and last among them.

    Parameters
    ----------
    frames : ndarray of uint8
        ``[T, H, W, 3]``.
    count : int
        At most this many frames.

    Returns
    -------
    ndarray of uint8
        ``[H, W', 3]`` with gray gaps of two pixels.

    Examples
    --------
    >>> film_strip(np.zeros((17, 48, 64, 3), np.uint8), count=4).shape
    (48, 262, 3)
    """
    chosen = np.linspace(0, len(frames) - 1, min(count, len(frames))).round().astype(int)
    gap = np.full((frames.shape[1], _STRIP_GAP, 3), 128, np.uint8)
    pieces = [piece for index in chosen for piece in (gap, frames[index])]
    return np.concatenate(pieces[1:], axis=1)


def read_comment(path: str | os.PathLike[str]) -> str:
    """The comment that one of this module's encoders put into a file.

    Parameters
    ----------
    path : path-like
        A file that `Video.save` or `Image.save` wrote.

    Returns
    -------
    str
        Empty where there is none.

    Raises
    ------
    OSError
        Where the file cannot be read.
    """
    if Path(path).suffix.lower() == ".mp4":
        import av

        with av.open(str(path)) as container:
            return str(container.metadata.get("comment", ""))
    from PIL import Image

    with Image.open(path) as picture:
        found = picture.info.get(_COMMENT) or picture.info.get("comment")
        found = found or picture.getexif().get(_EXIF_DESCRIPTION, "")
    return found.decode() if isinstance(found, bytes) else str(found)


def _animation(frames: Frames, kind: str, **options: Any) -> bytes:
    first, *others = [_picture(pixels) for pixels in frames]
    if others:
        options |= {"save_all": True, "append_images": others, "loop": 0}
    return _saved(first, kind, **options)


def _picture(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    from PIL import Image

    return Image.fromarray(pixels)


def _saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _exif(comment: str) -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[_EXIF_DESCRIPTION] = comment
    return exif.tobytes()
