"""Splitting a whole number in proportion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from elastic_dit.request import Stage

__all__ = ["split_by_ratio"]

_Key = TypeVar("_Key", Stage, int)


def split_by_ratio(total: int, shares: Mapping[_Key, float]) -> dict[_Key, int]:
    """Split `total` in proportion, by largest remainder, at least one each where that is enough.

    Equal remainders go to the smaller key.

    Parameters
    ----------
    total : int
        What is to be split, 0 or more.
    shares : mapping to float
        Above 0 each.

    Examples
    --------
    >>> split_by_ratio(4, {1: 1, 2: 14, 4: 1})
    {1: 1, 2: 2, 4: 1}
    >>> split_by_ratio(16, {1: 1, 2: 14, 4: 1})
    {1: 1, 2: 14, 4: 1}
    """
    whole = sum(shares.values())
    quotas = {key: total * share / whole for key, share in shares.items()}
    counts = {key: int(quota) for key, quota in quotas.items()}
    by_remainder = sorted(shares, key=lambda key: (counts[key] - quotas[key], key))
    for key in by_remainder[: total - sum(counts.values())]:
        counts[key] += 1
    for key in [key for key, count in counts.items() if not count]:
        richest = max(counts, key=lambda other: (counts[other], other))
        if counts[richest] > 1:
            counts[richest] -= 1
            counts[key] += 1
    return counts
