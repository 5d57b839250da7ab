"""Tiny random pipelines of real library classes, saved as ordinary model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.tiny_parts import chat_tokenizer, qwen_config, seeded, t5

__all__ = [
    "TINY",
    "TINY_TEXT",
    "cogvideox",
    "pixart",
    "qwen_image",
    "save",
    "wan",
    "wan_parts",
    "wan_transformer",
]


def wan_transformer(heads: int = 2, seed: int = 1, **more: Any) -> Any:
    import diffusers

    config: dict[str, Any] = {
        "patch_size": (1, 2, 2),
        "num_attention_heads": heads,
        "attention_head_dim": 12,
        "in_channels": 16,
        "out_channels": 16,
        "text_dim": 32,
        "freq_dim": 64,
        "ffn_dim": 48,
        "num_layers": 2,
        "cross_attn_norm": True,
        "qk_norm": "rms_norm_across_heads",
        "rope_max_seq_len": 64,
    }
    return seeded(seed, diffusers.WanTransformer3DModel, **{**config, **more})


def wan_parts(transformer: Any, scheduler: str = "UniPCMultistepScheduler") -> dict[str, Any]:
    """All of a Wan pipeline around `transformer`; 8x8 spatial and 4x temporal compression."""
    import diffusers
    from transformers import ByT5Tokenizer

    vae = seeded(
        0,
        diffusers.AutoencoderKLWan,
        base_dim=3,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )
    unipc = scheduler == "UniPCMultistepScheduler"
    options = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    return {
        "vae": vae,
        "transformer": transformer,
        "transformer_2": None,
        "text_encoder": t5(multilingual=True),
        "tokenizer": ByT5Tokenizer(),
        "scheduler": getattr(diffusers, scheduler)(**(options if unipc else {"shift": 3.0})),
    }


def wan(scheduler: str = "UniPCMultistepScheduler") -> Any:
    """Wan 2.1 T2V."""
    import diffusers

    return diffusers.WanPipeline(**wan_parts(wan_transformer(), scheduler))


def qwen_image() -> Any:
    """Qwen-Image; 4x4 spatial compression, unlike the 8x8 of the real one."""
    import diffusers
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    text_encoder = Qwen2_5_VLConfig(
        text_config=qwen_config(layers=2),
        vision_config={**vision, "out_hidden_size": 16},
        hidden_size=16,
        vocab_size=512,
        vision_end_token_id=400,
        vision_start_token_id=401,
        vision_token_id=402,
    )
    transformer = seeded(
        1,
        diffusers.QwenImageTransformer2DModel,
        patch_size=2,
        in_channels=16,
        out_channels=4,
        num_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=16,
        guidance_embeds=False,
        axes_dims_rope=(8, 4, 4),
    )
    vae = seeded(
        2,
        diffusers.AutoencoderKLQwenImage,
        base_dim=24,
        z_dim=4,
        dim_mult=[1, 2, 4],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.1] * 4,
        latents_std=[0.9] * 4,
    )
    return diffusers.QwenImagePipeline(
        transformer=transformer,
        vae=vae,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=seeded(0, Qwen2_5_VLForConditionalGeneration, text_encoder),
        tokenizer=chat_tokenizer(),
    )


def pixart() -> Any:
    """PixArt-Sigma with a second-order sampler: a family without modular blocks."""
    import diffusers
    from transformers import ByT5Tokenizer

    transformer = seeded(
        0,
        diffusers.PixArtTransformer2DModel,
        sample_size=8,
        num_layers=2,
        patch_size=2,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_channels=32,
        in_channels=4,
        cross_attention_dim=32,
        out_channels=8,
        attention_bias=True,
        activation_fn="gelu-approximate",
        num_embeds_ada_norm=1000,
        norm_type="ada_norm_single",
        norm_elementwise_affine=False,
        norm_eps=1e-6,
    )
    return diffusers.PixArtSigmaPipeline(
        transformer=transformer,
        vae=seeded(1, diffusers.AutoencoderKL, block_out_channels=(32,), norm_num_groups=8),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
        text_encoder=t5(),
        tokenizer=ByT5Tokenizer(),
    )


def cogvideox() -> Any:
    """CogVideoX with its stochastic sampler, whose loop keeps a value in a local variable."""
    import diffusers
    from transformers import ByT5Tokenizer

    transformer = seeded(
        0,
        diffusers.CogVideoXTransformer3DModel,
        num_attention_heads=4,
        attention_head_dim=8,
        in_channels=4,
        out_channels=4,
        time_embed_dim=2,
        text_embed_dim=32,
        num_layers=2,
        sample_width=2,
        sample_height=2,
        sample_frames=9,
        patch_size=2,
        temporal_compression_ratio=4,
        max_text_seq_length=16,
    )
    vae = seeded(
        1,
        diffusers.AutoencoderKLCogVideoX,
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(8,) * 4,
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
        temporal_compression_ratio=4,
    )
    scheduler = diffusers.CogVideoXDPMScheduler(
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
    )
    return diffusers.CogVideoXPipeline(
        transformer=transformer,
        vae=vae,
        scheduler=scheduler,
        text_encoder=t5(),
        tokenizer=ByT5Tokenizer(),
    )


TINY = {
    "wan": wan,
    "wan_euler": lambda: wan("FlowMatchEulerDiscreteScheduler"),
    "qwen_image": qwen_image,
    "cogvideox": cogvideox,
    "pixart": pixart,
}
"""Builders of the tiny models that engines can serve."""
TINY_TEXT = {"wan": 32, "wan_euler": 32, "qwen_image": 512, "cogvideox": 16, "pixart": 32}
"""Tokens that their prompts are padded to."""


def save(pipeline: Any, folder: Path) -> Path:
    """Write `pipeline` as a model folder."""
    pipeline.save_pretrained(str(folder), safe_serialization=True)
    return folder
