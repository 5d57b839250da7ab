"""Elastic serving of diffusion transformers on Dask.

>>> import elastic_dit
>>> with elastic_dit.Client("tcp://10.0.0.1:8786") as client:  # doctest: +SKIP
...     client.submit("a red circle moving left").result().save("circle.mp4")

Names are imported on first use: neither torch nor Dask is loaded by ``import elastic_dit``.
"""

from __future__ import annotations

import importlib

from elastic_dit._version import __version__

TYPE_CHECKING = False  # not from typing: the commands shall hear of Ctrl-C as early as can be
if TYPE_CHECKING:
    from typing import Any

    from elastic_dit import errors as errors
    from elastic_dit.catalog import ModelCard as ModelCard
    from elastic_dit.client import Client as Client
    from elastic_dit.cluster.launch.local import LocalElasticCluster as LocalElasticCluster
    from elastic_dit.cluster.reports import RequestStatus as RequestStatus
    from elastic_dit.config import Config as Config
    from elastic_dit.future import GenerationFuture as GenerationFuture
    from elastic_dit.request import GenerationRequest as GenerationRequest
    from elastic_dit.request import Stage as Stage
    from elastic_dit.results import Image as Image
    from elastic_dit.results import Video as Video
    from elastic_dit.state import Phase as Phase
    from elastic_dit.state import Progress as Progress

__all__ = [
    "Client",
    "Config",
    "GenerationFuture",
    "GenerationRequest",
    "Image",
    "LocalElasticCluster",
    "ModelCard",
    "Phase",
    "Progress",
    "RequestStatus",
    "Stage",
    "Video",
    "__version__",
    "errors",
]

_HOMES = {
    "Client": "client",
    "Config": "config",
    "GenerationFuture": "future",
    "GenerationRequest": "request",
    "Image": "results",
    "LocalElasticCluster": "cluster.launch.local",
    "ModelCard": "catalog",
    "Phase": "state",
    "Progress": "state",
    "RequestStatus": "cluster.reports",
    "Stage": "request",
    "Video": "results",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("elastic_dit.errors")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"elastic_dit.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
