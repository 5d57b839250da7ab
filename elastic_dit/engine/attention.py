"""Attention over a sequence that is divided among the members of a group (Ulysses).

Each member holds some tokens of all heads. Around the attention itself, two exchanges turn that
into all tokens of some heads and back (arXiv:2309.14509). The model's code stays as it is: while
one of its attention modules runs, calls of torch's scaled dot-product attention are answered
here. That serves families with and without a parallel implementation of their own alike, and
unlike diffusers' it copes with any numbers of tokens and heads, and with masks over joined
sequences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from elastic_dit.engine.groups import Group
from elastic_dit.errors import UnsupportedParallelism

__all__ = ["Layout", "UlyssesMode", "share", "ulysses_attention"]


def share(total: int, size: int) -> list[int]:
    """Tokens of each of `size` members; the first ones take the rest (`torch.tensor_split`).

    >>> share(10, 4)
    [3, 3, 2, 2]
    """
    return [total // size + (rank < total % size) for rank in range(size)]


class Layout:
    """How a sequence joined of several streams, each divided by itself, lies on the members.

    Parameters
    ----------
    lengths : sequence of int
        Tokens of each stream in the order they are joined.
    size : int
        Members.

    Examples
    --------
    Two text and four image tokens on two members: each has one and two.

    >>> layout = Layout([2, 4], 2)
    >>> layout.rows, layout.order.tolist()
    ([3, 3], [0, 2, 3, 1, 4, 5])
    """

    def __init__(self, lengths: Sequence[int], size: int) -> None:
        self.total = sum(lengths)
        shares = [share(length, size) for length in lengths]
        self.rows = [sum(part) for part in zip(*shares, strict=True)]
        """Tokens of each member."""
        starts = [0, *accumulate(lengths)]
        pieces = [
            torch.arange(start, start + length).tensor_split(size)
            for start, length in zip(starts, lengths, strict=False)
        ]
        self.order = torch.cat([part for member in zip(*pieces, strict=True) for part in member])
        """For each token of the members' sequences one after another, its place in the whole."""


def ulysses_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    group: Group,
    layout: Layout,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of all tokens to all tokens, of which each member holds its own.

    Parameters
    ----------
    query, key, value : tensor, shape [batch, heads, tokens of this member, width]
    group : Group
    layout : Layout
    mask : tensor or None
        Over keys, ``[batch or 1, 1, 1 or queries, keys]``, of the whole sequence or of this
        member's part; boolean or additive.
    scale : float or None
        As in `torch.nn.functional.scaled_dot_product_attention`.

    Returns
    -------
    tensor, shape [batch, heads, tokens of this member, width]

    Raises
    ------
    UnsupportedParallelism
        Where the shapes are not of this layout.
    """
    batch, heads, rows, width = query.shape
    if not query.shape == key.shape == value.shape or rows != layout.rows[group.rank]:
        shapes = ", ".join(str(list(t.shape)) for t in (query, key, value))
        expected = layout.rows[group.rank]
        raise UnsupportedParallelism(f"query, key, value of {shapes}: not {expected} tokens each")
    size, each = group.size, -(-heads // group.size)
    here = [rows] * size
    stacked = functional.pad(torch.stack((query, key, value)), (0, 0, 0, 0, 0, each * size - heads))
    by_member = stacked.view(3, batch, size, each, rows, width).permute(2, 4, 0, 1, 3, 5)
    whole = group.all_to_all(by_member.flatten(0, 1), here, layout.rows)
    some_heads = whole.permute(1, 2, 3, 0, 4).contiguous()
    whole_mask = None if mask is None else _whole_mask(mask, group, layout)
    q, k, v = some_heads
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=whole_mask, scale=scale)
    back = group.all_to_all(out.permute(2, 0, 1, 3), layout.rows, here)
    joined = back.view(size, rows, batch, each, width).permute(2, 0, 3, 1, 4)
    return joined.reshape(batch, size * each, rows, width)[:, :heads]


def _whole_mask(mask: torch.Tensor, group: Group, layout: Layout) -> torch.Tensor:
    """The mask over all tokens in the members' order."""
    if mask.dim() == 4 and mask.shape[1] != 1:
        raise UnsupportedParallelism("a mask that differs between attention heads")
    own = layout.rows[group.rank]
    if tuple(mask.shape[-2:]) == (own, own):
        mask = _keys_of(mask)
    for dim in (-2, -1):
        tokens = mask.shape[dim]
        if tokens == layout.total:
            mask = mask.index_select(dim, layout.order.to(mask.device))
        elif tokens == own:
            gathered = group.all_gather(mask.movedim(dim, 0).contiguous(), layout.rows)
            mask = gathered.movedim(0, dim)
        elif tokens != 1:
            raise UnsupportedParallelism(
                f"a mask of shape {list(mask.shape)} over {layout.total} tokens"
            )
    return mask


def _keys_of(mask: torch.Tensor) -> torch.Tensor:
    """Hidden keys of a mask in which a token that is hidden from one is hidden from all.

    Only so can a mask of one member's tokens among themselves tell how they stand to the rest.
    What hidden tokens themselves attend to is left out: nobody reads their results.
    """
    shown = mask.diagonal(dim1=-2, dim2=-1)
    if mask.dtype is not torch.bool or not torch.equal(
        mask, shown[..., None] & shown[..., None, :]
    ):
        raise UnsupportedParallelism("a mask of a member's own tokens among themselves")
    return shown[..., None, :]


class UlyssesMode(TorchFunctionMode):
    """While entered, attention is that of the whole group; only on this thread.

    Parameters
    ----------
    group : Group
    layout : Layout

    Attributes
    ----------
    calls : int
        Attentions answered.
    """

    def __init__(self, group: Group, layout: Layout) -> None:
        super().__init__()
        self._group = group
        self._layout = layout
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.calls += 1
        return self._attend(*args, **(kwargs or {}))

    def _attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if dropout_p or is_causal or enable_gqa:
            raise UnsupportedParallelism("attention with dropout, causal order or grouped heads")
        return ulysses_attention(
            query,
            key,
            value,
            group=self._group,
            layout=self._layout,
            mask=attn_mask,
            scale=scale,
        )
