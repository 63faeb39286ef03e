"""The command `hakmem`: the list of its commands, and errors as one line.

Each command is a module of the package `commands` with a function `register(app)`.  Only the requested one is imported,
so that it starts quickly and needs only its own libraries; --help has a summary of each.
"""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys

import typer
from typer.models import CommandInfo

from hakmem_lab import __version__
from hakmem_lab.children import shutdown
from hakmem_lab.terminal import errors, extras
from hakmem_lab.terminal.console import complain, flush, give_up_output, out, write_anything

# In the order of --help; each summary is the first sentence of the command's own help (a test compares them).
COMMANDS = {
    "run": "Run a program on HAKMEM. Its exit status and signals are the program's.",
    "stats": "Show a snapshot of the figures: a file that HAKMEM_STATS=json:FILE wrote, a running process, or a core "
    "dump.",
    "block": "Describe an address: a live or a free block, its size, its heap and its neighbours.",
    "waste": "Say what of a process's memory could be saved: copies, zeros, unused ends, rounding, sparse spans.",
    "cold": "Say what of a process's live memory nobody has read or written for some time.",
    "why": "Say in one paragraph why a process's memory is as large as it is, with evidence and the next command.",
    "watch": "Watch a running process: moved blocks per class, hit rates, resident memory over time.",
    "profile": "Profile the heap of a program or of a running process, or show an earlier profile.",
    "leaks": "Run a program and report at its end the lost blocks: in use, but with no pointer to them.",
    "postmortem": "Say what held the memory of a process that is gone, from the black box that it kept in a folder.",
    "serve": "Serve a running process's figures to Prometheus, as OpenMetrics over HTTP.",
    "doctor": "Check whether HAKMEM works here, and with which settings: one finding per line.",
    "ab": "Compare two configurations of one program and decide.",
    "sweep": "Measure an option over a list of values, or two over all pairs, and name the knee.",
    "compare": "Run one program under every allocator found on the machine, in interleaved rounds.",
    "worth": "Say what any allocator could gain for a program at most, in time and in memory.",
    "tune": "Search for settings that improve a program, and decide.",
    "history": "Draw results over commits, and mark the commits that changed them.",
    "report": "Make one HTML page of a set of results: verdicts first, then charts and sortable tables.",
    "fleet": "Plan an experiment on many machines, and judge it by what Prometheus knows of them.",
    "path": "Print the path of libhakmem.so.",
    "translate": "Translate variables of jemalloc, mimalloc, tcmalloc or glibc into HAKMEM's options.",
}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

ABOUT = """Run programs on the HAKMEM allocator, inspect it, compare it, and decide by measurement.

Start with:  hakmem run -- PROGRAM,  hakmem compare -- PROGRAM,  hakmem ab --a 'K=V' --b 'K=V' -- PROGRAM
"""


LINE = 76  # so that an example fits into a terminal of 80 columns


def in_lines(text: str) -> str:
    """Help for terminals of any width: a paragraph becomes one line, which the terminal wraps. Lines that begin with
    blanks stay; overlong ones are continued after a backslash, as in a shell."""
    found: list[str] = []
    for line in text.strip().split("\n"):
        if line.startswith(" "):
            found += shell_lines(line)
        elif found and line and found[-1] and not found[-1].startswith(" "):
            found[-1] += f" {line}"
        else:
            found.append(line)
    return "\n".join(found)


def shell_lines(line: str) -> list[str]:
    """A command wrapped between its words, but not between an option and its value."""
    if len(re.sub(r"\[/?[a-z]*\]", "", line)) <= LINE:
        return [line]
    found = [line[: len(line) - len(line.lstrip())]]
    for word in re.findall(r"(?:--[\w-]* (?=[^-\s]))?(?:'[^']*'|\S)+\s*", line):
        if len(found[-1]) + len(word.rstrip()) > LINE - 2:
            found[-1] += "\\"
            found.append("      ")
        found[-1] += word
    return [each.rstrip() for each in found]


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
    """A placeholder for a command in the list of --help."""


def build_app(asked: str | None = None) -> typer.Typer:
    """The command-line interface with the requested command, or with the summaries of all."""
    app = typer.Typer(
        name="hakmem", help=ABOUT, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False
    )
    app.callback()(top)
    for name, about in COMMANDS.items():
        if name == asked:
            importlib.import_module(f"hakmem_lab.commands.{name}").register(app)
            for command in [*app.registered_commands, *of_groups(app)]:
                command.help = in_lines(command.help or "")
        elif asked is None:
            app.command(name, help=about)(summary)
    return app


def of_groups(app: typer.Typer) -> list[CommandInfo]:
    """The commands of a command that is a group."""
    return [
        each
        for group in app.registered_groups
        if group.typer_instance
        for each in group.typer_instance.registered_commands
    ]


def asked_for(arguments: list[str]) -> str | None:
    """The command among the arguments: the first one that is not an option, if it is known."""
    first = next((each for each in arguments if not each.startswith("-")), None)
    return first if first in COMMANDS else None


def words() -> list[str]:
    """The command line, or the one that a shell wants to complete."""
    typed = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return typed.split()[1:] if "_HAKMEM_COMPLETE" in os.environ else sys.argv[1:]


def main() -> None:
    """The entry point; see terminal/errors.py for the exit statuses."""
    shutdown.obey()
    write_anything()
    status = errors.ERROR
    try:
        status = carry_out()
        flush()
    except BrokenPipeError:
        give_up_output()
    except OSError as error:
        status = errors.ERROR
        if error.errno not in FULL:
            raise
        give_up_output()
        complain(f"cannot write: {error}", "Free some space; results that were written before are intact.")
    except KeyboardInterrupt:
        complain("interrupted")
        status = errors.INTERRUPTED
    finally:
        if status == errors.INTERRUPTED:
            shutdown.end_descendants(set())
    sys.exit(status)


def carry_out() -> int:
    """Runs the command; returns the exit status."""
    try:
        build_app(asked_for(words()))(prog_name="hakmem")
    except SystemExit as done:
        if done.code == errors.INTERRUPTED and shutdown.interrupted():
            raise KeyboardInterrupt from None
        return done.code if isinstance(done.code, int) else errors.ERROR if done.code else 0
    except errors.LabError as error:
        complain(error.message, error.advice)
        return error.status
    except ModuleNotFoundError as error:
        extra = extras.of(error.name)
        if extra is None:
            raise
        complain(f"this needs {error.name}, which is not installed", f"pip install 'hakmem-lab[{extra}]' installs it.")
        return errors.ERROR
    return 0
