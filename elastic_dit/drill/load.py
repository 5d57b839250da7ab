"""The requests of a drill, and what became of them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elastic_dit.client import Client
from elastic_dit.errors import AdmissionRefused, GenerationCancelled, GenerationFailed
from elastic_dit.future import GenerationFuture
from elastic_dit.judging import COLOURS, SHAPES

__all__ = ["DISTINCT", "Ends", "Load"]

_SHAPES, _COLOURS = tuple(SHAPES), tuple(COLOURS)

DISTINCT = 8
"""Different requests; more are these again, under other names."""
ROUNDING = 1
"""Largest difference of a pixel: latents of other degrees of parallelism differ by 1e-6, which may
cross a rounding border."""

Frames = NDArray[np.uint8]


class Ends:
    """How requests ended.

    Attributes
    ----------
    completed, failed, cancelled, lost, differing : int
    reasons : list of str
        Errors of the failed ones.
    """

    def __init__(self) -> None:
        self.completed = self.failed = self.cancelled = self.lost = self.differing = 0
        self.reasons: list[str] = []

    def __repr__(self) -> str:
        return f"<Ends {self.completed} completed, {self.failed} failed, {self.lost} lost>"


class Load:
    """Submits requests, and compares their results with those of a run without faults.

    Parameters
    ----------
    client : Client
    seed : int
    steps : int
    """

    def __init__(self, client: Client, seed: int, steps: int) -> None:
        self._client = client
        self._seed = seed
        self._steps = steps
        self._distinct = DISTINCT
        self._expected: dict[int, Frames] = {}
        self._futures: dict[str, GenerationFuture] = {}
        self._kinds: dict[str, int] = {}
        self.refused = 0

    def __repr__(self) -> str:
        return f"<Load of {len(self._futures)} requests>"

    def __len__(self) -> int:
        return len(self._futures)

    def learn(self, count: int, limit_s: float) -> None:
        """Make the results that others are compared with.

        Raises
        ------
        ElasticDitError
            Where that fails even without a fault.
        """
        self._distinct = min(count, DISTINCT)
        names = self.submit("fault-free", self._distinct)
        for name in names:
            frames = self._futures.pop(name).result(limit_s).frames
            self._expected[self._kinds[name]] = frames

    def submit(self, title: str, count: int, by: Client | None = None) -> list[str]:
        """Submit requests called ``title-N``; names of those that were accepted.

        Parameters
        ----------
        title : str
        count : int
        by : Client, optional
            Who submits them, and holds their futures.
        """
        names = []
        for number in range(count):
            name, kind = f"{title}-{number}", number % self._distinct
            try:
                future = (by or self._client).submit(
                    f"a {_COLOURS[kind]} {_SHAPES[kind]}",
                    request_id=name,
                    seed=self._seed + kind,
                    num_inference_steps=self._steps,
                )
            except AdmissionRefused:
                self.refused += 1
                continue
            self._futures[name], self._kinds[name] = future, kind
            names.append(name)
        return names

    def join(self, names: Iterable[str], client: Client) -> None:
        """Wait for requests anew, as another client."""
        self._client = client
        for name in names:
            self._futures[name] = client.future(name)

    def done(self, names: Iterable[str]) -> list[str]:
        """Those whose end has been told."""
        return [name for name in names if self._futures[name].done()]

    def cancel(self, name: str) -> None:
        """Cancel one, however far it is."""
        self._futures[name].cancel("in a drill")

    def collect(self, names: Iterable[str], limit_s: float) -> Ends:
        """Wait until all have ended, and let go of them."""
        ends, deadline = Ends(), time.monotonic() + limit_s
        for name in names:
            future = self._futures.pop(name)
            try:
                result: Any = future.result(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                ends.lost += 1
            except GenerationCancelled:
                ends.cancelled += 1
            except GenerationFailed as error:
                ends.failed += 1
                ends.reasons.append(str(error))
            else:
                ends.completed += 1
                ends.differing += not self._is_expected(self._kinds[name], result.frames)
        return ends

    def _is_expected(self, kind: int, frames: Frames) -> bool:
        expected = self._expected.get(kind)
        if expected is None or expected.shape != frames.shape:
            return False
        return int(np.abs(expected.astype(np.int16) - frames).max()) <= ROUNDING
