"""``elastic-dit-worker``: one engine per GPU of this machine.

Also ``dask elastic-dit-worker`` and ``python -m elastic_dit.cli.worker``. The module is light:
Dask is imported once the command runs.
"""

from __future__ import annotations

from typing import Any

import click

from elastic_dit.cli.interrupts import interruptible
from elastic_dit.cli.worker_options import inherited_options, own_options

__all__ = ["main"]


class WorkerCommand(click.Command):
    """A command whose options are read from ``dask worker`` when they are needed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Own options first, then the inherited ones."""
        if not self.params:
            self.params = [*own_options(), *inherited_options()]
        return super().get_params(ctx)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program: from here on Ctrl-C is an event, even amid the imports."""
        with interruptible(_stop_children):
            return super().main(*args, **kwargs)


def launch(**options: Any) -> None:
    """Serve diffusion models from the GPUs of this machine: one engine each, joined to SCHEDULER.

    All options of "dask worker" are understood, save those that count processes. The processes
    are restarted when they die. Ctrl-C and SIGTERM end them all.
    """
    from elastic_dit.cli.worker_launch import Launch, pid_file
    from elastic_dit.cli.worker_run import run_workers
    from elastic_dit.errors import ConfigError, ElasticDitError

    with interruptible(_stop_children) as interrupts:
        try:
            launch = Launch.read(options)
            with pid_file(options["pid_file"]):
                run_workers(launch, interrupts)
        except ConfigError as error:
            raise click.UsageError(str(error)) from None
        except ElasticDitError as error:
            raise click.ClickException(str(error)) from None


def _stop_children() -> None:
    """Worker processes end with this one; only the fork server might stay for a while."""
    from elastic_dit.cluster.launch.fork_server import stop_fork_server

    stop_fork_server()


main = WorkerCommand(
    "elastic-dit-worker",
    callback=launch,
    help=launch.__doc__,
    # What it does not know goes to preload modules, as with "dask worker".
    context_settings={"ignore_unknown_options": True},
)

if __name__ == "__main__":
    main()
