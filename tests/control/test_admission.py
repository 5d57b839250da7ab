"""Who is let in."""

from __future__ import annotations

import pytest

from elastic_dit.control.admission import UNKNOWN_RATE_RETRY_S
from elastic_dit.errors import AdmissionRefused, RequestConflict

from .bench import Bench, make_request


def test_a_new_request_is_let_in_and_a_known_one_recognised() -> None:
    bench = Bench()
    bench.join(0)
    assert bench.controller.admit(make_request("r"), 0.0)
    bench.submit("r")
    assert not bench.controller.admit(make_request("r"), 1.0)
    for _ in range(3):
        bench.done("r")
    assert not bench.controller.admit(make_request("r"), 1.0)  # finished, and still known


def test_another_body_under_a_known_id_is_a_conflict() -> None:
    bench = Bench()
    bench.submit("r")
    other = make_request("r", prompt="a blue square", seed=3)
    with pytest.raises(RequestConflict) as raised:
        bench.controller.admit(other, 1.0)
    assert raised.value.differing == ("prompt", "seed")


def test_a_full_queue_refuses_until_somebody_leaves() -> None:
    bench = Bench(max_waiting=2)
    for name in "ab":
        assert bench.controller.admit(make_request(name), bench.now)
        bench.submit(name)
    with pytest.raises(AdmissionRefused) as raised:
        bench.controller.admit(make_request("c"), bench.now)
    assert raised.value.reason == "2 requests wait already, the limit is 2"
    assert raised.value.retry_after_s == UNKNOWN_RATE_RETRY_S
    bench.cancel("a")
    assert bench.controller.admit(make_request("c"), bench.now)


def test_retry_after_follows_the_rate_at_which_requests_leave() -> None:
    bench = Bench(max_waiting=1)
    for name in "abc":
        bench.submit(name)
        bench.cancel(name)
    bench.submit("d")
    bench.now += 9.0
    with pytest.raises(AdmissionRefused) as raised:
        bench.controller.admit(make_request("e"), bench.now)
    # Three left in the 14 s since the first of them did.
    assert raised.value.retry_after_s == pytest.approx(14.0 / 3)
