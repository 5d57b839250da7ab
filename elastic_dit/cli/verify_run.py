"""Verify, and tell plan by plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.cli.verify import DEFAULT_STEPS
from elastic_dit.errors import ElasticDitError

if TYPE_CHECKING:
    from rich.console import Console

    from elastic_dit.verify.run import VerifyOptions
    from elastic_dit.verify.schema import PlanReport, VerifyReport

__all__ = ["run_verify"]


def run_verify(options: Mapping[str, Any]) -> None:
    """Do it all.

    Parameters
    ----------
    options : mapping of str to Any
        Of the command, by name.

    Raises
    ------
    ElasticDitError
        Where a plan fails, none could run, or the model cannot even run on one GPU.
    """
    check_json_path(options["json_path"])
    console = human_console(options["json_path"])
    wanted = _wanted(options)
    with console.status("Loading the model") as status:
        from elastic_dit.verify.run import verify

        def tell(plan: PlanReport) -> None:
            console.print(_line(plan), soft_wrap=True)
            status.update("Running the next plan")

        report = verify(wanted, tell)
    _conclude(console, report)
    write_json(options["json_path"], report.model_dump_json(indent=2))
    if not report.ok:
        raise ElasticDitError(_verdict(report))


def _wanted(options: Mapping[str, Any]) -> VerifyOptions:
    from elastic_dit.verify.plans import Plan
    from elastic_dit.verify.run import VerifyOptions

    width, height = options["size"] or (None, None)
    fields = {
        "prompt": options["prompt"],
        "width": width,
        "height": height,
        "num_frames": options["frames"],
        "guidance_scale": options["guidance"],
        "seed": options["seed"] or 0,
    }
    return VerifyOptions(
        model=options["model"],
        fields={name: value for name, value in fields.items() if value is not None},
        steps=options["steps"] or DEFAULT_STEPS,
        dops=options["dops"],
        plans=tuple(map(Plan.parse, options["plans"])),
        device=options["device"],
        share_gpus=options["share_gpus"],
        dtype=options["dtype"],
        tolerance=options["tolerance"],
        limit_s=options["timeout"],
    )


def _line(plan: PlanReport) -> str:
    error = "" if plan.max_abs_error is None else f"  max_abs_error {plan.max_abs_error:.2g}"
    if plan.relative_error is not None:
        error += f" (relative {plan.relative_error:.2g})"
    reason = "" if plan.reason is None else f"  {plan.reason}"
    return f"{plan.status:8}{plan.plan}{error}{reason}"


def _conclude(console: Console, report: VerifyReport) -> None:
    console.print(
        f"{report.size}, {report.frames} frames, {report.steps} steps, {report.dtype} on "
        f"{report.device} over {report.backend}; up to {report.max_abs_error_allowed:.2g} passes, "
        f"the largest latent is {report.largest:.3g}",
        soft_wrap=True,
    )


def _verdict(report: VerifyReport) -> str:
    ran = [plan for plan in report.plans if plan.ok is not None]
    failed = sum(not plan.ok for plan in ran)
    if not ran:
        return "no plan could run"
    return f"{failed} of {len(ran)} plans failed"
