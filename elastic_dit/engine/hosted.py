"""Sessions of families that have only a classic pipeline: a hosted loop.

The pipeline's own ``__call__`` runs in a greenlet and is paused at every step of its scheduler.
To go on from a snapshot, ``__call__`` runs again from its start, but all transformers return
zeros and the scheduler stored values until the step of the snapshot is reached: no denoise loop
is copied, and no pipeline needs to know. A greenlet, not a thread, because torch keeps device,
gradient mode and thread count for each thread.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from greenlet import getcurrent, greenlet

from elastic_dit.engine import modular
from elastic_dit.engine.payload import plain
from elastic_dit.engine.placement import placed, to_places
from elastic_dit.engine.session import Snapshot

__all__ = ["DecodeReached", "HostedSession"]


class DecodeReached(Exception):
    """A pipeline in the DiT stage called its VAE's ``decode``: it is at its end.

    Parameters
    ----------
    positional : tuple
    named : mapping
        What it called ``decode`` with.
    """

    def __init__(self, positional: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        super().__init__(positional, named)
        self.positional = positional
        self.named = dict(named)


class HostedSession:
    """A `Session` around the ``__call__`` of a classic pipeline.

    Parameters
    ----------
    pipeline : DiffusionPipeline
        Shared by all requests; the session works on a shallow copy with own scheduler.
    inputs : mapping of str to Any
        Arguments of its ``__call__`` that stem from the request. With ``output_type="latent"``
        the session ends with latents, else where the pipeline calls its VAE.
    seed : int
        Of the initial noise, drawn on the CPU.

    Notes
    -----
    What a loop keeps in local variables survives a snapshot only where the scheduler's step
    returns it, as with CogVideoX. To be used from one thread, like every session.
    """

    def __init__(self, pipeline: Any, inputs: Mapping[str, Any], seed: int) -> None:
        self._inputs = dict(inputs)
        self._seed = seed
        self._generator = torch.Generator("cpu")
        self._pipeline = self._own(pipeline)
        self._scheduler = self._pipeline.scheduler
        self._device = self._pipeline._execution_device
        self._done = 0
        self._total = 0
        self._returned: Any = None
        self._prediction: tuple[list[int], torch.dtype] | None = None
        self._target: Mapping[str, Any] | None = None
        self._given: dict[str, Any] = {}
        self._loop: Any = None

    def __repr__(self) -> str:
        return f"<HostedSession {self.step_index}/{self.total_steps}>"

    @property
    def step_index(self) -> int:
        """Denoising steps done."""
        return self._done

    @property
    def total_steps(self) -> int:
        """Denoising steps to do in all."""
        return self._total

    @torch.no_grad()
    def begin(self, inputs: Mapping[str, Any]) -> None:
        """Run the pipeline up to its first transformer call."""
        self._start(inputs)

    @torch.no_grad()
    def step(self) -> None:
        """Do one denoising step."""
        self._loop.switch()

    def snapshot(self) -> Snapshot:
        """Sampler, guiders, generator and the last step's return value, as plain data."""
        shape, dtype = self._prediction or ([], torch.float32)
        state = {
            "step": self._done,
            "inputs": plain(self._given),
            "returned": plain(self._returned),
            "prediction": [shape, dtype],
            "generator": self._generator,
            "parts": {
                name: plain(_without_step(part))
                for name, part in modular.own_parts(self._pipeline).items()
            },
        }
        return {**state, "placed": placed(state)}

    @torch.no_grad()
    def restore(self, snapshot: Snapshot) -> None:
        """Run the pipeline without computing up to the step of `snapshot`."""
        target = to_places(snapshot, snapshot["placed"], self._device)
        self._prediction = tuple(target["prediction"])
        # before the first step there is nothing to catch up with
        self._target = target if target["step"] else None
        self._start(target["inputs"])
        self._target = None

    @torch.no_grad()
    def finish(self) -> dict[str, Any]:
        """Arguments of the call to ``vae.decode``, or ``latents`` where that is the output."""
        try:
            output = self._loop.switch()
        except DecodeReached as end:
            return {"decode": {"args": end.positional, "kwargs": end.named}}
        return {"latents": output[0]}

    def close(self) -> None:
        """Leave the pipeline's call where it stands, and drop all state."""
        self._leave()
        # Session, pipeline and scheduler refer to each other: their tensors would lie on the
        # GPU until the garbage collector looks.
        if self._scheduler is not None:
            del self._scheduler.step
        self._pipeline = self._scheduler = self._loop = self._returned = self._target = None
        self._given = {}

    @torch.no_grad()
    def _leave(self) -> None:
        if self._loop is not None and not self._loop.dead:
            self._loop.throw()  # under no_grad, which the call restores when it unwinds

    def _own(self, pipeline: Any) -> Any:
        own = copy.copy(pipeline)
        for name, part in modular.own_parts(pipeline).items():
            object.__setattr__(own, name, modular.fresh(part))
        for name, component in pipeline.components.items():
            if name.startswith("transformer") and component is not None:
                object.__setattr__(own, name, _Proxy(component, self._predict))
        own.scheduler.step = functools.wraps(own.scheduler.step)(
            functools.partial(self._step, own.scheduler.step)
        )  # pipelines inspect its signature to learn whether it takes a generator
        own.set_progress_bar_config(disable=True)
        return own

    def _start(self, inputs: Mapping[str, Any]) -> None:
        self._leave()  # where a step was left half-way
        self._done = self._total = 0
        self._returned = None
        self._generator.manual_seed(self._seed)
        self._given = dict(inputs)
        accepted = inspect.signature(self._pipeline.__call__).parameters
        arguments = {**self._given, **self._inputs}
        arguments |= {"generator": self._generator, "return_dict": False}
        call = functools.partial(
            self._pipeline, **{k: v for k, v in arguments.items() if k in accepted}
        )
        self._loop = greenlet(call)
        self._loop.switch()

    def _pause(self) -> None:
        getcurrent().parent.switch()

    def _predict(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Stand in for a transformer's forward pass."""
        if self._total == 0:
            self._total = len(self._scheduler.timesteps)
            if self._target is None:
                self._pause()
        if self._target is not None:
            assert self._prediction is not None
            shape, dtype = self._prediction
            zeros = torch.zeros(shape, dtype=dtype, device=self._device)
            return (zeros,) if kwargs.get("return_dict") is False else _Output(sample=zeros)
        output = model(*args, **kwargs)
        first = output[0]
        self._prediction = list(first.shape), first.dtype
        return output

    def _step(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Stand in for the scheduler's step."""
        self._done += 1
        target = self._target
        if target is None:
            self._returned = original(*args, **kwargs)
        else:
            self._returned = _as_returned(target["returned"])
            if self._done < target["step"]:
                return self._returned
            for name, part in modular.own_parts(self._pipeline).items():
                vars(part).update(target["parts"][name])
            self._generator.set_state(target["generator"].get_state())
        self._pause()
        return self._returned


class _Output(dict[str, Any]):
    """A model's or scheduler's output: fields by name, the first also by number."""

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __getitem__(self, key: Any) -> Any:
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


class _Proxy(torch.nn.Module):
    """What the pipeline sees instead of a transformer; it must look like a module to it.

    It wraps from outside: diffusers' hooks rewrite ``forward`` of the module itself.
    """

    def __init__(self, model: Any, predict: Callable[..., Any]) -> None:
        super().__init__()
        object.__setattr__(self, "_model", model)  # not registered: it is not this one's child
        object.__setattr__(self, "_predict", predict)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_model"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._predict(self._model, args, kwargs)


def _as_returned(value: Any) -> Any:
    return _Output(value) if isinstance(value, Mapping) else value


def _without_step(part: Any) -> dict[str, Any]:
    """State of a scheduler or guider but the ``step`` that the session put on it."""
    return {name: value for name, value in modular.part_state(part).items() if name != "step"}
