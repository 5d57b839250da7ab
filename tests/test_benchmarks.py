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


@pytest.mark.bench
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_promotion(tmp_path: Path) -> None:
    path = tmp_path / "promotion.json"
    # More than the model's default number of steps.
    small = ("--repeats", "13", "--size", "48", "--frames", "5", "--dop", "2")
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
    named = {"first", "cached", "switch", "state", "step", *pair["sized_seconds"]}
    assert pair["ratios"].keys() == pair["spread_seconds"].keys() == named
    for name, (low, high) in pair["spread_seconds"].items():
        assert 0 < low <= pair["ratios"][name] * report["step_seconds"] * (1 + 1e-9)
        assert pair["ratios"][name] * report["step_seconds"] <= high * (1 + 1e-9)
    spent_s = pair["first_seconds"] + pair["state_seconds"] + pair["switch_seconds"]
    assert pair["promotion_ratio"] == pytest.approx(spent_s / report["step_seconds"])
    assert pair["repeated_ratio"] < pair["promotion_ratio"]


@pytest.mark.bench
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_device_check_without_a_device(tmp_path: Path) -> None:
    path = tmp_path / "device_check.json"
    small = ("--cpu", "--steps", "3", "--repeats", "2")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "device_check.py"), *small, "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert report["ok"]
    assert report["identical"]
    assert report["resumed_identical"]
    assert (report["device"], report["dtype"]) == ("virtual", "bfloat16")
    low, high = sorted(report["step_ratios"])
    assert report["step_ratio"] == pytest.approx((low + high) / 2)
    assert [stage["stage"] for stage in report["stages"]] == ["encoder", "dit", "decoder"]
    assert all(stage["weights_bytes"] > 0 for stage in report["stages"])
    assert report["snapshot_bytes"] > 9 * 64 * 96 // 64
    assert (report["promotion"]["plan"], report["promotion"]["status"]) == ("1→2→1", "passed")


@pytest.mark.bench
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_durability(tmp_path: Path) -> None:
    path = tmp_path / "durability.json"
    small = ("--repeats", "3", "--submissions", "20", "--virtual-gpus", "1")
    fake = ("--backend", "fake", "--limit", "1e-6")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "durability.py"), *small, *fake, "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert report["repeats"] == 3
    assert all(value > 0 for value in report["journal"].values())
    flood = report["flood"]
    assert flood["submissions"] == flood["accepted"] + flood["refused"] >= 20
    assert flood["accepted"] == flood["completed"] + flood["cancelled"]
    assert flood["lost"] == 0
    assert flood["refused"] > 0
    assert 0 < flood["refusal_ms"][0] <= flood["refusal_ms"][1]


@pytest.mark.bench
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_placement_live_without_a_model(tmp_path: Path) -> None:
    path = tmp_path / "placement_live.json"
    small = ("--fake", "--gpus", "2", "--seconds", "1")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "placement_live.py"), *small, "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert report["lost"] == 0
    for name in ("shift", "rate"):
        trace = report[name]
        assert trace["completed"] == trace["submitted"] > 0
        assert trace["repeated"] == 0
        assert any(move["what"] == "plan" for move in trace["moves"])
    assert [phase["steps"] for phase in report["shift"]["phases"]] == [30, 2]


def test_decision_time(tmp_path: Path) -> None:
    path = tmp_path / "decision_time.json"
    small = ("--policy", "fcfs", "--waiting", "200", "--events", "300")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "decision_time.py"), *small, "--json", path],
        check=False, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    assert (report["waiting"], report["events"]) == (200, 300)
    for gpus in ("8", "64", "256", "1024"):
        assert 0 < report[gpus]["p50_ms"] <= report[gpus]["p99_ms"]
        assert report[gpus] == report["policies"]["fcfs"]["by_gpus"][gpus]
    assert report["simulated_steps_per_s"]["fcfs"] > 0


@pytest.mark.bench
@pytest.mark.cluster
def test_same_host(tmp_path: Path) -> None:
    path = tmp_path / "same_host.json"
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "same_host.py"), "--mib", "1", "--repeats", "2",
         "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    [row] = json.loads(path.read_text())["passages"]
    assert row["bytes"] == 2**20
    assert row["ratio"] == pytest.approx(row["shared_memory_seconds"] / row["comm_seconds"])


@pytest.mark.bench
@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_simulator_fidelity(tmp_path: Path) -> None:
    path = tmp_path / "fidelity.json"
    small = ("--fake", "--gpus", "1", "--requests", "6", "--repeats", "1")
    ran = subprocess.run(
        [sys.executable, str(FOLDER / "simulator_fidelity.py"), *small, "--policy", "srtf-1",
         "--json", str(path)],
        check=False, capture_output=True, text=True, timeout=350,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    report = json.loads(path.read_text())
    [row] = report["policies"]
    assert row["policy"] == "srtf-1"
    assert len(row["real_seconds"]) == len(row["simulated_seconds"]) == 6
    ratio = sum(row["simulated_seconds"]) / sum(row["real_seconds"])
    assert report["mean_latency_error"] == row["error"] == pytest.approx(ratio - 1)
    assert report["same_order"]
    assert len(report["profile_seconds"]) == 3
