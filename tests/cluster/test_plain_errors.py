"""Which errors stand in Dask's log as one line."""

from __future__ import annotations

import io
import logging

import pytest
from distributed.comm import CommClosedError

from elastic_dit.cluster.plain_errors import hide_known_tracebacks
from elastic_dit.errors import ModelLoadError


def fail(error: Exception) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "told", "is_line"),
    [
        (ModelLoadError("m", "dit", "no such file"), "no such file", True),
        (CommClosedError("in <TCP heartbeat>: Stream is closed"), "Stream is closed", True),
        (ValueError("a mistake"), "a mistake", False),
    ],
)
def test_the_log_keeps_tracebacks_of_mistakes_only(
    error: Exception, told: str, is_line: bool
) -> None:
    logger = logging.getLogger("distributed")
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger.addHandler(handler)
    try:
        hide_known_tracebacks()
        try:
            fail(error)
        except Exception:
            logging.getLogger("distributed.worker").exception("It failed")
    finally:
        logger.removeHandler(handler)
    assert told in said.getvalue()
    assert ("Traceback" not in said.getvalue()) is is_line
