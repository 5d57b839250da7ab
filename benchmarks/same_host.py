"""Between two processes of one machine: Dask's comm beside shared memory. See README.md.

python benchmarks/same_host.py --json same_host.json
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import click
import distributed
import numpy as np
from distributed.protocol import to_serialize
from pydantic import BaseModel, ConfigDict

from elastic_dit.cli.output import check_json_path, human_console, write_json

_OPERATION = "same_host_fetch"
_MIB = 2**20


class Passage(BaseModel):
    """Buffers of one size."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    bytes: int
    """Size of the buffer."""
    comm_seconds: float
    """From asking another worker for it until it is here; median."""
    shared_memory_seconds: float
    """A block made and filled, opened by name and copied out of; median."""
    ratio: float
    """Shared memory over comm."""


class Report(BaseModel):
    """All of what `--json` writes."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    passages: tuple[Passage, ...]
    """By size, in the order asked for."""


def _offer(dask_worker: distributed.Worker, nbytes: int) -> None:
    """On a worker: answer with a buffer of that size."""
    frames = [np.random.default_rng(0).bytes(nbytes)]

    async def fetch() -> dict[str, Any]:
        return {"status": "OK", "frames": to_serialize(frames)}

    dask_worker.handlers[_OPERATION] = fetch


async def _pull(address: str, repeats: int, dask_worker: distributed.Worker) -> list[float]:
    """On another: fetch it so often."""
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        await getattr(dask_worker.rpc(address), _OPERATION)()
        taken.append(time.perf_counter() - began)
    return taken


def _share(source: np.ndarray[Any, np.dtype[np.uint8]]) -> float:
    """Through a block of shared memory and out again."""
    began = time.perf_counter()
    block = SharedMemory(create=True, size=source.nbytes)
    try:
        block.buf[:] = source.data
        there = SharedMemory(name=block.name)
        bytes(there.buf)
        taken = time.perf_counter() - began
        there.close()
    finally:
        block.close()
        block.unlink()
    return taken


def _passages(sizes: tuple[int, ...], repeats: int) -> Iterator[Passage]:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        source, target = client.scheduler_info()["workers"]
        for nbytes in sizes:
            client.run(_offer, nbytes=nbytes, workers=[source])
            timed = client.run(_pull, source, repeats, workers=[target])[target]
            comm_s = statistics.median(timed)
            buffer = np.random.default_rng(0).integers(0, 255, nbytes, dtype=np.uint8)
            shared_s = statistics.median(_share(buffer) for _ in range(repeats))
            yield Passage(
                bytes=nbytes,
                comm_seconds=comm_s,
                shared_memory_seconds=shared_s,
                ratio=shared_s / comm_s,
            )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--mib", "sizes", multiple=True, type=click.IntRange(1), default=(1, 20, 100))
@click.option("--repeats", type=click.IntRange(1), default=10, show_default=True)
def main(json_path: str | None, sizes: tuple[int, ...], repeats: int) -> None:
    """Buffers from process to process, both ways."""
    check_json_path(json_path)
    report = Report(passages=tuple(_passages(tuple(size * _MIB for size in sizes), repeats)))
    console = human_console(json_path)
    for each in report.passages:
        console.print(
            f"{each.bytes / _MIB:.0f} MiB: comm {each.comm_seconds * 1000:.1f} ms, shared memory "
            f"{each.shared_memory_seconds * 1000:.1f} ms"
        )
    write_json(json_path, report.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
