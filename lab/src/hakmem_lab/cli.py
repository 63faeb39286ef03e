"""The command `hakmem`: the list of its commands, and errors as one line.

Each command is a module of the package `commands` with a function `register(app)`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys

import typer

from hakmem_lab import __version__, errors
from hakmem_lab.console import complain, out

# In the order of --help.
COMMANDS = (
    "run",
    "stats",
    "block",
    "watch",
    "profile",
    "leaks",
    "doctor",
    "ab",
    "sweep",
    "compare",
    "tune",
    "report",
)

ABOUT = """Run programs on the HAKMEM allocator, see what it does, compare it, and decide by measurement.

Start with:  hakmem run -- PROGRAM,  hakmem compare -- PROGRAM,  hakmem ab --a 'K=V' --b 'K=V' -- PROGRAM
"""


def show_version(wanted: bool) -> None:
    if wanted:
        out.print(f"hakmem {__version__}")
        raise typer.Exit


def top(
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Print the lab's version and exit."
    ),
) -> None:
    del version


def build_app() -> typer.Typer:
    """The whole command-line interface."""
    app = typer.Typer(
        name="hakmem", help=ABOUT, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    app.callback()(top)
    for name in COMMANDS:
        module = f"hakmem_lab.commands.{name}"
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module).register(app)
    return app


def main() -> None:
    """The entry point; see errors.py for the exit statuses."""
    try:
        build_app()(prog_name="hakmem")
    except errors.LabError as error:
        complain(error.message, error.advice)
        sys.exit(error.status)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(errors.INTERRUPTED)
