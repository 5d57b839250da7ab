"""The Dask shell: plug-ins, streams, transfers, local clusters."""
