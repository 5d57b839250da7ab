"""The models a cluster serves, as its engines told."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from elastic_dit.catalog import ModelCard
from elastic_dit.errors import NotReady, UnknownModel

__all__ = ["CardBoard"]


class CardBoard:
    """Model cards by name. A card stays when its engines leave: they may come back.

    Attributes
    ----------
    configured : tuple of str
        Model names of the configuration; the first that is served is the default.
    """

    def __init__(self, configured: Iterable[str] = ()) -> None:
        self.configured = tuple(configured)
        self._cards: dict[str, ModelCard] = {}
        self._some = asyncio.Event()
        self._next = asyncio.Event()

    def __repr__(self) -> str:
        return f"CardBoard({', '.join(self._cards) or 'empty'})"

    @property
    def cards(self) -> tuple[ModelCard, ...]:
        """All cards, the default model's first."""
        if not self._cards:
            return ()
        default = self._default()
        return (default, *(card for card in self._cards.values() if card is not default))

    def add(self, cards: Iterable[ModelCard]) -> None:
        """Take an engine's cards; a newer one of the same name wins."""
        self._cards.update((card.name, card) for card in cards)
        if self._cards:
            self._some.set()
        self._next.set()
        self._next = asyncio.Event()

    async def next_engine(self) -> None:
        """Wait for the next engine that joins. The caller sets the bound."""
        await self._next.wait()

    async def find(self, name: str | None, timeout_s: float) -> ModelCard:
        """The card of a model, None for the default; waits for the first engine.

        Raises
        ------
        NotReady
            Where no engine has told any card within `timeout_s` seconds.
        UnknownModel
            Where none serves that name.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._some.wait()
        except TimeoutError:
            raise NotReady(
                f"no engine has joined within {timeout_s:g} s: start elastic-dit-worker"
            ) from None
        if name is None:
            return self._default()
        if not isinstance(name, str) or name not in self._cards:
            raise UnknownModel("model", name, f"one of {', '.join(sorted(self._cards))}")
        return self._cards[name]

    def _default(self) -> ModelCard:
        served = (name for name in self.configured if name in self._cards)
        return self._cards[next(served, next(iter(self._cards)))]
