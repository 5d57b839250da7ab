"""How many bytes of input pictures the control plane holds, and which it lets go first."""

from __future__ import annotations

from collections import OrderedDict

from elastic_dit.control.record import RequestRecord
from elastic_dit.request import GenerationRequest
from elastic_dit.state import Phase

__all__ = ["PictureShelf"]


class PictureShelf:
    """Pictures of requests, bounded in bytes.

    A live request keeps its picture, for the encoder may have to run again. So does a completed
    one while there is room, since its result may be lost before its client has it; the oldest
    give way first. Others that ended need none.

    Parameters
    ----------
    limit_bytes : int
        `elastic_dit.config.ControlConfig.max_image_bytes`.

    Examples
    --------
    >>> PictureShelf(2**20)
    <PictureShelf 0 of 1048576 bytes>
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.live_bytes = 0
        self._completed: OrderedDict[str, RequestRecord] = OrderedDict()
        self._completed_bytes = 0

    def __repr__(self) -> str:
        return f"<PictureShelf {self.nbytes} of {self.limit_bytes} bytes>"

    @property
    def nbytes(self) -> int:
        """Bytes held in all."""
        return self.live_bytes + self._completed_bytes

    def has_room(self, request: GenerationRequest) -> bool:
        """Whether the picture of a new request fits beside those of live ones."""
        return self.live_bytes + _nbytes(request) <= self.limit_bytes

    def accept(self, record: RequestRecord) -> None:
        """Hold a new request's picture."""
        self.live_bytes += _nbytes(record.request)
        self._make_room()

    def end(self, record: RequestRecord, phase: Phase) -> None:
        """A request ended; its picture stays only where it completed, and while there is room."""
        nbytes = _nbytes(record.request)
        if not nbytes:
            return
        self.live_bytes -= nbytes
        if phase is not Phase.COMPLETED:
            record.request = record.request.without_image_data()
            return
        self._completed[record.request_id] = record
        self._completed_bytes += nbytes
        self._make_room()

    def reopen(self, record: RequestRecord) -> None:
        """A completed request is live again."""
        self._take_off(record.request_id)
        self.live_bytes += _nbytes(record.request)

    def forget(self, request_id: str) -> None:
        """An ended request's record is dropped; a policy may remember it for a while."""
        record = self._take_off(request_id)
        if record is not None:
            record.request = record.request.without_image_data()

    def _take_off(self, request_id: str) -> RequestRecord | None:
        record = self._completed.pop(request_id, None)
        if record is not None:
            self._completed_bytes -= _nbytes(record.request)
        return record

    def _make_room(self) -> None:
        while self.nbytes > self.limit_bytes and self._completed:
            _, record = self._completed.popitem(last=False)
            self._completed_bytes -= _nbytes(record.request)
            record.request = record.request.without_image_data()


def _nbytes(request: GenerationRequest) -> int:
    return 0 if request.image is None else request.image.nbytes
