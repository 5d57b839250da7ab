from __future__ import annotations

from pathlib import Path

import diffusers
import pytest
import torch

from elastic_dit.engine import modular
from elastic_dit.engine.stub import config_stub
from elastic_dit.errors import UnsupportedModel
from elastic_dit.families import family_of
from elastic_dit.families.folder import ModelFolder
from elastic_dit.request import Stage

PROMPT = frozenset({("prompt", True)})


@pytest.mark.parametrize("version", ["0.41.3", "0.43.0", "1.0.0", "0.420.0"])
def test_any_other_series_of_diffusers_is_refused(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diffusers, "__version__", version)
    modular.stage_blocks.cache_clear()
    with pytest.raises(UnsupportedModel, match=rf"diffusers {version} is installed"):
        modular.stage_blocks("WanBlocks", PROMPT)


def test_the_installed_series_is_the_supported_one() -> None:
    modular.check_version()
    assert diffusers.__version__.startswith(modular.SUPPORTED_SERIES)


def test_wans_blocks_declare_stages_and_wire() -> None:
    stages = modular.stage_blocks("WanBlocks", PROMPT)
    owned = {stage: set(parts.components) for stage, parts in stages.items()}
    assert owned[Stage.ENCODER] == {"text_encoder", "tokenizer", "guider"}
    assert owned[Stage.DIT] == {"transformer", "scheduler", "guider"}
    assert owned[Stage.DECODER] == {"vae", "video_processor"}
    assert {"prompt_embeds", "negative_prompt_embeds"} <= stages[Stage.ENCODER].gives
    assert "latents" in stages[Stage.DIT].gives
    assert stages[Stage.DECODER].gives == frozenset()


@pytest.mark.parametrize(
    "blocks", ["FluxAutoBlocks", "LTXAutoBlocks", "HunyuanVideo15AutoBlocks", "ZImageAutoBlocks"]
)
def test_families_that_nobody_named_split_the_same_way(blocks: str) -> None:
    stages = modular.stage_blocks(blocks, PROMPT)
    assert "transformer" in stages[Stage.DIT].components
    assert "scheduler" in stages[Stage.DIT].components
    assert "vae" in stages[Stage.DECODER].components
    assert any("text_encoder" in name for name in stages[Stage.ENCODER].components)
    assert "prompt_embeds" in stages[Stage.ENCODER].gives


def test_a_copied_sampler_shares_nothing_that_changes() -> None:
    sampler = diffusers.UniPCMultistepScheduler(use_flow_sigmas=True)
    sampler.set_timesteps(4)
    twin = modular.fresh(sampler)
    twin.set_timesteps(9)
    twin.model_outputs[0] = torch.zeros(1)
    assert len(sampler.timesteps) == 4
    assert sampler.model_outputs[0] is None
    assert dict(twin.config) == dict(sampler.config)


@pytest.mark.parametrize(("folder", "factors"), [("embedded:shapes", (8, 4)), ("wan", (8, 4))])
def test_a_stub_tells_the_vaes_true_compression_and_holds_no_memory(
    folder: str, factors: tuple[int, int], folders: dict[str, Path]
) -> None:
    model = ModelFolder.open(str(folders.get(folder, folder)))
    stub = config_stub(model, "vae", torch.bfloat16)
    family_of(model).fit_stub("vae", stub)
    assert (2 ** len(stub.temperal_downsample), 2 ** sum(stub.temperal_downsample)) == factors
    assert {weight.device.type for weight in stub.parameters()} == {"meta"}
    assert stub.dtype == torch.bfloat16
    assert config_stub(model, "no_such_component", torch.float32) is None
    assert config_stub(model, "text_encoder", torch.float32) is None
