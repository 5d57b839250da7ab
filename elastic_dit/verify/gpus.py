"""The GPUs on which plans are tried."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from elastic_dit.engine.protocol import ModelSource
from elastic_dit.errors import ConfigError
from elastic_dit.state import GpuId
from elastic_dit.verify.jobs import MemberSettings
from elastic_dit.verify.plans import Plan

__all__ = ["Gpus"]


@dataclass(frozen=True, slots=True)
class Gpus:
    """Which GPUs there are, and how they talk.

    Attributes
    ----------
    count : int or None
        Those of the machine; None for virtual ones, of which there are as many as are wanted.
    share : bool
        Whether processes may share one. Then tensors go through the host, over gloo.

    Examples
    --------
    >>> Gpus(2, share=False).lacks(Plan.parse("1,4,1"))
    'there is no GPU 3: this machine has 2'
    """

    count: int | None
    share: bool

    @classmethod
    def of(cls, device: str, share: bool) -> Gpus:
        """Those of this machine.

        Raises
        ------
        ConfigError
            Where there is no CUDA device.
        """
        if device == "cpu":
            return cls(None, share=True)
        import torch

        count = torch.cuda.device_count()  # makes no CUDA context here
        if not count:
            raise ConfigError("device", "cuda", "cpu: no CUDA device was found")
        return cls(count, share)

    @property
    def backend(self) -> Literal["gloo", "nccl"]:
        """What carries tensors between them."""
        return "gloo" if self.share else "nccl"

    def lacks(self, plan: Plan) -> str | None:
        """Why `plan` cannot run here, None where it can."""
        if self.count is None or self.share or plan.gpus[-1] < self.count:
            return None
        return f"there is no GPU {plan.gpus[-1]}: this machine has {self.count}"

    def settings(
        self, source: ModelSource, gpus: Iterable[GpuId], store: str, limit_s: float
    ) -> tuple[MemberSettings, ...]:
        """What the process of each of `gpus` needs to know; see `MemberSettings`."""
        return tuple(
            MemberSettings(
                gpu=gpu,
                source=source,
                device="cpu" if self.count is None else f"cuda:{gpu % self.count}",
                backend=self.backend,
                store=store,
                limit_s=limit_s,
            )
            for gpu in gpus
        )
