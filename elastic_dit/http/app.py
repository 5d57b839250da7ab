"""The ASGI application."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI

from elastic_dit._version import __version__
from elastic_dit.config import HttpConfig
from elastic_dit.http import images, service, videos
from elastic_dit.http.access import Access
from elastic_dit.http.desk import JobDesk
from elastic_dit.http.hosts import Hosts
from elastic_dit.http.keys import ApiKeys
from elastic_dit.http.openapi import PROBLEMS, publish
from elastic_dit.http.problems import answer_problems
from elastic_dit.http.renders import Renders
from elastic_dit.http.tracing import JobSpans
from elastic_dit.http.waits import Waits

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

__all__ = ["make_app"]


def make_app(
    desk: JobDesk,
    config: HttpConfig | None = None,
    keys: ApiKeys | None = None,
    *,
    hosts: Hosts | None = None,
    tracer: Tracer | None = None,
) -> Access:
    """The API over a desk.

    Parameters
    ----------
    desk : JobDesk
    config : HttpConfig, optional
    keys : ApiKeys, optional
        Open to all without.
    hosts : Hosts, optional
        Asked by any name without.
    tracer : Tracer, optional
        With one, requests become OpenTelemetry spans by the process's tracer provider, and jobs
        by this.

    Returns
    -------
    Access
        An ASGI application; its ``app`` is the FastAPI one. It sends no CORS headers, so
        browsers let no other site's scripts read its answers.
    """
    config = config or HttpConfig()
    app = FastAPI(
        title="elastic-dit",
        summary="Videos and images from diffusion transformers, in OpenAI's shapes",
        version=__version__,
        # Their pages load scripts from another site.
        docs_url=None,
        redoc_url=None,
        lifespan=_life,
        telemetry={
            "tracing": tracer is not None,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
        },
    )
    answer_problems(app)
    for router in (videos.router, images.router, service.models_router):
        app.include_router(router, responses=PROBLEMS)
    app.include_router(service.router)
    publish(app)
    access = Access(app, config, Waits(config.max_waits), hosts)
    for name, value in {
        "desk": desk,
        "config": config,
        "keys": keys or ApiKeys(()),
        "spans": None if tracer is None else JobSpans(desk, tracer, config.max_waits),
        "waits": access.waits,
        "access": access,
    }.items():
        setattr(app.state, name, value)
    return access


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    config: HttpConfig = app.state.config
    spans: JobSpans | None = app.state.spans
    with tempfile.TemporaryDirectory(prefix="elastic-dit-http-") as folder:
        app.state.renders = Renders(
            folder,
            encoders=config.encoders,
            max_bytes=config.cache_bytes,
            fetch_s=config.answer_timeout_s,
        )
        yield
        if spans is not None:
            await spans.close()
