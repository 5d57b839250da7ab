from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.predict.trace import RecentTrace
from elastic_dit.request import Stage
from tests.predict.test_workload import request, seconds


def test_the_workload_is_that_of_the_requests_kept():
    trace = RecentTrace(kept=3)
    for index, steps in enumerate((50, 50, 30, 2, 2)):
        trace.add(10.0 * index, request(steps))
    workload = trace.workload(40.0, seconds)
    assert workload is not None
    assert workload.rate_hz == pytest.approx(0.1)
    assert [part.num_inference_steps for part in workload.mix] == [2]


def test_after_a_shift_the_old_requests_do_not_count():
    trace = RecentTrace()
    for index in range(8):
        trace.add(float(index), request(30 if index < 5 else 2))
    trace.forget_before(5.0)
    workload = trace.workload(7.0, seconds)
    assert len(trace) == 3
    assert workload is not None
    assert workload.stage_seconds[Stage.DIT] == 2.0


def test_too_little_shows_nothing():
    trace = RecentTrace()
    assert trace.workload(1.0, seconds) is None
    trace.add(1.0, request(2))
    assert trace.workload(5.0, seconds) is None
    trace.add(1.0, request(2))
    assert trace.workload(1.0, seconds) is None, "no time has gone by"


@given(st.lists(st.floats(0.1, 10.0), min_size=2, max_size=50))
def test_the_rate_is_that_of_the_gaps(gaps):
    trace = RecentTrace()
    now = 0.0
    for gap in gaps:
        now += gap
        trace.add(now, request(2))
    workload = trace.workload(now, seconds)
    assert workload is not None
    assert workload.rate_hz == pytest.approx((len(gaps) - 1) / sum(gaps[1:]))
