"""``elastic-dit demo`` as a user starts it: processes, files, and Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import av
import psutil
import pytest
from PIL import Image as Picture

from elastic_dit.report.schema import DemoReport
from elastic_dit.request import Stage
from tests.cli.running import run_process

pytestmark = pytest.mark.cluster

PATIENCE_S = 60.0
PRETENDING = "models: [{name: fake, path: 'embedded:shapes'}]\nengine: {backend: fake}\n"


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_makes_what_the_plain_pipeline_makes(tmp_path: Path) -> None:
    (tmp_path / "clips").mkdir()
    (tmp_path / "clips" / "001-of-an-earlier-demo.mp4").touch()
    (tmp_path / "clips" / "somebody-elses.mp4").touch()
    alone = tmp_path / "alone.yaml"  # on several GPUs a pixel may be rounded the other way
    alone.write_text("control: {dispatch: fcfs}")
    options = ("--requests", 3, "--virtual-gpus", 3, "--steps", 6, "--output", tmp_path)
    ran = run_process("demo", *options, "--config", alone, "--json", "-", timeout_s=350)
    assert ran.code == 0, ran.err
    assert "Traceback" not in ran.err
    assert "3 of 3" in ran.err
    assert re.search(r"^Live page: http://127\.0\.0\.1:\d+/elastic-dit$", ran.err, re.MULTILINE)
    report = DemoReport.model_validate_json(ran.out)
    assert ran.out == (tmp_path / "report.json").read_text()

    sums = report.totals
    assert (sums.requests, sums.completed, sums.judged, sums.identical) == (3, 3, 3, 3)
    assert sums.plain_right == sums.right
    assert 0 < sums.gpu_busy_share <= 1
    assert {each.size for each in report.requests} == {"48x48", "64x64", "96x96"}
    assert {each.frames for each in report.requests} == {1, 9, 17}
    for each in report.requests:
        assert set(each.engines) == set(each.stage_seconds) == set(Stage)
        assert each.plain is not None
        assert each.judge is not None
        assert each.judge.ok == each.plain.ok
        assert each.file is not None
        assert count_frames(tmp_path / each.file) == each.frames
    clips = {f"clips/{path.name}" for path in (tmp_path / "clips").iterdir()}
    assert clips == {each.file for each in report.requests} | {"clips/somebody-elses.mp4"}
    for name in ("sheet.png", "timeline.png"):
        with Picture.open(tmp_path / name) as picture:
            picture.verify()


def count_frames(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


class Demo:
    """A long demo with pretending engines, in a session of its own."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.yaml").write_text(PRETENDING)
        self._log = (folder / "log").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "elastic_dit.cli.main", "demo", "--no-compare",
             "--config", str(folder / "config.yaml"), "--output", str(folder / "out"),
             "--requests", "300", "--virtual-gpus", "2"],
            stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def said(self) -> str:
        self._log.flush()
        return Path(self._log.name).read_text()

    def others(self) -> list[psutil.Process]:
        """Living processes of the session besides the first."""
        found = []
        for process in psutil.process_iter(["pid", "status"]):
            try:
                if os.getsid(process.pid) != self.process.pid:
                    continue
            except ProcessLookupError:
                continue
            if process.pid != self.process.pid and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def close(self) -> None:
        for process in self.others():
            process.kill()
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    demo.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def listens(demo: Demo) -> bool:
    """Whether the command has taken charge of signals, which comes before all its imports."""
    status = Path(f"/proc/{demo.process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGHUP - 1) & 1)


MOMENTS: dict[str, Callable[[Demo], bool]] = {
    "while it imports": listens,
    "while processes start": lambda demo: len(demo.others()) >= 2,
    "while it works": lambda demo: "completed" in demo.said(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupt_leaves_nothing_at_any_moment(moment: str, demo: Demo) -> None:
    wait_until(lambda: MOMENTS[moment](demo))
    # As a terminal does it: to every process of the foreground group.
    os.killpg(demo.process.pid, signal.SIGINT)
    # The interpreter ends by the signal itself where the interrupt went through `PyRun_String`.
    assert demo.process.wait(PATIENCE_S) in (130, -signal.SIGINT), demo.said()
    wait_until(lambda: not demo.others())
    assert "Traceback" not in demo.said()


def test_sigterm_to_the_command_ends_all(demo: Demo) -> None:
    wait_until(lambda: MOMENTS["while processes start"](demo))
    demo.process.terminate()
    assert demo.process.wait(PATIENCE_S) == 143
    wait_until(lambda: not demo.others())
    assert "Traceback" not in demo.said()
