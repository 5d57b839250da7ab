"""Plans tried on processes that are ready, each compared with the result on one GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from elastic_dit.engine.payload import unpack
from elastic_dit.errors import ClusterError, ElasticDitError, UnsupportedParallelism
from elastic_dit.state import GpuId
from elastic_dit.verify.compare import Reference
from elastic_dit.verify.jobs import Denoise, Denoised, Prepared
from elastic_dit.verify.plans import Plan
from elastic_dit.verify.schema import PlanReport

__all__ = ["Trial"]

Ask = Callable[[Mapping[GpuId, Sequence[Any]], float], dict[GpuId, list[Any]]]


class Trial:
    """One request, and the plans it is tried with.

    Parameters
    ----------
    ask : callable
        `Members.ask`.
    prepared : Prepared
    reference : Reference
    lacks : callable
        Why this machine cannot run a plan, None where it can.
    limit_s : float
        Longest time of one plan, seconds.
    """

    def __init__(
        self,
        ask: Ask,
        prepared: Prepared,
        reference: Reference,
        lacks: Callable[[Plan], str | None],
        limit_s: float,
    ) -> None:
        self._ask = ask
        self._prepared = prepared
        self._reference = reference
        self._lacks = lacks
        self._limit_s = limit_s
        self._runs = 0
        self._lost: str | None = None

    def __repr__(self) -> str:
        return f"<Trial after {self._runs} runs>"

    def report(self, plan: Plan) -> PlanReport:
        """Run `plan`, unless it is refused, and compare."""
        refusal = self._refusal(plan)
        if refusal is not None:
            return self._plan_report(plan, "refused", reason=refusal)
        if self._lost is not None:
            return self._plan_report(plan, "failed", reason=self._lost)
        start = time.perf_counter()
        error, reason = None, None
        try:
            error, reason = self._run(plan)
        except UnsupportedParallelism as refused:
            return self._plan_report(plan, "refused", reason=str(refused))
        except ClusterError as lost:
            self._lost = reason = str(lost)
        except ElasticDitError as failure:
            reason = str(failure)
        well = error is not None and error <= self._reference.limit and reason is None
        return self._plan_report(
            plan,
            "passed" if well else "failed",
            error=error,
            seconds=time.perf_counter() - start,
            reason=reason,
        )

    def _refusal(self, plan: Plan) -> str | None:
        lacking = self._lacks(plan)
        if lacking is not None:
            return lacking
        allowed = self._prepared.dops
        if not plan.dops <= set(allowed):
            return f"degrees of parallelism allowed: {', '.join(map(str, allowed))}"
        if len(plan.stages) > self._prepared.steps:
            return f"it has {len(plan.stages)} stages, the request {self._prepared.steps} steps"
        return None

    def _run(self, plan: Plan) -> tuple[float | None, str | None]:
        """Error of the result, and what else is wrong."""
        answers = self._ask(self._jobs(plan), self._limit_s)
        outcomes: list[Denoised] = [one for each in answers.values() for one in each]
        payloads = [one.payload for one in outcomes if one.payload is not None]
        if len(payloads) != 1:
            ends = ", ".join(f"{one.end} ({one.reason})" for one in outcomes)
            return None, f"{len(payloads)} members had a result: {ends}"
        error = self._reference.error(unpack(*payloads[0]))
        if not math.isfinite(error):
            return None, "the result has another shape, or elements that are no numbers"
        return error, self._strayed(plan, outcomes)

    def _strayed(self, plan: Plan, outcomes: Iterable[Denoised]) -> str | None:
        """What of the plan was not carried out: a right result proves nothing then."""
        outcomes = tuple(outcomes)
        for one in outcomes:
            if one.refusals:
                return f"an order was refused: {one.refusals[0]}"
        seen = {change for one in outcomes for change in one.changes}
        missing = set(plan.boundaries(self._prepared.steps).items()) - seen
        if not missing:
            return None
        step, members = min(missing)
        return f"GPUs {', '.join(map(str, members))} did not take over after {step} steps"

    def _jobs(self, plan: Plan) -> dict[GpuId, list[Denoise]]:
        self._runs += 1
        orders = plan.boundaries(self._prepared.steps)
        return {
            seating.gpu: [
                Denoise(
                    run=f"verify/{self._runs}",
                    request=self._prepared.request,
                    ticket=ticket,
                    orders=orders,
                    inputs=None if ticket else self._prepared.encoded,
                )
                for ticket in seating.tickets
            ]
            for seating in plan.seatings(self._prepared.steps)
        }

    def _plan_report(
        self,
        plan: Plan,
        status: Literal["passed", "failed", "refused"],
        error: float | None = None,
        seconds: float | None = None,
        reason: str | None = None,
    ) -> PlanReport:
        count, largest = len(plan.stages), self._reference.largest
        return PlanReport(
            plan=str(plan),
            members=plan.stages,
            boundaries=tuple(i * self._prepared.steps // count for i in range(count)),
            status=status,
            ok=None if status == "refused" else status == "passed",
            max_abs_error=error,
            relative_error=None if error is None or not largest else error / largest,
            seconds=seconds,
            reason=reason,
        )
