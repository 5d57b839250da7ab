"""The benchmarks run, and their figures are consistent; how good they are is not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_overhead(tmp_path: Path) -> None:
    path = tmp_path / "overhead.json"
    small = ("--repeats", "2", "--size", "48", "--frames", "9", "--steps", "2")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "overhead.py"), *small, "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert report["identical"]
    assert (report["size"], report["frames"], report["steps"]) == ("48x48", 9, 2)
    ratios = [
        ours / theirs
        for ours, theirs in zip(report["elastic_seconds"], report["plain_seconds"], strict=True)
    ]
    assert report["wall_ratios"] == pytest.approx(ratios)
    assert report["wall_ratio"] == pytest.approx(sum(ratios) / 2)
    passages = [(each["source"], each["target"]) for each in report["hand_offs"]]
    assert passages == [("encoder", "dit"), ("dit", "decoder"), ("decoder", "client")]
    assert all(each["bytes"] > 0 and each["seconds"] > 0 for each in report["hand_offs"])
    assert report["hand_offs"][-1]["bytes"] == 9 * 48 * 48 * 3


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_promotion(tmp_path: Path) -> None:
    path = tmp_path / "promotion.json"
    small = ("--repeats", "2", "--size", "48", "--frames", "5", "--dop", "2")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "promotion.py"), *small, "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert (report["size"], report["frames"], report["backend"]) == ("48x48", 5, "gloo")
    (pair,) = report["degrees"]
    assert pair["dop"] == 2
    assert 0 < pair["cached_seconds"] < pair["first_seconds"]
    assert pair["state_bytes"] > 0
    assert len(pair["sized_seconds"]) == 3
    spent_s = pair["first_seconds"] + pair["state_seconds"] + pair["switch_seconds"]
    assert pair["promotion_ratio"] == pytest.approx(spent_s / report["step_seconds"])
    assert pair["repeated_ratio"] < pair["promotion_ratio"]
