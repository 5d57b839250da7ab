"""Classic pipelines under a hosted loop."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from elastic_dit.engine.hosted import HostedSession
from elastic_dit.engine.payload import map_tensors, pack
from tests.engine.processes import elsewhere
from tests.tiny_models import cogvideox, pixart, wan

# the sampler of PixArt under recent numpy
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

BUILDERS = {"pixart": pixart, "cogvideox": cogvideox, "wan": wan}
INPUTS: dict[str, dict[str, Any]] = {
    "pixart": {
        "prompt": "a squirrel",
        "height": 16,
        "width": 16,
        "num_inference_steps": 4,
        "guidance_scale": 5.0,
        "max_sequence_length": 32,
        "use_resolution_binning": False,
        "clean_caption": False,
    },
    "cogvideox": {
        "prompt": "dance monkey",
        "negative_prompt": "",
        "height": 16,
        "width": 16,
        "num_frames": 9,
        "num_inference_steps": 4,
        "guidance_scale": 6.0,
        "max_sequence_length": 16,
    },
    "wan": {
        "prompt": "a dancing monkey",
        "negative_prompt": "bad",
        "height": 32,
        "width": 32,
        "num_frames": 5,
        "num_inference_steps": 4,
        "guidance_scale": 5.0,
        "max_sequence_length": 32,
    },
}


@cache
def pipeline_of(name: str) -> Any:
    pipeline = BUILDERS[name]()
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@cache
def plain(name: str, seed: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    call = BUILDERS[name]()
    call.set_progress_bar_config(disable=True)
    return call(**INPUTS[name], generator=generator, output_type="latent", return_dict=False)[0]


def session_of(name: str, seed: int = 7) -> HostedSession:
    return HostedSession(pipeline_of(name), {**INPUTS[name], "output_type": "latent"}, seed)


def steps(session: HostedSession) -> Iterator[int]:
    while session.step_index < session.total_steps:
        session.step()
        yield session.step_index


@pytest.mark.parametrize("name", BUILDERS)
def test_step_by_step_it_is_the_plain_call(name: str) -> None:
    session = session_of(name)
    session.begin({})
    assert (session.step_index, session.total_steps) == (0, 4)
    assert list(steps(session)) == [1, 2, 3, 4]
    assert repr(session) == "<HostedSession 4/4>"
    assert torch.equal(session.finish()["latents"], plain(name))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("begun", [True, False])
def test_closed_it_leaves_nothing_for_the_garbage_collector(begun: bool) -> None:
    session = session_of("cogvideox")
    if begun:
        session.begin({})
        session.step()
    left = weakref.ref(session)
    gc.collect()
    gc.disable()
    try:
        session.close()
        session.close()
        del session
        assert left() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_resumed_in_another_process_after_any_step_it_is_the_same(name: str, step: int) -> None:
    session = session_of(name)
    session.begin({})
    for done in steps(session):
        if done == step:
            break

    def rest(snapshot: Any) -> Any:
        calls: list[int] = []
        pipeline = pipeline_of(name)
        pipeline.transformer.register_forward_pre_hook(lambda *_: calls.append(1))
        resumed = session_of(name, seed=0)
        resumed.restore(snapshot)
        assert resumed.step_index == step
        assert not calls, "what was done before is not computed again"
        for _ in steps(resumed):
            pass
        return {**resumed.finish(), "calls": len(calls)}

    answer = elsewhere(rest, session.snapshot())
    assert torch.equal(answer["latents"], plain(name))
    a_step = 2 if name == "wan" else 1  # two passes, or both branches in one batch
    assert answer["calls"] == a_step * (4 - step)


def test_two_sessions_on_one_pipeline_do_not_disturb_each_other() -> None:
    sessions = [session_of("wan", seed) for seed in (1, 2)]
    for session in sessions:
        session.begin({})
    for _ in range(4):
        for session in sessions:
            session.step()
    for seed, session in zip((1, 2), sessions, strict=True):
        assert torch.equal(session.finish()["latents"], plain("wan", seed))


def test_an_exception_in_the_pipeline_comes_out_of_the_step() -> None:
    session = session_of("wan")
    session.begin({})
    session.step()

    def fail(*_: Any) -> None:
        raise RuntimeError("a kernel failed")

    hook = pipeline_of("wan").transformer.register_forward_pre_hook(fail)
    try:
        with pytest.raises(RuntimeError, match="a kernel failed"):
            session.step()
    finally:
        hook.remove()
    again = session_of("wan")
    again.begin({})
    for _ in steps(again):
        pass
    assert torch.equal(again.finish()["latents"], plain("wan"))


def test_a_session_that_is_left_lets_go() -> None:
    session = session_of("cogvideox")
    session.begin({})
    session.step()
    loop = session._loop
    session.close()
    assert loop.dead
    session.close()
    assert torch.is_grad_enabled()


def test_a_snapshot_is_plain_data_without_weights() -> None:
    session = session_of("pixart")
    session.begin({})
    session.step()
    snapshot = session.snapshot()
    pack(snapshot)
    weights = {weight.data_ptr() for weight in pipeline_of("pixart").transformer.parameters()}
    held: list[torch.Tensor] = []
    map_tensors(held.append, snapshot)
    assert held
    assert not weights & {tensor.data_ptr() for tensor in held}
