"""A stored profile as a cost model."""

from __future__ import annotations

from pathlib import Path

from elastic_dit.errors import ConfigError
from elastic_dit.rib.book import LatencyBook
from elastic_dit.rib.cost import RibCost
from elastic_dit.rib.software import software_version

__all__ = ["RIB_SUFFIXES", "names_rib", "read_cost"]

RIB_SUFFIXES = (".sqlite", ".sqlite3", ".db")
"""Of SQLite files."""


def names_rib(target: str) -> bool:
    """Whether a name is that of a profile: a database's URL, or an SQLite file by its ending.

    Examples
    --------
    >>> names_rib("rib.sqlite"), names_rib("mysql://db/rib"), names_rib("ddit")
    (True, True, False)
    """
    return "://" in target or target.endswith(RIB_SUFFIXES)


def read_cost(target: str) -> RibCost:
    """The cost model that a profile is, for the software installed here.

    Parameters
    ----------
    target : str
        See `elastic_dit.rib.store.rib_url`.

    Raises
    ------
    ConfigError
        Where there is no such file, or nothing in it.
    RibError
        Where the database does not do as it should.
    """
    from elastic_dit.rib.store import RibStore

    if "://" not in target and not Path(target).is_file():
        raise ConfigError("cost", target, "a profile that elastic-dit profile wrote")
    book = LatencyBook(RibStore(target).load(software_version()))
    if not len(book):
        raise ConfigError("cost", target, "a profile with at least one latency")
    return RibCost(book)
