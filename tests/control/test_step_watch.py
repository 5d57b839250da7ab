"""How long a group may be silent."""

from __future__ import annotations

from elastic_dit.control import actions
from elastic_dit.events import RestartEngine, Tick
from elastic_dit.request import Stage
from tests.control.bench import Bench, only


class Shrinking:
    """Denoises on GPUs 0 and 1, until it is told to give one up."""

    shrinks = False

    def order(self, request):  # type: ignore[no-untyped-def]
        return ()

    def plan(self, view, now):  # type: ignore[no-untyped-def]
        for stage in Stage:
            for key, queue in view.queues(stage):
                gpus = (0, 1) if stage is Stage.DIT else (0,)
                if not all(view.is_free(key, gpu) for gpu in gpus):
                    continue
                yield actions.Start(queue.head.request_id, gpus, "here")
        if self.shrinks:
            self.shrinks = False
            yield actions.Resize("r0", (0,), "one is enough")


def test_a_group_that_never_changes_as_it_was_told_is_given_up_in_the_end() -> None:
    policy = Shrinking()
    bench = Bench(policy, silence_floor_s=1.0, unknown_stage_timeout_s=100.0)
    bench.join(0, 1)
    bench.submit("r0")
    bench.done("r0")
    policy.shrinks = True
    bench.step("r0", 1)
    assert bench.gpus["r0"] == (0,)
    assert not bench.do(Tick(), after=99.0)
    restart = only(bench.do(Tick(), after=2.0), RestartEngine)
    assert (restart.gpu, restart.reason) == (0, "no end of a step within 100.0 s")
    # The other one was told to go on alone just now.
    assert not bench.do(Tick(), after=99.0)
    assert only(bench.do(Tick(), after=2.0), RestartEngine).gpu == 1


def test_a_group_that_is_told_to_stop_has_time_for_it() -> None:
    bench = Bench(silence_floor_s=1.0, unknown_stage_timeout_s=100.0)
    bench.join(0)
    bench.submit("r0")
    assert not bench.do(Tick(), after=90.0)
    bench.cancel("r0")
    assert not bench.do(Tick(), after=99.0)
    assert only(bench.do(Tick(), after=2.0), RestartEngine).gpu == 0
