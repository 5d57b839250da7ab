"""Results as files for download: encoded once, kept for the next who asks."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from elastic_dit import media
from elastic_dit.files import write_atomically
from elastic_dit.media import Frames
from elastic_dit.request import GenerationRequest
from elastic_dit.results import Image, Video

__all__ = ["VARIANTS", "Renders", "Result", "Variant"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A form in which a result can be had.

    Attributes
    ----------
    suffix : str
        Of its file, with the dot.
    media_type : str
    encode : callable
        ``(frames, fps, comment) -> bytes``.
    first_only : bool
        Whether it shows the first frame alone.
    """

    suffix: str
    media_type: str
    encode: Callable[[Frames, int, str], bytes]
    first_only: bool = False


VARIANTS = {
    "video": Variant(".mp4", "video/mp4", media.encode_mp4),
    "thumbnail": Variant(".webp", "image/webp", media.encode_webp, first_only=True),
    "spritesheet": Variant(".jpg", "image/jpeg", media.encode_jpeg),
    "png": Variant(".png", "image/png", media.encode_png),
    "webp": Variant(".webp", "image/webp", media.encode_webp),
    "jpeg": Variant(".jpg", "image/jpeg", media.encode_jpeg),
}
"""By OpenAI's names: of a video's content, then an image's formats."""

Result = Video | Image

_DIGEST_CHARACTERS = 16
"""Of a request's digest, in a file's name: enough to tell apart what one id has stood for."""


class _Key(NamedTuple):
    """Names a file: its job's id alone does not, which may come again once it is forgotten."""

    job_id: str
    digest: str
    variant: str


class Renders:
    """A folder of encoded results.

    Parameters
    ----------
    folder : path-like
        Its own: what lies there is deleted when room is needed.
    encoders : int
        Results that are encoded at once, each in a thread; others wait for them.
    max_bytes : int
        Files that stay; the one asked for least lately goes first.
    fetch_s : float
        Longest wait for a result that is there, seconds.
    """

    def __init__(
        self, folder: str | Path, *, encoders: int, max_bytes: int, fetch_s: float
    ) -> None:
        self._folder = Path(folder)
        self._max_bytes = max_bytes
        self._fetch_s = fetch_s
        self._encoders = asyncio.Semaphore(encoders)
        self._making: dict[_Key, asyncio.Task[Path]] = {}
        self._made: OrderedDict[_Key, int] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Renders {len(self._made)} files, {len(self._making)} in the making>"

    async def file(
        self, request: GenerationRequest, variant: str, fetch: Callable[[], Awaitable[Result]]
    ) -> Path:
        """A result's file, made if it is not there.

        Parameters
        ----------
        request : GenerationRequest
            What was made.
        variant : str
            One of `VARIANTS`.
        fetch : callable
            Gets the result, which is there, once for all who ask at the same time.

        Raises
        ------
        SaveError
            Where the disk is full.
        TimeoutError
        Exception
            What `fetch` raises.
        """
        key = _Key(request.request_id, _digest(request), variant)
        if key in self._made:
            self._made.move_to_end(key)
            return self._path(key)
        if key not in self._making:
            task = asyncio.ensure_future(self._make(key, fetch))
            self._making[key] = task
            task.add_done_callback(lambda done: self._made_or_not(key, done))
        # Whoever goes away must not take it from the others.
        return await asyncio.shield(self._making[key])

    def forget(self, job_id: str) -> None:
        """Delete a job's files."""
        for key in [key for key in self._made if key.job_id == job_id]:
            self._delete(key)

    async def _make(self, key: _Key, fetch: Callable[[], Awaitable[Result]]) -> Path:
        async with self._encoders:
            async with asyncio.timeout(self._fetch_s):
                result = await fetch()
            nbytes = await asyncio.to_thread(self._encode, result, key)
        self._made[key] = nbytes
        while sum(self._made.values()) > self._max_bytes and len(self._made) > 1:
            self._delete(next(iter(self._made)))
        return self._path(key)

    def _made_or_not(self, key: _Key, task: asyncio.Task[Path]) -> None:
        del self._making[key]
        if not task.cancelled():
            task.exception()  # seen, though all who asked may have gone

    def _encode(self, result: Result, key: _Key) -> int:
        variant = VARIANTS[key.variant]
        frames = result.frames[:1] if variant.first_only else result.frames
        content = variant.encode(frames, result.fps, json.dumps(result.metadata()))
        write_atomically(self._path(key), content)
        return len(content)

    def _path(self, key: _Key) -> Path:
        return self._folder / f"{'-'.join(key)}{VARIANTS[key.variant].suffix}"

    def _delete(self, key: _Key) -> None:
        del self._made[key]
        self._path(key).unlink(missing_ok=True)


def _digest(request: GenerationRequest) -> str:
    told = request.without_image_data().model_dump_json()
    return hashlib.sha256(told.encode()).hexdigest()[:_DIGEST_CHARACTERS]
