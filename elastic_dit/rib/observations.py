"""What a running system sees of its own latencies: for expectations, and for the profile."""

from __future__ import annotations

from elastic_dit.control.progress import ObservedTimes
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.rib.latency import Latency, LatencyKey, Moments, Source

__all__ = ["Observations"]

_MOST_UNSAVED = 2_000
"""Keys whose samples wait to be written; of more only what is known already is refined."""


class Observations(ObservedTimes):
    """`ObservedTimes` that also keeps what has not been written to a profile yet.

    Parameters
    ----------
    window : int
        See `ObservedTimes`.

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r", model="m", prompt="p", width=64, height=64, num_frames=1, fps=8,
    ...     num_inference_steps=4, guidance_scale=1.0, seed=0)
    >>> seen = Observations()
    >>> seen.observe(request, Stage.DIT, 1, 0.25, "virtual")
    >>> [latency] = seen.take()
    >>> latency.seconds, latency.key.kind, seen.take()
    (0.25, 'virtual', [])
    """

    def __init__(self, window: int = 20) -> None:
        super().__init__(window)
        self._unsaved: dict[LatencyKey, Moments] = {}

    def observe(
        self, request: GenerationRequest, stage: Stage, dop: int, seconds: float, kind: str = ""
    ) -> None:
        """See `ObservedTimes.observe`."""
        super().observe(request, stage, dop, seconds, kind)
        key = LatencyKey.of(request, stage, dop, kind)
        moments = self._unsaved.get(key)
        if moments is None and len(self._unsaved) < _MOST_UNSAVED:
            moments = self._unsaved[key] = Moments()
        if moments is not None:
            moments.add(seconds)

    def take(self) -> list[Latency]:
        """What was seen since the last call."""
        unsaved, self._unsaved = self._unsaved, {}
        return [Latency.measured(key, moments, Source.OBSERVED) for key, moments in unsaved.items()]

    def give_back(self, latencies: list[Latency]) -> None:
        """Put back what could not be written."""
        for latency in latencies:
            moments = latency.moments()
            if later := self._unsaved.get(latency.key):
                moments.merge(later)
            elif len(self._unsaved) >= _MOST_UNSAVED:
                continue
            self._unsaved[latency.key] = moments
