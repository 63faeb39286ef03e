"""The screen of `hakmem watch`: correct, and as a user sees it on a pseudo-terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from hakmem_lab.inspect import snapshot_tables, watch_screen
from hakmem_lab.inspect.sampler import Sampler
from hakmem_lab.inspect.snapshot_tables import CLASS_RATES
from tests.conftest import killed_after
from tests.inside import Running, running

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")


def test_chart_stacks_what_the_program_holds_at_the_bottom() -> None:
    history = [{"empty": 0, "live": 4 << 20}, {"empty": 4 << 20, "live": 4 << 20}]
    lines = watch_screen.chart(history, ["empty", "live"], 40, 4)
    assert [line.plain[watch_screen.AXIS - 1 :] for line in lines] == [" █", " █", "██", "██"]
    colours = [[str(span.style) for span in line.spans if "bright" not in str(span.style)] for line in lines]
    assert snapshot_tables.COLOURS["empty"] in colours[0] and snapshot_tables.COLOURS["live"] in colours[3]
    assert "8.0 MiB" in lines[0].plain and "4.0 MiB" in lines[2].plain
    assert watch_screen.chart([{"live": 0}], ["live"], 40, 4) == []


def test_chart_shows_the_newest_looks() -> None:
    history = [{"live": 1}] * 100 + [{"live": 1, "empty": 1}]
    lines = watch_screen.chart(history, ["live", "empty"], 30, 2)
    assert all(cell_len(line.plain) <= 30 for line in lines)
    assert lines[0].plain.endswith("█") and lines[0].plain.count("█") == 1


def test_legend_breaks_no_figure() -> None:
    now = dict.fromkeys(snapshot_tables.COLOURS, 123 << 20)
    for width in (40, 80, 200):
        lines = watch_screen.legend(now, list(now), width)
        assert all(cell_len(line.plain) <= width for line in lines)
        assert sum(line.plain.count("123.0 MiB") for line in lines) == len(now)
        assert f"sum {123 * len(now)}.0 MiB" in lines[-1].plain or f"sum {123 * len(now)}.0 MiB" in lines[-2].plain


@pytest.mark.parametrize(("width", "height"), [(160, 50), (120, 34), (100, 24), (80, 24), (60, 20), (40, 16)])
def test_no_figure_is_cut_on_any_screen(program: Path, width: int, height: int) -> None:
    """With every class busy and every rate above 0, the frame still fits."""
    with running(program, more={"HAKMEM_STATS": "exact"}) as process:
        seen = Sampler(process.pid)
        shown = watch_screen.WatchScreen(seen)
        for number in (1, 2):
            process.tell("a")
            process.tell("r")
            seen.step()
            for row in seen.now.snapshot.classes:
                row.update(dict.fromkeys((name for name in CLASS_RATES if name in row), number * 12_345))
            shown.step()
        console = Console(width=width, height=height, record=True, file=io.StringIO())
        console.print(shown.frame(width, height))
    lines = console.export_text().splitlines()
    assert len(lines) <= height and all(cell_len(line.rstrip()) <= width for line in lines)
    said = "\n".join(lines)
    assert "…" not in said, said
    assert f"pid {process.pid}" in said and re.search(r"live \d", said) and "misses/s" in said


class Terminal:
    """A command on a pseudo-terminal of a given size."""

    def __init__(self, master: int, child: subprocess.Popen[bytes]) -> None:
        self.master = master
        self.child = child
        self.content = ""

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.child.send_signal(signal.SIGWINCH)

    def read_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.content += os.read(self.master, 65536).decode(errors="replace")
                except OSError:
                    return

    def read_until(self, wanted: str, seconds: float = 60.0) -> None:
        until = time.monotonic() + seconds
        while wanted not in self.plain() and time.monotonic() < until and self.child.poll() is None:
            self.read_for(0.1)
        assert wanted in self.plain(), self.plain()[-3000:]

    def read_screens(self, count: int, seconds: float = 60.0) -> list[list[str]]:
        until = time.monotonic() + seconds
        while len(self.screens()) < count and time.monotonic() < until and self.child.poll() is None:
            self.read_for(0.1)
        assert len(self.screens()) >= count, self.plain()[-3000:]
        return self.screens()

    def read_to_the_end(self, seconds: float = 60.0) -> int | None:
        until = time.monotonic() + seconds
        while self.child.poll() is None and time.monotonic() < until:
            self.read_for(0.1)
        self.read_for(0.2)
        return self.child.poll()

    def plain(self) -> str:
        return ESCAPES.sub("", self.content)

    def screens(self) -> list[list[str]]:
        """Each frame's lines: a frame begins where the cursor goes home."""
        return [ESCAPES.sub("", each).splitlines() for each in self.content.split("\x1b[H")[1:]]


@contextmanager
def watched(process: Running, columns: int, lines: int) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    command = ["setsid", "-c", sys.executable, "-m", "hakmem_lab", "watch", str(process.pid), "--interval", "0.2"]
    with killed_after(
        command,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"},
    ) as child:
        os.close(slave)
        try:
            yield Terminal(master, child)
        finally:
            os.close(master)


@pytest.mark.parametrize(("columns", "lines"), [(140, 40), (80, 24), (40, 16)])
def test_on_a_terminal(program: Path, columns: int, lines: int) -> None:
    with running(program) as process, watched(process, columns, lines) as terminal:
        terminal.read_until("No blocks moved")
        for _ in range(3):
            process.tell("a")
        terminal.read_until("misses/s" if columns > 60 else "size")
        screens = terminal.read_screens(3)
        assert "\x1b[?1049h" in terminal.content, "a screen of its own"
        for screen in screens[1:-1]:
            assert len(screen) <= lines
            assert all(cell_len(line.rstrip()) <= columns for line in screen), screen
        whole = "\n".join(screens[-2])
        assert re.search(r"live \d", whole) and f"pid {process.pid}" in whole and "thread" in whole and "MiB" in whole
        assert "…" not in terminal.plain(), "nothing is cut"
        os.write(terminal.master, b"\x03")  # Ctrl-C
        assert terminal.read_to_the_end() == 0
        assert "\x1b[?1049l" in terminal.content and "Traceback" not in terminal.plain()


def test_a_terminal_that_changes_its_size_and_a_process_that_ends(program: Path) -> None:
    with running(program) as process, watched(process, 140, 40) as terminal:
        terminal.read_until("No blocks moved")
        terminal.resize(60, 20)
        terminal.read_for(1.0)
        terminal.content = ""
        screens = terminal.read_screens(4)  # of the first two, one may be of the old size still
        assert all(cell_len(line.rstrip()) <= 60 for line in screens[2])
        os.kill(process.pid, signal.SIGKILL)
        terminal.read_until("has ended")
        assert terminal.child.wait(60) == 0


def test_threads_by_their_share() -> None:
    code = "import threading,sys\nthreading.Thread(target=sys.stdin.read).start()\nprint(1,flush=True)\nwhile 1: pass"
    command = [sys.executable, "-c", code]
    with killed_after(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline()
        threads = watch_screen.Threads(child.pid)
        time.sleep(0.6)
        found = threads.step()
    assert threads.count == len(found) == 2
    assert found[0][2] > 0.02 > found[1][2] and found[0][0] == child.pid
