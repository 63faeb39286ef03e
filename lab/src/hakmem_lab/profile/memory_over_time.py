"""The resident memory of a process over time, measured from outside: `hakmem profile` draws it above the flame graph,
with the times of its dumps. Times are those of the monotonic clock, as in the library's dumps."""

from __future__ import annotations

import time

from hakmem_lab.children.beside import Beside
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

FIRST_MS = 20
MOST_POINTS = 1000  # then every second one is removed, and the interval doubles


class MemoryOverTime(Beside):
    """Samples a process while its `with` block runs."""

    def __init__(self, pid: int) -> None:
        super().__init__(self._look)
        self.pid = pid
        self.points: list[tuple[int, int]] = []  # milliseconds, resident bytes
        self._every_s = FIRST_MS / 1000

    def _look(self) -> float | None:
        try:
            resident = process.kilobytes(self.pid, "VmRSS")
        except LabError:
            return None
        if not resident:  # it is a zombie
            return None
        self.add(time.monotonic_ns() // 1_000_000, resident)
        return self._every_s

    def add(self, at_ms: int, resident: int) -> None:
        self.points.append((at_ms, resident))
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
            self._every_s *= 2
