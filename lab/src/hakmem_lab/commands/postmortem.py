"""hakmem postmortem: the page of a black box. The starter writes it, so that machines without Python have the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.target import libhakmem
from hakmem_lab.terminal.errors import LabError

HELP = """Say what held the memory of a process that is gone, from the black box that it kept in a folder.

Examples:

  HAKMEM_BLACKBOX=/var/tmp/boxes hakmem run -- ./server

  hakmem postmortem /var/tmp/boxes

  hakmem postmortem /var/tmp/boxes 4711
"""
PLACES = ("starter", "bin/hakmem", "../bin/hakmem", "../../bin/hakmem")  # from the library's folder


def starter(library: Path) -> Path:
    """The program beside the library."""
    for place in PLACES:
        path = Path(os.path.normpath(library.parent / place))
        if path.is_file() and path.open("rb").read(4) == b"\x7fELF":
            return path
    raise LabError(f"no starter beside {library}", "It is built and installed with the library: bin/hakmem.")


def postmortem(
    place: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The folder of HAKMEM_BLACKBOX, or a file of it.")],
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", help="Of several, this process's.")] = None,
    hakmem: Annotated[Path | None, typer.Option("--library", help="libhakmem.so, instead of the one found.")] = None,
) -> None:
    program = starter(libhakmem.find(hakmem))
    os.execv(program, ["hakmem", "postmortem", str(place), *([str(pid)] if pid is not None else [])])


def register(app: typer.Typer) -> None:
    app.command("postmortem", help=HELP)(postmortem)
