"""Errors as HTTP answers: ``{"error": {type, message, param, code}}``."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from elastic_dit.errors import (
    AdmissionRefused,
    ClusterError,
    ElasticDitError,
    GenerationCancelled,
    GenerationFailed,
    InvalidRequest,
    JournalError,
    NotReady,
    RequestConflict,
    ResultGone,
    UnknownModel,
    UnknownRequest,
)
from elastic_dit.http.schemas import ErrorAnswer, ErrorBody

__all__ = ["Gone", "Problem", "answer_problems", "invalid_body", "problem_of"]

logger = logging.getLogger(__name__)

RETRY_LATER_S = 5
"""Retry-After where nothing tells when the cluster will be back."""

_NEVER = {"x-should-retry": "false"}
"""OpenAI's clients would try a 409 again, in vain."""
_PARAMS = {"image": "input_reference", "request_id": "Idempotency-Key"}
"""Fields that bear another name in bodies."""
_INVALID = "invalid_request_error"
_SERVER = "server_error"


class Problem(Exception):
    """An error as it is answered.

    Parameters
    ----------
    status : int
        Of HTTP.
    kind, message : str
    param : str or None
        The field at fault.
    code : str or None
        For programs.
    headers : mapping of str to str
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = ErrorBody(type=kind, message=message, param=param, code=code)
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The answer."""
        answer = ErrorAnswer(error=self.body).model_dump()
        return JSONResponse(answer, self.status, headers=self.headers)


class Gone(Problem):
    """The client closed its connection before the answer was there; for the log alone."""

    def __init__(self) -> None:
        super().__init__(499, _INVALID, "the client has gone", code="gone")


def answer_problems(app: FastAPI) -> None:
    """Make an app answer every error in that shape."""

    async def answer(_: Request, error: Exception) -> JSONResponse:
        return problem_of(error).response()

    for kind in (
        Problem,
        ElasticDitError,
        RequestValidationError,
        HTTPException,
        ClientDisconnect,
        Exception,
    ):
        app.add_exception_handler(kind, answer)


def problem_of(error: Exception) -> Problem:
    """How an exception is answered; one that nobody foresaw is logged.

    >>> problem_of(InvalidRequest("width", 33, "a multiple of 16")).body.param
    'width'
    >>> problem_of(AdmissionRefused("10 wait", 2.1)).headers["Retry-After"]
    '3'
    """
    match error:
        case Problem():
            return error
        case ElasticDitError():
            return _known(error)
        case RequestValidationError():
            return invalid_body(error.errors())
        case HTTPException():
            return _http(error)
        case ClientDisconnect():
            return Gone()
        case TimeoutError():
            return Problem(504, _SERVER, "not done in time", code="timeout")
    logger.error("A request failed unexpectedly", exc_info=error)
    return Problem(500, _SERVER, "internal error; the log tells more", code="internal_error")


def _known(error: ElasticDitError) -> Problem:
    text = str(error)
    match error:
        case UnknownModel():
            return Problem(404, _INVALID, text, "model", "model_not_found")
        case InvalidRequest():
            param = _PARAMS.get(error.field, error.field)
            return Problem(400, _INVALID, text, param, "invalid_value")
        case UnknownRequest():
            return Problem(404, _INVALID, text, code="not_found")
        case ResultGone():
            return Problem(410, _INVALID, text, code="result_gone")
        case RequestConflict():
            return Problem(409, "idempotency_error", text, "Idempotency-Key", "conflict", _NEVER)
        case AdmissionRefused():
            later = _later(error.retry_after_s)
            return Problem(429, "rate_limit_error", text, code="queue_full", headers=later)
        case NotReady() | ClusterError() | JournalError():
            code = "not_ready" if isinstance(error, NotReady) else "cluster_unavailable"
            return Problem(503, _SERVER, text, code=code, headers=_later(RETRY_LATER_S))
        case GenerationCancelled():
            return Problem(409, _INVALID, text, code="cancelled", headers=_NEVER)
        case GenerationFailed():
            return Problem(500, _SERVER, text, code="generation_failed")
    return Problem(500, _SERVER, text, code=type(error).__name__)


def _later(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def _http(error: HTTPException) -> Problem:
    codes = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}
    kind = _INVALID if error.status_code < 500 else _SERVER
    return Problem(
        error.status_code,
        kind,
        str(error.detail),
        code=codes.get(error.status_code),
        headers=dict(error.headers or {}),
    )


def invalid_body(errors: Any) -> Problem:
    """What pydantic complains about, first things first.

    >>> from pydantic import ValidationError
    >>> from elastic_dit.http.schemas import VideoCreate
    >>> try:
    ...     VideoCreate.model_validate({"prompt": "a", "colour": "red"})
    ... except ValidationError as error:
    ...     problem = invalid_body(error.errors())
    >>> problem.body.param, problem.body.code
    ('colour', 'unknown_parameter')
    """
    first = errors[0]
    places = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "header")]
    param = places[0] if places else None
    if first["type"] == "extra_forbidden":
        return Problem(400, _INVALID, f"unknown parameter: {param}", param, "unknown_parameter")
    if first["type"] == "missing":
        return Problem(400, _INVALID, f"missing parameter: {param}", param, "missing_parameter")
    message = f"{param or 'body'}: {first['msg']}"
    return Problem(400, _INVALID, message, param, "invalid_value")
