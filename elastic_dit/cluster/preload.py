"""Imports for the fork server: what a torch engine will import, once for all of them.

Diffusers and transformers import most of themselves at first use, so their parts are named here.
What a family outside this list needs besides is imported by each engine that serves it.
"""

from __future__ import annotations

import gc

import diffusers.guiders
import diffusers.models.autoencoders.autoencoder_kl_wan
import diffusers.models.transformers.transformer_wan
import diffusers.modular_pipelines.wan.modular_blocks_wan
import diffusers.pipelines.wan.pipeline_wan
import transformers.models.auto.modeling_auto
import transformers.models.auto.tokenization_auto
import transformers.models.umt5.modeling_umt5

import elastic_dit.cluster.engine_plugin
import elastic_dit.engine.torch_engine
import elastic_dit.results

__all__: list[str] = []

del diffusers, transformers, elastic_dit

# What was made so far stays as it is: the collector of a forked process must not touch (and so
# copy) the pages it shares.
gc.collect()
gc.freeze()
