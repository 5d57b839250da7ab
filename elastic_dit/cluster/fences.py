"""Order between streams and calls.

Dask tells of dropped futures on a client's stream, while submissions are calls of their own, and
either may overtake the other. A request dropped and submitted again under the same id would then
be cancelled by the news of the first drop, with its new future waiting for ever. Likewise it tells
a worker on its stream to free a result, and a call may have just read the same result again.
"""

from __future__ import annotations

import asyncio

__all__ = ["Fences"]


class Fences:
    """Marks in streams, and the calls that wait for them.

    Examples
    --------
    >>> async def main() -> None:
    ...     fences = Fences()
    ...     fences.passed("client-1", "a")
    ...     await fences.wait("client-1", "a")
    ...     print(fences)
    >>> asyncio.run(main())
    <Fences: 0 open>
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], asyncio.Event] = {}

    def __repr__(self) -> str:
        return f"<Fences: {len(self._open)} open>"

    def passed(self, client: str, token: str) -> None:
        """All that the client, or the control plane, sent before this mark has been handled."""
        self._open.setdefault((client, token), asyncio.Event()).set()

    async def wait(self, client: str, token: str) -> None:
        """Until the mark has passed; bounded by the caller."""
        event = self._open.setdefault((client, token), asyncio.Event())
        try:
            await event.wait()
        finally:
            self._open.pop((client, token), None)

    def forget(self, client: str) -> None:
        """Drop the marks of a client that has left."""
        for key in [key for key in self._open if key[0] == client]:
            del self._open[key]
