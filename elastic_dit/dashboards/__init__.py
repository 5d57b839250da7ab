"""The live page on the Dask scheduler's dashboard, and its JSON twin.

`history` remembers the last minutes in bounded rings, `board` says how things are as plain rows,
`components` put rows into Bokeh's data sources, `page` mounts it all on a scheduler.
"""

__all__: list[str] = []
