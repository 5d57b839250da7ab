"""Dask's nanny, which ends once and without waiting, however many ends meet."""

from __future__ import annotations

from typing import Literal

from distributed import Nanny, Status

__all__ = ["SteadyNanny"]


class SteadyNanny(Nanny):  # type: ignore[misc]
    """A nanny that can be closed while its worker closes by itself.

    Both happens where a machine is given back: the scheduler tells the workers to close, and the
    cluster's object closes their nannies. A worker that closes first tells its nanny. Dask's own
    nanny, when it closes, either does not listen any more, so that the worker waits until it is
    killed; or it hears and closes a second time beside the first, which cancels the second: a
    traceback for nothing.
    """

    def close_gracefully(self, reason: str = "nanny-close-gracefully") -> None:
        """A worker says that it closes and is not to be restarted; no news to one that closes."""
        if self.status not in (Status.closing, Status.closed):
            super().close_gracefully(reason)

    async def close(self, timeout: float = 5, reason: str = "nanny-close") -> Literal["OK"]:
        """End the worker's process, and listen to it until it has ended; then close.

        Parameters
        ----------
        timeout : float
            Longest end of the process, seconds; then it is killed.
        reason : str
        """
        try:
            if self.status in (Status.running, Status.closing_gracefully):
                self.close_gracefully(reason)
                await self.kill(timeout=timeout, reason=reason)
        finally:
            await super().close(timeout=timeout, reason=reason)
        return "OK"
