"""What runs the service asks: models, alive, ready, metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from elastic_dit.catalog import ModelCard
from elastic_dit.errors import ElasticDitError
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.keys import Owner
from elastic_dit.http.problems import RETRY_LATER_S
from elastic_dit.http.schemas import Health, ModelBody, ModelList, ReadyAnswer
from elastic_dit.http.shapes import card_for
from elastic_dit.metrics import catalogue
from elastic_dit.metrics.exposition import CONTENT_TYPE, expose
from elastic_dit.metrics.tally import Readings

__all__ = ["models_router", "router"]

models_router = APIRouter(prefix="/v1/models", tags=["models"])
router = APIRouter(tags=["operation"])


@models_router.get("", response_model=ModelList)
async def list_models(request: Request, owner: Owner) -> ModelList:
    """Models served now, the default first."""
    del owner
    desk: JobDesk = request.app.state.desk
    return ModelList(data=[_model(card) for card in await desk.models()])


@models_router.get("/{model}", response_model=ModelBody)
async def retrieve_model(
    request: Request, owner: Owner, model: Annotated[str, Path(max_length=256)]
) -> ModelBody:
    """One model's limits and defaults."""
    del owner
    desk: JobDesk = request.app.state.desk
    return _model(card_for(model, await desk.models()))


@router.get("/health", response_model=Health)
async def health() -> Health:
    """Alive: this process answers, whatever the cluster does. Restart it where it does not."""
    return Health()


@router.get(
    "/ready",
    response_model=ReadyAnswer,
    responses={503: {"model": ReadyAnswer, "description": "Send no requests here now."}},
)
async def ready(request: Request, response: Response) -> ReadyAnswer:
    """Ready: some model has all its stages on GPUs. Send no requests here where it does not."""
    desk: JobDesk = request.app.state.desk
    try:
        found = await desk.readiness()
    except ElasticDitError as error:
        answer = ReadyAnswer(status="not_ready", gpus=0, models=[], missing=[], message=str(error))
    else:
        answer = ReadyAnswer(
            status="ready" if found.is_ready else "not_ready",
            gpus=found.gpus,
            models=list(found.served),
            missing=[f"{key.model}/{key.stage}" for key in found.missing],
        )
    if answer.status == "not_ready":
        response.status_code = 503
        response.headers["Retry-After"] = str(RETRY_LATER_S)
    return answer


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Metrics of the cluster and of this front end, in Prometheus' text format."""
    state = request.app.state
    readings = Readings()
    try:
        readings += await state.desk.readings()
        readings.put(catalogue.CLUSTER_UP, 1)
    except ElasticDitError:
        readings.put(catalogue.CLUSTER_UP, 0)
    readings += state.access.readings()
    return Response(expose(readings), media_type=CONTENT_TYPE)


def _model(card: ModelCard) -> ModelBody:
    return ModelBody(id=card.name, card=card.model_dump(mode="json"))
