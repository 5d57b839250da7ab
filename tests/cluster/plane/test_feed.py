"""Which reports are sent: all that matter, few of the others."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.plane.feed import ProgressFeed, has_moved
from elastic_dit.cluster.reports import Outcome, Report, read_report, write_report
from elastic_dit.request import Stage
from elastic_dit.state import Phase, Progress, StageRecord


def feed(interval_s=1.0):
    sent = []
    return ProgressFeed(
        lambda report, clients: sent.append((report, tuple(clients))), interval_s
    ), sent


def progress(phase=Phase.DENOISING, **fields):
    return Progress(request_id="r", phase=phase, total_steps=10, **fields)


def test_every_phase_and_attempt_is_told_at_once():
    made, sent = feed()
    for phase in (Phase.QUEUED, Phase.ENCODING, Phase.ENCODED):
        assert made.offer(progress(phase), ["c"], now=0.0)
    assert made.offer(progress(Phase.ENCODED, attempt=2), ["c"], now=0.0)
    assert not made.offer(progress(Phase.ENCODED, attempt=2), ["c"], now=9.0)
    assert [report.progress.phase for report, _ in sent][:3] == ["queued", "encoding", "encoded"]
    assert {clients for _, clients in sent} == {("c",)}


def test_steps_are_told_at_a_bounded_rate():
    made, sent = feed(interval_s=1.0)
    for step in range(100):
        made.offer(progress(step=step), ["c"], now=step * 0.1)
    assert 10 <= len(sent) <= 11


def test_it_is_known_beforehand_what_would_be_sent():
    made, _ = feed(interval_s=1.0)
    state = (Phase.DENOISING, 1)
    assert made.is_due("r", state, 0.0)
    made.offer(progress(queue_position=7), ["c"], now=0.0)
    assert not made.is_due("r", state, 0.5)
    assert made.is_due("r", state, 1.0)
    assert made.is_due("r", (Phase.DENOISED, 1), 0.5)
    assert made.has_moved("r", 6)
    assert not made.has_moved("r", 7)


def test_an_end_is_told_and_forgotten():
    made, sent = feed()
    made.offer(progress(), ["c"], now=0.0)
    outcome = Outcome(request_id="r", phase=Phase.COMPLETED)
    made.end(progress(Phase.COMPLETED), outcome, ["c"])
    assert sent[-1][0].outcome == outcome
    assert len(made) == 0


@given(st.integers(0, 10_000))
def test_a_request_hears_of_its_place_about_logarithmically_often(start):
    told, place, messages = start, start, 0
    while place:
        place -= 1
        if has_moved(told, place):
            told, messages = place, messages + 1
    assert told == 0
    assert messages <= 11 + 10 * math.log(max(start, 10) / 10) * 1.1


@pytest.mark.parametrize("phase", [Phase.COMPLETED, Phase.FAILED])
def test_reports_survive_the_wire(phase):
    record = StageRecord(stage=Stage.DIT, gpus=(1, 2), started_at=0.5, seconds=2.0, attempt=1)
    outcome = Outcome(request_id="r", phase=phase, records=(record,), attempts=2, reason="x")
    report = Report(progress=progress(phase, eta_s=1.5, at=3.0), outcome=outcome)
    wire = write_report(report)
    assert read_report(wire) == report
    assert read_report({"action": "add-worker"}) is None
