"""The comparison with others: its own code, with sides that are made up; Ray is not needed."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner

from elastic_dit.engine.fake import FAKE_CARD
from elastic_dit.errors import ElasticDitError
from elastic_dit.request import GenerationRequest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def rivals(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("rivals")


@pytest.fixture
def bench(rivals: ModuleType) -> ModuleType:
    return importlib.import_module("rival_bench")


class MadeUp:
    """Two processes that sleep; a request is lost with the first of them, and another comes."""

    def __init__(self, lost_at: int = 2) -> None:
        self.lost_at = lost_at
        self.under_way, self.most, self.calls = 0, 0, 0
        self.processes = [self._process(), self._process()]
        self._lock = threading.Lock()

    @staticmethod
    def _process() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])

    def answer(self, request: GenerationRequest) -> str:
        with self._lock:
            self.calls, self.under_way = self.calls + 1, self.under_way + 1
            self.most, call = max(self.most, self.under_way), self.calls
        try:
            if request.request_id == "killed" and call == self.lost_at:
                self._await_a_death()
                raise ElasticDitError("lost")
            return f"frames of {request.seed}"
        finally:
            with self._lock:
                self.under_way -= 1

    def _await_a_death(self) -> None:
        there = tuple(self.processes)
        while all(process.poll() is None for process in there):
            time.sleep(0.01)

    def workers(self) -> set[int]:
        """As of a side that replaces its dead by itself."""
        with self._lock:
            alive = [process for process in self.processes if process.poll() is None]
            while len(alive) < 2:
                alive.append(self._process())
            self.processes = alive
            return {process.pid for process in alive}

    def complete(self) -> bool:
        return True

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def made_up() -> Iterator[MadeUp]:
    side = MadeUp()
    yield side
    side.close()


def request(request_id: str, seed: int = 1) -> GenerationRequest:
    return FAKE_CARD.complete({"prompt": "x", "seed": seed, "request_id": request_id})


def test_a_load_has_so_many_under_way(bench: ModuleType, made_up: MadeUp) -> None:
    load = bench.Bench(made_up).load([request(f"r{n}") for n in range(9)], 3)
    assert len(load.latencies_s) == made_up.calls == 9
    assert made_up.most <= 3
    assert load.seconds >= max(load.latencies_s)
    # This process and the two that sleep.
    assert load.memory.processes >= 3
    assert 0 < load.memory.pss_bytes <= load.memory.rss_bytes


def test_a_killed_process_is_waited_for_and_its_request_sent_again(
    bench: ModuleType, made_up: MadeUp
) -> None:
    before = made_up.workers()
    recovery = bench.Bench(made_up).kill(request("killed"))
    assert recovery.resubmitted == 1
    assert recovery.identical
    assert recovery.answered_s > 0
    assert recovery.restored_s > 0
    assert len(before & made_up.workers()) == 1


def test_a_kill_that_came_too_late_is_done_again(bench: ModuleType, made_up: MadeUp) -> None:
    made_up.lost_at = 4  # once undisturbed, once too quick, once more undisturbed
    recovery = bench.Bench(made_up).kill(request("killed"))
    assert (recovery.resubmitted, made_up.calls) == (1, 5)
    assert recovery.answered_s > 0


def figures(rivals: ModuleType, throughput: float, single_s: float, answered_s: float) -> Any:
    return rivals.SideReport(
        start_s=1, processes=4, rss_bytes=100, pss_bytes=50, single_s=(single_s,) * 3,
        throughput_per_s=throughput, mean_latency_s=1 / throughput, p99_latency_s=2 / throughput,
        rounds=[rivals.LoadFigures(throughput_per_s=throughput, latencies_s=(1.0,))] * 2,
        recovery=rivals.RecoveryFigures(
            undisturbed_s=1, answered_s=answered_s, restored_s=3, resubmitted=0, identical=True
        ),
    )  # fmt: skip


def test_ratios_and_where_we_lose(rivals: ModuleType) -> None:
    ours, theirs = figures(rivals, 3.0, 1.1, 1.0), figures(rivals, 2.0, 1.0, 4.0)
    ratios = rivals.compare(ours, theirs)
    assert ratios == pytest.approx(
        {
            "throughput": 1.5, "mean_latency": 2 / 3, "p99_latency": 2 / 3,
            "single_request_wall": 1.1, "memory_rss": 1.0, "recovery": 0.25, "restoration": 1.0,
        }
    )  # fmt: skip
    assert list(rivals.losses({"us_vs_them": ratios})) == ["us_vs_them.single_request_wall: 1.10"]
    assert len(list(rivals.losses({"back": rivals.compare(theirs, ours)}))) == 4


def test_without_ray_it_says_what_to_do(
    rivals: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ElasticDitError, match=r"rivals.*or --without ray"):
        rivals._chosen(())
    names, left_out = rivals._chosen(("ray",))
    assert names == ["elastic_dit", "diffusers"]
    assert left_out == {"ray_serve": "left out by --without"}


class Aside:
    """In place of a process of its own."""

    def __init__(self, bench: ModuleType, name: str) -> None:
        self.name, self._side, self._bench = name, MadeUp(), bench

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, *_: object) -> None:
        self._side.close()

    def __call__(self, method: str, *arguments: Any) -> Any:
        return getattr(self._bench.Bench(self._side), method)(*arguments)


def test_the_report_has_every_side_in_turns(
    rivals: ModuleType, bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rivals, "SideProcess", lambda name, _: Aside(bench, name))
    chosen = ["elastic_dit", "diffusers"], {"ray_serve": "why"}
    monkeypatch.setattr(rivals, "_chosen", lambda _: chosen)
    path = tmp_path / "rivals.json"
    small = ("--fake", "--tiny", "--repeats", "2", "--rounds", "2", "--requests", "5", "--no-kill")
    ran = CliRunner().invoke(rivals.main, [*small, "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    report = json.loads(path.read_text())
    assert report["left_out"] == {"ray_serve": "why"}
    assert report["identical"]
    assert report["sides"].keys() == {"elastic_dit", "diffusers"}
    for side in report["sides"].values():
        assert [len(each["latencies_s"]) for each in side["rounds"]] == [5, 5]
        assert len(side["single_s"]) == 2
    [(pair, ratios)] = report["ratios"].items()
    assert pair == "elastic_dit_vs_diffusers"
    assert "recovery" not in ratios
    assert all(ratio > 0 for ratio in ratios.values())
    assert all(said in ran.output for said in ("identical frames: True", "ray_serve: why"))


@pytest.mark.timeout(300)
def test_a_side_that_does_not_start_says_why(bench: ModuleType, rivals: ModuleType) -> None:
    setting = rivals.Setting(3, 1, (1, 1, 1), "fcfs", "colocated")
    with (
        pytest.raises(ElasticDitError, match="nobody: KeyError: 'nobody'"),
        bench.SideProcess("nobody", setting),
    ):
        pass
