"""From bodies to requests and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.engine.fake import FAKE_CARD
from elastic_dit.errors import InvalidRequest, NotReady, UnknownModel
from elastic_dit.http.schemas import VideoCreate
from elastic_dit.http.shapes import card_for, job_id, nearest_frames, options_of, video_job
from elastic_dit.request import Stage
from elastic_dit.state import Phase, Progress, StageRecord

REQUEST = FAKE_CARD.complete({"prompt": "a ring", "request_id": "video_1", "seed": 1})


def status(phase: Phase, step: int = 0, **fields: object) -> RequestStatus:
    progress = Progress(request_id="video_1", phase=phase, step=step, total_steps=12, at=5.0)
    return RequestStatus(request=REQUEST, progress=progress, accepted_at=1.5, **fields)


@given(
    multiple=st.integers(1, 8),
    groups=st.integers(0, 40),
    fps=st.integers(1, 60),
    seconds=st.floats(0.001, 30),
)
def test_every_playing_time_becomes_frames_that_the_model_takes(multiple, groups, fps, seconds):
    card = FAKE_CARD.model_copy(
        update={"frame_multiple": multiple, "max_frames": multiple * groups + 1}
    )
    try:
        frames = nearest_frames(seconds, fps, card)
    except InvalidRequest:
        assert seconds > card.max_frames / fps
        return
    card.check(REQUEST.model_copy(update={"num_frames": frames}))
    others = range(1, card.max_frames + 1, multiple)
    assert abs(frames / fps - seconds) <= min(abs(n / fps - seconds) for n in others) + 1e-9


def test_frames_beat_seconds_and_size_beats_its_sides():
    body = VideoCreate(
        prompt="a", seconds=1, num_frames=5, size="96x48", width=16, height=16, fps=4
    )
    options = options_of(body, FAKE_CARD)
    assert (options["num_frames"], options["width"], options["height"]) == (5, 96, 48)


def test_size_auto_leaves_it_to_the_model():
    assert options_of(VideoCreate(prompt="a", size="auto"), None) == {"prompt": "a"}


@pytest.mark.parametrize("size", ["64", "64x", "x64", "0x64", "64x64x64", "-1x5", "1e3x5", "６x4"])
def test_a_wrong_size_is_refused(size):
    with pytest.raises(ValueError, match="size"):
        VideoCreate(prompt="a", size=size)


def test_ids_of_keys_are_of_their_owner_alone():
    ids = {job_id(prefix, owner, key) for prefix in ("video_", "img_") for owner in "ab"
           for key in ("k", "l")}  # fmt: skip
    assert len(ids) == 8
    assert all(len(each) <= 64 for each in ids)


def test_the_card_of_a_model():
    assert card_for(None, (FAKE_CARD,)) == card_for("fake", (FAKE_CARD,)) == FAKE_CARD
    with pytest.raises(UnknownModel, match="one of fake"):
        card_for("sora", (FAKE_CARD,))
    with pytest.raises(NotReady):
        card_for(None, ())


@pytest.mark.parametrize(
    ("phase", "step", "word", "per_cent"),
    [
        (Phase.QUEUED, 0, "queued", 0),
        (Phase.ENCODED, 0, "in_progress", 0),
        (Phase.DENOISING, 6, "in_progress", 50),
        (Phase.DECODING, 12, "in_progress", 99),
        (Phase.COMPLETED, 12, "completed", 100),
        (Phase.FAILED, 3, "failed", 25),
        (Phase.CANCELLED, 3, "cancelled", 25),
    ],
)
def test_progress_in_their_words(phase, step, word, per_cent):
    job = video_job(status(phase, step))
    assert (job.status, job.progress, job.phase) == (word, per_cent, str(phase))


def test_a_job_tells_times_and_what_its_stages_took():
    records = tuple(
        StageRecord(stage=stage, gpus=(0, 1), started_at=0.0, seconds=seconds, attempt=1)
        for stage, seconds in ((Stage.DIT, 1.0), (Stage.DIT, 2.0), (Stage.DECODER, 0.5))
    )
    job = video_job(status(Phase.COMPLETED, 12, finished_at=9.9, records=records))
    assert (job.created_at, job.completed_at, job.seconds) == (1, 9, "1.125")
    assert job.stage_durations == {"dit": 3.0, "decoder": 0.5}
    assert job.inference_time_s == 3.5


def test_a_failed_job_tells_why():
    job = video_job(status(Phase.FAILED, reason="MemoryError: no room", error_type="MemoryError"))
    assert job.error is not None
    assert (job.error.code, job.error.message) == ("MemoryError", "MemoryError: no room")
