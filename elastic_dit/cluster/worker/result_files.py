"""A worker's hand on the result store: results go between its memory and files, never elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed import Worker
from pydantic import TypeAdapter

from elastic_dit.cluster.fences import Fences
from elastic_dit.errors import ElasticDitError, ResultGone
from elastic_dit.journal.results import ResultStore
from elastic_dit.state import StageRecord

__all__ = ["KEEP_OP", "RESTORE_OP", "ResultFiles", "write_records"]

KEEP_OP = "elastic_dit_keep_result"
RESTORE_OP = "elastic_dit_restore_result"

_FENCE_TIMEOUT_S = 30.0
"""Longest wait until the worker has caught up with its stream, seconds."""

_records = TypeAdapter(tuple[StageRecord, ...])


def write_records(records: tuple[StageRecord, ...]) -> list[dict[str, Any]]:
    """Plain form of stage records, for `ResultFiles.keep`."""
    plain: list[dict[str, Any]] = _records.dump_python(records, mode="json")
    return plain


class ResultFiles:
    """Answers the control plane's calls about results, on one worker.

    Parameters
    ----------
    worker : distributed.Worker

    Attributes
    ----------
    fences : Fences
        What has been handled of the control plane's stream.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.fences = Fences()

    def __repr__(self) -> str:
        return f"<ResultFiles of {self._worker.name}>"

    async def keep(
        self, request_id: str, url: str, records: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Write a result that lies in this worker's memory into the store at `url`.

        Returns
        -------
        dict
            ``status``: ``OK``; ``missing`` where there is no such result; ``error`` with its
            ``cause``.
        """
        result = self._worker.data.get(request_id)
        if result is None:
            return {"status": "missing"}
        try:
            timeline = _records.validate_python(records)
            await asyncio.to_thread(lambda: ResultStore(url).save(result, timeline))
        except Exception as error:
            # Of a file system, local or not: each has errors of its own.
            return {"status": "error", "cause": f"{type(error).__name__}: {error}"}
        return {"status": "OK"}

    async def restore(self, request_id: str, url: str, fence: str) -> dict[str, Any]:
        """Read a result from the store at `url` into this worker's memory, as a Dask result.

        Parameters
        ----------
        request_id, url : str
        fence : str
            Mark in the worker's stream: what comes before it may free the same result, as it was
            before.

        Returns
        -------
        dict
            ``status``: ``OK`` with its size ``nbytes``; ``gone`` or ``error`` with its ``cause``.
        """
        try:
            async with asyncio.timeout(_FENCE_TIMEOUT_S):
                await self.fences.wait(request_id, fence)
            result = await asyncio.to_thread(lambda: ResultStore(url).load(request_id))
        except ResultGone as gone:
            return {"status": "gone", "cause": gone.cause}
        except Exception as error:
            cause = str(error) if isinstance(error, ElasticDitError) else repr(error)
            return {"status": "error", "cause": cause}
        self._worker.update_data({request_id: result})
        return {"status": "OK", "nbytes": int(result.frames.nbytes)}
