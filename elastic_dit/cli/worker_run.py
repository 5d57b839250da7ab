"""Run the workers of one machine until they end or are told to."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import click
from distributed.compatibility import asyncio_run
from distributed.config import get_loop_factory

from elastic_dit.cli.interrupts import Interrupts
from elastic_dit.cli.worker_launch import Launch, find_scheduler
from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.launch.exposure import kept_local, warn_if_exposed
from elastic_dit.cluster.launch.processes import end_quickly, worker_processes
from elastic_dit.cluster.launch.workers import CONTROL_SUFFIX
from elastic_dit.cluster.plain_errors import hide_known_tracebacks, start_error

__all__ = ["run_workers"]

CLOSE_TIMEOUT_S = 10.0
"""Longest orderly end of a worker process, seconds; then it is killed."""


def run_workers(launch: Launch, interrupts: Interrupts) -> None:
    """Start what `launch` says and return when it has ended.

    Raises
    ------
    SchedulerUnreachable
        Where no scheduler answers in time.
    ClusterError
        Where a worker did not start; the others are closed again.
    """
    hide_known_tracebacks()
    with worker_processes(launch.devices, launch.config):
        asyncio_run(_until_interrupted(launch, interrupts), loop_factory=get_loop_factory())


async def _until_interrupted(launch: Launch, interrupts: Interrupts) -> None:
    crew = _Crew(launch)
    serving = asyncio.create_task(crew.serve())
    interrupted = asyncio.create_task(interrupts.wait())
    try:
        await asyncio.wait({serving, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        if interrupts.fired:
            # Whatever is torn off half-way would tell of it at length.
            logging.disable(logging.CRITICAL)
        await crew.close()
        for task in (serving, interrupted):
            task.cancel()
        await asyncio.gather(serving, interrupted, return_exceptions=True)


class _Crew:
    """The nannies of this process."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._nannies: dict[str, Any] = {}
        self._is_up = False

    async def serve(self) -> None:
        """Start all; return when every engine has left, as at the end of the scheduler."""
        launch = self._launch
        address = await find_scheduler(launch)
        await ensure_control(
            address, security=launch.security, config=launch.config, timeout_s=launch.timeout_s
        )
        warn_if_exposed("The cluster", [address])
        self._nannies = {
            name: entry["cls"](address, **kept_local(address, entry["options"]))
            for name, entry in launch.spec.items()
        }
        await asyncio.gather(*(self._start(name) for name in self._nannies))
        self._is_up = True
        count = len(launch.devices)
        click.echo(f"{count} engine{'s' * (count > 1)} joined {address}", err=True)
        engines = [nanny for name, nanny in self._nannies.items() if CONTROL_SUFFIX not in name]
        await asyncio.gather(*(nanny.finished() for nanny in engines))

    async def _start(self, name: str) -> None:
        try:
            await self._nannies[name]
        except Exception as error:
            raise start_error(name, error) from None

    async def close(self) -> None:
        """End every process, orderly if it can be had in time."""
        reason = "elastic-dit-worker ends"
        if not self._is_up:
            await end_quickly(self._nannies.values())
        await asyncio.gather(
            *(
                nanny.close(timeout=CLOSE_TIMEOUT_S, reason=reason)
                for nanny in self._nannies.values()
            ),
            return_exceptions=True,
        )
