"""What one decision looks at: bounded, so that it takes no longer on a larger cluster.

A cluster of up to `GPUS_IN_SIGHT` GPUs is seen whole. Of a larger one, a look sees the machines
where something changed since the last look, and some of the others in turn; of those that wait,
the first in line, the longest there and those whose deadlines are next. GPUs that are free are
seen everywhere: the blocks that the control plane keeps answer for all of them at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from sortedcontainers import SortedDict

from elastic_dit.control.policies.jobs import Job, JobBook
from elastic_dit.control.view import ClusterView, GroupView, RequestView
from elastic_dit.request import Stage

__all__ = ["GPUS_IN_SIGHT", "Sight"]

GPUS_IN_SIGHT = 32
"""GPUs whose groups one decision looks at."""
_IN_LINE = 24
"""First in line that it looks at, of all queues before one stage together at most."""
_OLDEST = 16
"""Longest waiting that it looks at."""
_URGENT = 16
"""Waiting requests with the next deadlines that it looks at."""
_STALE_AT_ONCE = 256
"""Entries of requests that no longer wait that one look tidies up at most."""

_Place = tuple[float, int]
"""Where a request is in an index: by a time, then in order of acceptance."""


class Sight:
    """Remembers what it was told of requests, and where it has looked.

    Attributes
    ----------
    whole : bool
        Whether the last look saw the groups of all machines.
    """

    def __init__(self) -> None:
        self.whole = True
        self._book = JobBook()
        self._oldest: SortedDict[_Place, RequestView] = SortedDict()
        self._urgent: SortedDict[_Place, RequestView] = SortedDict()
        self._seen: tuple[int, int] = (-1, -1)
        self._owed: dict[str, None] = {}
        self._round: deque[str] = deque()

    def __repr__(self) -> str:
        return f"<Sight of {len(self._oldest)} waiting, {len(self._owed)} machines to look at>"

    # ------------------------------------------------------------------------ being told
    def note(self, record: RequestView) -> None:
        """A request begins to wait."""
        if record.stage is Stage.DECODER:
            return
        self._oldest[(record.accepted_at, record.sequence)] = record
        deadline_s = record.request.deadline_s
        if deadline_s is not None:
            self._urgent[(record.accepted_at + deadline_s, record.sequence)] = record

    def forget(self, record: RequestView) -> None:
        """A request has been started."""
        self._oldest.pop((record.accepted_at, record.sequence), None)
        deadline_s = record.request.deadline_s
        if deadline_s is not None:
            self._urgent.pop((record.accepted_at + deadline_s, record.sequence), None)

    # --------------------------------------------------------------------------- looking
    def is_new(self, view: ClusterView, version: tuple[int, int]) -> bool:
        """Whether there is anything that a look which ended at `version` has not seen."""
        return view.version != version or bool(self._owed)

    def working(self, view: ClusterView, now: float) -> list[Job]:
        """A new look: the groups in sight that denoise."""
        self._book.begin(view, now)
        found, requests = [], view.requests
        for group in self._groups(view):
            record = requests.get(group.request_id)
            if record is not None and record.group is group:
                found.append(self._book.job(record, view))
        return found

    def waiting(self, view: ClusterView, now: float, most: int = _IN_LINE) -> list[Job]:
        """Of those that wait, the first `most` in line, the oldest, and the most urgent."""
        found: dict[int, RequestView] = {}
        most = min(most, _IN_LINE)
        for stage in (Stage.DIT, Stage.ENCODER):
            queues = view.queues(stage)
            each = max(1, most // max(1, len(queues)))
            for _, queue in islice(queues, most):
                for record in islice(queue, each):
                    found[record.sequence] = record
        for record in _first(self._oldest, _OLDEST):
            found[record.sequence] = record
        for record in _first(self._urgent, _URGENT, after=now):
            found[record.sequence] = record
        return [self._book.job(record, view) for record in found.values()]

    def in_line(self, view: ClusterView, most: int) -> list[Job]:
        """Of those that wait, the first `most` of every queue that a GPU takes work of.

        GPUs kept for those of the others would be kept for ever.
        """
        lines = (line for stage in (Stage.DIT, Stage.ENCODER) for line in view.queues(stage))
        queues = [queue for key, queue in lines if view.serving(key)]
        return [self._book.job(record, view) for q in queues for record in islice(q, most)]

    def has_deadlines(self, working: Iterable[Job]) -> bool:
        """Whether a request that waits, or one of those at work, has a deadline."""
        return any(job.deadline_at < math.inf for job in working) or bool(_first(self._urgent, 1))

    @property
    def nobody_waits(self) -> bool:
        """Whether no request waits to be encoded or denoised."""
        return not _first(self._oldest, 1)

    def _groups(self, view: ClusterView) -> Iterator[GroupView]:
        most = max(1, GPUS_IN_SIGHT // view.config.slots_per_node)
        self.whole = view.num_gpus <= GPUS_IN_SIGHT or len(view.nodes) <= most
        if self.whole:
            self._owed.clear()
            yield from view.running(Stage.DIT)
            return
        self._owed.update(dict.fromkeys(view.touched(self._seen)))
        self._seen = view.version
        for node in self._turn(view, most):
            yield from view.groups_on(node, Stage.DIT)

    def _turn(self, view: ClusterView, most: int) -> list[str]:
        """Machines that changed, and others in turn."""
        chosen = list(islice(self._owed, most))
        for node in chosen:
            del self._owed[node]
        if len(self._round) < most:
            self._round.extend(sorted(view.nodes))
        while len(chosen) < most:
            node = self._round.popleft()
            if node not in chosen:
                chosen.append(node)
        return chosen


def _first(
    index: SortedDict[_Place, RequestView], most: int, after: float = -math.inf
) -> list[RequestView]:
    """The first of an index, from a time on, that still wait; others in their way are dropped."""
    found: list[RequestView] = []
    stale: list[_Place] = []
    for place in index.irange(minimum=(after, -1)):
        record = index[place]
        if not record.phase.is_waiting or record.stage is Stage.DECODER:
            stale.append(place)
        elif record.in_line:
            found.append(record)
        if len(found) == most or len(stale) == _STALE_AT_ONCE:
            break
    for place in stale:
        del index[place]
    return found
