"""Members as real processes on gloo; what they make must be what one GPU makes."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

import pytest
import torch

from elastic_dit.engine.group_context import Regroup, ScriptedContext
from elastic_dit.engine.group_store import connect
from elastic_dit.engine.ledger import Generation, Ledger
from elastic_dit.engine.protocol import SNAPSHOT, Boundary, Checkpoint
from elastic_dit.families.wan import WanFamily
from tests.engine.members import Member, Members, members
from tests.engine.parallel_cases import (
    CASES,
    FAMILY_CASES,
    STEPS,
    Part,
    encoded,
    engine_of,
    reference,
    request_of,
    table_of,
    take_part,
)

# diffusers' DPM-Solver hands a tensor to NumPy in a way that NumPy 2 warns of
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

Plan = dict[int, tuple[int, ...]]

TOLERANCE = 1e-5
PATIENCE_S = 14.0
PLANS: dict[str, Plan] = {
    "1 2 1": {2: (0, 1), 4: (0,)},
    "1 2 4 2 1": {1: (0, 1), 2: (0, 1, 2, 3), 3: (0, 1), 5: (0,)},
    "apart": {0: (1, 3), 4: (1,)},
    "a lower one takes over": {1: (2, 3), 2: (0, 2), 4: (0,)},
    "4 to the end": {0: (0, 1, 2, 3)},
}
FIRST = {"apart": 1, "a lower one takes over": 2}
"""GPU that begins, where it is not 0."""


def orders(plan: Plan, patience_s: float = PATIENCE_S) -> dict[int, Boundary | Regroup]:
    return {
        step: Regroup(members=gpus, ticket=f"t{step}", patience_s=patience_s)
        for step, gpus in plan.items()
    }


def start(
    group: Members, part: Part, plan: Plan, first: int = 0, **special: dict[str, Any]
) -> dict[int, Member]:
    """The member that begins and, with the order by which it joins, each other of `plan`.

    `special` changes the parts of single members: ``g1={"signal_at": 3}``.
    """

    def part_of(gpu: int, ticket: str) -> Part:
        return replace(part, ticket=ticket, **special.get(f"g{gpu}", {}))

    begun = {first: group.start(take_part, first, part_of(first, ""))}
    for step, gpus in plan.items():
        for gpu in gpus:
            if gpu not in begun:
                begun[gpu] = group.start(take_part, gpu, part_of(gpu, f"t{step}"))
    return begun


def error_of(result: dict[str, Any], case: str) -> float:
    assert result["end"] == "finished", result["reason"]
    return float((result["latents"] - reference(case)).abs().max())


TRIED = [(case, name) for case in CASES for name in PLANS]
TRIED += [(case, name) for case in FAMILY_CASES for name in ("1 2 4 2 1", "apart")]


@pytest.mark.parametrize(("case", "name"), TRIED)
def test_whatever_the_degree_the_latents_are_those_of_one_gpu(case: str, name: str) -> None:
    plan, first, last = PLANS[name], FIRST.get(name, 0), list(PLANS[name].values())[-1][0]
    reference(case)  # before the members fork, so that they need not compute it
    with members() as group:
        begun = start(group, Part(case, orders(plan)), plan, first)
        results = {gpu: member.result() for gpu, member in begun.items()}
    assert error_of(results[last], case) <= TOLERANCE
    assert all(results[gpu]["end"] == "released" for gpu in results if gpu != last)
    changes = [
        (change["step"], tuple(change["members"]))
        for gpu in sorted({first, last})
        for change in results[gpu]["changes"]
    ]
    assert sorted(set(changes)) == sorted(plan.items())
    for gpu, result in results.items():
        there = [step for step in range(STEPS) if gpu in _at(plan, step, first)]
        assert result["steps_run"] == there


def _at(plan: Plan, step: int, first: int) -> tuple[int, ...]:
    earlier = [gpus for begun, gpus in plan.items() if begun <= step]
    return earlier[-1] if earlier else (first,)


@pytest.mark.parametrize("case", ["wan", "cogvideox"])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_member_costs_one_step(victim: int, case: str) -> None:
    plan = {1: (0, 1)}
    reference(case)
    with members() as group:
        special = {f"g{victim}": {"signal_at": 3}}
        begun = start(group, Part(case, orders(plan)), plan, **special)
        survivor = begun[1 - victim].result()
    assert error_of(survivor, case) <= TOLERANCE
    done = [3, 3, 4, 5]
    assert survivor["steps_run"][-4:] == done
    assert len(survivor["steps_run"]) == (STEPS - 1 if victim == 0 else STEPS) + 1
    last = survivor["changes"][-1]
    assert (last["members"], last["step"], last["lost"]) == ([1 - victim], 3, [victim])
    assert survivor["redo_s"] < 5.0, "noticed by the time-out, not by the death"


@pytest.mark.parametrize("victim", [0, 2])
def test_four_less_one_are_two_neighbours(victim: int) -> None:
    plan = {1: (0, 1, 2, 3)}
    reference("qwen")
    with members() as group:
        special = {f"g{victim}": {"signal_at": 3}}
        begun = start(group, Part("qwen", orders(plan)), plan, **special)
        results = {gpu: m.result() for gpu, m in begun.items() if gpu != victim}
    master = 0 if victim else 2
    assert error_of(results[master], "qwen") <= TOLERANCE
    kept = set(results[master]["changes"][-1]["members"])
    assert len(kept) == 2
    for gpu, result in results.items():
        assert len(result["steps_run"]) - len(set(result["steps_run"])) <= 1
        assert result["end"] == ("finished" if gpu == master else "released")
        assert (max(result["steps_run"]) == STEPS - 1) == (gpu in kept)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_member_is_left_behind_and_knows_it(victim: int) -> None:
    plan = {1: (0, 1)}
    reference("wan")
    part = Part("wan", orders(plan), timeout_s=4.0)
    with members() as group:
        special = {f"g{victim}": {"signal_at": 3, "signal": signal.SIGSTOP}}
        begun = start(group, part, plan, **special)
        survivor = begun[1 - victim].result(deadline_s=20.0)
        begun[victim].signal(signal.SIGCONT)
        stopped = begun[victim].result()
    assert error_of(survivor, "wan") <= TOLERANCE
    assert len(survivor["steps_run"]) - len(set(survivor["steps_run"])) == 1
    assert (stopped["end"], stopped["latents"]) == ("released", None)


def test_a_group_without_survivors_of_its_state_is_dissolved() -> None:
    """The master dies before those it admitted have the state."""
    with members() as group:
        killed = group.start(take_part, 0, Part("wan", {}, signal_at=0))
        joiners = [group.start(_abandoned, gpu) for gpu in (1, 2)]
        results = [joiner.result() for joiner in joiners]
        killed.process.join(20.0)
    assert {result["end"] for result in results} == {"dissolved"}
    assert all("nobody has the state" in result["reason"] for result in results)


def _abandoned(address: str, gpu: int) -> dict[str, Any]:
    part = Part("wan", ticket="t", timeout_s=2.0, settle_s=0.3)
    ledger = Ledger(connect(address), part.run, 0, settle_s=1.0)
    ledger.propose(
        Generation(number=1, members=(0, 1, 2), epoch=7, source=0, step=2, transfer=True)
    )
    ledger.admit("t", (1, 2), 1)
    return take_part(address, gpu, part)


@pytest.mark.parametrize("plan", [{}, {1: (0, 1)}], ids=["alone", "two"])
def test_a_preempted_run_goes_on_elsewhere_from_its_snapshot(plan: Plan) -> None:
    reference("wan")
    script = {**orders(plan), 3: Boundary.PREEMPT}
    with members() as group:
        begun = start(group, Part("wan", script), plan)
        stopped, *followers = [member.result() for member in begun.values()]
        assert (stopped["end"], stopped["step"]) == ("preempted", 3)
        assert all(f["end"] == "preempted" and not f["payload"] for f in followers)
        resumed = Part("wan", {}, snapshot=stopped["payload"], run="r/2")
        result = group.start(take_part, 3, resumed).result()
    assert error_of(result, "wan") <= TOLERANCE
    assert result["steps_run"] == [3, 4, 5]


def test_an_aborted_run_ends_at_the_boundary_for_all() -> None:
    plan = {1: (0, 1)}
    with members() as group:
        begun = start(group, Part("wan", {**orders(plan), 3: Boundary.ABORT}), plan)
        results = [member.result() for member in begun.values()]
    assert [(r["end"], r["step"], r["payload"]) for r in results] == [("aborted", 3, {})] * 2


@pytest.mark.parametrize("raising", [0, 1])
def test_an_error_at_one_member_ends_the_run_for_all(raising: int) -> None:
    plan = {1: (0, 1)}
    with members() as group:
        special = {f"g{raising}": {"raise_at": 3}}
        begun = start(group, Part("wan", orders(plan)), plan, **special)
        other = begun[1 - raising].result()
        with pytest.raises(AssertionError, match="out of memory, pretended"):
            begun[raising].result()
    assert (other["end"], other["payload"]) == ("dissolved", {})
    assert f"GPU {raising}: MemoryError: out of memory, pretended" in other["reason"]


def test_a_group_goes_on_until_its_joiners_are_there() -> None:
    reference("wan")
    script = orders({1: (0, 1)}, patience_s=0.0)
    with members() as group:
        first = group.start(take_part, 0, Part("wan", script, hold_at=4))
        assert first.hears("holding")
        late = group.start(take_part, 1, Part("wan", ticket="t1", tell_knock=True))
        assert late.hears("knocked")
        first.send("go on")
        results = [first.result(), late.result()]
    assert error_of(results[0], "wan") <= TOLERANCE
    assert results[0]["changes"] == [{"members": [0, 1], "step": 5, "lost": []}]
    assert results[1]["steps_run"] == [5]


def test_patience_with_a_joiner_is_spent_once() -> None:
    reference("wan")
    script = {1: Regroup(members=(0, 1), ticket="nobody", patience_s=1.0)}
    started = time.monotonic()
    with members() as group:
        result = group.start(take_part, 0, Part("wan", script)).result()
    assert error_of(result, "wan") == 0.0
    assert result["changes"] == []
    assert 1.0 <= result["longest_s"] <= time.monotonic() - started
    assert result["waits"] == 1


def test_joiners_of_a_replaced_order_are_sent_away() -> None:
    reference("wan")
    script = {
        1: Regroup(members=(0, 1), ticket="never"),
        2: Regroup(members=(0, 2), ticket="t2", patience_s=PATIENCE_S),
    }
    with members() as group:
        first = group.start(take_part, 0, Part("wan", script))
        second = group.start(take_part, 2, Part("wan", ticket="t2"))
        assert error_of(first.result(), "wan") <= TOLERANCE
        assert second.result()["steps_run"] == [2, 3, 4, 5]
        never = group.start(take_part, 1, Part("wan", ticket="never")).result()
    assert (never["end"], never["step"]) == ("released", -1)


def test_orders_that_would_be_wrong_are_refused_with_a_reason() -> None:
    reference("wan")
    script = {
        1: Regroup(members=(0, 1, 2), ticket="three"),
        2: Regroup(members=(1, 2), ticket="none of ours"),
        3: Regroup(members=(0, 3), ticket="one is dead"),
    }
    with members() as group:
        result = group.start(take_part, 0, Part("wan", script, lost=3)).result()
    assert error_of(result, "wan") == 0.0
    assert result["refusals"] == [
        "degrees of parallelism allowed: 1, 2, 4",
        "no present member is among the new ones",
        "GPU 3 is dead",
    ]


def test_a_group_that_exists_goes_on_without_a_store() -> None:
    reference("wan")
    script = orders({1: (0, 1)}) | {4: Regroup(members=(0,), ticket="smaller")}
    with members() as group:
        first = group.start(take_part, 0, Part("wan", script, hold_at=3))
        second = group.start(take_part, 1, Part("wan", ticket="t1"))
        assert first.hears("holding")
        group.host.kill()
        group.host.join()
        first.send("go on")
        result = first.result()
        assert second.result()["step"] == STEPS
    assert error_of(result, "wan") <= TOLERANCE
    assert result["steps_run"] == list(range(STEPS))
    assert ["does not answer" in refusal for refusal in result["refusals"]] == [True]


def test_a_replaced_worker_joins_under_a_new_epoch() -> None:
    """GPU 1 dies in a group; its next process has the same number and joins the survivor."""
    reference("wan")
    script = orders({1: (0, 1)}) | {
        4: Regroup(members=(0, 1), ticket="again", patience_s=PATIENCE_S)
    }
    with members() as group:
        first = group.start(take_part, 0, Part("wan", script))
        killed = group.start(take_part, 1, Part("wan", ticket="t1", signal_at=2))
        killed.process.join(20.0)
        again = group.start(take_part, 1, Part("wan", ticket="again"))
        result, second = first.result(), again.result()
    assert error_of(result, "wan") <= TOLERANCE
    assert [change["members"] for change in result["changes"]] == [[0, 1], [0], [0, 1]]
    assert second["steps_run"] == [4, 5]


def test_one_process_serves_run_after_run_with_the_groups_it_has() -> None:
    reference("wan")
    reference("qwen")
    with members() as group:
        pair = [group.start(_two_runs, gpu) for gpu in (0, 1)]
        first, second = (member.result() for member in pair)
    for case in ("wan", "qwen"):
        assert float((first[case] - reference(case)).abs().max()) <= TOLERANCE
    assert first["groups"] == second["groups"] == 1
    assert torch.equal(first["wan"], first["wan again"])


def _two_runs(address: str, gpu: int) -> dict[str, Any]:
    table = table_of(address, gpu, 20.0)
    results: dict[str, Any] = {}
    for name in ("wan", "qwen", "wan again"):
        case = name.split(" ", maxsplit=1)[0]
        part = Part(
            case, orders({1: (0, 1)}) if gpu == 0 else {}, ticket="t1" if gpu else "", run=name
        )
        results[name] = take_part(address, gpu, part, table)["latents"]
    return {**results, "groups": len(table._groups)}


# ---------------------------------------------------------------------- engines as members
def _engine_part(address: str, gpu: int, context: Any, run: str, ticket: str, inputs: Any) -> Any:
    request = request_of("wan")
    engine = engine_of("wan")
    outcome = engine.run_member(
        request,
        None if ticket else inputs or encoded("wan"),
        context,
        table=table_of(address, gpu, 20.0),
        ledger=Ledger(connect(address), run, gpu, settle_s=0.5),
        ticket=ticket,
    )
    return {"end": outcome.end.value, "reason": outcome.reason, "payload": outcome.payload}


def test_engines_denoise_together_stop_and_go_on() -> None:
    expected = reference("wan")
    pair = Regroup(members=(0, 1), ticket="t", patience_s=PATIENCE_S)
    with members() as group:

        def both(run: str, script: dict[int, Boundary | Regroup], inputs: Any) -> list[Any]:
            begun = [
                group.start(_engine_part, 0, ScriptedContext(script), run, "", inputs),
                group.start(_engine_part, 1, ScriptedContext(), run, "t", None),
            ]
            return [member.result() for member in begun]

        stopped, follower = both("r/1", {1: pair, 3: Boundary.PREEMPT}, None)
        assert (stopped["end"], follower["end"]) == ("preempted", "preempted")
        assert (list(stopped["payload"]), follower["payload"]) == ([SNAPSHOT], None)
        finished, follower = both("r/2", {4: pair}, stopped["payload"])
    assert (finished["end"], follower["end"]) == ("finished", "released")
    assert float((finished["payload"]["latents"] - expected).abs().max()) <= TOLERANCE


def _keeping_part(address: str, gpu: int, script: dict[int, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    keep = Checkpoint(lambda payload, step: kept.update(payload, step=step))
    context = ScriptedContext({**script, 3: keep})
    return {**_engine_part(address, gpu, context, "r/1", "", None), "kept": kept}


def test_a_group_hands_its_state_over_goes_on_and_can_be_resumed_alone() -> None:
    expected = reference("wan")
    pair = Regroup(members=(0, 1), ticket="t", patience_s=PATIENCE_S)
    with members() as group:
        begun = [
            group.start(_keeping_part, 0, {1: pair}),
            group.start(_engine_part, 1, ScriptedContext(), "r/1", "t", None),
        ]
        finished, _ = [member.result() for member in begun]
        assert finished["kept"].pop("step") == 3
        script = ScriptedContext()
        resumed = group.start(_engine_part, 3, script, "r/2", "", finished["kept"]).result()
    for end in (finished, resumed):
        assert end["end"] == "finished"
        assert float((end["payload"]["latents"] - expected).abs().max()) <= TOLERANCE


def test_an_abort_in_the_midst_of_a_step_reaches_all_members() -> None:
    class Impatient(ScriptedContext):
        """Gives up between two blocks of the third step."""

        def aborted(self) -> bool:
            return bool(self.boundaries) and self.boundaries[-1] == 3

    script = {1: Regroup(members=(0, 1), ticket="t", patience_s=PATIENCE_S)}
    with members() as group:
        first = group.start(_engine_part, 0, Impatient(script), "r/1", "", None)
        second = group.start(_engine_part, 1, ScriptedContext(), "r/1", "t", None)
        follower = second.result()
        with pytest.raises(AssertionError, match="StageStopped"):
            first.result()
    assert follower["end"] == "dissolved"
    assert "StageStopped" in follower["reason"]


def test_a_family_that_is_not_divided_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = reference("wan")
    monkeypatch.setattr(WanFamily, "sequence", None)
    assert engine_of("wan").allowed_dops(request_of("wan"), 8) == (1,)
    context = ScriptedContext({2: Regroup(members=(0, 1), ticket="t")})
    with members() as group:
        result = group.start(_engine_part, 0, context, "r/1", "", None).result()
    assert torch.equal(result["payload"]["latents"], expected)
