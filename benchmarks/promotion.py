"""What does a change of the degree of parallelism cost, against a step? See README.md beside this.

python benchmarks/promotion.py --json promotion.json
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Literal

import click
import torch
from pydantic import BaseModel, ConfigDict

from elastic_dit import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.engine.group_store import GroupStore, connect
from elastic_dit.engine.groups import Group, GroupKey, GroupTable
from elastic_dit.engine.payload import payload_nbytes
from elastic_dit.engine.protocol import Boundary, ModelSource
from elastic_dit.engine.session import Session
from elastic_dit.engine.state_transfer import broadcast_state
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.request import GenerationRequest, Stage, StageKey

PROMPT = "a red circle moving left on a black background"
MODEL = "shapes"
CPU = torch.device("cpu")
LIMIT_S = 300.0
"""Longest wait for one process, seconds."""
PRODUCTION_BYTES = 41_900_000
"""State of a 480p clip of 81 frames under a second-order sampler, with both texts."""
SIZES_BYTES = (1_000_000, 10_000_000, PRODUCTION_BYTES)
FORK = multiprocessing.get_context("fork")  # members share the import of torch


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Degree(_Report):
    """What a group of this size costs; medians over the repeats, as the master sees them."""

    dop: int
    """Members."""
    first_seconds: float
    """Forming a group of members that never had one."""
    cached_seconds: float
    """Finding a group that exists."""
    switch_seconds: float
    """Pointing the model at another group."""
    state_bytes: int
    """Size of the request's own state, which joiners are sent."""
    state_seconds: float
    """Sending it."""
    sized_seconds: dict[int, float]
    """Sending states of other sizes, by bytes."""
    step_seconds: float
    """One denoising step at this degree."""
    spread_seconds: dict[str, tuple[float, float]]
    """Lower and upper quartile of `first`, `cached`, `switch`, `state` and `step`, and of the
    states of other sizes by their bytes."""
    ratios: dict[str, float]
    """The median of each of these over a step at degree 1."""
    promotion_ratio: float
    """First group, state and switch together, over a step at degree 1."""
    repeated_ratio: float
    """The same with the group cached."""


class PromotionReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    backend: str
    """What carried the tensors."""
    cpus: int
    """CPU cores this process may use; with fewer than members, they wait for each other."""
    size: str
    """`WIDTHxHEIGHT`, pixels."""
    frames: int
    """Frames."""
    step_seconds: float
    """One denoising step on one virtual GPU."""
    degrees: tuple[Degree, ...]
    """Every degree."""


class Member:
    """One process that is a virtual GPU."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self._ours, theirs = FORK.Pipe()
        self._process = FORK.Process(target=_child, args=(theirs, function, args), daemon=True)
        self._process.start()

    def result(self) -> Any:
        """What the function returned."""
        if not self._ours.poll(LIMIT_S):
            raise click.ClickException("a member gave no answer in time")
        ok, answer = self._ours.recv()
        if not ok:
            raise click.ClickException(answer)
        return answer

    def end(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.join(LIMIT_S)


def _child(pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    try:
        pipe.send((True, function(*args)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
    pipe.poll(LIMIT_S)  # others may still need this member


@contextmanager
def _store() -> Iterator[str]:
    """Address of a store in a process of its own."""
    kept: list[GroupStore] = []

    def host() -> str:
        kept.append(GroupStore())
        return kept[0].address

    process = Member(host)
    try:
        yield process.result()
    finally:
        process.end()


def _timed(function: Callable[[], Any]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _member(
    address: str, gpu: int, dop: int, engine: TorchEngine, inputs: Any, request: Any, repeats: int
) -> dict[str, list[float]]:
    """All measurements of one degree at one member; all members take part in each."""
    table = GroupTable(connect(address), gpu, device=CPU, timeout_s=LIMIT_S)
    parallel = engine.parallel(MODEL)
    members = tuple(range(dop))
    first_s: list[float] = []
    cached_s: list[float] = []
    switch_s: list[float] = []
    state_s: list[float] = []
    step_s: list[float] = []
    session = _again(engine, request, inputs)
    state = session.snapshot()
    group: Group | None = None
    for epoch in range(repeats):
        key = GroupKey(members, epoch)
        if group is not None:
            _meet(group)
        first_s.append(_timed(partial(table.get, key)))
        cached_s.append(_timed(partial(table.get, key)))
        group = table.get(key)
        _meet(group)
        state_s.append(_timed(partial(broadcast_state, group, state, 0)))
        switch_s.append(_timed(partial(parallel.use, group)))
        _meet(group)
        step_s.append(_timed(session.step))
        parallel.use(None)
        session = _again(engine, request, inputs)
    assert group is not None
    sized = {str(size): _sized(group, size, repeats) for size in SIZES_BYTES}
    taken = {"first": first_s, "cached": cached_s, "switch": switch_s, "state": state_s}
    return {**taken, "step": step_s, **sized}


def _again(engine: TorchEngine, request: GenerationRequest, inputs: Any) -> Session:
    session = engine.session(request)
    session.begin(inputs)
    return session


def _meet(group: Group) -> None:
    """Wait until all members are here, so that nobody's lateness is measured."""
    group.all_gather(torch.zeros(1), [1] * group.size)


def _sized(group: Group, size: int, repeats: int) -> list[float]:
    state = {"state": torch.zeros(size, dtype=torch.uint8)}
    seconds = []
    for _ in range(repeats):
        _meet(group)
        seconds.append(_timed(partial(broadcast_state, group, state, 0)))
    return seconds


def _quartiles(seconds: list[float]) -> tuple[float, float]:
    if len(seconds) == 1:
        return seconds[0], seconds[0]
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return low, high


class _Undisturbed:
    """A context that lets a stage run to its end."""

    def boundary(self, step: int, total_steps: int) -> Any:
        assert step <= total_steps
        return Boundary.CONTINUE

    def aborted(self) -> bool:
        return False


def measure(size: int, frames: int, degrees: tuple[int, ...], repeats: int) -> PromotionReport:
    """Time each degree with processes of its own."""
    torch.set_num_threads(1)
    engine = TorchEngine([ModelSource(name=MODEL, path=f"embedded:{MODEL}")], "cpu")
    for stage in (Stage.ENCODER, Stage.DIT):
        engine.load(StageKey(MODEL, stage))
    options: dict[str, Any] = {
        "prompt": PROMPT, "width": size, "height": size, "num_frames": frames,
    }  # fmt: skip
    card = engine.card(MODEL)
    options["num_inference_steps"] = repeats + 1  # one to warm up
    request = card.complete({**options, "seed": 0, "request_id": "promotion"})
    card.check(request)
    encoded = engine.run(Stage.ENCODER, request, None, _Undisturbed())
    session = _again(engine, request, encoded.payload)
    session.step()
    alone_s = statistics.median(_timed(session.step) for _ in range(repeats))
    state_bytes = payload_nbytes(session.snapshot())
    return PromotionReport(
        software=f"elastic-dit {__version__}",
        backend="gloo",
        cpus=len(os.sched_getaffinity(0)),
        size=f"{size}x{size}",
        frames=frames,
        step_seconds=alone_s,
        degrees=tuple(
            _degree(dop, engine, encoded.payload, request, repeats, alone_s, state_bytes)
            for dop in degrees
        ),
    )


def _degree(
    dop: int,
    engine: TorchEngine,
    inputs: Any,
    request: GenerationRequest,
    repeats: int,
    alone_s: float,
    state_bytes: int,
) -> Degree:
    with _store() as address:
        started = [
            Member(_member, address, gpu, dop, engine, inputs, request, repeats)
            for gpu in range(dop)
        ]
        try:
            taken, *_ = [member.result() for member in started]
        finally:
            for member in started:
                member.end()
    master = {name: statistics.median(seconds) for name, seconds in taken.items()}
    repeated_s = master["cached"] + master["state"] + master["switch"]
    return Degree(
        dop=dop,
        first_seconds=master["first"],
        cached_seconds=master["cached"],
        switch_seconds=master["switch"],
        state_bytes=state_bytes,
        state_seconds=master["state"],
        sized_seconds={size: master[str(size)] for size in SIZES_BYTES},
        step_seconds=master["step"],
        spread_seconds={name: _quartiles(seconds) for name, seconds in taken.items()},
        ratios={name: seconds / alone_s for name, seconds in master.items()},
        promotion_ratio=(repeated_s + master["first"] - master["cached"]) / alone_s,
        repeated_ratio=repeated_s / alone_s,
    )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--repeats", type=click.IntRange(min=1), default=15, show_default=True)
@click.option("--size", type=click.IntRange(min=16), default=96, show_default=True)
@click.option("--frames", type=click.IntRange(min=1), default=17, show_default=True)
@click.option("--dop", "degrees", type=click.IntRange(min=2), multiple=True, default=(2, 4))
def main(
    json_path: str | None, repeats: int, size: int, frames: int, degrees: tuple[int, ...]
) -> None:
    """Cost of a promotion: group, state and switch, against a denoising step."""
    check_json_path(json_path)
    report = measure(size, frames, degrees, repeats)
    console = human_console(json_path)
    console.print(f"a step alone: {report.step_seconds * 1000:.1f} ms")
    for each in report.degrees:
        console.print(
            f"degree {each.dop}: group {each.first_seconds * 1000:.2f} ms first, "
            f"{each.cached_seconds * 1e6:.0f} us cached; "
            f"state of {each.state_bytes} bytes {each.state_seconds * 1000:.2f} ms; "
            f"switch {each.switch_seconds * 1e6:.0f} us; "
            f"promotion {each.promotion_ratio:.3f} of a step, repeated {each.repeated_ratio:.3f}"
        )
        for size_bytes, seconds in each.sized_seconds.items():
            console.print(f"  {size_bytes / 1e6:.1f} MB in {seconds * 1000:.1f} ms")
    write_json(json_path, report.model_dump_json(indent=2))


if __name__ == "__main__":
    main()
