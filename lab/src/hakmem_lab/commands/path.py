"""hakmem path: the library's file, for LD_PRELOAD, for a unit file, for a linker."""

from __future__ import annotations

import typer

from hakmem_lab.commands.options import Library
from hakmem_lab.target import libhakmem

HELP = """Print the path of libhakmem.so.

Example:  LD_PRELOAD=$(hakmem path) PROGRAM
"""


def path(library: Library = None) -> None:
    typer.echo(libhakmem.find(library))


def register(app: typer.Typer) -> None:
    app.command("path", help=HELP)(path)
