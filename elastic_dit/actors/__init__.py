"""Dask actors: the slow, stateful, awaited calls of the system."""
