"""Controls the profiler of a running process from outside: writes a request where the library looks for one, and makes
the process look by the signal that it has named, or else at its next call of malloc."""

from __future__ import annotations

import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.live import Live
from hakmem_lab.profile import heap_dumps
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

ANSWER_S = 10.0
DONE_S = 120.0  # once it has taken the request
ADVICE = (
    "A process answers when it allocates. Started with HAKMEM_PROFILE=ready HAKMEM_STATS_SIGNAL=N (a signal that it "
    "does not use), it answers at once."
)


class Profiler:
    """The heap profiler of a running process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.live = Live(pid)
        if "profile" not in self.live.root:
            raise LabError(f"process {pid} runs a HAKMEM without a heap profiler", "Use a newer library.")

    def _at(self, name: str) -> int:
        return int(self.live.root["profile"] + self.live.number[f"profile_{name}"])

    def half(self, name: str) -> int:
        return self.live.memory.half(self._at(name))

    @property
    def counts(self) -> bool:
        return self.live.is_profiled

    @property
    def started(self) -> bool:
        """Whether a profile was ever started."""
        return self.half("started" if "profile_started" in self.live.number else "session") != 0

    @property
    def interval(self) -> int:
        return self.live.memory.word(self._at("interval"))

    def put(self, name: str, content: bytes) -> None:
        self.live.process_memory.write(self._at(name), content)

    def request(self, what: str) -> None:
        """Requests a start, a stop or a dump, and waits until it is done."""
        before = self.half("answered")
        number = self.half("signal")
        undo = self._lead_to_slow_path()
        self.put("request", struct.pack("=I", self.live.number[f"profile_{what}"]))
        if number:
            with process.looked_at(self.pid):
                os.kill(self.pid, signal.Signals(number) if number < 32 else number)
        asked = time.monotonic()
        try:
            while self.half("answered") == before:
                if time.monotonic() > asked + (ANSWER_S if self.half("request") else DONE_S):
                    waited = time.monotonic() - asked
                    raise LabError(f"process {self.pid} has not answered for {waited:.0f} seconds", ADVICE)
                if not process.exists(self.pid):
                    raise process.ended(self.pid)
                time.sleep(0.01)
        except BaseException:
            if process.exists(self.pid):  # withdraws the request, so that it is not served later
                self.put("request", struct.pack("=I", 0))
                undo()
            raise
        code = self.half("result")
        if code:
            if not self.counts:
                undo()
            raise LabError(f"process {self.pid}: the request '{what}' failed: {os.strerror(code)}")

    def _lead_to_slow_path(self) -> Callable[[], None]:
        """Makes the next call of malloc look for a request, even if it would hit the thread's cache; returns the undo.
        While a profile counts, one word decides that; otherwise the table of bins, which a debugger may write."""
        number, root = self.live.number, self.live.root
        if "profile_bins" not in root:  # an older library
            return lambda: None
        if self.half("counts"):
            former = struct.pack("=I", self.half("malloc_counts"))
            self.put("malloc_counts", struct.pack("=I", 0))
            return lambda: self.put("malloc_counts", former)
        count = number["profile_bins_exchanged"]
        table = self.live.memory.read(root["profile_bins"], 2 * count)

        def write(content: bytes) -> None:
            with suppress(OSError), (process.folder(self.pid) / "mem").open("r+b", buffering=0) as memory:
                memory.seek(root["profile_bins"])
                memory.write(content)

        write(struct.pack("=H", number["profile_empty_bin"]) * count)
        return lambda: write(table)

    def start(self, interval: int) -> None:
        self.put("interval", struct.pack("=Q", interval))
        self.request("start")

    def dump(self) -> heap_dumps.Profile:
        """The profile up to now."""
        with shared_folder(self.pid) as folder:
            path = folder / "profile.json"
            text = os.fsencode(path) + b"\0"
            if len(text) > self.live.number["profile_path_size"]:
                raise LabError(f"{folder}: the name is too long", "Set TMPDIR to a shorter path.")
            self.put("path", text)
            self.request("dump")
            spans = spans_of(self.live)
            found = process.inside(self.pid, str(path))
            profile = heap_dumps.read(found if found.exists() else path)
        if spans:
            profile.with_spans(spans)
        return profile


def how_to_switch_off(pid: int) -> list[str]:
    """The command line that switches the profiler off."""
    return [sys.executable, "-m", "hakmem_lab", "profile", str(pid), "--off"]


def spans_of(live: Live) -> list[heap_dumps.Spans]:
    """The state of the size classes; empty if the process has ended or its pages may not be read."""
    try:
        snapshot = live.snapshot()
        if not ledger.add(live, snapshot):
            return []
    except LabError:
        return []
    return [heap_dumps.Spans(row["size"], row["live"], row["pinned"]) for row in snapshot["classes"]]


@contextmanager
def shared_folder(pid: int) -> Iterator[Path]:
    """A new folder into which the process may write."""
    with tempfile.TemporaryDirectory(prefix="hakmem-") as name:
        with process.looked_at(pid):
            owner = process.folder(pid).stat()
        if owner.st_uid != os.getuid() and os.getuid() == 0:
            os.chown(name, owner.st_uid, owner.st_gid)
        yield Path(name)
