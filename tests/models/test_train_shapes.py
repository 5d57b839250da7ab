"""The training recipe runs from nothing to a folder that serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from elastic_dit.models import embedded_model_path

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "examples" / "train_shapes"
LIMIT_S = 300


def run(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(RECIPE / script), *arguments]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_whole_recipe_runs(tmp_path: Path) -> None:
    assert "pipeline" in run("train.py", "all", "--smoke", "--output", str(tmp_path))
    table = tmp_path / "table.json"
    size = ("--frames", "1", "--sizes", "48", "--count", "2", "--steps", "2")
    printed = run("evaluate.py", str(tmp_path / "pipeline"), *size, "--json", str(table))
    assert "of 2 right" in printed
    assert table.is_file()


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_training_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    autoencoder = str(embedded_model_path() / "vae")
    start = ("transformer", "--smoke", "--output", str(tmp_path), "--autoencoder", autoencoder)
    run("train.py", *start)
    checkpoint = str(tmp_path / "checkpoint.pt")
    assert "48 px" in run("train.py", *start, "--resume", checkpoint, "--steps", "5")
    assert not run("train.py", *start, "--resume", checkpoint, "--steps", "5")
