"""What an engine keeps for others."""

from __future__ import annotations

from elastic_dit.cluster.worker.outbox import Outbox
from elastic_dit.cluster.worker.stage_run import made
from elastic_dit.request import Stage
from elastic_dit.state import ArtifactRef


def keep(outbox: Outbox) -> ArtifactRef:
    snapshot = made({"step": 10})
    return outbox.keep(snapshot, request_id="r", attempt=1, stage=Stage.DIT, gpu=0, step=10)


def test_what_is_made_again_after_its_release_is_another_artifact() -> None:
    outbox = Outbox()
    first = keep(outbox)
    outbox.release(first)
    again = keep(outbox)
    assert again.digest == first.digest
    outbox.release(first)  # the news of the first release comes late
    assert list(outbox) == [again]


def test_another_life_of_the_engine_does_not_repeat_them() -> None:
    assert keep(Outbox()) != keep(Outbox())
