from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elastic_dit.engine.payload import digest, map_tensors, pack
from elastic_dit.engine.protocol import Boundary, ModelSource, Payload, StageStopped
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.errors import ModelLoadError, UnknownModel
from elastic_dit.request import GenerationRequest, Stage, StageKey
from tests.engine.contexts import Always, At, abort_after_looks
from tests.engine.plain import plain_frames, plain_latents
from tests.engine.processes import elsewhere

CASES: dict[str, dict[str, Any]] = {
    "wan video": {"model": "wan", "num_frames": 5},
    "wan image": {"model": "wan", "num_frames": 1, "width": 48},
    "wan euler": {"model": "wan_euler", "num_frames": 9},
    "wan unguided": {"model": "wan", "num_frames": 5, "guidance_scale": 1.0},
    "wan below one": {"model": "wan", "num_frames": 1, "guidance_scale": 0.0},
    "qwen image": {"model": "qwen_image"},
    "qwen wide": {"model": "qwen_image", "width": 48, "negative_prompt": ""},
    "qwen unguided": {"model": "qwen_image", "guidance_scale": 1.0},
    "cogvideox": {"model": "cogvideox", "num_frames": 9},
    "pixart": {"model": "pixart"},
    "pixart unguided": {"model": "pixart", "guidance_scale": 1.0},
}
RESUMED = ("wan video", "wan image", "qwen image", "cogvideox")
# the sampler of PixArt under recent numpy
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def request_of(engine: TorchEngine, case: str = "wan video", **more: Any) -> GenerationRequest:
    options = {
        "prompt": "a dancing monkey",
        "negative_prompt": "bad",
        "request_id": "r1",
        "seed": 7,
        "width": 32,
        "height": 32,
        "num_inference_steps": 4,
        "guidance_scale": 3.0,
        **CASES[case],
        **more,
    }
    return engine.card(options["model"]).complete(options)


def alone(source: ModelSource, stage: Stage) -> TorchEngine:
    engine = TorchEngine([source], "cpu", 1)
    engine.load(StageKey(source.name, stage))
    return engine


def whole(engine: TorchEngine, request: GenerationRequest) -> np.ndarray:
    payload: Payload | None = None
    for stage in Stage:
        payload = engine.run(stage, request, payload, Always()).payload
    assert payload is not None
    return payload["frames"]


@pytest.mark.parametrize("case", CASES)
def test_three_processes_make_what_the_plain_pipeline_makes(
    case: str, engine: TorchEngine, sources: tuple[ModelSource, ...]
) -> None:
    request = request_of(engine, case)
    source = next(source for source in sources if source.name == request.model)

    def run(stage: Stage, inputs: Payload | None) -> Payload:
        only = alone(source, stage)
        assert only.info().resident == (StageKey(source.name, stage),)
        return only.run(stage, request, inputs, Always()).payload

    encoded = elsewhere(lambda inputs: run(Stage.ENCODER, inputs), None)
    denoised = elsewhere(lambda inputs: run(Stage.DIT, inputs), encoded)
    decoded = elsewhere(lambda inputs: run(Stage.DECODER, inputs), denoised)
    if "latents" in denoised:  # else what reaches the decoder is scaled already
        assert torch.equal(denoised["latents"], plain_latents(request))
    frames = decoded["frames"]
    assert frames.shape == (request.num_frames, request.height, request.width, 3)
    assert np.array_equal(frames, plain_frames(request))


@pytest.mark.parametrize("case", RESUMED)
@pytest.mark.parametrize("step", [1, 2, 3])
def test_resumed_in_another_process_after_any_step_it_is_the_same(
    case: str, step: int, engine: TorchEngine
) -> None:
    request = request_of(engine, case)
    inputs = engine.run(Stage.ENCODER, request, None, Always()).payload
    with pytest.raises(StageStopped) as stopped:
        engine.run(Stage.DIT, request, inputs, At(step, Boundary.PREEMPT))
    assert stopped.value.step == step

    def rest(snapshot: Payload) -> Payload:
        context = Always()
        payload = engine.run(Stage.DIT, request, snapshot, context).payload
        return {**payload, "boundaries": context.boundaries}

    resumed = elsewhere(rest, stopped.value.snapshot)
    assert resumed["boundaries"] == [(k, 4) for k in range(step + 1, 5)]
    frames = engine.run(Stage.DECODER, request, resumed, Always()).payload["frames"]
    assert np.array_equal(frames, plain_frames(request))


def test_a_snapshot_holds_no_weights(engine: TorchEngine) -> None:
    request = request_of(engine)
    inputs = engine.run(Stage.ENCODER, request, None, Always()).payload
    with pytest.raises(StageStopped) as stopped:
        engine.run(Stage.DIT, request, inputs, At(2, Boundary.PREEMPT))
    runtime = engine._resident[StageKey("wan", Stage.DIT)]
    weights = {weight.data_ptr() for weight in runtime.models[0].parameters()}
    held: list[torch.Tensor] = []
    map_tensors(held.append, stopped.value.snapshot)
    assert held
    assert not weights & {tensor.data_ptr() for tensor in held}
    pack(stopped.value.snapshot)


@pytest.mark.parametrize("models", [("wan", "wan"), ("wan_euler", "qwen_image")])
def test_interleaved_requests_do_not_disturb_each_other(
    models: tuple[str, str], engine: TorchEngine
) -> None:
    requests = [
        request_of(engine, case, model=model, num_frames=1, seed=seed, guidance_scale=scale)
        for case, model, seed, scale in zip(
            ("wan image", "qwen image"), models, (1, 2), (5.0, 1.0), strict=True
        )
    ]
    sessions = []
    for request in requests:
        session = engine.session(request)
        session.begin(engine.run(Stage.ENCODER, request, None, Always()).payload)
        sessions.append(session)
    for _ in range(4):
        for session in sessions:
            session.step()
    for request, session in zip(requests, sessions, strict=True):
        assert torch.equal(session.finish()["latents"], plain_latents(request))


@pytest.mark.parametrize("case", ["wan video", "qwen image", "cogvideox"])
@pytest.mark.parametrize("stage", list(Stage))
def test_aborted_between_any_two_blocks_a_stage_leaves_nothing(
    case: str, stage: Stage, engine: TorchEngine
) -> None:
    request = request_of(engine, case)
    inputs: Payload | None = None
    for before in Stage:
        if before is stage:
            break
        inputs = engine.run(before, request, inputs, Always()).payload
    counting = abort_after_looks(0)
    expected = engine.run(stage, request, inputs, counting).payload
    assert counting.looks > 2
    for looks in {1, 2, counting.looks // 2, counting.looks - 1, counting.looks}:
        context = abort_after_looks(looks)
        with pytest.raises(StageStopped) as stopped:
            engine.run(stage, request, inputs, context)
        assert stopped.value.action is Boundary.ABORT
        assert context.looks == looks, "the stage went on after it was told to stop"
        again = engine.run(stage, request, inputs, Always()).payload
        assert digest(*pack(again)) == digest(*pack(expected))


def test_an_aborted_decode_keeps_no_frames(engine: TorchEngine) -> None:
    request = request_of(engine, num_frames=9)
    latents = {"latents": torch.zeros(1, 16, 3, 4, 4)}
    counting = abort_after_looks(0)
    engine.run(Stage.DECODER, request, latents, counting)
    with pytest.raises(StageStopped):
        engine.run(Stage.DECODER, request, latents, abort_after_looks(counting.looks - 3))
    vae = engine._resident[StageKey("wan", Stage.DECODER)].models[0]
    assert all(cached is None for cached in vae._feat_map)


def test_an_abort_at_a_boundary_ends_the_stage(engine: TorchEngine) -> None:
    request = request_of(engine)
    inputs = engine.run(Stage.ENCODER, request, None, Always()).payload
    context = At(2, Boundary.ABORT)
    with pytest.raises(StageStopped) as stopped:
        engine.run(Stage.DIT, request, inputs, context)
    assert (stopped.value.action, stopped.value.snapshot) == (Boundary.ABORT, None)
    assert context.boundaries == [(1, 4), (2, 4)]


def test_an_exception_in_a_stage_spares_the_next_request(engine: TorchEngine) -> None:
    request = request_of(engine)
    expected = whole(engine, request)
    for inputs in ({}, {"prompt_embeds": torch.zeros(1, 32, 7)}):
        with pytest.raises(Exception, match=r"."):
            engine.run(Stage.DIT, request, inputs, Always())
    with pytest.raises(Exception, match=r"."):
        engine.run(Stage.DECODER, request, {"latents": torch.zeros(1, 3, 1, 4, 4)}, Always())
    assert np.array_equal(whole(engine, request), expected)


def test_stages_come_and_go(sources: tuple[ModelSource, ...]) -> None:
    engine = TorchEngine(sources[:1], "cpu", 1)
    key = StageKey("wan", Stage.DECODER)
    assert engine.load(key) > 0.0
    assert engine.load(key) == 0.0
    info = engine.info()
    assert (info.device, info.kind, info.resident) == ("cpu", "virtual", (key,))
    assert 0 < info.allocated_bytes < info.memory_bytes
    assert "wan/decoder" in repr(engine)
    engine.drop(key)
    engine.drop(key)
    assert engine.info().allocated_bytes == 0
    with pytest.raises(ModelLoadError, match="not resident"):
        engine.run(Stage.DECODER, request_of(engine), {}, Always())
    engine.load(key)
    engine.close()
    assert engine.info().resident == ()


def test_unknown_models_are_named(engine: TorchEngine) -> None:
    with pytest.raises(UnknownModel, match="one of wan, wan_euler, qwen_image, cogvideox, pixart"):
        engine.card("sora")


def test_half_precision_spares_what_the_model_keeps_in_float32(
    sources: tuple[ModelSource, ...],
) -> None:
    source = ModelSource(
        name="wan", path=sources[0].path, dtype="bfloat16", options=sources[0].options
    )
    engine = TorchEngine([source], "cpu", 1)
    for stage in Stage:
        engine.load(StageKey("wan", stage))
    transformer = engine._resident[StageKey("wan", Stage.DIT)].models[0]
    kept = {
        name for name, weight in transformer.named_parameters() if weight.dtype == torch.float32
    }
    assert {"scale_shift_table", "blocks.0.scale_shift_table", "blocks.0.norm2.weight"} <= kept
    assert "blocks.0.attn1.to_q.weight" not in kept
    request = request_of(engine, num_frames=1)
    encoded = engine.run(Stage.ENCODER, request, None, Always()).payload
    assert encoded["prompt_embeds"].dtype == torch.bfloat16
    frames = whole(engine, request)
    assert frames.shape == (1, 32, 32, 3)
    assert frames.std() > 0


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 1), ("ab", 3), ("\N{GRINNING FACE}", 5), ("\N{CJK UNIFIED IDEOGRAPH-732B}", 4)],
)
def test_tokens_are_counted_by_the_models_own_tokenizer(
    text: str, tokens: int, engine: TorchEngine
) -> None:
    assert engine.count_tokens("wan", text) == tokens  # one a byte, and the end mark


def test_tokens_of_a_chat_template_count_from_the_prompt_on(engine: TorchEngine) -> None:
    one, two = (engine.count_tokens("qwen_image", text) for text in ("a", "ab"))
    assert two == one + 1
    request = request_of(engine, "qwen image", prompt="a")
    encoded = engine.run(Stage.ENCODER, request, None, Always()).payload
    assert encoded["prompt_embeds"].shape[1] == min(one, 512)


def test_a_prompt_of_ten_thousand_words_is_counted(engine: TorchEngine) -> None:
    assert engine.count_tokens("wan", "word " * 10_000) == 5 * 10_000
