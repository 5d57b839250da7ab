"""Requests on tiny models whose heads divide by four, and members that denoise them together."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from elastic_dit.engine.group_context import GroupLimits, Regroup, ScriptedContext
from elastic_dit.engine.group_store import connect
from elastic_dit.engine.groups import GroupTable
from elastic_dit.engine.ledger import Ledger
from elastic_dit.engine.protocol import Boundary, ModelSource
from elastic_dit.engine.spmd import GroupMember
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.input_image import InputImage, sample_image
from elastic_dit.request import GenerationRequest, Stage, StageKey
from tests.engine.contexts import Always
from tests.engine.members import await_word, tell
from tests.tiny_families import FAMILIES, four_headed_wan
from tests.tiny_models import TINY, save

__all__ = [
    "BUILDERS",
    "CASES",
    "FAMILY_CASES",
    "STEPS",
    "TEXT_TOKENS",
    "Part",
    "encoded",
    "engine_of",
    "reference",
    "request_of",
    "table_of",
    "take_part",
]

STEPS = 6
TIMEOUT_S = 30.0
"""Of collectives: far more than a step takes on a machine that is busy with other tests."""
CPU = torch.device("cpu")

PICTURE = InputImage.of(sample_image(50, 31))

CASES: dict[str, dict[str, Any]] = {
    "wan": {"model": "wan", "num_frames": 9},
    "wan uneven": {"model": "wan", "num_frames": 5, "width": 48, "height": 80},
    "qwen": {"model": "qwen_image", "negative_prompt": "bad and blurred"},
    "qwen uneven": {"model": "qwen_image", "width": 40, "height": 24},
}
"""Tried with every plan."""
FAMILY_CASES: dict[str, dict[str, Any]] = {
    "shapes": {"num_frames": 9, "width": 48, "height": 80},
    "cogvideox": {"num_frames": 9, "width": 48},
    "pixart": {"width": 80, "height": 48},
    "wan22": {"num_frames": 9},
    "wan22_i2v": {"num_frames": 5, "image": PICTURE},
    "wan_i2v": {"num_frames": 9, "image": PICTURE},
    "flux": {"width": 24, "height": 28},
    "sd3": {"width": 24, "height": 28},
    "ltx": {"num_frames": 9},
    "hunyuan_video": {"num_frames": 9, "width": 48},
    "hunyuan_video15": {"num_frames": 5, "width": 28},
}
"""One request for the embedded model and each further family; most tokens do not divide by 4."""


BUILDERS = {**TINY, **FAMILIES, "wan": four_headed_wan}
TEXT_TOKENS = {
    "wan": 32,
    "wan22": 32,
    "wan22_i2v": 32,
    "qwen_image": 512,
    "cogvideox": 16,
    "pixart": 33,
    "flux": 47,
    "sd3": 50,
    "ltx": 18,
    "hunyuan_video": 66,
}
"""What prompts are padded to, by model; not divisible by 4 where that is free."""


@cache
def engine_of(model: str) -> TorchEngine:
    """An engine with all stages of one model; forked members share it."""
    folder = TemporaryDirectory()
    path = f"embedded:{model}"
    if model in BUILDERS:
        path = str(save(BUILDERS[model](), Path(folder.name)))
    options = {"max_sequence_length": TEXT_TOKENS[model]} if model in TEXT_TOKENS else {}
    engine = TorchEngine([ModelSource(name=model, path=path, options=options)], "cpu", 1)
    for stage in Stage:
        engine.load(StageKey(model, stage))
    engine.folder = folder  # kept as long as the engine
    return engine


@cache
def request_of(case: str) -> GenerationRequest:
    options = {
        "prompt": "a dancing monkey",
        "negative_prompt": "bad",
        "request_id": case.replace(" ", "-"),
        "seed": 7,
        "width": 32,
        "height": 32,
        "num_inference_steps": STEPS,
        "guidance_scale": 3.0,
        **(CASES.get(case) or {"model": case, **FAMILY_CASES[case]}),
    }
    return engine_of(options["model"]).card(options["model"]).complete(options)


@cache
def encoded(case: str) -> Any:
    request = request_of(case)
    return engine_of(request.model).run(Stage.ENCODER, request, None, Always()).payload


@cache
def reference(case: str) -> Any:
    """Latents of the run on one GPU."""
    request = request_of(case)
    output = engine_of(request.model).run(Stage.DIT, request, encoded(case), Always())
    return latents_of(output.payload)


def latents_of(payload: Any) -> torch.Tensor | None:
    """What goes to the decoder; classic families hand on the arguments of its call."""
    return payload["decode"]["args"][0] if "decode" in payload else payload.get("latents")


@dataclass(frozen=True)
class Part:
    """What one member does in a test.

    Attributes
    ----------
    case : str
    orders : dict
        What its shell says after how many steps.
    ticket : str
        The order by which it joins, none for the member that begins.
    signal_at, raise_at, hold_at : int
        Step in the midst of which it gets `signal`, raises, or waits for the test's word.
    tell_knock : bool
        Whether to tell the test once it waits to be admitted.
    lost : int
        GPU that its shell knows to be dead.
    snapshot : payload
        State from which the member that begins goes on.
    """

    case: str
    orders: dict[int, Boundary | Regroup] = field(default_factory=dict)
    ticket: str = ""
    signal_at: int = -1
    signal: signal.Signals = signal.SIGKILL
    raise_at: int = -1
    hold_at: int = -1
    tell_knock: bool = False
    lost: int = -1
    snapshot: Any = None
    timeout_s: float = TIMEOUT_S
    settle_s: float = 0.5
    run: str = "r/1"


def table_of(address: str, gpu: int, timeout_s: float) -> GroupTable:
    return GroupTable(connect(address), gpu, device=CPU, timeout_s=timeout_s)


def take_part(
    address: str, gpu: int, part: Part, table: GroupTable | None = None
) -> dict[str, Any]:
    """Do `part` as GPU `gpu`; how it ended, as plain data."""
    request = request_of(part.case)
    engine = engine_of(request.model)
    session = engine.session(request)
    context = ScriptedContext(part.orders)
    context.lose(part.lost)
    member = GroupMember(
        session,
        engine.parallel(request.model),
        table or table_of(address, gpu, part.timeout_s),
        Ledger(connect(address), part.run, gpu, settle_s=part.settle_s),
        context,
        dops=(1, 2, 4),
        device=CPU,
        limits=GroupLimits(join_s=40.0, step_floor_s=20.0),
    )
    begun = _watched(session, engine, request.model, part)
    if part.ticket:
        if part.tell_knock:
            member._ledger.knock(part.ticket)
            tell("knocked")
        outcome = member.join(part.ticket)
    else:
        if part.snapshot is None:
            session.begin(encoded(part.case))
        else:
            session.restore(part.snapshot)
        outcome = member.lead()
    payload = dict(outcome.payload or {})
    return {
        "end": outcome.end.value,
        "step": outcome.step,
        "reason": outcome.reason,
        "payload": payload,
        "latents": latents_of(payload),
        "steps_run": begun,
        "redo_s": _longest(session.begun_at, begun),
        "longest_s": max(_gaps(session.begun_at), default=0.0),
        "waits": sum(gap >= 0.9 for gap in _gaps(session.begun_at)),
        "refusals": context.refusals,
        "changes": [
            {"members": list(c.members), "step": c.step, "lost": list(c.lost)}
            for c in context.changes
        ],
    }


def _longest(times: list[float], steps: list[int]) -> float:
    """Seconds from the beginning of a step to its being done again."""
    again = [t for t, a, b in zip(pairwise(times), steps, steps[1:], strict=False) if a == b]
    return max((later - earlier for earlier, later in again), default=0.0)


def _gaps(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


def _watched(session: Any, engine: TorchEngine, model: str, part: Part) -> list[int]:
    """Steps that the session begins; in the chosen one something happens."""
    begun: list[int] = []
    step = session.step

    def watched() -> None:
        begun.append(session.step_index)
        session.begun_at.append(time.monotonic())
        step()

    def strike(*_: Any) -> None:
        now = begun[-1] if begun else -1
        if now == part.signal_at and now >= 0:
            os.kill(os.getpid(), part.signal)
        if now == part.raise_at and now >= 0:
            raise MemoryError("out of memory, pretended")
        if now == part.hold_at and now not in held:
            held.add(now)
            tell("holding")
            await_word()

    held: set[int] = {-1}
    session.step, session.begun_at = watched, []
    transformer = engine._resident[StageKey(model, Stage.DIT)].models[0]
    blocks = getattr(transformer, "blocks", None) or transformer.transformer_blocks
    blocks[1].register_forward_pre_hook(strike)
    return begun
