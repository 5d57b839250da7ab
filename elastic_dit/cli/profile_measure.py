"""Measure stages by requests at forced degrees of parallelism."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from elastic_dit.errors import ClusterError, UnknownModel
from elastic_dit.request import GenerationRequest, Stage, new_request_id
from elastic_dit.rib import Latency, LatencyKey, Source
from elastic_dit.rib.latency import Moments

if TYPE_CHECKING:
    from elastic_dit.client import Client
    from elastic_dit.future import GenerationFuture

__all__ = ["Degrees", "Profiler"]

_CALL_LIMIT_S = 30.0
"""Longest wait for the control plane's answer to a small question, seconds."""
_PROMPT = "a red circle moving left on a black background"
_SHORT = 3
"""A long run has so many times the steps of a short one."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """What can be measured of one shape.

    Attributes
    ----------
    request : GenerationRequest
        Whole, with the model's defaults, and a picture of ours where it starts from one.
    dops : tuple of int
        Degrees that model and GPUs allow.
    gpus : int
        GPUs of the kind that hold the transformer.
    software : str
        What runs there.
    """

    request: GenerationRequest
    dops: tuple[int, ...]
    gpus: int
    software: str


@dataclass(slots=True)
class _Seconds:
    """Whole stages on the engines, seconds, request by request."""

    encoder: list[float] = field(default_factory=list)
    dit: list[float] = field(default_factory=list)
    decoder: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Profiler:
    """Runs requests at a degree and reads what their stages took from their records.

    A step's time is the slope over runs of two lengths, what the transformer needs once beside
    its steps the rest. Runs go through queues, groups and engines as any other.

    Parameters
    ----------
    client : Client
        A synchronous one.
    kind : str
        GPU kind.
    steps, repeats, warm_up : int
    load : {"alone", "full"}
        One request at a time, or as many as the GPUs take.
    limit_s : float
        Longest time of one degree.
    """

    client: Client
    kind: str
    steps: int
    repeats: int
    warm_up: int
    load: Literal["alone", "full"]
    limit_s: float

    def examine(self, options: Mapping[str, Any]) -> Degrees:
        """What can be measured of a shape.

        Parameters
        ----------
        options : mapping
            Fields of `GenerationRequest`; what is missing takes the model's default.

        Raises
        ------
        InvalidRequest
            Where there is no such model, or it cannot make such a thing.
        """
        cards = {card.name: card for card in self.client.models()}
        card = cards.get(options.get("model", next(iter(cards), "")))
        if card is None:
            raise UnknownModel("model", options.get("model"), f"one of {', '.join(cards)}")
        fixed = {"prompt": _PROMPT, "seed": 0, "request_id": new_request_id()}
        request = card.sample({**fixed, **options})
        told = request.without_image_data().model_dump(mode="json")
        answer = self._ask("elastic_dit_degrees", request=told, kind=self.kind)
        return Degrees(request, tuple(answer["dops"]), answer["gpus"], answer["software"])

    def measure(self, degrees: Degrees, dop: int) -> list[Latency]:
        """One latency of the DiT at a degree, and at degree 1 of the other stages too.

        Raises
        ------
        ElasticDitError
            Where a request fails, or not all end in time.
        """
        many, few = self.steps, max(1, self.steps // _SHORT)
        deadline_s = time.monotonic() + self.limit_s
        together = max(1, degrees.gpus // dop) if self.load == "full" else 1
        self._run(degrees, dop, [few] * (self.warm_up * together), together, deadline_s)
        runs = [many, few] * (self.repeats * together)
        seconds = self._run(degrees, dop, runs, together, deadline_s)
        return _latencies(degrees.request, dop, self.kind, runs, seconds)

    def _run(
        self, degrees: Degrees, dop: int, runs: Sequence[int], together: int, deadline_s: float
    ) -> _Seconds:
        seconds = _Seconds()
        # Under full load some more at the end, that do not count: the last ones run in quiet.
        filling = [max(runs)] * together if self.load == "full" and runs else []
        at_once = len(runs) + len(filling) if self.load == "full" else 1
        wanted = [*runs, *filling]
        for first in range(0, len(wanted), at_once):
            futures = self.submit(degrees, dop, wanted[first : first + at_once])
            for index, future in enumerate(futures, start=first):
                records = _records(future, dop, deadline_s)
                if index < len(runs):
                    for stage in Stage:
                        getattr(seconds, stage).append(records[stage])
        return seconds

    def submit(self, degrees: Degrees, dop: int, runs: Sequence[int]) -> list[GenerationFuture]:
        """Send requests of so many steps each, to run at a degree."""
        ids = [new_request_id() for _ in runs]
        self._ask("elastic_dit_force", request_ids=ids, dop=dop, kind=self.kind)
        request = degrees.request
        return [
            self.client.submit(
                request.prompt,
                model=request.model,
                width=request.width,
                height=request.height,
                num_frames=request.num_frames,
                guidance_scale=request.guidance_scale,
                num_inference_steps=steps,
                seed=number,
                image=request.image,
                request_id=request_id,
            )
            for number, (steps, request_id) in enumerate(zip(runs, ids, strict=True))
        ]

    def _ask(self, operation: str, **arguments: Any) -> Any:
        from elastic_dit.cluster.listener import call_control

        dask = self.client.dask
        return dask.sync(call_control, dask, operation, _CALL_LIMIT_S, **arguments)


def _records(future: GenerationFuture, dop: int, deadline_s: float) -> dict[Stage, float]:
    """Seconds by stage of a request that ran undisturbed."""
    try:
        result = future.result(timeout=max(0.1, deadline_s - time.monotonic()))
    except TimeoutError:
        raise ClusterError(f"a request at degree {dop} did not end in time: {future!r}") from None
    seconds: defaultdict[Stage, float] = defaultdict(float)
    for record in result.records:
        seconds[record.stage] += record.seconds
    degrees = [len(record.gpus) for record in result.records if record.stage is Stage.DIT]
    undisturbed = ([dop], [dop, 1])  # followers may be free a moment before the master
    if degrees not in undisturbed or {record.attempt for record in result.records} != {1}:
        what = "→".join(map(str, degrees))
        raise ClusterError(f"a request ran at degree {what} instead of {dop}: engines came or went")
    return seconds


def _latencies(
    request: GenerationRequest, dop: int, kind: str, runs: Sequence[int], seconds: _Seconds
) -> list[Latency]:
    step_s, setup_s = _slope(runs, seconds.dit)
    steps = _moments(
        (whole - setup_s) / count for count, whole in zip(runs, seconds.dit, strict=True)
    )
    key = LatencyKey.of(request, Stage.DIT, dop, kind)
    dit = Latency(
        key=key, seconds=step_s, spread_s=steps.spread, repeats=steps.count,
        setup_s=setup_s, source=Source.PROFILED,
    )  # fmt: skip
    if dop > 1:
        return [dit]
    others = {Stage.ENCODER: seconds.encoder, Stage.DECODER: seconds.decoder}
    return [dit] + [
        Latency.measured(LatencyKey.of(request, stage, 1, kind), _moments(taken), Source.PROFILED)
        for stage, taken in others.items()
    ]


def _slope(runs: Sequence[int], taken: Sequence[float]) -> tuple[float, float]:
    """Seconds of one step, and of what comes once beside the steps.

    >>> _slope([12, 4], [13.0, 5.0])
    (1.0, 1.0)
    >>> _slope([12, 4], [12.0, 12.0])  # nothing but noise: all of it is steps
    (1.0, 0.0)
    """
    by_length = {length: _moments([]) for length in runs}
    for length, whole in zip(runs, taken, strict=True):
        by_length[length].add(whole)
    few, many = min(by_length), max(by_length)
    whole_s = by_length[many].mean
    if few == many:
        return whole_s / many, 0.0
    step_s = (whole_s - by_length[few].mean) / (many - few)
    setup_s = whole_s - many * step_s
    return (step_s, setup_s) if step_s > 0 <= setup_s else (whole_s / many, 0.0)


def _moments(samples: Iterable[float]) -> Moments:
    moments = Moments()
    for sample in samples:
        moments.add(sample)
    return moments
