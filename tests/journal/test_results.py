"""Results in files are what they were, or are said to be gone."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from elastic_dit.errors import ConfigError, ResultGone
from elastic_dit.journal.results import ResultStore
from elastic_dit.results import Image, Video, make_result
from tests.journal.bench import RECORD, make_request


def result(request_id: str, **fields: int) -> Video | Image:
    request = make_request(request_id, **fields)
    draw = np.random.default_rng(3)
    shape = (request.num_frames, request.height, request.width, 3)
    return make_result(draw.integers(0, 256, shape, dtype=np.uint8), request)


@pytest.mark.parametrize("frames", [1, 5])
@pytest.mark.parametrize("name", ["plain", "..", "a:b.c-d_e"])
def test_a_result_comes_back_as_it_was(tmp_path: Path, name: str, frames: int) -> None:
    store = ResultStore(str(tmp_path / "results"))
    kept = result(name, num_frames=frames)
    assert not store.holds(kept.request)
    assert store.save(kept, (RECORD,)) > kept.frames.nbytes
    again = store.load(name)
    assert type(again) is type(kept)
    assert np.array_equal(again.frames, kept.frames)
    assert again.request == kept.request
    assert again.records == (RECORD,)
    assert store.holds(kept.request)
    assert [path.parent for path in tmp_path.rglob("*.safetensors")] == [tmp_path / "results"]


def test_what_is_deleted_is_gone_and_deleting_twice_is_fine(tmp_path: Path) -> None:
    store = ResultStore(str(tmp_path))
    store.save(result("a"))
    store.delete("a")
    store.delete("a")
    with pytest.raises(ResultGone, match="result of request a is gone"):
        store.load("a")


def damaged(content: bytes) -> dict[str, bytes]:
    return {
        "cut short": content[:-100],
        "another byte": content[:-1] + bytes([content[-1] ^ 1]),
        "empty": b"",
        "code": pickle.dumps(print),
        "a header without an end": (2**62).to_bytes(8, "little") + content[8:],
    }


@pytest.mark.parametrize("kind", sorted(damaged(b"x" * 200)))
def test_a_damaged_file_is_said_to_be_so(tmp_path: Path, kind: str) -> None:
    store = ResultStore(str(tmp_path))
    store.save(result("a"))
    path = tmp_path / "a.safetensors"
    path.write_bytes(damaged(path.read_bytes())[kind])
    with pytest.raises(ResultGone, match="is damaged"):
        store.load("a")


def test_a_result_of_another_request_of_that_name_is_none_of_this(tmp_path: Path) -> None:
    store = ResultStore(str(tmp_path))
    store.save(result("a"))
    assert store.holds(make_request("a"))
    assert not store.holds(make_request("a", prompt="a blue square"))
    (tmp_path / "a.safetensors").write_bytes(b"no header")
    assert not store.holds(make_request("a"))


def test_a_file_under_another_name_is_not_believed(tmp_path: Path) -> None:
    store = ResultStore(str(tmp_path))
    store.save(result("a"))
    (tmp_path / "a.safetensors").rename(tmp_path / "b.safetensors")
    with pytest.raises(ResultGone, match="is damaged"):
        store.load("b")


def test_other_places_than_folders_are_fsspecs_affair() -> None:
    store = ResultStore("memory://elastic-dit-results")
    kept = result("a")
    store.save(kept)
    assert np.array_equal(store.load("a").frames, kept.frames)
    assert store.holds(kept.request)
    store.delete("a")
    assert not store.holds(kept.request)
    with pytest.raises(ConfigError, match=r"journal\.results = 'gopher://x'"):
        ResultStore("gopher://x")
