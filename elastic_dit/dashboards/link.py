"""Where the live page is."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

__all__ = ["JSON_PAGE", "PAGE", "page_link"]

PAGE = "elastic-dit"
"""Name of the page, beside Dask's own ``status``."""
JSON_PAGE = f"{PAGE}.json"
"""The same as data: see `elastic_dit.dashboards.board.Board`."""


def page_link(dashboard_link: str | None) -> str:
    """The page, from the link to Dask's dashboard.

    Parameters
    ----------
    dashboard_link : str or None
        As Dask's clients and clusters give it; the page is beside it, also behind a proxy.

    Returns
    -------
    str
        Empty where there is no dashboard.

    Examples
    --------
    >>> page_link("http://10.0.0.1:8787/status")
    'http://10.0.0.1:8787/elastic-dit'
    >>> page_link("https://hub.example/user/ada/proxy/8787/status")
    'https://hub.example/user/ada/proxy/8787/elastic-dit'
    """
    if not dashboard_link:
        return ""
    parts = urlsplit(dashboard_link)
    return parts._replace(path=str(PurePosixPath(parts.path).with_name(PAGE))).geturl()
