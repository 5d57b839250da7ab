"""Stages that take far longer than they should: their engine hangs."""

from __future__ import annotations

from elastic_dit.config import ControlConfig
from elastic_dit.control.groups import Group, GroupState, GroupTable
from elastic_dit.control.progress import ObservedTimes
from elastic_dit.control.requests import RequestTable
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["StepWatch"]

_LOOKS = 20
"""Looks at all groups while the shortest permitted silence lasts: a look costs time on every tick,
and an engine that is made anew a twentieth later is none the worse."""


class StepWatch:
    """Knows how long a stage, or a denoising step, may be silent.

    Members of a group watch one another more closely (`elastic_dit.engine.spmd`); this is for who
    works alone, and for groups of which everybody hangs.

    Parameters
    ----------
    config : ControlConfig
    table : RequestTable
    groups : GroupTable
    times : ObservedTimes
        What stages took so far.
    """

    def __init__(
        self,
        config: ControlConfig,
        table: RequestTable,
        groups: GroupTable,
        times: ObservedTimes,
    ) -> None:
        self._config = config
        self._table = table
        self._groups = groups
        self._times = times
        self._looked_at = float("-inf")
        # Of all limits: most groups were heard of since, and need no closer look.
        self._shortest_s = min(config.silence_floor_s, config.unknown_stage_timeout_s)

    def __repr__(self) -> str:
        return f"<StepWatch of {self._groups!r}>"

    def hung(self, now: float) -> list[tuple[GpuId, str]]:
        """GPUs that have not been heard of for too long, and how long.

        Looks at the groups once in a while only, for that is O(groups).
        """
        if now - self._looked_at < self._config.silence_floor_s / _LOOKS:
            return []
        self._looked_at = now
        found = []
        for group in self._groups:
            # Since it was heard of, changed, lost a member or was told to stop.
            silent_s = now - max(group.step_at, group.segment_at)
            if silent_s <= self._shortest_s:
                continue
            limit_s = self._limit_s(group)
            if silent_s > limit_s:
                what = "step" if group.stage is Stage.DIT else f"{group.stage} stage"
                why = f"no end of a {what} within {limit_s:.1f} s"
                found.append((min(group.gpus or group.held), why))
        return found

    def _limit_s(self, group: Group) -> float:
        if group.state is GroupState.ABORTING:
            return self._config.unknown_stage_timeout_s
        request = self._table.live[group.request_id].request
        expected_s = self._times.seconds(request, group.stage, group.dop)
        if expected_s is None:
            return self._config.unknown_stage_timeout_s
        limit_s = max(self._config.silence_floor_s, self._config.silence_factor * expected_s)
        if group.state is GroupState.RESIZING:
            # One that waits for joiners, or to be told how to go on, stands still rightly a while.
            return max(limit_s, self._config.unknown_stage_timeout_s)
        return limit_s
