"""The control plane holds as many bytes of pictures as it may, and those that may be needed."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from elastic_dit.control.dispatch import make_dispatch
from elastic_dit.control.pictures import PictureShelf
from elastic_dit.control.record import RequestRecord
from elastic_dit.errors import AdmissionRefused
from elastic_dit.input_image import InputImage
from elastic_dit.request import Stage
from elastic_dit.state import Phase
from tests.control.bench import Bench, make_request

PICTURE = InputImage.of(Image.new("L", (16, 16)))
ENDS = (Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED)


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from(ENDS)), max_size=60))
def test_what_is_counted_is_what_is_held(moves: list[tuple[int, bool, Phase]]) -> None:
    """Records come, end in some way, and are opened again or forgotten."""
    shelf = PictureShelf(3 * PICTURE.nbytes)
    live: dict[int, RequestRecord] = {}
    ended: dict[int, RequestRecord] = {}
    for number, again, phase in moves:
        if number in live:
            ended[number] = live.pop(number)
            shelf.end(ended[number], phase)
        elif number in ended:
            record = ended.pop(number)
            if again:
                shelf.reopen(record)
                live[number] = record
            else:
                shelf.forget(record.request_id)
        else:
            request = make_request(f"r{number}", image=PICTURE if again else None)
            if not shelf.has_room(request):
                continue
            live[number] = RequestRecord(request=request, sequence=number, accepted_at=0.0)
            shelf.accept(live[number])
        assert shelf.nbytes == sum(map(held, (*live.values(), *ended.values())))
        assert shelf.live_bytes == sum(map(held, live.values()))
        assert shelf.nbytes <= shelf.limit_bytes


def held(record: RequestRecord) -> int:
    return record.request.image.nbytes if record.request.image else 0


def test_only_the_encoder_is_given_the_picture() -> None:
    bench = Bench()
    bench.join(0)
    bench.submit("r", image=PICTURE)
    for stage in Stage:
        start = bench.starts["r"]
        assert (start.stage, start.request.image) == (stage, PICTURE)
        assert start.request.image.is_held == (stage is Stage.ENCODER)
        bench.done("r")


def test_pictures_beyond_the_limit_are_refused_and_taken_when_others_end() -> None:
    bench = Bench(max_image_bytes=PICTURE.nbytes)
    bench.join(0)
    bench.submit("a", image=PICTURE)
    with pytest.raises(AdmissionRefused, match="bytes of images"):
        bench.controller.admit(make_request("b", image=PICTURE), bench.now)
    assert bench.controller.admit(make_request("c"), bench.now), "others have none"
    for _ in Stage:
        bench.done("a")
    completed = bench.controller.table.get("a")
    assert completed.request.image.is_held, "its result may be lost"
    assert bench.controller.admit(make_request("b", image=PICTURE), bench.now)
    bench.submit("b", image=PICTURE)
    assert not completed.request.image.is_held


def test_nothing_holds_the_picture_of_a_request_that_is_forgotten() -> None:
    bench = Bench(make_dispatch("elastic"), finished_kept=1)
    bench.join(0)
    for name in "ab":
        bench.submit(name, image=PICTURE.model_copy())
        if name == "a":
            picture = weakref.ref(bench.controller.table.live["a"].request.image)
        for _ in Stage:
            bench.done(name)
    bench.commands.clear()
    bench.starts.clear()
    gc.collect()
    assert bench.controller.table.get("a") is None
    assert picture() is None
