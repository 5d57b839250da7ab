"""One generation on a running cluster: connect, submit, watch, save, tell."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elastic_dit.cli.collect import as_ended
from elastic_dit.cli.live import Board
from elastic_dit.cli.options import connect
from elastic_dit.cli.output import check_json_path, human_console, slug, write_json
from elastic_dit.errors import ElasticDitError, InvalidRequest
from elastic_dit.input_image import InputImage
from elastic_dit.report.build import Ended, first_start, judge_result, request_report
from elastic_dit.results import Image, Video
from elastic_dit.state import Phase

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.client import Client
    from elastic_dit.request import GenerationRequest

__all__ = ["run_generate"]


def run_generate(prompt: str, options: Mapping[str, Any]) -> None:
    """Do what ``elastic-dit generate`` was asked.

    Parameters
    ----------
    prompt : str
        What to show.
    options : mapping of str to Any
        Values of the command's options, by their names.

    Raises
    ------
    ElasticDitError
        Where the request, the cluster or the file is at fault.
    """
    if not prompt.strip():
        raise InvalidRequest("prompt", prompt, "a text that is not empty")
    check_json_path(options["json_path"])
    if options["output"] is not None:
        _check_output(options["output"])
    if options["image"] is not None:
        options = {**options, "image": InputImage.of(options["image"])}
    console = human_console(options["json_path"])
    with connect(options, limit_s=options["timeout"]) as client:
        ended = _generated(client, prompt, options, console)
    result = ended.result
    if result is None:
        raise ElasticDitError(ended.error or f"request {ended.request.request_id} has no result")
    path = result.save(options["output"] or _default_output(ended.request))
    ended = replace(ended, file=str(path))
    report = request_report(ended, first_start([ended]), judge_result(result))
    write_json(options["json_path"], report.model_dump_json(indent=2))
    _tell(console, ended)


def _check_output(path: str) -> None:
    """Refuse before anything runs what neither kind of result could be saved as."""
    kind = Image if Path(path).suffix.lower() in Image.suffixes() else Video
    kind.check_path(path)


def _generated(client: Client, prompt: str, options: Mapping[str, Any], console: Console) -> Ended:
    width, height = options["size"] or (None, None)
    started_s = time.perf_counter()
    with console.status("Waiting for an engine to take the request"):
        future = client.submit(
            prompt,
            model=options["model"],
            negative_prompt=options["negative_prompt"],
            width=width,
            height=height,
            num_frames=options["frames"],
            fps=options["fps"],
            num_inference_steps=options["steps"],
            guidance_scale=options["guidance"],
            seed=options["seed"],
            image=options["image"],
        )
    if options["output"] is not None:
        # Only now it is known whether the model's default is a video or an image.
        (Image if future.request.is_image else Video).check_path(options["output"])
    with Board(console) as board:
        for number, ended in as_ended([future], [started_s], board, options["timeout"]):
            board.end(number, Phase(ended.status), f"{ended.latency_s:.1f} s")
            return ended
    raise AssertionError("a future ends or its wait does")


def _default_output(request: GenerationRequest) -> str:
    suffix = "png" if request.is_image else "mp4"
    return f"{slug(request.prompt)}-{request.seed}.{suffix}"


def _tell(console: Console, ended: Ended) -> None:
    stages = ", ".join(f"{record.stage} {record.seconds:.2f} s" for record in ended.records)
    facts = f"seed {ended.request.seed}, {ended.latency_s:.2f} s in all ({stages})"
    console.print(f"{ended.file}: {facts}", soft_wrap=True, markup=False)
