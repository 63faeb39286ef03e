"""The progress of a long command, on standard error: a bar on a terminal, elsewhere an occasional line, so that a job's
log shows that something happens."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hakmem_lab.terminal import console

FIRST_S, LONGEST_S = 10.0, 300.0  # between two lines: each time is twice the one before


class Ticker(Protocol):
    """Called by a command as it makes progress."""

    def __call__(self, doing: str, done: float | None = None) -> None:
        """Reports the current step, and how much is done in all; by default one unit more."""


class Lines:
    """Prints a line after ten seconds, after thirty and so on, and at least every five minutes however long a step
    takes."""

    def __init__(self, total: float, unit: str) -> None:
        self.total, self.unit = total, unit
        self.doing, self.done = "begun", 0.0
        self.began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def __call__(self, doing: str, done: float | None = None) -> None:
        self.doing, self.done = doing, self.done + 1 if done is None else done

    def line(self) -> str:
        seconds = time.monotonic() - self.began
        left = seconds * (self.total - self.done) / self.done if self.done else 0.0
        until = f", about {in_time(left)} left" if 0 < self.done < self.total else ""
        return f"hakmem: {self.doing}: {self.done:.0f} of {self.total:.0f} {self.unit} after {in_time(seconds)}{until}"

    def _print(self) -> None:
        wait = FIRST_S
        while not self._ended.wait(wait):
            console.remark(self.line())
            wait = min(2 * wait, LONGEST_S)


def in_time(seconds: float) -> str:
    """A time in one unit."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextlib.contextmanager
def of(total: float, unit: str) -> Iterator[Ticker]:
    """Shows the progress of something that is done after `total` units."""
    if not console.err.is_terminal:
        with Lines(total, unit) as lines:
            yield lines
        return
    counts = (MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn()) if unit != "s" else ()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), *counts, TextColumn("left"))
    with Progress(*columns, TimeRemainingColumn(), console=console.err, transient=True) as progress:
        task = progress.add_task("", total=total)

        def show(doing: str, done: float | None = None) -> None:
            progress.update(task, description=doing, completed=done, advance=1 if done is None else None)

        yield show
