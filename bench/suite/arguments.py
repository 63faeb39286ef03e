"""The options that the suite and the scaling runs have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import listing
import typer

BUILD = listing.ROOT / "out" / "release"

Quick = Annotated[bool, typer.Option("--quick", help="Small arguments, one round: shows that all runs.")]
Resume = Annotated[Path | None, typer.Option("--resume", metavar="FILE", help="Go on with an interrupted run.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Of the random order.")]
Lib = Annotated[Path | None, typer.Option(metavar="PATH", help="HAKMEM's library, if not the release's.")]
Build = Annotated[Path, typer.Option(metavar="FOLDER", help="Where programs and library are.")]
Show = Annotated[Path | None, typer.Option("--show", metavar="FILE", help="Print a file's tables and run nothing.")]
