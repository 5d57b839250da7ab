"""Predicted work, and what is refused because of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.config import AdmissionConfig, ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.admission import UNKNOWN_RATE_RETRY_S
from elastic_dit.errors import AdmissionRefused, DeadlineInfeasible, InvalidRequest
from elastic_dit.events import RequestAccepted
from elastic_dit.request import GenerationRequest, Stage

from .bench import Bench, make_request

SECONDS = {Stage.ENCODER: 1.0, Stage.DIT: 2.0, Stage.DECODER: 3.0}
WHOLE_S = 1.0 + 4 * 2.0 + 3.0
"""Of `make_request`'s four steps."""


class Table:
    """Times of one shape; a group halves a step."""

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        if request.width != 64:
            return None
        return SECONDS[stage] / (dop if stage is Stage.DIT else 1)


class Gate(Bench):
    """A bench whose controller knows what stages take."""

    def __init__(self, **admission: Any) -> None:
        super().__init__()
        self.controller = Controller(
            ControlConfig(), times=Table(), admission=AdmissionConfig(**admission)
        )

    def admit(self, name: str, **fields: Any) -> bool:
        dops = fields.pop("dops", ())
        return self.controller.admit(make_request(name, **fields), self.now, dops=dops)

    def retry_after_s(self, name: str = "next") -> float:
        with pytest.raises(AdmissionRefused) as raised:
            self.admit(name)
        return raised.value.retry_after_s


def test_an_idle_cluster_takes_any_request() -> None:
    assert Gate(max_queued_gpu_seconds=1.0).admit("huge")


def test_work_beyond_the_limit_is_refused_with_the_time_it_takes_to_drain() -> None:
    gate = Gate(max_queued_gpu_seconds=2.5 * WHOLE_S)
    gate.join(0, 1)
    for name in "ab":
        assert gate.admit(name)
        gate.submit(name)
    # Half a request too much, and two GPUs to work it off.
    assert gate.retry_after_s() == pytest.approx(0.5 * WHOLE_S / 2)
    gate.cancel("b")
    assert gate.admit("next")


def test_work_that_is_done_counts_no_more() -> None:
    gate = Gate(max_queued_gpu_seconds=WHOLE_S + SECONDS[Stage.DECODER])
    gate.join(0)
    gate.submit("a")
    gate.retry_after_s()
    gate.done("a")
    gate.step("a", 2)
    gate.retry_after_s()
    gate.step("a", 4)
    gate.done("a")
    assert gate.admit("next")  # only the decode is left


def test_the_drain_rate_is_what_was_seen() -> None:
    gate = Gate(max_queued_gpu_seconds=WHOLE_S)
    gate.join(0)
    for name in "abc":
        gate.submit(name)
        for _ in Stage:
            gate.done(name)
    first_end = gate.now - 8.0
    gate.submit("d")
    elapsed_s = gate.now - first_end
    assert gate.retry_after_s() == pytest.approx(WHOLE_S / (3 * WHOLE_S / elapsed_s))


def test_nothing_known_and_no_gpu_gives_the_usual_wait() -> None:
    gate = Gate(max_queued_gpu_seconds=WHOLE_S)
    gate.submit("a")
    assert gate.retry_after_s() == UNKNOWN_RATE_RETRY_S


def test_a_shape_of_which_nothing_is_known_counts_by_pixels_and_steps() -> None:
    gate = Gate(max_queued_gpu_seconds=2.1 * WHOLE_S)
    gate.join(0)
    gate.submit("known")
    assert gate.admit("same-size", width=32, height=128)
    with pytest.raises(AdmissionRefused):
        gate.admit("twice-the-steps", width=32, height=128, num_inference_steps=8)


def test_unknown_shapes_alone_refuse_nobody() -> None:
    gate = Gate(max_queued_gpu_seconds=1.0)
    for index in range(5):
        assert gate.admit(f"r{index}", width=32)
        gate.submit(f"r{index}", width=32)


def test_deadlines_shorter_than_the_work_are_refused() -> None:
    gate = Gate()
    gate.join(0, 1, 2, 3)
    fastest_s = 1.0 + 4 * 0.5 + 3.0  # on all four
    assert gate.admit("just", deadline_s=fastest_s)
    with pytest.raises(DeadlineInfeasible, match="at least 6, which it takes"):
        gate.admit("not-quite", deadline_s=fastest_s - 0.01)
    with pytest.raises(DeadlineInfeasible, match="at least 12"):
        gate.admit("on-one", deadline_s=11.0, dops=(1,))
    gate.controller.allowed.widest = 2
    with pytest.raises(DeadlineInfeasible, match="at least 8"):
        gate.admit("on-two", deadline_s=7.0)
    assert gate.admit("unknown", deadline_s=0.001, width=32)
    assert Gate(check_deadlines=False).admit("hopeful", deadline_s=0.001)


def test_each_client_has_its_share() -> None:
    gate = Gate(max_per_client=1)
    request = make_request("a")
    gate.do(RequestAccepted(request=request, owner="me"))
    admit = gate.controller.admit
    with pytest.raises(AdmissionRefused, match="me has 1 requests in the cluster, the limit is 1"):
        admit(make_request("b"), gate.now, "me")
    assert admit(make_request("b"), gate.now, "you")
    assert not admit(request, gate.now, "me")  # it is here already
    gate.cancel("a")
    assert admit(make_request("b"), gate.now, "me")


@pytest.mark.parametrize(
    ("limit", "fields", "message"),
    [
        ({"max_pixels": 4000}, {}, "width x height = '64x64': must be at most 4000 pixels here"),
        ({"max_frames": 5}, {}, "num_frames = 9: must be at most 5 here"),
        ({"max_steps": 3}, {}, "num_inference_steps = 4: must be at most 3 here"),
        ({"max_prompt_characters": 5}, {"prompt": "赤い丸です！"}, "prompt = .* at most 5 char"),
        ({"max_prompt_characters": 5}, {"prompt": "a", "negative_prompt": "x" * 6}, "negative"),
    ],
)
def test_limits_of_the_deployment(
    limit: dict[str, int], fields: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Gate(**limit).admit("r", **fields)


def test_a_request_of_an_earlier_life_keeps_its_age_and_counts_on() -> None:
    bench = Bench()
    bench.join(0)
    bench.do(RequestAccepted(request=make_request("r"), attempt=4, age_s=100.0))
    record = bench.controller.table.live["r"]
    assert record.accepted_at == bench.now - 100.0
    assert bench.starts["r"].attempt == 4


@settings(max_examples=60, deadline=None)
@given(moves=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=30))
def test_whatever_happens_the_sum_is_that_of_the_live(moves: list[tuple[str, int]]) -> None:
    gate = Gate(max_queued_gpu_seconds=1.0)
    gate.join(0, 1)
    backlog = gate.controller._admission._backlog
    for name, move in moves:
        live = gate.controller.table.live
        if name not in live:
            gate.controller.forget(name)
            gate.submit(name)
        elif move == 0:
            gate.cancel(name)
        elif live[name].group is not None:
            gate.done(name) if move < 3 else gate.failed(name)
        before_s = backlog.total_s(gate.now)
        assert set(backlog._left) == set(gate.controller.table.live)
        assert before_s == pytest.approx(sum(backlog._left.values()))
        backlog._sum(gate.now)
        assert 0 <= backlog.total_s(gate.now) <= before_s + 1e-9  # requests only move on
