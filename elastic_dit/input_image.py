"""The picture a request starts from: small encoded bytes, never a path or an address.

A picture travels as the file it came in (PNG, JPEG or WebP), so a request stays plain data and
two requests are the same where their bytes are. `InputImage.of` decodes it whole, at the client
and again where requests are admitted, so that nothing runs for a file that is broken.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError
from pydantic import model_validator as validator

from elastic_dit.errors import InvalidRequest

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["FORMATS", "MAX_IMAGE_BYTES", "MAX_IMAGE_PIXELS", "InputImage", "sample_image"]

FORMATS = ("PNG", "JPEG", "WEBP")
"""File formats that are taken, by Pillow's names."""
MAX_IMAGE_BYTES = 8 * 2**20
"""Largest file: a photograph as a telephone saves it. The control plane holds them all."""
MAX_IMAGE_PIXELS = 2**24
"""Most pixels, 4096 x 4096: they bound what decoding a small file may take, 64 MB."""

_ORIENTATION = 0x0112
"""Exif tag: how the camera was held."""
_LYING = range(5, 9)
"""Orientations in which width and height change places."""
_PHOTO = "MPO"
"""Pillow's name for a JPEG with more pictures behind it, as many cameras write; the first is it."""
_DEEP = "FI"
"""First letters of Pillow's modes of more than 8 bits, which its conversion to RGB would cut."""
_DIGEST_SHOWN = 8


def _bytes(value: Any) -> Any:
    """Bytes of their own JSON form."""
    if not isinstance(value, str):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise ValueError(f"must be base64 ({error})") from None


Data = Annotated[
    bytes,
    BeforeValidator(_bytes),
    PlainSerializer(lambda data: base64.b64encode(data).decode(), str, when_used="json"),
]


class InputImage(BaseModel):
    """A still picture as its file's bytes, checked; equal where the bytes are.

    Make one with `of`. Everything but `data` follows from it, so what is said of a picture on
    the wire is never believed while its bytes are there.

    Examples
    --------
    >>> picture = InputImage.of(sample_image(64, 48))
    >>> (picture.format, picture.width, picture.height)
    ('PNG', 64, 48)
    >>> picture.without_data() == picture, picture.without_data().is_held
    (True, False)
    >>> InputImage.of(b"GIF89a")
    Traceback (most recent call last):
    elastic_dit.errors.InvalidRequest: image = '6 bytes': must be a PNG, JPEG or WEBP file
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: str
    """One of `FORMATS`."""
    width: int
    """Pixels, as it is shown: a camera's orientation mark is followed."""
    height: int
    """Pixels."""
    digest: str
    """SHA-256 of the file, hexadecimal."""
    data: Data = b""
    """The file; empty where a picture is only mentioned (see `without_data`)."""

    @classmethod
    def of(cls, source: Any) -> Self:
        """Take a picture in and decode it once, to be sure that it can be.

        Parameters
        ----------
        source : bytes, path-like, str, PIL.Image.Image or InputImage
            A file's content; the path of a file *here*; or pixels, which become a PNG.

        Raises
        ------
        InvalidRequest
            Where it is none of these, cannot be read or decoded, moves, or is too large.
        """
        image = source if isinstance(source, cls) else cls.parse(_content(source))
        image.pixels()
        return image

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """A picture from its file's content alone, of which only the head is read.

        Raises
        ------
        InvalidRequest
            As `of`, but for what only decoding can tell.
        """
        if not isinstance(data, bytes):
            raise InvalidRequest("image", data, "the content of a picture's file")
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            said = error.errors(include_url=False)[0]["msg"]
            allowed = said.removeprefix("Value error, must be ")
            raise InvalidRequest("image", f"{len(data)} bytes", allowed) from None

    @validator(mode="before")
    @classmethod
    def _from_data(cls, value: Any) -> Any:
        if isinstance(value, bytes):
            return _described(value)
        if isinstance(value, Mapping):
            data = _bytes(value.get("data", b""))
            return _described(data) if isinstance(data, bytes) and data else value
        if isinstance(value, cls):
            return value
        raise ValueError("must be the content of a picture's file: nothing is opened for a request")

    @property
    def is_held(self) -> bool:
        """Whether the bytes are here."""
        return bool(self.data)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.data)

    def without_data(self) -> Self:
        """The same picture, only mentioned: for those who do not need its pixels."""
        return self.model_copy(update={"data": b""}) if self.data else self

    def pixels(self) -> Image:
        """The picture in RGB, upright. Transparency is dropped, as diffusers' loader does.

        Raises
        ------
        InvalidRequest
            Where the file is damaged, or not here.
        """
        if not self.data:
            raise InvalidRequest("image", self, "submitted again: its bytes are held no longer")
        try:
            return _upright(_opened(self.data))
        # a codec may raise anything for what somebody made to break it
        except Exception as error:
            cause = " ".join(str(error).split()) or type(error).__name__
            mention = self.without_data()
            raise InvalidRequest("image", mention, f"an undamaged file ({cause})") from None

    def fitted(self, width: int, height: int) -> Image:
        """The picture in RGB, scaled to cover `width` x `height` pixels and cut at its middle.

        One of just that size comes back as it is.
        """
        from PIL import Image, ImageOps

        return ImageOps.fit(self.pixels(), (width, height), Image.Resampling.LANCZOS)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, InputImage) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        held = f", {self.nbytes / 1e3:.0f} kB" if self.data else ""
        return f"<{self.format} {self.width}x{self.height}{held} {self.digest[:_DIGEST_SHOWN]}>"

    __str__ = __repr__


def sample_image(width: int, height: int) -> Image:
    """A picture to measure and verify by: soft rings.

    >>> sample_image(32, 16).size
    (32, 16)
    """
    from PIL import Image

    rings = Image.radial_gradient("L").resize((width, height))
    return Image.merge("RGB", (rings, rings.rotate(180).point(lambda v: 255 - v), rings))


def _content(source: Any) -> bytes:
    """The file that `source` is, names or would be saved as."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | os.PathLike):
        return _file_content(Path(source))
    from PIL import Image

    if not isinstance(source, Image.Image):
        allowed = "a PIL image, the bytes of a file, or its path"
        raise InvalidRequest("image", type(source).__name__, allowed)
    buffer = io.BytesIO()
    try:
        _check(source)
        _upright(source).save(buffer, "PNG")
    except (OSError, ValueError) as error:
        allowed = str(error).removeprefix("must be ")
        raise InvalidRequest("image", f"{_size(source)} {source.mode}", allowed) from None
    return buffer.getvalue()


def _file_content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest("image", str(path), f"a readable file ({error.strerror})") from None
    except ValueError as error:  # a NUL in the name
        raise InvalidRequest("image", str(path), f"a readable file ({error})") from None


def _described(data: bytes) -> dict[str, Any]:
    """What the head of a file says.

    Raises
    ------
    ValueError
        Where it is no picture of ours, or too large; to be read after "must be".
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise ValueError(f"must be at most {MAX_IMAGE_BYTES >> 20} MiB, as a file")
    image = _opened(data)
    _check(image)
    width, height = image.size
    is_photo = image.format == _PHOTO
    if getattr(image, "is_animated", False) and not is_photo:
        raise ValueError("must be a still picture: this one moves")
    if _orientation(image) in _LYING:
        width, height = height, width
    return {
        "format": "JPEG" if is_photo else image.format,
        "width": width,
        "height": height,
        "digest": hashlib.sha256(data).hexdigest(),
        "data": data,
    }


def _check(image: Image) -> None:
    """Refuse what would take too much memory, or come out wrong in 8 bits."""
    if image.width * image.height > MAX_IMAGE_PIXELS:
        raise ValueError(f"must be at most {MAX_IMAGE_PIXELS} pixels: it has {_size(image)}")
    if image.mode[0] in _DEEP:
        raise ValueError("must be of 8 bits a channel, such as RGB")


def _opened(data: bytes) -> Image:
    from PIL import Image

    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ValueError(f"must be at most {MAX_IMAGE_PIXELS} pixels") from None
    except Exception:
        raise ValueError(f"must be a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file") from None


def _upright(image: Image) -> Image:
    """In RGB, turned as the camera's mark in the head of its file says."""
    from PIL import ImageOps

    turned = ImageOps.exif_transpose(image) if _orientation(image) != 1 else image
    if "transparency" in turned.info:  # of a palette, which Pillow converts in two steps only
        turned = turned.convert("RGBA")
    return turned.convert("RGB")


def _orientation(image: Image) -> int:
    """The camera's mark; a file that has none in its head is not decoded to look further."""
    if "exif" not in image.info:
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _size(image: Image) -> str:
    return f"{image.width}x{image.height}"
