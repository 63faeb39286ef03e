"""The command `hakmem`: the list of its commands, and errors as one line.

Each command is a module of the package `commands` with a function `register(app)`.  Only the one that is asked for is
imported, so that a command starts at once and needs only its own libraries; --help knows the others by their summaries.
"""

from __future__ import annotations

import importlib
import os
import sys

import typer

from hakmem_lab import __version__, errors, extras
from hakmem_lab.console import complain, out

# In the order of --help; what is said of each there is the first sentence of its own help (a test compares them).
COMMANDS = {
    "run": "Run a program on HAKMEM. Its exit status and signals are the program's.",
    "stats": "Show a snapshot of the figures: a file that HAKMEM_STATS=json:FILE wrote, a running process, or a core "
    "dump.",
    "block": "Say what an address is to the allocator: a live or a free block, whose, of which size, with its "
    "neighbours.",
    "watch": "Watch a running process: what moves per class and second, hit rates, resident memory over time.",
    "serve": "Serve a running process's figures to Prometheus, as OpenMetrics over HTTP.",
    "doctor": "Say whether HAKMEM is at work and what it works with: one finding per line.",
    "ab": "Compare two configurations of one program and decide.",
    "sweep": "Measure one option over a list of values, or two over all pairs, and name the knee.",
    "compare": "Run one program under every allocator found on the machine, in interleaved rounds.",
    "tune": "Search for settings under which a program does better, and decide.",
    "history": "Draw how results have changed over commits, and mark the commits that changed them.",
    "report": "Make one HTML page of a set of results: verdicts first, then charts and sortable tables.",
}

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


def summary() -> None:
    """Stands for a command in the list of --help."""


def build_app(asked: str | None = None) -> typer.Typer:
    """The command-line interface with one command, or with the summaries of all when none of them is asked for."""
    app = typer.Typer(
        name="hakmem", help=ABOUT, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    app.callback()(top)
    for name, about in COMMANDS.items():
        if name == asked:
            importlib.import_module(f"hakmem_lab.commands.{name}").register(app)
        elif asked is None:
            app.command(name, help=about)(summary)
    return app


def asked_for(arguments: list[str]) -> str | None:
    """The command among the arguments: the first one that is no option, when it is known."""
    first = next((each for each in arguments if not each.startswith("-")), None)
    return first if first in COMMANDS else None


def words() -> list[str]:
    """The command line, or what a shell wants completed of one."""
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return typed.split()[1:] if "_HAKMEM_COMPLETE" in os.environ else sys.argv[1:]


def main() -> None:
    """The entry point; see errors.py for the exit statuses."""
    try:
        build_app(asked_for(words()))(prog_name="hakmem")
    except errors.LabError as error:
        complain(error.message, error.advice)
        sys.exit(error.status)
    except ModuleNotFoundError as error:
        extra = extras.of(error.name)
        if extra is None:
            raise
        complain(f"this needs {error.name}, which is not installed", f"pip install 'hakmem-lab[{extra}]' brings it.")
        sys.exit(errors.ERROR)
    except KeyboardInterrupt:
        complain("interrupted")
        sys.exit(errors.INTERRUPTED)
