"""The page ``docs/results/disagfusion.md``."""

from __future__ import annotations

from collections.abc import Mapping

from elastic_dit.reproduce.disagfusion_schema import Comparison, DisagFusionReport, TraceFigures
from elastic_dit.reproduce.markdown import table

__all__ = ["disagfusion_page", "value_of"]

_HEAD = """\
# DisagFusion's evaluation, theirs and ours

Made by `elastic-dit reproduce disagfusion`; every figure is that run's, and `--json FILE` has all
of them ([schema](../simulation-schema.md)). The simulator drives the controller and the placement
policies that run in production ([placement](../placement.md)), asked every 2 s.

What the paper leaves open, and how it is filled here:

* **Throughput is read as capacity.** Both traces arrive at 0.1 requests per second, which is 6 per
  minute, yet the paper has 1:6:1 serve 4.9 of them "without queueing", and 11.0 completed per
  minute where 6 arrive. So requests never run out here: {users} per GPU are in the system at any
  time, each phase lasts {phase:.0f} minutes, and its last {counted:.0f} count. The traces as
  written are [below](#the-traces-as-written).
* **Stage times** are not printed; these follow from its throughputs, which are the least `g / T`
  over the stages: {times}.
* **Loading** takes {loads}: the 30.3 s of Figure 4 in proportion to the weights.
* **Memory.** The DiT's 28 GB do not fit on an A10 of 24 GB, and the paper does not say how it runs
  there; here its weights take 8 bits. Activations are taken as 2, 4 and 6 GB. So a decoder can
  share a GPU with anything, encoder and DiT cannot share one: as in the paper, no A10 holds all
  three.
* **Another machine** is there {provision:.0f} s after it is asked for.

![Throughput over time on the three traces](disagfusion.png)
"""

_TRACE_NOTES = """
* `s161` and `s152` are fixed, one stage per GPU. `hybrid` chooses among these two, as the paper's
  does; `hybrid_any` among all splits of eight GPUs, and finds 2:4:2, which the paper does not
  consider. `packed` may let stages share GPUs, and dispatches by `pressure`; all others serve first
  what came first.
* `reactive` has the thresholds alone, and takes GPUs from stages that can do without.
* `monolithic` is every GPU for itself, loading and unloading each stage for every request.
* *Switched* is the time from the shift to the end of the last load.
"""

_RATE = """
## More requests than eight GPUs serve

4-step requests, one in {quiet:.1f} s, and after 15 minutes one in 5 s. A second machine of eight
may be asked for. The paper's first rate, one in 10 s, is more than its own 1:6:1 can serve.
"""

_WRITTEN = """
## The traces as written

One request in 10 s for 15 minutes; then for 15 more one 1-step request in 10 s, or one 4-step
request in 5 s. All of each phase counts, whatever the last one left in the queues. As 6 per
minute arrive, no deployment can complete 11 of them for long.
"""

_SCALING = """
## Scaling

4-step requests (Figure 12b). Of its other models the paper gives no stage times, nor do they follow
from its figures: the 50-step text-to-video and Qwen-Image rows of Figure 12 are not simulated.

![Throughput by number of GPUs, and jitter](disagfusion-scaling.png)
"""

_JITTER = """
## Jitter

1-step requests on 1:5:2, where the encoder is the bottleneck; per cent of the stable network's
throughput lost, means over {seeds} seeds. *Synchronous* blocks the sender until all has arrived, as
the paper describes its baseline; *ours* is how engines here work: receivers pull ahead while they
compute. The paper tells neither the stage times of its experiment nor what one transfer is. With
one message per hand-over a delay of 2 s in a tenth of them is 0.2 s on 5.45 s of encoding, so that
its 22.5 % cannot come about. They do if a hand-over is {messages} messages at a time and waits for
the last: that number is chosen for the moderate pattern, the others follow.
"""


def disagfusion_page(report: DisagFusionReport) -> str:
    """The page, as Markdown; pictures lie beside it.

    Parameters
    ----------
    report : DisagFusionReport
    """
    parts = [
        _head(report),
        "\n## Theirs beside ours\n",
        _comparisons(report),
        _reasons(report.comparisons),
        "\n## 4 steps, then 1, on eight A10\n",
        _traces(report.parameter_trace_a10),
        _TRACE_NOTES,
        _moves(report.parameter_trace_a10, ("reactive", "hybrid", "hybrid_any", "packed")),
        _RATE.format(quiet=report.setting.quiet_interval_s),
        _traces(report.rate_trace_a10),
        "",
        _moves(report.rate_trace_a10, tuple(report.rate_trace_a10)),
        "\n## 4 steps, then 1, on eight H100\n",
        _traces(report.parameter_trace_h100),
        _WRITTEN,
        "4 steps, then 1:\n",
        _traces(report.as_written["parameter_trace_a10"], latency=True),
        "\nTwice as many:\n",
        _traces(report.as_written["rate_trace_a10"], latency=True),
        _SCALING,
        _scaling(report),
        _JITTER.format(seeds=report.setting.jitter_seeds, messages=report.setting.jitter_messages),
        _jitter(report),
    ]
    return "\n".join(parts) + "\n"


def _head(report: DisagFusionReport) -> str:
    setting = report.setting
    a10 = setting.stage_seconds["A10"]
    loads = setting.load_seconds
    return _HEAD.format(
        users=setting.users_per_gpu,
        phase=setting.phase_s / 60,
        counted=(setting.phase_s - setting.settle_s) / 60,
        times=", ".join(f"{name.replace('_', ' ')} {value:g} s" for name, value in a10.items())
        + " on an A10",
        loads=", ".join(f"{value:.1f} s ({name})" for name, value in loads.items()),
        provision=setting.provision_s,
    )


def value_of(comparison: Comparison, figure: float) -> str:
    """A figure with its unit.

    >>> value_of(Comparison(what="", theirs=4.9, ours=4.87, unit="qpm", reproduced=True, why=""), 4.87)
    '4.87'
    """  # noqa: E501
    return {"qpm": f"{figure:.2f}", "%": f"{figure:.1f} %", "x": f"{figure:.2f} x"}[comparison.unit]


def _comparisons(report: DisagFusionReport) -> str:
    rows = (
        [
            each.what,
            value_of(each, each.theirs),
            value_of(each, each.ours),
            "reproduced" if each.reproduced else "not reproduced",
        ]
        for each in report.comparisons
    )
    points = 100 * report.setting.tolerance
    within = (
        f"\nReproduced: within {points:.0f} %, of throughput lost within {points:.0f} points.\n"
    )
    return table(["requests per minute", "theirs", "ours", ""], rows) + "\n" + within


def _reasons(comparisons: tuple[Comparison, ...]) -> str:
    """Why what is not reproduced is not, each reason once."""
    by_reason: dict[str, list[str]] = {}
    for each in comparisons:
        if each.why:
            by_reason.setdefault(each.why, []).append(each.what)
    if not by_reason:
        return ""
    lines = [f"* {'; '.join(what)}: {why}." for why, what in by_reason.items()]
    return "\n".join(["What does not reproduce, and why:", "", *lines])


def _traces(traces: Mapping[str, TraceFigures], latency: bool = False) -> str:
    head = ["requests per minute", "phase 1", "phase 2", "switched, s"]
    head += ["mean latency 1, s", "2, s", "left in line"] if latency else []
    rows = []
    for name, of in traces.items():
        switched = "" if of.switched_after_s is None else f"{of.switched_after_s:.0f}"
        row = [f"`{name}`", f"{of.phase_1_qpm:.2f}", f"{of.phase_2_qpm:.2f}", switched]
        if latency:
            row += [_seconds(of.phase_1_mean_s), _seconds(of.phase_2_mean_s)]
            row.append(f"{of.waiting_at_end}")
        rows.append(row)
    return table(head, rows)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _moves(traces: Mapping[str, TraceFigures], names: tuple[str, ...]) -> str:
    lines = [
        f"| `{name}` | {change.at_s:.0f} | {change.done_s:.0f} | {change.reason} |"
        for name in names
        for change in traces[name].changes
    ]
    return "\n".join(["| | planned at, s | done at, s | why |", "|---|---:|---:|---|", *lines])


def _scaling(report: DisagFusionReport) -> str:
    rows = [
        [
            gpus,
            of.split,
            f"{of.exclusive_qpm:.2f}",
            f"{of.packed_qpm:.2f}",
            f"{of.monolithic_qpm:.2f}",
            f"{of.thirty_requests_qpm:.2f}",
        ]
        for gpus, of in report.scaling.items()
    ]
    head = [
        "GPUs",
        "split",
        "one stage each",
        "sharing",
        "monolithic",
        "30 at once, one stage each",
    ]
    return table(head, rows)


def _jitter(report: DisagFusionReport) -> str:
    rows = [
        [
            f"{name}: {of.probability:.0%}, {of.delay_s:g} s",
            f"{of.synchronous_lost_percent:.1f}",
            f"{of.ours_lost_percent:.1f}",
            f"{of.single_message_synchronous_lost_percent:.1f}",
            f"{of.single_message_ours_lost_percent:.1f}",
        ]
        for name, of in report.jitter.items()
    ]
    head = ["per cent lost", "synchronous", "ours", "one message: synchronous", "ours"]
    return table(head, rows)
