"""Bodies of requests: JSON or forms, read and checked."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from elastic_dit.errors import InvalidRequest
from elastic_dit.http.problems import Problem, invalid_body
from elastic_dit.http.schemas import ImageCreate, VideoCreate
from elastic_dit.input_image import MAX_IMAGE_BYTES

__all__ = ["read_image_body", "read_picture", "read_video_body"]

_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_MAX_FIELDS = 64
_REFERENCE = "input_reference"
_DATA_URL = "data:"


async def read_video_body(request: Request) -> tuple[VideoCreate, bytes | None]:
    """What ``POST /v1/videos`` was sent, and the file of the picture to start from.

    Raises
    ------
    Problem
        Where the body is no JSON and no form, or a field is wrong.
    """
    kind = _media_type(request)
    try:
        if kind not in _FORMS:
            return VideoCreate.model_validate_json(await _json(request, kind)), None
        fields, file = await _form(request)
        return VideoCreate.model_validate(fields), file
    except ValidationError as error:
        raise invalid_body(error.errors(include_url=False, include_context=False)) from None


async def read_image_body(request: Request) -> ImageCreate:
    """What ``POST /v1/images/generations`` was sent; errors as above."""
    try:
        return ImageCreate.model_validate_json(await _json(request, _media_type(request)))
    except ValidationError as error:
        raise invalid_body(error.errors(include_url=False, include_context=False)) from None


def read_picture(body: VideoCreate, file: bytes | None) -> bytes | None:
    """The file of the picture to start from: uploaded, or inside a ``data:`` address.

    No other address is opened, and no file: a server that did would read for strangers what
    only it may read.

    Raises
    ------
    InvalidRequest
    """
    if body.input_reference is None:
        return file
    url = body.input_reference.image_url
    header, comma, text = url.partition(",")
    if not (header.startswith(_DATA_URL) and header.endswith(";base64") and comma):
        allowed = "an uploaded file or data:image/png;base64,…: no address is opened"
        raise InvalidRequest(_REFERENCE, url[:40], allowed)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(_REFERENCE, url[:40], "valid base64") from None


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def _json(request: Request, kind: str) -> bytes:
    if kind not in ("application/json", ""):
        message = f"content-type {kind!r}: must be application/json"
        raise Problem(415, "invalid_request_error", message, code="unsupported_media_type")
    return await request.body()


async def _form(request: Request) -> tuple[Mapping[str, Any], bytes | None]:
    """Text fields by name, and the uploaded picture."""
    limit = request.app.state.config.max_body_bytes
    fields: dict[str, Any] = {}
    file = None
    async with request.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=limit) as form:
        for given, value in form.multi_items():
            name = _REFERENCE if given.startswith(f"{_REFERENCE}[") else given
            if name in fields or (name == _REFERENCE and file is not None):
                raise InvalidRequest(name, "given twice", "given once")
            if isinstance(value, UploadFile):
                file = await _uploaded(given, value)
            elif name != given:
                fields[name] = {given[len(name) + 1 :].removesuffix("]"): value}
            else:
                fields[name] = value
    return fields, file


async def _uploaded(name: str, upload: UploadFile) -> bytes:
    if name != _REFERENCE:
        raise InvalidRequest(name, upload.filename, f"no file: only {_REFERENCE} is one")
    # One byte more than may be shows that there is more.
    return await upload.read(MAX_IMAGE_BYTES + 1)
