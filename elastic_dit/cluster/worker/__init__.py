"""On every engine's Dask worker: commands in, stages run, tensors handed on, events out."""
