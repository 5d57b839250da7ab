"""Finished results in files: where they lie, how they are written and read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import xxhash
from pydantic import TypeAdapter

from elastic_dit.errors import ConfigError, ResultGone
from elastic_dit.files import write_atomically
from elastic_dit.request import GenerationRequest
from elastic_dit.state import StageRecord

if TYPE_CHECKING:
    from elastic_dit.results import Image, Video

__all__ = ["ResultStore"]

_SUFFIX = ".safetensors"
_LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, little-endian."""
_records = TypeAdapter(tuple[StageRecord, ...])


class ResultStore:
    """Results by request id, one safetensors file each: frames as they are, without loss.

    Parameters
    ----------
    url : str
        A folder, or whatever fsspec understands, such as ``s3://bucket/results``. Every worker
        and the Dask scheduler must reach the same files under it.

    Raises
    ------
    ConfigError
        Where fsspec does not know that kind of URL.

    Examples
    --------
    >>> ResultStore("s3://videos/finished")  # doctest: +SKIP
    ResultStore('s3://videos/finished')
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        try:
            self._files, self._root = url_to_fs(url)
        except (ValueError, ImportError) as error:
            allowed = f"a folder or a URL that fsspec can open ({error})"
            raise ConfigError("journal.results", url, allowed) from None

    def __repr__(self) -> str:
        return f"ResultStore({self.url!r})"

    def save(self, result: Video | Image, records: Iterable[StageRecord] = ()) -> int:
        """Write a result; a reader sees all of it or nothing.

        Parameters
        ----------
        result : Video or Image
        records : iterable of StageRecord
            The stages that made it.

        Returns
        -------
        int
            Bytes of the file.

        Raises
        ------
        OSError
            Where the files cannot be written; nothing is left.
        """
        from safetensors.numpy import save

        request = result.request.without_image_data()
        description = {
            "request": request.model_dump_json(),
            "records": _records.dump_json(tuple(records)).decode(),
            "digest": _digest(result.frames),
        }
        content = save({"frames": result.frames}, metadata=description)
        self._write(self._path(request.request_id), content)
        return len(content)

    def load(self, request_id: str) -> Video | Image:
        """Read a result.

        Raises
        ------
        ResultGone
            Where there is none, or not what was written.
        OSError
            Where the files cannot be reached.
        """
        try:
            content = self._files.cat_file(self._path(request_id))
        except FileNotFoundError:
            raise ResultGone(request_id, f"not in {self.url}") from None
        try:
            return _read(request_id, content)
        except Exception as error:
            # Whatever a damaged file makes safetensors, JSON or pydantic say.
            cause = f"its file in {self.url} is damaged ({type(error).__name__}: {error})"
            raise ResultGone(request_id, cause) from None

    def holds(self, request: GenerationRequest) -> bool:
        """Whether there is a result of just this request; only the head of its file is read."""
        path = self._path(request.request_id)
        try:
            length = self._files.cat_file(path, start=0, end=_LENGTH_BYTES)
            end = _LENGTH_BYTES + int.from_bytes(length, "little")
            description = _metadata(self._files.cat_file(path, start=0, end=end))
            kept = GenerationRequest.model_validate_json(description["request"])
        except Exception:
            # None, or a damaged one, whatever that makes the libraries say.
            return False
        return kept == request

    def delete(self, request_id: str) -> None:
        """Remove a result, if there is one."""
        try:
            self._files.rm_file(self._path(request_id))
        except FileNotFoundError:
            return

    def _path(self, request_id: str) -> str:
        return f"{self._root}/{request_id}{_SUFFIX}"

    def _write(self, path: str, content: bytes) -> None:
        if "file" in _protocols(self._files):
            self._files.makedirs(self._root, exist_ok=True)
            write_atomically(path, content)
        else:
            # An object appears whole or not at all where objects are kept.
            self._files.pipe_file(path, content)


def _read(request_id: str, content: bytes) -> Video | Image:
    from safetensors.numpy import load

    from elastic_dit.results import make_result

    description = _metadata(content)
    frames = load(content)["frames"]
    request = GenerationRequest.model_validate_json(description["request"])
    if request.request_id != request_id or _digest(frames) != description["digest"]:
        raise ValueError("another digest than was written")
    return make_result(frames, request, _records.validate_json(description["records"]))


def _metadata(content: bytes) -> dict[str, str]:
    """The free part of a safetensors header; its NumPy reader leaves it out."""
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    described: dict[str, str] = header["__metadata__"]
    return described


def _digest(frames: Any) -> str:
    return xxhash.xxh3_128_hexdigest(memoryview(frames).cast("B"))


def _protocols(files: Any) -> tuple[str, ...]:
    protocol = files.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
