from __future__ import annotations

import errno
import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Picture

from elastic_dit.errors import InvalidRequest, SaveError
from elastic_dit.judging import Scene, render
from elastic_dit.media import read_comment
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.results import Image, Video, make_result
from elastic_dit.state import StageRecord

SCENE = Scene("red", "heart", "grow", "white")
RECORD = StageRecord(stage=Stage.DIT, gpus=(1,), started_at=2.0, seconds=0.5, attempt=1)


def request(num_frames: int = 9, prompt: str = SCENE.prompt) -> GenerationRequest:
    return GenerationRequest.parse(
        request_id="r1", model="shapes", prompt=prompt, width=64, height=64,
        num_frames=num_frames, fps=8, num_inference_steps=12, guidance_scale=4.0, seed=7,
    )  # fmt: skip


def video() -> Video:
    result = make_result(render(SCENE, 9, 64), request(), [RECORD])
    assert isinstance(result, Video)
    return result


def image() -> Image:
    result = make_result(render(SCENE, 1, 64), request(1), [RECORD])
    assert isinstance(result, Image)
    return result


def test_frames_decide_the_kind() -> None:
    assert video().duration_s == pytest.approx(9 / 8)
    assert (video().num_frames, video().fps, video().seed) == (9, 8, 7)
    assert np.array_equal(image().pixels, image().frames[0])


@pytest.mark.parametrize(
    "frames",
    [
        np.zeros((9, 64, 64, 3), np.float32),
        np.zeros((9, 64, 64, 4), np.uint8),
        np.zeros((8, 64, 64, 3), np.uint8),
        np.zeros((9, 64, 48, 3), np.uint8),
    ],
)
def test_frames_must_be_those_of_the_request(frames: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"want uint8 \(9, 64, 64, 3\)"):
        make_result(frames, request())


def test_immutable() -> None:
    result = video()
    with pytest.raises(AttributeError, match="immutable"):
        result.frames = np.zeros(1)  # type: ignore[assignment]
    with pytest.raises(AttributeError, match="immutable"):
        del result.records
    with pytest.raises(ValueError, match="read-only"):
        result.frames[0] = 0


def test_callers_array_stays_writable() -> None:
    frames = np.zeros((9, 64, 64, 3), np.uint8)
    result = make_result(frames, request())
    frames[0] = 1
    assert frames.flags.writeable
    assert not result.frames.flags.writeable


def test_with_records() -> None:
    bare = make_result(render(SCENE, 9, 64), request())
    told = bare.with_records([RECORD])
    assert bare.records == ()
    assert told.records == (RECORD,)
    assert told.frames is not bare.frames
    assert np.shares_memory(told.frames, bare.frames)


@pytest.mark.parametrize("make", [video, image])
def test_pickles_with_frames_out_of_band(make) -> None:
    result = make()
    buffers: list[pickle.PickleBuffer] = []
    wire = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
    assert len(wire) < 4096
    assert sum(buffer.raw().nbytes for buffer in buffers) == result.frames.nbytes
    back = pickle.loads(wire, buffers=buffers)
    assert type(back) is type(result)
    assert np.array_equal(back.frames, result.frames)
    assert (back.request, back.records) == (result.request, result.records)


def test_size_counts_the_frames() -> None:
    assert sys.getsizeof(video()) > video().frames.nbytes


@pytest.mark.parametrize("suffix", ["mp4", "gif", "webp", "png", "jpg"])
def test_saved_video_tells_how_it_was_made(suffix: str, tmp_path: Path) -> None:
    path = video().save(tmp_path / f"clip.{suffix}")
    assert json.loads(read_comment(path)) == video().metadata()


@pytest.mark.parametrize("suffix", ["png", "webp", "jpg", "gif", "PNG"])
def test_saved_image_tells_how_it_was_made(suffix: str, tmp_path: Path) -> None:
    path = image().save(str(tmp_path / f"image.{suffix}"))
    assert json.loads(read_comment(path)) == image().metadata()
    with Picture.open(path) as picture:
        assert picture.size == (64, 64)


def test_metadata_survives_any_prompt(tmp_path: Path) -> None:
    prompt = '心 ❤️ "quoted" \\ <b>&\n' * 50
    result = make_result(render(SCENE, 9, 64), request(prompt=prompt))
    for suffix in ("mp4", "png", "gif", "webp"):
        metadata = json.loads(read_comment(result.save(tmp_path / f"clip.{suffix}")))
        assert metadata["request"]["prompt"] == prompt


@pytest.mark.parametrize("name", ["clip.avi", "clip", "clip.", ".mp4"])
def test_unknown_suffix(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"path = .*: must be a file name ending .* video"):
        video().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_an_image_is_no_mp4(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"ending in \.png, .* for this image"):
        image().save(tmp_path / "image.mp4")


def test_path_can_be_checked_before_there_is_a_result(tmp_path: Path) -> None:
    Video.check_path(tmp_path / "clip.mp4")
    with pytest.raises(InvalidRequest):
        Image.check_path(tmp_path / "clip.mp4")
    with pytest.raises(SaveError):
        Video.check_path(tmp_path / "missing" / "clip.mp4")


def test_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(SaveError, match=r"missing/clip\.mp4: No such file or directory"):
        video().save(tmp_path / "missing" / "clip.mp4")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_forbidden_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SaveError, match="Permission denied"):
        video().save(tmp_path / "clip.mp4")


def test_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SaveError, match=r"clip\.mp4: No space left on device"):
        video().save(tmp_path / "clip.mp4")
    assert list(tmp_path.iterdir()) == []


def test_encoder_trouble_is_a_save_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("no room")

    monkeypatch.setattr("PIL.Image.Image.save", fail)
    with pytest.raises(SaveError, match=r"clip\.jpg: ValueError"):
        video().save(tmp_path / "clip.jpg")
    assert list(tmp_path.iterdir()) == []


def test_a_jpeg_whose_comment_exif_cannot_hold_goes_without(tmp_path: Path) -> None:
    # EXIF holds 64 KiB at most.
    result = make_result(render(SCENE, 9, 64), request(prompt="x" * 70_000))
    result.save(tmp_path / "clip.jpg")
    with Picture.open(tmp_path / "clip.jpg") as picture:
        assert picture.height >= 64
        assert not picture.getexif()


def test_repr_is_short() -> None:
    result = make_result(render(SCENE, 9, 64), request(prompt="long " * 100))
    assert repr(video()) == (
        "<Video 'a red heart growing on a white background' 64x64, 9 frames at 8 fps seed=7>"
    )
    assert len(repr(result)) < 130


def test_notebook_shows_the_clip_and_escapes_the_prompt() -> None:
    result = make_result(render(SCENE, 9, 64), request(prompt="<script>x</script>"), [RECORD])
    assert isinstance(result, Video)
    shown = result._repr_html_()
    assert 'src="data:video/mp4;base64,' in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "0.50 s on GPUs" in shown


def test_notebook_shows_the_image() -> None:
    assert image()._repr_png_().startswith(b"\x89PNG")
