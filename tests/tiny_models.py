"""Tiny random pipelines of real library classes, saved as ordinary model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

__all__ = ["TINY", "cogvideox", "pixart", "qwen_image", "save", "wan"]


def byte_tokenizer(bos: str, eos: str, pad: str, extra: tuple[str, ...] = ()) -> Any:
    """One token a byte, with nothing to download."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = [bos, pad, eos, *extra]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*special, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        model_max_length=4096,
    )


def t5(*, multilingual: bool = False) -> Any:
    from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

    config, model = (UMT5Config, UMT5EncoderModel) if multilingual else (T5Config, T5EncoderModel)
    torch.manual_seed(0)
    return model(
        config(
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            vocab_size=512,
            relative_attention_num_buckets=8,
            feed_forward_proj="gated-gelu",
        )
    ).eval()


def wan(scheduler: str = "UniPCMultistepScheduler") -> Any:
    """Wan 2.1 T2V; 8x8 spatial and 4x temporal compression."""
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(0)
    vae = diffusers.AutoencoderKLWan(
        base_dim=3,
        z_dim=16,
        dim_mult=[1, 1, 1, 1],
        num_res_blocks=1,
        temperal_downsample=[False, True, True],
    )
    torch.manual_seed(1)
    transformer = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=2,
        attention_head_dim=12,
        in_channels=16,
        out_channels=16,
        text_dim=32,
        freq_dim=64,
        ffn_dim=48,
        num_layers=2,
        cross_attn_norm=True,
        qk_norm="rms_norm_across_heads",
        rope_max_seq_len=64,
    )
    unipc = scheduler == "UniPCMultistepScheduler"
    options = {"prediction_type": "flow_prediction", "use_flow_sigmas": True, "flow_shift": 3.0}
    return diffusers.WanPipeline(
        vae=vae.eval(),
        transformer=transformer.eval(),
        transformer_2=None,
        text_encoder=t5(multilingual=True),
        tokenizer=ByT5Tokenizer(),
        scheduler=getattr(diffusers, scheduler)(**(options if unipc else {"shift": 3.0})),
    )


def qwen_image() -> Any:
    """Qwen-Image; 4x4 spatial compression, unlike the 8x8 of the real one."""
    import diffusers
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"}
    text = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_scaling": rope,
        "rope_theta": 1e6,
        "vocab_size": 512,
    }
    vision = {"depth": 2, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2}
    torch.manual_seed(0)
    text_encoder = Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config=text,
            vision_config={**vision, "out_hidden_size": 16},
            hidden_size=16,
            vocab_size=512,
            vision_end_token_id=400,
            vision_start_token_id=401,
            vision_token_id=402,
        )
    )
    torch.manual_seed(1)
    transformer = diffusers.QwenImageTransformer2DModel(
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
    torch.manual_seed(2)
    vae = diffusers.AutoencoderKLQwenImage(
        base_dim=24,
        z_dim=4,
        dim_mult=[1, 2, 4],
        num_res_blocks=1,
        temperal_downsample=[False, True],
        latents_mean=[0.1] * 4,
        latents_std=[0.9] * 4,
    )
    return diffusers.QwenImagePipeline(
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
        text_encoder=text_encoder.eval(),
        tokenizer=byte_tokenizer("<|endoftext|>", "<|im_end|>", "<|pad|>", ("<|im_start|>",)),
    )


def pixart() -> Any:
    """PixArt-Sigma with a second-order sampler: a family without modular blocks."""
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(0)
    transformer = diffusers.PixArtTransformer2DModel(
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
    torch.manual_seed(1)
    vae = diffusers.AutoencoderKL(block_out_channels=(32,), norm_num_groups=8)
    return diffusers.PixArtSigmaPipeline(
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.DPMSolverMultistepScheduler(),
        text_encoder=t5(),
        tokenizer=ByT5Tokenizer(),
    )


def cogvideox() -> Any:
    """CogVideoX with its stochastic sampler, whose loop keeps a value in a local variable."""
    import diffusers
    from transformers import ByT5Tokenizer

    torch.manual_seed(0)
    transformer = diffusers.CogVideoXTransformer3DModel(
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
    torch.manual_seed(1)
    vae = diffusers.AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 4,
        up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(8,) * 4,
        latent_channels=4,
        layers_per_block=1,
        norm_num_groups=2,
        temporal_compression_ratio=4,
    )
    return diffusers.CogVideoXPipeline(
        transformer=transformer.eval(),
        vae=vae.eval(),
        scheduler=diffusers.CogVideoXDPMScheduler(
            prediction_type="v_prediction",
            rescale_betas_zero_snr=True,
            timestep_spacing="trailing",
        ),
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


def save(pipeline: Any, folder: Path) -> Path:
    """Write `pipeline` as a model folder."""
    pipeline.save_pretrained(str(folder), safe_serialization=True)
    return folder
