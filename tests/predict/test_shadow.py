from __future__ import annotations

from elastic_dit.control.decisions import DecisionLog
from elastic_dit.errors import ConfigError
from elastic_dit.predict.balanced import BalancedRatio
from elastic_dit.predict.shadow import Shadowed, ShadowNote
from elastic_dit.request import Stage
from tests.predict.test_balanced import workload_of

WORKLOAD = workload_of(5.45, 73.5, 9.7)


class Fixed:
    def predict(self, workload, gpus):
        return {Stage.ENCODER: 1, Stage.DIT: 5, Stage.DECODER: 2}


class Broken:
    def predict(self, workload, gpus):
        raise ConfigError("predictor", "x", "another")


def test_the_shadow_is_noted_and_not_obeyed():
    log = DecisionLog(kept=10)
    notes: list[ShadowNote] = []

    def note(said: ShadowNote) -> None:
        notes.append(said)
        log.add(2.0, "shadow", "", (), str(said))

    ratio = Shadowed(BalancedRatio(), Fixed(), note)
    assert list(ratio.predict(WORKLOAD, {"": 8}).values()) == [1, 6, 1]
    assert not notes[0].agrees
    assert "would have 1:5:2 instead of 1:6:1" in str(next(iter(log)))


def test_agreement_is_noted_too():
    notes: list[ShadowNote] = []
    Shadowed(BalancedRatio(), BalancedRatio(), notes.append).predict(WORKLOAD, {"": 8})
    assert notes[0].agrees
    assert str(notes[0]) == "shadow agrees with 1:6:1"


def test_a_shadow_that_fails_changes_nothing():
    notes: list[ShadowNote] = []
    ratio = Shadowed(BalancedRatio(), Broken(), notes.append)
    assert list(ratio.predict(WORKLOAD, {"": 8}).values()) == [1, 6, 1]
    assert "shadow failed (ConfigError: predictor = 'x'" in str(notes[0])
