"""What the controller does is counted as it should be."""

from __future__ import annotations

from dataclasses import replace

from elastic_dit import events
from elastic_dit.control import actions
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.catalogue import Metric
from elastic_dit.metrics.gauges import read_gauges
from elastic_dit.metrics.recorder import Recorder
from elastic_dit.metrics.tally import Readings
from elastic_dit.request import Stage
from tests.control.bench import ALL, MODEL, Bench


class Counted(Bench):
    """A bench whose every event is recorded."""

    def __init__(self, *arguments: object, **config: object) -> None:
        super().__init__(*arguments, **config)
        self.recorder = Recorder()

    def do(self, event: events.Event, after: float = 1.0) -> list[events.Command]:
        commands = super().do(event, after)
        self.recorder.note(self.controller, event, commands, self.now)
        return commands

    def value(self, metric: Metric, *labels: str) -> float:
        return found(self.recorder.tally.readings(), metric, *labels)

    def gauge(self, metric: Metric, *labels: str) -> float:
        return found(read_gauges(self.controller, self.now), metric, *labels)

    def histogram(self, metric: Metric, *labels: str) -> tuple[int, float]:
        """Number and sum of values."""
        for name, mine, counts, total in self.recorder.tally.readings().histograms:
            if (name, mine) == (metric.name, labels):
                return sum(counts), total
        return 0, 0.0


def found(readings: Readings, metric: Metric, *labels: str) -> float:
    assert len(labels) == len(metric.labels)
    return sum(
        value for name, mine, value in readings.values if (name, mine) == (metric.name, labels)
    )


def finish(bench: Counted, request_id: str) -> None:
    for _ in ALL:
        bench.done(request_id, seconds=0.5)


def test_a_completed_request():
    bench = Counted()
    bench.join(0)
    bench.submit("r1")
    finish(bench, "r1")
    assert bench.value(catalogue.REQUESTS_ACCEPTED, MODEL) == 1
    assert bench.value(catalogue.REQUESTS_ENDED, MODEL, "stop") == 1
    assert bench.histogram(catalogue.LATENCY_S, MODEL, "video") == (1, 3.0)
    for stage in Stage:
        assert bench.value(catalogue.ATTEMPTS, MODEL, stage, "1") == 1
        assert bench.histogram(catalogue.EXEC_S, MODEL, stage)[0] == 1
    assert bench.histogram(catalogue.VIDEO_DURATION_S, MODEL) == (1, 9 / 8)
    assert bench.histogram(catalogue.VIDEO_RTF, MODEL) == (1, 3.0 / (9 / 8))
    assert bench.value(catalogue.TRANSFERS_LOCAL, "encoder", "dit") == 1


def test_an_image_is_no_video():
    bench = Counted()
    bench.join(0)
    bench.submit("r1", num_frames=1)
    finish(bench, "r1")
    assert bench.value(catalogue.IMAGES, MODEL) == 1
    assert bench.histogram(catalogue.LATENCY_S, MODEL, "image")[0] == 1
    assert bench.histogram(catalogue.VIDEO_DURATION_S, MODEL) == (0, 0.0)


def test_other_ends():
    bench = Counted(max_attempts=1)
    bench.join(0)
    bench.submit("bad")
    bench.failed("bad", "MemoryError")
    bench.submit("unwanted")
    bench.cancel("unwanted")
    bench.aborted("unwanted")
    assert bench.value(catalogue.REQUESTS_ENDED, MODEL, "error") == 1
    assert bench.value(catalogue.REQUESTS_ENDED, MODEL, "abort") == 1
    assert bench.value(catalogue.FAILURES, "encoder", "MemoryError") == 1
    assert bench.histogram(catalogue.LATENCY_S, MODEL, "video") == (0, 0.0)


def test_the_wait_in_a_queue_and_those_who_wait():
    bench = Counted()
    bench.submit("r1")  # at second 1
    bench.submit("r2")
    assert bench.gauge(catalogue.REQUESTS_WAITING, MODEL, "encoder") == 2
    assert bench.gauge(catalogue.OLDEST_WAIT_S, MODEL, "encoder") == 1
    bench.join(0)  # at second 3
    assert bench.histogram(catalogue.QUEUE_TIME_S, MODEL, "encoder") == (1, 2.0)
    assert bench.gauge(catalogue.REQUESTS_WAITING, MODEL, "encoder") == 1
    assert bench.gauge(catalogue.REQUESTS_RUNNING, MODEL, "encoder") == 1


def test_inputs_that_move_and_that_are_lost():
    bench = Counted()
    bench.join(0, stages=(Stage.ENCODER,))
    bench.join(1, stages=(Stage.DIT, Stage.DECODER))
    bench.submit("r1")
    bench.done("r1")
    assert bench.histogram(catalogue.TRANSFER_BYTES, "encoder", "dit") == (1, 1000.0)
    bench.inputs_lost("r1")
    assert bench.value(catalogue.TRANSFERS_LOST, "encoder") == 1
    assert bench.value(catalogue.ATTEMPTS, MODEL, "encoder", "2") == 1


def test_how_long_inputs_took_to_arrive():
    bench = Counted()
    bench.join(0)
    bench.submit("r1")
    bench.done("r1")
    assert bench.histogram(catalogue.TRANSFER_TIME_S, "encoder", "dit") == (0, 0.0)
    pulls = ((Stage.ENCODER, 0.25), (Stage.DIT, 2.0))  # a run that was resumed here
    bench.do(replace(bench.done_event("r1"), pulls=pulls))
    assert bench.histogram(catalogue.TRANSFER_TIME_S, "encoder", "dit") == (1, 0.25)
    assert bench.histogram(catalogue.TRANSFER_TIME_S, "dit", "dit") == (1, 2.0)


def test_steps_by_degree_of_parallelism_and_stale_ones_never():
    class Wide:
        """Starts the DiT on all GPUs."""

        def order(self, record):
            return ()

        def plan(self, state, now):
            for stage in Stage:
                for key, queue in state.queues(stage):
                    free = tuple(state.free(key))
                    if queue.head is not None and free:
                        gpus = free if stage is Stage.DIT else free[:1]
                        yield actions.Start(queue.head.request_id, gpus, "wide")

    bench = Counted(Wide())
    bench.join(0, 1)
    bench.submit("r1")
    bench.done("r1")
    assert bench.gauge(catalogue.DOP, MODEL, "2") == 1
    bench.step("r1", 1)
    bench.step("r1", 3)
    count, total = bench.histogram(catalogue.STEP_S, MODEL, "2")
    assert (count, total) == (2, 1.0 + 0.5)
    bench.step("r1", 2)
    assert bench.histogram(catalogue.STEP_S, MODEL, "2") == (count, total)


def test_gpus_and_their_utilisation():
    bench = Counted()
    bench.join(0, 1)
    assert bench.gauge(catalogue.STAGE_GPUS, MODEL, "dit") == 2
    assert bench.gauge(catalogue.UTILIZATION, MODEL, "encoder") == 0
    bench.submit("r1")
    assert bench.gauge(catalogue.UTILIZATION, MODEL, "encoder") == 0.5
    assert bench.gauge(catalogue.GPU_BUSY, "0", "n0") == 1
    bench.now += 3
    assert bench.gauge(catalogue.GPU_BUSY_S, "0", "n0") == 3
    bench.lose(1)
    assert bench.gauge(catalogue.STAGE_GPUS, MODEL, "dit") == 1


def test_engines_that_leave_are_not_lost():
    def counts():
        metrics = (catalogue.ENGINES_JOINED, catalogue.ENGINES_LEFT, catalogue.ENGINES_LOST)
        return tuple(map(bench.value, metrics))

    bench = Counted()
    shown = {name for name, _, _ in bench.recorder.tally.readings().values}
    assert {"engines_left_total", "engines_lost_total"} <= shown, "at 0, for increase() to see"
    bench.join(0, 1)
    bench.join(2, stages=())
    bench.lose(0, expected=True)
    assert counts() == (3, 1, 0)
    bench.lose(1)
    assert counts() == (3, 1, 1)
    bench.plan(1, {2: (Stage.DIT,)})  # which it never answers
    bench.do(events.Tick())
    bench.do(events.Tick(), after=1e6)
    assert counts() == (3, 1, 2)


def test_loads():
    bench = Counted()
    bench.join(0, stages=())
    bench.plan(1, {0: (Stage.DIT, Stage.DECODER)})
    bench.loaded(0, Stage.DIT)
    bench.load_failed(0, Stage.DECODER)
    assert bench.histogram(catalogue.LOAD_S, MODEL, "dit") == (1, 1.0)
    assert bench.value(catalogue.LOADS_FAILED, MODEL, "decoder") == 1
    assert bench.gauge(catalogue.PLAN_EPOCH) == 1
