"""Command lines that documents and deployments tell people to run, checked against the commands."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import click
from distributed.cli.dask_scheduler import main as dask_scheduler

from elastic_dit.cli.commands import commands
from elastic_dit.cli.worker import main as worker

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(?:console|bash)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)
_ENDS = {"|", "&&", "||", ";", "&", ">", ">>"}


def told(document: Path) -> Iterator[list[str]]:
    """Commands in a document's console and bash blocks, as words; output lines are left out."""
    given: dict[str, str] = {}
    for block in _BLOCK.findall(document.read_text(encoding="utf-8")):
        lines = re.sub(r"\\\n\s*", "", block).splitlines()
        prompted = any(line.startswith("$ ") for line in lines)
        for line in lines:
            if line.startswith("$ ") or (line.strip() and not prompted):
                words = words_of(line.removeprefix("$ "), given)
                if words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
                    given[assigned[1]] = assigned[2]
                elif words:
                    yield words


def words_of(line: str, given: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """Words of a line's first command, without comments; `given` variables are filled in."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in itertools.takewhile(lambda word: word not in _ENDS, lexer):
        value = given.get(word[1:]) if word.startswith("$") else None
        words.extend([word] if value is None else shlex.split(value))
    return words


def check(words: list[str]) -> bool:
    """Let click read a command line, and run nothing.

    Returns
    -------
    bool
        Whether it is one that is known here; others are not judged.

    Raises
    ------
    click.UsageError
        Where it would be refused.
    """
    name, rest = Path(words[0]).name, words[1:]
    if name == "dask" and rest[:1] in (["scheduler"], ["elastic-dit-worker"]):
        name, rest = rest[0], rest[1:]
    known = {"elastic-dit": commands, "elastic-dit-worker": worker, "scheduler": dask_scheduler}
    if name not in known:
        return False
    _parse(known[name], name, rest)
    return True


def _parse(command: click.Command, name: str, arguments: list[str]) -> None:
    with command.make_context(name, list(arguments)) as context:
        if isinstance(command, click.Group):
            chosen, inner, rest = command.resolve_command(
                context, [*context._protected_args, *context.args]
            )
            assert chosen is not None
            assert inner is not None
            _parse(inner, chosen, rest)
        # Of what Dask's commands do not know they say nothing: it is for preload modules.
        strays = [word for word in context.params.get("preload_argv", ()) if word[:1] == "-"]
        if strays:
            raise click.NoSuchOption(strays[0], ctx=context)
