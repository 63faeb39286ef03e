"""Where commands write: results on standard output, everything else on standard error.

Users' texts, such as names of files and functions, are printed unchanged: emoji codes are not expanded, and characters
that the output's encoding lacks are replaced."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.markup import escape

# Replacements for the non-ASCII characters that the lab itself prints.
PLAIN = {"±": "+-", "…": "...", "∞": "inf", "√": "sqrt", "·": "*", "≥": ">=", "≤": "<="}
PLAIN |= dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)) | dict.fromkeys("■●╸━╺", "=") | dict.fromkeys("│┃", "|")


def make_console(file: IO[str] | None = None, width: int | None = None, stderr: bool = False) -> Console:
    """A console that changes no text; one that writes to a file has no colours."""
    if file is None:
        return Console(stderr=stderr, highlight=False, emoji=False)
    return Console(file=file, width=width, highlight=False, emoji=False, color_system=None)


out = make_console()
err = make_console(stderr=True)


def _other_signs(error: UnicodeError) -> tuple[str, int]:
    """The error handler of codecs: replaces characters that the encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    failed = error.object[error.start : error.end]
    return "".join(PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in failed), error.end


def write_anything() -> None:
    """Makes standard output and error accept every character, whatever their encoding. The null device takes the place
    of closed streams, so that no file of the lab's does; programs that are started still find them closed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115
    codecs.register_error("hakmem", _other_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="hakmem")


def flush() -> None:
    """Flushes standard output while an error can still be reported."""
    sys.stdout.flush()


def give_up_output() -> None:
    """Keeps Python from retrying a failed write at exit, which would end the process with a message of its own."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, advice: str = "") -> None:
    """Prints an error in the form of the library's own reports, and what to do next."""
    with contextlib.suppress(OSError):  # there is nowhere else to report it
        err.print(f"[bold red]hakmem:[/] {escape(message)}", soft_wrap=True)
        if advice:
            err.print(f"        {escape(advice)}", soft_wrap=True)


def remark(message: str) -> None:
    """Prints a remark on standard error, so that a program that reads standard output does not see it."""
    err.print(escape(message), soft_wrap=True)
