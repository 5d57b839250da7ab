"""What dies or hangs, and what happens then: one test per case."""

from __future__ import annotations

import pytest

from elastic_dit import events
from elastic_dit.control import actions
from elastic_dit.control.dispatch import Fcfs
from elastic_dit.control.groups import GroupState
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.cluster.scripted import Scripted

from .bench import Bench, kinds, make_request, only


def at_stage(bench: Bench, request_id: str, stage: Stage) -> None:
    """Submit a request and bring it to a stage."""
    bench.submit(request_id)
    while bench.starts[request_id].stage is not stage:
        bench.done(request_id)


# ------------------------------------------------------------------------- retryable failures
@pytest.mark.parametrize("stage", Stage)
def test_a_lost_engine_means_the_same_stage_again_from_inputs_kept_elsewhere(stage: Stage) -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, stages=(Stage.ENCODER,))
    bench.join(1, 2, stages=(Stage.DIT,))
    bench.join(3, 4, stages=(Stage.DECODER,))
    bench.join(5, stages=(Stage.ENCODER,))
    at_stage(bench, "r", stage)
    inputs = bench.starts["r"].inputs
    gpu = bench.gpus["r"][0]

    start = only(bench.lose(gpu), events.StartStage)
    assert (start.stage, start.attempt, start.inputs) == (stage, 2, inputs)
    assert start.gpus != (gpu,)
    assert all(bench.released[ref] == 0 for ref in inputs)


def test_where_the_inputs_died_with_the_engine_their_stage_runs_again() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", Stage.DECODER)
    assert bench.lose(0) == []
    assert bench.controller.table.get("r").phase is Phase.QUEUED
    start = only(bench.join(1), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)


def test_a_waiting_request_whose_inputs_died_goes_back_without_blame() -> None:
    bench = Bench(max_attempts=1)
    bench.join(0, stages=(Stage.ENCODER,))
    bench.submit("r")
    bench.done("r")
    assert bench.controller.table.get("r").phase is Phase.ENCODED
    for _ in range(3):
        assert kinds(bench.lose(0)) == []
        assert bench.controller.table.get("r").phase is Phase.QUEUED
        start = only(bench.join(0, stages=(Stage.ENCODER,)), events.StartStage)
        assert start.stage is Stage.ENCODER
        bench.done("r")
    assert bench.starts["r"].attempt == 4
    assert bench.controller.table.get("r").blamed == 0


def test_engines_that_leave_in_good_order_cost_no_try() -> None:
    bench = Bench(max_attempts=3)
    bench.join(0, 1, 2, 3)
    bench.submit("r")
    for attempt in (2, 3, 4):
        start = only(bench.lose(bench.gpus["r"][0], expected=True), events.StartStage)
        assert start.attempt == attempt
    record = bench.controller.table.get("r")
    assert (record.blamed, len(record.failures)) == (0, 3)
    for _ in range(2):
        bench.done("r")
    assert only(bench.done("r"), events.Complete).request_id == "r"


def test_engines_that_die_cost_a_try_each() -> None:
    bench = Bench(max_attempts=3)
    bench.join(0, 1, 2, 3)
    bench.submit("r")
    for attempt in (2, 3):
        start = only(bench.lose(bench.gpus["r"][0]), events.StartStage)
        assert start.attempt == attempt
    fail = only(bench.lose(bench.gpus["r"][0]), events.Fail)
    assert (fail.attempts, fail.failure.error_type) == (3, "EngineLost")


def test_inputs_that_left_with_their_engine_cost_no_try() -> None:
    bench = Bench(prefetch_depth=0, max_attempts=1)
    bench.join(0, 1, stages=(Stage.ENCODER,))
    bench.join(2, stages=(Stage.DIT,))
    at_stage(bench, "r", Stage.DIT)
    bench.lose(0, expected=True)
    start = only(bench.inputs_lost("r"), events.StartStage)
    assert (start.stage, start.gpus, start.attempt) == (Stage.ENCODER, (1,), 2)


def test_a_running_stage_survives_the_loss_of_its_producer() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, stages=(Stage.ENCODER,))
    bench.join(1, stages=(Stage.DIT,))
    at_stage(bench, "r", Stage.DIT)
    assert bench.lose(0) == []
    bench.step("r", 1)
    assert kinds(bench.done("r")) == []  # the dead producer needs no release
    assert bench.controller.table.get("r").phase is Phase.DENOISED


def test_inputs_that_cannot_be_pulled_send_a_request_one_stage_back() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DIT)
    commands = bench.inputs_lost("r")
    assert only(commands, events.Release).artifact == bench.made[0]
    start = only(commands, events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)
    bench.done("r")
    assert bench.starts["r"].inputs == (bench.made[1],)


def test_a_stage_is_retried_elsewhere_and_given_up_with_its_history() -> None:
    bench = Bench(max_attempts=3)
    bench.join(0, 1)
    bench.submit("r")
    assert bench.gpus["r"] == (0,)
    bench.failed("r", "OutOfMemory", retryable=True)
    assert bench.gpus["r"] == (1,)
    bench.lose(1, "killed by the kernel")
    assert bench.starts["r"].attempt == 3
    fail = only(bench.failed("r", "OutOfMemory", retryable=True), events.Fail)
    assert fail.attempts == 3
    assert fail.failure.error_type == "OutOfMemory"
    assert "OutOfMemory: boom; EngineLost: GPU 1: killed by the kernel" in fail.failure.message
    assert bench.controller.table.get("r").phase is Phase.FAILED


def test_further_retries_wait_longer_and_longer() -> None:
    bench = Bench(max_attempts=5, retry_backoff_s=2.0)
    bench.join(0)
    bench.submit("r")
    assert "StartStage" in kinds(bench.failed("r", retryable=True))
    for wait_s in (2.0, 4.0, 8.0):
        assert "StartStage" not in kinds(bench.failed("r", retryable=True))
        assert bench.do(events.Tick(), after=wait_s - 0.5) == []
        assert bench.controller.progress("r", bench.now).phase is Phase.QUEUED
        assert kinds(bench.do(events.Tick(), after=0.5)) == ["StartStage"]
    assert only(bench.failed("r", retryable=True), events.Fail).attempts == 5


def test_a_request_that_waits_for_its_retry_can_be_cancelled() -> None:
    bench = Bench(max_attempts=5, retry_backoff_s=2.0)
    bench.join(0)
    bench.submit("r")
    for _ in range(2):
        bench.failed("r", retryable=True)
    assert kinds(bench.cancel("r")) == ["Cancelled"]
    assert bench.do(events.Tick(), after=9.0) == []
    bench.submit("next")
    assert bench.gpus["next"] == (0,)


@pytest.mark.parametrize("stage", Stage)
def test_what_is_not_retryable_fails_at_once_and_alone(stage: Stage) -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", stage)
    bench.submit("other")
    commands = bench.failed("r", "ValueError")
    fail = only(commands, events.Fail)
    assert (fail.failure.error_type, fail.failure.stage, fail.attempts) == ("ValueError", stage, 1)
    assert only(commands, events.StartStage).request.request_id == "other"
    assert set(bench.released) == set(bench.made)


def test_an_output_that_lies_on_a_dead_engine_is_made_again() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, 1)
    bench.submit("r")
    late = bench.done_event("r")
    bench.lose(0)
    assert bench.do(late) == []  # the group went with the engine
    assert bench.starts["r"].gpus == (1,)
    on_a_dead_gpu = events.StageDone(
        **bench.fence("r"),
        stage=Stage.ENCODER,
        output=bench.artifact("r", gpu=0),
        seconds=1.0,
    )
    start = only(bench.do(on_a_dead_gpu), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 3)


def test_a_lost_result_is_made_again_and_completes_again() -> None:
    bench = Bench()
    bench.join(0)
    at_stage(bench, "r", Stage.DECODER)
    only(bench.done("r"), events.Complete)
    start = only(bench.do(events.ResultLost(request_id="r")), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)
    assert bench.do(events.ResultLost(request_id="r")) == []
    for _ in range(2):
        bench.done("r")
    assert only(bench.done("r"), events.Complete).result == bench.made[-1]


def test_results_that_keep_being_lost_are_given_up() -> None:
    bench = Bench(max_attempts=1)
    bench.join(0)
    at_stage(bench, "r", Stage.DECODER)
    bench.done("r")
    fail = only(bench.do(events.ResultLost(request_id="r")), events.Fail)
    assert "the result was lost" in fail.failure.message


def test_a_result_that_left_with_its_engine_costs_no_try_and_one_that_died_with_it_does() -> None:
    bench = Bench(max_attempts=1)
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DECODER)
    bench.done("r")
    bench.lose(bench.gpus["r"][0], expected=True)
    start = only(bench.do(events.ResultLost(request_id="r")), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)
    record = bench.controller.table.get("r")
    assert (record.blamed, [each.error_type for each in record.failures]) == (0, ["EngineLost"])
    for _ in range(2):
        bench.done("r")
    only(bench.done("r"), events.Complete)
    bench.lose(bench.gpus["r"][0])
    fail = only(bench.do(events.ResultLost(request_id="r")), events.Fail)
    assert "the result was lost" in fail.failure.message


def test_only_results_of_the_engine_that_leaves_go_with_it() -> None:
    bench = Bench(max_attempts=1)
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DECODER)
    bench.done("r")
    [other] = {0, 1} - {bench.gpus["r"][0]}
    bench.lose(other, expected=True)
    fail = only(bench.do(events.ResultLost(request_id="r")), events.Fail)
    assert "the result was lost" in fail.failure.message
    record = bench.controller.table.get("r")
    assert record.blamed == 1, "its own engine is still there"


def test_an_engine_that_comes_back_under_another_name_has_lost_its_work() -> None:
    bench = Bench()
    bench.join(0, name="first")
    bench.submit("r")
    start = only(bench.join(0, name="second"), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)


# ------------------------------------------------------------------------------------- cancel
def test_cancel_while_waiting() -> None:
    bench = Bench()
    bench.submit("r")
    assert kinds(bench.cancel("r")) == ["Cancelled"]
    assert kinds(bench.cancel("r")) == []
    assert bench.join(0) == []


@pytest.mark.parametrize("stage", Stage)
def test_cancel_while_running_keeps_the_gpu_until_it_has_stopped(stage: Stage) -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", stage)
    bench.submit("next")
    commands = bench.cancel("r")
    assert only(commands, events.Abort).gpus == (0,)
    only(commands, events.Cancelled)
    assert "StartStage" not in kinds(commands)
    assert set(bench.released) == set(bench.made)
    start = only(bench.aborted("r"), events.StartStage)
    assert start.request.request_id == "next"


def test_a_cancelled_stage_that_ends_by_itself_leaves_nothing_behind() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", Stage.DIT)
    bench.cancel("r")
    done = bench.done_event("r")
    commands = bench.do(done)
    assert [c.artifact for c in commands if isinstance(c, events.Release)] == [done.output]
    assert bench.do(done) == []
    assert bench.controller.pool[0].group is None


def test_the_gpu_of_a_cancelled_request_may_die_instead() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("r")
    bench.cancel("r")
    assert bench.lose(0) == []
    assert bench.controller.table.get("r").phase is Phase.CANCELLED


# ------------------------------------------------------------------------------------- groups
class OnFour(Fcfs):
    """Starts the DiT on every free GPU; does whatever else a test puts into `orders`."""

    watches_clock = True

    def __init__(self) -> None:
        self.orders: list[actions.Action] = []

    def plan(self, view, now):  # type: ignore[no-untyped-def]
        while self.orders:
            yield self.orders.pop(0)
        for key, queue in view.queues(Stage.DIT):
            if queue.head is not None and view.free(key):
                yield actions.Start(queue.head.request_id, tuple(view.free(key)), "all there is")
        yield from super().plan(view, now)


def on_four(**config: int) -> tuple[Bench, OnFour]:
    policy = OnFour()
    bench = Bench(policy, prefetch_depth=0, **config)
    bench.join(0, 1, 2, 3)
    at_stage(bench, "r", Stage.DIT)
    assert bench.gpus["r"] == (0, 1, 2, 3)
    return bench, policy


def test_survivors_of_a_group_carry_on_in_the_same_attempt() -> None:
    bench, _ = on_four()
    bench.step("r", 1)
    resize = only(bench.lose(1), events.Resize)
    assert (resize.gpus, resize.attempt) == ((2, 3), 1)
    group = bench.controller.table.get("r").group
    assert group.held == {0, 2, 3}
    bench.freed("r", 0)
    assert (group.gpus, group.held, group.state) == ((2, 3), {2, 3}, GroupState.RUNNING)
    bench.step("r", 2)
    bench.done("r")
    assert bench.starts["r"].stage is Stage.DECODER


def test_a_master_may_die_too() -> None:
    bench, _ = on_four()
    bench.step("r", 1)
    resize = only(bench.lose(0), events.Resize)
    assert (resize.gpus, resize.present, resize.lost) == ((2, 3), (1, 2, 3), (0,))


def test_a_master_that_dies_before_its_first_step_leaves_nobody_with_the_state() -> None:
    bench, _ = on_four()
    commands = bench.lose(0)
    assert only(commands, events.Abort).gpus == (1, 2, 3)
    start = only(bench.aborted("r"), events.StartStage)
    assert (start.stage, start.attempt) == (Stage.ENCODER, 2)  # what it was made from is gone too


def test_members_that_their_group_gave_up_are_made_anew() -> None:
    bench, _ = on_four()
    bench.step("r", 1)
    told = events.MembersLost(**bench.fence("r"), gpus=(1,), reason="no progress for 5 s")
    commands = bench.do(told)
    assert only(commands, events.RestartEngine).gpu == 1
    assert only(commands, events.Resize).gpus == (2, 3)
    assert 1 not in bench.controller.pool
    assert bench.do(told) == []
    stale = events.MembersLost(request_id="r", attempt=9, epoch=9, gpus=(2,), reason="old")
    assert bench.do(stale) == []


def test_a_refused_resize_leaves_the_group_as_it_is() -> None:
    bench, policy = on_four()
    policy.orders.append(actions.Resize("r", (0, 1), "make room"))
    before = bench.fence("r")
    bench.do(events.Tick())
    refused = events.ResizeRefused(**bench.fence("r"), reason="it cannot be halved")
    bench.do(refused)
    group = bench.controller.table.get("r").group
    assert (group.gpus, group.state, group.epoch) == (
        (0, 1, 2, 3),
        GroupState.RUNNING,
        before["epoch"],
    )
    assert bench.do(refused) == []
    bench.do(events.StepDone(**before, step=1))
    assert group.step == 1


def test_joiners_of_a_refused_resize_are_called_off() -> None:
    policy = OnFour()
    bench = Bench(policy, prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", Stage.DIT)
    bench.join(1)
    policy.orders.append(actions.Resize("r", (0, 1), "a GPU joined"))
    resize = only(bench.do(events.Tick()), events.Resize)
    assert (resize.present, resize.request) == ((0,), bench.starts["r"].request)
    joining = bench.fence("r")
    commands = bench.do(events.ResizeRefused(**joining, reason="no store"))
    assert only(commands, events.Abort).gpus == (1,)
    bench.do(events.StageAborted(**joining))
    assert bench.controller.pool[1].group is None
    assert bench.controller.table.get("r").group.gpus == (0,)


def test_a_policy_cannot_pick_a_degree_that_the_engines_refuse() -> None:
    bench = Bench(OnFour())
    bench.join(0, 1)
    controller, request = bench.controller, make_request("r")
    bench.do(events.RequestAccepted(request=request, dops=(1, 2)))
    assert controller.allowed.allows(request, 2)
    assert not controller.allowed.allows(request, 4)
    controller.allowed.widest = 1
    assert not controller.allowed.allows(request, 2)
    controller.observed.observe(request, Stage.DIT, 2, 0.5)
    assert controller.view.times.seconds(request, Stage.DIT, 2) is None
    controller.allowed.widest = None
    assert controller.view.times.seconds(request, Stage.DIT, 2) == 0.5


def test_a_group_that_keeps_losing_members_is_given_up() -> None:
    bench, _ = on_four(max_attempts=2)
    bench.step("r", 1)
    bench.lose(0)
    commands = bench.lose(2)
    assert only(commands, events.Fail).failure.error_type == "EngineLost"
    assert only(commands, events.Abort).gpus == (1, 3)


def test_a_group_that_members_leave_in_good_order_goes_on() -> None:
    bench, _ = on_four(max_attempts=1)
    bench.step("r", 1)
    assert only(bench.lose(0, expected=True), events.Resize).lost == (0,)
    assert bench.controller.table.get("r").blamed == 0


def test_what_a_master_made_that_has_left_in_good_order_costs_no_try() -> None:
    bench, _ = on_four(max_attempts=1)
    bench.step("r", 1)
    late = bench.done_event("r")
    bench.lose(0, expected=True)
    bench.do(late)
    record = bench.controller.table.get("r")
    assert (record.attempt, record.blamed) == (2, 0)


def test_followers_are_free_before_the_decode() -> None:
    bench, _ = on_four()
    bench.submit("next")
    start = only(bench.freed("r", 1, 2, 3), events.StartStage)
    assert (start.request.request_id, start.gpus) == ("next", (1,))
    decode = [c for c in bench.done("r") if isinstance(c, events.StartStage)]
    assert [(c.request.request_id, c.stage, c.gpus) for c in decode] == [("r", Stage.DECODER, (0,))]


def test_promotion_takes_the_joiners_at_once_and_is_confirmed_by_its_epoch() -> None:
    policy = OnFour()
    bench = Bench(policy, prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", Stage.DIT)
    bench.join(1)
    policy.orders.append(actions.Resize("r", (0, 1), "a GPU joined"))
    before = bench.fence("r")
    resize = only(bench.do(events.Tick()), events.Resize)
    assert resize.epoch > before["epoch"]
    group = bench.controller.table.get("r").group
    assert (group.gpus, group.target, group.dop) == ((0,), (0, 1), 1)
    bench.submit("other")
    assert "other" not in bench.starts
    bench.do(events.StepDone(**before, step=1))  # the step under way when it was ordered
    assert group.state is GroupState.RESIZING
    bench.step("r", 2)
    assert (group.gpus, group.state, group.step) == ((0, 1), GroupState.RUNNING, 2)
    assert bench.do(events.StepDone(**before, step=3)) == []
    assert group.step == 2
    bench.done("r")
    dit = [r for r in bench.controller.table.get("r").records if r.stage is Stage.DIT]
    assert [record.gpus for record in dit] == [(0,), (0, 1)]


def test_joiners_of_a_stage_that_ended_first_are_called_off() -> None:
    policy = OnFour()
    bench = Bench(policy, prefetch_depth=0)
    bench.join(0)
    at_stage(bench, "r", Stage.DIT)
    bench.join(1)
    done = bench.done_event("r")
    policy.orders.append(actions.Resize("r", (0, 1), "a GPU joined"))
    bench.do(events.Tick())
    joining = bench.fence("r")
    commands = bench.do(done)
    assert only(commands, events.Abort).gpus == (1,)
    assert only(commands, events.StartStage).gpus == (0,)
    assert bench.controller.pool[1].group is not None
    bench.do(events.StageAborted(**joining))
    assert bench.controller.pool[1].group is None


def test_demotion_frees_the_leavers_when_they_say_so() -> None:
    bench, policy = on_four()
    policy.orders.append(actions.Resize("r", (0, 1), "make room"))
    bench.do(events.Tick())
    bench.step("r", 1)
    group = bench.controller.table.get("r").group
    assert (group.gpus, group.held) == ((0, 1), {0, 1, 2, 3})
    bench.submit("next")
    assert "next" not in bench.starts
    bench.freed("r", 2, 3)
    assert bench.gpus["next"] == (2,)


def test_preemption_waits_with_a_snapshot_and_resumes_from_it() -> None:
    bench, policy = on_four()
    bench.step("r", 2)
    policy.orders.append(actions.Preempt("r", "make room"))
    assert only(bench.do(events.Tick()), events.Preempt).gpus == (0, 1, 2, 3)
    start = only(bench.preempted("r", 2), events.StartStage)
    snapshot = bench.made[-1]
    assert (start.stage, start.attempt, start.inputs) == (Stage.DIT, 1, (snapshot,))
    assert bench.controller.table.get("r").group.step == 2
    assert bench.released[snapshot] == 0
    bench.done("r")
    assert bench.released[snapshot] == 1
    assert bench.released[bench.made[0]] == 1


def test_a_lost_snapshot_means_denoising_from_the_start() -> None:
    bench, policy = on_four()
    bench.step("r", 2)
    policy.orders.append(actions.Preempt("r", "make room"))
    bench.do(events.Tick())
    bench.preempted("r", 2)
    bench.inputs_lost("r")
    start = bench.starts["r"]
    assert (start.stage, start.attempt, start.inputs) == (Stage.DIT, 2, (bench.made[0],))
    assert bench.controller.progress("r", bench.now).step == 0


# ------------------------------------------------------------------------------ silent engines
@pytest.mark.parametrize("stage", Stage)
def test_an_engine_that_is_silent_for_too_long_is_made_anew_and_its_work_goes_on(
    stage: Stage,
) -> None:
    bench = Bench(prefetch_depth=0, silence_factor=5.0, silence_floor_s=10.0)
    bench.join(0, 1)
    bench.submit("known")
    for _ in Stage:
        if bench.starts["known"].stage is Stage.DIT:
            for step in (1, 2, 3, 4):
                bench.step("known", step)
        bench.done("known")
    at_stage(bench, "r", stage)
    (gpu,) = bench.gpus["r"]
    assert bench.do(events.Tick(), after=8.0) == []
    commands = bench.do(events.Tick(), after=3.0)
    assert only(commands, events.RestartEngine).gpu == gpu
    assert only(commands, events.StartStage).gpus != (gpu,)


def test_an_engine_that_runs_a_stage_for_the_first_time_has_more_time() -> None:
    bench = Bench(silence_floor_s=10.0, unknown_stage_timeout_s=100.0)
    bench.join(0)
    bench.submit("r")
    assert bench.do(events.Tick(), after=90.0) == []
    assert kinds(bench.do(events.Tick(), after=20.0)) == ["RestartEngine"]


# ------------------------------------------------------------------------------ out of memory
def test_a_decode_that_ran_out_of_memory_is_tried_again_in_tiles() -> None:
    bench = Bench(prefetch_depth=0)
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DECODER)
    latents = bench.starts["r"].inputs
    assert not bench.starts["r"].tiled
    start = only(bench.failed("r", "OutOfMemoryError", retryable=True), events.StartStage)
    assert (start.stage, start.inputs, start.tiled) == (Stage.DECODER, latents, True)
    assert bench.released[latents[0]] == 0


def test_a_poisonous_request_fails_after_some_tries_and_tells_of_all() -> None:
    bench = Bench(prefetch_depth=0, max_attempts=3, retry_backoff_s=0.0)
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DECODER)
    for error in ("MemoryError", "OSError"):
        only(bench.failed("r", error, retryable=True), events.StartStage)
    fail = only(bench.failed("r", "ClusterError", retryable=True), events.Fail)
    assert fail.attempts == 3
    for told in ("before that", "MemoryError", "OSError"):
        assert told in fail.failure.message


def test_a_joiner_that_came_too_late_is_given_the_time_to_say_so() -> None:
    bench = Bench(Scripted(), unknown_stage_timeout_s=100.0)
    bench.now = 1_000.0
    bench.join(0, 1)
    at_stage(bench, "r", Stage.DIT)
    alone = bench.epochs["r"]
    bench.controller.dispatch.orders.append(actions.Resize("r", (0, 1), "as the test says"))
    only(bench.do(events.Tick()), events.Resize)
    bench.epochs["r"], bench.gpus["r"] = alone, (0,)
    assert "Abort" in kinds(bench.done("r"))
    assert bench.controller.pool[1].group.state is GroupState.ABORTING
    assert "RestartEngine" not in kinds(bench.do(events.Tick()))
    assert "RestartEngine" in kinds(bench.do(events.Tick(), after=101.0))
