"""The controller under random arrivals, losses, joins, cancels, repeats and reordering."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from elastic_dit import events
from elastic_dit.control.dispatch import Fcfs

from .storm import KEYS, MODELS, Restless, Storm

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


def next_thing(storm: Storm, dice: random.Random) -> None:
    """One thing that happens in a storm with most things going well."""
    gpu = dice.randrange(8)
    what = dice.choices(*zip(*WEIGHTS.items(), strict=True))[0]
    match what:
        case "submit":
            storm.submit(dice.choice(MODELS), dice.randrange(3))
        case "cancel":
            storm.cancel()
        case "lose":
            storm.lose(gpu)
        case "join":
            storm.join(gpu, KEYS if dice.random() < 0.5 else frozenset())
        case "plan":
            storm.publish({gpu: frozenset(k for k in sorted(KEYS) if dice.random() < 0.8)}, ())
        case "order":
            storm.answer_order(gpu, fail=dice.random() < 0.05)
        case "advance":
            mishap = dice.choice(["late", "fail", "inputs"])
            storm.advance(dice.randrange(1000), "step" if dice.random() < 0.97 else mishap)
        case "repeat" if storm.past:
            storm.handle(dice.choice(storm.past))
        case "deliver" if storm.outbox:
            storm.deliver(dice.randrange(3))


WEIGHTS = {
    "submit": 120,
    "cancel": 20,
    "lose": 10,
    "join": 20,
    "plan": 5,
    "order": 75,
    "advance": 350,
    "repeat": 20,
    "deliver": 380,
}


def run_storm(seed: int, rounds: int, restless: bool) -> Storm:
    """A long storm by seed."""
    dice = random.Random(seed)
    storm = Storm(dice.randrange, Restless(seed) if restless else Fcfs(), load_grace_s=2.0)
    for gpu in range(6):
        storm.join(gpu, KEYS)
    for _ in range(rounds):
        next_thing(storm, dice)
    storm.calm_down()
    return storm


@pytest.mark.parametrize("restless", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_long_storm_loses_nothing(seed: int, restless: bool) -> None:
    storm = run_storm(seed, 1_000, restless)
    assert sum(storm.terminal.values()) > 60


def test_the_same_seed_gives_the_same_log() -> None:
    one, other = (run_storm(7, 600, True) for _ in range(2))
    assert one.log == other.log
    assert len(one.log) > 600
