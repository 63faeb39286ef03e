"""hakmem postmortem: the page of a black box. The starter writes it, so that machines without Python have the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from hakmem_lab.commands import options as opt
from hakmem_lab.target import libhakmem
from hakmem_lab.target.elf import is_elf
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
        if is_elf(path):
            return path
    raise LabError(f"no starter beside {library}", "It is built and installed with the library: bin/hakmem.")


def postmortem(
    place: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The folder of HAKMEM_BLACKBOX, or a file of it.")],
    pid: Annotated[int | None, typer.Argument(metavar="[PID]", help="Of several, this process's.")] = None,
    hakmem: opt.Found = None,
) -> None:
    program = starter(libhakmem.find(hakmem))
    os.execv(program, ["hakmem", "postmortem", str(place), *([str(pid)] if pid is not None else [])])


def register(app: typer.Typer) -> None:
    app.command("postmortem", help=HELP)(postmortem)
