"""One member's part in a group in the engine's thread: whatever happens comes back as a value."""

from __future__ import annotations

import time
from dataclasses import dataclass

from elastic_dit.cluster.worker.group_box import GroupBox
from elastic_dit.cluster.worker.stage_run import Failed, Finished, Stopped, failed, made
from elastic_dit.engine.group_context import End, GroupSeat
from elastic_dit.engine.protocol import Engine, Payload, StageStopped
from elastic_dit.errors import GroupBroken
from elastic_dit.request import Stage

__all__ = ["Left", "MemberOutcome", "run_member"]


@dataclass(frozen=True, slots=True)
class Left:
    """The member left and has nothing to hand on.

    Attributes
    ----------
    end : End
    run_over : bool
        Whether the run has ended for all.
    """

    end: End
    run_over: bool


MemberOutcome = Finished | Stopped | Failed | Left


def run_member(
    engine: Engine, box: GroupBox, seat: GroupSeat, inputs: Payload | None
) -> MemberOutcome:
    """Be the member that `box` and `seat` stand for, to its end."""
    began = time.perf_counter()
    try:
        outcome = engine.run_in_group(box.request, inputs, box, seat)
        if outcome.end is End.DISSOLVED:
            return failed(GroupBroken(seat.run, outcome.reason), Stage.DIT)
        if outcome.payload is None or box.is_aborted:
            at_end = outcome.step == box.request.num_inference_steps
            return Left(outcome.end, run_over=outcome.end is not End.RELEASED or at_end)
        if outcome.end is End.FINISHED:
            return Finished(made(outcome.payload), time.perf_counter() - began, None)
        return Stopped(made(outcome.payload), outcome.step)
    except StageStopped:
        return Left(End.ABORTED, run_over=True)
    except BaseException as error:
        return failed(error, Stage.DIT)
