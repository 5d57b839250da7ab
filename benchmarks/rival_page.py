"""The results page of rivals.py, from its report.

python benchmarks/rival_page.py rivals.json docs/results/rivals.md
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path

import click
from rival_report import OURS, RivalsReport, SideReport

from elastic_dit.files import write_atomically

_NAMES = {
    "elastic_dit": "elastic-dit",
    "diffusers": "diffusers loops",
    "ray_serve": "Ray Serve, three deployments",
}
_WORDS = {
    "throughput": "throughput (more is better)",
    "mean_latency": "mean latency",
    "p99_latency": "p99 latency",
    "single_request_wall": "wall time of one request alone",
    "memory_rss": "resident memory",
    "recovery": "time to the frames of a request whose process was killed",
    "restoration": "time until all processes are ready again",
}


def page(report: RivalsReport) -> str:
    """Markdown."""
    return "\n".join([*_head(report), *_sides(report), *_ratios(report), ""])


def _head(report: RivalsReport) -> Iterator[str]:
    mix = ", ".join(
        "{width}x{height}x{num_frames} in {num_inference_steps} steps".format(**each)
        for each in report.mix
    )
    yield "# Rivals, side by side\n"
    yield "Made by `python benchmarks/rivals.py --report docs/results/rivals.md`; how it is"
    yield "measured stands in `benchmarks/README.md`. The embedded model, the same requests and"
    yield f"seeds, {report.gpus} processes that compute with {report.threads} torch thread(s)"
    yield f"each, on {report.cpus} CPU cores; nothing of it ran on a GPU."
    yield f"Requests ({mix}) come so that"
    yield f"{report.at_once} are always under way. Dispatch `{report.dispatch}`, placement"
    yield f"`{report.placement}`; Ray's replicas {report.ray_replicas}. Versions:"
    yield ", ".join(report.software.values()) + ".\n"
    same = "the same frames in every pixel" if report.identical else "**different frames**"
    yield f"All sides made {same}.\n"


def _sides(report: RivalsReport) -> Iterator[str]:
    columns = (
        "", "requests/s", "mean s", "p99 s", "alone s", "after a kill s", "whole again s", "GB",
        "processes",
    )  # fmt: skip
    yield f"| {' | '.join(columns)} |"
    yield "|---" + "|---:" * (len(columns) - 1) + "|"
    for name, side in report.sides.items():
        yield f"| {_NAMES.get(name, name)} | " + " | ".join(_figures(side)) + " |"
    for name, reason in report.left_out.items():
        yield f"| {_NAMES.get(name, name)} | {reason} |" + " |" * 7
    yield ""


def _figures(side: SideReport) -> Iterator[str]:
    yield f"{side.throughput_per_s:.2f}"
    yield f"{side.mean_latency_s:.2f}"
    yield f"{side.p99_latency_s:.2f}"
    yield f"{statistics.median(side.single_s):.2f}"
    recovery = side.recovery
    again = (
        f", sent again {recovery.resubmitted} time(s)" if recovery and recovery.resubmitted else ""
    )
    yield f"{recovery.answered_s:.1f}{again}" if recovery else "-"
    yield f"{recovery.restored_s:.1f}" if recovery else "-"
    yield f"{side.rss_bytes / 1e9:.2f}"
    yield f"{side.processes}"


def _ratios(report: RivalsReport) -> Iterator[str]:
    pairs = {name.removeprefix(f"{OURS}_vs_"): figures for name, figures in report.ratios.items()}
    yield "Ours over theirs:\n"
    yield "| | " + " | ".join(_NAMES.get(name, name) for name in pairs) + " |"
    yield "|---|" + "---:|" * len(pairs)
    for figure, words in _WORDS.items():
        cells = [
            f"{figures[figure]:.2f}" if figure in figures else "-" for figures in pairs.values()
        ]
        yield f"| {words} | " + " | ".join(cells) + " |"
    yield ""
    yield "We lose: " + ("; ".join(f"`{line}`" for line in report.lost) or "nowhere") + "."


@click.command()
@click.argument("source", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("target", type=click.Path(dir_okay=False, path_type=Path))
def main(source: Path, target: Path) -> None:
    """Write the page of a report that `rivals.py --json` wrote."""
    report = RivalsReport.model_validate_json(source.read_bytes())
    write_atomically(target, page(report).encode())


if __name__ == "__main__":
    main()
