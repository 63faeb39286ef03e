"""hakmem path: the library's file, for LD_PRELOAD, for a unit file, for a linker."""

from __future__ import annotations

import typer

from hakmem_lab import libhakmem
from hakmem_lab.commands.options import Library

HELP = """Print the path of libhakmem.so.

Example:  LD_PRELOAD=$(hakmem path) PROGRAM
"""


def path(library: Library = None) -> None:
    typer.echo(libhakmem.find(library))


def register(app: typer.Typer) -> None:
    app.command("path", help=HELP)(path)
