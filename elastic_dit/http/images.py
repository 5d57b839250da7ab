"""``/v1/images``: pictures, answered once they are made."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import FileResponse

from elastic_dit.cluster.reports import RequestStatus
from elastic_dit.errors import ElasticDitError, InvalidRequest
from elastic_dit.http.bodies import read_image_body
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.jobs import IdempotencyKey, owned, rendered, require_result
from elastic_dit.http.keys import Owner
from elastic_dit.http.openapi import IMAGE_BODY, MEDIA
from elastic_dit.http.renders import Result
from elastic_dit.http.schemas import ImageCreate, ImageData, ImagesAnswer
from elastic_dit.http.shapes import IMAGE_PREFIX, image_owner, job_id, options_of
from elastic_dit.http.waits import unless_gone
from elastic_dit.request import MAX_SEED

__all__ = ["router"]

router = APIRouter(prefix="/v1/images", tags=["images"])

_GONE = "nobody waits for it any more"


@router.post("/generations", response_model=ImagesAnswer, openapi_extra=IMAGE_BODY)
async def create_images(
    request: Request, owner: Owner, idempotency_key: IdempotencyKey = None
) -> ImagesAnswer:
    """Make images and wait for them.

    A client that goes before they are made cancels them, unless it gave an Idempotency-Key, with
    which it can come back for them.
    """
    state = request.app.state
    body = await read_image_body(request)
    if body.n > state.config.max_images:
        raise InvalidRequest("n", body.n, f"from 1 to {state.config.max_images}")
    state.waits.check()
    with state.waits.one():
        jobs = await _submit(state.desk, body, image_owner(owner), idempotency_key)
        try:
            work = _made(state, body, jobs, str(request.base_url))
            return await unless_gone(request, work, state.config.answer_timeout_s)
        except BaseException:
            if idempotency_key is None:
                await _cancel(state.desk, jobs)
            raise


@router.get("/{image_id}/content", response_class=FileResponse, responses=MEDIA)
async def download_image(
    request: Request,
    owner: Owner,
    image_id: Annotated[str, Path(max_length=64)],
    output_format: Literal["png", "webp", "jpeg"] = "png",
) -> FileResponse:
    """An image as a file."""
    desk: JobDesk = request.app.state.desk
    status = await owned(desk, image_id, IMAGE_PREFIX, image_owner(owner))
    require_result(status)
    return await rendered(request, status.request, output_format)


async def _submit(
    desk: JobDesk, body: ImageCreate, owner: str, idempotency_key: str | None
) -> list[RequestStatus]:
    """One job per image; where one is refused, those before it are cancelled."""
    options = options_of(body, None)
    jobs: list[RequestStatus] = []
    try:
        for number in range(body.n):
            # Each has a key of its own, so that a repetition finds each.
            key = None if idempotency_key is None else f"{number} {idempotency_key}"
            mine = {**options, "request_id": job_id(IMAGE_PREFIX, owner, key)}
            if number:
                mine["seed"] = (jobs[0].request.seed + number) % (MAX_SEED + 1)
            jobs.append(await desk.submit(mine, owner))
    except ElasticDitError:
        if idempotency_key is None:
            await _cancel(desk, jobs)
        raise
    return jobs


async def _made(
    state: Any, body: ImageCreate, jobs: Sequence[RequestStatus], base_url: str
) -> ImagesAnswer:
    # Waited for here: whoever waits for a file keeps others from theirs.
    results = await asyncio.gather(*(state.desk.result(job.request_id) for job in jobs))
    data = await asyncio.gather(*(_image(state, body, result, base_url) for result in results))
    first = jobs[0].request
    return ImagesAnswer(
        created=int(time.time()),
        data=list(data),
        output_format=body.output_format,
        size=f"{first.width}x{first.height}",
        model=first.model,
        inference_time_s=sum(record.seconds for result in results for record in result.records),
    )


async def _image(state: Any, body: ImageCreate, result: Result, base_url: str) -> ImageData:
    job_id, form, seed = result.request.request_id, body.output_format, result.seed
    if body.response_format == "url":
        url = f"{base_url}v1/images/{job_id}/content?output_format={form}"
        return ImageData(id=job_id, url=url, seed=seed)

    async def given() -> Result:
        return result

    path = await state.renders.file(result.request, form, given)
    content = await asyncio.to_thread(path.read_bytes)
    return ImageData(id=job_id, b64_json=base64.b64encode(content).decode(), seed=seed)


async def _cancel(desk: JobDesk, jobs: Sequence[RequestStatus]) -> None:
    async def cancel(job: RequestStatus) -> None:
        with contextlib.suppress(ElasticDitError):
            await desk.cancel(job.request_id, _GONE)

    await asyncio.gather(*map(cancel, jobs))
