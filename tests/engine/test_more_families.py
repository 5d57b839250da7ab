"""Each further family: three stages apart give the plain pipeline's result, resumed or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elastic_dit.engine.payload import digest, pack
from elastic_dit.engine.protocol import ModelSource, Payload, StageStopped
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.errors import InvalidRequest
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.request import Stage, StageKey
from tests.engine.contexts import Always, abort_after_looks
from tests.engine.parallel_cases import (
    BUILDERS,
    FAMILY_CASES,
    STEPS,
    TEXT_TOKENS,
    encoded,
    engine_of,
    latents_of,
    reference,
    request_of,
)
from tests.engine.processes import elsewhere
from tests.tiny_families import FAMILIES, flux
from tests.tiny_models import save

LEVELS_APART = {"ltx": 1, "sd3": 1}
"""Of 255: where the blocks do the guidance branches in turn, and the pipeline in one batch."""
VIDEOS = ("wan22", "wan22_i2v", "wan_i2v", "ltx", "hunyuan_video", "hunyuan_video15")


def plain_frames(case: str, pipeline: Any, **options: Any) -> np.ndarray:
    """What the classic pipeline makes, by the rule of diffusers' ``numpy_to_pil``."""
    request = request_of(case)
    pipeline.set_progress_bar_config(disable=True)
    options["guidance_scale"] = request.guidance_scale
    if case == "hunyuan_video15":
        pipeline.guider.guidance_scale = options.pop("guidance_scale")
    if request.image is not None:
        options["image"] = request.image.fitted(request.width, request.height)
    if case in VIDEOS:
        options["num_frames"] = request.num_frames
    if case not in ("flux", "hunyuan_video"):
        options["negative_prompt"] = request.negative_prompt
    output = pipeline(
        prompt=request.prompt,
        height=request.height,
        width=request.width,
        num_inference_steps=STEPS,
        generator=torch.Generator().manual_seed(request.seed),
        output_type="np",
        return_dict=False,
        **options,
    )[0]
    floats = np.asarray(output[0] if case in VIDEOS else output)
    return (floats * 255).round().astype("uint8")


@pytest.mark.parametrize("case", FAMILIES)
def test_three_processes_make_what_the_plain_pipeline_makes(case: str) -> None:
    request = request_of(case)

    def run(stage: Stage, inputs: Payload | None) -> Payload:
        return engine_of(case).run(stage, request, inputs, Always()).payload

    payload: Any = None
    for stage in Stage:
        payload = elsewhere(lambda inputs, stage=stage: run(stage, inputs), payload)
    whole = None
    for stage in Stage:
        whole = run(stage, whole)
    assert np.array_equal(payload["frames"], whole["frames"])
    length = {"max_sequence_length": TEXT_TOKENS[case]} if case in TEXT_TOKENS else {}
    plain = plain_frames(case, BUILDERS[case](), **length)
    apart = np.abs(payload["frames"].astype(int) - plain.astype(int))
    assert apart.max() <= LEVELS_APART.get(case, 0)


@pytest.mark.parametrize("case", FAMILIES)
def test_resumed_after_any_step_it_is_the_same(case: str) -> None:
    """One step from each snapshot gives the next one, bit by bit; the last gives the latents."""
    session = engine_of(case).session(request_of(case))
    session.begin(encoded(case))
    snapshots: list[Any] = []
    for _ in range(STEPS):
        session.step()
        snapshots.append(session.snapshot())
    expected = [digest(*pack(snapshot)) for snapshot in snapshots]

    def one_step(*before: Payload) -> list[Any]:
        states = []
        other = engine_of(case).session(request_of(case))
        for snapshot in before:
            other.restore(snapshot)
            other.step()
            states.append(digest(*pack(other.snapshot())))
        return [states, latents_of(other.finish())]

    states, latents = elsewhere(one_step, *snapshots[:-1])
    assert states == expected[1:]
    assert torch.equal(latents, reference(case))


@pytest.mark.parametrize(("is_dev", "tokens"), [(True, 512), (False, 256)])
def test_flux_pads_prompts_to_what_each_kind_was_trained_with(
    is_dev: bool, tokens: int, tmp_path: Path
) -> None:
    plain, request = flux(guidance_embeds=is_dev), request_of("flux")
    engine = TorchEngine([ModelSource(name="flux", path=str(save(plain, tmp_path)))], "cpu", 1)
    payload = None
    for stage in Stage:
        engine.load(StageKey("flux", stage))
        payload = engine.run(stage, request, payload, Always()).payload
        if stage is Stage.ENCODER:
            assert payload["prompt_embeds"].shape[1] == tokens
    assert engine.card("flux").max_prompt_tokens == tokens
    length = {} if is_dev else {"max_sequence_length": tokens}  # dev's is the pipeline's default
    assert np.array_equal(payload["frames"], plain_frames("flux", plain, **length))


def test_aborted_while_it_looks_at_the_picture_an_encoder_leaves_nothing() -> None:
    engine, request = engine_of("wan_i2v"), request_of("wan_i2v")
    expected = digest(*pack(encoded("wan_i2v")))
    counting = abort_after_looks(0)
    engine.run(Stage.ENCODER, request, None, counting)
    for looks in (1, counting.looks // 2, counting.looks - 1):
        with pytest.raises(StageStopped):
            engine.run(Stage.ENCODER, request, None, abort_after_looks(looks))
        again = engine.run(Stage.ENCODER, request, None, Always()).payload
        assert digest(*pack(again)) == expected


def test_an_encoder_without_its_picture_says_so() -> None:
    request = request_of("wan_i2v").without_image_data()
    with pytest.raises(InvalidRequest, match=r"image = <PNG .*held no longer"):
        engine_of("wan_i2v").run(Stage.ENCODER, request, None, Always())


def test_the_picture_decides_over_the_video() -> None:
    request = request_of("wan_i2v")
    upside_down = InputImage.of(sample_image(50, 31).rotate(180))
    other = request.model_copy(update={"image": upside_down})
    made = engine_of("wan_i2v").run(Stage.ENCODER, other, None, Always()).payload
    for name in ("image_embeds", "image_condition_latents"):
        assert not torch.equal(made[name], encoded("wan_i2v")[name])
    assert torch.equal(made["prompt_embeds"], encoded("wan_i2v")["prompt_embeds"])


def test_every_further_family_has_a_case() -> None:
    assert set(FAMILIES) <= set(FAMILY_CASES)
