"""What the published OpenAPI document says beyond what FastAPI finds by itself."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from elastic_dit.http.schemas import ErrorAnswer, ImageCreate, ImageReference, VideoCreate

__all__ = ["EVENTS", "IMAGE_BODY", "MEDIA", "PROBLEMS", "VIDEO_BODY", "publish"]

_COMPONENTS = "#/components/schemas/"
_BINARY = {"type": "string", "format": "binary"}


def _body(json_schema: str, form: dict[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": _COMPONENTS + json_schema}}}
    if form is not None:
        content["multipart/form-data"] = {"schema": form}
    return {"requestBody": {"required": True, "content": content}}


VIDEO_BODY = _body("VideoCreate", {"$ref": f"{_COMPONENTS}VideoForm"})
"""JSON or a form, which FastAPI cannot say of one route."""
IMAGE_BODY = _body("ImageCreate")
MEDIA: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file, or the part of it that a Range header names.",
        "content": {
            kind: {"schema": _BINARY}
            for kind in ("video/mp4", "image/webp", "image/jpeg", "image/png")
        },
    },
    206: {"description": "A part of the file."},
    410: {"model": ErrorAnswer, "description": "It was made, but is not kept any more."},
    416: {"description": "There is no such part."},
}
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events progress, then completed, failed or cancelled; data is the job.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "A field or the body is wrong.",
        401: "The server has API keys, and none of them was given.",
        403: "The server has no API keys, and a browser asks for another site's page.",
        404: "There is no such job, model or content.",
        408: "The body did not come in time.",
        409: "The Idempotency-Key belongs to another body, or the job was cancelled.",
        413: "The body is too large.",
        415: "The body is of another type.",
        429: "Too much waits already; Retry-After tells when to come back.",
        500: "The generation failed, or the server did.",
        503: "The cluster is not there or not ready; Retry-After tells when to come back.",
        504: "Not done in time.",
    }.items()
}
"""Answers of every route for those with a key; `MEDIA` and others add to them."""


def publish(app: FastAPI) -> None:
    """Make `/openapi.json` tell of bodies that are read by hand."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title, version=app.version, summary=app.summary, routes=app.routes
            )
            schemas = found.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(_schemas())
            _drop_unused(found)
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _drop_unused(document: dict[str, Any]) -> None:
    """FastAPI's own answer to a wrong field, which ours replaces."""
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)


def _schemas() -> dict[str, Any]:
    template = f"{_COMPONENTS}{{model}}"
    found = {
        model.__name__: model.model_json_schema(ref_template=template)
        for model in (VideoCreate, ImageCreate, ImageReference)
    }
    for schema in found.values():
        schema.pop("$defs", None)
    form = deepcopy(found["VideoCreate"])
    form["properties"]["input_reference"] = {
        **_BINARY, "description": "PNG, JPEG or WebP file of the picture the video starts from.",
    }  # fmt: skip
    return {**found, "VideoForm": {**form, "title": "VideoForm"}}
