"""The screen of `hakmem watch`: resident memory by state over time, the busiest classes, rates, threads.

The layout follows the terminal's size at each sample: the last parts that do not fit are left out, and no figure is
cut."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hakmem_lab.inspect import snapshot_tables
from hakmem_lab.inspect.sampler import Sampler, line_of
from hakmem_lab.inspect.snapshot_tables import CLASS_RATES, FIGURE_RATES
from hakmem_lab.inspect.snapshots import PARTS, Snapshot
from hakmem_lab.terminal.amounts import counted, in_bytes, number

LOOKS = 400  # samples kept: more than a terminal has columns
LEAST_CHART = 4  # lines
MOST_THREADS = 5
NARROW = 60  # columns; the title is short up to this width
SIDE_BY_SIDE = 100  # columns; from this width on, tables stand side by side
AXIS = 11  # columns of the chart's scale
RATES_KEPT = 30
NAME = 20  # columns of a rate's name, and of its figure
RATE = 9
GAP = 3


class Threads:
    """The processor share of each thread of a process between two samples."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._at = time.monotonic()
        self._before = self._read()
        self.count = len(self._before)

    def _read(self) -> dict[int, tuple[str, float]]:
        """Name and processor seconds by thread."""
        found = {}
        for path in Path(f"/proc/{self._pid}/task").glob("[0-9]*"):
            try:
                words = (path / "stat").read_text(errors="replace")
            except OSError:
                continue  # it ended meanwhile
            fields = words.rpartition(")")[2].split()
            name = words.partition("(")[2].rpartition(")")[0]
            found[int(path.name)] = (name, (int(fields[11]) + int(fields[12])) / self._ticks)
        return found

    def step(self) -> list[tuple[int, str, float]]:
        """(id, name, share of a processor), the busiest first."""
        now, at = self._read(), time.monotonic()
        seconds = max(at - self._at, 1e-3)
        shares = [
            (tid, name, (used - self._before.get(tid, (name, 0.0))[1]) / seconds) for tid, (name, used) in now.items()
        ]
        self._before, self._at, self.count = now, at, len(now)
        return sorted(shares, key=lambda each: (-each[2], each[0]))


class WatchScreen:
    """The screen for one process; call `step` after each sample."""

    def __init__(self, seen: Sampler) -> None:
        self._seen = seen
        self._history: deque[dict[str, int]] = deque([dict(seen.now.snapshot.parts)], LOOKS)
        self._rates: dict[str, deque[int]] = {}
        self._threads = Threads(seen.live.pid)
        self._shares: list[tuple[int, str, float]] = []

    def step(self) -> None:
        """Adds the newest sample to the history."""
        snapshot, rates = self._seen.now.snapshot, self._seen.rates()
        self._history.append(dict(snapshot.parts))
        self._shares = self._threads.step()
        for name, value in figures(snapshot, rates).items() if rates is not None else ():
            self._rates.setdefault(name, deque(maxlen=RATES_KEPT)).append(round(value))

    def frame(self, width: int, height: int) -> RenderableType:
        """The whole screen."""
        wide = width >= SIDE_BY_SIDE
        lines = max(height - 3, 6)
        room = lines // 2 if wide else lines // 3
        shown: list[RenderableType] = [*self._title(width)]
        if self._history[-1]:
            names = [name for name in self._history[-1] if any(each.get(name, 0) for each in self._history)]
            below = legend(self._history[-1], names, width)
            shown += [*chart(list(self._history), names, width, max(room - len(below), LEAST_CHART)), *below]
        rest = lines - len(shown)
        if not wide:
            classes = self._classes(max(rest // 2 - 2, 1), width)
            return Group(*shown, classes, *self._side(width)[: max(rest - rest // 2, 3)])
        left = width * 3 // 5
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
        table.add_column(width=left, no_wrap=True)
        table.add_row(self._classes(max(rest - 2, 1), left), Group(*self._side(width - left - GAP)[:rest]))
        return Group(*shown, table)

    def _side(self, width: int) -> list[Text]:
        return [*self._figures(width), Text(""), *self._busiest()]

    def _title(self, width: int) -> list[Text]:
        """The command and its process, in one line if both fit."""
        snapshot = self._seen.now.snapshot
        version = f"HAKMEM {self._seen.live.version}, " if width >= NARROW else ""
        heaps = snapshot.group("remote").get("heaps", 0)
        counts = f"{counted(self._threads.count, 'thread')}, {counted(heaps, 'heap')}"
        about = f"pid {self._seen.live.pid}, {version}{counts}"
        command = " ".join(self._seen.command.split())
        if len(command) + len(about) + GAP <= width:
            return [Text(command, "bold", no_wrap=True).append(f"{' ' * GAP}{about}", "default")]
        return [Text(command[:width], "bold", no_wrap=True), Text(about)]

    def _classes(self, rows: int, width: int) -> RenderableType:
        """The classes with the most moved blocks."""
        rates = self._seen.rates()
        if rates is None:
            return Text("Waiting for a second look.", "dim")
        now = self._seen.now.snapshot.classes
        moved = {row["size"]: sum(rates.of_class(row, name) for name in CLASS_RATES if name in row) for row in now}
        busy = sorted((row for row in now if moved[row["size"]] > 0), key=lambda row: -moved[row["size"]])[:rows]
        if not busy:
            return Text(f"No blocks moved between threads' caches and slabs in {rates.seconds:.1f} s.", "dim")
        names = [name for name in CLASS_RATES if any(name in row for row in busy)]
        cells = [
            [number(row["size"]), number(row["live"])] + [number(round(rates.of_class(row, name))) for name in names]
            for row in busy
        ]
        heads = ["size", "live", *(f"{name}/s" for name in names)]
        widths = [max(len(line[at]) for line in [heads, *cells]) + 2 for at in range(len(heads))]
        shown = 2
        while shown < len(heads) and sum(widths[: shown + 1]) <= width:
            shown += 1
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for head, needed in zip(heads[:shown], widths, strict=False):
            table.add_column(head, justify="right", no_wrap=True, header_style="dim", min_width=needed - 2)
        for line in cells:
            table.add_row(*line[:shown])
        return table

    def _figures(self, width: int) -> list[Text]:
        """Rates with their history, as many as fit; those that were always 0 are left out."""
        room = max(width - NAME - RATE - 4, 0)
        return [
            Text(f"{name:{NAME}}", "dim", no_wrap=True)
            .append(f"{number(round(each[-1])):>{RATE}}/s  ", "default")
            .append(line_of(list(each)[-room:]) if room else "", "cyan")
            for name, each in self._rates.items()
            if max(each) > 0
        ]

    def _busiest(self) -> list[Text]:
        """The threads with the largest processor shares."""
        busy = [each for each in self._shares if each[2] >= 0.005][:MOST_THREADS]
        return [
            Text(f"{re.sub(r'[^ -~]', '?', name)[:15]:15} {tid:>8}", no_wrap=True).append(
                f"  {share:6.1%} of a processor"
            )
            for tid, name, share in busy
        ]


def figures(snapshot: Snapshot, rates: snapshot_tables.Rates) -> dict[str, float]:
    """The figures shown as rates, by names that include their groups."""
    return {
        f"{group} {name}".replace("_", " "): rates.of_figure(snapshot, group, name)
        for group, names in FIGURE_RATES.items()
        for name in names
        if name in snapshot.group(group)
    }


def _order(names: Sequence[str]) -> list[str]:
    """The parts from the bottom of the chart: live blocks below everything else."""
    return sorted(names, key=lambda name: PARTS.index(name) if name in PARTS else len(PARTS))


def chart(history: Sequence[Mapping[str, int]], names: Sequence[str], width: int, rows: int) -> list[Text]:
    """Resident memory by state, stacked, one column per sample, the newest on the right."""
    columns = max(width - AXIS, 10)
    looks = list(history)[-columns:]
    most = max((sum(each.values()) for each in looks), default=0)
    if most == 0:
        return []
    ordered = _order(names)
    lines = []
    for row in range(rows):
        level = most * (rows - row - 0.5) / rows  # the middle of this line
        scale = in_bytes(most * (rows - row) // rows) if row in (0, rows // 2) else ""
        line = Text(f"{scale:>{AXIS - 2}} ", "dim", no_wrap=True)
        for each in looks:
            below, colour = 0, ""
            for name in ordered:
                below += each.get(name, 0)
                if level < below:
                    colour = snapshot_tables.COLOURS.get(name, "white")
                    break
            line.append("█" if colour else " ", colour or None)
        lines.append(line)
    return lines


def legend(now: Mapping[str, int], names: Sequence[str], width: int) -> list[Text]:
    """The parts with their sizes, on as many lines as needed."""
    lines, line = [], Text(no_wrap=True)
    for name in [*_order(names), "sum"]:
        size = sum(now.values()) if name == "sum" else now.get(name, 0)
        said = f" {name} {in_bytes(size)}   "
        if line and len(line) + len(said) + 1 > width:
            lines.append(line)
            line = Text(no_wrap=True)
        line.append("█" if name != "sum" else " ", snapshot_tables.COLOURS.get(name, "default")).append(said)
    return [*lines, line]
