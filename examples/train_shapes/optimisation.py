"""Optimisers, learning-rate schedule and weight averaging."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["Average", "Muon", "Optimisers", "hold_then_cosine"]

ADAM_BETAS = (0.9, 0.98)
LARGEST_GRADIENT = 1.0
# Quintic Newton-Schulz iteration of Keller Jordan's Muon.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
ADAM_UPDATE_SIZE = 0.2
"""Typical root mean square of an Adam update, to which Muon's is scaled."""


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates, for matrices and flattened convolution kernels.

    ``torch.optim.Muon`` iterates in bfloat16, which takes seconds a step on a CPU without
    hardware for it; this one stays in the parameter's dtype.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "m" not in state:
                    state["m"] = torch.zeros_like(parameter)
                state["m"].lerp_(parameter.grad, 1 - group["momentum"])
                update = parameter.grad.lerp(state["m"], group["momentum"]).flatten(1)
                update = _orthogonal(update) * (ADAM_UPDATE_SIZE * max(update.shape) ** 0.5)
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update.view_as(parameter), alpha=-group["lr"])


def _orthogonal(gradient: torch.Tensor) -> torch.Tensor:
    """The nearest matrix with singular values of about one."""
    first, second, third = NEWTON_SCHULZ
    matrix = gradient / (gradient.norm() + 1e-7)
    tall = matrix.shape[0] > matrix.shape[1]
    if tall:
        matrix = matrix.T
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = matrix @ matrix.T
        matrix = first * matrix + (second * gram + third * gram @ gram) @ matrix
    return matrix.T if tall else matrix


class Optimisers:
    """Muon for some parameters and AdamW for the others, with one schedule over both."""

    def __init__(
        self,
        muon: Sequence[nn.Parameter],
        adam: Sequence[nn.Parameter],
        muon_rate: float,
        adam_rate: float,
        weight_decay: float = 0.01,
    ) -> None:
        self.parameters = [*adam, *muon]
        self.optimisers = [
            torch.optim.AdamW(adam, lr=adam_rate, betas=ADAM_BETAS, weight_decay=0.0),
            Muon(muon, lr=muon_rate, weight_decay=weight_decay),
        ]
        self._rates = [adam_rate, muon_rate]

    def step(self, loss: torch.Tensor, multiplier: float) -> None:
        """Back-propagate and update with the full learning rates times the multiplier."""
        for optimiser, rate in zip(self.optimisers, self._rates, strict=True):
            optimiser.zero_grad()
            for group in optimiser.param_groups:
                group["lr"] = rate * multiplier
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, LARGEST_GRADIENT)
        for optimiser in self.optimisers:
            optimiser.step()

    def state_dicts(self) -> list[dict[str, Any]]:
        """State of each optimiser."""
        return [optimiser.state_dict() for optimiser in self.optimisers]

    def load_state_dicts(self, states: Sequence[dict[str, Any]]) -> None:
        """Restore what `state_dicts` gave."""
        for optimiser, state in zip(self.optimisers, states, strict=True):
            optimiser.load_state_dict(state)


class Average:
    """Exponential moving average of the parameters of some modules."""

    def __init__(self, modules: Sequence[nn.Module], decay: float) -> None:
        self.decay, self.updates = decay, 0
        self._parameters = [p for module in modules for p in module.parameters()]
        self.values = [parameter.detach().clone() for parameter in self._parameters]

    def update(self) -> None:
        """Move towards the present parameters; faster at first, to forget the start."""
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        present = [parameter.detach() for parameter in self._parameters]
        torch._foreach_lerp_(self.values, present, 1 - decay)

    @torch.no_grad()
    def apply(self) -> None:
        """Put the averages into the modules for good."""
        for value, parameter in zip(self.values, self._parameters, strict=True):
            parameter.copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averages into the modules for a while."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for value, parameter in zip(self.values, self._parameters, strict=True):
            present = parameter.data.clone()
            parameter.data.copy_(value)
            value.copy_(present)


def hold_then_cosine(progress: float, hold: float, floor: float = 0.03) -> float:
    """Multiplier of the learning rate: 1, then from `hold` on a cosine down to `floor`.

    Parameters
    ----------
    progress : float
        Share of the steps already done, 0 to 1.
    hold : float
        Share of the steps at the full rate, under 1.
    floor : float
        Multiplier at the end.
    """
    if progress < hold:
        return 1.0
    fall = min(1.0, (progress - hold) / (1 - hold))
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * fall))
