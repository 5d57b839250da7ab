"""Exactly one holder of a job among workers that come and go."""

from __future__ import annotations

__all__ = ["Lease"]


class Lease:
    """A job held by one worker until it stops renewing or is known to be gone.

    Parameters
    ----------
    length_s : float
        Time after the last renewal at which another may take it, seconds.

    Examples
    --------
    >>> lease = Lease(length_s=6.0)
    >>> lease.acquire("a", now=0.0), lease.acquire("b", now=5.0), lease.acquire("b", now=6.5)
    (True, False, True)
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._holder: str | None = None
        self._renewed_at = 0.0

    def __repr__(self) -> str:
        return f"Lease({self._holder or 'free'})"

    def acquire(self, who: str, now: float) -> bool:
        """Take or renew the lease; whether `who` holds it now."""
        if self.holder(now) not in (None, who):
            return False
        self._holder, self._renewed_at = who, now
        return True

    def holder(self, now: float) -> str | None:
        """Who holds it at `now`, None if nobody does."""
        if self._holder is not None and now - self._renewed_at > self._length_s:
            self._holder = None
        return self._holder

    def release(self, who: str) -> None:
        """Give it back, if `who` has it."""
        if self._holder == who:
            self._holder = None
