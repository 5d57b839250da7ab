"""The page ``docs/results/ddit.md``."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from elastic_dit.reproduce.ddit_paper import BASELINES
from elastic_dit.reproduce.markdown import table
from elastic_dit.reproduce.schema import CellReport, DditReport, Step

__all__ = ["ddit_page"]

_HEAD = """\
# DDiT's evaluation, theirs and ours

Made by `elastic-dit reproduce ddit`; every figure is that run's, and `--json FILE` has all of them
([schema](../simulation-schema.md)). The simulator drives the controller that runs in production,
with stage latencies from DDiT's Figure 17 (H800, OpenSora 1.2, 30 steps, 51 frames), on {gpus} GPUs
with a node of 8 for the grid, and on 8 nodes of 8 for the large burst.

What the paper (arXiv 2506.13497) leaves open, and how it is filled here:

* It gives no number of requests per run and no size of its burst: here {requests} of each, and
  figures are means over {seeds}.
* It does not say how many instances each partition has: here SPCI gives each resolution a third of
  the GPUs, at DoP 1; DPCI and DP have as many instances of DoP 1, 2 and 4, one of each on 8 GPUs.
* Its plots have no absolute values, so that only the statements of its text can be compared.
* Its gains over static DoP 1 under burst do not follow from its own Figure 17, in which DoP 1
  takes fewest GPU-seconds for every resolution.
* Its equation 7 halves the whole time in an M/M/c system, service included; the usual approximation
  halves the wait. Both are below.

![Latency by arrival rate over DDiT's, and cost on 64 GPUs](ddit-grid.png)
"""

_ELASTIC = """\
## `elastic` against DDiT

Latency of `elastic` over that of DDiT's greedy policy, all {cells} cells, one setting for all:

{table}

![elastic over DDiT, cell by cell](ddit-cells.png)

What limits it: no schedule whatever has a mean below the bound of `elastic_dit.reproduce.bounds`,
which gives the work of each request, at the DoP that needs fewest GPU-seconds, to one machine as
fast as all GPUs together, shortest remaining first. `elastic` is at {elastic:.2f} times that bound,
DDiT at {ddit:.2f} (geometric means). The bound is loose: it lets a single request use all GPUs
without any loss, where Figure 17 has eight of them lose half and more.
"""

_CLAIMS = """\
## Theirs beside ours

Reductions by DDiT, least to most favourable of the cells that a statement speaks of. *Reproduced*
means within {points:.0f} points, *in part* the same direction at another size, larger or smaller.
The paper has DDiT ahead of every other system in every scenario; here its mean is below those of
all its baselines in {ahead} of {cells} cells.
"""


def ddit_page(report: DditReport) -> str:
    """The page, as Markdown; pictures lie beside it.

    Parameters
    ----------
    report : DditReport
    """
    setting = report.setting
    parts = [
        _HEAD.format(gpus=setting.gpus, requests=setting.requests, seeds=_seeds(setting.seeds)),
        _elastic(report),
        _CLAIMS.format(
            points=100 * setting.tolerance, ahead=_ahead(report), cells=len(report.grid.cells)
        ),
        _claims(report),
        _reasons(report),
        "Best static DoP by mean latency:\n",
        _best_static(report),
        "\n## All policies\n",
        "Geometric means over the mixes of latency over DDiT's, mean / p99.\n",
        _policies(report),
        "\n## Burst on 64 GPUs\n",
        _burst(report),
        "\n## Breakdown\n",
        "Latency with over latency without; below 1 is better.\n",
        _steps("decoupled at DoP 2", report.decoupling),
        "",
        _steps("promotion", report.promotion),
        "\n## Equation 7\n",
        "GPUs x mean time of Algorithm 1's queue model, mix 1:1:1, 8 GPUs.\n",
        _queue(report),
    ]
    return "\n".join(parts) + "\n"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _ahead(report: DditReport) -> int:
    """Cells in which no baseline has a mean as low as DDiT's."""
    return sum(
        all(
            cell.policies["ddit"].mean_s < cell.policies[policy].mean_s
            for policy in BASELINES
            if policy in cell.policies
        )
        for cell in report.grid.cells.values()
    )


def _elastic(report: DditReport) -> str:
    ratios = report.grid.elastic_vs_ddit
    rows = [
        [name, f"{ratio.geomean:.3f}", f"{ratio.max:.3f}", ratio.max_cell]
        for name, ratio in (("mean", ratios.mean), ("p99", ratios.p99))
    ]
    return _ELASTIC.format(
        cells=len(report.grid.cells),
        table=table(["latency", "geometric mean", "worst cell", "which"], rows),
        elastic=report.grid.mean_vs_bound["elastic"],
        ddit=report.grid.mean_vs_bound["ddit"],
    )


def _claims(report: DditReport) -> str:
    rows = (
        [
            f"{claim.where}: {claim.what}",
            claim.theirs,
            f"{claim.low:.1%} to {claim.high:.1%}",
            claim.verdict,
        ]
        for claim in report.claims
    )
    return table(["", "theirs", "ours", ""], rows)


def _reasons(report: DditReport) -> str:
    """Why what is not reproduced is not, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for claim in report.claims:
        if claim.why:
            by_reason.setdefault(claim.why, []).append(f"{claim.what} ({claim.verdict})")
    lines = [f"* {'; '.join(what)}: {why}." for why, what in by_reason.items()]
    return "\n".join(["", "What does not reproduce, or in part only, and why:", "", *lines, ""])


def _best_static(report: DditReport) -> str:
    best = report.best_static
    rows = [
        ["theirs", *(f"{each.theirs}" for each in best.values())],
        ["ours", *(f"{each.ours}" for each in best.values())],
    ]
    return table(["", *map(_rate, best)], rows)


def _rate(rate: str) -> str:
    return rate if rate == "burst" else f"λ {rate}"


def _policies(report: DditReport) -> str:
    rates = list(dict.fromkeys(name.partition("@")[2] for name in report.grid.cells))

    def over_ddit(policy: str, rate: str) -> str:
        cells = [cell for name, cell in report.grid.cells.items() if name.endswith(f"@{rate}")]
        return f"{_over(cells, policy, 'mean_s'):.2f} / {_over(cells, policy, 'p99_s'):.2f}"

    rows = ([policy, *(over_ddit(policy, rate) for rate in rates)] for policy in _order(report))
    return table(["policy", *map(_rate, rates)], rows)


def _order(report: DditReport) -> list[str]:
    """Policies, best first."""
    bound = report.grid.mean_vs_bound
    return sorted(bound, key=lambda policy: bound[policy])


def _over(cells: Iterable[CellReport], policy: str, field: str) -> float:
    return statistics.geometric_mean(
        getattr(cell.policies[policy], field) / getattr(cell.policies["ddit"], field)
        for cell in cells
    )


def _burst(report: DditReport) -> str:
    burst = report.burst64
    rows = [
        [policy, f"{burst.cost_vs_optimum[policy]:.3f}", f"{burst.cost_vs_least[policy]:.3f}"]
        for policy in sorted(burst.cost_vs_optimum, key=lambda name: burst.cost_vs_optimum[name])
    ]
    return (
        table(["policy", "cost ÷ optimum", "cost ÷ least work"], rows)
        + "\n\nThe paper has DDiT at 1.39 and its best baseline at 2.08 times the optimum. The"
        " optimum is Algorithm 1's: it shares the GPUs out by type, pays for an instance through"
        " its last, perhaps half empty round, and lets all GPUs of an instance wait for the VAE, so"
        " that a schedule may cost less. *Least work* is what no schedule can go below."
    )


def _steps(what: str, steps: Iterable[Step]) -> str:
    rows = ([step.cell, f"{step.mean:.3f}", f"{step.p99:.3f}"] for step in steps)
    return table([what, "mean", "p99"], rows)


def _queue(report: DditReport) -> str:
    def figure(value: float | None) -> str:
        return "no deal keeps up" if value is None else f"{value:.1f}"

    rows = (
        [_rate(rate), figure(forms["printed"]), figure(forms["corrected"])]
        for rate, forms in report.queue_optimum.items()
    )
    return table(["", "as printed", "corrected"], rows)
