"""Names that a server may be asked by: what a page on a name of its own cannot say.

A page whose name was made to point at this machine (DNS rebinding) is of the server's own site to
its browser. Only the name that the browser asks for gives it away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from elastic_dit.http.keys import ApiKeys
from elastic_dit.http.problems import Problem
from elastic_dit.loopback import is_loopback

__all__ = ["Hosts"]

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/?#@\[\]]+)(?::[0-9]*)?")
"""A Host header in small letters: a name or an address, perhaps a port."""


class Hosts:
    """Names of one server; those of the loopback interface, where no others' pages are, always.

    Parameters
    ----------
    names : iterable of str
        Without ports; IPv6 addresses in brackets.

    Examples
    --------
    >>> hosts = Hosts(["gpu-3"])
    >>> hosts.check("gpu-3:8000"), hosts.check("[::1]:8000")
    (None, None)
    >>> hosts.check("evil.example")
    Traceback (most recent call last):
    elastic_dit.http.problems.Problem: not a name of this server (--allowed-host): 'evil.example'
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(map(str.lower, names))

    def __repr__(self) -> str:
        return f"<Hosts: {', '.join(sorted(self._names))}>"

    @classmethod
    def of(cls, address: str, keys: ApiKeys, further: Iterable[str]) -> Hosts | None:
        """Names of a server; None where it may be asked by any.

        That is where there are API keys, which a page does not have, and where it listens for
        other machines, unless names are given.

        Parameters
        ----------
        address : str
            That it listens on.
        keys : ApiKeys
        further : iterable of str
            Names that are given.
        """
        names = tuple(further)
        if not names and (keys or not is_loopback(address)):
            return None
        return cls((*names, f"[{address}]" if ":" in address else address))

    def check(self, host: str) -> None:
        """Refuse what is not asked of this server.

        Parameters
        ----------
        host : str
            The header; empty where there is none.

        Raises
        ------
        Problem
            403.
        """
        found = _HOST.fullmatch(host.lower())
        name = found[1] if found else ""
        if name in self._names or is_loopback(name.strip("[]")):
            return
        message = f"not a name of this server (--allowed-host): {host!r}"
        raise Problem(403, "permission_error", message, code="unknown_host")
