"""Requests and results that outlive the cluster, over restarts inside the test's process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from distributed import Scheduler
from distributed.utils_test import gen_test

from elastic_dit.cluster.launch.bootstrap import ensure_control
from elastic_dit.cluster.plane.file_calls import FileCalls
from elastic_dit.cluster.plane.keeper import RequestKeeper
from elastic_dit.cluster.refusals import raise_refusal
from elastic_dit.config import Config
from elastic_dit.engine.fake import FAKE_CARD, FakeEngine, FakeFailure, FakeSeconds, fake_frames
from elastic_dit.errors import (
    ClusterError,
    ConfigError,
    GenerationCancelled,
    GenerationFailed,
    JournalError,
    RequestConflict,
    ResultGone,
    UnknownRequest,
)
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.journal.entry import Accepted, Started
from elastic_dit.journal.sqlite import SqliteJournal
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.cluster.conditions import eventually
from tests.cluster.serving import QUICK, connect, serving
from tests.journal.bench import make_entry

pytestmark = pytest.mark.cluster

FOREVER = 60.0


def durable(tmp_path: Path, **journal: object) -> Config:
    section = {"path": str(tmp_path / "journal.sqlite"), **journal}
    return Config.parse({**QUICK.model_dump(exclude={"journal"}), "journal": section})


class Counting(FakeEngine):
    """Counts the decodes it begins."""

    decodes: Counter[str]

    def run(self, stage, request, *args):
        if stage is Stage.DECODER:
            self.decodes[request.request_id] += 1
        return super().run(stage, request, *args)


def counting(decodes, **seconds):
    def make():
        engine = Counting(seconds=FakeSeconds(**seconds))
        engine.decodes = decodes
        return engine

    return make


@contextlib.asynccontextmanager
async def life(config, engines=1, make=FakeEngine):
    """One life of the cluster, and a client."""
    async with serving(engines, config=config, make=make) as cluster, connect(cluster) as client:
        yield cluster, client


# ----------------------------------------------------------------------------------- restarts
@gen_test(timeout=90)
async def test_what_waited_or_ran_runs_again_and_what_had_finished_is_there(tmp_path):
    config, decodes = durable(tmp_path), Counter()
    async with life(config, 2, counting(decodes, step=0.01)) as (cluster, client):
        done = await client.submit("a circle", request_id="done", seed=1)
        video = await done
        await eventually(lambda: not cluster.control.reactor.controller.table.live)
    async with life(config, 2, counting(decodes, step=0.3)) as (cluster, client):
        futures = [await client.submit("a circle", request_id=f"r{i}") for i in range(6)]
        requests = [future.request for future in futures]
        await eventually(lambda: futures[0].progress().phase is Phase.DENOISING)
    async with life(config, 2, counting(decodes)) as (cluster, client):
        kept = await client.future("done")
        assert np.array_equal((await kept).frames, video.frames)
        assert (await kept).records == video.records
        assert kept.request == video.request
        for request in requests:
            again = await client.future(request.request_id)
            assert again.request == request
            assert np.array_equal((await again).frames, fake_frames(request))
        status = await client.status_of("r0")
        assert (status.phase, status.has_result) == (Phase.COMPLETED, True)
        assert status.progress.attempt == 2
        assert status.expires_at == status.finished_at + config.journal.ttl_s
    assert decodes == dict.fromkeys(("done", *(f"r{i}" for i in range(6))), 1)


@gen_test(timeout=90)
async def test_a_result_without_its_end_is_taken_for_the_end(tmp_path):
    config = durable(tmp_path)
    async with life(config) as (cluster, client):
        video = await (await client.submit("a circle", request_id="r1"))
        await cluster.control.reactor.keeper.settled("r1")
    # As if everything had been killed right after the result's file was written.
    journal = SqliteJournal(config.journal.path)
    entry = journal.find(["r1"])["r1"]
    unfinished = make_entry("r1", prompt="a circle")
    journal.apply([Accepted(unfinished.__class__(request=entry.request, accepted_at=1.0))])
    journal.apply([Started("r1", 1, Stage.DECODER)])
    journal.close()
    decodes = Counter()
    async with life(config, 1, counting(decodes)) as (_, client):
        again = await (await client.future("r1"))
        assert np.array_equal(again.frames, video.frames)
        assert [record.stage for record in again.records] == list(Stage)
    assert not decodes


@gen_test(timeout=90)
async def test_a_request_that_takes_the_cluster_down_again_and_again_is_failed(tmp_path):
    config = durable(tmp_path)
    journal = SqliteJournal(config.journal.path)
    journal.apply([Accepted(make_entry("bad", model="fake", num_frames=5))])
    for attempt in range(1, config.control.max_attempts):
        journal.apply([Started("bad", attempt, Stage.DECODER)])
        journal.begin_life()
    journal.apply([Started("bad", 9, Stage.DECODER)])
    journal.close()
    async with life(config) as (_, client):
        with pytest.raises(GenerationFailed, match="went down 3 times while it ran") as caught:
            await (await client.future("bad"))
        assert (caught.value.stage, caught.value.attempts) == ("decoder", 9)


@gen_test(timeout=90)
async def test_a_damaged_picture_fails_its_request_and_no_other(tmp_path, caplog):
    def needs_picture():
        return FakeEngine([FAKE_CARD.model_copy(update={"needs_image": True})])

    config, image = durable(tmp_path), InputImage.of(sample_image(96, 48))
    journal = SqliteJournal(config.journal.path)
    names = ("first", "bad", "last")
    journal.apply([Accepted(make_entry(n, model="fake", image=image.data)) for n in names])
    journal.close()
    with contextlib.closing(sqlite3.connect(config.journal.path)) as rows, rows:
        rows.execute("UPDATE requests SET picture = x'00' WHERE request_id = 'bad'")
    async with life(config, 1, needs_picture) as (_, client):
        with pytest.raises(GenerationFailed, match="its picture is damaged") as caught:
            await (await client.future("bad"))
        assert (caught.value.stage, caught.value.error_type) == ("encoder", "JournalError")
        for name in ("first", "last"):
            future = await client.future(name)
            assert np.array_equal((await future).frames, fake_frames(future.request))
        assert (await client.status_of("bad")).phase is Phase.FAILED
    assert "Request bad cannot go on: JournalError: its picture is damaged" in caplog.text


# -------------------------------------------------------------------------------- idempotency
@gen_test(timeout=90)
async def test_the_same_id_and_body_is_the_same_job_in_every_life(tmp_path):
    config, decodes = durable(tmp_path), Counter()
    async with life(config, 1, counting(decodes, step=0.01)) as (_, client):
        first, second = await asyncio.gather(
            *(client.submit("a circle", request_id="r1") for _ in range(2))
        )
        video, same = await client.gather([first, second])
        assert first.request == second.request == video.request == same.request
        del first, second  # nobody holds it: it is read from its file
        third = await client.submit("a circle", request_id="r1")
        assert np.array_equal((await third).frames, video.frames)
        with pytest.raises(RequestConflict, match="prompt"):
            await client.submit("a square", request_id="r1")
    async with life(config, 1, counting(decodes)) as (_, client):
        with pytest.raises(RequestConflict, match="num_inference_steps"):
            await client.submit("a circle", request_id="r1", num_inference_steps=3)
        fourth = await client.submit("a circle", request_id="r1")
        assert fourth.request == video.request
        assert np.array_equal((await fourth).frames, video.frames)
    assert decodes == {"r1": 1}


@gen_test(timeout=90)
async def test_failed_and_cancelled_jobs_stay_so(tmp_path):
    def failing():
        error = FakeFailure(stage=Stage.DIT, request_id="bad", error=ValueError("no red"))
        return FakeEngine(failures=[error], seconds=FakeSeconds(decoder=FOREVER))

    config = durable(tmp_path)
    async with life(config, 1, failing) as (_, client):
        bad = await client.submit("a circle", request_id="bad")
        with pytest.raises(GenerationFailed, match="no red"):
            await bad
        off = await client.submit("a circle", request_id="off")
        assert await off.cancel("enough")
    async with life(config) as (cluster, client):
        for question in (client.future, lambda name: client.submit("a circle", request_id=name)):
            with pytest.raises(GenerationFailed, match="no red"):
                await (await question("bad"))
            with pytest.raises(GenerationCancelled, match="enough"):
                await (await question("off"))
        assert (await client.status_of("off")).reason == "enough"
        await cluster.is_clean()


# ------------------------------------------------------------------------- clients and workers
@gen_test(timeout=90)
async def test_a_durable_job_outlives_its_client(tmp_path):
    config = durable(tmp_path)
    async with serving(1, config=config, make=counting(Counter(), step=0.02)) as cluster:
        async with connect(cluster) as client:
            future = await client.submit("a circle", request_id="r1")
            request = future.request
        async with connect(cluster) as client:
            assert np.array_equal((await (await client.future("r1"))).frames, fake_frames(request))
        await cluster.is_clean()


@gen_test(timeout=90)
async def test_nothing_is_kept_for_a_client_that_has_left(tmp_path):
    async with life(durable(tmp_path)) as (cluster, client):
        await (await client.submit("a circle", request_id="r1"))
        await eventually(lambda: "r1" not in cluster.scheduler.tasks)
        desk = cluster.control.desk
        submitted = desk.submit([{"request_id": "r2", "prompt": "a circle"}], "gone", 1.0, 10.0)
        for answer in (await desk.join("r1", "gone"), await submitted):
            with pytest.raises(ClusterError, match="client gone left"):
                raise_refusal(answer)
        assert "gone" not in cluster.scheduler.clients
        assert not cluster.scheduler.tasks.keys() & {"r1", "r2"}
        assert not cluster.control.reactor.controller.table.live


@gen_test(timeout=90)
async def test_a_kept_result_outlives_its_worker(tmp_path):
    decodes = Counter()
    async with life(durable(tmp_path), 2, counting(decodes)) as (cluster, client):
        future = await client.submit("a circle", request_id="r1")
        await eventually(future.done)
        [holder] = cluster.scheduler.tasks["r1"].who_has
        [worker] = [w for w in cluster.workers if w.address == holder.address]
        await worker.close()
        assert np.array_equal((await future).frames, fake_frames(future.request))
        assert future.progress().attempt == 1
    assert decodes == {"r1": 1}


@gen_test(timeout=90)
async def test_a_result_that_is_dropped_and_wanted_again_is_not_freed_anew(tmp_path, monkeypatch):
    async with life(durable(tmp_path)) as (cluster, client):
        future = await client.submit("a circle", request_id="r1")
        video = await future
        await cluster.control.reactor.keeper.settled("r1")
        [worker], freed = cluster.workers, asyncio.Event()
        stream = cluster.scheduler.stream_comms[worker.address]
        free = worker.stream_handlers["free-keys"]
        late = functools.partial(asyncio.get_running_loop().call_later, 0.3, stream.send)
        monkeypatch.setattr(stream, "send", late)

        def freeing(**message):
            free(**message)
            freed.set()

        worker.stream_handlers["free-keys"] = freeing
        del future  # Dask tells the worker to free it, which hears of that late
        again = await client.submit("a circle", request_id="r1")
        await freed.wait()
        assert np.array_equal((await again).frames, video.frames)


@gen_test(timeout=90)
async def test_a_deleted_result_is_said_to_be_gone_and_can_be_made_again(tmp_path):
    config = durable(tmp_path)
    async with life(config) as (cluster, client):
        await (await client.submit("a circle", request_id="r1"))
        await eventually(lambda: "r1" not in cluster.scheduler.tasks)
        [file] = tmp_path.rglob("*.safetensors")
        file.unlink()
        with pytest.raises(ResultGone, match="r1"):
            await (await client.future("r1"))
        again = await client.submit("a circle", request_id="r1")
        assert np.array_equal((await again).frames, fake_frames(again.request))
        assert file.exists()


# --------------------------------------------------------------------------------- the medium
@gen_test(timeout=90)
async def test_nothing_is_accepted_that_cannot_be_written_down(tmp_path):
    async with life(durable(tmp_path), 1, counting(Counter(), step=FOREVER)) as (cluster, client):
        keeper = cluster.control.reactor.keeper
        await keeper.ready()

        def full(changes):
            raise JournalError("journal", "disk full")

        keeper._journal._journal.apply = full
        with pytest.raises(JournalError, match="disk full"):
            await client.submit("a circle", request_id="r1")
        await eventually(lambda: not cluster.control.reactor.controller.table.live)
        del keeper._journal._journal.apply
        assert await client.submit("a circle", request_id="r1")


@gen_test(timeout=90)
async def test_a_journal_in_use_is_told_to_whoever_brings_the_settings(tmp_path):
    config = durable(tmp_path)
    other = SqliteJournal(config.journal.path)
    with pytest.raises(JournalError, match="in use by another control plane"):
        async with serving(0, config=config):
            pass
    async with Scheduler(
        host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0"
    ) as scheduler:
        for _ in range(2):
            with pytest.raises(JournalError):
                await ensure_control(scheduler.address, config=config)
        other.close()
        await ensure_control(scheduler.address, config=config)


@gen_test(timeout=90)
async def test_a_place_for_results_that_nobody_knows_is_refused_each_time(tmp_path):
    config = durable(tmp_path, results="gopher://x")
    async with Scheduler(
        host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0"
    ) as scheduler:
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"journal\.results"):
                await ensure_control(scheduler.address, config=config)
            await ensure_control(scheduler.address)


@gen_test(timeout=90)
async def test_a_result_that_cannot_be_kept_is_given_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("elastic_dit.cluster.plane.file_calls.BACKOFF_S", 0.01)
    (tmp_path / "file").write_text("no folder")
    config = durable(tmp_path, results=str(tmp_path / "file"))
    async with life(config) as (cluster, client):
        video = await (await client.submit("a circle", request_id="r1"))
        assert np.array_equal(video.frames, fake_frames(video.request))
        assert not (await client.status_of("r1")).has_result
        await eventually(lambda: "r1" not in cluster.scheduler.tasks)
        with pytest.raises(ResultGone, match="none was kept"):
            await client.future("r1")


@gen_test(timeout=90)
async def test_what_is_forgotten_while_its_end_is_written_leaves_no_file(tmp_path, monkeypatch):
    may_write, keep, settled = asyncio.Event(), FileCalls.keep, RequestKeeper.settled

    async def late(self, command):
        await may_write.wait()
        return await keep(self, command)

    async def waits(self, request_id):
        may_write.set()
        await settled(self, request_id)

    monkeypatch.setattr(FileCalls, "keep", late)
    monkeypatch.setattr(RequestKeeper, "settled", waits)
    async with life(durable(tmp_path)) as (cluster, client):
        await client.submit("a circle", request_id="r1")
        await eventually(lambda: "r1" in cluster.control.reactor.controller.table.finished)
        await client.forget("r1")
        may_write.set()
        await settled(cluster.control.reactor.keeper, "r1")
        assert not list(tmp_path.rglob("*.safetensors"))


@gen_test(timeout=90)
async def test_a_result_lost_before_its_end_is_written_is_not_waited_for(tmp_path, monkeypatch):
    async def lost(self, command):
        # As where so many others have ended meanwhile that its record is gone.
        self._reactor.controller.forget(command.request_id)

    monkeypatch.setattr(FileCalls, "keep", lost)
    async with life(durable(tmp_path)) as (_, client):
        future = await client.submit("a circle", request_id="r1")
        with pytest.raises(ResultGone, match="went with its worker"):
            await future


@gen_test(timeout=90)
async def test_requests_are_forgotten_after_their_time_to_live(tmp_path):
    async with life(durable(tmp_path, ttl_s=0.3)) as (cluster, client):
        await (await client.submit("a circle", request_id="r1"))

        def is_forgotten():
            return not list(tmp_path.rglob("*.safetensors"))

        await eventually(is_forgotten)
        await eventually(lambda: not cluster.control.reactor.controller.table.finished)
        with pytest.raises(UnknownRequest):
            await client.status_of("r1")


@gen_test(timeout=90)
async def test_the_list_spans_lives(tmp_path):
    config = durable(tmp_path)
    async with life(config) as (_, client):
        for name in "ab":
            await (await client.submit("a circle", request_id=name, owner=name))
    async with life(config, 1, counting(Counter(), step=FOREVER)) as (_, client):
        live = await client.submit("a circle", request_id="c", owner="a")
        await eventually(lambda: live.progress().phase is Phase.DENOISING)
        listed = await client.requests()
        assert [status.request_id for status in listed] == ["c", "b", "a"]
        assert [status.phase for status in listed] == [
            Phase.DENOISING,
            Phase.COMPLETED,
            Phase.COMPLETED,
        ]
        mine = await client.requests(owner="a", newest_first=False)
        assert [status.request_id for status in mine] == ["a", "c"]


@gen_test(timeout=90)
async def test_a_request_whose_model_is_served_no_longer_ends_with_that_reason(tmp_path):
    config = durable(tmp_path)
    waits = config.client.model_copy(update={"ready_timeout_s": 0.3})
    journal = SqliteJournal(config.journal.path)
    journal.apply([Accepted(make_entry("old", model="gone"))])
    journal.close()
    async with life(config.model_copy(update={"client": waits})) as (_, client):
        with pytest.raises(GenerationCancelled, match="its model gone is no longer served"):
            await (await client.future("old"))
