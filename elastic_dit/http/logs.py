"""Log lines that carry the id of the HTTP request they belong to, as JSON or as text."""

from __future__ import annotations

import json
import logging
import secrets
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

__all__ = ["LogFormat", "configure_logs", "new_http_id", "request_id"]

LogFormat = Literal["text", "json"]

request_id: ContextVar[str] = ContextVar("elastic_dit_http_request_id", default="-")
"""Id of the HTTP request that is being answered."""


def new_http_id() -> str:
    """A fresh id of one HTTP request.

    >>> len(new_http_id())
    20
    """
    return f"req-{secrets.token_hex(8)}"


def configure_logs(form: LogFormat, level: str) -> None:
    """Write this process's log to standard error.

    Parameters
    ----------
    form : str
        ``json`` for one object a line: ``time``, ``level``, ``logger``, ``message``,
        ``request_id``, for requests also ``method``, ``path``, ``status``, ``duration_s``,
        ``client``, and ``error`` with a traceback.
    level : str
        Name of the least level that is written.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else _TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("uvicorn", "uvicorn.error", "elastic_dit"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": request_id.get(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _TextLines(logging.Formatter):
    """For people; control characters of strangers' paths cannot forge a line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(http_id)s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        record.http_id = request_id.get()
        text = super().format(record)
        if record.exc_info:
            return text
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
