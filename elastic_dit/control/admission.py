"""Admission: which requests are let in, and which are known already."""

from __future__ import annotations

from collections import deque

from elastic_dit.config import AdmissionConfig, ControlConfig
from elastic_dit.control.backlog import Backlog
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.record import RequestRecord
from elastic_dit.control.requests import RequestTable
from elastic_dit.control.times import AllowedTimes
from elastic_dit.errors import (
    AdmissionRefused,
    DeadlineInfeasible,
    InvalidRequest,
    RequestConflict,
)
from elastic_dit.request import GenerationRequest

__all__ = [
    "UNKNOWN_RATE_RETRY_S",
    "Admission",
    "check_limits",
    "check_same_body",
    "differing_fields",
]

UNKNOWN_RATE_RETRY_S = 5.0
"""Retry-after while nothing has finished yet that would tell how fast requests leave."""

_RATE_WINDOW = 32
"""Latest ends from which the rate of leaving is taken."""


class Admission:
    """The gate before the request table.

    Parameters
    ----------
    control : ControlConfig
        Of which `max_waiting` counts.
    config : AdmissionConfig
    table : RequestTable
    pool : GpuPool
    times : AllowedTimes
        What stages are expected to take.
    """

    def __init__(
        self,
        control: ControlConfig,
        config: AdmissionConfig,
        *,
        table: RequestTable,
        pool: GpuPool,
        times: AllowedTimes,
    ) -> None:
        self._max_waiting = control.max_waiting
        self._config = config
        self._table = table
        self._pool = pool
        self._times = times
        self._ends: deque[float] = deque(maxlen=_RATE_WINDOW)
        self._backlog = Backlog(table, times)

    def __repr__(self) -> str:
        return f"<Admission {self._table.waiting} of {self._max_waiting} waiting>"

    def admit(
        self,
        request: GenerationRequest,
        now: float,
        owner: str = "",
        dops: tuple[int, ...] | None = None,
    ) -> bool:
        """Let a request in, or recognise it; changes nothing, so it may be asked twice.

        Parameters
        ----------
        request : GenerationRequest
        now : float
            Seconds on the control plane's clock.
        owner : str
            Whom it counts for.
        dops : tuple of int, optional
            Degrees of parallelism it may run at, where they are known yet.

        Returns
        -------
        bool
            True for a new request, to be accepted; False for one that is here already, live or
            lately finished, with the same body.

        Raises
        ------
        RequestConflict
            Where its id is taken by another body.
        InvalidRequest
            Where it exceeds a limit of the deployment.
        DeadlineInfeasible
            Where its deadline is too short however free the GPUs are.
        AdmissionRefused
            Where too many wait, they are too much work, its owner has too many, or their
            pictures take too much memory; with the time after which to try again.
        """
        known = self._table.get(request.request_id)
        if known is not None:
            check_same_body(known.request, request)
            return False
        check_limits(self._config, request)
        if dops is not None:
            self._check_deadline(request, dops)
        self._check_count(now)
        self._check_owner(owner, now)
        self._check_pictures(request, now)
        self._check_work(request, now)
        return True

    def note_accept(self, record: RequestRecord) -> None:
        """A request came."""
        if self._config.max_queued_gpu_seconds is not None:
            self._backlog.add(record)

    def note_end(self, record: RequestRecord, now: float) -> None:
        """A request left."""
        self._ends.append(now)
        if self._config.max_queued_gpu_seconds is not None:
            self._backlog.note_end(record, now)

    def retry_after_s(self, now: float) -> float:
        """Seconds until a place should be free, from how fast requests left lately."""
        if len(self._ends) < 2 or now <= self._ends[0]:
            return UNKNOWN_RATE_RETRY_S
        per_request_s = (now - self._ends[0]) / len(self._ends)
        excess = self._table.waiting - self._max_waiting + 1
        return per_request_s * max(1, excess)

    def _check_count(self, now: float) -> None:
        waiting, limit = self._table.waiting, self._max_waiting
        if waiting >= limit:
            reason = f"{waiting} requests wait already, the limit is {limit}"
            raise AdmissionRefused(reason, self.retry_after_s(now))

    def _check_owner(self, owner: str, now: float) -> None:
        count, limit = self._table.live_of(owner), self._config.max_per_client
        if limit is not None and count >= limit:
            reason = f"{owner} has {count} requests in the cluster, the limit is {limit}"
            raise AdmissionRefused(reason, self.retry_after_s(now))

    def _check_pictures(self, request: GenerationRequest, now: float) -> None:
        shelf = self._table.pictures
        if not shelf.has_room(request):
            reason = f"requests hold {shelf.live_bytes} of {shelf.limit_bytes} bytes of images"
            raise AdmissionRefused(reason, self.retry_after_s(now))

    def _check_work(self, request: GenerationRequest, now: float) -> None:
        limit = self._config.max_queued_gpu_seconds
        if limit is None:
            return
        queued_s = self._backlog.total_s(now)
        excess_s = queued_s + self._backlog.work_s(request) - limit
        if queued_s and excess_s > 0:
            rate = self._backlog.drain_per_s(now, len(self._pool))
            retry_s = excess_s / rate if rate else UNKNOWN_RATE_RETRY_S
            reason = f"{queued_s:.0f} GPU-seconds are queued already, the limit is {limit:g}"
            raise AdmissionRefused(reason, retry_s)

    def _check_deadline(self, request: GenerationRequest, dops: tuple[int, ...]) -> None:
        if request.deadline_s is None or not self._config.check_deadlines:
            return
        fastest_s = self._backlog.fastest_s(request, self._usable(dops))
        if fastest_s is not None and fastest_s > request.deadline_s:
            allowed = f"at least {fastest_s:.3g}, which it takes when nothing else runs"
            raise DeadlineInfeasible("deadline_s", request.deadline_s, allowed)

    def _usable(self, dops: tuple[int, ...]) -> tuple[int, ...]:
        """Degrees that so many GPUs allow; without any, they all may yet come."""
        most = max(1, len(self._pool))
        widest = self._times.widest or most
        if not dops:  # nothing limits them
            dops = tuple(2**power for power in range(most.bit_length()))
        return tuple(dop for dop in dops if dop <= min(most, widest))


def check_limits(config: AdmissionConfig, request: GenerationRequest) -> None:
    """Refuse what is larger than a deployment allows, whatever its model could make.

    Raises
    ------
    InvalidRequest

    Examples
    --------
    >>> request = GenerationRequest.parse(
    ...     request_id="r", model="m", prompt="p", width=64, height=64, num_frames=81, fps=8,
    ...     num_inference_steps=4, guidance_scale=1.0, seed=0)
    >>> check_limits(AdmissionConfig(max_frames=33), request)
    Traceback (most recent call last):
    elastic_dit.errors.InvalidRequest: num_frames = 81: must be at most 33 here
    """
    size = f"{request.width}x{request.height}"
    sizes = (
        ("width x height", size, request.width * request.height, config.max_pixels, " pixels"),
        ("num_frames", request.num_frames, request.num_frames, config.max_frames, ""),
        (
            "num_inference_steps",
            request.num_inference_steps,
            request.num_inference_steps,
            config.max_steps,
            "",
        ),
    )
    for field, shown, value, limit, unit in sizes:
        if limit is not None and value > limit:
            raise InvalidRequest(field, shown, f"at most {limit}{unit} here")
    for field in ("prompt", "negative_prompt"):
        text = getattr(request, field)
        if len(text) > config.max_prompt_characters:
            allowed = f"at most {config.max_prompt_characters} characters long here"
            raise InvalidRequest(field, text, allowed)


def check_same_body(known: GenerationRequest, request: GenerationRequest) -> None:
    """Refuse another body under an id that is taken.

    Raises
    ------
    RequestConflict
    """
    differing = differing_fields(known, request)
    if differing:
        raise RequestConflict(request.request_id, differing)


def differing_fields(one: GenerationRequest, other: GenerationRequest) -> tuple[str, ...]:
    """Names of the fields in which two requests differ, in order of declaration."""
    return tuple(
        name
        for name in GenerationRequest.model_fields
        if getattr(one, name) != getattr(other, name)
    )
