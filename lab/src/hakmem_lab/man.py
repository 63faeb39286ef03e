"""The manual page hakmem(1), from the commands' own help: python -m hakmem_lab.man prints it.

The wheel and the site generate the page when they are built, so that it is never older than the commands."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import typer

from hakmem_lab import __version__, cli

EXITS = """0 if the command succeeded; 125 to 127 as described for hakmem run; 130 after an interrupt; any other status
after an error, with a line on the cause and one on what to do."""


def escaped(text: str) -> str:
    """Text escaped for man."""
    text = re.sub(r"\[/?[a-z ]+\]", "", text).replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def parameter(each: Any) -> Iterator[str]:
    """One option or argument."""
    if each.param_type_name == "option":
        names = ", ".join([*each.opts, *each.secondary_opts])
        shown = names if each.is_flag else f"{names} {each.metavar or each.name.upper()}"
    else:
        shown = each.metavar or (each.name or "").upper()
    help_text = getattr(each, "help", None) or ""
    if each.name != "help":
        yield from (".TP", f".B {escaped(shown)}", escaped(help_text) or "\\&")


def prose(text: str) -> Iterator[str]:
    """Paragraphs; lines that begin with blanks stay unchanged."""
    for part in text.strip().split("\n\n"):
        if part.startswith("  "):
            yield from (".PP", ".nf", escaped(part), ".fi")
        else:
            yield from (".PP", escaped(part))


def every(commands: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its whole name; a group is followed by its own."""
    for name, command in commands.items():
        yield before + name, command
        yield from every(getattr(command, "commands", {}), f"{before}{name} ")


def page() -> str:
    """The whole page."""
    app = typer.Typer()
    app.callback()(cli.top)
    for name in cli.COMMANDS:
        importlib.import_module(f"hakmem_lab.commands.{name}").register(app)
    group: Any = typer.main.get_command(app)
    lines = [f'.TH HAKMEM 1 "" "HAKMEM {__version__}" "HAKMEM"', ".SH NAME"]
    lines += ["hakmem \\- run programs on HAKMEM, inspect, compare and decide", ".SH SYNOPSIS", ".B hakmem"]
    lines += [".I command", "[options] [arguments]", ".SH DESCRIPTION", *list(prose(cli.ABOUT))[1:], ".SH COMMANDS"]
    for name, command in every(group.commands):
        lines += [f".SS hakmem {escaped(name)}", *list(prose(command.help or ""))[1:]]
        for each in command.params:
            lines += parameter(each)
    lines += [
        ".SH EXIT STATUS",
        escaped(EXITS),
        ".SH SEE ALSO",
        ".BR hakmem (7),",
        ".BR hakmem\\-run (1),",
        ".BR hakmem.h (3)",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(page(), end="")
