"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from elastic_dit.client import Client
    from elastic_dit.config import Config

__all__ = [
    "COUNT",
    "cluster_options",
    "connect",
    "json_option",
    "read_size",
    "seed_option",
    "size_option",
    "steps_option",
]

COUNT = click.IntRange(1, 2**31 - 1)
"""Type of counts; the model's own limits are the cluster's to tell."""

Command = TypeVar("Command", bound=Callable[..., Any])


def read_size(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[int, int] | None:
    """Read ``WIDTHxHEIGHT`` as a pair of whole numbers.

    Raises
    ------
    click.BadParameter
        With an example.
    """
    if value is None:
        return None
    match = re.fullmatch(r"([1-9]\d{0,5})[xX×]([1-9]\d{0,5})", value)
    if match is None:
        example = f"{value!r} is no size: write WIDTHxHEIGHT in pixels, such as 96x64"
        raise click.BadParameter(example, context, parameter)
    return int(match[1]), int(match[2])


size_option = click.option(
    "--size", callback=read_size, metavar="WIDTHxHEIGHT", help="Pixels, such as 96x64."
)
json_option = click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Write the figures there as JSON; - for standard output.",
)
seed_option = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Seed of the initial noise."
)
steps_option = click.option("--steps", type=COUNT, metavar="N", help="Denoising steps.")

_CLUSTER = (
    click.option("--scheduler", metavar="ADDRESS", help="Dask scheduler, such as tcp://host:8786."),
    click.option(
        "--scheduler-file",
        type=click.Path(dir_okay=False),
        metavar="FILE",
        help="File that `dask scheduler --scheduler-file` wrote.",
    ),
    click.option(
        "--tls-ca-file", type=click.Path(), metavar="FILE", help="Certificates to trust (PEM)."
    ),
    click.option("--tls-cert", type=click.Path(), metavar="FILE", help="Own certificate (PEM)."),
    click.option("--tls-key", type=click.Path(), metavar="FILE", help="Its private key (PEM)."),
)


def cluster_options(command: Command) -> Command:
    """Add the options that say which cluster to talk to; `connect` takes their values."""
    for option in reversed(_CLUSTER):
        command = option(command)
    return command


def connect(
    options: Mapping[str, Any],
    limit_s: float | None = None,
    *,
    config: Config | None = None,
    asynchronous: bool = False,
) -> Client:
    """Open a client of the cluster that a command's options name.

    Parameters
    ----------
    options : mapping of str to Any
        Values of `cluster_options` by name; others are ignored.
    limit_s : float, optional
        Longest wait for the first engine, seconds, where it is less than the configured one.
    config : Config, optional
        Of which the section ``client`` counts.
    asynchronous : bool
        For use in the running event loop, which then awaits the client.

    Raises
    ------
    click.UsageError
        Where the values contradict each other, or name no cluster and Dask's configuration
        does not either.
    ConfigError
        Where the scheduler file or a certificate cannot be read.
    SchedulerUnreachable
        Where nothing answers.
    """
    import dask.config

    from elastic_dit.client import Client
    from elastic_dit.config import ClientConfig, Config

    scheduler, scheduler_file = options["scheduler"], options["scheduler_file"]
    if scheduler and scheduler_file:
        raise click.UsageError("--scheduler and --scheduler-file exclude each other")
    if not (scheduler or scheduler_file or dask.config.get("scheduler-address", None)):
        raise click.UsageError("say which cluster: --scheduler ADDRESS or --scheduler-file FILE")
    _check_scheduler_file(scheduler_file)
    security = _security(options)
    waits = (config or Config()).client
    if limit_s is not None:
        waits = ClientConfig(
            connect_timeout_s=waits.connect_timeout_s,
            ready_timeout_s=min(limit_s, waits.ready_timeout_s),
            submit_timeout_s=min(limit_s, waits.submit_timeout_s),
        )
    return Client(
        scheduler,
        scheduler_file=scheduler_file,
        security=security,
        config=Config(client=waits),
        asynchronous=asynchronous,
    )


def _check_scheduler_file(path: str | None) -> None:
    """Fail at once: Dask waits for a missing file for ever."""
    import json
    from pathlib import Path

    from elastic_dit.errors import ConfigError

    if path is None:
        return
    try:
        address = json.loads(Path(path).read_text(encoding="utf-8"))["address"]
    except OSError as error:
        raise ConfigError("scheduler-file", path, f"a readable file ({error.strerror})") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError("scheduler-file", path, "written by dask scheduler") from None
    if not isinstance(address, str):
        raise ConfigError("scheduler-file", path, "written by dask scheduler")


def _security(options: Mapping[str, Any]) -> Any:
    """TLS settings of the flags; None leaves it to Dask's configuration."""
    from pathlib import Path

    from distributed import Security

    from elastic_dit.errors import ConfigError

    dask_names = {
        "tls_ca_file": "tls_ca_file",
        "tls_cert": "tls_client_cert",
        "tls_key": "tls_client_key",
    }
    given = {name: options[name] for name in dask_names if options[name] is not None}
    for name, path in given.items():
        if not Path(path).is_file():
            raise ConfigError(name.replace("_", "-"), path, "a readable file")
    if not given:
        return None
    return Security(
        require_encryption=True, **{dask_names[name]: path for name, path in given.items()}
    )
