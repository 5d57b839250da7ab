"""Throughput lost where some transfers come late, with and without pulling ahead. See README.md.

python benchmarks/jitter.py --json jitter.json
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import click
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.config import Config
from elastic_dit.drill.load import Load
from elastic_dit.drill.run import DrillOptions, drill_config
from elastic_dit.drill.stand import Stand
from elastic_dit.reproduce import disagfusion_paper as paper

LIMIT_S = 600.0
"""Longest wait for any one thing, seconds."""
PATTERNS = ("moderate", "severe")
"""Of the paper: 10 % and 20 % of the transfers, 2 s each."""


class Loss(BaseModel):
    """One pattern of jitter under one way of transfer."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    pattern: str
    """Name in the paper."""
    synchronous: bool
    """Whether inputs are pulled only when their stage begins."""
    delayed: int
    """Transfers that came late."""
    per_minute: tuple[float, ...]
    """Requests per minute, by repeat."""
    undisturbed_per_minute: tuple[float, ...]
    """The same without jitter, each right before."""
    lost_percent: float
    """Throughput lost, by the medians."""
    paper_lost_percent: float
    """What the paper tells for its own, or for its synchronous baseline."""


class Report(BaseModel):
    """All of what is written."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    software: str
    """Name and version of what wrote it."""
    virtual_gpus: int
    """Engines, with one stage each."""
    fake: bool
    """Whether they only pretend."""
    requests: int
    """Of each measurement."""
    chain_s: float
    """What one request takes on the GPUs, seconds."""
    paper_chain_s: float
    """The same in the paper, at four steps."""
    delay_s: float
    """Added to a late transfer: the paper's, in proportion to the chains."""
    losses: tuple[Loss, ...]
    """Asynchronous first."""


@click.command()
@click.option("--virtual-gpus", type=click.IntRange(3, 64), default=4)
@click.option("--requests", type=click.IntRange(2, 1000), default=24)
@click.option("--repeats", type=click.IntRange(1, 100), default=5)
@click.option("--fake", is_flag=True, help="Pretended engines, that compute by waiting.")
@click.option("--seed", type=int, default=0)
@click.option("--json", "json_path", type=click.Path(dir_okay=False, allow_dash=True))
def main(
    virtual_gpus: int, requests: int, repeats: int, fake: bool, seed: int, json_path: str | None
) -> None:
    """Measure throughput with and without jitter, in turns."""
    check_json_path(json_path)
    console = human_console(json_path)
    times = paper.figures()["derived_stage_times_a10_s"]
    paper_chain_s = times["encoder"] + times["dit_4_steps"] + times["decoder"]
    losses: list[Loss] = []
    chain_s = delay_s = 0.0
    for synchronous in (False, True):
        depth = 0 if synchronous else 1
        options = DrillOptions(
            virtual_gpus=virtual_gpus, requests=requests, faults=(), steps=16, seed=seed,
            fake=fake, limit_s=LIMIT_S, config=Config.parse({"control": {"prefetch_depth": depth}}),
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="elastic-dit-jitter-") as folder:
            config = drill_config(options, requests, Path(folder))
            with closing(Stand(virtual_gpus, config)) as stand:
                trial = _Trial(stand, options)
                chain_s = chain_s or trial.chain_s()
                delay_s = paper.figures()["jitter"][PATTERNS[0]]["delay_s"]
                delay_s *= chain_s / paper_chain_s
                for pattern in PATTERNS:
                    losses.append(trial.loss(pattern, synchronous, delay_s, repeats))
                    console.print(losses[-1].model_dump_json(), soft_wrap=True)
    report = Report(
        software=f"elastic-dit {__version__}",
        virtual_gpus=virtual_gpus,
        fake=fake,
        requests=requests,
        chain_s=chain_s,
        paper_chain_s=paper_chain_s,
        delay_s=delay_s,
        losses=tuple(losses),
    )
    write_json(json_path, report.model_dump_json(indent=2))


class _Trial:
    """Batches of requests on one cluster."""

    def __init__(self, stand: Stand, options: DrillOptions) -> None:
        self._stand = stand
        self._options = options
        self._load = Load(stand.client, options.seed, options.steps)
        self._batches = 0
        stand.until(stand.is_whole, LIMIT_S, "all stages loaded")
        # Pretended engines compute by waiting; the others need no time beside their own.
        self._pace = {} if options.fake else {"step_delay_s": 0.0, "decode_delay_s": 0.0}
        stand.arm(**self._pace)
        self._load.learn(options.requests, LIMIT_S)

    def chain_s(self) -> float:
        """Seconds on the GPUs of one request, alone."""
        with self._stand.another_client() as client:
            future = client.submit("a red circle", num_inference_steps=self._options.steps)
            future.result(LIMIT_S)
            return sum(record.seconds for record in future.records)

    def per_minute(self) -> float:
        """Throughput of one batch."""
        self._batches += 1
        began = time.perf_counter()
        names = self._load.submit(f"batch-{self._batches}", self._options.requests)
        ends = self._load.collect(names, LIMIT_S)
        assert ends.completed == self._options.requests, ends
        return 60.0 * ends.completed / (time.perf_counter() - began)

    def loss(self, pattern: str, synchronous: bool, delay_s: float, repeats: int) -> Loss:
        """In turns without and with jitter, so that both see the same machine."""
        told = paper.figures()["jitter"][pattern]
        calm, late, before = [], [], self._stand.injected()
        for _ in range(repeats):
            self._stand.arm(**self._pace)
            calm.append(self.per_minute())
            self._stand.arm(
                transfer_delay=told["probability"], transfer_delay_s=delay_s, **self._pace
            )
            late.append(self.per_minute())
        theirs = told["lost_synchronous" if synchronous else "lost_disagfusion"]
        return Loss(
            pattern=pattern,
            synchronous=synchronous,
            delayed=self._stand.injected() - before,
            per_minute=tuple(late),
            undisturbed_per_minute=tuple(calm),
            lost_percent=100.0 * (1.0 - statistics.median(late) / statistics.median(calm)),
            paper_lost_percent=theirs,
        )


if __name__ == "__main__":
    main()
