"""hakmem translate: another allocator's settings in HAKMEM's terms."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from hakmem_lab.target import libhakmem, translation
from hakmem_lab.target.configuration import parse
from hakmem_lab.terminal.console import remark
from hakmem_lab.terminal.errors import LabError

HELP = """Translate variables of jemalloc, mimalloc, tcmalloc or glibc into HAKMEM's options.

The settings go to standard output, the remarks to standard error. Exit status 2 if a setting is unknown.

Examples:

  hakmem translate 'MALLOC_CONF=dirty_decay_ms:5000,narenas:4'

  hakmem translate 'export GLIBC_TUNABLES=glibc.malloc.arena_max=2'
"""


def translate(
    line: Annotated[str, typer.Argument(help="Variables as in a shell line, optionally with a command after them.")],
    as_json: Annotated[bool, typer.Option("--json", help="One document instead of a line and remarks.")] = False,
) -> None:
    try:
        found = translation.translate(line)
    except ValueError as error:
        raise LabError(f"{line}: {error}", "Write it as for a shell, with paired quotes.") from None
    if not (found.options or found.remarks or found.unknown):
        raise LabError(
            f"{line}: no variable of another allocator", "MALLOC_CONF, MIMALLOC_*, TCMALLOC_*, GLIBC_TUNABLES."
        )
    if found.options:
        # The library itself is asked whether it takes these values.
        parse(shlex.join(f"{name}={value}" for name, value in found.options.items()), "translate", libhakmem.find())
    if as_json:
        document = {"options": found.options, "remarks": found.remarks, "unknown": found.unknown, "kept": found.kept}
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(found.line() or "# nothing is needed")
        for each in [*found.remarks, *found.unknown]:
            remark(each)
    if found.unknown:
        raise typer.Exit(2)


def register(app: typer.Typer) -> None:
    app.command("translate", help=HELP)(translate)
