"""Measures the embedded model: how many of 48 prompts come out right, by frames and size.

``python evaluate.py`` prints the 3 x 3 table; ``--json FILE`` writes it with all settings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline
from PIL import Image

from elastic_dit.judging import Scene, Tally, Verdict, evaluation_scenes, judge, tally
from elastic_dit.models import embedded_model_path

__all__ = ["Settings", "evaluate", "generate", "to_frames"]

FRAMES = (1, 9, 17)
SIZES = (48, 64, 96)
BATCH = 16
MARGIN = ((2, 2), (2, 2), (0, 0))
"""Pixels around each clip of a sheet."""


@dataclass(frozen=True)
class Settings:
    """How to sample, and how many prompts to ask.

    Parameters
    ----------
    count : int
        Number of prompts, the first of `elastic_dit.judging.evaluation_scenes`.
    steps : int
        Denoising steps.
    guidance_scale : float
        Of classifier-free guidance.
    max_sequence_length : int
        Rows of text given to the transformer.
    seed : int
        Seed of the first prompt; each next one has the next seed.
    """

    count: int = 48
    steps: int = 12
    guidance_scale: float = 4.0
    max_sequence_length: int = 16
    seed: int = 100


def generate(
    pipeline: WanPipeline,
    prompts: Sequence[str],
    num_frames: int,
    size: int,
    settings: Settings | None = None,
) -> npt.NDArray[np.uint8]:
    """Generate one clip a prompt.

    Returns
    -------
    numpy.ndarray
        ``uint8`` of shape ``(len(prompts), num_frames, size, size, 3)``.
    """
    settings = settings or Settings()
    batches = []
    for start in range(0, len(prompts), BATCH):
        batch = list(prompts[start : start + BATCH])
        # A generator a prompt: its noise does not depend on the other prompts of the batch.
        generators = [
            torch.Generator().manual_seed(settings.seed + start + index)
            for index in range(len(batch))
        ]
        output = pipeline(
            prompt=batch,
            height=size,
            width=size,
            num_frames=num_frames,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance_scale,
            max_sequence_length=settings.max_sequence_length,
            generator=generators,
            output_type="np",
        )
        batches.append(to_frames(output.frames))
    return np.concatenate(batches)


def to_frames(video: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Values from 0 to 1 as ``uint8``."""
    frames: npt.NDArray[np.uint8] = np.round(np.clip(video, 0, 1) * 255).astype(np.uint8)
    return frames


def evaluate(
    pipeline: WanPipeline, num_frames: int, size: int, settings: Settings | None = None
) -> Tally:
    """Generate the evaluation scenes in one geometry and count what is right."""
    return tally(*judged(pipeline, num_frames, size, settings or Settings()))


def judged(
    pipeline: WanPipeline, num_frames: int, size: int, settings: Settings
) -> tuple[list[Verdict], list[Scene]]:
    """Verdicts on the generated evaluation scenes, and the scenes."""
    scenes = evaluation_scenes(settings.count)
    clips = generate(pipeline, [scene.prompt for scene in scenes], num_frames, size, settings)
    return [judge(clip) for clip in clips], scenes


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=embedded_model_path())
    parser.add_argument("--count", type=int, default=48, help="prompts in each cell")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--guidance-scale", type=float, default=4.0)
    parser.add_argument("--shift", type=float, help="of the schedule; the folder's own if left out")
    parser.add_argument("--max-sequence-length", type=int, default=16)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--frames", type=int, nargs="+", default=FRAMES)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the table to this file")
    parser.add_argument("--sheet", type=Path, help="draw 9 frames of 64 px of each prompt here")
    parser.add_argument("--misses", action="store_true", help="name each prompt that went wrong")
    return parser.parse_args()


def draw_sheet(clips: npt.NDArray[np.uint8], columns: int = 4) -> Image.Image:
    """First, middle and last frame of every clip, clips side by side in rows."""
    picked = clips[:, [0, clips.shape[1] // 2, -1]]
    strips = [np.pad(np.concatenate(list(clip), axis=1), MARGIN) for clip in picked]
    rows = [np.concatenate(strips[i : i + columns], axis=1) for i in range(0, len(strips), columns)]
    return Image.fromarray(np.concatenate(rows))


def main() -> None:
    """Print the table."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    pipeline = WanPipeline.from_pretrained(arguments.folder, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    if arguments.shift is not None:
        pipeline.scheduler = FlowMatchEulerDiscreteScheduler.from_config(
            pipeline.scheduler.config, shift=arguments.shift
        )
    settings = Settings(
        arguments.count,
        arguments.steps,
        arguments.guidance_scale,
        arguments.max_sequence_length,
        arguments.seed,
    )
    rows = []
    for num_frames in arguments.frames:
        for size in arguments.sizes:
            began = time.monotonic()
            verdicts, scenes = judged(pipeline, num_frames, size, settings)
            counts, seconds = tally(verdicts, scenes), (time.monotonic() - began) / len(scenes)
            print(f"{num_frames:2d} frames {size} px: {counts}, {seconds:.2f} s each", flush=True)
            if arguments.misses:
                for verdict, scene in zip(verdicts, scenes, strict=True):
                    if not verdict.matches(scene):
                        print(f"    {scene.prompt} -> {verdict}")
            rows.append({"num_frames": num_frames, "size": size, **asdict(counts)})
    if arguments.sheet:
        prompts = [scene.prompt for scene in evaluation_scenes(settings.count)]
        draw_sheet(generate(pipeline, prompts, 9, 64, settings)).save(arguments.sheet)
    if arguments.json:
        report = {"settings": asdict(settings), "shift": arguments.shift, "table": rows}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
