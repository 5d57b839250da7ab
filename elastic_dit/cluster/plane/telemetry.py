"""Writes what the running cluster's split of GPUs reaches, for a predictor to learn from."""

from __future__ import annotations

import logging
from functools import partial

from elastic_dit.config import PlacementConfig
from elastic_dit.control.placement.telemetry import Telemetry
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.errors import ElasticDitError
from elastic_dit.files import check_target
from elastic_dit.predict.examples import append_example
from elastic_dit.rib.aside import Aside

__all__ = ["TelemetryKeeper"]

logger = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 5.0
"""Longest wait for the last write, seconds."""


class TelemetryKeeper:
    """Looks at the snapshots that placement is decided on, and appends examples to a file.

    All of it happens in a thread of its own, and whatever the disk does, placement goes on.

    Parameters
    ----------
    config : PlacementConfig
        Without `telemetry` in it nothing is done.
    """

    def __init__(self, config: PlacementConfig) -> None:
        self._target = config.telemetry
        self._kept = config.telemetry_kept
        self._telemetry = Telemetry(config.telemetry_window_s)
        self._aside: Aside | None = None
        self._complained = False

    def __repr__(self) -> str:
        return f"<TelemetryKeeper {self._target}: {self._telemetry!r}>"

    def look(self, snapshot: ClusterSnapshot) -> bool:
        """Have a look taken, in the thread.

        Returns
        -------
        bool
            False where the disk is so slow that too many wait: this look is left out.
        """
        if self._target is None:
            return True
        if self._aside is None:
            self._aside = Aside("elastic-dit-telemetry")
            self._aside.put(partial(self._check, self._target))
        return self._aside.put(partial(self._look, self._target, snapshot))

    async def close(self) -> None:
        """Let the last example be written; bounded."""
        if self._aside is None:
            return
        aside, self._aside = self._aside, None
        if not await aside.close(_CLOSE_TIMEOUT_S):
            logger.warning("The last telemetry may not be in %s: its disk hangs", self._target)

    # ------------------------------------------------------------------------- in the thread
    def _check(self, target: str) -> None:
        """Say at once, not with the first example, that the file cannot be written."""
        try:
            check_target(target)
        except ElasticDitError as error:
            self._complain(error)

    def _look(self, target: str, snapshot: ClusterSnapshot) -> None:
        try:
            example = self._telemetry.look(snapshot)
            if example is not None:
                append_example(target, example, self._kept)
                self._complained = False
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        details = None if isinstance(error, ElasticDitError) else error
        logger.warning("Serving goes on without telemetry: %s", error, exc_info=details)
