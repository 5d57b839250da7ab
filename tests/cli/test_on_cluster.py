"""``generate`` and ``status`` against a real cluster whose engines only pretend."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import distributed
import pytest

from elastic_dit.cli.profile_schema import ProfileReport
from elastic_dit.cluster.launch.local import LocalElasticCluster
from elastic_dit.config import Config
from elastic_dit.media import read_comment
from elastic_dit.report.schema import RequestReport
from elastic_dit.request import Stage
from elastic_dit.rib import software_version
from elastic_dit.rib.store import RibStore
from tests.cli.running import Ran, run

pytestmark = pytest.mark.cluster

PICTURE = str(next((Path(__file__).parents[2] / "docs" / "images").glob("*.png")))


@pytest.fixture(scope="module")
def scheduler() -> Iterator[str]:
    config = Config.parse({"engine": {"backend": "fake"}})
    with LocalElasticCluster(virtual_gpus=2, config=config, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def generate(scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    def generate(prompt: str, *arguments: object) -> Ran:
        return run(capsys, "generate", prompt, "--scheduler", scheduler, *arguments)

    return generate


def test_saves_a_video_and_tells(generate, tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    ran = generate("a red circle", "--output", path, "--frames", "9", "--seed", "5")
    assert ran.code == 0, ran.err
    assert f"{path}: seed 5, " in ran.out
    assert all(f"{stage} 0." in ran.out for stage in Stage)
    assert json.loads(read_comment(path))["request"]["seed"] == 5


def test_names_the_file_after_the_prompt(
    generate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert generate("Ein roter Kreis!", "--frames", "1", "--seed", "3").code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["ein-roter-kreis-3.png"]


def test_json_on_standard_output_is_alone_there(generate, tmp_path: Path) -> None:
    options = ("--output", tmp_path / "a.gif", "--size", "48x32", "--steps", "3", "--json", "-")
    ran = generate("心 a ring 😀", *options)
    assert ran.code == 0
    report = RequestReport.model_validate_json(ran.out)
    assert (report.size, report.steps, report.prompt) == ("48x32", 3, "心 a ring 😀")
    assert set(report.stage_seconds) == set(Stage)
    assert report.file == str(tmp_path / "a.gif")
    assert "seed" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "33x64"), "width = 33: must be a multiple of"),
        (("--frames", "15"), "num_frames = 15: must be 4k + 1"),
        (("--steps", "1000000"), "num_inference_steps = 1000000: must be"),
        (("--guidance", "nan"), "guidance_scale = nan: must be"),
        (("--guidance", "-1"), "guidance_scale = -1.0: must be"),
        (("--model", "mona-lisa"), "model = 'mona-lisa': must be"),
        (("--output", "{tmp}/a.avi"), "must be a file name ending in .mp4"),
        (("--output", "{tmp}/a.mp4", "--frames", "1"), "for this image"),
        (("--output", "{tmp}/none/a.mp4"), "No such file or directory"),
        (("--json", "{tmp}/none/a.json"), "No such file or directory"),
        (("--image", "{tmp}/none.png"), "must be a readable file (No such file"),
        (("--image", __file__), "must be a PNG, JPEG or WEBP file"),
        (("--image", PICTURE), "must be left out: fake takes no picture"),
    ],
)
def test_refusals_are_one_line(
    arguments: tuple[str, ...], said: str, generate, tmp_path: Path
) -> None:
    output = () if "--output" in arguments else ("--output", "{tmp}/a.mp4")
    given = [each.format(tmp=tmp_path) for each in (*output, *arguments)]
    ran = generate("a red circle", *given)
    assert ran.code == 1
    assert said in ran.error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prompt", ["", "   ", "word " * 10_000])
def test_prompts_that_cannot_be(prompt: str, generate, tmp_path: Path) -> None:
    ran = generate(prompt, "--output", tmp_path / "a.mp4")
    assert ran.code == 1
    assert ran.error.startswith("prompt = ")
    assert len(ran.error) < 300


def test_status(generate, scheduler: str, tmp_path: Path, capsys) -> None:
    assert generate("a red circle", "--output", tmp_path / "clip.mp4").code == 0
    ran = run(capsys, "status", "--scheduler", scheduler)
    assert ran.code == 0
    assert "2 GPUs serve fake" in ran.out
    assert "completed" in ran.out


def test_status_as_json(scheduler: str, tmp_path: Path, capsys) -> None:
    path = tmp_path / "status.json"
    assert run(capsys, "status", "--scheduler", scheduler, "--json", path).code == 0
    assert len(json.loads(path.read_text())["gpus"]) == 2


def test_example_of_a_client(scheduler: str, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "client.py"
    ran = subprocess.run(
        [sys.executable, str(script), scheduler],
        check=False, capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert len(list(tmp_path.glob("gen-*.mp4"))) == 3
    assert "a yellow star growing" in ran.stdout


def test_without_an_engine_it_waits_no_longer_than_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster:
        address = cluster.scheduler_address
        ran = run(capsys, "generate", "a", "--scheduler", address, "--timeout", "1")
    assert ran.code == 1
    assert "no engine has joined within 1 s: start elastic-dit-worker" in ran.err


def test_profile_measures_stores_and_tells(
    scheduler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rib = tmp_path / "rib.sqlite"
    quick = ("--steps", "3", "--repeats", "2", "--warm-up", "0")
    ran = run(
        capsys, "profile", "--scheduler", scheduler, "--shape", "48x32x5", "--shape", "64x64",
        "--rib", rib, *quick, "--json", "-",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    report = ProfileReport.model_validate_json(ran.out)
    shapes = {(row.width, row.height, row.frames) for row in report.latencies}
    assert shapes == {(48, 32, 5), (64, 64, 1)}
    assert [row.stage for row in report.latencies] == [Stage.DIT, Stage.ENCODER, Stage.DECODER] * 2
    assert all(row.repeats == 4 and row.dop == 1 for row in report.latencies)
    assert {row.dop for row in report.optima} == {1}
    assert f"Written to sqlite:///{rib}" in " ".join(ran.err.split())
    assert report.software == {"fake": software_version()}
    stored = {each.key: each.seconds for each in RibStore(str(rib)).load(software_version())}
    assert sorted(stored.values()) == sorted(row.seconds for row in report.latencies)

    trace = tmp_path / "trace.csv"
    columns = "at_s,model,width,height,num_frames,num_inference_steps\n"
    model = report.latencies[0].model
    trace.write_text(columns + "".join(f"{at},{model},48,48,5,4\n" for at in range(3)))
    planned = run(capsys, "plan", "--trace", trace, "--cost", rib, "--gpus", "1", "--json", "-")
    assert planned.code == 0, planned.err
    [row] = json.loads(planned.out)["runs"]
    assert row["completed"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shape", "33x64"), "width = 33: must be a multiple of"),
        (("--model", "mona-lisa"), "model = 'mona-lisa': must be"),
        (("--dops", "1,2"), "dops = 2: must be one of 1"),
        (("--kind", "H100"), "kind = 'H100': must be one of fake"),
        (("--rib", "{tmp}/none/rib.sqlite"), "unable to open database file"),
        (("--rib", "oracle+nope://db"), "the URL of a database whose driver is installed"),
        (("--json", "{tmp}/none/a.json"), "No such file or directory"),
    ],
)
def test_profile_says_what_is_wrong(
    scheduler: str, arguments: tuple[str, ...], said: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    filled = [argument.format(tmp=tmp_path) for argument in arguments]
    rib = () if "--rib" in filled else ("--rib", tmp_path / "rib.sqlite")
    ran = run(capsys, "profile", "--scheduler", scheduler, *rib, *filled)
    assert ran.code == 1
    assert said in ran.error


@pytest.mark.parametrize(
    "arguments",
    [
        ("--shape", "big"),
        ("--dops", "0"),
        ("--virtual-gpus", "2", "--scheduler", "tcp://127.0.0.1:1"),
        ("--config", "demo.yaml", "--scheduler", "tcp://127.0.0.1:1"),
        (),
    ],
)
def test_profile_wrong_usage(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "profile", "--rib", tmp_path / "r.sqlite", *arguments).code == 2
