"""The store on which groups meet as a process: ``python -m elastic_dit.engine.store_process HOST``.

It prints ``host:port`` once it listens. Each line on its standard input is a prefix of keys to
forget; at the end of the input, which is also the end of whoever started it, it ends.
"""

from __future__ import annotations

import signal
import sys

__all__ = ["main"]


def main(host: str) -> None:
    """Serve on `host` until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever started it
    from elastic_dit.engine.group_store import GroupStore

    store = GroupStore(host)
    print(store.address, flush=True)
    for line in sys.stdin:
        store.forget(line.strip())
    store.close()


if __name__ == "__main__":
    main(sys.argv[1])
