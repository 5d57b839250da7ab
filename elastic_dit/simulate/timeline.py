"""Who did what when: the spans of a run, and their export for a trace viewer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from elastic_dit.state import GpuId

__all__ = ["Span", "chrome_trace", "utilisation"]

_MICROSECONDS = 1e6


class Span(NamedTuple):
    """One GPU busy with one thing.

    Attributes
    ----------
    gpu : int
    start, end : float
        Virtual seconds.
    what : str
        ``encoder``, ``dit``, ``decoder``, ``load`` or ``drop``.
    subject : str
        Request id, or ``model/stage`` for a load or drop.
    detail : dict
        More for the viewer, such as DoP and attempt.
    """

    gpu: GpuId
    start: float
    end: float
    what: str
    subject: str
    detail: Mapping[str, Any] = MappingProxyType({})

    @property
    def seconds(self) -> float:
        """Length."""
        return self.end - self.start


def utilisation(
    spans: Iterable[Span], alive: Mapping[GpuId, float], *, stages_only: bool = True
) -> dict[GpuId, float]:
    """Part of its life that each GPU was at work.

    Parameters
    ----------
    spans : iterable of Span
    alive : mapping of int to float
        Seconds each GPU was there.
    stages_only : bool
        Whether loads and drops count as idle.

    Examples
    --------
    >>> utilisation([Span(0, 1.0, 3.0, "dit", "r"), Span(0, 3.0, 4.0, "load", "m/dit")], {0: 8.0})
    {0: 0.25}
    """
    busy = dict.fromkeys(alive, 0.0)
    for span in spans:
        if not stages_only or span.what not in ("load", "drop"):
            busy[span.gpu] += span.seconds
    return {gpu: busy[gpu] / life if life > 0 else 0.0 for gpu, life in alive.items()}


def chrome_trace(spans: Sequence[Span], nodes: Mapping[GpuId, str]) -> dict[str, Any]:
    """Spans as a trace that Chrome and Perfetto open: machines as processes, GPUs as threads.

    Parameters
    ----------
    spans : sequence of Span
    nodes : mapping of int to str
        Machine of each GPU.

    Returns
    -------
    dict
        To be dumped as JSON.
    """
    pids = {node: pid for pid, node in enumerate(sorted(set(nodes.values())))}
    names: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": node}}
        for node, pid in pids.items()
    ]
    for gpu, node in sorted(nodes.items()):
        thread = {"ph": "M", "name": "thread_name", "pid": pids[node], "tid": gpu}
        names.append({**thread, "args": {"name": f"GPU {gpu}"}})
    events = [
        {
            "ph": "X",
            "name": span.subject,
            "cat": span.what,
            "pid": pids[nodes[span.gpu]],
            "tid": span.gpu,
            "ts": span.start * _MICROSECONDS,
            "dur": span.seconds * _MICROSECONDS,
            "args": {"what": span.what, **span.detail},
        }
        for span in spans
    ]
    return {"traceEvents": names + events, "displayTimeUnit": "ms"}
