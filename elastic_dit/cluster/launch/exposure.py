"""Who can reach a cluster: whether an address is open to other machines, and guarded by TLS.

Whoever reaches a Dask port may run code there; see SECURITY.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from distributed.comm import get_address_host, parse_address

from elastic_dit.loopback import is_loopback

__all__ = ["is_exposed", "kept_local", "warn_if_exposed"]

logger = logging.getLogger(__name__)

_ENCRYPTED = ("tls", "wss")
_INTERFACE_OPTIONS = ("host", "interface", "contact_address", "listen_address")


def is_exposed(address: str) -> bool:
    """Whether other machines can reach a Dask address that no certificates guard.

    >>> [is_exposed(a) for a in ("tcp://127.0.0.1:8786", "tls://10.0.0.5:1", "tcp://0.0.0.0:8786")]
    [False, False, True]
    """
    scheme, _ = parse_address(address)
    if scheme in _ENCRYPTED or scheme == "inproc":
        return False
    return not is_loopback(get_address_host(address))


def warn_if_exposed(what: str, addresses: Iterable[str]) -> bool:
    """Say loudly that a part of a cluster is open to others; whether it is.

    Parameters
    ----------
    what : str
        The part.
    addresses : iterable of str
        Where it listens.
    """
    exposed = sorted(address for address in addresses if is_exposed(address))
    if exposed:
        logger.warning(
            "%s listens on %s without TLS: whoever can reach it may run any code there. Bind it "
            "to a private interface and use certificates; see SECURITY.md",
            what,
            ", ".join(exposed),
        )
    return bool(exposed)


def kept_local(scheduler: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker whose scheduler is on this machine and only there: it stays there too.

    Dask's workers listen on every interface where nobody says otherwise.

    Parameters
    ----------
    scheduler : str
        Its address.
    options : mapping
        Of a `distributed.Nanny` or `distributed.Worker`.

    Examples
    --------
    >>> kept_local("tcp://127.0.0.1:8786", {"nthreads": 1})
    {'nthreads': 1, 'host': '127.0.0.1', 'dashboard_address': '127.0.0.1:0'}
    >>> kept_local("tcp://[::1]:8786", {})
    {'host': '[::1]', 'dashboard_address': 'localhost:0'}
    >>> kept_local("tcp://127.0.0.1:8786", {"interface": "eth0"})
    {'interface': 'eth0'}
    >>> kept_local("tcp://10.0.0.5:8786", {})
    {}
    """
    host = get_address_host(scheduler)
    is_placed = any(options.get(name) for name in _INTERFACE_OPTIONS)
    if is_placed or not is_loopback(host):
        return dict(options)
    is_ipv6 = ":" in host
    dashboard = options.get("dashboard_address") or ":0"
    if isinstance(dashboard, str) and dashboard.startswith(":"):
        # Dask reads no IPv6 address of a dashboard.
        dashboard = f"{'localhost' if is_ipv6 else host}{dashboard}"
    kept = f"[{host}]" if is_ipv6 else host
    return {**options, "host": kept, "dashboard_address": dashboard}
