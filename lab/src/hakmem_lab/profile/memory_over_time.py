"""The resident memory of a process over time, as somebody beside it sees it: `hakmem profile` draws it beside the flame
graph, with the moments of its profiles. Times are those of the monotonic clock, as in the library's dumps."""

from __future__ import annotations

import threading
import time
from types import TracebackType

from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

FIRST_MS = 20
MOST_POINTS = 1000  # then every second one goes, and twice the time passes between two looks


class MemoryOverTime:
    """Looks at a process from another thread, as long as the block of its `with` runs."""

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
            if not resident:  # it has ended, and nobody has waited for it yet
                return
            self.add(time.monotonic_ns() // 1_000_000, resident)

    def add(self, at_ms: int, resident: int) -> None:
        self.points.append((at_ms, resident))
        if len(self.points) >= MOST_POINTS:
            self.points = self.points[::2]
            self._every_s *= 2
