"""The plain diffusers pipeline, to compare with: one process, one request after the other.

Run as a module it is the other side of `run_plain`: a job as JSON on standard input, one
`PlainRun` a line on standard output.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from elastic_dit.config import ModelConfig
from elastic_dit.engine.folder import ModelFolder
from elastic_dit.errors import ElasticDitError
from elastic_dit.media import Frames
from elastic_dit.report.build import judge_result
from elastic_dit.request import GenerationRequest
from elastic_dit.results import make_result

__all__ = ["PlainPipeline", "PlainRun", "frames_digest", "run_plain"]

LIMIT_S = 900.0
"""Longest comparison, seconds; then its process is killed."""


@dataclass(frozen=True)
class PlainRun:
    """One request through the plain pipeline.

    Parameters
    ----------
    request_id : str
        The request.
    ok : bool
        Whether the judge accepts the clip; False where the prompt cannot be judged.
    digest : str
        `frames_digest` of the clip.
    seconds : float
        Wall time of the pipeline call.
    """

    request_id: str
    ok: bool
    digest: str
    seconds: float


class PlainPipeline:
    """A model's own diffusers pipeline, whole in this process.

    Parameters
    ----------
    model : ModelConfig
        What to load; serving options are honoured, so that prompts are padded alike.
    threads : int
        Torch threads.
    """

    def __init__(self, model: ModelConfig, threads: int) -> None:
        import torch
        from diffusers import DiffusionPipeline

        from elastic_dit.families import family_of
        from elastic_dit.families.hints import ServingHints

        torch.set_num_threads(threads)
        folder = ModelFolder.open(model.path)
        self._family = family_of(folder)
        self._hints = ServingHints.of(folder, model.options, model.name)
        dtype = getattr(torch, model.dtype)
        self._pipeline = DiffusionPipeline.from_pretrained(folder.path, torch_dtype=dtype)
        self._pipeline.set_progress_bar_config(disable=True)

    def __call__(self, request: GenerationRequest) -> Frames:
        """Make the frames of one request, ``uint8`` ``[T, H, W, 3]``."""
        import torch

        made = self._pipeline(
            **self._family.inputs(request, self._hints),
            guidance_scale=request.guidance_scale,
            generator=torch.Generator("cpu").manual_seed(request.seed),
            output_type="np",
        ).frames[0]
        return np.asarray((made * 255).round().astype(np.uint8))


def frames_digest(frames: Frames) -> str:
    """Fingerprint of shape and pixels.

    >>> frames_digest(np.zeros((1, 2, 2, 3), np.uint8)) == frames_digest(
    ...     np.zeros((2, 1, 2, 3), np.uint8))
    False
    """
    return hashlib.sha256(repr(frames.shape).encode() + frames.tobytes()).hexdigest()


def run_plain(
    model: ModelConfig,
    requests: Sequence[GenerationRequest],
    threads: int,
    limit_s: float = LIMIT_S,
) -> Iterator[PlainRun]:
    """Run requests through the plain pipeline in a process of its own.

    Parameters
    ----------
    model : ModelConfig
        What to load there.
    requests : sequence of GenerationRequest
        In this order.
    threads : int
        Torch threads there.
    limit_s : float
        Longest time for all, seconds.

    Yields
    ------
    PlainRun
        As soon as each is done. Closing the iterator ends the process.

    Raises
    ------
    ElasticDitError
        Where that process fails or takes too long, with its last words.
    """
    job = {
        "model": model.model_dump(mode="json"),
        "threads": threads,
        "requests": [request.model_dump(mode="json") for request in requests],
    }
    with _child(json.dumps(job), threads, limit_s) as (process, errors):
        assert process.stdout is not None
        count = 0
        for line in process.stdout:
            yield PlainRun(**json.loads(line))
            count += 1
        if process.wait() != 0 or count != len(requests):
            words = (errors() or f"exit status {process.returncode}").splitlines()[-1]
            raise ElasticDitError(f"the plain pipeline ended after {count} requests: {words}")


@contextmanager
def _child(job: str, threads: int, limit_s: float) -> Iterator[tuple[subprocess.Popen[str], Any]]:
    """The process that runs `serve`, fed and watched; it is gone when the block is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )
    assert process.stdin is not None
    assert process.stderr is not None
    heard: list[str] = []
    # Drained as it comes: a full pipe would stop the process.
    listener = threading.Thread(target=heard.extend, args=(process.stderr,), daemon=True)
    watchdog = threading.Timer(limit_s, process.kill)
    try:
        listener.start()
        watchdog.start()
        process.stdin.write(job)
        process.stdin.close()

        def errors() -> str:
            listener.join(timeout=1.0)
            return "".join(heard).strip()

        yield process, errors
    finally:
        watchdog.cancel()
        process.kill()
        process.wait()
        listener.join(timeout=1.0)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def serve() -> None:
    """Read a job from standard input, run it, write a line per request."""
    job = json.load(sys.stdin)
    pipeline = PlainPipeline(ModelConfig.model_validate(job["model"]), job["threads"])
    for fields in job["requests"]:
        request = GenerationRequest.model_validate(fields)
        started = time.perf_counter()
        frames = pipeline(request)
        seconds = time.perf_counter() - started
        judged = judge_result(make_result(frames, request))
        run = PlainRun(
            request_id=request.request_id,
            ok=judged is not None and judged.ok,
            digest=frames_digest(frames),
            seconds=seconds,
        )
        print(json.dumps(asdict(run)), flush=True)


if __name__ == "__main__":
    serve()
