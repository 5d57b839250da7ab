import pytest

from elastic_dit.cost import LatentGeometry, read_polynomial_cost
from elastic_dit.errors import ConfigError
from elastic_dit.request import Stage
from tests.cost.shapes import request

CLASS_S = request(832, 480, 49, 50)
CLASS_L = request(1280, 720, 81, 50)


def test_tokens_of_the_three_classes() -> None:
    tokens = LatentGeometry().tokens
    assert tokens(width=832, height=480, num_frames=49) == 20_280
    assert tokens(width=832, height=480, num_frames=81) == 32_760
    assert tokens(width=1280, height=720, num_frames=81) == 75_600


@pytest.mark.parametrize(("dop", "efficiency"), [(1, 1.0), (2, 1.82), (4, 3.33), (8, 5.88)])
def test_a_step_takes_the_published_time(dop: int, efficiency: float) -> None:
    expected_ms = 0.1323 * 75_600 / efficiency + 20 * (dop - 1)
    assert read_polynomial_cost().step_seconds(CLASS_L, dop) * 1000 == pytest.approx(expected_ms)


def test_the_whole_chain_alone_is_what_the_deadlines_were_made_from() -> None:
    cost = read_polynomial_cost()
    alone_ms = 1000 * sum(cost.stage_seconds(CLASS_S, stage) for stage in Stage)
    assert alone_ms == pytest.approx(134_361.461, abs=0.5)


def test_encoder_and_decoder_use_one_gpu() -> None:
    cost = read_polynomial_cost()
    for stage in (Stage.ENCODER, Stage.DECODER):
        assert cost.stage_seconds(CLASS_S, stage, 8) == cost.stage_seconds(CLASS_S, stage, 1) > 0


def test_what_the_dit_needs_once_is_the_same_at_every_dop() -> None:
    cost = read_polynomial_cost()
    assert cost.allowed_dops(CLASS_S) == (1, 2, 4, 8)
    for dop in cost.allowed_dops(CLASS_S):
        steps = 50 * cost.step_seconds(CLASS_S, dop)
        assert cost.stage_seconds(CLASS_S, Stage.DIT, dop) - steps == pytest.approx(0.052)


def test_an_unknown_dop_is_named() -> None:
    with pytest.raises(ConfigError, match="dop = 3: must be one of 1, 2, 4, 8"):
        read_polynomial_cost().step_seconds(CLASS_S, 3)
