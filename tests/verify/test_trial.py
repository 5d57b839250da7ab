"""What is concluded from members' answers; the members are made up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from elastic_dit.engine.payload import pack
from elastic_dit.errors import (
    ClusterError,
    ElasticDitError,
    GenerationFailed,
    UnsupportedParallelism,
)
from elastic_dit.verify.compare import Reference
from elastic_dit.verify.jobs import Denoised, Packed, Prepared
from elastic_dit.verify.plans import Plan
from elastic_dit.verify.trial import Trial

PLAN = Plan.parse("1,2,1")
RIGHT = {"latents": torch.tensor([1.0, -2.0])}
CHANGES = ((2, (0, 1)), (4, (0,)))


def packed(payload: Any) -> Packed:
    header, frames = pack(payload)
    return Packed(header, tuple(bytes(frame) for frame in frames))


PREPARED = Prepared(
    request={}, steps=6, dops=(1, 2), kind="virtual",
    encoded=packed({}), reference=packed(RIGHT), seconds=1.0,
)  # fmt: skip


class Members:
    """Answers for GPU 0 and 1, or an error."""

    def __init__(self, *answers: dict[str, Any] | ElasticDitError) -> None:
        self.answers = list(answers)
        self.asked: list[Mapping[int, Sequence[Any]]] = []

    def ask(self, jobs: Mapping[int, Sequence[Any]], limit_s: float) -> dict[int, list[Any]]:
        assert limit_s == 9.0
        self.asked.append(jobs)
        answer = self.answers.pop(0)
        if isinstance(answer, ElasticDitError):
            raise answer
        master = {"end": "finished", "payload": packed(RIGHT), "changes": CHANGES, "reason": ""}
        follower = Denoised(end="released", reason="not needed any more", changes=CHANGES[:1])
        return {0: [Denoised(**{**master, **answer})], 1: [follower]}


def trial(members: Members, lacks: str | None = None) -> Trial:
    return Trial(members.ask, PREPARED, Reference(RIGHT, 1e-5), lambda _: lacks, 9.0)


def test_a_right_result_passes() -> None:
    members = Members({})
    report = trial(members).report(PLAN)
    assert (report.status, report.ok, report.max_abs_error) == ("passed", True, 0.0)
    assert (report.members, report.boundaries) == (((0,), (0, 1), (0,)), (0, 2, 4))
    (begins,), (joins,) = members.asked[0].values()
    assert (begins.ticket, joins.ticket, joins.inputs) == ("", "after 2", None)
    assert begins.orders == joins.orders == dict(CHANGES)
    assert begins.run == joins.run


def test_a_wrong_result_fails_and_says_by_how_much() -> None:
    wrong = packed({"latents": torch.tensor([1.0, -1.0])})
    report = trial(Members({"payload": wrong})).report(PLAN)
    assert (report.status, report.ok, report.reason) == ("failed", False, None)
    assert (report.max_abs_error, report.relative_error) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"changes": CHANGES[:1]}, "GPUs 0 did not take over after 4 steps"),
        ({"refusals": ("GPU 1 is dead",)}, "an order was refused: GPU 1 is dead"),
        (
            {"payload": packed({"latents": torch.tensor([1.0, math.nan])})},
            "the result has another shape, or elements that are no numbers",
        ),
        (
            {"payload": None, "end": "dissolved", "reason": "no memory"},
            "0 members had a result: dissolved (no memory), released (not needed any more)",
        ),
        (
            GenerationFailed("verify", "dit", "OutOfMemoryError", "no memory"),
            "request verify failed in its dit stage: OutOfMemoryError: no memory",
        ),
    ],
)
def test_a_right_result_of_another_run_does_not_pass(answer: Any, reason: str) -> None:
    report = trial(Members(answer)).report(PLAN)
    assert (report.ok, report.reason) == (False, reason)


def test_what_cannot_run_is_refused_and_not_tried() -> None:
    nobody = Members()
    for plan, reason in (
        ("1,4,1", "degrees of parallelism allowed: 1, 2"),
        ("1,2,1,2,1,2,1", "it has 7 stages, the request 6 steps"),
    ):
        report = trial(nobody).report(Plan.parse(plan))
        assert (report.status, report.ok, report.reason) == ("refused", None, reason)
    assert trial(nobody, lacks="no GPU 1").report(PLAN).reason == "no GPU 1"
    report = trial(Members(UnsupportedParallelism("causal attention"))).report(PLAN)
    assert (report.status, report.reason) == ("refused", "causal attention")


def test_after_a_lost_process_nothing_more_is_tried() -> None:
    members = Members(ClusterError("the process of GPU 1 ended"), {})
    tried = trial(members)
    for _ in range(2):
        report = tried.report(PLAN)
        assert (report.ok, report.reason) == (False, "the process of GPU 1 ended")
    assert len(members.asked) == 1
