"""Imports for the fork server: all that a torch engine will import, once for all of them."""

from __future__ import annotations

import gc

import diffusers.modular_pipelines
import torch
import transformers

import elastic_dit.cluster.engine_plugin
import elastic_dit.engine.torch_engine

__all__: list[str] = []

del diffusers, torch, transformers, elastic_dit

# What was made so far stays as it is: the collector of a forked process must not touch (and so
# copy) the pages it shares.
gc.collect()
gc.freeze()
