"""Imports for the fork server: what a torch engine will import, once for all of them.

Diffusers and transformers import most of themselves at first use, so their parts are named here.
What a family outside this list needs besides is imported by each engine that serves it.
"""

from __future__ import annotations

import gc
from importlib import import_module

from elastic_dit.engine.loading import quiet_libraries

__all__ = ["MODULES"]

MODULES = (
    "elastic_dit.cluster.worker.engine_plugin",
    "elastic_dit.engine.torch_engine",
    "elastic_dit.results",
    "diffusers.guiders",
    "diffusers.models.autoencoders.autoencoder_kl_wan",
    "diffusers.models.transformers.transformer_wan",
    "diffusers.modular_pipelines.wan.modular_blocks_wan",
    "diffusers.pipelines.wan.pipeline_wan",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.umt5.modeling_umt5",
)
"""Imported in this order."""

quiet_libraries()
for _name in MODULES:
    import_module(_name)

# What was made so far stays as it is: the collector of a forked process must not touch (and so
# copy) the pages it shares.
gc.collect()
gc.freeze()
