"""How many GPUs does a target take? A search over whole simulations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from elastic_dit.errors import ConfigError
from elastic_dit.simulate.ddit_grid import Deployment

__all__ = ["Sizing", "Target", "deployment_of", "find_size", "sizes"]

Summary = dict[str, Any]
"""As `SimulationResult.summary` gives it."""

_TARGET = re.compile(r"\s*(mean|p50|p90|p95|p99|attainment)\s*(<=?|>=?)\s*(\d+(?:\.\d+)?)\s*s?\s*")
_NEIGHBOURS = 2
"""Sizes below the smallest one found that are tried too: more GPUs may be worse, since a policy
may then choose wider groups."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a deployment must reach; every request must be completed besides.

    Attributes
    ----------
    metric : str
        ``mean``, ``p50``, ``p90``, ``p95`` or ``p99`` latency in seconds, or ``attainment``.
    bound : float

    Examples
    --------
    >>> target = Target.parse("p99<60")
    >>> target.met({"p99_s": 59.0, "submitted": 3, "completed": 3})
    True
    """

    metric: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``p99<60`` or ``attainment>=0.95``.

        Raises
        ------
        ConfigError
            With an example.
        """
        match = _TARGET.fullmatch(text)
        if match is None or (match[1] == "attainment") != match[2].startswith(">"):
            allowed = "such as p99<60, mean<20 (seconds) or attainment>0.95"
            raise ConfigError("target", text, allowed)
        return cls(match[1], float(match[3]))

    def __str__(self) -> str:
        if self.metric == "attainment":
            return f"attainment >= {self.bound:g}"
        return f"{self.metric} <= {self.bound:g} s"

    def value(self, summary: Summary) -> float | None:
        """What was reached; None where nothing was completed."""
        name = self.metric if self.metric == "attainment" else f"{self.metric}_s"
        found = summary[name]
        return None if found is None else float(found)

    def met(self, summary: Summary) -> bool:
        """Whether a run reaches it."""
        value = self.value(summary)
        if value is None or summary["completed"] < summary["submitted"]:
            return False
        return value >= self.bound if self.metric == "attainment" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a search found.

    Attributes
    ----------
    gpus : int or None
        Fewest that reach the target, None where no size tried does.
    tried : dict of int to dict
        Summary by number of GPUs, rising.
    """

    gpus: int | None
    tried: dict[int, Summary]


def sizes(most: int, per_node: int = 8) -> list[int]:
    """Numbers of GPUs worth a thought: powers of two inside a machine, then whole machines.

    >>> sizes(40)
    [1, 2, 4, 8, 16, 24, 32, 40]
    """
    inside = [1 << power for power in range(per_node.bit_length()) if 1 << power < per_node]
    return [size for size in (*inside, *range(per_node, most + 1, per_node)) if size <= most]


def deployment_of(gpus: int, per_node: int = 8) -> Deployment:
    """Machines that hold so many GPUs; one alone may be smaller."""
    nodes = max(1, gpus // per_node)
    return Deployment(nodes=nodes, gpus_per_node=gpus // nodes)


def find_size(target: Target, simulate: Callable[[int], Summary], candidates: list[int]) -> Sizing:
    """Fewest GPUs that reach a target.

    Doubles until the target is reached, bisects down from there, and then goes on below what it
    found as long as one of the next sizes down reaches the target as well.

    Parameters
    ----------
    target : Target
    simulate : callable
        Summary of a run with so many GPUs.
    candidates : list of int
        Numbers of GPUs, rising.
    """
    tried: dict[int, Summary] = {}

    def meets(index: int) -> bool:
        gpus = candidates[index]
        if gpus not in tried:
            tried[gpus] = simulate(gpus)
        return target.met(tried[gpus])

    found = _first_by_doubling(meets, candidates)
    if found is not None:
        found = _bisect(meets, found)
        found = _verify_below(meets, found)
    gpus = None if found is None else candidates[found]
    return Sizing(gpus, dict(sorted(tried.items())))


def _first_by_doubling(meets: Callable[[int], bool], candidates: list[int]) -> int | None:
    """Index of a size that reaches the target; sizes tried double."""
    last, gpus = -1, 1
    while last < len(candidates) - 1:
        index = min(
            (i for i, size in enumerate(candidates) if size >= gpus and i > last),
            default=len(candidates) - 1,
        )
        if meets(index):
            return index
        last, gpus = index, 2 * candidates[index]
    return None


def _bisect(meets: Callable[[int], bool], found: int) -> int:
    below = -1
    while found - below > 1:
        middle = (found + below) // 2
        if meets(middle):
            found = middle
        else:
            below = middle
    return found


def _verify_below(meets: Callable[[int], bool], found: int) -> int:
    index = found
    while index > max(0, found - _NEIGHBOURS):
        index -= 1
        if meets(index):
            found = index
    return found
