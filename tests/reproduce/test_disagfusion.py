"""DisagFusion's evaluation: its figures by simulation, and how they are told."""

from __future__ import annotations

import math

import pytest

from elastic_dit.cost import fits
from elastic_dit.errors import ConfigError
from elastic_dit.predict.workload import Workload
from elastic_dit.reproduce import disagfusion_paper as paper
from elastic_dit.reproduce.disagfusion import DisagFusionExperiment, explaining_messages
from elastic_dit.reproduce.disagfusion_page import disagfusion_page
from elastic_dit.reproduce.disagfusion_plots import draw_scaling_and_jitter, draw_traces
from elastic_dit.reproduce.disagfusion_runs import (
    AmongRatios,
    Deal,
    Jitter,
    Outcome,
    Phase,
    Trial,
    run_trial,
)
from elastic_dit.reproduce.disagfusion_schema import DisagFusionReport
from elastic_dit.request import Stage, StageKey

from .disagfusion_report import small_report

E, T, D = Stage
FIRST_S = 1200.0
PHASES = (
    Phase(steps=4, duration_s=FIRST_S, settle_s=600.0),
    Phase(steps=1, duration_s=1500.0, settle_s=900.0),
)
OF_BOTH = ((1, 6, 1), (1, 5, 2))


def run(deal: Deal, phases: tuple[Phase, ...] = PHASES, **fields: object) -> Outcome:
    return run_trial(Trial(deal=deal, phases=phases, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("deal", "first_qpm", "second_qpm"),
    [
        (Deal(policy="static", ratio=(1, 6, 1)), 4.9, 6.2),
        (Deal(policy="static", ratio=(1, 5, 2)), 4.0, 11.0),
        (Deal(policy="hybrid", among=OF_BOTH), 4.9, 11.0),
    ],
    ids=["s161", "s152", "hybrid"],
)
def test_the_parameter_trace_on_a10(deal: Deal, first_qpm: float, second_qpm: float) -> None:
    outcome = run(deal)
    assert outcome.phase_qpm == pytest.approx((first_qpm, second_qpm), rel=0.05)
    if deal.policy == "hybrid":
        [change] = outcome.changes
        assert FIRST_S < change.done_s < FIRST_S + 60.0
        assert "1:5:2" in change.reason


def test_stages_that_share_gpus_come_near_the_bound() -> None:
    outcome = run(Deal(policy="packed"))
    assert outcome.phase_qpm[0] > 4.9
    assert 13.0 <= outcome.phase_qpm[1] <= 14.4


def test_a_second_machine_takes_the_higher_rate() -> None:
    phases = (
        Phase(steps=4, duration_s=600.0, interval_s=1 / 0.075),
        Phase(steps=4, duration_s=1500.0, interval_s=5.0, settle_s=900.0),
    )
    outcome = run(Deal(policy="hybrid"), phases, max_machines=2)
    assert outcome.phase_qpm[1] == pytest.approx(10.5, rel=0.05)
    asked, joined = outcome.changes
    assert "no GPU to spare" in asked.reason
    assert "1:13:2" in joined.reason


def test_a_blocked_sender_loses_to_jitter_what_a_pulling_receiver_does_not() -> None:
    phases = (Phase(steps=1, duration_s=900.0, settle_s=300.0),)
    deal = Deal(policy="static", ratio=(1, 5, 2))
    messages = explaining_messages()
    qpm = {
        synchronous: run(
            deal, phases, jitter=Jitter(probability=0.1, delay_s=2.0, messages=messages,
                                        synchronous=synchronous),
        ).phase_qpm[0]
        for synchronous in (True, False)
    }  # fmt: skip
    assert qpm[False] == pytest.approx(11.0, rel=0.02)
    assert 1 - qpm[True] / 11.0 == pytest.approx(0.24, abs=0.05)


def test_stage_times_give_the_papers_throughputs() -> None:
    a10, h100 = paper.a10_cost(), paper.h100_cost()
    whole = a10.encoder_s + a10.dit_s[4] + a10.decoder_s
    # Figure 4: 30.3 s of loading are 25.3 % of the whole, the DiT 83 % of the rest.
    assert whole == pytest.approx(30.3 / 0.253 - 30.3, rel=0.02)
    assert a10.dit_s[4] / whole == pytest.approx(0.83, abs=0.01)
    assert sum(paper.load_seconds().values()) == pytest.approx(30.3)
    assert 60 / h100.encoder_s == pytest.approx(8.67)
    assert 60 / h100.decoder_s == pytest.approx(6.64)
    monolithic = paper.monolithic_cost()
    request = paper.requests(4).request("r", seed=0)
    assert monolithic.stage_seconds(request, E) == a10.encoder_s + paper.load_seconds()[E]
    with pytest.raises(ConfigError, match="num_inference_steps = 3"):
        a10.step_seconds(paper.requests(3).request("r", seed=0), 1)
    with pytest.raises(ConfigError, match="dop = 2"):
        a10.stage_seconds(request, T, 2)
    assert a10.seconds(request, T, 2) is None


def test_on_an_a10_a_decoder_fits_beside_anything_and_nothing_else_does() -> None:
    request = paper.requests(4).request("r", seed=0)

    def fit(*stages: Stage, kind: str = "A10") -> bool:
        memory = paper.memory(kind)
        weights = [memory.weights_bytes(StageKey(paper.MODEL, stage)) or 0 for stage in stages]
        activations = [memory.activation_bytes(request, stage) or 0 for stage in stages]
        total = paper.A10_BYTES if kind == "A10" else paper.H100_BYTES
        return fits(weights, activations, total)

    assert fit(T, D)
    assert fit(E, D)
    assert not fit(E, T)
    assert fit(E, T, D, kind="H100")


def test_a_choice_among_few_splits_takes_the_one_that_serves_most() -> None:
    predictor = AmongRatios([*OF_BOTH, (1, 13, 2)])
    times = {E: 5.45, T: 18.4, D: 9.7}
    found = predictor.predict(Workload(rate_hz=0.1, stage_seconds=times), {"A10": 8})
    assert list(found.values()) == [1, 5, 2]


def test_the_default_experiment_runs_all_and_nothing_twice() -> None:
    asked = DisagFusionExperiment()
    assert asked.runs == 7 + 4 + 3 + 7 + 4 + 3 * 4 + 4 * 2 * 2 * 3
    assert {name for _, name in list(asked.trials())[:7]} >= {"s161", "s152", "hybrid", "packed"}


def test_fields_are_where_they_are_promised() -> None:
    found = small_report().model_dump()
    for name in ("s161", "s152", "hybrid", "packed"):
        for phase in ("phase_1_qpm", "phase_2_qpm"):
            assert math.isfinite(found["parameter_trace_a10"][name][phase])
    assert math.isfinite(found["rate_trace_a10"]["hybrid"]["phase_2_qpm"])
    for pattern in ("moderate", "severe"):
        for design in ("synchronous", "ours"):
            assert math.isfinite(found["jitter"][pattern][f"{design}_lost_percent"])


def test_page_and_pictures() -> None:
    report = small_report()
    page = disagfusion_page(report)
    for comparison in report.comparisons:
        assert comparison.what in page
        assert comparison.why in page
        assert (comparison.why == "") or not comparison.reproduced
    for trace in (report.parameter_trace_a10, report.rate_trace_a10):
        for name, of in trace.items():
            assert f"| `{name}` | {of.phase_1_qpm:.2f} | {of.phase_2_qpm:.2f} |" in page
    for picture in (draw_traces(report), draw_scaling_and_jitter(report)):
        assert picture.startswith(b"\x89PNG")
        assert len(picture) < 200_000


def test_the_report_reads_itself() -> None:
    report = small_report()
    assert DisagFusionReport.model_validate_json(report.model_dump_json()) == report
