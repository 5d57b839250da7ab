"""Clients that wait for one result before they ask for the next: what a cluster serves at most."""

from __future__ import annotations

import random
from collections.abc import Callable

from elastic_dit.simulate.cluster import VirtualCluster
from elastic_dit.simulate.workload import Arrival, RequestClass

__all__ = ["ClosedLoop"]


class ClosedLoop:
    """A fixed number of requests in the system, for as long as the loop runs.

    With more of them than stages at work, some always wait before the slowest stage, so that
    completions come as fast as it goes: the capacity.

    Parameters
    ----------
    cluster : VirtualCluster
        Takes the requests; its `when_ended` is used.
    users : int
        Requests in the system at any time.
    kind_at : callable
        Which class a request that is made at a time is of.
    until_s : float
        No more requests from then on.
    ramp_s : float
        Time over which the first requests come, evenly; all at once would not be a steady state.
    seed : int
        Of the requests' own seeds.
    """

    def __init__(
        self,
        cluster: VirtualCluster,
        *,
        users: int,
        kind_at: Callable[[float], RequestClass],
        until_s: float,
        ramp_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._cluster = cluster
        self._kind_at = kind_at
        self._until_s = until_s
        self._dice = random.Random(seed)
        self._made = 0
        cluster.when_ended = self._next
        for user in range(users):
            cluster.at(ramp_s * user / users, self._next)

    def __repr__(self) -> str:
        return f"<ClosedLoop, {self._made} requests so far>"

    def _next(self, ended: str = "") -> None:  # noqa: ARG002
        now = self._cluster.now
        if now >= self._until_s:
            return
        kind = self._kind_at(now)
        request = kind.request(f"{kind.label}-{self._made:05d}", self._dice.randrange(2**31))
        self._made += 1
        self._cluster.submit([Arrival(at_s=now, request=request, label=kind.label)])
