from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.cluster.worker.channel import FakeChannel
from elastic_dit.cluster.worker.encoded import Encoded
from elastic_dit.cluster.worker.outbox import Artifact, Outbox
from elastic_dit.cluster.worker.transfer import Inbox, Inputs
from elastic_dit.config import TransferConfig
from elastic_dit.errors import ArtifactGone, DigestMismatch, TransferError
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef
from tests.cluster.bench import run

QUICK = TransferConfig(timeout_s=0.2, attempts=3, backoff_s=0.001)
PAYLOAD = {"latents": np.arange(1000, dtype=np.float32), "step": 3}


def artifact(request_id: str = "r", gpu: int = 1) -> Artifact:
    encoded = Encoded.of(PAYLOAD)
    ref = ArtifactRef(
        request_id=request_id,
        attempt=1,
        stage=Stage.DIT,
        gpu=gpu,
        nbytes=encoded.nbytes,
        digest=encoded.digest(),
    )
    return Artifact(ref=ref, payload=PAYLOAD, encoded=encoded)


def damaged(encoded: Encoded) -> Encoded:
    (frame,) = encoded.frames
    bent = bytearray(frame)
    bent[17] ^= 1
    return Encoded(encoded.header, [bent])


Source = Callable[[str, ArtifactRef], Any]


@contextlib.asynccontextmanager
async def inbox(
    source: Source | None = None, capacity: int = 2
) -> AsyncIterator[tuple[Inbox, FakeChannel, Outbox]]:
    channel, outbox = FakeChannel(source), Outbox()
    with ThreadPoolExecutor(1) as executor:
        box = Inbox(channel, outbox, QUICK, executor, capacity=capacity)
        yield box, channel, outbox
        await box.close()


def test_what_arrives_is_what_was_sent() -> None:
    sent = artifact()

    async def check() -> None:
        async with inbox(lambda address, ref: sent.encoded) as (box, channel, _):
            payload = await box.get(sent.ref, "tcp://b")
            assert np.array_equal(payload["latents"], PAYLOAD["latents"])
            assert payload["step"] == 3
            assert channel.fetched == [("tcp://b", sent.ref)]
            (record,) = box.records
            assert (record.nbytes, record.tries) == (4000, 1)
            assert record.seconds > 0
            assert len(box) == 0

    run(check())


def test_many_askers_share_one_pull_and_one_may_leave() -> None:
    sent = artifact()

    async def check() -> None:
        async with inbox(lambda address, ref: sent.encoded) as (box, channel, _):
            box.prefetch(sent.ref, "b")
            askers = [asyncio.create_task(box.get(sent.ref, "b")) for _ in range(5)]
            await asyncio.sleep(0)
            askers[0].cancel()
            payloads = await asyncio.gather(*askers[1:])
            assert len({id(payload) for payload in payloads}) == 1
            assert len(channel.fetched) == 1

    run(check())


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["lost", "damaged"]), max_size=4))
def test_a_transfer_survives_fewer_faults_than_it_has_attempts(faults: list[str]) -> None:
    sent = artifact()
    left = list(faults)

    def source(address: str, ref: ArtifactRef) -> Encoded:
        if not left:
            return sent.encoded
        if left.pop(0) == "lost":
            raise OSError("connection reset")
        return damaged(sent.encoded)

    async def check() -> None:
        async with inbox(source) as (box, channel, _):
            if len(faults) < QUICK.attempts:
                payload = await box.get(sent.ref, "b")
                assert np.array_equal(payload["latents"], PAYLOAD["latents"])
                assert box.records[0].tries == len(faults) + 1
            else:
                last = faults[QUICK.attempts - 1]
                wanted = DigestMismatch if last == "damaged" else TransferError
                with pytest.raises(wanted, match="request r: output of its dit stage from b"):
                    await box.get(sent.ref, "b")
                assert len(channel.fetched) == QUICK.attempts
                assert not box.records

    run(check())


def test_gone_is_gone_at_once() -> None:
    async def check() -> None:
        async with inbox() as (box, channel, _):
            with pytest.raises(ArtifactGone):
                await box.get(artifact().ref, "b")
            assert len(channel.fetched) == 1
            with pytest.raises(ArtifactGone, match="left the cluster"):
                await box.get(artifact().ref, None)
            assert len(channel.fetched) == 1

    run(check())


def test_silence_is_bounded() -> None:
    class Silent(FakeChannel):
        async def fetch(self, address: str, ref: ArtifactRef) -> Encoded | None:
            await super().fetch(address, ref)
            await asyncio.Event().wait()
            return None

    async def check() -> None:
        with ThreadPoolExecutor(1) as executor:
            silent = Silent()
            quick = QUICK.model_copy(update={"timeout_s": 0.02})
            box = Inbox(silent, Outbox(), quick, executor)
            with pytest.raises(TransferError, match="nothing within"):
                await box.get(artifact().ref, "b")
            assert len(silent.fetched) == QUICK.attempts

    run(check())


def test_a_failed_prefetch_is_tried_again_when_it_is_wanted() -> None:
    sent = artifact()
    answers: list[Any] = [None, sent.encoded]

    async def check() -> None:
        async with inbox(lambda address, ref: answers.pop(0)) as (box, _, _):
            box.prefetch(sent.ref, "b")
            await asyncio.gather(*box._pulls.values(), return_exceptions=True)
            assert (await box.get(sent.ref, "b"))["step"] == 3

    run(check())


def test_unclaimed_prefetches_are_bounded_and_can_be_discarded() -> None:
    sent = [artifact(f"r{number}") for number in range(6)]
    by_ref = {made.ref: made.encoded for made in sent}

    async def check() -> None:
        async with inbox(lambda address, ref: by_ref[ref], capacity=2) as (box, channel, _):
            for made in sent:
                box.prefetch(made.ref, "b")
            assert len(box) == 2
            box.discard("r5")
            assert len(box) == 1
            assert (await box.get(sent[0].ref, "b"))["step"] == 3
            assert (await box.get(sent[4].ref, "b"))["step"] == 3
            assert Counter(channel.fetched)["b", sent[4].ref] == 1

    run(check())


def test_own_artifacts_are_taken_by_reference_until_released() -> None:
    own = artifact(gpu=0)

    async def check() -> None:
        async with inbox() as (box, channel, outbox):
            outbox.put(own)
            inputs = await box.gather((own.ref,), {}, here=0)
            assert inputs.payload is not None
            assert inputs.payload["latents"] is PAYLOAD["latents"]
            assert inputs.pulls == ()
            assert outbox.nbytes == own.ref.nbytes
            outbox.release(own.ref)
            outbox.release(own.ref)
            assert outbox.nbytes == 0
            with pytest.raises(ArtifactGone, match="engine 0 no longer holds"):
                await box.gather((own.ref,), {}, here=0)
            assert channel.fetched == []

    run(check())


def test_several_inputs_become_one_payload() -> None:
    other = Encoded.of({"prompt_embeds": np.ones(3)})
    first = artifact("r")
    second = replace(
        first.ref, stage=Stage.ENCODER, digest=other.digest(), nbytes=other.nbytes, gpu=2
    )
    held = {first.ref: first.encoded, second: other}

    async def check() -> None:
        async with inbox(lambda address, ref: held[ref]) as (box, channel, _):
            inputs = await box.gather((first.ref, second), {1: "b", 2: "c"}, here=0)
            assert inputs.payload is not None
            assert set(inputs.payload) == {"latents", "step", "prompt_embeds"}
            assert dict(inputs.pulls) == {record.stage: record.seconds for record in box.records}
            assert [stage for stage, _ in inputs.pulls] == [Stage.DIT, Stage.ENCODER]
            assert {address for address, _ in channel.fetched} == {"b", "c"}
            assert await box.gather((), {}, here=0) == Inputs(None, ())

    run(check())
