"""DDiT's Algorithm 2, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from elastic_dit import events
from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.policies.ddit import DditGreedy
from elastic_dit.control.policies.shape_times import ShapeTimes
from elastic_dit.cost import CostTimes, read_stage_latencies
from elastic_dit.request import Stage
from tests.control.bench import Bench, make_request, only
from tests.control.storm import KEYS, Storm, run_storm

SIZES = {"144p": (256, 144), "240p": (426, 240), "360p": (640, 360)}


class GreedyBench(Bench):
    """Eight GPUs with the paper's stage times; requests by resolution."""

    def __init__(self, promote: bool = True, gpus: int = 8) -> None:
        super().__init__()
        self.controller = Controller(
            ControlConfig(prefetch_depth=0),
            DditGreedy(promote=promote),
            times=CostTimes(read_stage_latencies()),
        )
        if gpus:
            self.join(*range(gpus))

    def denoise(self, request_id: str, size: str, **fields: Any) -> tuple[int, ...]:
        """Bring a request to its DiT; the GPUs it got, none while it waits."""
        width, height = SIZES[size]
        self.submit(
            request_id,
            width=width,
            height=height,
            num_frames=51,
            num_inference_steps=30,
            **fields,
        )
        self.done(request_id)
        start = self.starts[request_id]
        return start.gpus if start.stage is Stage.DIT else ()


@pytest.mark.parametrize(("size", "optimal"), [("144p", 1), ("240p", 2), ("360p", 4)])
def test_the_optimal_dop_is_that_of_figure_8(size: str, optimal: int) -> None:
    bench = GreedyBench(gpus=0)
    width, height = SIZES[size]
    request = make_request("r", width=width, height=height, num_frames=51)
    assert ShapeTimes(request, bench.controller.view.times).optimal(8) == optimal


def test_requests_start_at_their_optimal_dop_in_aligned_blocks() -> None:
    bench = GreedyBench()
    assert bench.denoise("high", "360p") == (0, 1, 2, 3)
    assert bench.denoise("low", "144p") == (4,)
    assert bench.denoise("medium", "240p") == (6, 7)


def test_with_fewer_free_a_request_takes_those_and_is_hungry() -> None:
    bench = GreedyBench()
    bench.denoise("first", "360p")
    bench.denoise("low", "144p")
    assert bench.denoise("second", "360p") == (6, 7)
    assert bench.starts["second"].reason == "DoP 2 of 4"


def test_released_gpus_promote_the_hungry_before_anybody_waiting_starts() -> None:
    bench = GreedyBench()
    bench.denoise("first", "360p")
    bench.denoise("low", "144p")
    bench.denoise("low2", "144p")
    bench.denoise("hungry", "360p")
    assert bench.gpus["hungry"] == (6, 7)
    bench.submit("waits")
    bench.step("hungry", 1)
    bench.done("low")
    commands = bench.done("low")  # its decode ends: GPU 4 is free, but 5 is not
    assert only(commands, events.StartStage).request.request_id == "waits"
    bench.done("low2")
    assert not any(isinstance(c, events.Resize) for c in bench.commands)
    bench.cancel("waits")
    bench.done("low2")
    resize = only(bench.aborted("waits"), events.Resize)
    assert (resize.request_id, resize.gpus) == ("hungry", (4, 5, 6, 7))
    assert resize.reason.startswith("DoP 4 of 4, starved")


def test_the_longest_starved_is_promoted_first() -> None:
    """Eq. 5: steps since the last look, times what each took too long."""
    bench = GreedyBench()
    bench.denoise("old", "360p")
    assert bench.denoise("low", "144p") == (4,)
    assert bench.denoise("low2", "144p") == (5,)
    assert bench.denoise("a", "240p") == (6, 7)
    bench.cancel("low")
    bench.cancel("low2")
    bench.aborted("low")
    assert bench.denoise("b", "360p") == (4,)
    bench.aborted("low2")
    assert bench.gpus["b"] == (4, 5)
    starved = bench.controller.dispatch._hungry["b"]  # type: ignore[attr-defined]
    assert starved.starvation_s == 0.0
    bench.step("b", 10)
    bench.do(events.CancelRequested(request_id="a", reason="done"))
    resize = only(bench.aborted("a"), events.Resize)
    assert resize.gpus == (4, 5, 6, 7)
    times = CostTimes(read_stage_latencies())
    request = bench.starts["b"].request
    two, four = (times.seconds(request, Stage.DIT, dop) for dop in (2, 4))
    assert two is not None
    assert four is not None
    assert starved.starvation_s == pytest.approx(10 * (two - four))


def test_followers_are_given_away_before_the_decode_which_stays_on_the_master() -> None:
    bench = GreedyBench()
    bench.denoise("high", "360p")
    bench.denoise("high2", "360p")
    width, height = SIZES["360p"]
    bench.submit("waits", width=width, height=height, num_frames=51)
    bench.freed("high", 1, 2, 3)
    assert bench.starts["waits"].stage is Stage.ENCODER
    bench.done("waits")
    assert bench.gpus["waits"] == (2, 3)
    bench.done("high")
    assert (bench.starts["high"].stage, bench.gpus["high"]) == (Stage.DECODER, (0,))


def test_without_promotion_a_request_keeps_its_dop() -> None:
    bench = GreedyBench(promote=False)
    bench.denoise("first", "360p")
    bench.denoise("low", "144p")
    bench.denoise("hungry", "360p")
    bench.done("low")
    bench.done("low")
    assert bench.gpus["hungry"] == (6, 7)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("promote", [True, False])
def test_a_storm_loses_nothing(seed: int, promote: bool) -> None:
    storm: Storm = run_storm(seed, 600, DditGreedy(promote=promote))
    assert sum(storm.terminal.values()) > 40
    view = storm.controller.view
    for key in KEYS:
        blocks = view.blocks(key).free_blocks()
        assert [gpu for block in blocks for gpu in block.gpus] == list(view.free(key))
