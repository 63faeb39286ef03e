"""Samples of a running process, and the rates between two of them, for `hakmem watch` and recordings."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hakmem_lab.inspect import ledger, slab_map, snapshot_tables
from hakmem_lab.inspect.live import Live
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.target import process
from hakmem_lab.terminal.amounts import in_bytes, number

LEVELS = "▁▂▃▄▅▆▇█"
HISTORY = 60


@dataclass(frozen=True)
class Sample:
    at: float  # monotonic
    snapshot: Snapshot


class Sampler:
    """Takes samples of one process; keeps the last two, and the sizes over time."""

    def __init__(self, pid: int, with_map: bool = False) -> None:
        self.with_map = with_map
        self.live = Live(pid)
        self.command = process.command(pid)
        self.former: Sample | None = None
        self.now = self._sample()
        self.history: dict[str, deque[int]] = {}
        self._remember()

    def _sample(self) -> Sample:
        found = self.live.snapshot()
        at = time.monotonic()
        ledger.add(self.live, found)
        if self.with_map:
            found["map"] = slab_map.superslabs(self.live)
        return Sample(at, Snapshot.model_validate(found))

    def _remember(self) -> None:
        parts = self.now.snapshot.parts
        for name, size in {**parts, "sum": sum(parts.values())}.items():
            self.history.setdefault(name, deque(maxlen=HISTORY)).append(size)

    def step(self) -> None:
        self.former, self.now = self.now, self._sample()
        self._remember()

    def rates(self) -> snapshot_tables.Rates | None:
        if self.former is None:
            return None
        return snapshot_tables.Rates(self.former.snapshot, max(self.now.at - self.former.at, 1e-9))

    # --- for machines ---------------------------------------------------------------------------------------------

    def as_look(self) -> dict[str, Any]:
        """One sample for a recording."""
        return {
            "pid": self.live.pid,
            "time": time.time(),
            "snapshot": self.now.snapshot.model_dump(exclude_none=True),
        }

    def as_json(self) -> dict[str, Any]:
        """One sample with its rates per second, which the first one lacks."""
        found, rates = self.as_look(), self.rates()
        if rates is not None:
            found |= {"seconds": rates.seconds, "rates": rates.document(self.now.snapshot)}
        return found

    # --- for people -----------------------------------------------------------------------------------------------

    def frame(self, rows: int) -> RenderableType:
        """The whole view, with at most `rows` classes."""
        snapshot, rates = self.now.snapshot, self.rates()
        title = Text(f"{self.command[:60]}", "bold").append(
            f"   pid {self.live.pid}   HAKMEM {self.live.version}   threads' heaps "
            f"{snapshot.group('remote').get('heaps', 0)}",
            "default",
        )
        shown: list[RenderableType] = [title]
        if rates is not None:
            shown += [self._figures(snapshot, rates), self._classes(snapshot, rates, rows)]
        bar = snapshot_tables.ledger(snapshot)
        if bar is not None:
            shown += [bar, self._over_time()]
        return Group(*shown)

    def _figures(self, snapshot: Snapshot, rates: snapshot_tables.Rates) -> RenderableType:
        line = Text("per second   ", "dim")
        for group, names in snapshot_tables.FIGURE_RATES.items():
            for name in names:
                value = rates.of_figure(snapshot, group, name)
                if value > 0:
                    line.append(f"{group}.{name} ", "dim").append(number(value)).append("   ")
        return line

    def _classes(self, snapshot: Snapshot, rates: snapshot_tables.Rates, rows: int) -> RenderableType:
        exact = any("mallocs" in row for row in snapshot.classes)
        names = [name for name in snapshot_tables.CLASS_RATES if exact or name not in ("mallocs", "frees")]
        moved_in = {row["size"]: sum(rates.of_class(row, name) for name in names) for row in snapshot.classes}
        busy = sorted(
            (row for row in snapshot.classes if moved_in[row["size"]] > 0), key=lambda row: -moved_in[row["size"]]
        )[:rows]
        if not busy:
            return Text(f"No blocks moved between threads' caches and slabs in {rates.seconds:.1f} s.")
        table = snapshot_tables.numbers_table(
            f"Busiest classes, per second over {rates.seconds:.1f} s",
            ["size", "live", "cached", *(f"{name}/s" for name in names), *(["hit rate"] if exact else [])],
        )
        for row in sorted(busy, key=lambda row: row["size"]):
            moved = [rates.of_class(row, name) for name in names]
            calls = rates.of_class(row, "mallocs")
            hit = (
                [snapshot_tables.percent(max(1 - rates.of_class(row, "misses") / calls, 0) if calls else None)]
                if exact
                else []
            )
            table.add_row(
                *(number(row[name]) for name in ("size", "live", "cached")),
                *(number(round(value)) for value in moved),
                *hit,
            )
        return table

    def _over_time(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, sizes in self.history.items():
            if max(sizes) > 0:
                colour = snapshot_tables.COLOURS.get(name, "white")
                table.add_row(
                    name, Text(line_of(list(sizes)), colour), f"{in_bytes(min(sizes))} .. {in_bytes(max(sizes))}"
                )
        return table


def line_of(sizes: list[int]) -> str:
    """A line of bars; the largest size has full height."""
    most = max(sizes)
    return "".join(LEVELS[(len(LEVELS) - 1) * size // most] if most else LEVELS[0] for size in sizes)
