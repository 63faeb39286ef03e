"""The load on the machine during a run: other programs' use of the processors, stolen time, pressure, clock.

The kernel counts for the whole machine; the measured program's own use is subtracted.  If a file is missing (an old
kernel, a container that hides it), the figure is missing, never 0."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from hakmem_lab.measure.results import MachineLoad

STAT = Path("/proc/stat")
PRESSURE = Path("/proc/pressure/cpu")
CPUINFO = Path("/proc/cpuinfo")
USER, NICE, SYSTEM, IDLE, IOWAIT, IRQ, SOFTIRQ, STEAL = range(8)


def _counters() -> tuple[float, float] | None:
    """(busy, stolen): seconds of all processors since boot."""
    try:
        words = STAT.read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    numbers = [int(word) / ticks for word in words] + [0.0] * 8
    return sum(numbers[each] for each in (USER, NICE, SYSTEM, IRQ, SOFTIRQ)), numbers[STEAL]


def _waited() -> float | None:
    """Seconds in which at least one task waited for a processor."""
    try:
        found = re.search(r"^some .*total=(\d+)", PRESSURE.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found.group(1)) / 1e6 if found else None


def _clock() -> float | None:
    """The mean clock of all processors, in MHz."""
    try:
        found = [float(each) for each in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", CPUINFO.read_text(), re.MULTILINE)]
    except OSError:
        return None
    return sum(found) / len(found) if found else None


class Meter:
    """Counts from its construction on."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._counters = _counters()
        self._waited = _waited()

    def stop(self, used_s: float) -> MachineLoad | None:
        """The load since then, without the measured program's `used_s` processor seconds; None if the kernel does not
        tell."""
        seconds = max(time.monotonic() - self._began, 1e-3)
        now, waited = _counters(), _waited()
        if self._counters is None or now is None:
            return None
        others = (now[0] - self._counters[0] - used_s) / seconds
        share = None if waited is None or self._waited is None else min((waited - self._waited) / seconds, 1.0)
        clock = _clock()
        return MachineLoad(
            others=round(max(others, 0.0), 3),
            stolen=round(max(now[1] - self._counters[1], 0.0) / seconds, 3),
            waiting=None if share is None else round(share, 3),
            mhz=None if clock is None else round(clock, 1),
        )
