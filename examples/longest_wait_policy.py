"""A dispatch policy in one file: whoever waited longest starts on as many GPUs as are free.

docs/write-a-policy.md walks through it. Try it on a published workload, no GPU needed:

    python examples/longest_wait_policy.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastic_dit.control import actions
from elastic_dit.control.dispatch import first_come, prefetches, register_dispatch
from elastic_dit.control.view import ClusterView, RequestView
from elastic_dit.request import Stage

LIMIT_S = 30.0
"""Who waited longer gets a wide group even while others wait."""


class LongestWait:
    """Longest wait first; wide groups for the impatient, and for all while nobody else waits."""

    watches_steps = False

    def order(self, request: RequestView) -> tuple[object, ...]:
        """Sort key in a queue: smaller goes first."""
        return (request.accepted_at,)

    def plan(self, view: ClusterView, now: float) -> Iterator[actions.Action]:
        """What to do now; each action takes effect before the next is asked for."""
        yield from first_come(view, Stage.DECODER)
        for key, queue in tuple(view.queues(Stage.DIT)):
            while (request := queue.head) is not None and view.free(key):
                impatient = now - request.accepted_at > LIMIT_S
                dop = self._widest(view, request) if impatient or len(queue) == 1 else 1
                gpus = self._free_block(view.free(key), dop)
                yield actions.Start(request.request_id, gpus, f"waited, DoP {len(gpus)}")
        yield from first_come(view, Stage.ENCODER)
        yield from prefetches(view)

    @staticmethod
    def _free_block(free: Sequence[int], most: int) -> tuple[int, ...]:
        """The largest aligned block of free neighbours: the shape that groups must have."""
        size = most
        while size > 1:
            for start in free:
                block = range(start, start + size)
                if start % size == 0 and all(gpu in free for gpu in block):
                    return tuple(block)
            size //= 2
        return (free[0],)

    @staticmethod
    def _widest(view: ClusterView, request: RequestView) -> int:
        """Largest DoP that makes a step faster than the one below it."""
        dop, step_s = 1, view.times.seconds(request.request, Stage.DIT, 1)
        while step_s is not None:
            wider_s = view.times.seconds(request.request, Stage.DIT, 2 * dop)
            if wider_s is None or wider_s >= step_s:
                break
            dop, step_s = 2 * dop, wider_s
        return dop


register_dispatch("longest-wait", LongestWait)


def main() -> None:
    """Compare it with others on one published workload."""
    from elastic_dit.simulate.ddit_grid import SINGLE_NODE
    from elastic_dit.simulate.setup import find_cost_model, set_up
    from elastic_dit.simulate.trace import named_workload

    arrivals = named_workload("ddit:1:1:1@0.5")
    for policy in ("longest-wait", "static-1", "ddit", "elastic"):
        cluster = set_up(
            arrivals, policy=policy, cost=find_cost_model("ddit"), deployment=SINGLE_NODE
        )
        figures = cluster.run().summary()
        print(f"{policy:12} mean {figures['mean_s']:6.2f} s, p99 {figures['p99_s']:6.2f} s")


if __name__ == "__main__":
    main()
