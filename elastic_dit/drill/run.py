"""The drill: faults one after the other, each with requests under way."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic_dit._version import __version__
from elastic_dit.config import Config
from elastic_dit.drill.faults import FAULTS, Scene
from elastic_dit.drill.load import Load
from elastic_dit.drill.schema import DrillReport, FaultReport, Totals
from elastic_dit.drill.stand import Stand

__all__ = ["DrillOptions", "drill", "drill_config"]

CHECKPOINT_EVERY = 4
STEP_DELAY_S = 0.05
"""Added to every step, so that there is time to hit a request in the midst of it."""
DECODE_DELAY_S = 0.1
LEAST_WAITING = 16
"""Requests that may wait at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """What to drill.

    Attributes
    ----------
    virtual_gpus : int
    requests : int
        In all; the faults share them.
    faults : tuple of str
        Names in `FAULTS`.
    steps : int
        Denoising steps of each request.
    seed : int
    fake : bool
        Pretended engines instead of the embedded model.
    config : Config or None
        Settings on which those of the drill are put.
    limit_s : float
        Longest wait for any one thing, seconds.
    """

    virtual_gpus: int
    requests: int
    faults: tuple[str, ...]
    steps: int
    seed: int
    fake: bool
    config: Config | None
    limit_s: float


def drill(options: DrillOptions, tell: Callable[[FaultReport], None]) -> DrillReport:
    """Do it all.

    Parameters
    ----------
    options : DrillOptions
    tell : callable
        Told of each fault once its requests have ended.

    Raises
    ------
    ElasticDitError
        Where the cluster does not start, is not whole again in time after a fault, or a fault
        finds no victim.
    """
    began = time.perf_counter()
    share = max(2, options.requests // len(options.faults))
    with tempfile.TemporaryDirectory(prefix="elastic-dit-drill-") as folder:
        config = drill_config(options, share, Path(folder))
        with closing(Stand(options.virtual_gpus, config)) as stand:
            load = Load(stand.client, options.seed, options.steps)
            stand.until(stand.is_whole, options.limit_s, "all stages loaded")
            stand.arm(step_delay_s=0.0, decode_delay_s=0.0)
            load.learn(share, options.limit_s)
            dice, reports = random.Random(options.seed), []
            for fault in options.faults:
                scene = Scene(stand, load, [], dice, options.limit_s, fault)
                reports.append(_try(fault, scene, share))
                tell(reports[-1])
    totals = _total(reports)
    return DrillReport(
        software=f"elastic-dit {__version__}",
        model=config.models[0].name,
        virtual_gpus=options.virtual_gpus,
        steps=options.steps,
        checkpoint_every=config.control.checkpoint_every,
        faults=tuple(reports),
        totals=totals,
        seconds=time.perf_counter() - began,
        ok=not (totals.lost or totals.duplicated or totals.differing),
    )


def drill_config(options: DrillOptions, share: int, folder: Path) -> Config:
    """The settings of a drill: one stage per GPU, a journal, short waits, armed engines."""
    base = (options.config or Config()).model_dump()
    settings: dict[str, Mapping[str, Any]] = {
        "control": {
            "checkpoint_every": CHECKPOINT_EVERY,
            "checkpoint_interval_s": 0.0,
            "progress_interval_s": 0.01,
            "silence_floor_s": 2.0,
            "unknown_stage_timeout_s": 30.0,
            "max_waiting": max(LEAST_WAITING, 4 * share),
            "tick_s": 0.1,
        },
        "placement": {"interval_s": 0.5},
        "journal": {"path": str(folder / "journal.sqlite")},
        "transfer": {"timeout_s": 5.0},
        "faults": {
            "seed": options.seed,
            "step_delay_s": STEP_DELAY_S,
            "decode_delay_s": DECODE_DELAY_S,
        },
    }
    if options.fake:
        base["models"] = [{"name": "fake", "path": "fake"}]
        settings["engine"] = {"backend": "fake"}
    return Config.parse(base | {name: base[name] | part for name, part in settings.items()})


def _try(fault: str, scene: Scene, share: int) -> FaultReport:
    stand, load = scene.stand, scene.load
    stand.until(stand.is_whole, scene.limit_s, "all engines back and idle")
    stand.arm()
    repeated, refused = stand.witness.repeated.total(), load.refused
    before, began = stand.injected(), time.perf_counter()
    scene.names += load.submit(fault, share)
    FAULTS[fault](scene)
    ends = load.collect(scene.names, scene.limit_s)
    seconds = time.perf_counter() - began
    completed = stand.witness.completed
    return FaultReport(
        fault=fault,
        injected=scene.injected or max(0, stand.injected() - before),
        accepted=len(scene.names),
        refused=load.refused - refused,
        completed=ends.completed,
        failed=ends.failed,
        cancelled=ends.cancelled,
        lost=ends.lost,
        duplicated=sum(completed[name] > 1 for name in scene.names),
        differing=ends.differing,
        steps_repeated=stand.witness.repeated.total() - repeated,
        seconds_to_notice=scene.seconds_to_notice,
        seconds_to_recover=scene.seconds_to_recover,
        seconds=seconds,
        reasons=tuple(ends.reasons),
    )


def _total(reports: list[FaultReport]) -> Totals:
    return Totals(
        **{name: sum(getattr(report, name) for report in reports) for name in Totals.model_fields}
    )
