"""Inside the Dask scheduler: the control plane, what clients ask of it, what it orders."""
