"""Models served, the default among them, and requests completed by their cards."""

from __future__ import annotations

import asyncio

import pytest

from elastic_dit.cluster.launch.lease import Lease
from elastic_dit.cluster.plane.cards import CardBoard
from elastic_dit.cluster.plane.intake import Intake
from elastic_dit.engine.fake import FAKE_CARD
from elastic_dit.errors import InvalidRequest, NotReady, UnknownModel


def card(name):
    return FAKE_CARD.model_copy(update={"name": name})


def test_the_first_configured_model_that_is_served_is_the_default():
    board = CardBoard(["a", "b"])
    board.add([card("c"), card("b")])
    assert asyncio.run(board.find(None, 1.0)).name == "b"
    board.add([card("a")])
    assert [c.name for c in board.cards] == ["a", "c", "b"]


def test_without_a_configured_one_the_first_served_is_the_default():
    board = CardBoard(["a"])
    assert board.cards == ()
    board.add([card("c"), card("d")])
    assert asyncio.run(board.find(None, 1.0)).name == "c"
    assert repr(board) == "CardBoard(c, d)"


def test_an_unknown_model_is_told_what_is_served():
    board = CardBoard()
    board.add([card("c"), card("b")])
    for name in ("x", ["c"]):
        with pytest.raises(UnknownModel, match="one of b, c"):
            asyncio.run(board.find(name, 1.0))


def test_the_wait_for_a_first_engine_has_an_end():
    with pytest.raises(NotReady, match="start elastic-dit-worker"):
        asyncio.run(CardBoard().find(None, 0.01))


def test_an_engine_that_comes_ends_the_wait():
    async def wait():
        board = CardBoard()
        waiting = asyncio.ensure_future(board.find(None, 10.0))
        await asyncio.sleep(0)
        board.add([card("c")])
        return await waiting

    assert asyncio.run(wait()).name == "c"


def read(**options):
    board = CardBoard()
    board.add([FAKE_CARD])

    async def count(model, text):
        assert model == "fake"
        return len(text.split()) + 1

    return asyncio.run(Intake(board, count).read({"request_id": "r", **options}, 1.0))


def test_intake_fills_the_models_defaults_and_draws_a_seed():
    request = read(prompt="a circle", width=48, seed=None)
    assert (request.model, request.width, request.height) == ("fake", 48, 64)
    assert 0 <= request.seed < 2**32
    assert read(prompt="a circle", seed=5).seed == 5


def test_intake_counts_the_tokens_of_both_prompts():
    assert read(prompt="w " * 15)
    for options in ({"prompt": "w " * 16}, {"prompt": "a", "negative_prompt": "w " * 16}):
        with pytest.raises(InvalidRequest, match="17 tokens"):
            read(**options)


def test_intake_asks_once_for_a_text():
    asked = []

    async def count(model, text):
        asked.append(text)
        return 3

    async def read_all():
        board = CardBoard()
        board.add([FAKE_CARD])
        intake = Intake(board, count)
        for number in range(1000):
            for prompt in ("a circle", f"another {number}"):
                await intake.read({"request_id": "r", "prompt": prompt}, 1.0)
        return intake

    intake = asyncio.run(read_all())
    assert asked.count("a circle") == 1
    assert len(asked) == 1 + 1000
    assert len(intake._counts) < 1000


def test_a_lease_has_one_holder_until_it_expires_or_is_given_back():
    lease = Lease(length_s=3.0)
    assert lease.holder(0.0) is None
    assert lease.acquire("a", 0.0)
    assert not lease.acquire("b", 1.0)
    assert lease.acquire("a", 2.0)
    assert not lease.acquire("b", 5.0)
    lease.release("b")
    assert lease.holder(5.0) == "a"
    lease.release("a")
    assert lease.acquire("b", 5.0)
    assert lease.holder(9.0) is None
