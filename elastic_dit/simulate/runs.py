"""Stages at work on virtual engines: what commands do, and how long it takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from elastic_dit import events
from elastic_dit.cost import CostModel
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.simulate.engine import Run, VirtualEngine
from elastic_dit.simulate.overheads import Overheads
from elastic_dit.state import ArtifactRef, GpuId

if TYPE_CHECKING:
    from elastic_dit.simulate.cluster import VirtualCluster

__all__ = ["Runs"]


class Runs:
    """All stages at work.

    Orders to a DiT stage are obeyed at its next step boundary; those that arrive with the report
    of a boundary are obeyed at the one after it, since no group waits for the control plane.

    Parameters
    ----------
    cluster : VirtualCluster
    cost : CostModel
    overheads : Overheads
    dice : random.Random
        For the jitter.
    """

    def __init__(
        self, cluster: VirtualCluster, cost: CostModel, overheads: Overheads, dice: random.Random
    ) -> None:
        self._cluster = cluster
        self._cost = cost
        self._overheads = overheads
        self._dice = dice
        self._runs: dict[tuple[str, int], Run] = {}
        self._groups: set[tuple[GpuId, ...]] = set()
        self._last_group: dict[str, tuple[GpuId, ...]] = {}

    def __repr__(self) -> str:
        return f"<Runs {len(self._runs)} at work>"

    # ----------------------------------------------------------------------------- commands
    def start(self, command: events.StartStage) -> None:
        """Begin a stage: pull its inputs, form the group, compute."""
        now = self._cluster.now
        run = Run(start=command, epoch=command.epoch, gpus=command.gpus, since=now, began_at=now)
        alive = self._engines(command.gpus)
        if len(alive) < len(command.gpus):  # the controller will hear of it
            run.gpus, run.stalled = tuple(engine.gpu for engine in alive), True
        if alive:
            self._runs[run.key] = run
        for engine in alive:
            engine.run = run
        if run.stalled:
            return
        ready_s = self._pull(run)
        if ready_s is None:
            self._later(run, self._overheads.pull_timeout_s, self._inputs_lost)
            return
        ready_s += self._form(command.request.request_id, command.gpus)
        if run.stage is Stage.DIT:
            run.step = max(ref.step for ref in command.inputs)
            step_s = self._step_s(run)
            self._later(run, ready_s + self._warm_up_s(run) + step_s, self._boundary)
        else:
            seconds = self._cost.stage_seconds(
                command.request, run.stage, len(run.gpus), self._kind(run)
            )
            self._later(run, ready_s + seconds, self._finish)

    def prefetch(self, command: events.Prefetch) -> None:
        """Pull inputs ahead, beside what the engine computes."""
        engine = self._cluster.engines.get(command.gpu)
        if engine is None:
            return
        for ref in command.inputs:
            if self._holds(ref):
                seconds = self._pull_s(ref)
                engine.pulled[replace(ref, gpu=command.gpu)] = self._cluster.now + seconds

    def resize(self, command: events.Resize) -> None:
        """Note another group for the next boundary; a group that lost a member obeys now."""
        run = self._runs.get((command.request_id, command.attempt))
        if run is None:
            return
        run.resize = command
        run.joining.update(set(command.gpus).difference(run.gpus))
        for engine in self._engines(command.gpus):
            engine.run = run
        if run.stalled:
            self._resume(run)

    def preempt(self, command: events.Preempt) -> None:
        """Note to stop at the next boundary."""
        run = self._runs.get((command.request_id, command.attempt))
        if run is not None and run.epoch == command.epoch:
            run.preempt = True

    def abort(self, command: events.Abort) -> None:
        """Stop at the next boundary, or at once where there is none; always answered."""
        run = self._runs.get((command.request_id, command.attempt))
        if run is None or not set(run.gpus).intersection(command.gpus):
            for engine in self._engines(command.gpus):
                if engine.run is not None and engine.run.key[0] == command.request_id:
                    self._free(engine)
            answer = events.StageAborted(
                request_id=command.request_id, attempt=command.attempt, epoch=command.epoch
            )
            self._cluster.at(self._cluster.now, self._cluster.tell, answer)
            return
        run.abort = True
        if run.stage is not Stage.DIT or run.stalled:
            self._later(run, 0.0, self._aborted)

    def release(self, command: events.Release) -> None:
        """Forget an artifact or a copy of one."""
        engine = self._cluster.engines.get(command.artifact.gpu)
        if engine is not None:
            engine.artifacts.discard(command.artifact)
            engine.pulled.pop(command.artifact, None)

    def member_died(self, run: Run, gpu: GpuId) -> None:
        """A GPU of a group is gone: the rest stands still until told how to go on."""
        if gpu not in run.gpus:
            return
        self._note_work(run)
        run.gpus = tuple(member for member in run.gpus if member != gpu)
        run.timer += 1
        run.stalled = True
        if not run.gpus:
            self._forget(run)

    # ------------------------------------------------------------------------- what happens
    def _boundary(self, run: Run) -> None:
        """A denoising step is done: report it, and obey what has been ordered before."""
        run.step += 1
        if run.abort:
            self._aborted(run)
        elif run.step >= run.total_steps:
            self._finish(run)
        elif run.resize is not None:
            self._change_group(run, run.resize)
        elif run.preempt:
            self._preempted(run)
        else:  # nearly all there is to do in a simulation
            cluster = self._cluster
            cluster.at(cluster.now + run.step_s, self._on_time, run, run.timer, self._boundary)
            request_id, attempt = run.key
            cluster.tell(
                events.StepDone(
                    request_id=request_id, attempt=attempt, epoch=run.epoch, step=run.step
                )
            )

    def _change_group(self, run: Run, resize: events.Resize) -> None:
        if any(gpu not in self._cluster.engines for gpu in resize.gpus):
            run.stalled = True  # a joiner died; the controller will hear of it
            return
        self._note_work(run)
        members = run.joining.union(run.gpus)
        leavers = tuple(sorted(members.difference(resize.gpus)))
        run.joining.clear()
        joins = not set(resize.gpus) <= set(run.gpus)
        run.gpus, run.epoch, run.resize, run.stalled = resize.gpus, resize.epoch, None, False
        for engine in self._engines(leavers):
            self._free(engine)
        seconds = self._form(run.start.request.request_id, run.gpus)
        if joins:
            state = self._overheads.output_bytes[Stage.DIT]
            seconds += self._overheads.transfer_s(state, self._dice)
        self._later(run, seconds + self._step_s(run), self._boundary)
        if leavers:
            self._cluster.tell(events.GpusFreed(**run.fence, gpus=leavers))
        self._cluster.tell(events.StepDone(**run.fence, step=run.step))

    def _resume(self, run: Run) -> None:
        """Go on from the last boundary with those that are left."""
        assert run.resize is not None
        self._change_group(run, run.resize)

    def _finish(self, run: Run) -> None:
        """The stage ran to its end; followers of a DiT group are free before its master."""
        if run.stage is Stage.DIT:
            self._cluster.tell(events.StepDone(**run.fence, step=run.step))
            self._release_followers(run)
        if self._overheads.synchronous and run.stage.following is not None:
            nbytes = self._overheads.output_bytes[run.stage]
            self._later(run, self._overheads.transfer_s(nbytes, self._dice), self._hand_on)
        else:
            self._hand_on(run)

    def _hand_on(self, run: Run) -> None:
        """The output is where it shall be: the engine is free."""
        if run.abort:
            self._aborted(run)
            return
        output = self._output(run)
        seconds = self._cluster.now - run.began_at
        self._forget(run)
        self._cluster.tell(
            events.StageDone(**run.fence, stage=run.stage, output=output, seconds=seconds)
        )

    def _release_followers(self, run: Run) -> None:
        followers = run.gpus[1:]
        if followers:
            self._note_work(run)
            run.gpus = run.gpus[:1]
            for engine in self._engines(followers):
                self._free(engine)
            self._cluster.tell(events.GpusFreed(**run.fence, gpus=followers))

    def _preempted(self, run: Run) -> None:
        snapshot = self._output(run, run.step)
        self._forget(run)
        self._cluster.tell(events.StagePreempted(**run.fence, snapshot=snapshot))

    def _aborted(self, run: Run) -> None:
        self._forget(run)
        self._cluster.tell(events.StageAborted(**run.fence))

    def _inputs_lost(self, run: Run) -> None:
        self._forget(run)
        self._cluster.tell(events.InputsLost(**run.fence, message="the producer is gone"))

    # ------------------------------------------------------------------------------ durations
    def _pull(self, run: Run) -> float | None:
        """Seconds until all inputs are at the master, None where one no longer exists."""
        master = self._cluster.engines[run.gpus[0]]
        longest = 0.0
        for ref in run.start.inputs:
            ready_at = None
            if master.pulled:
                ready_at = master.pulled.pop(replace(ref, gpu=master.gpu), None)
            if ready_at is not None:
                longest = max(longest, ready_at - self._cluster.now)
            elif not self._holds(ref):
                return None
            elif ref.gpu != master.gpu:
                longest = max(longest, self._pull_s(ref))
        return longest

    def _pull_s(self, ref: ArtifactRef) -> float:
        """Seconds to pull something; what is handed on synchronously is there already."""
        if self._overheads.synchronous:
            return 0.0
        return self._overheads.transfer_s(ref.nbytes, self._dice)

    def _form(self, request_id: str, gpus: tuple[GpuId, ...]) -> float:
        """Seconds to hand a request over to a group."""
        before = self._last_group.get(request_id)
        self._last_group[request_id] = gpus
        seconds = 0.0 if before in (None, gpus) else self._overheads.handover_s
        if len(gpus) > 1 and gpus not in self._groups:
            self._groups.add(gpus)
            seconds += self._overheads.group_create_s
        return seconds

    def _step_s(self, run: Run) -> float:
        run.step_s = self._cost.step_seconds(run.start.request, len(run.gpus), self._kind(run))
        return run.step_s

    def _warm_up_s(self, run: Run) -> float:
        """What the DiT stage needs once before its first step."""
        request: GenerationRequest = run.start.request
        whole = self._cost.stage_seconds(request, Stage.DIT, len(run.gpus), self._kind(run))
        return max(0.0, whole - request.num_inference_steps * run.step_s)

    def _kind(self, run: Run) -> str | None:
        return self._cluster.engines[run.gpus[0]].kind or None

    # ------------------------------------------------------------------------------ machinery
    def _later(self, run: Run, seconds: float, what: Callable[[Run], None]) -> None:
        """Let something be the next thing that happens to a run."""
        run.timer += 1
        self._cluster.at(self._cluster.now + seconds, self._on_time, run, run.timer, what)

    @staticmethod
    def _on_time(run: Run, timer: int, what: Callable[[Run], None]) -> None:
        if run.timer == timer:
            what(run)

    def _engines(self, gpus: Iterable[GpuId]) -> list[VirtualEngine]:
        engines = self._cluster.engines
        return [engines[gpu] for gpu in gpus if gpu in engines]

    def _holds(self, ref: ArtifactRef) -> bool:
        holder = self._cluster.engines.get(ref.gpu)
        return holder is not None and ref in holder.artifacts

    def _output(self, run: Run, step: int = 0) -> ArtifactRef:
        """Put what a run made at its master; results go to the client at once."""
        ref = ArtifactRef(
            request_id=run.start.request.request_id,
            attempt=run.start.attempt,
            stage=run.stage,
            gpu=run.gpus[0],
            nbytes=self._overheads.output_bytes[run.stage],
            digest=str(run.epoch),
            step=step,
        )
        if run.stage is not Stage.DECODER:
            self._cluster.engines[run.gpus[0]].artifacts.add(ref)
        return ref

    def _forget(self, run: Run) -> None:
        """A run is over: its engines are free."""
        self._note_work(run)
        run.timer += 1
        del self._runs[run.key]
        for engine in self._engines(run.gpus):
            self._free(engine)

    def _free(self, engine: VirtualEngine) -> None:
        engine.run = None
        self._cluster.idle(engine)

    def _note_work(self, run: Run) -> None:
        """Put what the present group did on the timeline."""
        request_id, attempt = run.key
        self._cluster.busy(
            run.gpus, run.since, str(run.stage), request_id, dop=len(run.gpus), attempt=attempt
        )
        run.since = self._cluster.now
