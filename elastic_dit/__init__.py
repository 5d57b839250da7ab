"""Elastic serving of diffusion transformers on Dask."""
