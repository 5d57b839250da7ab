from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.cluster.worker.engine_runner import EngineRunner
from elastic_dit.config import Config
from elastic_dit.engine.fake import FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.engine.fake_group import FakeGroups
from elastic_dit.errors import ClusterError, ModelLoadError
from elastic_dit.events import (
    Abort,
    DropStage,
    InputsLost,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    Resize,
    ResizeRefused,
    StageAborted,
    StageDone,
    StageDropped,
    StageFailed,
    StageLoaded,
    StageLoadFailed,
    StagePreempted,
    StepDone,
)
from elastic_dit.request import Stage, StageKey
from tests.cluster.bench import Channel, request, run, runner, source_of, start

SLOW = FakeSeconds(encoder=30.0, step=30.0, decoder=30.0)
ANSWERS = (StageDone, StageFailed, StageAborted, StagePreempted, InputsLost)


def abort(request_id: str = "r", attempt: int = 1, epoch: int = 1) -> Abort:
    return Abort(request_id=request_id, attempt=attempt, epoch=epoch, gpus=(0,), reason="test")


def joining(epoch: int, **more: Any) -> Resize:
    """GPU 0 shall join GPU 1."""
    gpus: dict[str, Any] = {"gpus": (0, 1), "present": (1,)}
    return Resize(request_id="r", attempt=1, epoch=epoch, since=1, reason="", **gpus, **more)


def preempt(request_id: str = "r", attempt: int = 1, epoch: int = 1) -> Preempt:
    return Preempt(request_id=request_id, attempt=attempt, epoch=epoch, gpus=(0,), reason="test")


async def through_all_stages(desk: Any, channel: Channel, **options: Any) -> None:
    inputs: tuple[Any, ...] = ()
    for count, stage in enumerate(Stage, start=1):
        desk.handle(start(stage, inputs=inputs, **options), {})
        await channel.until(lambda count=count: len(channel.of(StageDone)) == count)
        inputs = (channel.of(StageDone)[-1].output,)


def test_three_stages_give_the_frames_of_the_request() -> None:
    async def check() -> None:
        async with runner() as (desk, channel):
            await through_all_stages(desk, channel)
            assert np.array_equal(channel.results["r"].frames, fake_frames(request()))
            assert [event.step for event in channel.of(StepDone)] == list(range(1, 12))
            outputs = [event.output for event in channel.of(StageDone)]
            assert list(desk.outbox) == outputs
            assert desk.outbox.nbytes == sum(output.nbytes for output in outputs) > 0
            for output in outputs:
                desk.handle(Release(artifact=output), {})
            assert not len(desk.outbox)
            assert "r" in channel.results

    run(check())


def test_the_result_is_there_before_anybody_hears_of_it() -> None:
    class Order(Channel):
        def __init__(self) -> None:
            super().__init__()
            self.order: list[str] = []

        def publish(self, request_id: str, result: Any) -> None:
            self.order.append("result")

        def send(self, event: Any) -> None:
            super().send(event)
            self.order.append(type(event).__name__)

    async def check() -> None:
        async with runner(channel=Order()) as (desk, channel):
            await through_all_stages(desk, channel)
            assert isinstance(channel, Order)
            assert channel.order[-2:] == ["result", "StageDone"]

    run(check())


def test_a_local_input_is_taken_by_reference() -> None:
    seen: list[Any] = []

    class Spy(FakeEngine):
        def run(self, stage: Any, request: Any, inputs: Any, context: Any) -> Any:
            seen.append(inputs)
            return super().run(stage, request, inputs, context)

    async def check() -> None:
        async with runner(Spy()) as (desk, channel):
            desk.handle(start(), {})
            output = (await channel.event(StageDone)).output
            desk.handle(start(Stage.DIT, inputs=(output,)), {})
            await channel.until(lambda: len(channel.of(StageDone)) == 2)
            assert seen[1]["prompt_embeds"] is desk.outbox.get(output).payload["prompt_embeds"]
            assert channel.fetched == []
            assert desk.inspect()["transfers"][0]["tries"] == 0

    run(check())


def test_preempted_after_each_step_and_resumed_elsewhere_the_frames_are_the_same() -> None:
    async def check() -> None:
        here, there = Channel(), Channel()
        async with (
            runner(FakeEngine(seconds=FakeSeconds(step=0.001)), channel=here) as (first, _),
            runner(FakeEngine(seconds=FakeSeconds(step=0.001)), channel=there, gpu=1) as (
                second,
                _,
            ),
        ):
            here.source = there.source = source_of({"a": first, "b": second})
            addresses = {0: "a", 1: "b"}
            first.handle(start(num_inference_steps=6), {})
            ref = (await here.event(StageDone)).output
            desks = [(second, there, 1), (first, here, 0)]
            snapshots = 0
            for epoch in range(2, 20):
                desk, channel, gpu = desks[epoch % 2]
                command = start(
                    Stage.DIT, inputs=(ref,), epoch=epoch, gpu=gpu, num_inference_steps=6
                )
                desk.handle(command, addresses)
                desk.handle(preempt(epoch=epoch), addresses)
                answer = await channel.until(
                    lambda channel=channel, epoch=epoch: [
                        event
                        for event in channel.of(StagePreempted) + channel.of(StageDone)
                        if event.epoch == epoch
                    ]
                )
                if isinstance(answer[0], StageDone):
                    ref = answer[0].output
                    break
                ref = answer[0].snapshot
                snapshots += 1
                assert ref.step == snapshots
            assert snapshots == 5
            first.handle(
                start(Stage.DECODER, inputs=(ref,), epoch=30, num_inference_steps=6), addresses
            )
            await here.until(lambda: "r" in here.results)
            expected = fake_frames(request(num_inference_steps=6))
            assert np.array_equal(here.results["r"].frames, expected)

    run(check())


@pytest.mark.parametrize(
    ("error", "retryable"),
    [
        (ValueError("bad sampler"), False),
        (KeyboardInterrupt(), False),
        (SystemExit(3), False),
        (StopIteration(), False),
        (asyncio.CancelledError(), False),
        (MemoryError("no room"), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), True),
    ],
)
def test_whatever_a_stage_raises_is_an_event(error: Any, retryable: bool) -> None:
    failures = [FakeFailure(stage=Stage.ENCODER, request_id="r", error=error)]

    async def check() -> None:
        async with runner(FakeEngine(failures=failures)) as (desk, channel):
            desk.handle(start(), {})
            failure = (await channel.event(StageFailed)).failure
            assert failure.error_type == type(error).__name__
            assert failure.message == str(error)
            assert (failure.stage, failure.retryable) == (Stage.ENCODER, retryable)
            desk.handle(start(request_id="next"), {})
            await channel.event(StageDone, "next")
            assert channel.reasons == []

    run(check())


def test_a_broken_device_ends_the_process_after_telling() -> None:
    error = type("AcceleratorError", (RuntimeError,), {})("CUDA error: an illegal access")
    failures = [FakeFailure(stage=Stage.ENCODER, request_id="r", error=error)]

    async def check() -> None:
        async with runner(FakeEngine(failures=failures)) as (desk, channel):
            desk.handle(start(), {})
            assert (await channel.event(StageFailed)).failure.retryable
            assert channel.reasons == ["AcceleratorError: CUDA error: an illegal access"]

    run(check())


def test_an_exception_without_words_has_a_message() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    failures = [FakeFailure(stage=Stage.ENCODER, request_id="r", error=Mute())]

    async def check() -> None:
        async with runner(FakeEngine(failures=failures)) as (desk, channel):
            desk.handle(start(), {})
            assert "no message" in (await channel.event(StageFailed)).failure.message

    run(check())


class Inside(FakeEngine):
    """Tells when it is computing."""

    def __init__(self, seconds: FakeSeconds) -> None:
        super().__init__(seconds=seconds)
        self.running: dict[Stage, threading.Event] = {stage: threading.Event() for stage in Stage}

    def run(self, stage: Any, *args: Any) -> Any:
        self.running[stage].set()
        return super().run(stage, *args)

    async def until_running(self, stage: Stage) -> None:
        assert await asyncio.to_thread(self.running[stage].wait, 10.0)


@pytest.mark.parametrize(
    ("stage", "seconds"),
    [
        (Stage.ENCODER, FakeSeconds(encoder=30.0)),
        (Stage.DIT, FakeSeconds(step=30.0)),
        (Stage.DECODER, FakeSeconds(decoder=30.0)),
    ],
)
def test_abort_ends_a_running_stage_at_once(stage: Stage, seconds: FakeSeconds) -> None:
    async def check() -> None:
        engine = Inside(seconds)
        async with runner(engine) as (desk, channel):
            inputs: tuple[Any, ...] = ()
            for before in list(Stage)[: list(Stage).index(stage)]:
                desk.handle(start(before, inputs=inputs), {})
                await channel.until(lambda before=before: channel.done(before))
                inputs = (channel.of(StageDone)[-1].output,)
            desk.handle(start(stage, inputs=inputs, attempt=2), {})
            await engine.until_running(stage)
            desk.handle(abort(attempt=2), {})
            event = await channel.event(StageAborted)
            assert (event.request_id, event.attempt, event.epoch) == ("r", 2, 1)
            assert all(ref.stage is not stage for ref in desk.outbox)
            assert not len(desk.desk)
            assert channel.results == {}

    run(check())


@pytest.mark.parametrize("store", ["", "127.0.0.1:9"])
@pytest.mark.parametrize("waits", [False, True])
def test_abort_after_a_refused_resize_ends_the_stage(store: str, waits: bool) -> None:
    async def check() -> None:
        engine = Inside(FakeSeconds(encoder=0.0 if not waits else 30.0, step=30.0))
        async with runner(engine) as (desk, channel):
            if waits:
                desk.handle(start(request_id="before"), {})
                inputs = ()
            else:
                desk.handle(start(), {})
                inputs = ((await channel.event(StageDone)).output,)
            desk.handle(start(Stage.DIT, inputs=inputs), {})
            if not waits:
                await engine.until_running(Stage.DIT)
            wider = Resize(
                request_id="r", attempt=1, epoch=2, gpus=(0, 1), reason="", since=1, present=(0,),
                request=request(),
            )  # fmt: skip
            desk.handle(wider, {}, store)
            assert [event.epoch for event in channel.of(ResizeRefused)] == [2]
            desk.handle(abort(epoch=2), {})
            event = await channel.event(StageAborted)
            assert (event.attempt, event.epoch) == (1, 2)
            assert not [box for box in desk.desk if box.start.request.request_id == "r"]
            assert not len(desk.groups)
            desk.handle(abort(request_id="before"), {})
            await desk.host.in_order(lambda engine: None)
            assert len(channel.of(StageAborted, "r")) == 1

    run(check())


def test_abort_of_a_decode_is_answered_by_the_decode_alone() -> None:
    async def check() -> None:
        engine = Inside(FakeSeconds(decoder=30.0))
        async with runner(engine) as (desk, channel):
            desk.handle(joining(epoch=2), {})  # it left that group without a word
            desk.handle(start(), {})
            encoded = (await channel.event(StageDone)).output
            desk.handle(start(Stage.DIT, inputs=(encoded,)), {})
            await channel.until(lambda: channel.done(Stage.DIT))
            latents = channel.of(StageDone)[-1].output
            desk.handle(start(Stage.DECODER, inputs=(latents,), epoch=3), {})
            await engine.until_running(Stage.DECODER)
            desk.handle(abort(epoch=3), {})
            assert not channel.of(StageAborted), "the decode still runs"
            await channel.event(StageAborted)
            assert len(channel.of(StageAborted)) == 1

    run(check())


def test_abort_answers_a_stage_that_waits_for_its_turn() -> None:
    async def check() -> None:
        async with runner(FakeEngine(seconds=SLOW)) as (desk, channel):
            desk.handle(start(request_id="running"), {})
            desk.handle(start(request_id="waiting"), {})
            desk.handle(abort("waiting"), {})
            assert [event.request_id for event in channel.of(StageAborted)] == ["waiting"]
            desk.handle(abort("running"), {})
            await channel.event(StageAborted, "running")
            assert len(channel.of(StageAborted)) == 2

    run(check())


def test_stale_commands_are_dropped() -> None:
    async def check() -> None:
        async with runner(FakeEngine(seconds=FakeSeconds(encoder=0.05))) as (desk, channel):
            desk.handle(start(attempt=2, epoch=5), {})
            for attempt, epoch in ((1, 5), (2, 4), (3, 5)):
                desk.handle(abort(attempt=attempt, epoch=epoch), {})
                desk.handle(preempt(attempt=attempt, epoch=epoch), {})
            desk.handle(start(attempt=2, epoch=5), {})
            event = await channel.event(StageDone)
            assert (event.attempt, event.epoch) == (2, 5)
            desk.handle(abort(attempt=2, epoch=5), {})
            await desk.host.in_order(lambda engine: None)
            assert [type(event) for event in channel.events] == [StageDone]

    run(check())


def test_lost_inputs_are_told_and_the_engine_goes_on() -> None:
    async def check() -> None:
        async with runner(channel=Channel(source=lambda address, ref: None)) as (desk, channel):
            desk.handle(start(), {})
            output = (await channel.event(StageDone)).output
            desk.handle(Release(artifact=output), {})
            desk.handle(start(Stage.DIT, inputs=(output,)), {})
            await channel.event(InputsLost)
            elsewhere = type(output)(**{**_fields(output), "gpu": 7})
            desk.handle(start(Stage.DIT, inputs=(elsewhere,), epoch=2), {7: "far"})
            await channel.until(lambda: len(channel.of(InputsLost)) == 2)
            desk.handle(start(Stage.DIT, inputs=(elsewhere,), epoch=3), {})
            await channel.until(lambda: len(channel.of(InputsLost)) == 3)
            assert "left the cluster" in channel.of(InputsLost)[-1].message
            desk.handle(start(request_id="next"), {})
            await channel.event(StageDone, "next")

    run(check())


def _fields(ref: Any) -> dict[str, Any]:
    return {name: getattr(ref, name) for name in ref.__slots__}


def test_a_prefetched_input_is_not_pulled_again() -> None:
    async def check() -> None:
        async with runner(gpu=1) as (producer, told):
            producer.handle(start(gpu=1), {})
            output = (await told.event(StageDone)).output
            channel = Channel(source_of({"b": producer}))
            async with runner(channel=channel) as (desk, _):
                fetch = Prefetch(
                    request_id="r", attempt=1, stage=Stage.DIT, gpu=0, inputs=(output,)
                )
                desk.handle(fetch, {1: "b"})
                desk.handle(start(Stage.DIT, inputs=(output,)), {1: "b"})
                await channel.event(StageDone)
                assert channel.fetched == [("b", output)]
                assert len(desk.inbox) == 0
                (record,) = desk.inbox.records
                assert (record.nbytes, record.tries, record.source) == (output.nbytes, 1, 1)

    run(check())


def test_a_prefetched_input_that_nobody_will_use_is_let_go() -> None:
    async def check() -> None:
        async with runner(gpu=1) as (producer, told):
            producer.handle(start(gpu=1), {})
            output = (await told.event(StageDone)).output
            async with runner(channel=Channel(source_of({"b": producer}))) as (desk, _):
                for request_id in ("r", "other"):
                    wanted = dataclasses.replace(output, request_id=request_id)
                    desk.handle(
                        Prefetch(
                            request_id=request_id,
                            attempt=1,
                            stage=Stage.DIT,
                            gpu=0,
                            inputs=(wanted,),
                        ),
                        {1: "b"},
                    )
                assert len(desk.inbox) == 2
                desk.handle(Release(artifact=dataclasses.replace(output, gpu=0)), {})
                assert len(desk.inbox) == 1
                desk.inbox.discard("other")
                assert len(desk.inbox) == 0

    run(check())


@pytest.mark.parametrize("store", ["", "nowhere:1"], ids=["alone", "as a group"])
def test_a_stage_tells_how_long_its_inputs_took_to_arrive(store: str) -> None:
    async def check() -> None:
        async with runner(gpu=1) as (producer, told):
            producer.handle(start(gpu=1), {})
            encoded = await told.event(StageDone)
            assert encoded.pulls == ()
            engine, channel = FakeEngine(groups=FakeGroups()), Channel(source_of({"b": producer}))
            async with runner(engine, channel=channel) as (desk, _):
                desk.handle(start(Stage.DIT, inputs=(encoded.output,)), {1: "b"}, store)
                denoised = await channel.event(StageDone)
                (record,) = desk.inbox.records
                assert denoised.pulls == ((Stage.ENCODER, record.seconds),)
                desk.handle(start(Stage.DECODER, inputs=(denoised.output,)), {}, store)
                await channel.until(lambda: channel.done(Stage.DECODER))
                assert channel.of(StageDone)[-1].pulls == ()

    run(check())


def test_loads_and_drops_are_told_and_old_plans_ignored() -> None:
    key = StageKey("fake", Stage.DIT)
    engine = FakeEngine(load_failures={StageKey("fake", Stage.DECODER): "bad checksum"})

    async def check() -> None:
        async with runner(engine, loaded=False) as (desk, channel):
            desk.handle(LoadStage(gpu=0, model="fake", stage=Stage.DIT, plan_epoch=2), {})
            await channel.event(StageLoaded)
            assert desk.host.info.resident == (key,)
            desk.handle(DropStage(gpu=0, model="fake", stage=Stage.DIT, plan_epoch=1), {})
            desk.handle(LoadStage(gpu=0, model="fake", stage=Stage.DECODER, plan_epoch=3), {})
            failed = await channel.event(StageLoadFailed)
            assert failed.message == "bad checksum"
            assert desk.host.info.resident == (key,)
            desk.handle(DropStage(gpu=0, model="fake", stage=Stage.DIT, plan_epoch=3), {})
            await channel.event(StageDropped)
            assert desk.host.info.resident == ()
            with pytest.raises(ModelLoadError, match="bad checksum"):
                await desk.loader.load(StageKey("fake", Stage.DECODER))
            desk.handle(LoadStage(gpu=0, model="none", stage=Stage.DIT, plan_epoch=3), {})
            await channel.until(lambda: len(channel.of(StageLoadFailed)) == 3)
            assert "UnknownModel" in channel.of(StageLoadFailed)[-1].message

    run(check())


def test_an_engine_hears_where_groups_meet_once_it_holds_a_dit() -> None:
    async def check() -> None:
        engine = FakeEngine()
        async with runner(engine, loaded=False) as (desk, _):
            load = partial(LoadStage, gpu=0, model="fake", plan_epoch=1)
            place = {0: "tcp://192.0.2.7:1234"}, "192.0.2.1:99"
            desk.handle(load(stage=Stage.ENCODER), *place)
            assert await desk.host.in_order(lambda _: engine.met) is None
            desk.handle(load(stage=Stage.DIT), *place)
            seat = await desk.host.in_order(lambda _: engine.met)
            assert seat is not None
            assert (seat.gpu, seat.store, seat.host) == (0, "192.0.2.1:99", "192.0.2.7")
            assert seat.max_dop == Config().control.slots_per_node

    run(check())


def test_a_new_control_plane_counts_its_plans_from_the_start() -> None:
    async def check() -> None:
        async with runner(loaded=False) as (desk, channel):
            desk.handle(LoadStage(gpu=0, model="fake", stage=Stage.DIT, plan_epoch=9), {})
            desk.welcome(4, Config().model_dump(mode="json"))
            desk.handle(LoadStage(gpu=4, model="fake", stage=Stage.ENCODER, plan_epoch=1), {})
            await channel.until(lambda: len(channel.of(StageLoaded)) == 2)
            assert desk.inbox.config == Config().transfer

    run(check())


def test_loads_before_a_number_are_told_with_it() -> None:
    async def check() -> None:
        channel = Channel()
        desk = EngineRunner(FakeEngine, channel, Config())
        await desk.open()
        await desk.loader.load(StageKey("fake", Stage.DIT))
        await desk.loader.load(StageKey("fake", Stage.ENCODER))
        await desk.loader.drop(StageKey("fake", Stage.ENCODER))
        assert channel.events == []
        desk.welcome(5, {})
        told = [(type(event), event.gpu, event.stage) for event in channel.events]
        assert told == [(StageLoaded, 5, Stage.DIT), (StageDropped, 5, Stage.ENCODER)]
        desk.welcome(6, {})
        assert len(channel.events) == 2
        await desk.close()

    run(check())


def test_a_draining_engine_finishes_and_starts_nothing_more() -> None:
    async def check() -> None:
        async with runner(FakeEngine(seconds=FakeSeconds(encoder=0.05))) as (desk, channel):
            desk.handle(start(), {})
            draining = asyncio.create_task(desk.drain(10.0))
            output = (await channel.event(StageDone)).output
            desk.handle(start(request_id="late"), {})
            failure = (await channel.event(StageFailed, "late")).failure
            assert failure.retryable
            assert not draining.done()
            desk.handle(Release(artifact=output), {})
            assert await draining
            desk.handle(start(request_id="later"), {})
            assert (await channel.event(StageFailed, "later")).failure.retryable
            assert desk.inspect()["draining"]

    run(check())


@pytest.mark.parametrize("cancelled", [False, True])
def test_an_engine_that_is_not_drained_in_time_stays(cancelled: bool) -> None:
    async def check() -> None:
        engine = Inside(SLOW)
        async with runner(engine) as (desk, channel):
            desk.handle(start(), {})
            await engine.until_running(Stage.ENCODER)
            draining = asyncio.create_task(desk.drain(60.0))
            assert not await desk.drain(0.0)
            desk.handle(start(request_id="waiting"), {})
            assert not channel.of(StageFailed)
            if cancelled:
                draining.cancel()
                await asyncio.wait({draining})
            for name in ("r", "waiting"):
                desk.handle(abort(name), {})
                await channel.event(StageAborted, name)
            if not cancelled:
                assert await draining
            assert desk.inspect()["draining"] is not cancelled

    run(check())


def test_a_group_it_cannot_join_is_refused() -> None:
    async def check() -> None:
        async with runner() as (desk, channel):
            desk.handle(start(gpu=3), {})
            failure = (await channel.event(StageFailed)).failure
            assert "group (3,)" in failure.message
            resize = Resize(request_id="r", attempt=1, epoch=2, gpus=(0, 1), reason="")
            desk.handle(resize, {})
            assert len(channel.events) == 1

    run(check())


def test_who_could_not_join_is_asked_again_and_answers_again() -> None:
    class Unable(FakeEngine):
        def run_in_group(self, *args: Any) -> Any:
            raise OSError("no memory to join with")

    async def check() -> None:
        async with runner(Unable()) as (desk, channel):
            for epoch in (2, 3):
                desk.handle(joining(epoch, request=request()), {}, "nowhere:1")
                await channel.until(lambda told=epoch - 1: len(channel.of(ResizeRefused)) == told)
                assert channel.of(ResizeRefused)[-1].epoch == epoch
                desk.handle(abort(epoch=epoch), {})
                assert [event.epoch for event in channel.of(StageAborted)][-1] == epoch
            assert len(channel.of(StageAborted)) == 2

    run(check())


def test_who_was_sent_away_before_it_joined_is_asked_again() -> None:
    async def check() -> None:
        engine = FakeEngine(groups=FakeGroups())
        async with runner(engine) as (desk, channel):
            for epoch in (2, 3):
                desk.handle(joining(epoch, request=request()), {}, "nowhere:1")
                assert len(desk.groups) == 1
                desk.handle(abort(epoch=epoch), {})
                await channel.until(lambda told=epoch - 1: len(channel.of(StageAborted)) == told)
            assert [event.epoch for event in channel.of(StageAborted)] == [2, 3]

    run(check())


def test_a_close_amid_a_stage_is_quick_and_frees_the_engine() -> None:
    engine = Inside(SLOW)

    async def check() -> float:
        async with runner(engine) as (desk, _):
            desk.handle(start(), {})
            desk.handle(start(request_id="waiting"), {})
            await engine.until_running(Stage.ENCODER)
            began = asyncio.get_running_loop().time()
        return asyncio.get_running_loop().time() - began

    assert run(check()) < 2.0
    assert engine.info().resident == ()


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["start", "abort", "preempt", "yield"]), st.integers(0, 3)),
    max_size=25,
)


@settings(max_examples=30, deadline=None)
@given(ACTIONS)
def test_every_start_is_answered_exactly_once(actions: list[tuple[str, int]]) -> None:
    async def check() -> None:
        engine = FakeEngine(
            failures=[FakeFailure(stage=Stage.ENCODER, request_id="q2")],
            seconds=FakeSeconds(encoder=0.0005),
        )
        async with runner(engine) as (desk, channel):
            epoch = 0
            last: dict[int, int] = {}
            for action, number in actions:
                name = f"q{number}"
                if action == "start":
                    epoch += 1
                    last[number] = epoch
                    desk.handle(start(request_id=name, epoch=epoch), {})
                elif action == "yield":
                    await asyncio.sleep(0)
                else:
                    make = abort if action == "abort" else preempt
                    desk.handle(make(name, epoch=last.get(number, 0)), {})
            await channel.until(
                lambda: sum(isinstance(e, ANSWERS) for e in channel.events) >= epoch
            )
            await desk.host.in_order(lambda engine: None)
            answers = [event for event in channel.events if isinstance(event, ANSWERS)]
            counts = Counter(event.epoch for event in answers)
            assert counts == dict.fromkeys(range(1, epoch + 1), 1)
            kept = {event.output for event in channel.of(StageDone)}
            assert set(desk.outbox) == kept

    run(check())


def test_a_decode_is_tiled_where_the_command_says_so() -> None:
    async def check() -> None:
        engine = FakeEngine()
        async with runner(engine) as (desk, channel):
            await through_all_stages(desk, channel)
            assert engine.tiled == 0
            latents = channel.of(StageDone)[1].output
            again = start(Stage.DECODER, inputs=(latents,), attempt=2, epoch=2)
            desk.handle(dataclasses.replace(again, tiled=True), {})
            await channel.until(lambda: len(channel.of(StageDone)) == 4)
            assert engine.tiled == 1

    run(check())


def test_inputs_of_a_stage_that_cannot_queue_are_not_pulled_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_: Any) -> Any:
        raise ClusterError("4096 jobs wait for this engine already")

    async def check() -> None:
        async with runner() as (desk, channel):
            pull = asyncio.get_running_loop().create_future()
            monkeypatch.setattr(desk.inbox, "gather", lambda *_: pull)
            monkeypatch.setattr(desk.host, "put", full)
            desk.handle(start(Stage.DECODER), {})
            assert (await channel.event(StageFailed)).failure.retryable
            assert pull.cancelled()
            monkeypatch.undo()

    run(check())
