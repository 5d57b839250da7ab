"""Members that come, go, come back and die at random boundaries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from elastic_dit.engine.group_context import Regroup
from tests.engine.members import members
from tests.engine.parallel_cases import STEPS, Part, reference, table_of, take_part

GPUS = 4
PATIENCE_S = 10.0
"""Never spent in full here: whoever is waited for is alive and soon back."""
Plan = dict[int, tuple[int, ...]]


def random_plan(rng: random.Random) -> Plan:
    """Members from a step on, one of those before among them; in the end all."""
    plan: Plan = {}
    present: tuple[int, ...] = (0,)
    for step in range(STEPS - 2):
        if rng.random() < 0.6:
            stays = rng.choice(present)
            others = [gpu for gpu in range(GPUS) if gpu != stays]
            present = tuple(sorted([stays, *rng.sample(others, rng.choice([0, 1, 1, 3]))]))
            if present != ([*plan.values()] or [(0,)])[-1]:
                plan[step] = present
    return plan | {STEPS - 2: tuple(range(GPUS))}


def tickets_of(plan: Plan, gpu: int) -> list[str]:
    """Orders by which `gpu` joins, one after the other."""
    before = [(0,), *plan.values()]
    joins = zip(plan.items(), before, strict=False)
    return [f"t{step}" for (step, gpus), earlier in joins if gpu in gpus and gpu not in earlier]


def roam(address: str, gpu: int, part: Part, tickets: Sequence[str]) -> list[dict[str, Any]]:
    """Take part again and again, until the run is finished here or needs this GPU no more."""
    table, results = table_of(address, gpu, 20.0), []
    for ticket in ["", *tickets] if gpu == 0 else tickets:
        results.append(take_part(address, gpu, replace(part, ticket=ticket), table))
        if results[-1]["end"] == "finished":
            break
    return results


@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_any_plan_gives_the_latents_of_one_gpu(seed: int, kill: bool) -> None:
    rng = random.Random(seed + 100 * kill)
    case = rng.choice(["wan uneven", "qwen uneven", "cogvideox"])
    plan = random_plan(rng)
    script: dict[int, Any] = {
        step: Regroup(members=gpus, ticket=f"t{step}", patience_s=PATIENCE_S)
        for step, gpus in plan.items()
    }
    reference(case)
    victim = rng.randrange(GPUS) if kill else -1
    part = Part(case, script)
    with members() as group:
        started = {
            gpu: group.start(
                roam,
                gpu,
                replace(part, signal_at=STEPS - 2) if gpu == victim else part,
                tickets_of(plan, gpu),
            )
            for gpu in range(GPUS)
        }
        ends = [result for gpu in started if gpu != victim for result in started[gpu].result()]
    (finished,) = [result for result in ends if result["end"] == "finished"]
    assert float((finished["latents"] - reference(case)).abs().max()) <= 1e-5
    assert all(result["end"] == "released" for result in ends if result is not finished)
