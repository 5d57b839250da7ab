"""Residency: loads and drops stages until every GPU holds what the placement plan says."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from elastic_dit.control.departures import Departures
from elastic_dit.control.gpus import Gpu, GpuPool
from elastic_dit.events import AskNodes, Command, DropStage, LoadStage, ReleaseNode
from elastic_dit.request import StageKey
from elastic_dit.state import GpuId, PlacementPlan

__all__ = ["Residency"]

_UNASKED = "not asked for by a plan"
"""Why an engine loaded or dropped a stage that nobody here told it to: somebody called it."""


class Residency:
    """The plan in force and what is missing to fulfil it.

    A drop waits until nothing runs on the GPU that needs the stage, and meanwhile the GPU takes
    no new work for it; loads wait until all that the plan does not want is gone, since they may
    need its memory. A stage that could not be loaded is not tried again on that engine.

    Parameters
    ----------
    pool : GpuPool
    emit : callable
        Takes the commands.

    Attributes
    ----------
    plan : PlacementPlan
        The one in force.
    departures : Departures
        Machines on their way out.
    ever_failed : set of StageKey
        Stages that an engine could not load, be it there or not.
    """

    def __init__(self, pool: GpuPool, emit: Callable[[Command], None]) -> None:
        self._pool = pool
        self._emit = emit
        self._wanted: dict[GpuId, frozenset[StageKey]] = {}
        self._hopeless_since: dict[StageKey, float] = {}
        self._ordered: dict[GpuId, tuple[frozenset[StageKey], float]] = {}
        self.ever_failed: set[StageKey] = set()
        self.plan = PlacementPlan(epoch=0, reason="nothing planned yet")
        self.departures = Departures()
        pool.when_freed = self._freed

    def __repr__(self) -> str:
        return f"<Residency plan {self.plan.epoch}: {self.plan.reason}>"

    def publish(self, plan: PlacementPlan) -> bool:
        """Put a plan in force; False for one that is not newer than the present one."""
        if plan.epoch <= self.plan.epoch:
            return False
        if plan.nodes is not None and plan.nodes != self.plan.nodes:
            self._emit(AskNodes(count=plan.nodes, reason=plan.reason))
        self.plan = plan
        self._wanted.update(plan.residency)
        needed = {self._pool[gpu].node for gpu in plan.residency if gpu in self._pool}
        retire = [node for node in plan.retire if node in self._pool.nodes]
        self.departures.plan(retire, plan.reason, needed)
        for gpu in self._pool:
            gpu.retiring = gpu.node in self.departures
            self.settle(gpu)
        return True

    def joined(self, gpu: Gpu) -> None:
        """A GPU joined: the plan in force may speak of it already."""
        gpu.retiring = gpu.node in self.departures
        self.settle(gpu)

    def wanted(self, gpu: Gpu) -> frozenset[StageKey]:
        """What a GPU shall hold; what it holds where no plan speaks of it."""
        if gpu.retiring:
            return frozenset()
        return self._wanted.get(gpu.gpu, frozenset(gpu.resident))

    def settle(self, gpu: Gpu) -> None:
        """Order what is missing on a GPU, as far as its present work allows."""
        wanted = self.wanted(gpu)
        gpu.draining &= gpu.resident - wanted
        for key in sorted(gpu.resident - wanted - gpu.dropping):
            if gpu.group is not None and gpu.group.key == key:
                gpu.draining.add(key)
            else:
                gpu.draining.discard(key)
                gpu.dropping.add(key)
                gpu.reasons[key] = self.plan.reason
                self._emit(
                    DropStage(
                        gpu=gpu.gpu, model=key.model, stage=key.stage, plan_epoch=self.plan.epoch
                    )
                )
        if not gpu.draining and not gpu.dropping and gpu.loading <= wanted:
            self._load(gpu, wanted)
        if gpu.loading or gpu.dropping:
            self._ordered.setdefault(gpu.gpu, (frozenset(), 0.0))
        self._pool.refresh(gpu)

    def _freed(self, gpu: Gpu) -> None:
        if gpu.draining:
            self.settle(gpu)

    def _load(self, gpu: Gpu, wanted: frozenset[StageKey]) -> None:
        for key in sorted(wanted - gpu.resident - gpu.loading - gpu.failed.keys()):
            gpu.loading.add(key)
            gpu.reasons[key] = self.plan.reason
            self._emit(
                LoadStage(gpu=gpu.gpu, model=key.model, stage=key.stage, plan_epoch=self.plan.epoch)
            )

    def loaded(self, gpu: Gpu, key: StageKey) -> str:
        """A stage is resident; why that was ordered."""
        why = gpu.reasons.pop(key, _UNASKED)
        gpu.loading.discard(key)
        gpu.failed.pop(key, None)
        gpu.resident.add(key)
        self._hopeless_since.pop(key, None)
        self.settle(gpu)
        return why

    def dropped(self, gpu: Gpu, key: StageKey) -> str:
        """A stage is gone; why that was ordered."""
        why = gpu.reasons.pop(key, _UNASKED)
        gpu.dropping.discard(key)
        gpu.draining.discard(key)
        gpu.resident.discard(key)
        self.settle(gpu)
        return why

    def load_failed(self, gpu: Gpu, key: StageKey, message: str) -> None:
        """A stage could not be loaded; what an earlier load left is gone too."""
        gpu.reasons.pop(key, None)
        gpu.loading.discard(key)
        gpu.dropping.discard(key)
        gpu.resident.discard(key)
        gpu.failed[key] = message
        self.ever_failed.add(key)
        self.settle(gpu)

    def given_back(self, holds_tensors: Callable[[GpuId], bool]) -> Iterator[str]:
        """Machines that are drained now; each is named once, with its `ReleaseNode`."""
        if not self.departures:
            return
        for node in self.departures.retiring(self._pool.nodes):
            gpus = [self._pool[gpu] for gpu in sorted(self._pool.node(node))]
            if all(g.is_idle and not g.resident and not holds_tensors(g.gpu) for g in gpus):
                self.departures.drained(node)
                self._emit(ReleaseNode(node=node, reason=self.departures.reason(node)))
                yield node

    def overdue(self, now: float, limit_s: float) -> list[tuple[GpuId, str]]:
        """GPUs that had nothing else to do for so long and did not carry an order out; with which.

        Parameters
        ----------
        now : float
        limit_s : float
            Longest load or drop of one stage, seconds; from the first look at it on.
        """
        found = []
        for number, (seen, since) in tuple(self._ordered.items()):
            gpu = self._pool.get(number)
            orders = frozenset(gpu.loading | gpu.dropping) if gpu is not None else frozenset()
            if gpu is None or not orders:
                del self._ordered[number]
            elif gpu.group is not None or orders != seen:
                self._ordered[number] = (orders, now)
            elif now - since > limit_s:
                del self._ordered[number]
                key = min(orders)
                what = "load" if key in gpu.loading else "drop"
                found.append((number, f"{what} of {key.model}/{key.stage}"))
        return found

    def hopeless(self, key: StageKey, now: float, grace_s: float) -> str | None:
        """Why waiting for a stage is of no use; None where it may still come.

        With every engine having failed to load it that is so at once; where others could still
        be told to, after `grace_s` seconds without one that is.
        """
        failures = [gpu.failed[key] for gpu in self._pool if key in gpu.failed]
        if not failures or any(self._may_serve(gpu, key) for gpu in self._pool):
            self._hopeless_since.pop(key, None)
            return None
        since = self._hopeless_since.setdefault(key, now)
        if len(failures) < len(self._pool) and now - since < grace_s:
            return None
        return failures[0]

    def _may_serve(self, gpu: Gpu, key: StageKey) -> bool:
        if gpu.retiring or key in gpu.failed:
            return False
        return key in gpu.loading or key in self.wanted(gpu)
