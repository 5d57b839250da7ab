"""The page ``docs/results/mixed-priority.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastic_dit.reproduce.markdown import table
from elastic_dit.reproduce.mixed_priority import OVERLOADED, TWINS
from elastic_dit.reproduce.schema import MixedFigures, MixedReport

__all__ = ["mixed_page"]

_HEAD = """\
# Deadlines and priorities, listed policies and ours

Made by `elastic-dit reproduce mixed-priority`; `--json FILE` has every figure
([schema](../simulation-schema.md)). Workloads, cost model and listed figures come from the public
benchmark of GF-DiT (arXiv 2606.13501; SJTU-Liquid/GF-DiT, Apache-2.0) and its own CPU simulator;
nothing of it ran on a GPU. Wan 2.2 A14B geometry, 8 GPUs, {seeds} seeds of each workload, a change
of group costs {handover:.0f} ms. *Attainment* is the part of the submitted requests that met their
deadline; a load of 1.0 is what 8 GPUs can do at DoP 1.

What differs from the listed runs, and what they leave open:

* The groups of `elastic` are aligned blocks of neighbours. The listed EDF and TetriServe policies
  form groups of any free GPUs, as do all of our re-implementations; the other listed ones have
  fixed lanes.
* The listed TetriServe holds GPUs back for a group until it is complete; ours starts on what is
  free and widens at the next step.
* Every class may be paused or resized at a step boundary, as the listed EDF, TetriServe and SRTF
  policies do, although the files mark S and M as not preemptible.
* Latencies are those of completed requests; where a listed policy completes fewer, its latencies
  look better than they are.

![Deadlines met by workload](mixed-priority.png)
"""

_NEAR = """\
How near each is: the distance of the attainments, mean and largest over the workloads, and our mean
latency over theirs.
"""


def mixed_page(report: MixedReport) -> str:
    """The page, as Markdown; the picture lies beside it.

    Parameters
    ----------
    report : MixedReport
    """
    parts = [
        _HEAD.format(seeds=len(report.seeds), handover=1000 * report.handover_s),
        "## `elastic` and the best listed policy\n",
        table(["workload", "policy", *_COLUMNS, "lead"], _duels(report)),
        f"\nOverloaded are {', '.join(name for name in OVERLOADED if name in report.lead)}.\n",
        "## Our re-implementations and what they re-implement\n",
        _NEAR,
        table(["policy", "listed as", "points apart", "at most", "where", "mean"], _near(report)),
        "",
        table(["workload", "policy", *_COLUMNS], _twins(report)),
        "",
    ]
    return "\n".join(parts)


_COLUMNS = ("attainment", "S", "M", "L", "completed", "mean s", "p99 s")


def _figures(of: MixedFigures) -> list[str]:
    met = [of.attainment, of.S.attainment, of.M.attainment, of.L.attainment]
    return [
        *(f"{each:.3f}" for each in met),
        f"{of.completed} of {of.submitted}",
        f"{of.mean_s:.0f}",
        f"{of.p99_s:.0f}",
    ]


def _duels(report: MixedReport) -> Iterator[Sequence[str]]:
    for workload, ours in report.mixed_priority.items():
        best = report.best_listed[workload]
        lead = f"{100 * report.lead[workload]:+.1f} points"
        yield [workload, "elastic", *_figures(ours["elastic"]), lead]
        yield ["", f"{best} (listed)", *_figures(report.listed[workload][best]), ""]


def _near(report: MixedReport) -> Iterator[Sequence[str]]:
    for policy, near in report.nearness.items():
        apart = (f"{100 * each:.1f}" for each in (near.attainment, near.attainment_max))
        yield [policy, near.listed, *apart, near.max_workload, f"{near.mean_s:.2f}"]


def _twins(report: MixedReport) -> Iterator[Sequence[str]]:
    for workload, ours in report.mixed_priority.items():
        for policy, theirs in TWINS.items():
            if policy in ours and theirs in report.listed[workload]:
                yield [workload, policy, *_figures(ours[policy])]
                yield ["", f"{theirs} (listed)", *_figures(report.listed[workload][theirs])]
