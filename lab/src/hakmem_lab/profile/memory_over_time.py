"""The resident memory of a process over time, measured from outside: `hakmem profile` draws it above the flame graph,
with the times of its dumps. Times are those of the monotonic clock, as in the library's dumps."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

FIRST_MS = 20
MOST_POINTS = 1000  # then every second one is removed, and the interval doubles


class MemoryOverTime:
    """Samples a process from another thread while its `with` block runs."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.points: list[tuple[int, int]] = []  # milliseconds, resident bytes
        self._every_s = FIRST_MS / 1000
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> MemoryOverTime:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(self._every_s if self.points else 0):
            try:
                resident = process.kilobytes(self.pid, "VmRSS")
            except LabError:
                return
            if not resident:  # it is a zombie
                return
            self.add(time.monotonic_ns() // 1_000_000, resident)

    def add(self, at_ms: int, resident: int) -> None:
        self.points.append((at_ms, resident))
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
            self._every_s *= 2
