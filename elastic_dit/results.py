"""What a user gets: a `Video` or an `Image`, with the account of how it was made."""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from elastic_dit import media
from elastic_dit._version import __version__
from elastic_dit.errors import InvalidRequest, SaveError
from elastic_dit.files import check_target, write_atomically
from elastic_dit.media import Frames
from elastic_dit.request import GenerationRequest
from elastic_dit.state import StageRecord

__all__ = ["Image", "Video", "make_result"]

Encoder = Callable[[Frames, int, str], bytes]

_SHOWN_PROMPT = 60


class _Result:
    """Frames, the request they answer, and the stages that made them. Immutable.

    Pickling keeps the frames out of band (protocol 5), so Dask moves them without a copy, and
    `sys.getsizeof` tells their true size, so a worker's memory account is right.
    """

    __slots__ = ("frames", "records", "request")

    frames: Frames
    """RGB, ``uint8`` ``[T, H, W, 3]``, read-only."""
    request: GenerationRequest
    """What was asked for, model defaults filled in."""
    records: tuple[StageRecord, ...]
    """One per stage that ran, in order of their starts."""

    _encoders: ClassVar[Mapping[str, Encoder]]

    def __init__(
        self,
        frames: Frames,
        request: GenerationRequest,
        records: Iterable[StageRecord] = (),
    ) -> None:
        wanted = (request.num_frames, request.height, request.width, 3)
        if frames.dtype != np.uint8 or frames.shape != wanted:
            raise ValueError(f"want uint8 {wanted}, got {frames.dtype} {frames.shape}")
        # A view, so that making a caller's array read-only stays our own affair.
        own = np.ascontiguousarray(frames).view()
        own.setflags(write=False)
        for name, value in (("frames", own), ("request", request), ("records", tuple(records))):
            object.__setattr__(self, name, value)

    @property
    def fps(self) -> int:
        """Frames per second."""
        return self.request.fps

    @property
    def seed(self) -> int:
        """Seed of the initial noise: with the same request it gives the same pixels again."""
        return self.request.seed

    @property
    def width(self) -> int:
        """Pixels."""
        return self.request.width

    @property
    def height(self) -> int:
        """Pixels."""
        return self.request.height

    def with_records(self, records: Iterable[StageRecord]) -> Self:
        """The same frames with another account of how they were made."""
        return type(self)(self.frames, self.request, records)

    def metadata(self) -> dict[str, Any]:
        """How this was made, as plain JSON-able data.

        Returns
        -------
        dict
            ``software``, ``request`` (every field; a picture by its digest) and ``stages``:
            ``stage``, ``gpus``, ``started_at`` and ``seconds`` (s), ``attempt`` of each.
        """
        return {
            "software": f"elastic-dit {__version__}",
            "request": self.request.without_image_data().model_dump(mode="json"),
            "stages": [
                {
                    "stage": str(record.stage),
                    "gpus": list(record.gpus),
                    "started_at": record.started_at,
                    "seconds": record.seconds,
                    "attempt": record.attempt,
                }
                for record in self.records
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write to a file whose suffix names the format.

        `metadata` goes along as the file's comment, prompt included; read it back with
        `elastic_dit.media.read_comment`. The file appears whole or not at all.

        Parameters
        ----------
        path : path-like
            A `Video` takes ``.mp4``, ``.gif``, ``.webp``, and ``.png`` or ``.jpg`` for a strip
            of up to eight frames; an `Image` takes ``.png``, ``.webp``, ``.jpg`` and ``.gif``.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        InvalidRequest
            Where the suffix names no format for this kind of result.
        SaveError
            Where the directory is missing, may not be written, or has no room.
        """
        encoder = self._encoder(path)
        return write_atomically(path, self._encode(encoder, path))

    @classmethod
    def suffixes(cls) -> tuple[str, ...]:
        """Endings of file names that `save` knows."""
        return tuple(cls._encoders)

    @classmethod
    def check_path(cls, path: str | os.PathLike[str]) -> None:
        """Say before a result is made that `save` would refuse the path; errors as there."""
        cls._encoder(path)
        check_target(path)

    @classmethod
    def _encoder(cls, path: str | os.PathLike[str]) -> Encoder:
        encoder = cls._encoders.get(Path(path).suffix.lower())
        if encoder is None:
            known = ", ".join(cls.suffixes())
            allowed = f"a file name ending in {known} for this {cls.__name__.lower()}"
            raise InvalidRequest("path", str(path), allowed)
        return encoder

    def _encode(self, encoder: Encoder, path: str | os.PathLike[str]) -> bytes:
        comment = json.dumps(self.metadata())
        try:
            return encoder(self.frames, self.fps, comment)
        except (OSError, ValueError) as error:
            raise SaveError(str(path), f"{type(error).__name__}: {error}") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: cannot delete {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.frames, self.request, self.records)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.frames.nbytes

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._prompt()!r} {self._extent()} seed={self.seed}>"

    def _extent(self) -> str:
        return f"{self.width}x{self.height}"

    def _prompt(self) -> str:
        prompt = self.request.prompt
        return prompt if len(prompt) <= _SHOWN_PROMPT else f"{prompt[: _SHOWN_PROMPT - 1]}…"

    def _caption(self) -> str:
        seconds = sum(record.seconds for record in self.records)
        spent = f", {seconds:.2f} s on GPUs" if self.records else ""
        return f"{html.escape(self.request.prompt)}<br>{self._extent()}, seed {self.seed}{spent}"


class Video(_Result):
    """A clip.

    Parameters
    ----------
    frames : ndarray of uint8
        RGB, ``[T, H, W, 3]``, as large as the request says.
    request : GenerationRequest
        What it answers.
    records : iterable of StageRecord
        The stages that made it.

    Raises
    ------
    ValueError
        Where dtype or shape is another.

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r1", model="shapes", prompt="a red circle", width=64, height=48,
    ...     num_frames=9, fps=8, num_inference_steps=12, guidance_scale=4.0, seed=7)
    >>> Video(np.zeros((9, 48, 64, 3), np.uint8), request)
    <Video 'a red circle' 64x48, 9 frames at 8 fps seed=7>
    """

    __slots__ = ()
    _encoders = MappingProxyType(
        {
            ".mp4": media.encode_mp4,
            ".gif": media.encode_gif,
            ".webp": media.encode_webp,
            ".png": media.encode_png,
            ".jpg": media.encode_jpeg,
        }
    )

    @property
    def num_frames(self) -> int:
        """Frames."""
        return len(self.frames)

    @property
    def duration_s(self) -> float:
        """Playing time, seconds."""
        return self.num_frames / self.fps

    def _extent(self) -> str:
        return f"{super()._extent()}, {self.num_frames} frames at {self.fps} fps"

    def _repr_html_(self) -> str:
        """Player for notebooks, the clip inside."""
        clip = base64.b64encode(media.encode_mp4(self.frames, self.fps, "")).decode()
        return (
            f'<figure><video controls loop autoplay muted width="{self.width}" '
            f'height="{self.height}" src="data:video/mp4;base64,{clip}"></video>'
            f"<figcaption>{self._caption()}</figcaption></figure>"
        )


class Image(_Result):
    """A picture: one frame. Parameters and errors are those of `Video`.

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r1", model="shapes", prompt="a red circle", width=64, height=48,
    ...     num_frames=1, fps=8, num_inference_steps=12, guidance_scale=4.0, seed=7)
    >>> Image(np.zeros((1, 48, 64, 3), np.uint8), request).pixels.shape
    (48, 64, 3)
    """

    __slots__ = ()
    _encoders = MappingProxyType(
        {
            ".png": media.encode_png,
            ".webp": media.encode_webp,
            ".jpg": media.encode_jpeg,
            ".gif": media.encode_gif,
        }
    )

    @property
    def pixels(self) -> npt.NDArray[np.uint8]:
        """RGB, ``uint8`` ``[H, W, 3]``, read-only."""
        first: npt.NDArray[np.uint8] = self.frames[0]
        return first

    def _repr_png_(self) -> bytes:
        """Picture for notebooks."""
        return media.encode_png(self.frames, self.fps, json.dumps(self.metadata()))


def make_result(
    frames: Frames, request: GenerationRequest, records: Iterable[StageRecord] = ()
) -> Video | Image:
    """Wrap the decoder's frames in the kind of result that the request asked for.

    Parameters
    ----------
    frames : ndarray of uint8
        RGB, ``[T, H, W, 3]``.
    request : GenerationRequest
        What they answer; one frame makes an `Image`.
    records : iterable of StageRecord
        The stages that made them, where known.

    Returns
    -------
    Video or Image

    Raises
    ------
    ValueError
        Where dtype or shape are not those of the request.
    """
    kind = Image if request.is_image else Video
    return kind(frames, request, records)
