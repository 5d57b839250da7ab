"""Preloaded into workers by a test: slow engines, and a policy that can be made to hesitate.

`FOLDER` names a folder. While a file ``hesitate`` is in it, the policy writes its process's number
into ``thinking`` and comes to no decision until the file is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from elastic_dit.cluster.worker import engines
from elastic_dit.config import Config, PlacementConfig
from elastic_dit.control.placement import register_placement
from elastic_dit.control.snapshot import ClusterSnapshot
from elastic_dit.engine.fake import FakeEngine, FakeSeconds
from elastic_dit.engine.protocol import Engine
from elastic_dit.request import Stage, StageKey
from elastic_dit.state import PlacementPlan

FOLDER = "ELASTIC_DIT_TEST_FOLDER"
STEP_S = 0.05
LIMIT_S = 60.0


class Hesitant:
    """All stages everywhere; says in its reason which process it thought in."""

    def __init__(self, models: Sequence[str]) -> None:
        self._keys = frozenset(StageKey(model, stage) for model in models for stage in Stage)

    def plan(self, snapshot: ClusterSnapshot, now: float) -> PlacementPlan | None:
        self._hesitate()
        if all(set(gpu.wanted) == self._keys for gpu in snapshot.gpus):
            return None
        return PlacementPlan(
            epoch=snapshot.plan_epoch + 1,
            residency={gpu.gpu: self._keys for gpu in snapshot.gpus},
            reason=f"thought in {os.getpid()}",
        )

    @staticmethod
    def _hesitate() -> None:
        folder = Path(os.environ.get(FOLDER, "/nonexistent"))
        deadline = time.monotonic() + LIMIT_S
        while (folder / "hesitate").exists() and time.monotonic() < deadline:
            (folder / "thinking").write_text(str(os.getpid()))
            time.sleep(0.01)


def _make(_: PlacementConfig, models: Sequence[str]) -> Hesitant:
    return Hesitant(models)


def _slow_engine(_: Config, device: str) -> Engine:
    return FakeEngine(device=device, seconds=FakeSeconds(step=STEP_S))


register_placement("hesitant", _make)
if FOLDER in os.environ:  # in a worker, not in the test's own process
    engines.make_engine = _slow_engine
