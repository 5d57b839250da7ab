"""The plain diffusers pipeline, to compare with: one process, one request after the other.

Run as a module it is the other side of `PlainProcess`: a line of JSON on standard input says what
to load, each further one is a request, and each is answered by a `PlainRun` on standard output.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Self

import numpy as np

from elastic_dit.config import ModelConfig
from elastic_dit.errors import ElasticDitError
from elastic_dit.families.folder import ModelFolder
from elastic_dit.media import Frames
from elastic_dit.report.build import judge_result
from elastic_dit.request import GenerationRequest
from elastic_dit.results import make_result

__all__ = ["PlainPipeline", "PlainProcess", "PlainRun", "frames_digest", "run_plain"]

LIMIT_S = 900.0
"""Longest life of the plain pipeline's process, seconds."""


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

        from elastic_dit.engine import devices
        from elastic_dit.engine.loading import quiet_libraries
        from elastic_dit.families import ServingHints, family_of

        # What an engine does for itself, so that neither side has an edge.
        devices.prepare(torch.device("cpu"), threads)
        devices.keep_freed_memory()
        quiet_libraries()
        folder = ModelFolder.open(model.path)
        self._family = family_of(folder)
        self._hints = ServingHints.of(folder, model.options, model.name)
        dtype = getattr(torch, model.dtype)
        self._pipeline = DiffusionPipeline.from_pretrained(folder.path, dtype=dtype)
        self._pipeline.set_progress_bar_config(disable=True)

    def __call__(self, request: GenerationRequest) -> Frames:
        """Make the frames of one request, ``uint8`` ``[T, H, W, 3]``."""
        import torch

        inputs = self._family.inputs(request, self._hints)
        if request.image is not None:
            inputs["image"] = request.image.fitted(request.width, request.height)
        made = self._pipeline(
            **inputs,
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


class PlainProcess:
    """A `PlainPipeline` in a process of its own; a context manager.

    Parameters
    ----------
    model : ModelConfig
        What to load there.
    threads : int
        Torch threads there.
    limit_s : float
        Longest life, seconds; then it is killed.
    judge : bool
        Whether clips are judged there; without, `PlainRun.ok` is False.

    Examples
    --------
    >>> with PlainProcess(model, threads=1) as plain:  # doctest: +SKIP
    ...     runs = [plain(request) for request in requests]
    """

    def __init__(
        self, model: ModelConfig, threads: int, limit_s: float = LIMIT_S, *, judge: bool = True
    ) -> None:
        self._model = model
        self._threads = threads
        self._limit_s = limit_s
        self._judge = judge
        self._heard: list[str] = []

    def __repr__(self) -> str:
        return f"<PlainProcess {self._model.name}, {self._threads} threads>"

    @property
    def pid(self) -> int:
        """Id of its process."""
        return self._process.pid

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(self._threads)},
        )
        # Drained as it comes: a full pipe would stop the process.
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._watchdog = threading.Timer(self._limit_s, self._process.kill)
        self._watchdog.start()
        job = {
            "model": self._model.model_dump(mode="json"),
            "threads": self._threads,
            "judge": self._judge,
        }
        self._write(json.dumps(job))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            # What was written to a process that has died cannot be flushed.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def __call__(self, request: GenerationRequest) -> PlainRun:
        """Run one request there.

        Raises
        ------
        ElasticDitError
            Where the process has failed or was killed, with its last words.
        """
        assert self._process.stdout is not None
        self._write(request.model_dump_json())
        answer = self._process.stdout.readline()
        if not answer:
            raise ElasticDitError(f"the plain pipeline failed: {self._last_words()}")
        return PlainRun(**json.loads(answer))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        # If it has died, the end of its output tells so, and its last words why.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        self._heard.extend(self._process.stderr)

    def _last_words(self) -> str:
        status = self._process.wait()
        self._listener.join()
        said = "".join(self._heard).strip()
        return said.splitlines()[-1] if said else f"its process ended with status {status}"


def run_plain(
    model: ModelConfig, requests: Iterable[GenerationRequest], threads: int
) -> Iterator[PlainRun]:
    """Run requests through the plain pipeline in a process of its own.

    Parameters
    ----------
    model : ModelConfig
        What to load there.
    requests : iterable of GenerationRequest
        In this order.
    threads : int
        Torch threads there.

    Yields
    ------
    PlainRun
        As soon as each is done. Closing the iterator ends the process.

    Raises
    ------
    ElasticDitError
        As from `PlainProcess`.
    """
    with PlainProcess(model, threads) as plain:
        for request in requests:
            yield plain(request)


def serve() -> None:
    """Read what to load from standard input, then answer request by request."""
    job = json.loads(sys.stdin.readline())
    pipeline = PlainPipeline(ModelConfig.model_validate(job["model"]), job["threads"])
    for line in sys.stdin:
        request = GenerationRequest.model_validate_json(line)
        started = time.perf_counter()
        frames = pipeline(request)
        seconds = time.perf_counter() - started
        judged = judge_result(make_result(frames, request)) if job["judge"] else None
        run = PlainRun(
            request_id=request.request_id,
            ok=judged is not None and judged.ok,
            digest=frames_digest(frames),
            seconds=seconds,
        )
        print(json.dumps(asdict(run)), flush=True)


if __name__ == "__main__":
    serve()
