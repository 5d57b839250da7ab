from __future__ import annotations

import time

from elastic_dit.drill.witness import Witness
from elastic_dit.events import Command, Complete, Event, ResultLost, StartStage, StepDone, Tick
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef
from tests.control.bench import make_request


def ref(step: int) -> ArtifactRef:
    return ArtifactRef(
        request_id="r", attempt=1, stage=Stage.DIT, gpu=0, nbytes=1, digest="d", step=step
    )


def start(step: int) -> StartStage:
    return StartStage(
        request=make_request("r"),
        attempt=1,
        epoch=1,
        stage=Stage.DIT,
        gpus=(0,),
        inputs=(ref(step),),
        reason="",
    )


def tell(witness: Witness, event: Event, *commands: Command) -> None:
    witness.note(None, event, list(commands), 0.0)


def step(number: int) -> StepDone:
    return StepDone(request_id="r", attempt=1, epoch=1, step=number)


def test_steps_after_the_newest_checkpoint_count_as_repeated() -> None:
    witness = Witness()
    tell(witness, Tick(), start(0))
    for number in (1, 2, 3, 7):
        tell(witness, step(number))
    since = time.monotonic()
    tell(witness, Tick(), start(4))
    assert witness.repeated["r"] == 3
    moved = witness.first_move(["other", "r"], since)
    assert moved is not None
    assert moved >= since
    assert witness.first_move(["r"], moved) is None


def test_a_result_that_was_lost_does_not_count() -> None:
    witness = Witness()
    complete = Complete(request_id="r", result=ref(0), records=())
    tell(witness, Tick(), complete)
    tell(witness, ResultLost(request_id="r"))
    tell(witness, Tick(), complete)
    assert witness.completed["r"] == 1
    tell(witness, Tick(), complete)
    assert witness.completed["r"] == 2
    witness.begin_again(["other"])
    assert (witness.completed["r"], witness.completed["other"]) == (0, 1)
