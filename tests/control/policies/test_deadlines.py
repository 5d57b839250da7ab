from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.control.policies.deadlines import plan_deadlines
from elastic_dit.control.policies.jobs import Job
from elastic_dit.control.requests import RequestRecord
from elastic_dit.request import GenerationRequest, Stage
from tests.control.bench import make_request


class Times:
    """A step takes as many seconds as the request has frames, half of it on twice the GPUs."""

    def seconds(
        self, request: GenerationRequest, stage: Stage, dop: int = 1, kind: str = ""
    ) -> float | None:
        if stage is not Stage.DIT:
            return 0.0
        return request.num_frames / dop if dop <= 4 else None


class View:
    times = Times()


def job(step_s: int, deadline_s: float | None, sequence: int = 0, **fields: Any) -> Job:
    request = make_request(
        f"r{sequence}",
        num_frames=step_s,
        num_inference_steps=10,
        deadline_s=deadline_s,
        **fields,
    )
    record = RequestRecord(request=request, sequence=sequence, accepted_at=0.0)
    return Job(record, View())  # type: ignore[arg-type]


def names(jobs: list[Job]) -> list[str]:
    return [job.request_id for job in jobs]


def test_each_job_gets_the_smallest_dop_that_is_in_time() -> None:
    jobs = [job(2, 30.0, 0), job(2, 15.0, 1), job(2, 7.0, 2), job(2, 5.5, 3)]
    plan = plan_deadlines(jobs, num_gpus=64, now=0.0, widest=8)
    assert plan.needs == {"r0": 1, "r1": 2, "r2": 4}
    assert names(plan.lost) == ["r3"]  # five seconds and no margin


def test_whoever_needs_more_than_one_gpu_comes_first() -> None:
    plan = plan_deadlines([job(2, 100.0, 0), job(2, 15.0, 1)], num_gpus=64, now=0.0, widest=8)
    assert (names(plan.tight), names(plan.kept)) == (["r1"], ["r0"])


def test_the_job_that_needs_most_is_let_go() -> None:
    # 10 + 10 + 30 GPU-seconds within 40 seconds of one GPU: without the large one, two are saved.
    jobs = [job(1, 40.0, 0), job(3, 40.0, 1), job(1, 40.0, 2)]
    plan = plan_deadlines(jobs, num_gpus=1, now=0.0, widest=8)
    assert names(plan.lost) == ["r1"]
    assert set(plan.needs) == {"r0", "r2"}


def test_among_equals_the_lower_priority_is_let_go() -> None:
    jobs = [job(1, 11.5, 0, priority=0), job(1, 11.5, 1, priority=5)]
    assert names(plan_deadlines(jobs, num_gpus=1, now=0.0, widest=8).lost) == ["r0"]


def test_without_deadlines_nothing_is_tight_or_lost() -> None:
    plan = plan_deadlines([job(9, None, n) for n in range(50)], num_gpus=1, now=1e6, widest=8)
    assert (plan.tight, plan.lost) == ([], [])
    assert set(plan.needs.values()) == {1}


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.one_of(st.none(), st.floats(1.0, 300.0))), max_size=20
    ),
    st.integers(1, 8),
)
def test_what_is_kept_fits_into_the_time_there_is(
    sizes: list[tuple[int, float | None]], num_gpus: int
) -> None:
    jobs = [job(step_s, deadline_s, n) for n, (step_s, deadline_s) in enumerate(sizes)]
    plan = plan_deadlines(jobs, num_gpus, now=0.0, widest=8)
    everyone = [*plan.tight, *plan.kept, *plan.lost]
    assert sorted(names(everyone)) == sorted(names(jobs))
    booked = 0.0
    for kept in [*plan.tight, *plan.kept]:
        dop = plan.needs[kept.request_id]
        assert kept.remaining_s(dop) <= kept.deadline_at
        booked += dop * kept.steps_left * kept.step_s[dop]
        assert booked <= num_gpus * kept.deadline_at * (1 + 1e-9) or math.isinf(kept.deadline_at)
