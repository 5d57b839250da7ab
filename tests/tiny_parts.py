"""Text encoders, tokenizers and autoencoders that several tiny pipelines share."""

from __future__ import annotations

from typing import Any

import torch

__all__ = [
    "byte_tokenizer",
    "chat_tokenizer",
    "clip",
    "clip_tokenizer",
    "flat_vae",
    "qwen_config",
    "seeded",
    "t5",
]


def seeded(seed: int, kind: Any, *args: Any, **config: Any) -> Any:
    """A model of `kind` whose random weights are always the same."""
    torch.manual_seed(seed)
    return kind(*args, **config).eval()


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


def chat_tokenizer() -> Any:
    """With the special tokens of Qwen's chats."""
    return byte_tokenizer("<|endoftext|>", "<|im_end|>", "<|pad|>", ("<|im_start|>",))


def clip_tokenizer() -> Any:
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer("<s>", "</s>", "<pad>")
    ids = [("<s>", 0), ("</s>", 2)]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=ids
    )
    tokenizer.model_max_length = 77
    return tokenizer


def clip(projected: bool = False, width: int = 32) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

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
    return seeded(2, kind, config)


def t5(*, multilingual: bool = False) -> Any:
    from transformers import T5Config, T5EncoderModel, UMT5Config, UMT5EncoderModel

    config, model = (UMT5Config, UMT5EncoderModel) if multilingual else (T5Config, T5EncoderModel)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    return seeded(
        0,
        model,
        config(
            **sizes,
            vocab_size=512,
            relative_attention_num_buckets=8,
            feed_forward_proj="gated-gelu",
        ),
    )


def qwen_config(layers: int) -> dict[str, Any]:
    """Settings of the text half of Qwen2.5-VL."""
    return {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "rope_scaling": {"mrope_section": [1, 1, 2], "rope_type": "default", "type": "default"},
        "rope_theta": 1e6,
        "vocab_size": 512,
    }


def flat_vae(channels: int) -> Any:
    """An image autoencoder that compresses nothing, unlike the usual eightfold."""
    import diffusers

    return seeded(
        3,
        diffusers.AutoencoderKL,
        sample_size=32,
        block_out_channels=(4,),
        layers_per_block=1,
        latent_channels=channels,
        norm_num_groups=1,
        use_quant_conv=False,
        use_post_quant_conv=False,
        shift_factor=0.06,
        scaling_factor=1.5,
    )
