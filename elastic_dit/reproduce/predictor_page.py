"""The page ``docs/results/predictor.md``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from elastic_dit.reproduce.arrival_cases import AFTER
from elastic_dit.reproduce.markdown import table
from elastic_dit.reproduce.predictor_schema import PredictorReport, SituationFigures

__all__ = ["predictor_page", "verdict"]

WANTED = 0.97
"""Part of the best static throughput that a predictor shall reach on average."""
_WORTHWHILE = 0.01
"""Part of the latency below which nothing is said to be saved."""

_HEAD = """\
# The predictor of instance ratios

Made by `elastic-dit reproduce predictor`; `--json FILE` has every figure
([schema](../simulation-schema.md)). How it works: [prediction](../prediction.md).

{situations} situations drawn at random, of another seed than those it was trained on: mixes of up
to four shapes and numbers of steps, models whose stages differ up to thirtyfold, 4 to 24 GPUs,
a quarter of the pools with two kinds of GPU, arrivals from half to 1.3 times what the closed form's
split can serve, a tenth with queues that are never empty. In each, every split within {moves} moves
of the closed form's that can still win is simulated, {seeds} times {requests} requests,
first come first served at DoP 1, one stage on each GPU. *Best* is the highest throughput found;
among splits within 0.5 % of it, the least mean latency.

Throughput is measured with the entry queue never empty: the bottleneck's service rate times how
busy its GPUs are, which does not take a run of short requests for a good split. It is no more than
what arrives, so where arrivals are the limit, all splits that keep up serve the same and only
latency tells them apart. Latency is measured at the situation's own rate.
"""

_SHIFTS = """
## Shifts

A thousand Poisson arrivals at 0.1 Hz, then the shift; {runs} traces each. *Alarms* is the part of
the traces with a false one in the first thousand; the traces end after {after} requests more.
"""

_FORECASTS = """
## Forecast of arrivals

Poisson counts, 12 in a usual bin, forecast two bins ahead; root mean square error over that of
"as many as last time". Below 1 is better.
"""


def verdict(report: PredictorReport) -> str:
    """What the figures say, in two sentences."""
    closed, learned = (report.predictors[name] for name in ("closed form", "learned"))
    reached = "reaches" if learned.mean_throughput >= WANTED else "does not reach"
    first = (
        f"The predictor {reached} {WANTED:.0%} of the best static throughput: "
        f"{learned.mean_throughput:.2%} on average, {learned.least_throughput:.2%} at worst; "
        f"the closed form has {closed.mean_throughput:.2%} and {closed.least_throughput:.2%}."
    )
    return f"{first} {_latency(closed.mean_latency, learned.mean_latency)}"


def _latency(closed: float, learned: float) -> str:
    """What is gained where throughput is the same."""
    saved = 1 - learned / closed
    if saved < _WORTHWHILE:
        return (
            f"Its mean latency is {learned / closed:.3f} times the closed form's: "
            "the closed form is as good, and simpler."
        )
    return f"It waits less: {saved:.1%} off the closed form's mean latency."


def predictor_page(report: PredictorReport) -> str:
    """The page, as Markdown.

    Parameters
    ----------
    report : PredictorReport
    """
    setting = report.setting
    shifts = next(iter(report.shifts.values()))
    parts = [
        _HEAD.format(
            situations=setting.situations,
            moves=setting.moves,
            seeds=len(setting.arrival_seeds),
            requests=setting.requests,
        ),
        f"**{verdict(report)}**\n",
        table(("over the best split", *_SUMMARY), _summaries(report)),
        "\n## DisagFusion's traces\n",
        table(_COLUMNS, _rows(report.papers)),
        "\n## Every held-out situation\n",
        table(_COLUMNS, _rows(report.held_out)),
        _SHIFTS.format(runs=shifts.runs, after=AFTER),
        table(("case", "alarms", "noticed after (median)", "at most"), _shifts(report)),
        _FORECASTS,
        table(("arrivals", *_forecasts(report)[0]), _forecasts(report)[1]),
        "",
    ]
    return "\n".join(parts)


_SUMMARY = ("throughput, mean", "least", "best found", "latency, mean", "worst")
_COLUMNS = (
    "situation", "GPUs", "demand", "E:T:D seconds", "tried", "best", "closed form", "throughput",
    "latency", "learned", "throughput", "latency",
)  # fmt: skip


def _summaries(report: PredictorReport) -> Iterator[Sequence[str]]:
    for name, of in report.predictors.items():
        yield [
            name,
            f"{of.mean_throughput:.4f}",
            f"{of.least_throughput:.4f}",
            f"{of.best_found:.0%}",
            f"{of.mean_latency:.3f}",
            f"{of.worst_latency:.3f}",
        ]


def _rows(situations: Iterable[SituationFigures]) -> Iterator[Sequence[str]]:
    for each in situations:
        chosen = (each.chosen[name] for name in ("closed form", "learned"))
        yield [
            each.name,
            " + ".join(f"{count} {kind}".strip() for kind, count in each.gpus.items()),
            "full" if each.demand is None else f"{each.demand:.2f}",
            " : ".join(f"{seconds:.3g}" for seconds in each.stage_seconds.values()),
            f"{each.tried}",
            each.best,
            *(
                cell
                for one in chosen
                for cell in (one.split, f"{one.throughput:.3f}", f"{one.latency:.3f}")
            ),
        ]


def _shifts(report: PredictorReport) -> Iterator[Sequence[str]]:
    for name, of in report.shifts.items():
        never = of.median_requests is None
        yield [
            name,
            f"{of.false_alarms:.0%}",
            "" if never else f"{of.median_requests:g} requests",
            "" if never else f"{of.most_requests}",
        ]


def _forecasts(report: PredictorReport) -> tuple[tuple[str, ...], list[Sequence[str]]]:
    names = tuple(next(iter(report.forecasts.values())))
    rows: list[Sequence[str]] = [
        [arrivals, *(f"{errors[name]:.3f}" for name in names)]
        for arrivals, errors in report.forecasts.items()
    ]
    return names, rows
