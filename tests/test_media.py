from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image as Picture

from elastic_dit import media
from elastic_dit.judging import Scene, judge, render

SCENE = Scene("orange", "star", "right", "gray")


def frames(count: int = 9, size: int = 64) -> media.Frames:
    return render(SCENE, num_frames=count, size=size)


def read_clip(path: Path) -> media.Frames:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_mp4_shows_what_went_in(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    path.write_bytes(media.encode_mp4(frames(), 8, "made so"))
    clip = read_clip(path)
    assert clip.shape == (9, 64, 64, 3)
    assert np.abs(clip.astype(int) - frames()).mean() < 3
    assert judge(clip).matches(SCENE)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 8
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert float(stream.duration * stream.time_base) == pytest.approx(9 / 8)


def test_mp4_of_odd_size_gains_a_repeated_pixel(tmp_path: Path) -> None:
    path = tmp_path / "clip.mp4"
    odd = frames()[:, :63, :61]
    path.write_bytes(media.encode_mp4(odd, 8, ""))
    clip = read_clip(path)
    assert clip.shape == (9, 64, 62, 3)
    assert np.abs(clip[:, :63, :61].astype(int) - odd).mean() < 3


def test_mp4_keeps_colours(tmp_path: Path) -> None:
    # Untagged video is decoded with another matrix by some players; ours says which it is.
    colours = [(224, 25, 30), (25, 173, 51), (30, 76, 242), (250, 224, 25)]
    for colour in colours:
        plain = np.broadcast_to(np.uint8(colour), (2, 32, 32, 3))
        path = tmp_path / "clip.mp4"
        path.write_bytes(media.encode_mp4(np.ascontiguousarray(plain), 8, ""))
        assert np.abs(read_clip(path).astype(int) - plain).max() <= 5, colour


@pytest.mark.parametrize(("fps", "duration_ms"), [(8, 120), (10, 100), (1000, 10)])
def test_gif_times(fps: int, duration_ms: int, tmp_path: Path) -> None:
    path = tmp_path / "clip.gif"
    path.write_bytes(media.encode_gif(frames(), fps, ""))
    with Picture.open(path) as picture:
        assert (picture.n_frames, picture.info["duration"]) == (9, duration_ms)
        assert picture.info["loop"] == 0


def test_png_of_one_frame_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(media.encode_png(frames(1), 8, ""))
    with Picture.open(path) as picture:
        assert np.array_equal(np.asarray(picture), frames(1)[0])


def test_strip_has_first_and_last() -> None:
    clip = frames(17)
    strip = media.film_strip(clip, count=3)
    assert np.array_equal(strip[:, :64], clip[0])
    assert np.array_equal(strip[:, 66:130], clip[8])
    assert np.array_equal(strip[:, -64:], clip[-1])


def test_a_comment_that_a_jpeg_has_no_room_for_does_not_cost_the_picture(tmp_path: Path) -> None:
    path = tmp_path / "clip.jpg"
    path.write_bytes(media.encode_jpeg(frames(1), 1, "x" * 70_000))
    assert media.read_comment(path) == ""


@pytest.mark.parametrize("suffix", ["mp4", "gif", "webp", "png", "jpg"])
@pytest.mark.parametrize("comment", ['{"prompt": "a"}', "", "x" * 3000])
def test_comment_comes_back(suffix: str, comment: str, tmp_path: Path) -> None:
    encoder = getattr(media, f"encode_{'jpeg' if suffix == 'jpg' else suffix}")
    path = tmp_path / f"clip.{suffix}"
    path.write_bytes(encoder(frames(), 8, comment))
    assert media.read_comment(path) == comment
