"""Placement that changes all the time under load: nothing is lost, repeated or too much."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_dit import events
from elastic_dit.control.departures import Departure
from elastic_dit.control.dispatch import Fcfs
from elastic_dit.state import Phase, PlacementPlan

from .storm import KEYS, MODELS, Restless, Storm, node_of

BUDGET = 2
"""Stages that fit an engine's memory, of the six there are."""
GPUS = range(8)
AWAY = "node1"
"""The machine that comes and goes: GPUs 4 to 7."""


class Changes(Storm):
    """Engines of little memory under plans that change; nothing else goes wrong."""

    retire: tuple[str, ...] = ()

    def change(self, dice: random.Random) -> None:
        """Another plan, or one that comes too late to count."""
        residency = {
            gpu: frozenset(dice.sample(sorted(KEYS), dice.randrange(BUDGET + 1)))
            for gpu in GPUS
            if dice.random() < 0.6
        }
        if dice.random() < 0.2:
            plan, epoch = self.controller.plan, self.epoch - dice.randrange(3)
            late = PlacementPlan(epoch=epoch, residency=residency, retire=(AWAY,), reason="late")
            assert self.controller.handle(events.PlanPublished(plan=late), self.now) == []
            assert self.controller.plan is plan
        else:
            if dice.random() < 0.2:
                self.retire = () if self.retire else (AWAY,)
            self.publish(residency, self.retire)

    def come(self) -> None:
        """The machine that was given back comes again."""
        for gpu in GPUS:
            if node_of(gpu) == AWAY and gpu not in self.engines:
                self.join(gpu, frozenset())

    def go(self) -> None:
        """A drained machine leaves."""
        if self.controller.departures.get(AWAY) is Departure.DRAINED:
            self.handle(events.NodeLeaves(node=AWAY))
            for gpu in GPUS:
                if node_of(gpu) == AWAY:
                    self.lose(gpu)

    def answer_order(self, gpu: int, fail: bool = False) -> None:
        super().answer_order(gpu, fail)
        if gpu in self.engines and gpu in GPUS:
            assert len(self.engines[gpu].resident) <= BUDGET, self.engines[gpu]

    def go_on(self, dice: random.Random) -> None:
        match dice.choices(["submit", "order", "advance", "deliver"], [2, 6, 6, 8])[0]:
            case "submit":
                self.submit(dice.choice(MODELS))
            case "order":
                self.answer_order(dice.choice(GPUS))
            case "advance":
                self.advance(dice.randrange(1000), "step")
            case "deliver" if self.outbox:
                self.deliver(0)


@given(seed=st.integers(0, 2**32), restless=st.booleans(), changes=st.integers(1, 100))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_request_is_lost_or_tried_twice_and_no_memory_is_too_small(
    seed: int, restless: bool, changes: int
) -> None:
    dice = random.Random(seed)
    storm = Changes(dice.randrange, Restless(seed) if restless else Fcfs())
    for gpu in GPUS:
        storm.join(gpu, frozenset(dice.sample(sorted(KEYS), BUDGET)))
    for _ in range(changes):
        storm.change(dice)
        for _ in range(dice.randrange(20)):
            storm.go_on(dice)
        dice.choice([storm.come, storm.go, lambda: None])()
    storm.calm_down()
    ended = storm.controller.table.finished.values()
    assert all(record.phase is Phase.COMPLETED and record.attempt == 1 for record in ended)
