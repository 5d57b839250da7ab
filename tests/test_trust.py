"""Data from outside runs no code: nothing in the package unpickles, or loads what might."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import elastic_dit
from elastic_dit.cli.commands import commands
from elastic_dit.cli.worker import main as worker

ROOT = Path(elastic_dit.__file__).parent
UNPICKLERS = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("pickle", "loads")}
PLUGIN_SENDERS = {"cluster/launch/bootstrap.py", "cluster/worker/engine_plugin.py"}
"""They send plug-ins and functions to the Dask scheduler, in Dask's own way."""


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            yield (owner.id if isinstance(owner, ast.Name) else "", node.func.attr)
            assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: path.stem)
def test_no_module_unpickles(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for module, imported in imports(tree):
        assert module.split(".")[0] not in UNPICKLERS
        if module.endswith(".pickle"):
            assert imported == "dumps"
            assert name in PLUGIN_SENDERS
    assert LOADERS.isdisjoint(calls(tree))


def options(command: click.Command) -> set[str]:
    context = click.Context(command)
    return {name for parameter in command.get_params(context) for name in parameter.opts}


def test_every_command_that_connects_takes_certificates() -> None:
    connecting = [c for c in commands.commands.values() if "--scheduler" in options(c)]
    assert len(connecting) >= 2
    for command in (*connecting, worker):
        assert {"--tls-ca-file", "--tls-cert", "--tls-key"} <= options(command), command.name
