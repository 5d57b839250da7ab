"""Trains the embedded model "shapes" from nothing, or any one of its parts.

``python train.py all --output DIR`` runs the whole recipe and leaves the model in DIR/pipeline.
``--smoke`` takes a few tiny steps of everything, to see that it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from autoencoder import Phase

STEPS = 9000
SMOKE_STEPS = 3
SMOKE_POOL = 4
SMOKE_BATCH = 2
PARTS = ("autoencoder", "transformer", "decoder", "export", "all")

# glibc gives large blocks back after each operation, and the page faults that follow made training
# seven times slower on a small virtual machine. These are only read when a process starts.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(8 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
    "OMP_WAIT_POLICY": "passive",
}


def main() -> None:
    """Run the parts asked for, in order."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads)
    wanted = PARTS if arguments.part == "all" else (arguments.part,)
    if "autoencoder" in wanted:
        _train_autoencoder(arguments)
    if "transformer" in wanted:
        _train_transformer(arguments)
    if "decoder" in wanted:
        _train_decoder(arguments)
    if "export" in wanted:
        _export(arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--output", type=Path, required=True, help="folder for everything made")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, help=f"of the transformer, in all; {STEPS} by default")
    parser.add_argument("--hold", type=float, default=0.45, help="share of steps at full rate")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the usual learning rate")
    parser.add_argument("--save-every", type=int, default=1000, help="steps between checkpoints")
    parser.add_argument(
        "--phase-steps", type=int, help="of an autoencoder phase; its own if left out"
    )
    parser.add_argument(
        "--minutes", type=float, help="end the transformer's run after so long, whatever --steps"
    )
    parser.add_argument("--evaluated", type=int, default=24, help="clips in each quality report")
    parser.add_argument(
        "--autoencoder", type=Path, help="a trained one to use in place of OUTPUT/autoencoder"
    )
    parser.add_argument("--resume", type=Path, help="go on from this transformer checkpoint")
    parser.add_argument("--smoke", action="store_true", help="a few tiny steps of everything")
    arguments = parser.parse_args()
    arguments.steps = arguments.steps or (SMOKE_STEPS if arguments.smoke else STEPS)
    return arguments


def _train_autoencoder(arguments: argparse.Namespace) -> None:
    from autoencoder import train_autoencoder

    folder = arguments.output / "autoencoder"
    train_autoencoder(folder, _phase("coarse", arguments), arguments.seed)
    train_autoencoder(folder, _phase("fine", arguments), arguments.seed, start=folder)


def _train_decoder(arguments: argparse.Namespace) -> None:
    from autoencoder import train_autoencoder

    folder = arguments.output / "autoencoder_decoder"
    train_autoencoder(folder, _phase("decoder", arguments), arguments.seed, _autoencoder(arguments))


def _train_transformer(arguments: argparse.Namespace) -> None:
    from diffusers import AutoencoderKLWan
    from transformer import Plan, Trainer

    plan = Plan(
        arguments.steps,
        arguments.hold,
        arguments.save_every,
        arguments.seed,
        arguments.evaluated,
        minutes=arguments.minutes,
        rate=arguments.rate,
    )
    if arguments.smoke:
        kinds = tuple(replace(k, batch=SMOKE_BATCH, pool=SMOKE_POOL) for k in plan.kinds[:1])
        plan = replace(plan, evaluated=SMOKE_BATCH, kinds=kinds)
    autoencoder = AutoencoderKLWan.from_pretrained(_autoencoder(arguments))
    trainer = Trainer(autoencoder.float(), plan, arguments.output)
    if arguments.resume:
        trainer.restore(arguments.resume)
    trainer.train()


def _export(arguments: argparse.Namespace) -> None:
    from export import export

    autoencoder = arguments.output / "autoencoder_decoder"
    folder = arguments.output / "pipeline"
    size = export(autoencoder, _checkpoint(arguments), folder)
    print(f"{folder}: {size / 1e6:.2f} MB")


def _autoencoder(arguments: argparse.Namespace) -> Path:
    """The autoencoder that the transformer was, or is to be, trained with."""
    chosen: Path = arguments.autoencoder or arguments.output / "autoencoder"
    return chosen


def _checkpoint(arguments: argparse.Namespace) -> Path:
    """The transformer to use."""
    chosen: Path = arguments.resume or arguments.output / "checkpoint.pt"
    return chosen


def _phase(name: str, arguments: argparse.Namespace) -> Phase:
    """A phase of the autoencoder, at the length asked for."""
    from autoencoder import PHASES

    phase = PHASES[name]
    if arguments.phase_steps:
        phase = replace(phase, steps=arguments.phase_steps)
    return _tiny(phase) if arguments.smoke else phase


def _tiny(phase: Phase) -> Phase:
    """The phase cut to a few small steps."""
    sources = tuple(replace(source, batch=SMOKE_BATCH) for source in phase.sources)
    return replace(phase, sources=sources, steps=SMOKE_STEPS)


if __name__ == "__main__":
    if any(name not in os.environ for name in KEEP_MEMORY):
        os.environ.update(KEEP_MEMORY)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    main()
