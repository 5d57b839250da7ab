"""Entry point of ``elastic-dit``: nothing a user does ends in a traceback.

The commands are imported inside `main`, so that an interrupt during their import is caught too.
"""

from __future__ import annotations

import signal
import sys
from typing import NoReturn

__all__ = ["main"]

EXIT_ERROR = 1
"""A request, a setting or the cluster is at fault; the line on standard error says which."""
_SIGNALLED = 128
"""Exit code of a process that a signal ended, less the signal's number, as shells have it."""

_came: list[int] = []
"""Signals to leave by."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : list of str, optional
        In place of ``sys.argv[1:]``.

    Raises
    ------
    SystemExit
        0 on success, 1 for an error, 2 for wrong usage, 130 after Ctrl-C, 143 after SIGTERM.
    """
    debug = "--debug" in (sys.argv[1:] if arguments is None else arguments)
    _came.clear()
    try:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _leave)
        _run(arguments)
    except KeyboardInterrupt:
        sys.exit(_SIGNALLED + signal.SIGINT)
    except Exception as error:
        if _came:  # an extension in mid-import makes an ImportError of what `_leave` raised
            sys.exit(_SIGNALLED + _came[0])
        if debug:
            raise
        sys.exit(_explain(error))
    sys.exit(0)


def _run(arguments: list[str] | None) -> None:
    import click

    from elastic_dit.cli.commands import commands

    try:
        commands.main(arguments, prog_name="elastic-dit", standalone_mode=False)
    except click.exceptions.Exit as leave:
        sys.exit(leave.exit_code)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.ClickException as wrong:
        wrong.show()
        sys.exit(wrong.exit_code)


def _explain(error: Exception) -> int:
    """Say on standard error, in one line, what went wrong."""
    from elastic_dit.errors import ElasticDitError

    if isinstance(error, ElasticDitError):
        print(f"elastic-dit: {_one_line(error)}", file=sys.stderr)
    elif not isinstance(error, BrokenPipeError):
        kind = type(error).__name__
        print(
            f"elastic-dit: unexpected {kind}: {_one_line(error)} "
            "(elastic-dit --debug … shows where)",
            file=sys.stderr,
        )
    return EXIT_ERROR


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _leave(number: int, _frame: object) -> NoReturn:
    """Leave by an exception, so that clusters are closed on the way out."""
    import logging

    # What a cluster complains about while it is torn down in mid-start helps nobody.
    logging.disable(logging.CRITICAL)
    _came.append(number)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(_SIGNALLED + number)


if __name__ == "__main__":
    main()
