"""What rivals.py does to each side, in a process of its own with all that the side starts.

Load, timing, faults and memory are the same code for all.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import psutil
from rival_sides import LIMIT_S, START_LIMIT_S, Setting, Side, make_side

from elastic_dit.catalog import ModelCard
from elastic_dit.errors import ElasticDitError
from elastic_dit.request import GenerationRequest

_LOOK_S = 0.1
"""Seconds between two looks at processes, for nobody tells when one is back."""
_BUSY_LOOK_S = 0.3
"""Seconds over which it is seen which process computes."""
_TRIES = 4
"""Kills until one is in time."""


@dataclass(frozen=True)
class Answer:
    """One request, from its submission until its frames are an array at the client."""

    seconds: float
    digest: str


@dataclass(frozen=True)
class Memory:
    """Of a side's processes all together, bytes; PSS counts a page that several share once."""

    processes: int
    rss_bytes: int
    pss_bytes: int


@dataclass(frozen=True)
class Load:
    """Requests with always as many of them under way."""

    seconds: float
    latencies_s: tuple[float, ...]
    memory: Memory


@dataclass(frozen=True)
class Recovery:
    """What followed on `kill -9` of the process that was at work."""

    undisturbed_s: float
    answered_s: float
    restored_s: float
    resubmitted: int
    identical: bool


class Bench:
    """What is done to a side, inside its process."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def one(self, request: GenerationRequest) -> Answer:
        """One request, alone."""
        began = time.perf_counter()
        digest = self._side.answer(request)
        return Answer(time.perf_counter() - began, digest)

    def load(self, requests: list[GenerationRequest], at_once: int) -> Load:
        """Requests in their order, always `at_once` of them under way."""
        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            answers = list(pool.map(self.one, requests))
        seconds = time.perf_counter() - began
        return Load(seconds, tuple(answer.seconds for answer in answers), memory_of_tree())

    def kill(self, request: GenerationRequest) -> Recovery:
        """Kill who is at work when half of the request's time is over; it is sent again if lost.

        Where the machine was so much quicker this time that the answer was there before the kill,
        the whole is done again.
        """
        undisturbed = self.one(request)
        for _ in range(_TRIES):
            recovery = self._kill_once(request, undisturbed)
            if recovery.answered_s > 0:
                return recovery
            undisturbed = min(undisturbed, self.one(request), key=lambda answer: answer.seconds)
        raise TimeoutError(f"answered before the kill, {_TRIES} times")

    def _kill_once(self, request: GenerationRequest, undisturbed: Answer) -> Recovery:
        before = self._side.workers()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self._insist, request)
            time.sleep(undisturbed.seconds / 2)  # no side but ours tells how far it is
            victim = _busiest(before)
            victim.kill()
            killed = time.perf_counter()
            restored_s = self._wait_restored(victim.pid, len(before), killed)
            ended, digest, resubmitted = answer.result(LIMIT_S)
        return Recovery(
            undisturbed.seconds,
            ended - killed,
            restored_s,
            resubmitted,
            digest == undisturbed.digest,
        )

    def _insist(self, request: GenerationRequest) -> tuple[float, str, int]:
        """As a client would that wants its answer."""
        limit = time.perf_counter() + LIMIT_S
        resubmitted = 0
        while True:
            try:
                digest = self._side.answer(request)
                return time.perf_counter(), digest, resubmitted
            except Exception:  # of three libraries, each with its own errors
                if time.perf_counter() > limit:
                    raise
                resubmitted += 1
                time.sleep(_LOOK_S)

    def _wait_restored(self, victim: int, count: int, since: float) -> float:
        while time.perf_counter() < since + LIMIT_S:
            workers = self._side.workers()
            if victim not in workers and len(workers) >= count and self._side.complete():
                return time.perf_counter() - since
            time.sleep(_LOOK_S)
        raise TimeoutError(f"process {victim} was not replaced within {LIMIT_S:g} s")


def _busiest(pids: set[int]) -> psutil.Process:
    """Who computes: the process that takes most of the CPU for a moment."""
    processes = [psutil.Process(pid) for pid in pids]
    for process in processes:
        process.cpu_percent()
    time.sleep(_BUSY_LOOK_S)
    return max(processes, key=lambda process: process.cpu_percent())


def memory_of_tree() -> Memory:
    """Of this process and all its descendants."""
    root = psutil.Process()
    rss, pss, count = 0, 0, 0
    for process in (root, *root.children(recursive=True)):
        try:
            full = process.memory_full_info()
        except psutil.Error:  # it has just ended
            continue
        rss, pss, count = rss + full.rss, pss + full.pss, count + 1
    return Memory(count, rss, pss)


class SideProcess:
    """A side in a process of its own; a context manager. Its calls are those of `Bench`."""

    def __init__(self, name: str, setting: Setting) -> None:
        self.name = name
        self._here, there = get_context("spawn").Pipe()
        self._process = get_context("spawn").Process(target=_serve, args=(there, name, setting))
        self._there = there

    def __repr__(self) -> str:
        return f"<SideProcess {self.name}>"

    def __enter__(self) -> Self:
        self._process.start()
        self._there.close()
        self._receive()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._here.close()  # which ends its loop
        self._process.join(LIMIT_S / 4)
        if self._process.is_alive():
            root = psutil.Process(self._process.pid)
            for process in (*root.children(recursive=True), root):
                process.kill()
        self._process.join()

    def __call__(self, method: str, *arguments: Any) -> Any:
        """Call a method of its `Bench`.

        Raises
        ------
        ElasticDitError
            Where that failed, or the process died.
        """
        self._here.send((method, arguments))
        return self._receive()

    def _receive(self) -> Any:
        if not self._here.poll(START_LIMIT_S):
            raise ElasticDitError(f"{self.name} did not answer within {START_LIMIT_S:g} s")
        try:
            ok, value = self._here.recv()
        except (EOFError, ConnectionError):
            raise ElasticDitError(f"{self.name}: its process has died") from None
        if not ok:
            raise ElasticDitError(f"{self.name}: {value}")
        return value


def _serve(connection: Connection, name: str, setting: Setting) -> None:
    """Process of a side: start it, then answer calls until the other end is closed."""
    os.dup2(2, 1)  # standard output is for the report; libraries greet there
    try:
        side = make_side(name, setting)
    except Exception as error:
        connection.send((False, f"{type(error).__name__}: {error}"))
        return
    with closing(side), suppress(EOFError, ConnectionError, KeyboardInterrupt):
        bench = Bench(side)
        connection.send((True, None))
        while True:
            method, arguments = connection.recv()
            try:
                answer = (True, getattr(bench, method)(*arguments))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            connection.send(answer)


def requests_of(
    card: ModelCard, shapes: list[dict[str, int]], count: int, first_seed: int
) -> list[GenerationRequest]:
    """A mix: the shapes in turn, each request with a seed of its own."""
    return [
        card.complete(
            {
                "prompt": "a red circle moving left on a black background",
                **shapes[index % len(shapes)],
                "seed": first_seed + index,
                "request_id": f"rival-{first_seed + index}",
            }
        )
        for index in range(count)
    ]
