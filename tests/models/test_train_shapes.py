"""The training recipe runs from nothing to a folder that serves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.bench
@pytest.mark.slow
@pytest.mark.timeout(700)
def test_the_recipe_runs_from_nothing_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    assert "pipeline" in run("train.py", "all", "--smoke", "--output", str(tmp_path))
    table = tmp_path / "table.json"
    size = ("--frames", "1", "--sizes", "48", "--count", "2", "--steps", "2")
    printed = run("evaluate.py", str(tmp_path / "pipeline"), *size, "--json", str(table))
    assert "of 2 right" in printed
    assert table.is_file()

    again = ("transformer", "--smoke", "--output", str(tmp_path), "--steps", "5")
    resumed = (*again, "--resume", str(tmp_path / "checkpoint.pt"))
    assert "48 px" in run("train.py", *resumed)
