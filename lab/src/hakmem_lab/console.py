"""Where commands write: results on standard output, everything else on standard error."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def complain(message: str, advice: str = "") -> None:
    """An error in the manner of the library's own reports, and what to do next."""
    err.print(f"[bold red]hakmem:[/] {escape(message)}", soft_wrap=True)
    if advice:
        err.print(f"        {escape(advice)}", soft_wrap=True)


def remark(message: str) -> None:
    """A word on standard error that does not disturb a machine that reads standard output."""
    err.print(escape(message), soft_wrap=True)
