"""More tiny random pipelines: families that are tried on one request each, at every degree."""

from __future__ import annotations

from typing import Any

import torch

from tests.tiny_models import byte_tokenizer, t5, wan

__all__ = ["FAMILIES", "four_headed_wan"]


def four_headed_wan(seed: int = 1) -> Any:
    import diffusers

    pipeline = wan()
    config = {**pipeline.transformer.config, "num_attention_heads": 4}
    torch.manual_seed(seed)
    pipeline.transformer = diffusers.WanTransformer3DModel.from_config(config).eval()
    return pipeline


def wan22() -> Any:
    import diffusers

    parts = four_headed_wan().components
    other = four_headed_wan(seed=7).transformer
    return diffusers.WanPipeline(**{**parts, "transformer_2": other}, boundary_ratio=0.875)


def clip(projected: bool = False, width: int = 32) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    torch.manual_seed(2)
    kind = CLIPTextModelWithProjection if projected else CLIPTextModel
    config = CLIPTextConfig(
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
        hidden_size=width,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=3,
        vocab_size=300,
        projection_dim=32,
        max_position_embeddings=77,
    )
    return kind(config).eval()


def clip_tokenizer() -> Any:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer("<s>", "</s>", "<pad>")
    ids = [("<s>", 0), ("</s>", 2)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=ids
    )
    tokenizer.model_max_length = 77
    return tokenizer


def flat_vae(channels: int) -> Any:
    """An image autoencoder that compresses nothing, unlike the usual eightfold."""
    import diffusers

    torch.manual_seed(3)
    return diffusers.AutoencoderKL(
        sample_size=32,
        block_out_channels=(4,),
        layers_per_block=1,
        latent_channels=channels,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.06,
        scaling_factor=1.5,
    ).eval()


def flux() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(1)
    transformer = diffusers.FluxTransformer2DModel(
        patch_size=1,
        in_channels=4,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=16,
        num_attention_heads=4,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
        guidance_embeds=True,
    )
    return diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=clip(),
        text_encoder_2=t5(),
        tokenizer=clip_tokenizer(),
        tokenizer_2=ByT5Tokenizer(),
        transformer=transformer.eval(),
        vae=flat_vae(1),
        image_encoder=None,
        feature_extractor=None,
    )


def sd3() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(1)
    transformer = diffusers.SD3Transformer2DModel(
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
        transformer=transformer.eval(),
        vae=flat_vae(4),
        image_encoder=None,
        feature_extractor=None,
    )


def ltx() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(1)
    transformer = diffusers.LTXVideoTransformer3DModel(
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
    torch.manual_seed(2)
    scaling = (True, True, False, False)
    vae = diffusers.AutoencoderKLLTXVideo(
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
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=t5(),
        tokenizer=ByT5Tokenizer(),
    )


def hunyuan_video() -> Any:
    import diffusers
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(1)
    transformer = diffusers.HunyuanVideoTransformer3DModel(
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
    torch.manual_seed(2)
    vae = diffusers.AutoencoderKLHunyuanVideo(
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
    torch.manual_seed(3)
    llama = LlamaModel(
        LlamaConfig(
            bos_token_id=0,
            eos_token_id=2,
            pad_token_id=1,
            hidden_size=16,
            intermediate_size=37,
            num_attention_heads=4,
            num_hidden_layers=4,
            vocab_size=300,
        )
    )
    return diffusers.HunyuanVideoPipeline(
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=llama.eval(),
        tokenizer=byte_tokenizer("<s>", "</s>", "<pad>"),
        text_encoder_2=clip(width=8),
        tokenizer_2=clip_tokenizer(),
    )


def hunyuan_video15() -> Any:
    import diffusers
    from transformers import ByT5Tokenizer, Qwen2_5_VLTextConfig, Qwen2_5_VLTextModel

    torch.manual_seed(1)
    transformer = diffusers.HunyuanVideo15Transformer3DModel(
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
    torch.manual_seed(2)
    vae = diffusers.AutoencoderKLHunyuanVideo15(
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
    torch.manual_seed(3)
    text_encoder = Qwen2_5_VLTextModel(
        Qwen2_5_VLTextConfig(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=2,
            vocab_size=512,
            bos_token_id=0,
            eos_token_id=2,
            rope_scaling={"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
            rope_theta=1e6,
        )
    )
    tokenizer = byte_tokenizer("<|endoftext|>", "<|im_end|>", "<|pad|>", ("<|im_start|>",))
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m['content'] if m['content'] is string "
        "else m['content'][0]['text'] }}<|im_end|>{% endfor %}"
    )
    return diffusers.HunyuanVideo15Pipeline(
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=7.0),
        text_encoder=text_encoder.eval(),
        tokenizer=tokenizer,
        text_encoder_2=t5(),
        tokenizer_2=ByT5Tokenizer(),
        guider=diffusers.ClassifierFreeGuidance(guidance_scale=6.0),
    )


FAMILIES = {
    "wan22": wan22,
    "flux": flux,
    "sd3": sd3,
    "ltx": ltx,
    "hunyuan_video": hunyuan_video,
    "hunyuan_video15": hunyuan_video15,
}
"""Builders by family name."""
