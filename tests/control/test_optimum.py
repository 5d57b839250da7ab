from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_dit.control.block import bandwidth_aware_partition
from elastic_dit.control.optimum import (
    Deal,
    Occupancy,
    RequestType,
    batch_occupancy,
    m_d_1_seconds,
    m_d_c_seconds,
    queue_occupancy,
    theoretical_optimum,
)
from elastic_dit.errors import ConfigError

SMALL = RequestType(share=0.5, seconds={1: 3.0, 2: 3.5})
LARGE = RequestType(share=0.5, seconds={1: 16.0, 2: 9.0})


@pytest.mark.parametrize(
    ("requests", "share", "seconds", "instances", "occupied"),
    [(10, 0.5, 3.0, 2, 9.0), (10, 0.5, 3.0, 5, 3.0), (100, 0.07, 2.0, 7, 2.0), (4, 0.3, 1.0, 1, 2)],
)
def test_equation_3(
    requests: int, share: float, seconds: float, instances: int, occupied: float
) -> None:
    assert batch_occupancy(requests)(share, seconds, instances) == occupied


def test_equation_6() -> None:
    # mu = 1/2, rho = 1/2: 1/mu + rho / (2 mu (1 - rho)) = 2 + 1
    assert m_d_1_seconds(0.25, 2.0) == 3.0
    assert m_d_1_seconds(0.5, 2.0) == math.inf


def test_equation_7_as_printed_and_corrected() -> None:
    # mu = 1, r = 1, rho = 1/2: p0 = 1 / (1 / (2 * 1/2) + 1 + 1) = 1/3,
    # M/M/2 wait = 1 / (2! * 2 * (1/2)**2) * 1/3 = 1/3
    assert m_d_c_seconds(1.0, 1.0, 2, corrected=False) == pytest.approx((1 + 1 / 3) / 2)
    assert m_d_c_seconds(1.0, 1.0, 2) == pytest.approx(1 + 1 / 3 / 2)
    assert m_d_c_seconds(2.0, 1.0, 2) == math.inf


def _equation_7(rate: float, seconds: float, servers: int) -> float:
    """Term by term, as the paper writes it."""
    mu, r = 1 / seconds, rate * seconds
    rho = r / servers
    p0 = 1 / (
        r**servers / (math.factorial(servers) * (1 - rho))
        + sum(r**s / math.factorial(s) for s in range(servers))
    )
    wait = r**servers / (math.factorial(servers) * servers * mu * (1 - rho) ** 2) * p0
    return (1 / mu + wait) / 2


@settings(deadline=None)
@given(st.floats(0.01, 0.95), st.floats(0.1, 20.0), st.integers(2, 30))
def test_the_stable_form_is_equation_7(load: float, seconds: float, servers: int) -> None:
    rate = load * servers / seconds
    printed = m_d_c_seconds(rate, seconds, servers, corrected=False)
    assert printed == pytest.approx(_equation_7(rate, seconds, servers))
    assert m_d_c_seconds(rate, seconds, servers) >= seconds  # eq. 7 as printed need not be


def test_many_servers_do_not_overflow() -> None:
    assert m_d_c_seconds(900.0, 1.0, 1024) == pytest.approx(1.0, rel=1e-3)


def test_one_gpu_for_each_type() -> None:
    found = theoretical_optimum(
        [SMALL, LARGE], nodes=1, slots_per_node=2, occupancy=batch_occupancy(4)
    )
    # Two small ones after each other on GPU 0, two large ones on GPU 1.
    assert found.cost_gpu_s == 2 * 3.0 + 2 * 16.0
    assert found.deals == (
        Deal(first=0, gpus=1, dop=1, instances=1, cost_gpu_s=6.0),
        Deal(first=1, gpus=1, dop=1, instances=1, cost_gpu_s=32.0),
    )


def test_a_queue_that_one_gpu_cannot_serve_gets_more() -> None:
    found = theoretical_optimum(
        [SMALL, LARGE], nodes=1, slots_per_node=4, occupancy=queue_occupancy(0.2)
    )
    large = found.deals[1]
    assert large is not None
    # 0.1 requests a second of 16 s need more than one GPU, and a third one pays.
    assert (large.gpus, large.dop) == (3, 1)
    assert large.cost_gpu_s == pytest.approx(3 * m_d_c_seconds(0.1, 16.0, 3))
    assert large.cost_gpu_s < 2 * m_d_c_seconds(0.1, 16.0, 2)
    overloaded = theoretical_optimum(
        [SMALL, LARGE], nodes=1, slots_per_node=2, occupancy=queue_occupancy(0.2)
    )
    assert (overloaded.cost_gpu_s, overloaded.deals) == (math.inf, ())


def test_a_group_does_not_cross_nodes() -> None:
    pairs_only = RequestType(share=0.5, seconds={2: 1.0})
    found = theoretical_optimum(
        [SMALL, pairs_only], nodes=2, slots_per_node=2, occupancy=batch_occupancy(2)
    )
    assert found.deals[1] is not None
    assert (found.deals[1].first, found.deals[1].gpus) == (2, 2)
    one_node = theoretical_optimum(
        [SMALL, pairs_only], nodes=1, slots_per_node=2, occupancy=batch_occupancy(2)
    )
    assert one_node.deals == ()


def test_a_type_that_does_not_occur_gets_nothing() -> None:
    absent = RequestType(share=0.0, seconds={1: 1.0})
    alone = RequestType(share=1.0, seconds={1: 2.0})
    found = theoretical_optimum(
        [absent, alone], nodes=1, slots_per_node=1, occupancy=batch_occupancy(3)
    )
    assert found.cost_gpu_s == 6.0
    assert found.deals[0] is None


@pytest.mark.parametrize("shares", [(0.5, 0.6), (-0.5, 1.5), (0.2, 0.2)])
def test_shares_are_checked(shares: tuple[float, float]) -> None:
    types = [RequestType(share=share, seconds={1: 1.0}) for share in shares]
    with pytest.raises(ConfigError, match="share"):
        theoretical_optimum(types, nodes=1, slots_per_node=4, occupancy=batch_occupancy(1))


def _brute_force(types: list[RequestType], nodes: int, slots: int, occupancy: Occupancy) -> float:
    total = nodes * slots
    best = math.inf
    for ends in product(range(total + 1), repeat=2 * len(types)):
        cost, at = 0.0, 0
        for kind, start, end in zip(types, ends[::2], ends[1::2], strict=True):
            # As in the paper, GPUs may stay unused only before those of the first type.
            if (start != at and kind is not types[0]) or end <= start:
                cost = math.inf
                break
            at = end
            options = [
                (end - start) * occupancy(kind.share, seconds, instances)
                for dop, seconds in kind.seconds.items()
                if (instances := bandwidth_aware_partition(start, end - start, dop, slots))
            ]
            cost += min(options, default=math.inf)
        if at == total:
            best = min(best, cost)
    return best


seconds_by_dop = st.dictionaries(st.sampled_from([1, 2, 4]), st.floats(0.5, 20.0), min_size=1)


@settings(max_examples=40, deadline=None)
@given(seconds_by_dop, seconds_by_dop, st.floats(0.1, 0.9), st.integers(1, 12), st.booleans())
def test_no_deal_is_cheaper(
    one: dict[int, float], other: dict[int, float], share: float, requests: int, queue: bool
) -> None:
    types = [RequestType(share=share, seconds=one), RequestType(share=1 - share, seconds=other)]
    occupancy = queue_occupancy(requests / 40) if queue else batch_occupancy(requests)
    found = theoretical_optimum(types, nodes=2, slots_per_node=2, occupancy=occupancy)
    assert found.cost_gpu_s == pytest.approx(_brute_force(types, 2, 2, occupancy))
