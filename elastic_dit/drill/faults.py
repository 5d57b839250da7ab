"""The faults of a drill: what is done while requests are under way, and what shows recovery."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from elastic_dit.drill.load import Load
from elastic_dit.drill.stand import Stand
from elastic_dit.request import Stage
from elastic_dit.state import GpuId

__all__ = ["FAULTS", "Fault", "Scene"]

SLOW_DECODE_S = 1.0
"""Length of a decode that is to be interrupted, seconds."""
SHARES = MappingProxyType({"transfer_delay": 0.5, "transfer_loss": 0.2})
"""Of a slow network: transfers that are delayed, and lost."""
DELAY_S = 0.5
CORRUPTED = 0.3
"""Part of the transfers that are damaged."""
STORM = 3
"""Requests of a cancel storm, per other request."""
_LAST_STEPS = 6
"""A victim that still has no other GPU to go to with so many steps left is taken all the same."""
_TOO_LATE_STEPS = 2
"""With no more left it may be over before it is hit."""
_STRIDE = 20
"""Most events between two cancels of a storm."""


@dataclass(slots=True)
class Scene:
    """What a fault has to work with, and what it tells.

    Attributes
    ----------
    stand : Stand
    load : Load
    names : list of str
        Requests under way; a fault may add to them.
    dice : random.Random
    title : str
        Begins the names of further ones.
    limit_s : float
        Longest wait for the victim to be where it is to be hit, and for its recovery, seconds.
    injected : int
        How often the fault has happened.
    seconds_to_notice, seconds_to_recover : float or None
    """

    stand: Stand
    load: Load
    names: list[str]
    dice: random.Random
    limit_s: float
    title: str
    injected: int = 0
    seconds_to_notice: float | None = None
    seconds_to_recover: float | None = None

    def recovered(self, since: float, names: Sequence[str]) -> None:
        """Wait until one of the victims goes on."""
        at = self.stand.until(
            lambda: self.stand.witness.first_move(names, since), self.limit_s, "recovery"
        )
        noticed_at = self.stand.witness.noticed_at(since)
        self.injected += 1
        self.seconds_to_notice = None if noticed_at is None else noticed_at - since
        self.seconds_to_recover = at - since


Fault = Callable[[Scene], None]


class _Victim(NamedTuple):
    name: str
    gpu: GpuId


def _denoising(controller: Any, patience: bool) -> _Victim | None:
    """A request past its first checkpoint, whose copy has arrived.

    With patience, one that can go on at once on another GPU, or is about to end.
    """
    for group in controller.groups.working(Stage.DIT):
        record = controller.table.live[group.request_id]
        left = group.total_steps - group.step
        is_time = not patience or left <= _LAST_STEPS or controller.pool.free(group.key)
        if record.backup is not None and left > _TOO_LATE_STEPS and is_time:
            return _Victim(group.request_id, group.master)
    return None


def _amid(scene: Scene, *, patience: bool = True) -> _Victim:
    """Wait for a victim in mid-denoise."""

    def look() -> _Victim | None:
        return scene.stand.look(lambda controller: _denoising(controller, patience))

    return scene.stand.until(look, scene.limit_s, "a request past its first checkpoint")


def kill_engine(scene: Scene) -> None:
    """The engine of a request in mid-denoise dies."""
    victim = _amid(scene)
    scene.recovered(scene.stand.kill(victim.gpu), [victim.name])


def hang_engine(scene: Scene) -> None:
    """The engine of a request in mid-denoise stops where it is."""
    victim = _amid(scene)
    scene.recovered(scene.stand.hang(victim.gpu), [victim.name])


def kill_scheduler_actor(scene: Scene) -> None:
    """The process of the scheduler actor dies; another one plans on."""
    stand = scene.stand
    planner = stand.until(lambda: stand.planner, scene.limit_s, "a scheduler actor")
    since = stand.kill_control_worker()

    def successor() -> bool:
        return stand.planner not in ("", planner)

    stand.until(successor, scene.limit_s, "another scheduler actor")
    scene.injected = 1
    scene.seconds_to_recover = max(0.0, time.monotonic() - since)


def kill_decoder(scene: Scene) -> None:
    """The engine of a request in mid-decode dies."""
    scene.stand.arm(decode_delay_s=SLOW_DECODE_S)

    def decoding(controller: Any) -> _Victim | None:
        for group in controller.groups.working(Stage.DECODER):
            return _Victim(group.request_id, group.master)
        return None

    victim = scene.stand.until(
        lambda: scene.stand.look(decoding), scene.limit_s, "a request in its decode"
    )
    scene.recovered(scene.stand.kill(victim.gpu), [victim.name])


def slow_network(scene: Scene) -> None:
    """Half of the transfers come late, some never."""
    scene.stand.arm(**SHARES, transfer_delay_s=DELAY_S)


def corrupt_transfer(scene: Scene) -> None:
    """Some transfers arrive damaged."""
    scene.stand.arm(transfer_corruption=CORRUPTED)


def out_of_memory(scene: Scene) -> None:
    """No decode finds enough memory, unless it is done in tiles."""
    scene.stand.arm(decode_out_of_memory=1.0)


def client_vanishes(scene: Scene) -> None:
    """A client loses its connection while its requests run; another one asks for them."""
    vanishing = scene.stand.another_client()
    names = scene.load.submit(f"{scene.title}-other", len(scene.names), by=vanishing)
    scene.names += names
    since = time.monotonic()
    vanishing.dask.scheduler_comm.comm.abort()
    vanishing.close()
    scene.load.join(names, scene.stand.client)
    scene.injected = 1
    scene.seconds_to_recover = time.monotonic() - since


def cancel_storm(scene: Scene) -> None:
    """Many requests are cancelled, each at another moment of its life."""
    names = scene.load.submit(f"{scene.title}-other", STORM * len(scene.names))
    scene.names += names
    scene.dice.shuffle(names)
    witness = scene.stand.witness
    for name in names:
        moment = witness.events + scene.dice.randrange(_STRIDE)

        def has_come(name: str = name, moment: int = moment) -> bool:
            return witness.events >= moment or bool(scene.load.done([name]))

        scene.stand.until(has_come, scene.limit_s, "the moment of a cancel")
        scene.load.cancel(name)
        scene.injected += 1


def restart(scene: Scene) -> None:
    """Every engine is killed, then the scheduler goes; another cluster opens the same journal."""
    stand = scene.stand
    _amid(scene, patience=False)
    since = stand.kill_all()
    done = scene.load.done(scene.names)
    stand.witness.begin_again(done)
    stand.restart()
    scene.load.join(scene.names, stand.client)
    left = [name for name in scene.names if name not in done]
    scene.injected = 1

    def goes_on() -> float | None:
        at = stand.witness.first_move(left, since)
        # They may have begun before anybody could look.
        return at or (time.monotonic() if len(scene.load.done(left)) == len(left) else None)

    scene.seconds_to_recover = stand.until(goes_on, scene.limit_s, "a new life") - since


def full_queue(scene: Scene) -> None:
    """More requests come than may wait; those that were let in are cancelled again."""
    room = scene.stand.config.control.max_waiting + scene.stand.gpus
    before = scene.load.refused
    names = scene.load.submit(f"{scene.title}-other", room + len(scene.names))
    scene.names += names
    scene.injected = scene.load.refused - before
    for name in names:
        scene.load.cancel(name)


FAULTS: Mapping[str, Fault] = MappingProxyType(
    {
        "kill-engine": kill_engine,
        "hang-engine": hang_engine,
        "kill-scheduler-actor": kill_scheduler_actor,
        "kill-decoder": kill_decoder,
        "slow-network": slow_network,
        "corrupt-transfer": corrupt_transfer,
        "out-of-memory": out_of_memory,
        "client-vanishes": client_vanishes,
        "cancel-storm": cancel_storm,
        "full-queue": full_queue,
        "restart": restart,
    }
)
"""By name, in the order of a drill."""
