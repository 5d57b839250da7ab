"""The figures of device_check.py, as JSON and in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from elastic_dit.request import Stage
from elastic_dit.verify.schema import PlanReport

__all__ = ["DeviceReport", "StageFigures", "tell"]

RATIO_AIM = 1.01


class _Report(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class StageFigures(_Report):
    """One stage, alone on the device."""

    stage: Stage
    """Which."""
    load_seconds: float
    """Time to load its weights."""
    run_seconds: float
    """Time of one run, its first; for the transformer all steps."""
    weights_bytes: int
    """Memory after loading."""
    peak_bytes: int | None
    """Most memory that torch had allocated while it ran; null on a CPU."""


class DeviceReport(_Report):
    """All of what `--json` writes."""

    schema_version: Literal[1] = 1
    """Version of this schema."""
    software: str
    """Name and version of what was measured."""
    torch: str
    """Version of torch."""
    device: str
    """Kind of GPU, `virtual` for a CPU."""
    parameters: int
    """Of the transformer, all random."""
    dtype: str
    """Of the weights."""
    size: str
    """`WIDTHxHEIGHT`, pixels."""
    frames: int
    """Frames."""
    step_seconds: float
    """Median denoising step through our session."""
    plain_step_seconds: float
    """Median denoising step of diffusers' own pipeline."""
    step_ratio: float
    """Median over the pairs of our median step over theirs; the aim is `RATIO_AIM` or less."""
    step_ratios: tuple[float, ...]
    """Each pair's."""
    identical: bool
    """Whether all pairs' latents were equal in every bit."""
    snapshot_bytes: int
    """Size of a request's state between two steps."""
    snapshot_seconds: float
    """Taking it to host memory; median."""
    restore_seconds: float
    """A new session that goes on from it; median."""
    resumed_identical: bool
    """Whether the step after it gave the same state in both sessions."""
    stages: tuple[StageFigures, ...]
    """Memory and time of each stage."""
    promotion: PlanReport
    """Two processes on this device, 1→2→1 over gloo; see `docs/verify-schema.md`."""
    seconds: float
    """Wall time of the whole check."""
    ok: bool
    """Whether both comparisons were identical and the promotion passed."""


def tell(report: DeviceReport, say: Callable[[str], None]) -> None:
    """The figures in words."""
    say(
        f"{report.device}: {report.parameters / 1e9:.2f} billion parameters in {report.dtype}, "
        f"{report.size}, {report.frames} frames"
    )
    say(
        f"step {report.step_seconds:.4f} s, plain {report.plain_step_seconds:.4f} s: ratio "
        f"{report.step_ratio:.4f} (aim {RATIO_AIM}), identical latents: {report.identical}"
    )
    say(
        f"snapshot of {report.snapshot_bytes / 1e6:.1f} MB {report.snapshot_seconds * 1000:.1f} "
        f"ms, restore {report.restore_seconds * 1000:.1f} ms, then identical: "
        f"{report.resumed_identical}"
    )
    for each in report.stages:
        peak = "" if each.peak_bytes is None else f", peak {each.peak_bytes / 1e9:.2f} GB"
        say(
            f"{each.stage}: loaded in {each.load_seconds:.1f} s, weights "
            f"{each.weights_bytes / 1e9:.2f} GB{peak}, ran {each.run_seconds:.1f} s"
        )
    promotion = report.promotion
    say(f"{promotion.plan}: {promotion.status}, max_abs_error {promotion.max_abs_error}")
    say(f"all in {report.seconds:.0f} s")
