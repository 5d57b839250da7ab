"""The real engine: stages of diffusers models on one GPU, or on CPU threads that play one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from elastic_dit.catalog import ModelCard
from elastic_dit.engine import devices
from elastic_dit.engine.group_context import (
    End,
    GroupContext,
    GroupLimits,
    GroupSeat,
    Outcome,
)
from elastic_dit.engine.group_store import connect
from elastic_dit.engine.groups import GroupTable
from elastic_dit.engine.groups_ahead import aligned_blocks, keep_formed
from elastic_dit.engine.known_model import KnownModel
from elastic_dit.engine.ledger import Ledger
from elastic_dit.engine.loading import quiet_libraries
from elastic_dit.engine.placement import to_device, to_host
from elastic_dit.engine.protocol import (
    SNAPSHOT,
    Boundary,
    Checkpoint,
    EngineInfo,
    ModelSource,
    Payload,
    StageContext,
    StageOutput,
    StageStopped,
)
from elastic_dit.engine.sequence_parallel import SequenceParallel, undivided
from elastic_dit.engine.session import Session
from elastic_dit.engine.spmd import GroupMember
from elastic_dit.engine.stage_runtime import StageRuntime
from elastic_dit.engine.state_transfer import hand_over
from elastic_dit.errors import ModelLoadError, UnknownModel
from elastic_dit.families.sequence import allowed_dops
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.state import GpuId

__all__ = ["TorchEngine"]

MAX_DOP = 8
"""Largest group where none is given: the GPUs of one machine."""


class TorchEngine:
    """An `Engine` on one device.

    Parameters
    ----------
    sources : sequence of ModelSource
        Models it can load.
    device : str
        ``cuda:0`` or ``cpu``.
    cpu_threads : int
        Torch threads on a CPU.
    groups_ahead : bool, optional
        Whether groups are formed as soon as it is known where they meet; by default where that
        takes long, which is on GPUs.

    Raises
    ------
    UnsupportedModel, ConfigError
        Where a source names no model of a known family, or its options are wrong.

    Notes
    -----
    All methods are to be called from one thread: a VAE keeps state between the frames of one
    decode, and torch keeps device and thread settings for each thread.
    """

    def __init__(
        self,
        sources: Sequence[ModelSource],
        device: str,
        cpu_threads: int = 1,
        *,
        groups_ahead: bool | None = None,
    ) -> None:
        quiet_libraries()
        self._models = {source.name: KnownModel.of(source) for source in sources}
        self._device = torch.device(device)
        self._cpu_threads = cpu_threads
        self._resident: dict[StageKey, StageRuntime] = {}
        self._groups_ahead = self._device.type == "cuda" if groups_ahead is None else groups_ahead
        self._store = ""
        self._table: GroupTable | None = None
        devices.prepare(self._device, cpu_threads)
        if self._device.type == "cpu":
            devices.keep_freed_memory()

    def __repr__(self) -> str:
        resident = ", ".join(f"{key.model}/{key.stage}" for key in self._resident)
        return f"<TorchEngine {self._device}: {resident or 'nothing resident'}>"

    def card(self, model: str) -> ModelCard:
        """Limits and defaults from the model's configuration files alone.

        Raises
        ------
        UnknownModel
        """
        return self._model(model).card

    def models(self) -> tuple[str, ...]:
        """Names of the configured models."""
        return tuple(self._models)

    def count_tokens(self, model: str, text: str) -> int:
        """Length of `text` in tokens of the model's own tokenizer, end mark included."""
        known = self._model(model)
        return known.family.count_tokens(known.tokenizer, text)

    def load(self, key: StageKey) -> float:
        """Make a stage resident; seconds it took.

        Raises
        ------
        ModelLoadError
            With the cause, and nothing left behind.
        """
        model = self._model(key.model)
        if key in self._resident:
            return 0.0
        start = time.perf_counter()
        devices.prepare(self._device, self._cpu_threads)
        self._resident[key] = StageRuntime.load(
            key.model,
            model.folder,
            model.family,
            model.hints,
            key.stage,
            model.dtype,
            self._device,
        )
        devices.synchronize(self._device)
        return time.perf_counter() - start

    def drop(self, key: StageKey) -> None:
        """Free a stage."""
        runtime = self._resident.pop(key, None)
        if runtime is not None:
            runtime.close()
            devices.release_memory(self._device)

    def run(
        self,
        stage: Stage,
        request: GenerationRequest,
        inputs: Payload | None,
        context: StageContext,
    ) -> StageOutput:
        """Run one stage of one request to its end; its output lies in host memory."""
        runtime = self._runtime(StageKey(request.model, stage))
        start = time.perf_counter()

        def compute() -> dict[str, Any]:
            with runtime.guard.watching(context):
                if stage is Stage.DIT:
                    output = self._denoise(runtime, request, inputs or {}, context)
                else:
                    output = runtime.run(request, to_device(inputs or {}, self._device))
                host: dict[str, Any] = to_host(output)
                return host

        payload = devices.freeing_memory(self._device, compute)
        if stage is Stage.DECODER:
            payload = {"frames": payload["frames"].numpy()}
        return StageOutput(payload=payload, seconds=time.perf_counter() - start)

    def run_member(
        self,
        request: GenerationRequest,
        inputs: Payload | None,
        context: GroupContext,
        *,
        table: GroupTable,
        ledger: Ledger,
        ticket: str = "",
        limits: GroupLimits = GroupLimits(),  # noqa: B008 - it is immutable
        max_dop: int = MAX_DOP,
    ) -> Outcome:
        """Be one member of the group that denoises `request`, to this member's end.

        Parameters
        ----------
        request : GenerationRequest
        inputs : Payload or None
            For the member that begins the run: the encoder's payload or a snapshot.
        context : GroupContext
        table, ledger : GroupTable, Ledger
            This GPU's groups, and the run's record.
        ticket : str
            For others: the order by which they join.
        limits : GroupLimits
        max_dop : int
            Largest group.

        Returns
        -------
        Outcome
            Its payload lies in host memory.

        Raises
        ------
        GroupBroken
            Where no survivor came to a result; another attempt may.
        StageStopped
            Where ``context.aborted()`` in the midst of a step; the others are told.
        Exception
            Whatever the model raises; the others are told.
        """
        runtime = self._runtime(StageKey(request.model, Stage.DIT))
        dops = self.allowed_dops(request, max_dop)
        parallel = runtime.parallel if len(dops) > 1 else undivided()
        member_of = partial(GroupMember, dops=dops, device=self._device, limits=limits)

        def compute() -> Outcome:
            with runtime.guard.watching(context), closing(runtime.session(request)) as session:
                member = member_of(session, parallel, table, ledger, context)
                if ticket:
                    return _on_host(member.join(ticket))
                self._load_state(session, inputs or {})
                return _on_host(member.lead())

        return devices.freeing_memory(self._device, compute)

    def run_in_group(
        self,
        request: GenerationRequest,
        inputs: Payload | None,
        context: GroupContext,
        seat: GroupSeat,
    ) -> Outcome:
        """As `run_member`, with the groups and the record that are met at ``seat.store``."""
        table = self._table_of(seat)
        return self.run_member(
            request,
            inputs,
            context,
            table=table,
            ledger=Ledger(table.store, seat.run, seat.gpu, settle_s=seat.limits.settle_s),
            ticket=seat.ticket,
            limits=seat.limits,
            max_dop=seat.max_dop,
        )

    def meet(self, seat: GroupSeat) -> None:
        """Form the groups of this GPU's neighbours in the background, where that takes long."""
        if self._groups_ahead:
            self._table_of(seat)

    def member_lost(self, gpu: GpuId, cause: str) -> None:
        """Give up all groups with a GPU that is known to be dead; from any thread."""
        if self._table is not None:
            self._table.abort_with(gpu, cause)

    def session(self, request: GenerationRequest) -> Session:
        """A session on the resident DiT stage, for callers that step themselves."""
        return self._resident[StageKey(request.model, Stage.DIT)].session(request)

    def parallel(self, model: str) -> SequenceParallel:
        """The degree of parallelism of a resident DiT stage, for callers that step themselves.

        Raises
        ------
        UnsupportedParallelism
            Where the family is not divided.
        """
        return self._resident[StageKey(model, Stage.DIT)].parallel

    def tile_decodes(self, model: str, tiled: bool) -> None:
        """See `Engine.tile_decodes`: diffusers' own tiling."""
        runtime = self._resident.get(StageKey(model, Stage.DECODER))
        if runtime is not None:
            runtime.tile(tiled)

    def allowed_dops(self, request: GenerationRequest, limit: int) -> tuple[int, ...]:
        """Degrees of parallelism up to `limit` at which `request` runs right; see `families`."""
        known = self._model(request.model)
        if known.family.sequence is None:
            return (1,)

        def count_tokens(text: str) -> int:
            return known.family.count_tokens(known.tokenizer, text)

        shape = known.family.sequence_shape(request, known.folder, count_tokens)
        return allowed_dops(shape, limit)

    def info(self) -> EngineInfo:
        """What the engine is and holds now."""
        weights = sum(runtime.nbytes for runtime in self._resident.values())
        return EngineInfo(
            device=str(self._device),
            kind=devices.device_kind(self._device),
            memory_bytes=devices.memory_bytes(self._device),
            allocated_bytes=devices.allocated_bytes(self._device, weights),
            resident=tuple(self._resident),
        )

    def close(self) -> None:
        """Free everything."""
        if self._table is not None:
            self._table.close()
        for key in tuple(self._resident):
            self.drop(key)

    def _runtime(self, key: StageKey) -> StageRuntime:
        """A resident stage, about to run in this thread."""
        runtime = self._resident.get(key)
        if runtime is None:
            raise ModelLoadError(key.model, key.stage, "the stage is not resident")
        devices.prepare(self._device, self._cpu_threads)
        return runtime

    def _model(self, name: str) -> KnownModel:
        try:
            return self._models[name]
        except KeyError:
            raise UnknownModel("model", name, f"one of {', '.join(self._models)}") from None

    def _table_of(self, seat: GroupSeat) -> GroupTable:
        """Groups of this GPU, made anew when the store or the GPU's number is another."""
        table = self._table
        if table is None or (self._store, table.gpu) != (seat.store, seat.gpu):
            if table is not None:
                table.close()
            self._table = table = GroupTable(
                connect(seat.store),
                seat.gpu,
                device=self._device,
                host=seat.host,
                timeout_s=seat.limits.collective_s,
            )
            self._store = seat.store
            if self._groups_ahead:
                keep_formed(table, tuple(aligned_blocks(seat.gpu, seat.max_dop)))
        return table

    def _denoise(
        self,
        runtime: StageRuntime,
        request: GenerationRequest,
        inputs: Payload,
        context: StageContext,
    ) -> dict[str, Any]:
        with closing(runtime.session(request)) as session:
            self._load_state(session, inputs)
            self._step_to_end(session, context)
            return session.finish()

    def _load_state(self, session: Session, inputs: Payload) -> None:
        if SNAPSHOT in inputs:
            session.restore(inputs[SNAPSHOT])
        else:
            session.begin(to_device(inputs, self._device))

    def _step_to_end(self, session: Session, context: StageContext) -> None:
        while session.step_index < session.total_steps:
            session.step()
            devices.synchronize(self._device)  # a step is done when the device has done it
            action = context.boundary(session.step_index, session.total_steps)
            if action is Boundary.ABORT:
                raise StageStopped(action, step=session.step_index)
            if action is Boundary.PREEMPT and session.step_index < session.total_steps:
                snapshot = to_host({SNAPSHOT: session.snapshot()})
                raise StageStopped(action, snapshot, session.step_index)
            if isinstance(action, Checkpoint):
                hand_over(session, action)


def _on_host(outcome: Outcome) -> Outcome:
    """Outcome as it may leave this GPU."""
    if outcome.payload is None:
        return outcome
    snapshot = outcome.end is End.PREEMPTED
    return replace(
        outcome, payload=to_host({SNAPSHOT: outcome.payload} if snapshot else outcome.payload)
    )
