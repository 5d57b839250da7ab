"""The model's parts: stock library classes, small."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from clips import vocabulary
from diffusers import AutoencoderKLWan, WanTransformer3DModel
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

__all__ = [
    "SCHEDULE_SHIFT",
    "build_autoencoder",
    "build_text_encoder",
    "build_tokenizer",
    "build_transformer",
    "embed",
    "latent_statistics",
]

SCHEDULE_SHIFT = 3.0
"""Shift of the flow-matching noise schedule, in training and in sampling."""
LATENT_CHANNELS = 16
TEXT_WIDTH = 64
GATE_AT_START = 0.3
"""Gates of the residual branches start part open: closed ones learn nothing for a long while."""
GATES = (2, 5)
"""Rows of a block's scale-shift table that gate self-attention and feed-forward."""
TIME_PROJECTION_STD = 0.02


def build_autoencoder() -> AutoencoderKLWan:
    """A fresh video autoencoder: 8 x 8 pixels and 4 frames to one latent of 16 channels."""
    return AutoencoderKLWan(
        base_dim=12,
        decoder_base_dim=12,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 4, 4],
        num_res_blocks=1,
        temperal_downsample=[True, True],
        is_residual=True,
        in_channels=12,
        out_channels=12,
        patch_size=2,
        scale_factor_temporal=4,
        scale_factor_spatial=8,
        latents_mean=[0.0] * LATENT_CHANNELS,
        latents_std=[1.0] * LATENT_CHANNELS,
    )


def latent_statistics(autoencoder: AutoencoderKLWan) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of the latents by channel, shaped to broadcast over them."""
    shape = (1, -1, 1, 1, 1)
    mean = torch.tensor(autoencoder.config.latents_mean).view(shape)
    return mean, torch.tensor(autoencoder.config.latents_std).view(shape)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token a word, over the words of the training prompts."""
    specials = ["<pad>", "</s>", "<unk>"]
    ids = {word: index for index, word in enumerate(specials + vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Lowercase(),
            normalizers.Replace(".", " "),
            normalizers.Replace(",", " "),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", ids["</s>"])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=512,
    )


def build_text_encoder(vocabulary_size: int) -> UMT5EncoderModel:
    """A fresh text encoder of two layers."""
    config = UMT5Config(
        vocab_size=vocabulary_size,
        d_model=TEXT_WIDTH,
        d_kv=16,
        num_heads=4,
        d_ff=128,
        num_layers=2,
        relative_attention_num_buckets=16,
        relative_attention_max_distance=32,
        dropout_rate=0.0,
        pad_token_id=0,
        eos_token_id=1,
        feed_forward_proj="gated-gelu",
        is_encoder_decoder=False,
    )
    return UMT5EncoderModel(config)


def build_transformer() -> WanTransformer3DModel:
    """A fresh diffusion transformer of five layers.

    Many narrow heads: the rotary embedding's base is fixed in the library, and on so small a grid
    each head tells few positions apart.
    """
    model = WanTransformer3DModel(
        patch_size=(1, 2, 2),
        num_attention_heads=8,
        attention_head_dim=16,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        text_dim=TEXT_WIDTH,
        freq_dim=128,
        ffn_dim=384,
        num_layers=5,
        cross_attn_norm=True,
        rope_max_seq_len=64,
    )
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and "scale_shift_table" not in name and "norm" not in name:
            nn.init.xavier_uniform_(parameter.data.view(parameter.shape[0], -1))
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    for block in model.blocks:
        nn.init.zeros_(block.scale_shift_table)
        for row in GATES:
            block.scale_shift_table.data[:, row] = GATE_AT_START
    nn.init.normal_(model.condition_embedder.time_proj.weight, std=TIME_PROJECTION_STD)
    nn.init.zeros_(model.proj_out.weight)
    return model


def embed(
    tokenizer: PreTrainedTokenizerFast,
    encoder: UMT5EncoderModel,
    prompts: Sequence[str],
    length: int,
) -> torch.Tensor:
    """Embed prompts as ``WanPipeline`` does: zero rows after the end of each prompt.

    Returns
    -------
    torch.Tensor
        Shape ``(len(prompts), length, 64)``.
    """
    tokens = tokenizer(
        list(prompts), padding="longest", max_length=length, truncation=True, return_tensors="pt"
    )
    hidden = encoder(tokens.input_ids, tokens.attention_mask).last_hidden_state
    hidden = hidden * tokens.attention_mask[..., None]
    return nn.functional.pad(hidden, (0, 0, 0, length - hidden.shape[1]))
