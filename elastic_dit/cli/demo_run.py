"""The demo itself: start, submit, collect, compare, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from elastic_dit.cli.collect import as_ended
from elastic_dit.cli.demo_plan import demo_submissions
from elastic_dit.cli.demo_report import Made, assemble, compare, write_pictures
from elastic_dit.cli.live import Board
from elastic_dit.cli.local_serving import demo_config, serving
from elastic_dit.cli.output import check_json_path, human_console, slug, write_json
from elastic_dit.cli.summary import print_summary
from elastic_dit.config import Config, ModelConfig
from elastic_dit.errors import ConfigError, ElasticDitError, SaveError
from elastic_dit.families.folder import EMBEDDED_PREFIX
from elastic_dit.files import check_target, write_atomically
from elastic_dit.report.build import Ended, judge_result, verdict_text
from elastic_dit.results import Image
from elastic_dit.state import Phase

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.client import Client
    from elastic_dit.future import GenerationFuture

__all__ = ["DemoOptions", "run_demo"]

LIMIT_S = 900.0
"""Longest time for all requests, seconds."""
EARLY = 2
"""Requests that come before the others, so that they have the GPUs to themselves at first."""
EARLY_S = 6.0
"""Longest time that they have, seconds; the others come once both run on several GPUs."""
_LOOK_S = 0.05
_CLIPS = "clips"
_MODEL_PATH = f"{EMBEDDED_PREFIX}shapes"


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Options of ``elastic-dit demo``, as its help explains them."""

    output: str
    virtual_gpus: int
    requests: int
    seed: int
    steps: int | None
    compare: bool
    config_path: str | None
    json_path: str | None


def run_demo(options: DemoOptions) -> None:
    """Do it all.

    Raises
    ------
    ElasticDitError
        Where the cluster does not start, a request fails, or a file cannot be written.
    """
    console = human_console(options.json_path)
    config = Config.load(options.config_path) if options.config_path else demo_config()
    model = _embedded_model(config)
    folder = _output_folder(options.output)
    check_json_path(options.json_path)
    with serving(options.virtual_gpus, config, console) as client:
        elastic = config.control.dispatch == "elastic"
        made, wall_s = _generate(client, model, options, folder, console, elastic=elastic)
    plain = compare(made, model, config, console) if options.compare else {}
    report = assemble(made, plain, config, options.virtual_gpus, wall_s)
    document = report.model_dump_json(indent=2)
    write_pictures(made, report, folder)
    write_atomically(folder / "report.json", f"{document}\n".encode())
    write_json(options.json_path, document)
    print_summary(console, report, folder)
    missing = report.totals.requests - report.totals.completed
    if missing:
        raise ElasticDitError(f"{missing} of {report.totals.requests} requests have no result")


def _embedded_model(config: Config) -> ModelConfig:
    for model in config.models:
        if model.path == _MODEL_PATH:
            return model
    served = ", ".join(model.path for model in config.models)
    allowed = f"a list that holds {_MODEL_PATH}: the demo's prompts are for that model"
    raise ConfigError("models", served, allowed)


def _output_folder(path: str) -> Path:
    folder = Path(path)
    try:
        (folder / _CLIPS).mkdir(parents=True, exist_ok=True)
        for old in (folder / _CLIPS).glob("[0-9][0-9][0-9]-*"):
            old.unlink()  # an earlier demo's: this one's report would not know them
    except OSError as error:
        raise SaveError(path, error.strerror or str(error)) from None
    check_target(folder / _CLIPS / "clip")
    return folder


def _generate(
    client: Client,
    model: ModelConfig,
    options: DemoOptions,
    folder: Path,
    console: Console,
    *,
    elastic: bool,
) -> tuple[list[Made], float]:
    """Make everything; also seconds from the first submission to the last result."""
    submissions = demo_submissions(options.requests, options.seed, model.name)
    futures: list[GenerationFuture] = []
    submitted_s = []
    for number, submission in enumerate(submissions):
        if number == EARLY and elastic:
            _wait_until_shared_out(futures)
        submitted_s.append(time.perf_counter())
        futures.append(client.submit(**submission, num_inference_steps=options.steps))
    made = {}
    with Board(console) as board:
        for number, ended in as_ended(futures, submitted_s, board, LIMIT_S):
            made[number] = one = _judged_and_saved(number, ended, folder)
            board.end(number, Phase(ended.status), _note(one))
    wall_s = time.perf_counter() - submitted_s[0]
    return [made[number] for number in sorted(made)], wall_s


def _wait_until_shared_out(early: Sequence[GenerationFuture]) -> None:
    """Let those that came early get all the GPUs, which they lose again to those that follow."""
    deadline_s = time.monotonic() + EARLY_S
    while time.monotonic() < deadline_s:
        if all(future.done() or future.progress().dop > 1 for future in early):
            return
        time.sleep(_LOOK_S)  # progress is sent, but nothing can be awaited


def _judged_and_saved(number: int, ended: Ended, folder: Path) -> Made:
    if ended.result is None:
        return Made(number, ended, None)
    suffix = ".png" if isinstance(ended.result, Image) else ".mp4"
    name = f"{_CLIPS}/{number:03d}-{slug(ended.request.prompt)}{suffix}"
    ended.result.save(folder / name)
    return Made(number, replace(ended, file=name), judge_result(ended.result))


def _note(made: Made) -> str:
    if made.ended.error is not None:
        return made.ended.error
    verdict = "" if made.judged is None else f", {verdict_text(made.judged)}"
    return f"{made.ended.latency_s:.1f} s{verdict}"
