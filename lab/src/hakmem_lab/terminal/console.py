"""Where commands write: results on standard output, everything else on standard error.

Users' texts, names of files and functions among them, are printed as they are: no code of an emoji is replaced, and
what the output's encoding has not is put into other signs."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import IO

from rich.console import Console
from rich.markup import escape

# What the lab itself prints beyond ASCII, for outputs that have only that.
PLAIN = {"±": "+-", "…": "...", "∞": "inf", "√": "sqrt", "·": "*", "≥": ">=", "≤": "<="}
PLAIN |= dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)) | dict.fromkeys("■●╸━╺", "=") | dict.fromkeys("│┃", "|")


def make_console(file: IO[str] | None = None, width: int | None = None, stderr: bool = False) -> Console:
    """A console that changes no text; with a file, one without colours."""
    if file is None:
        return Console(stderr=stderr, highlight=False, emoji=False)
    return Console(file=file, width=width, highlight=False, emoji=False, color_system=None)


out = make_console()
err = make_console(stderr=True)


def _other_signs(error: UnicodeError) -> tuple[str, int]:
    """Codecs' way to ask for what stands for characters that an encoding has not."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    failed = error.object[error.start : error.end]
    return "".join(PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in failed), error.end


def write_anything() -> None:
    """No character ends the command because the output's encoding has none for it."""
    codecs.register_error("hakmem", _other_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="hakmem")


def flush() -> None:
    """Has everything written while it can still be told that it could not be."""
    if sys.stdout is not None:
        sys.stdout.flush()


def give_up_output() -> None:
    """What could not be written is not tried again by Python, which would end the process with its own words."""
    with contextlib.suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, advice: str = "") -> None:
    """An error in the manner of the library's own reports, and what to do next."""
    with contextlib.suppress(OSError):  # there is nobody else to tell
        err.print(f"[bold red]hakmem:[/] {escape(message)}", soft_wrap=True)
        if advice:
            err.print(f"        {escape(advice)}", soft_wrap=True)


def remark(message: str) -> None:
    """A word on standard error that does not disturb a machine that reads standard output."""
    err.print(escape(message), soft_wrap=True)
