"""Commands on their way to engines and clients."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from elastic_dit.cluster.messages import COMMAND_OP, decode_command
from elastic_dit.cluster.plane.carrier import CommandCarrier, mentioned, recipients
from elastic_dit.cluster.plane.directory import Directory, Hello
from elastic_dit.engine.fake import FAKE_CARD
from elastic_dit.events import (
    Abort,
    AskNodes,
    DropStage,
    Fail,
    LoadStage,
    Preempt,
    Prefetch,
    Release,
    ReleaseNode,
    Resize,
    RestartEngine,
    StartStage,
)
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef, Failure

REQUEST = FAKE_CARD.complete({"prompt": "a circle", "request_id": "r", "seed": 1})
HELD = ArtifactRef(request_id="r", attempt=1, stage=Stage.ENCODER, gpu=2, nbytes=1, digest="d")
FENCE = {"request_id": "r", "attempt": 1, "epoch": 3, "gpus": (0, 1), "reason": "test"}
START = StartStage(
    request=REQUEST, attempt=1, epoch=3, stage=Stage.DIT, gpus=(0, 1), inputs=(HELD,), reason="t"
)

ROUTES = [
    (START, (0, 1), (0, 1, 2)),
    (Prefetch(request_id="r", attempt=1, stage=Stage.DIT, gpu=1, inputs=(HELD,)), (1,), (1, 2)),
    (Resize(**FENCE), (0, 1), (0, 1)),
    (Resize(**{**FENCE, "gpus": (1,)}, present=(0, 2)), (0, 1, 2), (0, 1, 2)),
    (Preempt(**FENCE), (0, 1), (0, 1)),
    (Abort(**FENCE), (0, 1), (0, 1)),
    (Release(artifact=HELD), (2,), (2,)),
    (LoadStage(gpu=1, model="fake", stage=Stage.DIT, plan_epoch=1), (1,), (1,)),
    (DropStage(gpu=0, model="fake", stage=Stage.DIT, plan_epoch=1), (0,), (0,)),
]


@pytest.fixture
def sent():
    return []


@pytest.fixture
def carrier(sent):
    directory = Directory(slots_per_node=8)
    for index in range(3):
        hello = Hello(
            name=f"w{index}", node="n", index=index, kind="k", memory_bytes=1, instance="i"
        )
        directory.join(hello, f"tcp://{index}")
    scheduler = SimpleNamespace(
        worker_send=lambda address, message: sent.append((address, message)),
        workers={f"tcp://{index}": None for index in range(3)},
    )
    made = CommandCarrier(scheduler, directory)
    made.directory = directory
    return made


@pytest.mark.parametrize(("command", "to", "about"), ROUTES, ids=lambda part: type(part).__name__)
def test_a_command_goes_to_its_gpus_with_the_addresses_it_needs(carrier, sent, command, to, about):
    assert recipients(command) == to
    assert mentioned(command) == about
    carrier.carry(command)
    assert [address for address, _ in sent] == [f"tcp://{gpu}" for gpu in to]
    for _, message in sent:
        assert message["op"] == COMMAND_OP
        assert decode_command(message["command"]) == command
        assert message["addresses"] == {str(gpu): f"tcp://{gpu}" for gpu in about}


def test_who_has_just_left_is_not_written_to(carrier, sent):
    carrier.directory.leave("tcp://1")
    carrier.carry(START)
    assert [address for address, _ in sent] == ["tcp://0"]
    assert sent[0][1]["addresses"] == {"0": "tcp://0", "2": "tcp://2"}


def test_whether_a_result_is_still_there(carrier):
    assert carrier.holds(HELD)
    carrier.directory.leave("tcp://2")
    assert not carrier.holds(HELD)


def test_wishes_for_machines_are_kept_for_whoever_can_get_them(carrier, sent):
    carrier.carry(AskNodes(count=3, reason="load"))
    carrier.carry(ReleaseNode(node="n", reason="idle"))
    assert carrier.nodes_wanted == 3
    assert not sent


def test_commands_say_where_groups_meet(carrier, sent):
    carrier.carry(START)
    carrier.store = "10.0.0.1:4000"
    carrier.carry(START)
    assert [message["store"] for _, message in sent] == ["", "", "10.0.0.1:4000", "10.0.0.1:4000"]


def test_an_engine_that_hangs_is_struck_at_once_and_restarted(carrier, sent):
    restarted = []
    carrier.restarts = SimpleNamespace(begin=restarted.append)
    for _ in range(2):
        carrier.carry(RestartEngine(gpu=1, reason="it hangs"))
    assert restarted == ["tcp://1"]
    assert carrier.directory.address(1) is None
    carrier.carry(START)
    assert [address for address, _ in sent] == ["tcp://0"]


def test_what_groups_wrote_of_a_request_is_forgotten_at_its_end(carrier):
    over = []
    carrier.when_over = over.append
    failure = Failure(error_type="E", message="m", stage=Stage.DIT)
    end = Fail(request_id="r", failure=failure, attempts=1)
    for command in (end, START, Resize(**FENCE), end, end):
        carrier._note_groups(command)
    assert over == ["r"]
