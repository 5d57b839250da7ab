"""What DDiT (arXiv 2506.13497) reports, as data.

The paper's plots have normalised axes and no printed values, so the statements of §6 and Appendix C
are all there is to compare with. A *reduction* is 1 - ours / other: 0.2 means a fifth less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from elastic_dit.simulate.ddit_grid import MIXES, RATES_PER_S

__all__ = [
    "BASELINES",
    "CLAIMS",
    "DECOUPLING_MIXES",
    "PROMOTION_MIXES",
    "STATIC_BEST",
    "Kind",
    "PaperClaim",
]

Rate = float | None
Kind = Literal["up to", "at least", "from"]

STATIC_BEST: Mapping[str, int] = {"0.25": 4, "0.5": 2, "0.75": 2, "1": 2, "burst": 1}
"""Best static DoP by arrival rate (§6.2)."""
DECOUPLING_MIXES = ((2, 6, 2), (4, 4, 2), (6, 1, 3), (1, 1, 1))
"""Mixes of Figure 13."""
PROMOTION_MIXES = ((2, 2, 6), (2, 4, 4), (1, 3, 6), (1, 1, 1))
"""Mixes of Figure 14."""

_STATIC = ("static-1", "static-2", "static-4")
_MULTI_NODE = ("static-4", "spci", "dpci", "dp")
BASELINES = (*_STATIC, "spci", "dpci", "dp")
"""What the paper compares DDiT with on one node."""
_LOAD = (
    "by Figure 17 DoP 1 needs fewest GPU-seconds for every resolution, so where all requests wait "
    "at once nothing serves more of them per second than static DoP 1"
)
_COUNT = (
    "where a policy is overloaded its queue grows for as long as requests come, so the gap depends "
    "on the number of requests per run, which is not given"
)
_QUIET = (
    "at this load a few large requests make the tail, and how they meet depends on the draw: the "
    "paper gives neither the number of requests nor of runs"
)
_UNITS = (
    "the paper does not say how many instances each partition has; the gap follows from that "
    "choice, and from the number of requests, which is not given either"
)
_CHEAP = (
    "by Figure 17 a partition of DoP 1 (SPCI) costs least of all, less than DDiT, and DoP 4 for "
    "every request costs most"
)
_DECODE = (
    "by Figure 17, freeing one GPU of two while the VAE runs saves three to four hundredths of the "
    "GPU-seconds, and no queue shrinks by more than that through it"
)
_HUNGRY = "how many requests are hungry depends on the draw; the number of runs is not given"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperClaim:
    """One figure.

    Attributes
    ----------
    where, what : str
        Section and figure, and what is compared.
    metric : str
        ``mean`` or ``p99`` latency, or ``cost``.
    others : tuple of str
        What it is compared with, by our names.
    rates : tuple of float or None
        Arrival rates it speaks of; None is the burst.
    low, high : float
        The paper's reductions; equal where it gives one.
    why : str
        What keeps it from being reproduced, told only where it is not.
    kind : str
        ``up to`` speaks of the best cell, ``at least`` of the worst, ``from`` of both.
    ours : str
        What is compared, by our name.
    mixes : tuple
    multi_node : bool
        Whether on 64 GPUs.
    """

    where: str
    what: str
    metric: Literal["mean", "p99", "cost"]
    others: tuple[str, ...]
    rates: tuple[Rate, ...]
    low: float
    high: float
    why: str
    kind: Kind = "up to"
    ours: str = "ddit"
    mixes: tuple[tuple[int, int, int], ...] = MIXES
    multi_node: bool = False

    @property
    def theirs(self) -> str:
        """The paper's figure in words."""
        if self.kind == "from":
            return f"{self.low:.1%} to {self.high:.1%} less"
        return f"{self.kind} {self.high:.1%} less"


def _against_static(
    dop: int, rates: tuple[Rate, ...], metric: Literal["mean", "p99"], value: float, why: str
) -> PaperClaim:
    at = " and ".join("burst" if rate is None else f"λ {rate:g}" for rate in rates)
    return PaperClaim(
        where="§6.2, Figure 10", what=f"{metric} against static DoP {dop}, {at}", metric=metric,
        others=(f"static-{dop}",), rates=rates, low=value, high=value, why=why,
    )  # fmt: skip


def _against(name: str, rates: tuple[Rate, ...], low: float, high: float, kind: Kind) -> PaperClaim:
    loads = "all rates" if len(rates) == len(RATES_PER_S) + 1 else "λ 0.25 and 0.5"
    loads = "λ 1.0 and burst" if None in rates and len(rates) == 2 else loads
    return PaperClaim(
        where="§6.2, Figure 10", what=f"p99 against {name.upper()}, {loads}", metric="p99",
        others=(name,), rates=rates, low=low, high=high, why=_UNITS, kind=kind,
    )  # fmt: skip


def _breakdown(
    what: str, ours: str, other: str, rate: Rate, metric: Literal["mean", "p99"], value: float
) -> PaperClaim:
    decoupling = ours == "static-2-decoupled"
    at = "burst" if rate is None else f"λ {rate:g}"
    return PaperClaim(
        where=f"§6.3, Figure {13 if decoupling else 14}", what=f"{metric} by {what}, {at}",
        metric=metric, ours=ours, others=(other,), rates=(rate,), low=value, high=value,
        mixes=DECOUPLING_MIXES if decoupling else PROMOTION_MIXES,
        why=_DECODE if decoupling else _HUNGRY,
    )  # fmt: skip


_EVERY: tuple[Rate, ...] = (*RATES_PER_S, None)

CLAIMS: tuple[PaperClaim, ...] = (
    _against_static(4, (0.25,), "p99", 0.1288, _QUIET),
    _against_static(2, (0.5,), "p99", 0.1071, _QUIET),
    _against_static(4, (0.5,), "p99", 0.366, _COUNT),
    _against_static(4, (0.5,), "mean", 0.444, _COUNT),
    _against_static(2, (0.75, 1.0), "p99", 0.1923, _COUNT),
    _against_static(2, (0.75, 1.0), "mean", 0.295, _COUNT),
    _against_static(1, (None,), "p99", 0.207, _LOAD),
    _against_static(1, (None,), "mean", 0.217, _LOAD),
    _against("spci", _EVERY, 0.276, 0.486, "from"),
    _against("dpci", _EVERY, 0.145, 0.751, "from"),
    _against("dp", (0.25, 0.5), 0.049, 0.049, "up to"),
    _against("dp", (1.0, None), 0.22, 0.24, "from"),
    PaperClaim(
        where="App. C, Figure 16", what="p99 against static DoP 1, 2 and 4, all rates",
        metric="p99", others=_STATIC, rates=_EVERY, low=0.3, high=0.3, why=_COUNT,
    ),
    PaperClaim(
        where="§6.2, Figure 11", what="p99 against all baselines, 64 GPUs", metric="p99",
        others=_MULTI_NODE, rates=(None,), low=0.304, high=0.304, kind="at least",
        multi_node=True, why=_UNITS,
    ),
    PaperClaim(
        where="§6.2, Figure 11", what="mean against all baselines, 64 GPUs", metric="mean",
        others=_MULTI_NODE, rates=(None,), low=0.3, high=0.3, kind="at least",
        multi_node=True, why=_UNITS,
    ),
    PaperClaim(
        where="§6.2, Figure 12", what="cost against all baselines, 64 GPUs", metric="cost",
        others=_MULTI_NODE, rates=(None,), low=0.304, high=0.304, multi_node=True,
        why=_CHEAP,
    ),
    _breakdown("decoupling at DoP 2", "static-2-decoupled", "static-2", 0.5, "p99", 0.2),
    _breakdown("decoupling at DoP 2", "static-2-decoupled", "static-2", None, "p99", 0.261),
    _breakdown("decoupling at DoP 2", "static-2-decoupled", "static-2", None, "mean", 0.232),
    _breakdown("promotion", "ddit", "ddit-no-promotion", 0.5, "p99", 0.352),
    _breakdown("promotion", "ddit", "ddit-no-promotion", 0.5, "mean", 0.135),
)  # fmt: skip
"""In the order of the paper."""
