"""Snapshots of running stages: who keeps copies, who goes on from them, who lets go."""

from __future__ import annotations

from dataclasses import replace

from elastic_dit.events import ArtifactCopied, Command, Release, Replicate, SnapshotKept, StartStage
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef

from .bench import Bench, kinds, only
from .storm import Restless, run_storm

STEPS = 50
EVERY = 10


def denoising(gpus: int = 3) -> Bench:
    """One request in its DiT stage on GPU 0."""
    bench = Bench(prefetch_depth=0, checkpoint_every=EVERY)
    for gpu in range(gpus):
        bench.join(gpu, node=f"n{gpu // 2}")
    bench.submit("r", num_inference_steps=STEPS)
    bench.done("r")
    assert bench.starts["r"].stage is Stage.DIT
    return bench


def keep(bench: Bench, step: int) -> tuple[ArtifactRef, list[Command]]:
    bench.step("r", step)
    snapshot = replace(bench.artifact("r", step), stage=Stage.DIT, digest=f"step {step}")
    bench.made.append(snapshot)
    return snapshot, bench.do(SnapshotKept(**bench.fence("r"), snapshot=snapshot))


def copy(bench: Bench, step: int) -> ArtifactRef:
    """A checkpoint whose copy has arrived."""
    snapshot, commands = keep(bench, step)
    order = only(commands, Replicate)
    assert order.artifact == snapshot
    arrived = replace(snapshot, gpu=order.gpu)
    bench.do(ArtifactCopied(copy=arrived))
    return arrived


def test_another_machine_keeps_the_copy_from_which_a_bereaved_request_goes_on() -> None:
    bench = denoising()
    arrived = copy(bench, EVERY)
    assert arrived.gpu == 2
    bench.step("r", EVERY + 7)
    start = only(bench.lose(0), StartStage)
    assert (start.stage, start.attempt, start.inputs) == (Stage.DIT, 2, (arrived,))
    assert bench.controller.table.live["r"].step == EVERY


def test_older_copies_go_when_newer_ones_are_there_and_all_go_at_the_end() -> None:
    bench = denoising()
    first = copy(bench, EVERY)
    second, commands = keep(bench, 2 * EVERY)
    assert bench.released[first] == 0
    assert only(commands, Replicate).artifact == second
    arrived = replace(second, gpu=only(commands, Replicate).gpu)
    assert only(bench.do(ArtifactCopied(copy=arrived)), Release).artifact == first
    bench.done("r")
    assert bench.released[second] == bench.released[arrived] == 1


def test_what_is_still_under_way_at_the_end_is_called_off_and_heard_of_in_vain() -> None:
    bench = denoising()
    snapshot, commands = keep(bench, EVERY)
    expected = replace(snapshot, gpu=only(commands, Replicate).gpu)
    bench.cancel("r")
    assert bench.released[snapshot] == bench.released[expected] == 1
    assert bench.do(ArtifactCopied(copy=expected)) == []


def test_a_slow_copy_is_waited_for_and_given_up_in_the_end() -> None:
    bench = denoising()
    first, commands = keep(bench, EVERY)
    expected = replace(first, gpu=only(commands, Replicate).gpu)
    for step in (2 * EVERY, 3 * EVERY):
        snapshot, commands = keep(bench, step)
        assert kinds(commands) == ["Release"]
        assert bench.released[snapshot] == 1
    late, commands = keep(bench, 4 * EVERY)
    assert only(commands, Replicate).artifact == late
    assert bench.released[expected] == bench.released[first] == 1


def test_a_copy_that_failed_leaves_the_original() -> None:
    bench = denoising()
    snapshot, commands = keep(bench, EVERY)
    lost = replace(snapshot, gpu=only(commands, Replicate).gpu)
    assert bench.do(ArtifactCopied(copy=lost, failure="no route")) == []
    start = only(bench.failed("r", "MemoryError", retryable=True), StartStage)
    assert start.inputs == (snapshot,)


def test_a_lone_gpu_keeps_its_snapshot_for_itself() -> None:
    bench = denoising(gpus=1)
    _, commands = keep(bench, EVERY)
    assert commands == []


def test_the_original_does_without_its_copy() -> None:
    bench = denoising()
    arrived = copy(bench, EVERY)
    bench.lose(arrived.gpu)
    assert bench.starts["r"].attempt == 1
    _, commands = keep(bench, 2 * EVERY)
    assert only(commands, Replicate).gpu == 1


def test_a_storm_resumes_from_copies() -> None:
    storm = run_storm(11, 1_500, Restless(11))
    assert storm.copies > 5
    assert storm.resumed > 0
