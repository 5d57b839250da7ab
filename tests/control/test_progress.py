"""When a request will be done: by what was seen here, else by a profile, else nobody knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.config import ControlConfig
from elastic_dit.control import Controller
from elastic_dit.control.gpus import GpuPool
from elastic_dit.control.groups import Group
from elastic_dit.control.progress import ObservedTimes, progress_of
from elastic_dit.control.requests import RequestRecord, RequestTable
from elastic_dit.control.times import ExpectedTimes
from elastic_dit.control.view import StageTimes
from elastic_dit.events import StepDone
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.state import Phase

from .bench import Bench, make_request

seconds = st.floats(0.0, 1e4)


@dataclass
class Profile:
    """Of one kind of GPU; groups are as much faster as they have more GPUs."""

    unit_s: dict[Stage, float] = field(
        default_factory=lambda: {Stage.ENCODER: 2.0, Stage.DIT: 1.0, Stage.DECODER: 3.0}
    )
    kind: str = "virtual"

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        return self.unit_s[stage] / dop if kind in ("", self.kind) else None


def bench_by(profile: StageTimes | None, observed: ObservedTimes | None = None) -> Bench:
    observed = observed or ObservedTimes()
    times = ExpectedTimes(observed, profile)
    bench = Bench()
    bench.controller = Controller(ControlConfig(), times=times, observed=observed)
    return bench


def eta(bench: Bench, request_id: str, later: float = 0.0) -> float | None:
    progress = bench.controller.progress(request_id, bench.now + later)
    assert progress is not None
    return progress.eta_s


def test_before_anything_was_seen_the_profile_tells() -> None:
    bench = bench_by(Profile())
    bench.submit("a")
    bench.submit("b")
    assert eta(bench, "a") == 2.0 + 4 * 1.0 + 3.0
    assert eta(bench, "b") == 2.0 + 2.0 + 4 * 1.0 + 3.0
    bench.join(0)
    assert eta(bench, "a", later=0.5) == 1.5 + 4 * 1.0 + 3.0
    assert eta(bench, "a", later=50.0) == 4 * 1.0 + 3.0


def test_what_was_seen_here_counts_for_more() -> None:
    bench = bench_by(Profile())
    bench.join(0)
    bench.submit("a")
    bench.done("a", seconds=5.0)
    bench.submit("b")
    assert eta(bench, "b") == 5.0 + 4 * 1.0 + 3.0


def test_a_profile_of_other_gpus_tells_nothing() -> None:
    bench = bench_by(Profile(kind="another"))
    bench.join(0)
    bench.submit("a")
    assert eta(bench, "a") is None


def test_a_guess_is_not_told() -> None:
    observed = ObservedTimes()
    for stage in Stage:
        observed.observe(make_request("larger", num_frames=17), stage, 1, 1.0)
    bench = bench_by(None, observed)
    bench.join(0)
    bench.submit("a")
    assert eta(bench, "a") is None
    bench.submit("b", num_frames=17)
    assert eta(bench, "b") == 1.0 + 4 * 1.0 + 1.0


def test_the_end_of_the_denoising_tells_of_its_last_steps() -> None:
    observed = ObservedTimes()
    bench = bench_by(None, observed)
    bench.join(0)
    bench.submit("a", num_inference_steps=4)
    bench.done("a")
    bench.do(StepDone(**bench.fence("a"), step=1), after=7.0)
    bench.do(bench.done_event("a"), after=3 * 2.0)
    request = bench.controller.table.live["a"].request
    assert observed.seconds(request, Stage.DIT, 1) == 2.0


@given(
    step_s=seconds,
    decode_s=seconds,
    dop=st.integers(1, 8),
    steps=st.integers(1, 60),
    since_s=seconds,
)
def test_it_falls_with_each_step_and_is_never_negative(
    step_s: float, decode_s: float, dop: int, steps: int, since_s: float
) -> None:
    times = Profile({Stage.DIT: step_s, Stage.DECODER: decode_s})
    record = RequestRecord(
        request=make_request("r", num_inference_steps=steps), sequence=0, accepted_at=0.0
    )
    record.phase = Phase.DENOISING
    table, pool = RequestTable(1, lambda _: ()), GpuPool(1)
    told = []
    for step in range(steps + 1):
        record.group = Group(
            request_id="r",
            attempt=1,
            epoch=1,
            key=record.key,
            gpus=tuple(range(dop)),
            started_at=0.0,
            total_steps=steps,
            step=step,
            step_at=0.0,
        )
        eta_s = progress_of(record, table, pool, times, since_s, at=0.0).eta_s
        assert eta_s is not None
        assert eta_s >= 0.0
        told.append(eta_s)
    assert told == sorted(told, reverse=True)
    assert told[0] == step_s / dop * steps - min(since_s, step_s / dop) + decode_s
    assert told[-1] == decode_s
