"""DisagFusion's evaluation: two traces on A10, one on H100, scaling, jitter."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from elastic_dit._version import __version__
from elastic_dit.predict.balanced import BalancedRatio
from elastic_dit.predict.workload import Workload
from elastic_dit.reproduce import disagfusion_paper as paper
from elastic_dit.reproduce.disagfusion_claims import TOLERANCE, compare
from elastic_dit.reproduce.disagfusion_runs import (
    PROVISION_S,
    USERS_PER_GPU,
    Deal,
    Jitter,
    Outcome,
    Phase,
    Trial,
    run_trial,
)
from elastic_dit.reproduce.disagfusion_schema import (
    ChangeFigures,
    DisagFusionReport,
    DisagFusionSetting,
    JitterFigures,
    ScalingFigures,
    TraceFigures,
)
from elastic_dit.reproduce.parallel import run_all
from elastic_dit.request import Stage

__all__ = [
    "DisagFusionExperiment",
    "explaining_messages",
    "reproduce_disagfusion",
]

_S161, _S152 = (1, 6, 1), (1, 5, 2)
_PARAMETER_DEALS = {
    "s161": Deal(policy="static", ratio=_S161),
    "s152": Deal(policy="static", ratio=_S152),
    "reactive": Deal(policy="reactive"),
    "hybrid": Deal(policy="hybrid", among=(_S161, _S152)),
    "hybrid_any": Deal(policy="hybrid"),
    "packed": Deal(policy="packed"),
    "monolithic": Deal(policy="monolithic"),
}
_RATE_DEALS = {name: Deal(policy=name) for name in ("reactive", "hybrid", "packed")}
_H100_DEALS = {name: _PARAMETER_DEALS[name] for name in ("s161", "s152")} | {
    "hybrid": Deal(policy="hybrid"),
    "packed": Deal(policy="packed"),
}
_WRITTEN_INTERVALS_S = (10.0, 5.0)
"""0.1, then 0.2 requests per second."""
_QUIET_INTERVAL_S = 1 / 0.075
"""Before the rate rises: 92 % of what 1:6:1 can serve, so that it serves them without queueing, as
the paper says. Its own 0.1 per second is more than it can."""
_IDENTICAL = 30
"""Requests of Figure 12."""
_PATTERNS = ("stable", "mild", "moderate", "severe")


@dataclass(frozen=True, slots=True, kw_only=True)
class DisagFusionExperiment:
    """What to run; the default is all of it.

    Attributes
    ----------
    phase_s : float
        Length of each phase where capacities are measured.
    settle_s : float
        Of its beginning, left out.
    seeds : tuple of int
        Of the jitter; nothing else is left to chance.
    gpus : tuple of int
        Of the scaling.
    written_phase_s : float
        Length of each phase of the traces as written.
    """

    phase_s: float = 1800.0
    settle_s: float = 900.0
    seeds: tuple[int, ...] = (0, 1, 2)
    gpus: tuple[int, ...] = (4, 8, 16)
    written_phase_s: float = 900.0

    def trials(self) -> dict[tuple[str, ...], Trial]:
        """Every run, by experiment and name."""
        return {
            **{("parameter", name): trial for name, trial in self._traces(_PARAMETER_DEALS, "A10")},
            **{("h100", name): trial for name, trial in self._traces(_H100_DEALS, "H100")},
            **dict(self._rate_trials()),
            **dict(self._written_trials()),
            **dict(self._scaling_trials()),
            **dict(self._jitter_trials()),
        }

    @property
    def runs(self) -> int:
        """Simulations in all."""
        return len(self.trials())

    def _phase(self, steps: int) -> Phase:
        return Phase(steps=steps, duration_s=self.phase_s, settle_s=self.settle_s)

    def _traces(self, deals: Mapping[str, Deal], kind: str) -> Iterator[tuple[str, Trial]]:
        phases = tuple(self._phase(steps) for steps in paper.STEPS)
        for name, deal in deals.items():
            yield name, Trial(deal=deal, phases=phases, kind=kind)

    def _rate_trials(self) -> Iterator[tuple[tuple[str, ...], Trial]]:
        quiet = Phase(steps=4, duration_s=self.written_phase_s, interval_s=_QUIET_INTERVAL_S)
        busy = Phase(
            steps=4, duration_s=self.phase_s, settle_s=self.settle_s,
            interval_s=_WRITTEN_INTERVALS_S[1],
        )  # fmt: skip
        for name, deal in _RATE_DEALS.items():
            yield ("rate", name), Trial(deal=deal, phases=(quiet, busy), max_machines=2)

    def _written_trials(self) -> Iterator[tuple[tuple[str, ...], Trial]]:
        """Arrivals as the paper gives them."""
        slow, fast = _WRITTEN_INTERVALS_S
        length_s = self.written_phase_s
        first = Phase(steps=4, duration_s=length_s, interval_s=slow)
        fewer = Phase(steps=1, duration_s=length_s, interval_s=slow)
        more = Phase(steps=4, duration_s=length_s, interval_s=fast)
        for name, deal in _PARAMETER_DEALS.items():
            yield ("written", "parameter", name), Trial(deal=deal, phases=(first, fewer))
        for name, deal in {"s161": _PARAMETER_DEALS["s161"], **_RATE_DEALS}.items():
            trial = Trial(deal=deal, phases=(first, more), max_machines=2)
            yield ("written", "rate", name), trial

    def _scaling_trials(self) -> Iterator[tuple[tuple[str, ...], Trial]]:
        for gpus in self.gpus:
            deals = {
                "exclusive": Deal(policy="static", ratio=_balanced(gpus)),
                "packed": Deal(policy="packed", ratio=_balanced(gpus)),
                "monolithic": Deal(policy="monolithic"),
            }
            for name, deal in deals.items():
                trial = Trial(deal=deal, phases=(self._phase(4),), gpus=gpus)
                yield ("scaling", f"{gpus}", name), trial
            burst = Trial(
                deal=deals["exclusive"], phases=(self._phase(4),), gpus=gpus, burst=_IDENTICAL
            )
            yield ("scaling", f"{gpus}", "burst"), burst

    def _jitter_trials(self) -> Iterator[tuple[tuple[str, ...], Trial]]:
        deal = Deal(policy="static", ratio=_S152)
        for pattern in _PATTERNS:
            of = paper.figures()["jitter"][pattern]
            for messages in (explaining_messages(), 1):
                for design in ("synchronous", "ours"):
                    for seed in self.seeds:
                        jitter = Jitter(
                            probability=of["probability"],
                            delay_s=of["delay_s"],
                            messages=messages,
                            synchronous=design == "synchronous",
                        )
                        phases = (self._phase(1),)
                        name = ("jitter", pattern, f"{messages}", design, f"{seed}")
                        yield name, Trial(deal=deal, phases=phases, jitter=jitter, seed=seed)


Outcomes = Mapping[tuple[str, ...], Outcome]


def reproduce_disagfusion(
    experiment: DisagFusionExperiment | None = None,
    *,
    processes: int | None = None,
    done: Callable[[int], None] = lambda _: None,
) -> DisagFusionReport:
    """Run the experiment.

    Parameters
    ----------
    experiment : DisagFusionExperiment, optional
    processes, done
        As in `elastic_dit.reproduce.parallel.run_all`.
    """
    asked = experiment or DisagFusionExperiment()
    began = time.perf_counter()
    trials = asked.trials()
    outcomes = run_all(run_trial, list(trials.values()), processes=processes, done=done)
    found = dict(zip(trials, outcomes, strict=True))

    def traces(*name: str) -> dict[str, TraceFigures]:
        return {
            key[-1]: _trace(trials[key], outcome)
            for key, outcome in found.items()
            if key[: len(name)] == name
        }

    measured = {
        "parameter_trace_a10": traces("parameter"),
        "rate_trace_a10": traces("rate"),
        "parameter_trace_h100": traces("h100"),
    }
    scaling = {f"{gpus}": _scaling(gpus, found) for gpus in asked.gpus}
    jitter = {pattern: _jitter(asked, pattern, found) for pattern in _PATTERNS[1:]}
    return DisagFusionReport(
        software=f"elastic-dit {__version__}",
        setting=_setting(asked),
        **measured,
        as_written={
            "parameter_trace_a10": traces("written", "parameter"),
            "rate_trace_a10": traces("written", "rate"),
        },
        scaling=scaling,
        jitter=jitter,
        comparisons=compare(measured, scaling, jitter),
        wall_seconds=time.perf_counter() - began,
    )


def explaining_messages() -> int:
    """Messages of a hand-over for which a blocked encoder loses what the paper says (moderate).

    The paper tells neither the stage times behind its Figure 13 nor what a transfer is. A sender
    that is the bottleneck and waits for the last of n messages, each late with probability p by
    delay d, takes ``T + (1 - (1 - p)^n) d``; n is what comes nearest to the published loss.
    """
    patterns = paper.figures()["jitter"]

    def seconds(pattern: str, messages: int) -> float:
        of = patterns[pattern]
        late = 1.0 - (1.0 - float(of["probability"])) ** messages
        return paper.a10_cost().encoder_s + late * float(of["delay_s"])

    def miss(messages: int) -> float:
        lost = 1.0 - seconds("stable", messages) / seconds("moderate", messages)
        return abs(100.0 * lost - float(patterns["moderate"]["lost_synchronous"]))

    return min(range(1, 101), key=miss)


def _balanced(gpus: int) -> tuple[int, int, int]:
    cost = paper.a10_cost()
    times = {Stage.ENCODER: cost.encoder_s, Stage.DIT: cost.dit_s[4], Stage.DECODER: cost.decoder_s}
    counts = BalancedRatio().predict(Workload(rate_hz=0.1, stage_seconds=times), {"A10": gpus})
    return (counts[Stage.ENCODER], counts[Stage.DIT], counts[Stage.DECODER])


def _trace(trial: Trial, outcome: Outcome) -> TraceFigures:
    shift_s = trial.phases[0].duration_s
    moved = [change for change in outcome.changes if change.done_s > change.at_s >= shift_s]
    first_qpm, second_qpm = outcome.phase_qpm
    first_s, second_s = outcome.phase_mean_s
    return TraceFigures(
        phase_1_qpm=first_qpm,
        phase_2_qpm=second_qpm,
        phase_1_mean_s=first_s,
        phase_2_mean_s=second_s,
        switched_after_s=moved[0].done_s - shift_s if moved else None,
        waiting_at_end=outcome.waiting_at_end,
        changes=tuple(
            ChangeFigures(at_s=change.at_s, done_s=change.done_s, reason=change.reason)
            for change in outcome.changes
        ),
        minute_qpm=outcome.minute_qpm,
    )


def _scaling(gpus: int, found: Outcomes) -> ScalingFigures:
    def of(name: str) -> Outcome:
        return found["scaling", f"{gpus}", name]

    return ScalingFigures(
        split=":".join(map(str, _balanced(gpus))),
        exclusive_qpm=of("exclusive").phase_qpm[0],
        packed_qpm=of("packed").phase_qpm[0],
        monolithic_qpm=of("monolithic").phase_qpm[0],
        thirty_requests_qpm=60.0 * _IDENTICAL / of("burst").makespan_s,
    )


def _jitter(asked: DisagFusionExperiment, pattern: str, found: Outcomes) -> JitterFigures:
    def qpm(pattern: str, messages: int, design: str) -> float:
        keys = [("jitter", pattern, f"{messages}", design, f"{seed}") for seed in asked.seeds]
        return statistics.fmean(found[key].phase_qpm[0] for key in keys)

    def lost(messages: int, design: str) -> float:
        return 100.0 * (1.0 - qpm(pattern, messages, design) / qpm("stable", messages, design))

    of = paper.figures()["jitter"][pattern]
    many = explaining_messages()
    return JitterFigures(
        probability=of["probability"],
        delay_s=of["delay_s"],
        synchronous_lost_percent=lost(many, "synchronous"),
        ours_lost_percent=lost(many, "ours"),
        single_message_synchronous_lost_percent=lost(1, "synchronous"),
        single_message_ours_lost_percent=lost(1, "ours"),
    )


def _setting(asked: DisagFusionExperiment) -> DisagFusionSetting:
    costs = {"A10": paper.a10_cost(), "H100": paper.h100_cost()}
    return DisagFusionSetting(
        stage_seconds={
            kind: {
                "encoder": cost.encoder_s,
                "dit_4_steps": cost.dit_s[4],
                "dit_1_step": cost.dit_s[1],
                "decoder": cost.decoder_s,
            }
            for kind, cost in costs.items()
        },
        load_seconds={str(stage): seconds for stage, seconds in paper.load_seconds().items()},
        phase_s=asked.phase_s,
        settle_s=asked.settle_s,
        users_per_gpu=USERS_PER_GPU,
        quiet_interval_s=_QUIET_INTERVAL_S,
        provision_s=PROVISION_S,
        jitter_messages=explaining_messages(),
        jitter_seeds=len(asked.seeds),
        tolerance=TOLERANCE,
    )
