"""More tiny random pipelines: families that are tried on one request each, at every degree."""

from __future__ import annotations

from typing import Any

from tests.tiny_models import wan_parts, wan_transformer
from tests.tiny_parts import (
    byte_tokenizer,
    chat_tokenizer,
    clip,
    clip_tokenizer,
    flat_vae,
    qwen_config,
    seeded,
    t5,
)

__all__ = ["FAMILIES", "flux", "four_headed_wan", "wan_i2v"]


def four_headed_wan() -> Any:
    import diffusers

    return diffusers.WanPipeline(**wan_parts(wan_transformer(heads=4)))


def wan22() -> Any:
    import diffusers

    parts = wan_parts(wan_transformer(heads=4))
    parts["transformer_2"] = wan_transformer(heads=4, seed=7)
    return diffusers.WanPipeline(**parts, boundary_ratio=0.875)


def wan22_i2v() -> Any:
    import diffusers

    noisy, clean = (wan_transformer(heads=4, seed=seed, in_channels=36) for seed in (1, 7))
    parts = {**wan_parts(noisy), "transformer_2": clean}
    return diffusers.WanImageToVideoPipeline(**parts, boundary_ratio=0.7)  # not the blocks' own


def wan_i2v() -> Any:
    """Wan 2.1 I2V: latents, mask and the picture's latents in, and CLIP's view of the picture."""
    import diffusers
    from transformers import CLIPImageProcessor, CLIPVisionConfig, CLIPVisionModel

    view = CLIPVisionConfig(
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=4,
    )
    transformer = wan_transformer(heads=4, in_channels=36, image_dim=8, added_kv_proj_dim=48)
    return diffusers.WanImageToVideoPipeline(
        **wan_parts(transformer),
        image_encoder=seeded(5, CLIPVisionModel, view),
        image_processor=CLIPImageProcessor(crop_size=32, size=32),
    )


def flux(guidance_embeds: bool = True) -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    transformer = seeded(
        1,
        diffusers.FluxTransformer2DModel,
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=guidance_embeds,
    )
    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=clip(),
        text_encoder_2=t5(),
        tokenizer=clip_tokenizer(),
        tokenizer_2=ByT5Tokenizer(),
        transformer=transformer,
        vae=flat_vae(1),
        image_encoder=None,
        feature_extractor=None,
    )


def sd3() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    transformer = seeded(
        1,
        diffusers.SD3Transformer2DModel,
        sample_size=32,
        patch_size=2,
        in_channels=4,
        num_layers=3,
        attention_head_dim=8,
        num_attention_heads=4,
        caption_projection_dim=32,
        joint_attention_dim=32,
        pooled_projection_dim=64,
        out_channels=4,
        dual_attention_layers=(0,),  # as in 3.5 medium
        qk_norm="rms_norm",
    )
    return diffusers.StableDiffusion3Pipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=clip(projected=True),
        text_encoder_2=clip(projected=True),
        text_encoder_3=t5(),
        tokenizer=clip_tokenizer(),
        tokenizer_2=clip_tokenizer(),
        tokenizer_3=ByT5Tokenizer(),
        transformer=transformer,
        vae=flat_vae(4),
        image_encoder=None,
        feature_extractor=None,
    )


def ltx() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    transformer = seeded(
        1,
        diffusers.LTXVideoTransformer3DModel,
        in_channels=8,
        out_channels=8,
        patch_size=1,
        patch_size_t=1,
        num_attention_heads=4,
        attention_head_dim=8,
        cross_attention_dim=32,
        num_layers=2,
        caption_channels=32,
    )
    scaling = (True, True, False, False)
    vae = seeded(
        2,
        diffusers.AutoencoderKLLTXVideo,
        latent_channels=8,
        block_out_channels=(8,) * 4,
        decoder_block_out_channels=(8,) * 4,
        layers_per_block=(1,) * 5,
        decoder_layers_per_block=(1,) * 5,
        spatio_temporal_scaling=scaling,
        decoder_spatio_temporal_scaling=scaling,
        decoder_inject_noise=(False,) * 5,
        upsample_residual=(False,) * 4,
        upsample_factor=(1,) * 4,
        timestep_conditioning=False,
        patch_size=1,
        patch_size_t=1,
        encoder_causal=True,
        decoder_causal=False,
    )
    return diffusers.LTXPipeline(
        transformer=transformer,
        vae=vae,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=t5(),
        tokenizer=ByT5Tokenizer(),
    )


def llama() -> Any:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
        hidden_size=16,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=4,
        vocab_size=300,
    )
    return seeded(3, LlamaModel, config)


def hunyuan_video() -> Any:
    import diffusers

    transformer = seeded(
        1,
        diffusers.HunyuanVideoTransformer3DModel,
        in_channels=4,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=10,
        num_layers=2,
        num_single_layers=1,
        num_refiner_layers=1,
        patch_size=1,
        patch_size_t=1,
        guidance_embeds=True,
        text_embed_dim=16,
        pooled_projection_dim=8,
        rope_axes_dim=(2, 4, 4),
    )
    vae = seeded(
        2,
        diffusers.AutoencoderKLHunyuanVideo,
        latent_channels=4,
        down_block_types=("HunyuanVideoDownBlock3D",) * 4,
        up_block_types=("HunyuanVideoUpBlock3D",) * 4,
        block_out_channels=(8,) * 4,
        layers_per_block=1,
        norm_num_groups=4,
        scaling_factor=0.48,
        spatial_compression_ratio=8,
        temporal_compression_ratio=4,
        mid_block_add_attention=True,
    )
    return diffusers.HunyuanVideoPipeline(
        transformer=transformer,
        vae=vae,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=llama(),
        tokenizer=byte_tokenizer("<s>", "</s>", "<pad>"),
        text_encoder_2=clip(width=8),
        tokenizer_2=clip_tokenizer(),
    )


def hunyuan_video15() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    transformer = seeded(
        1,
        diffusers.HunyuanVideo15Transformer3DModel,
        in_channels=9,
        out_channels=4,
        num_attention_heads=4,
        attention_head_dim=8,
        num_layers=2,
        num_refiner_layers=1,
        mlp_ratio=2.0,
        patch_size=1,
        patch_size_t=1,
        text_embed_dim=16,
        text_embed_2_dim=32,
        image_embed_dim=12,
        rope_axes_dim=(2, 2, 4),
        target_size=16,
        task_type="t2v",
    )
    vae = seeded(
        2,
        diffusers.AutoencoderKLHunyuanVideo15,
        in_channels=3,
        out_channels=3,
        latent_channels=4,
        block_out_channels=(16, 16),
        layers_per_block=1,
        spatial_compression_ratio=4,
        temporal_compression_ratio=2,
        downsample_match_channel=False,
        upsample_match_channel=False,
    )
    text_encoder = seeded(
        3,
        Qwen2_5_VLTextModel,
        Qwen2_5_VLTextConfig(**qwen_config(layers=4), bos_token_id=0, eos_token_id=2),
    )
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['content'] if m['content'] is string "
        "else m['content'][0]['text'] }}<|im_end|>{% endfor %}"
    )
    return diffusers.HunyuanVideo15Pipeline(
        transformer=transformer,
        vae=vae,
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=text_encoder,
        tokenizer=tokenizer,
        text_encoder_2=t5(),
        tokenizer_2=ByT5Tokenizer(),
        guider=diffusers.ClassifierFreeGuidance(guidance_scale=6.0),
    )


FAMILIES = {
    "wan22": wan22,
    "wan22_i2v": wan22_i2v,
    "wan_i2v": wan_i2v,
    "flux": flux,
    "sd3": sd3,
    "ltx": ltx,
    "hunyuan_video": hunyuan_video,
    "hunyuan_video15": hunyuan_video15,
}
"""Builders by family name."""
