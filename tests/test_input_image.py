"""Pictures are taken as small files of known formats, checked whole, and travel as plain data."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from elastic_dit.catalog import ModelCard, RequestDefaults
from elastic_dit.cluster.messages import decode_command, encode
from elastic_dit.control.admission import differing_fields
from elastic_dit.errors import InvalidRequest
from elastic_dit.events import StartStage
from elastic_dit.input_image import MAX_IMAGE_BYTES, InputImage, sample_image
from elastic_dit.request import GenerationRequest, Stage
from elastic_dit.results import Video
from tests.control.bench import make_request

PICTURE = sample_image(64, 48)
CARD = ModelCard(
    name="i2v",
    family="wan_i2v",
    size_multiple=16,
    max_side=1280,
    max_pixels=1280 * 720,
    frame_multiple=4,
    max_frames=81,
    max_steps=50,
    max_prompt_tokens=512,
    needs_image=True,
    defaults=RequestDefaults(
        width=832, height=480, num_frames=81, fps=16, num_inference_steps=50, guidance_scale=5.0
    ),
)
ASKED = {"prompt": "it moves", "request_id": "r", "seed": 0}


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def vast_png(side: int) -> bytes:
    """A file of some bytes whose head announces side x side pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    checked = struct.pack(">I", zlib.crc32(head))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + checked + file_of(PICTURE)[33:]


def moving(kind: str) -> bytes:
    return file_of(PICTURE, kind, save_all=True, append_images=[PICTURE.rotate(90)])


# --------------------------------------------------------------------------------- what is taken
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_files_are_kept_as_they_are(kind: str, tmp_path: Path) -> None:
    data = file_of(PICTURE, kind)
    path = tmp_path / "picture"
    path.write_bytes(data)
    for source in (data, bytearray(data), path, str(path)):
        image = InputImage.of(source)
        assert (image.format, image.width, image.height) == (kind, 64, 48)
        assert image.data == data
    expected = np.asarray(Image.open(path).convert("RGB"))
    assert np.array_equal(np.asarray(image.pixels()), expected)


def test_pixels_become_a_png_that_has_them_all() -> None:
    image = InputImage.of(PICTURE)
    assert image.format == "PNG"
    assert np.array_equal(np.asarray(image.pixels()), np.asarray(PICTURE))
    assert image == InputImage.of(PICTURE.copy()), "the same pixels are the same picture"


def test_a_camera_that_lay_on_its_side_is_followed() -> None:
    mark = Image.Exif()
    mark[0x0112] = 6
    for kind in ("PNG", "JPEG", "WEBP"):
        image = InputImage.of(file_of(PICTURE, kind, exif=mark))
        assert (image.width, image.height) == (48, 64)
        assert image.pixels().size == (48, 64)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_kind_of_pixel_becomes_rgb(mode: str) -> None:
    options = {"transparency": bytes(range(256))} if mode == "P" else {}
    kind = "JPEG" if mode == "CMYK" else "PNG"
    assert InputImage.of(file_of(PICTURE.convert(mode), kind, **options)).pixels().mode == "RGB"


def test_a_photograph_with_more_behind_it_is_its_first_picture() -> None:
    data = file_of(PICTURE, "MPO", save_all=True, append_images=[PICTURE.rotate(90)])
    image = InputImage.of(data)
    assert image.format == "JPEG"
    assert image.pixels().size == (64, 48)


# ------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        (b"", "a PNG, JPEG or WEBP file"),
        (b"no picture", "a PNG, JPEG or WEBP file"),
        (file_of(PICTURE, "GIF"), "a PNG, JPEG or WEBP file"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a PNG, JPEG or WEBP file"),
        (file_of(PICTURE)[:-40], "an undamaged file"),
        (file_of(PICTURE.resize((256, 256)), "JPEG")[:-900], "an undamaged file"),
        (file_of(PICTURE, "WEBP")[:100], "file"),
        (vast_png(4097), "at most 16777216 pixels"),
        (vast_png(10_000), "at most 16777216 pixels"),
        (vast_png(60_000), "at most 16777216 pixels"),
        (moving("WEBP"), "a still picture"),
        (moving("PNG"), "a still picture"),
        (bytes(MAX_IMAGE_BYTES + 1), "at most 8 MiB"),
        (Image.new("1", (4097, 4096)), "at most 16777216 pixels"),
        (Image.new("F", (4, 4)), "of 8 bits a channel"),
        (file_of(Image.new("I;16", (4, 4))), "of 8 bits a channel"),
        ("/nowhere/at/all.png", "a readable file"),
        ("a\0b", "a readable file"),
        (Path("/"), "a readable file"),
        (7, "a PIL image, the bytes of a file, or its path"),
    ],
    ids=lambda value: value if isinstance(value, str) and "\0" not in value else "",
)
def test_what_is_no_picture_of_ours_is_refused_by_name(source: Any, allowed: str) -> None:
    with pytest.raises(InvalidRequest, match=allowed) as refusal:
        InputImage.of(source)
    assert refusal.value.field == "image"
    assert len(str(refusal.value)) < 300


@given(st.binary(max_size=200), st.integers(0, 200))
def test_whatever_the_bytes_it_is_a_picture_or_a_refusal(noise: bytes, at: int) -> None:
    good = file_of(PICTURE)
    for data in (noise, good[:at] + noise + good[at + len(noise) :]):
        with contextlib.suppress(InvalidRequest):
            assert InputImage.of(data).pixels().mode == "RGB"


@pytest.mark.parametrize("value", ["/etc/hostname", "http://10.0.0.1/x.png", 7, ["x"], b"junk"])
def test_a_request_opens_nothing_for_its_picture(value: Any) -> None:
    with pytest.raises(InvalidRequest, match="image = "):
        make_request("r", image=value)
    with pytest.raises(InvalidRequest, match="image = "):
        InputImage.parse(value)


# ---------------------------------------------------------------------------------- as plain data
def test_a_request_with_a_picture_survives_every_way_it_travels() -> None:
    request = make_request("r", image=file_of(PICTURE, "JPEG"))
    start = StartStage(
        request=request, attempt=1, epoch=1, stage=Stage.ENCODER, gpus=(0,), inputs=(), reason=""
    )
    for again in (
        GenerationRequest.model_validate_json(request.model_dump_json()),
        GenerationRequest.parse(**request.model_dump(mode="json")),
        GenerationRequest.parse(**request.model_dump()),
        pickle.loads(pickle.dumps(request)),
        decode_command(encode(start)).request,
    ):
        assert again == request
        assert again.image is not None
        assert again.image.data == request.image.data


def test_what_is_said_of_a_picture_is_not_believed() -> None:
    told = make_request("r", image=PICTURE_FILE).model_dump(mode="json")
    told["image"] |= {"width": 9, "height": 9, "digest": "0", "format": "EXE"}
    image = GenerationRequest.parse(**told).image
    assert image == InputImage.of(PICTURE)
    assert (image.width, image.height, image.format) == (64, 48, "PNG")
    told["image"]["data"] = "!"
    with pytest.raises(InvalidRequest, match="image = "):
        GenerationRequest.parse(**told)


PICTURE_FILE = file_of(PICTURE)


def test_logs_and_comments_do_not_hold_its_bytes() -> None:
    request = make_request("r", image=PICTURE_FILE)
    frames = np.zeros((9, 64, 64, 3), np.uint8)
    assert "image=<PNG 64x48, " in repr(request)
    assert len(repr(request)) < 600
    told = Video(frames, request).metadata()["request"]["image"]
    assert told["data"] == ""
    assert told["digest"] == request.image.digest


def test_mentioned_only_it_is_the_same_request() -> None:
    request = make_request("r", image=PICTURE_FILE)
    mention = request.without_image_data()
    assert mention == request
    assert hash(mention.image) == hash(request.image)
    assert not differing_fields(mention, request)
    assert GenerationRequest.model_validate_json(mention.model_dump_json()) == request
    assert mention.without_image_data() is mention
    plain = make_request("r")
    assert plain.without_image_data() is plain
    with pytest.raises(InvalidRequest, match="held no longer"):
        mention.image.pixels()
    other = make_request("r", image=file_of(PICTURE.rotate(180)))
    assert differing_fields(other, request) == ("image",)


# ------------------------------------------------------------------------------------ and models
def test_models_say_whether_they_start_from_a_picture() -> None:
    with pytest.raises(InvalidRequest, match="image = None: must be given: i2v starts"):
        CARD.complete(ASKED)
    other = CARD.model_copy(update={"needs_image": False})
    with pytest.raises(InvalidRequest, match=r"image = <PNG .*: must be left out: i2v takes"):
        other.complete({**ASKED, "image": PICTURE_FILE})


@given(st.integers(1, 40), st.integers(1, 40))
def test_without_a_size_the_video_has_the_pictures_proportions(width: int, height: int) -> None:
    picture = InputImage.of(Image.new("L", (width, height)))
    request = CARD.complete({**ASKED, "image": picture})
    assert request.width * request.height <= 832 * 480
    longest = max(request.width / request.height, request.height / request.width)
    if longest < 4:
        assert request.width * height / (request.height * width) == pytest.approx(1.0, abs=0.13)
    CARD.check(request)


def test_a_size_that_is_given_holds() -> None:
    request = CARD.complete({**ASKED, "image": PICTURE_FILE, "height": 320})
    assert (request.width, request.height) == (832, 320)


def test_it_is_fitted_by_scaling_and_cutting_never_by_stretching() -> None:
    halves = Image.new("RGB", (40, 20), "red")
    halves.paste("blue", (20, 0, 40, 20))
    fitted = np.asarray(InputImage.of(halves).fitted(16, 16))
    assert fitted.shape == (16, 16, 3)
    assert (fitted[:, 0] == (255, 0, 0)).all()
    assert (fitted[:, -1] == (0, 0, 255)).all()
    same = InputImage.of(PICTURE).fitted(64, 48)
    assert np.array_equal(np.asarray(same), np.asarray(PICTURE))
