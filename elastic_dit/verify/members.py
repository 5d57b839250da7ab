"""The processes of a verification, one for each GPU, and how they are ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing import connection, resource_tracker
from typing import Any

from elastic_dit.cluster.launch.fork_server import fork_server
from elastic_dit.errors import ClusterError, ElasticDitError
from elastic_dit.state import GpuId
from elastic_dit.verify.jobs import CANCEL, MemberSettings

__all__ = ["Members"]

END_S = 5.0
"""Longest wait for a process that was killed, seconds."""
_LEAST_S = 0.001
"""Shortest limit that can be set for a pipe, seconds: 0 means none."""


class Members:
    """One process for each GPU; within its context, and never after it.

    Parameters
    ----------
    settings : sequence of MemberSettings
        One for each process.

    Notes
    -----
    On CPUs they are forked from a server that has imported what is slow. On GPUs they are
    spawned, as a CUDA context does not survive a fork. They ignore Ctrl-C, which is their
    parent's business, and end by themselves when it is gone.
    """

    def __init__(self, settings: Sequence[MemberSettings]) -> None:
        self._settings = settings
        self._processes: dict[GpuId, Any] = {}
        self._pipes: dict[GpuId, connection.Connection] = {}

    def __repr__(self) -> str:
        return f"<Members {', '.join(map(str, self._pipes))}>"

    def __enter__(self) -> Members:
        on_cpu = all(each.device == "cpu" for each in self._settings)
        server: AbstractContextManager[None] = fork_server() if on_cpu else nullcontext()
        method = "forkserver" if on_cpu else "spawn"
        self._server = server
        server.__enter__()
        try:
            for each in self._settings:
                self._start(multiprocessing.get_context(method), each)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, jobs: Mapping[GpuId, Sequence[Any]], limit_s: float) -> dict[GpuId, list[Any]]:
        """Give jobs to members and wait for all answers.

        Once one member fails, the others are told to give up.

        Parameters
        ----------
        jobs : mapping of int to sequence of jobs
            By GPU, in their order.
        limit_s : float
            Longest wait for all, seconds.

        Returns
        -------
        dict of int to list
            An answer for each job.

        Raises
        ------
        ClusterError
            Where a process ended or did not answer in time; no member is of use after that.
        ElasticDitError
            The first that a member answered; all can take further jobs.
        """
        deadline_s = time.monotonic() + limit_s
        for gpu, each in jobs.items():
            for job in each:
                self._send(gpu, job, deadline_s)
        answers: dict[GpuId, list[Any]] = {gpu: [] for gpu in jobs}
        failure: ElasticDitError | None = None
        while missing := [gpu for gpu in jobs if len(answers[gpu]) < len(jobs[gpu])]:
            for gpu in self._ready(missing, deadline_s):
                well, answer = self._receive(gpu, deadline_s)
                answers[gpu].append(answer)
                if not well and failure is None:
                    failure = answer
                    self._cancel(jobs, deadline_s)
        if failure is not None:
            raise failure
        return answers

    def _cancel(self, gpus: Iterable[GpuId], deadline_s: float) -> None:
        for gpu in gpus:
            self._send(gpu, CANCEL, deadline_s)

    def _start(self, context: Any, settings: MemberSettings) -> None:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_child, args=(theirs, settings), name=f"GPU {settings.gpu}", daemon=True
        )
        self._pipes[settings.gpu] = ours
        with _sigint_blocked():
            process.start()
        self._processes[settings.gpu] = process
        theirs.close()

    def _ready(self, gpus: Iterable[GpuId], deadline_s: float) -> list[GpuId]:
        waiting = {self._pipes[gpu]: gpu for gpu in gpus}
        ready = connection.wait(list(waiting), max(0.0, deadline_s - time.monotonic()))
        if not ready:
            late = ", ".join(map(str, waiting.values()))
            raise ClusterError(f"no answer in time from the processes of GPU {late}")
        return [waiting[pipe] for pipe in ready if isinstance(pipe, connection.Connection)]

    def _receive(self, gpu: GpuId, deadline_s: float) -> tuple[bool, Any]:
        with self._using(gpu, deadline_s) as pipe:
            answer: tuple[bool, Any] = pipe.recv()
        return answer

    def _send(self, gpu: GpuId, message: Any, deadline_s: float) -> None:
        with self._using(gpu, deadline_s) as pipe:
            pipe.send(message)

    @contextmanager
    def _using(self, gpu: GpuId, deadline_s: float) -> Iterator[connection.Connection]:
        """A member's pipe, on which nothing blocks for longer than there is time."""
        pipe = self._pipes[gpu]
        try:
            _limit(pipe, max(_LEAST_S, deadline_s - time.monotonic()))
            yield pipe
        except BlockingIOError:
            raise ClusterError(f"the process of GPU {gpu} has stopped reading or telling") from None
        except (EOFError, OSError):
            raise ClusterError(f"the process of GPU {gpu} ended") from None

    def _end(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.join(END_S)
        self._server.__exit__(None, None, None)


def _limit(pipe: connection.Connection, seconds: float) -> None:
    """Let a single read or write of a pipe, which is a pair of sockets, take that long at most."""
    whole, rest = divmod(seconds, 1.0)
    timeval = struct.pack("ll", int(whole), int(rest * 1e6))
    with socket.socket(fileno=os.dup(pipe.fileno())) as same:
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            same.setsockopt(socket.SOL_SOCKET, option, timeval)


@contextmanager
def _sigint_blocked() -> Iterator[None]:
    """What is started within never hears Ctrl-C, not even in the midst of its imports."""
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _child(pipe: connection.Connection, settings: MemberSettings) -> None:
    # locks of libraries, such as tqdm's, then need no cleaning up after a process that is killed
    multiprocessing.set_start_method("fork", force=True)
    from elastic_dit.verify.member import serve

    with suppress(BrokenPipeError):  # the parent was gone before an answer
        serve(pipe, settings)
