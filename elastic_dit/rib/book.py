"""All latencies of a profile in memory: measured ones, and estimates for the rest."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from elastic_dit.cost.model import best_dop
from elastic_dit.request import Stage
from elastic_dit.rib.estimate import Estimator
from elastic_dit.rib.latency import Latency, LatencyKey, Source

__all__ = ["LatencyBook", "optimal_dops"]

_MOST_REMEMBERED = 10_000
"""Estimates kept; a server that sees ever new shapes must not grow for ever."""
_PASSES = 2
"""Passes through encoder and transformer with classifier-free guidance, over those without."""

_Family = tuple[str, Stage, bool, str]
"""Latencies that are each other's neighbours: model, stage, guided, GPU kind."""


class LatencyBook:
    """Latencies by key; immutable, so that it is replaced as a whole and read without a lock.

    Parameters
    ----------
    latencies : iterable of Latency
        Those marked as estimates (measured with other software) stand in for their own key, and
        are neighbours only where nothing better is.

    Examples
    --------
    >>> key = LatencyKey("m", Stage.DIT, 64, 64, 9, False, 1, "virtual")
    >>> book = LatencyBook([Latency(key=key, seconds=0.5, repeats=3, source=Source.PROFILED)])
    >>> book.find(key).seconds, book.find(key._replace(num_frames=18)).source
    (0.5, <Source.ESTIMATED: 'estimated'>)
    """

    def __init__(self, latencies: Iterable[Latency] = ()) -> None:
        self._known = {latency.key: latency for latency in latencies}
        families: defaultdict[_Family, list[Latency]] = defaultdict(list)
        for latency in self._known.values():
            families[_family(latency.key)].append(latency)
        self._estimators = {
            family: Estimator(_measured(members) or members) for family, members in families.items()
        }
        kinds: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for key in self._known:
            kinds[key.model][key.kind] += 1
        self._kinds = {model: count.most_common(1)[0][0] for model, count in kinds.items()}
        self._estimates: dict[LatencyKey, Latency | None] = {}

    def __repr__(self) -> str:
        return f"<LatencyBook of {len(self._known)} latencies>"

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Latency]:
        return iter(self._known.values())

    def find(self, key: LatencyKey) -> Latency | None:
        """What is known of a key, or an estimate of it; None where the model was not profiled.

        Parameters
        ----------
        key : LatencyKey
            With an empty `kind` for the kind most of the model's latencies are of.
        """
        if not key.kind:
            key = key._replace(kind=self._kinds.get(key.model, ""))
        known = self._known.get(key)
        if known is not None:
            return known
        if key not in self._estimates:
            if len(self._estimates) >= _MOST_REMEMBERED:
                self._estimates.clear()
            self._estimates[key] = self._estimate(key)
        return self._estimates[key]

    def dops(self, model: str, kind: str = "") -> tuple[int, ...]:
        """Degrees of parallelism at which a model was measured, rising."""
        kind = kind or self._kinds.get(model, "")
        found = {
            key.dop
            for key in self._known
            if (key.model, key.stage, key.kind) == (model, Stage.DIT, kind)
        }
        return tuple(sorted(found))

    def _estimate(self, key: LatencyKey) -> Latency | None:
        estimator, factor = self._estimators.get(_family(key)), 1.0
        if estimator is None and key.stage is not Stage.DECODER:
            factor = float(_PASSES) if key.guided else 1 / _PASSES
            estimator = self._estimators.get(_family(key._replace(guided=not key.guided)))
        if estimator is None:
            return None
        return Latency(key=key, seconds=factor * estimator(key), setup_s=estimator.setup_s)


def optimal_dops(latencies: Iterable[Latency]) -> dict[LatencyKey, int]:
    """Optimal degree of parallelism by shape (DDiT §4.2.3), from its measured step times.

    Returns
    -------
    dict of LatencyKey to int
        The keys are those of the DiT at a degree of 1.
    """
    times: defaultdict[LatencyKey, dict[int, float]] = defaultdict(dict)
    for latency in latencies:
        if latency.key.stage is Stage.DIT:
            times[latency.key._replace(dop=1)][latency.key.dop] = latency.seconds
    return {key: best_dop(seconds) for key, seconds in times.items()}


def _family(key: LatencyKey) -> _Family:
    return key.model, key.stage, key.guided, key.kind


def _measured(latencies: Iterable[Latency]) -> list[Latency]:
    return [latency for latency in latencies if latency.source is not Source.ESTIMATED]
