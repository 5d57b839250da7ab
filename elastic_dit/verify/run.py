"""The verification: one request on one GPU, then by every plan, and how far apart they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from elastic_dit._version import __version__
from elastic_dit.engine.group_store import GroupStore
from elastic_dit.engine.payload import unpack
from elastic_dit.engine.protocol import ModelSource
from elastic_dit.families import family_of
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import GenerationRequest
from elastic_dit.state import GpuId
from elastic_dit.verify.compare import Reference, tolerance_of
from elastic_dit.verify.gpus import Gpus
from elastic_dit.verify.jobs import Load, Prepare, Prepared
from elastic_dit.verify.members import Members
from elastic_dit.verify.plans import Plan, standard_plans
from elastic_dit.verify.schema import PlanReport, VerifyReport
from elastic_dit.verify.trial import Trial

__all__ = ["VerifyOptions", "verify"]

MODEL = "model"
"""Name under which the processes know the model."""
REQUEST_ID = "verify"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """What to verify, and where.

    Attributes
    ----------
    model : str
        A diffusers folder, or ``embedded:NAME``.
    fields : dict
        Of the request, by the names of `GenerationRequest`; the model's defaults for the rest.
    steps : int
        Denoising steps.
    dops : tuple of int
        Degrees for the standard plans, and the largest that is asked for.
    plans : tuple of Plan
        In place of the standard ones.
    device : str
        ``cpu`` or ``cuda``.
    share_gpus : bool
        Let several processes share a GPU where a plan names more than there are.
    dtype : str
        Of the weights.
    tolerance : float or None
        As in `Reference`; by default that of the dtype.
    limit_s : float
        Longest time of any one plan, and of loading, seconds.
    """

    model: str
    fields: dict[str, Any] = field(default_factory=dict)
    steps: int
    dops: tuple[int, ...] = (1, 2, 4)
    plans: tuple[Plan, ...] = ()
    device: Literal["cpu", "cuda"] = "cpu"
    share_gpus: bool = False
    dtype: str = "float32"
    tolerance: float | None = None
    limit_s: float = 1800.0


def verify(
    options: VerifyOptions, on_plan: Callable[[PlanReport], None] = lambda _: None
) -> VerifyReport:
    """Run every plan in processes of its own and compare.

    Parameters
    ----------
    options : VerifyOptions
    on_plan : callable
        Called with each plan's report as soon as it is there.

    Raises
    ------
    ConfigError
        Where the dtype has no tolerance, or the device is not there.
    ElasticDitError
        Where the model cannot be loaded, or the request not be made even on one GPU.

    Notes
    -----
    A plan is *refused*, not failed, where the machine lacks its GPUs or where the request does
    not allow its degrees: nothing runs wrong then, since a cluster refuses the same.
    """
    family_of(ModelFolder.open(options.model))  # a wrong path is told before anything starts
    source = ModelSource(name=MODEL, path=options.model, dtype=options.dtype)
    tolerance = tolerance_of(options.dtype) if options.tolerance is None else options.tolerance
    plans = options.plans or standard_plans(options.dops, options.steps)
    gpus = Gpus.of(options.device, options.share_gpus)
    runnable = [plan for plan in plans if gpus.lacks(plan) is None]
    first = min((plan.first for plan in runnable), default=0)
    present = sorted({first, *(gpu for plan in runnable for gpu in plan.gpus)})
    with (
        _store() as store,
        Members(gpus.settings(source, present, store, options.limit_s)) as members,
    ):
        prepared = _prepare(members, first, present, options, plans)
        reference = Reference(unpack(*prepared.reference), tolerance)
        trial = Trial(members.ask, prepared, reference, gpus.lacks, options.limit_s)
        reports = []
        for plan in plans:
            reports.append(trial.report(plan))
            on_plan(reports[-1])
    return _report(options, prepared, reference, gpus.backend, tuple(reports))


@contextmanager
def _store() -> Iterator[str]:
    with closing(GroupStore()) as store:
        yield store.address


def _prepare(
    members: Members,
    first: GpuId,
    gpus: Iterable[GpuId],
    options: VerifyOptions,
    plans: Iterable[Plan],
) -> Prepared:
    fields = {
        **options.fields,
        "num_inference_steps": options.steps,
        "request_id": REQUEST_ID,
        "model": MODEL,
    }
    largest = max(dop for plan in plans for dop in plan.dops)
    jobs = {gpu: [Prepare(fields, largest) if gpu == first else Load()] for gpu in gpus}
    prepared: Prepared = members.ask(jobs, options.limit_s)[first][0]
    return prepared


def _report(
    options: VerifyOptions,
    prepared: Prepared,
    reference: Reference,
    backend: Literal["gloo", "nccl"],
    plans: tuple[PlanReport, ...],
) -> VerifyReport:
    request = GenerationRequest(**prepared.request)
    judged = [plan.ok for plan in plans if plan.ok is not None]
    return VerifyReport(
        software=f"elastic-dit {__version__}",
        model=options.model,
        dtype=options.dtype,
        device=prepared.kind,
        backend=backend,
        size=f"{request.width}x{request.height}",
        frames=request.num_frames,
        steps=prepared.steps,
        allowed_dops=prepared.dops,
        largest=reference.largest,
        max_abs_error_allowed=reference.limit,
        alone_seconds=prepared.seconds,
        plans=plans,
        ok=bool(judged) and all(judged),
    )
