"""Which errors stand in Dask's log as one line."""

from __future__ import annotations

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
    error: Exception, told: str, is_line: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("distributed")
    handler = logging.StreamHandler()
    logger.addHandler(handler)
    try:
        hide_known_tracebacks()
        try:
            fail(error)
        except Exception:
            logging.getLogger("distributed.worker").exception("It failed")
    finally:
        logger.removeHandler(handler)
    said = capsys.readouterr().err
    assert told in said
    assert ("Traceback" not in said) is is_line
