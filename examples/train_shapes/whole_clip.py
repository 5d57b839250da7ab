"""`AutoencoderKLWan` over a whole clip at once, for training.

The library walks a clip chunk by chunk and keeps a cache of features between chunks. All its
convolutions are causal with zero padding, so one pass over the whole clip gives the same result
(to about 5e-6) once the temporal resamplers treat the first frame apart, at about 1.6 times the
speed. Follows diffusers.models.autoencoders.autoencoder_kl_wan as of diffusers 0.42.
"""

from __future__ import annotations

import torch
from diffusers import AutoencoderKLWan
from diffusers.models.autoencoders import autoencoder_kl_wan as wan
from torch import nn

__all__ = ["decode", "encode"]


def encode(autoencoder: AutoencoderKLWan, video: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Encode clips.

    Parameters
    ----------
    autoencoder : AutoencoderKLWan
        With ``is_residual=True``.
    video : torch.Tensor
        Shape ``(B, 3, T, H, W)``, from -1 to 1, ``T = 4k + 1``.

    Returns
    -------
    mean, log_variance : torch.Tensor
        Of the latents, each of shape ``(B, z_dim, k + 1, H / 8, W / 8)``.
    """
    encoder = autoencoder.encoder
    hidden = encoder.conv_in(wan.patchify(video, autoencoder.config.patch_size))
    for block in encoder.down_blocks:
        hidden = _down(block, hidden)
    hidden = encoder.conv_out(encoder.nonlinearity(encoder.norm_out(encoder.mid_block(hidden))))
    mean, log_variance = autoencoder.quant_conv(hidden).chunk(2, dim=1)
    return mean, log_variance.clamp(-20, 10)


def decode(autoencoder: AutoencoderKLWan, latents: torch.Tensor) -> torch.Tensor:
    """Decode latents, without the library's clamp to -1..1, which would stop the gradient.

    Parameters
    ----------
    autoencoder : AutoencoderKLWan
        With ``is_residual=True``.
    latents : torch.Tensor
        Shape ``(B, z_dim, k + 1, h, w)``, not normalised.

    Returns
    -------
    torch.Tensor
        Shape ``(B, 3, 4k + 1, 8h, 8w)``.
    """
    decoder = autoencoder.decoder
    hidden = decoder.mid_block(decoder.conv_in(autoencoder.post_quant_conv(latents)))
    for block in decoder.up_blocks:
        hidden = _up(block, hidden)
    hidden = decoder.conv_out(decoder.nonlinearity(decoder.norm_out(hidden)))
    return wan.unpatchify(hidden, autoencoder.config.patch_size)


def _down(block: wan.WanResidualDownBlock, hidden: torch.Tensor) -> torch.Tensor:
    out = hidden
    for resnet in block.resnets:
        out = resnet(out)
    if block.downsampler is not None:
        out = _resample(block.downsampler, out)
    # The shortcut pads in time at the front of each chunk: the first frame alone, then the rest.
    shortcut = block.avg_shortcut(hidden[:, :, :1])
    if hidden.shape[2] > 1:
        shortcut = torch.cat([shortcut, block.avg_shortcut(hidden[:, :, 1:])], dim=2)
    return out + shortcut


def _up(block: wan.WanResidualUpBlock, hidden: torch.Tensor) -> torch.Tensor:
    out = hidden
    for resnet in block.resnets:
        out = resnet(out)
    if block.upsampler is not None:
        out = _resample(block.upsampler, out)
    if block.avg_shortcut is not None:
        out = out + block.avg_shortcut(hidden, first_chunk=True)
    return out


def _resample(module: nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    batch, channels, frames, height, width = hidden.shape
    if module.mode == "upsample3d" and frames > 1:
        pairs = module.time_conv(hidden[:, :, 1:])
        pairs = pairs.reshape(batch, 2, channels, frames - 1, height, width)
        later = torch.stack((pairs[:, 0], pairs[:, 1]), dim=3)
        later = later.reshape(batch, channels, 2 * (frames - 1), height, width)
        hidden = torch.cat([hidden[:, :, :1], later], dim=2)
        frames = hidden.shape[2]
    images = hidden.transpose(1, 2).reshape(batch * frames, channels, height, width)
    images = module.resample(images)
    hidden = images.view(batch, frames, *images.shape[1:]).transpose(1, 2)
    if module.mode == "downsample3d" and frames > 1:
        hidden = torch.cat([hidden[:, :, :1], module.time_conv(hidden)], dim=2)
    return hidden
