"""From what a client sent to a request that its model can make."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from elastic_dit.cluster.plane.cards import CardBoard
from elastic_dit.input_image import InputImage
from elastic_dit.request import GenerationRequest

__all__ = ["Gate", "Intake", "TokenCounter", "given"]

TokenCounter = Callable[[str, str], Awaitable[int]]
"""``(model, text) -> tokens``, asked of an engine that serves the model."""

Gate = Callable[[GenerationRequest], None]
"""Raises where a request is refused whatever its tokens are; asked before they are counted."""

_SEEDS = 2**32
"""Seeds drawn for requests that bring none: short enough to be typed again."""
_COUNTS_KEPT = 256
"""Texts whose length in tokens is remembered: negative prompts are mostly the same, and a prompt
is often tried with several seeds."""


class Intake:
    """Complete and check requests before anything runs.

    Parameters
    ----------
    cards : CardBoard
        Models served.
    count_tokens : TokenCounter
        Bounded by its maker.
    """

    def __init__(self, cards: CardBoard, count_tokens: TokenCounter) -> None:
        self._cards = cards
        self._count_tokens = count_tokens
        self._counts: OrderedDict[tuple[str, str], int] = OrderedDict()

    def __repr__(self) -> str:
        return f"Intake({self._cards})"

    async def read(
        self, options: Mapping[str, Any], ready_timeout_s: float, gate: Gate | None = None
    ) -> GenerationRequest:
        """The request that `options` ask for, model defaults and a seed filled in.

        Parameters
        ----------
        options : mapping
            Fields of `GenerationRequest`; what is None or missing takes the model's default.
        ready_timeout_s : float
            Longest wait for the first engine, seconds.
        gate : Gate, optional

        Raises
        ------
        NotReady, UnknownModel, InvalidRequest
            As the cards and the request's fields demand.
        ElasticDitError
            Whatever `gate` raises.
        """
        card = await self._cards.find(options.get("model"), ready_timeout_s)
        drawn = {"model": card.name, "seed": secrets.randbelow(_SEEDS)}
        fields = {**drawn, **given(options)}
        if "image" in fields:
            fields["image"] = await asyncio.to_thread(_looked_at, fields["image"])
        request = card.complete(fields)
        if gate is not None:
            gate(request)
        texts = [text for text in (request.prompt, request.negative_prompt) if text]
        counts = await asyncio.gather(*(self._length(card.name, text) for text in texts))
        card.check(request, *counts)
        return request

    async def _length(self, model: str, text: str) -> int:
        """Tokens of a text; an engine is asked only for those not asked for lately."""
        count = self._counts.pop((model, text), None)
        if count is None:
            count = await self._count_tokens(model, text)
        self._counts[model, text] = count
        if len(self._counts) > _COUNTS_KEPT:
            self._counts.popitem(last=False)
        return count


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that were given a value.

    >>> given({"seed": None, "width": 64})
    {'width': 64}
    """
    return {name: value for name, value in options.items() if value is not None}


def _looked_at(content: bytes) -> InputImage:
    """A picture that has been decoded once: nothing runs for one that cannot be."""
    image = InputImage.parse(content)
    image.pixels()
    return image
