"""A dispatch policy that does what a test says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elastic_dit.control import actions
from elastic_dit.control.dispatch import Fcfs, first_come
from elastic_dit.request import Stage


class Scripted(Fcfs):
    """First come, first served, and whatever a test puts into `orders`; one at a time."""

    def __init__(self) -> None:
        self.orders: list[actions.Action] = []
        self.start_on: tuple[int, ...] = ()
        self.holds_decodes = False

    uses_groups = True
    watches_clock = True

    def plan(self, view: Any, now: float) -> Iterator[actions.Action]:
        while self.orders:
            yield self.orders.pop(0)
        for _, queue in view.queues(Stage.DIT):
            head = queue.head
            if self.start_on and head and all(view.is_free(head.key, g) for g in self.start_on):
                yield actions.Start(head.request_id, self.start_on, "as the test says")
        if self.holds_decodes:
            for stage in (Stage.DIT, Stage.ENCODER):
                yield from first_come(view, stage)
        else:
            yield from super().plan(view, now)
