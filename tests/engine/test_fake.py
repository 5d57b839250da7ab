from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest

from elastic_dit.engine.fake import (
    FAKE_CARD,
    FakeEngine,
    FakeFailure,
    FakeSeconds,
    InstantClock,
    fake_frames,
)
from elastic_dit.engine.protocol import Boundary, Payload, StageContext, StageStopped
from elastic_dit.errors import ModelLoadError, UnknownModel
from elastic_dit.request import GenerationRequest, Stage, StageKey
from tests.engine.contexts import Always, At


def request_of(**options: object) -> GenerationRequest:
    return FAKE_CARD.complete({"prompt": "a red circle", "request_id": "r1", "seed": 3, **options})


def engine_of(**options: object) -> FakeEngine:
    engine = FakeEngine(**options)  # type: ignore[arg-type]
    for stage in Stage:
        engine.load(StageKey("fake", stage))
    return engine


def encoded(engine: FakeEngine, request: GenerationRequest) -> Payload:
    return engine.run(Stage.ENCODER, request, None, Always()).payload


@pytest.mark.parametrize("options", [{}, {"num_frames": 1, "width": 16, "height": 96}])
def test_three_engines_make_what_the_request_alone_determines(options: dict[str, int]) -> None:
    request, payload, context = request_of(**options), None, Always()
    for stage in Stage:
        payload = engine_of().run(stage, request, payload, context).payload
    frames = payload["frames"]  # type: ignore[index]
    assert frames.shape == (request.num_frames, request.height, request.width, 3)
    assert frames.dtype == np.uint8
    assert np.array_equal(frames, fake_frames(request))
    assert context.boundaries == [(step, 12) for step in range(1, 13)]


@pytest.mark.parametrize(
    "change", [{"seed": 4}, {"num_inference_steps": 11}, {"prompt": "a blue circle"}]
)
def test_any_other_request_looks_different(change: dict[str, object]) -> None:
    assert not np.array_equal(fake_frames(request_of()), fake_frames(request_of(**change)))


@pytest.mark.parametrize("step", range(1, 12))
def test_resumed_elsewhere_after_any_step_it_is_the_same(step: int) -> None:
    request = request_of()
    inputs = encoded(engine_of(), request)
    with pytest.raises(StageStopped) as stopped:
        engine_of().run(Stage.DIT, request, inputs, At(step, Boundary.PREEMPT))
    assert stopped.value.step == step
    snapshot = pickle.loads(pickle.dumps(stopped.value.snapshot))
    rest = Always()
    latents = engine_of().run(Stage.DIT, request, snapshot, rest).payload
    assert len(rest.boundaries) == 12 - step
    frames = engine_of().run(Stage.DECODER, request, latents, Always()).payload["frames"]
    assert np.array_equal(frames, fake_frames(request))


def test_preempted_after_its_last_step_a_stage_rather_ends() -> None:
    request = request_of()
    engine = engine_of()
    inputs = encoded(engine, request)
    output = engine.run(Stage.DIT, request, inputs, At(12, Boundary.PREEMPT))
    assert "latents" in output.payload


def test_an_abort_leaves_no_snapshot() -> None:
    engine, request = engine_of(), request_of()
    with pytest.raises(StageStopped) as stopped:
        engine.run(Stage.DIT, request, encoded(engine, request), At(2, Boundary.ABORT))
    assert stopped.value.action is Boundary.ABORT
    assert stopped.value.snapshot is None


class _Cancelled(Always):
    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self.event = event

    def aborted(self) -> bool:
        return self.event.is_set()


def test_a_long_stage_gives_up_soon_after_it_is_told() -> None:
    engine = engine_of(seconds=FakeSeconds(encoder=60.0))
    cancel = threading.Event()
    timer = threading.Timer(0.05, cancel.set)
    timer.start()
    start = time.monotonic()
    context: StageContext = _Cancelled(cancel)
    with pytest.raises(StageStopped):
        engine.run(Stage.ENCODER, request_of(), None, context)
    assert time.monotonic() - start < 10.0
    timer.join()


def test_virtual_time_passes_as_configured() -> None:
    seconds = FakeSeconds(load=5.0, encoder=1.0, step=2.0, decoder=3.0)
    engine = FakeEngine(seconds=seconds, clock=InstantClock())
    assert [engine.load(StageKey("fake", stage)) for stage in Stage] == [5.0] * 3
    assert engine.load(StageKey("fake", Stage.DIT)) == 0.0
    request, payload, took = request_of(num_inference_steps=4), None, []
    for stage in Stage:
        output = engine.run(stage, request, payload, Always())
        payload = output.payload
        took.append(output.seconds)
    assert took == [1.0, 8.0, 3.0]


def test_an_injected_failure_hits_its_stage_of_its_request_as_often_as_told() -> None:
    failure = FakeFailure(
        stage=Stage.DIT, request_id="r1", error=ValueError("boom"), step=2, times=1
    )
    engine, request = engine_of(failures=[failure]), request_of()
    inputs, context = encoded(engine, request), Always()
    with pytest.raises(ValueError, match="boom"):
        engine.run(Stage.DIT, request, inputs, context)
    assert context.boundaries == [(1, 12), (2, 12)]
    other = request_of(request_id="r2")
    assert "latents" in engine.run(Stage.DIT, other, inputs, Always()).payload
    assert "latents" in engine.run(Stage.DIT, request, inputs, Always()).payload


def test_what_is_not_resident_does_not_run() -> None:
    key = StageKey("fake", Stage.ENCODER)
    engine = FakeEngine(load_failures={StageKey("fake", Stage.DIT): "corrupt"})
    with pytest.raises(ModelLoadError, match="not resident"):
        engine.run(Stage.ENCODER, request_of(), None, Always())
    engine.load(key)
    with pytest.raises(ModelLoadError, match="corrupt"):
        engine.load(StageKey("fake", Stage.DIT))
    assert engine.info().resident == (key,)
    engine.drop(key)
    assert engine.info().allocated_bytes == 0


def test_unknown_models_are_named() -> None:
    engine = FakeEngine()
    assert engine.models() == ("fake",)
    with pytest.raises(UnknownModel, match="one of fake"):
        engine.count_tokens("other", "text")
    assert engine.count_tokens("fake", "a red circle") == 4
