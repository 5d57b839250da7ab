"""GPUs per stage keep the proportions that were decided on, however GPUs come."""

from __future__ import annotations

from elastic_dit.config import PlacementConfig, StageRatio
from elastic_dit.control.placement import make_placement
from elastic_dit.control.snapshot import ClusterSnapshot, GpuSnapshot
from elastic_dit.state import PlacementPlan


def snapshot(gpus: int, plan: PlacementPlan | None) -> ClusterSnapshot:
    wanted = plan.residency if plan else {}
    return ClusterSnapshot(
        at=float(gpus),
        plan_epoch=plan.epoch if plan else 0,
        plan_reason="",
        gpus=tuple(
            GpuSnapshot(
                gpu=gpu,
                name=f"w{gpu}",
                node="n",
                kind="virtual",
                memory_bytes=0,
                resident=tuple(sorted(wanted.get(gpu, ()))),
                wanted=tuple(sorted(wanted.get(gpu, ()))),
            )
            for gpu in range(gpus)
        ),
    )


def test_gpus_that_join_one_by_one_end_in_the_configured_ratio() -> None:
    ratio = StageRatio(encoder=1, dit=6, decoder=1)
    policy = make_placement(PlacementConfig(policy="reactive", ratio=ratio), ["m"])
    plan = None
    for gpus in range(1, 9):
        plan = policy.plan(snapshot(gpus, plan), float(gpus)) or plan
    assert plan is not None
    assert plan.reason.startswith("E:T:D = 1:6:1 on 8 GPUs")
