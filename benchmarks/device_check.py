"""Is all well on this GPU? Step time, snapshots, memory, and a promotion; see README.md.

python benchmarks/device_check.py --json device_check.json
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial, wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import torch
from device_report import DeviceReport, StageFigures, tell

from elastic_dit._version import __version__
from elastic_dit.cli.output import check_json_path, human_console, write_json
from elastic_dit.engine import devices
from elastic_dit.engine.loading import quiet_libraries
from elastic_dit.engine.payload import digest, pack, payload_nbytes
from elastic_dit.engine.placement import to_device, to_host
from elastic_dit.engine.protocol import Boundary, ModelSource
from elastic_dit.engine.torch_engine import TorchEngine
from elastic_dit.models import embedded_model_path
from elastic_dit.request import GenerationRequest, Stage, StageKey
from elastic_dit.verify.plans import Plan
from elastic_dit.verify.run import VerifyOptions, verify
from elastic_dit.verify.schema import PlanReport

MODEL = "random"
DTYPE = "bfloat16"
PROMPT = "a red circle moving left on a black background"
SNAPSHOT_REPEATS = 5
LIMIT_S = 240.0
"""Longest time of loading and of the promotion, seconds."""


@dataclass(frozen=True)
class Scale:
    """How large the model and its requests are."""

    transformer: dict[str, Any]
    vae: dict[str, Any]
    size: tuple[int, int]
    frames: int
    promoted_frames: int
    """Of the request that two processes share: all of its exchanges go through the host."""
    hints: dict[str, int] = field(default_factory=dict)


WAN_1B = Scale(  # as Wan-AI/Wan2.1-T2V-1.3B
    transformer={
        "num_attention_heads": 12,
        "attention_head_dim": 128,
        "ffn_dim": 8960,
        "num_layers": 30,
        "text_dim": 4096,
        "freq_dim": 256,
    },
    vae={},
    size=(832, 480),
    frames=81,
    promoted_frames=5,
)
TINY = Scale(
    transformer={
        "num_attention_heads": 4,
        "attention_head_dim": 16,
        "ffn_dim": 128,
        "num_layers": 2,
        "text_dim": 64,
        "freq_dim": 64,
    },
    vae={"base_dim": 8, "dim_mult": [1, 1, 1, 1], "num_res_blocks": 1},
    size=(96, 64),
    frames=9,
    promoted_frames=5,
    hints={"max_sequence_length": 16},
)


class Context:
    """Lets a stage run to its end and notes when each step ended."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []

    def boundary(self, step: int, total_steps: int) -> Boundary:
        """Go on."""
        assert step <= total_steps
        self.ended_s.append(time.perf_counter())
        return Boundary.CONTINUE

    def aborted(self) -> bool:
        """Never."""
        return False


def make_model(folder: Path, scale: Scale, device: torch.device) -> int:
    """Save a Wan of that scale with random weights; parameters of its transformer."""
    import diffusers
    from transformers import PreTrainedTokenizerFast, UMT5Config, UMT5EncoderModel

    quiet_libraries()
    embedded = embedded_model_path("shapes")
    text = UMT5Config.from_pretrained(embedded / "text_encoder")
    text.d_model, text.num_layers = scale.transformer["text_dim"], 1
    torch.manual_seed(0)
    with device:
        transformer = diffusers.WanTransformer3DModel(**scale.transformer)
        vae = diffusers.AutoencoderKLWan(**scale.vae)
        text_encoder = UMT5EncoderModel(text)
    pipeline = diffusers.WanPipeline(
        transformer=transformer,
        vae=vae,
        text_encoder=text_encoder,
        tokenizer=PreTrainedTokenizerFast.from_pretrained(embedded / "tokenizer"),
        scheduler=diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )
    pipeline.to(torch.bfloat16).save_pretrained(folder)
    return sum(parameter.numel() for parameter in transformer.parameters())


def measure_stages(
    engine: TorchEngine, request: GenerationRequest, device: torch.device
) -> tuple[tuple[StageFigures, ...], Any]:
    """Each stage alone on the device; also the encoder's payload."""
    figures, payload, encoded = [], None, None
    for stage in Stage:
        key = StageKey(MODEL, stage)
        load_s = engine.load(key)
        weights_bytes = engine.info().allocated_bytes
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        output = engine.run(stage, request, payload, Context())
        payload = output.payload
        encoded = payload if stage is Stage.ENCODER else encoded
        peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
        engine.drop(key)
        figures.append(
            StageFigures(
                stage=stage,
                load_seconds=load_s,
                run_seconds=output.seconds,
                weights_bytes=weights_bytes,
                peak_bytes=peak,
            )
        )
    return tuple(figures), encoded


class Steps:
    """Steps through our session and through the plain pipeline, alternately."""

    def __init__(
        self,
        engine: TorchEngine,
        pipeline: Any,
        request: GenerationRequest,
        encoded: Any,
        device: torch.device,
    ) -> None:
        self._engine = engine
        self._pipeline = pipeline
        self._request = request
        self._encoded = encoded
        self._device = device

    def pair(self, ours_first: bool) -> tuple[float, float, bool]:
        """Median step of ours and of theirs, seconds, and whether their latents are the same."""
        if ours_first:
            (ours_s, ours), (plain_s, plain) = self._ours(), self._plain()
        else:
            (plain_s, plain), (ours_s, ours) = self._plain(), self._ours()
        return _median_step(ours_s), _median_step(plain_s), torch.equal(ours, plain)

    def _ours(self) -> tuple[list[float], torch.Tensor]:
        context = Context()
        output = self._engine.run(Stage.DIT, self._request, self._encoded, context)
        return context.ended_s, output.payload["latents"]

    def _plain(self) -> tuple[list[float], torch.Tensor]:
        ended_s: list[float] = []

        def note(_: Any, __: int, ___: Any, kept: dict[str, Any]) -> dict[str, Any]:
            devices.synchronize(self._device)
            ended_s.append(time.perf_counter())
            return kept

        request = self._request
        latents = self._pipeline(
            prompt=request.prompt,
            negative_prompt=request.negative_prompt,
            width=request.width,
            height=request.height,
            num_frames=request.num_frames,
            num_inference_steps=request.num_inference_steps,
            guidance_scale=request.guidance_scale,
            max_sequence_length=self._encoded["prompt_embeds"].shape[1],
            generator=torch.Generator("cpu").manual_seed(request.seed),
            callback_on_step_end=note,
            output_type="latent",
        ).frames
        return ended_s, latents.cpu()


def _median_step(ended_s: list[float]) -> float:
    return statistics.median(later - earlier for earlier, later in pairwise(ended_s))


def plain_pipeline(folder: Path, device: torch.device) -> Any:
    """Diffusers' own pipeline with the same weights, rounding as diffusers' own blocks do.

    The blocks hand the timestep to the transformer in the dtype of the weights and its output to
    the sampler in float32; the pipeline does neither. Without that the latents of the two, both
    diffusers' own, differ in bfloat16.
    """
    import diffusers

    pipeline = diffusers.WanPipeline.from_pretrained(folder, dtype=torch.bfloat16).to(device)
    pipeline.set_progress_bar_config(disable=True)
    step = pipeline.scheduler.step

    def rounded(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return args, {**kwargs, "timestep": kwargs["timestep"].to(torch.bfloat16)}

    @wraps(step)
    def step_in_float32(predicted: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return step(predicted.float(), *args, **kwargs)

    pipeline.transformer.register_forward_pre_hook(rounded, with_kwargs=True)
    pipeline.scheduler.step = step_in_float32
    return pipeline


def measure_snapshots(
    engine: TorchEngine, request: GenerationRequest, encoded: Any, device: torch.device
) -> dict[str, Any]:
    """Cost of a snapshot and of going on from it, and whether that changes anything."""
    taken_s, restored_s = [], []
    with closing(engine.session(request)) as session:
        session.begin(to_device(encoded, device))
        session.step()
        for _ in range(SNAPSHOT_REPEATS):
            seconds, snapshot = _timed(lambda: to_host(session.snapshot()), device)
            taken_s.append(seconds)
        with closing(engine.session(request)) as other:
            for _ in range(SNAPSHOT_REPEATS):
                seconds, _ = _timed(partial(other.restore, snapshot), device)
                restored_s.append(seconds)
            session.step()
            other.step()
            same = _digest(session) == _digest(other)
    return {
        "snapshot_bytes": payload_nbytes(snapshot),
        "snapshot_seconds": statistics.median(taken_s),
        "restore_seconds": statistics.median(restored_s),
        "resumed_identical": same,
    }


def _digest(session: Any) -> str:
    return digest(*pack(to_host(session.snapshot())))


def _timed(function: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    devices.synchronize(device)
    started = time.perf_counter()
    result = function()
    devices.synchronize(device)
    return time.perf_counter() - started, result


def promote(folder: Path, scale: Scale, device: torch.device) -> PlanReport:
    """Two processes on one device, 1→2→1."""
    width, height = scale.size
    report = verify(
        VerifyOptions(
            model=str(folder),
            fields={
                "prompt": PROMPT,
                "width": width,
                "height": height,
                "num_frames": scale.promoted_frames,
                "seed": 0,
            },
            steps=6,
            plans=(Plan.parse("1,2,1"),),
            device="cuda" if device.type == "cuda" else "cpu",
            share_gpus=True,
            dtype=DTYPE,
            limit_s=LIMIT_S,
        )
    )
    return report.plans[0]


def check(scale: Scale, device: torch.device, steps: int, repeats: int) -> DeviceReport:
    """All measurements, in an order that never holds more than it needs."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parameters = make_model(folder, scale, device)
        devices.release_memory(device)
        source = ModelSource(name=MODEL, path=name, dtype=DTYPE, options=scale.hints)
        with closing(TorchEngine([source], str(device))) as engine:
            request = _request(engine, scale, steps)
            stages, encoded = measure_stages(engine, request, device)
            engine.load(StageKey(MODEL, Stage.DIT))
            pipeline = plain_pipeline(folder, device)
            timed = Steps(engine, pipeline, request, encoded, device)
            timed.pair(ours_first=True)  # warms both up
            pairs = [timed.pair(ours_first=bool(index % 2)) for index in range(repeats)]
            snapshots = measure_snapshots(engine, request, encoded, device)
            kind = engine.info().kind
        del pipeline, timed
        devices.release_memory(device)
        promotion = promote(folder, scale, device)
    ratios = tuple(ours / plain for ours, plain, _ in pairs)
    identical = all(same for _, _, same in pairs)
    return DeviceReport(
        software=f"elastic-dit {__version__}",
        torch=torch.__version__,
        device=kind,
        parameters=parameters,
        dtype=DTYPE,
        size=f"{request.width}x{request.height}",
        frames=request.num_frames,
        step_seconds=statistics.median(ours for ours, _, _ in pairs),
        plain_step_seconds=statistics.median(plain for _, plain, _ in pairs),
        step_ratio=statistics.median(ratios),
        step_ratios=ratios,
        identical=identical,
        stages=stages,
        promotion=promotion,
        seconds=time.perf_counter() - started,
        ok=identical and snapshots["resumed_identical"] and bool(promotion.ok),
        **snapshots,
    )


def _request(engine: TorchEngine, scale: Scale, steps: int) -> GenerationRequest:
    width, height = scale.size
    return engine.card(MODEL).complete(
        {
            "request_id": "device-check",
            "prompt": PROMPT,
            "negative_prompt": "",
            "width": width,
            "height": height,
            "num_frames": scale.frames,
            "num_inference_steps": steps,
            "seed": 0,
        }
    )


@click.command()
@click.option("--json", "json_path", metavar="FILE", help="Write the figures; - for stdout.")
@click.option("--cpu", is_flag=True, help="A tiny model on the CPU, to try the script itself.")
@click.option("--steps", type=click.IntRange(min=3), default=5, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
def main(json_path: str | None, cpu: bool, steps: int, repeats: int) -> None:
    """Check this machine's first GPU in less than four minutes."""
    check_json_path(json_path)
    if not cpu and not torch.cuda.is_available():
        raise click.ClickException("no CUDA device was found; --cpu tries the script without one")
    device = torch.device("cpu" if cpu else "cuda:0")
    report = check(TINY if cpu else WAN_1B, device, steps, repeats)
    tell(report, human_console(json_path).print)
    write_json(json_path, report.model_dump_json(indent=2))
    sys.exit(0 if report.ok else 1)


if __name__ == "__main__":
    main()
