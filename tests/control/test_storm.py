"""The controller under random arrivals, losses, joins, cancels, repeats and reordering."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from elastic_dit import events
from elastic_dit.control.dispatch import Fcfs

from .storm import KEYS, MODELS, Restless, Storm, run_storm

GPUS = st.integers(0, 7)
ANY = st.integers(0, 1_000)
FATES = st.sampled_from(["step"] * 8 + ["late", "fail", "inputs"])


class ControllerInAStorm(RuleBasedStateMachine):
    """Hypothesis chooses what happens next."""

    @initialize(restless=st.booleans(), seed=ANY, depth=st.integers(0, 2))
    def begin(self, restless: bool, seed: int, depth: int) -> None:
        self.random = random.Random(seed)
        self.storm = Storm(
            self.random.randrange,
            Restless(seed) if restless else Fcfs(),
            prefetch_depth=depth,
            load_grace_s=2.0,
        )
        for gpu in range(seed % 4):
            self.storm.join(gpu, KEYS)

    @rule(model=st.sampled_from(MODELS), priority=st.integers(0, 2), again=st.booleans())
    def submit(self, model: str, priority: int, again: bool) -> None:
        self.storm.submit(model, priority, again)

    @rule()
    def cancel(self) -> None:
        self.storm.cancel()

    @rule()
    def lose_result(self) -> None:
        self.storm.lose_result()

    @rule(gpu=GPUS, everything=st.booleans())
    def join(self, gpu: int, everything: bool) -> None:
        self.storm.join(gpu, KEYS if everything else frozenset())

    @rule(gpu=GPUS)
    def lose(self, gpu: int) -> None:
        self.storm.lose(gpu)

    @rule(seed=ANY, retire=st.booleans())
    def publish(self, seed: int, retire: bool) -> None:
        dice = random.Random(seed)
        residency = {
            gpu: frozenset(key for key in sorted(KEYS) if dice.random() < 0.5)
            for gpu in range(8)
            if dice.random() < 0.5
        }
        self.storm.publish(residency, ("node1",) if retire else ())

    @rule(gpu=GPUS, fail=st.integers(0, 5))
    def answer_order(self, gpu: int, fail: int) -> None:
        self.storm.answer_order(gpu, fail == 0)

    @rule(which=ANY, fate=FATES)
    def advance(self, which: int, fate: str) -> None:
        self.storm.advance(which, fate)

    @rule(which=ANY, times=st.integers(1, 4))
    def deliver(self, which: int, times: int) -> None:
        for _ in range(times):
            if self.storm.outbox:
                self.storm.deliver(which)

    @rule(which=ANY)
    def repeat(self, which: int) -> None:
        if self.storm.past:
            self.storm.handle(self.storm.past[which % len(self.storm.past)])

    @rule()
    def tick(self) -> None:
        self.storm.handle(events.Tick())

    def teardown(self) -> None:
        if hasattr(self, "storm"):
            self.storm.calm_down()


ControllerInAStorm.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestStorm = ControllerInAStorm.TestCase


@pytest.mark.parametrize("restless", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_long_storm_loses_nothing(seed: int, restless: bool) -> None:
    storm = run_storm(seed, 1_000, Restless(seed) if restless else Fcfs())
    assert sum(storm.terminal.values()) > 60
    assert storm.copies > 5


def test_the_same_seed_gives_the_same_log() -> None:
    one, other = (run_storm(7, 600, Restless(7)) for _ in range(2))
    assert one.log == other.log
    assert len(one.log) > 600
