"""From raw results to the tables: medians, ratios, geometric means.

The best peer of a case is the one with the highest median; the ratio in speed is the median over the
rounds of HAKMEM's throughput divided by that peer's in the same round, so that a machine that slows down
for some rounds slows down both.  The ratio in memory is that of the median peaks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Callable

from allocators import FLOOR, HAKMEM


@dataclass(frozen=True)
class Result:
    round: int
    case: str
    allocator: str
    ops_per_s: float
    seconds: float
    peak_rss_kb: float
    minor_faults: float
    live_kb: float = 0  # what the program still holds at the end; 0: it does not say
    rss_kb: float = 0  # resident for it then, and
    rested_rss_kb: float = 0  # after a time of light use


@dataclass(frozen=True)
class Failure:
    round: int
    case: str
    allocator: str
    reason: str


@dataclass(frozen=True)
class Ratio:
    case: str
    value: float
    low: float
    high: float
    other: str


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values if value > 0]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


class Results:
    """The results of one run, and the comparisons drawn from them."""

    def __init__(self, cases: list[str], allocators: list[str], peers: list[str]) -> None:
        self.cases = cases
        self.allocators = allocators
        self.peers = peers
        self.failures: list[Failure] = []
        self._by_pair: dict[tuple[str, str], list[Result]] = {}

    def add(self, result: Result) -> None:
        self._by_pair.setdefault((result.case, result.allocator), []).append(result)

    def of(self, case: str, allocator: str) -> list[Result]:
        return self._by_pair.get((case, allocator), [])

    def measured_cases(self) -> list[str]:
        return [case for case in self.cases if any(self.of(case, name) for name in self.allocators)]

    def median(self, case: str, allocator: str, value: Callable[[Result], float]) -> float | None:
        results = self.of(case, allocator)
        return statistics.median(value(result) for result in results) if results else None

    def speed(self, case: str, allocator: str) -> float | None:
        return self.median(case, allocator, lambda result: result.ops_per_s)

    def memory(self, case: str, allocator: str) -> float | None:
        return self.median(case, allocator, lambda result: result.peak_rss_kb)

    def faults(self, case: str, allocator: str) -> float | None:
        return self.median(case, allocator, lambda result: result.minor_faults)

    def spread(self, case: str, allocator: str, rested: bool) -> float | None:
        """Resident memory at the end, as a multiple of what is live."""
        if not any(result.live_kb for result in self.of(case, allocator)):
            return None
        return self.median(case, allocator,
                           lambda result: (result.rested_rss_kb if rested else result.rss_kb) / (result.live_kb or 1))

    def best_peer(self, case: str) -> str | None:
        """The fastest peer of a case."""
        measured = [(speed, name) for name in self.peers if (speed := self.speed(case, name))]
        return max(measured)[1] if measured else None

    def leanest_peer(self, case: str) -> str | None:
        """The peer with the lowest peak of memory in a case."""
        measured = [(memory, name) for name in self.peers if (memory := self.memory(case, name))]
        return min(measured)[1] if measured else None

    def speed_ratio(self, case: str, ours: str, other: str | None) -> Ratio | None:
        """Median, lowest and highest of the per-round ratios."""
        if other is None:
            return None
        theirs = {result.round: result.ops_per_s for result in self.of(case, other)}
        ratios = [result.ops_per_s / theirs[result.round] for result in self.of(case, ours)
                  if theirs.get(result.round)]
        if not ratios:
            return None
        return Ratio(case, statistics.median(ratios), min(ratios), max(ratios), other)

    def memory_ratio(self, case: str, ours: str, other: str | None) -> Ratio | None:
        our_peak = self.memory(case, ours)
        their_peak = self.memory(case, other) if other is not None else None
        if other is None or not our_peak or not their_peak:
            return None
        ratio = our_peak / their_peak
        return Ratio(case, ratio, ratio, ratio, other)

    def leanest_overall(self) -> str | None:
        """The peer with the lowest geometric mean of peaks, over the cases that every peer finished."""
        common = [case for case in self.cases if all(self.memory(case, name) for name in self.peers)]
        means = [(geometric_mean(self.memory(case, name) or 0 for case in common), name)
                 for name in self.peers]
        return min(means)[1] if common and means else None


def table(title: str, header: list[str], rows: list[list[str]]) -> str:
    """Columns as wide as needed, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [title]
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        lines.append("  " + "  ".join(cells).rstrip())
    return "\n".join(lines)


def number(value: float | None, scale: float = 1.0, digits: int = 2) -> str:
    return "-" if value is None else f"{value / scale:,.{digits}f}"


def rate(ops_per_s: float | None) -> str:
    """Millions per second, with more digits where there is less to show."""
    if ops_per_s is None:
        return "-"
    return number(ops_per_s, 1e6) if ops_per_s >= 1e6 else f"{ops_per_s / 1e6:.3g}"


def ours_in(results: Results) -> list[str]:
    """HAKMEM, then its variants."""
    return [name for name in results.allocators if name not in results.peers and name != FLOOR]


def main_column(results: Results) -> str | None:
    """The column that the tables set against the peers: HAKMEM, or the first variant without it."""
    return next(iter(ours_in(results)), None)


def ratio_cells(ratio: Ratio | None) -> list[str]:
    return [f"{ratio.value:.3f}", f"{ratio.low:.2f}..{ratio.high:.2f}"] if ratio else ["-", "-"]


def speed_table(results: Results) -> str:
    names, ours = results.allocators, main_column(results)
    header = ["", *names] + ([f"{ours}/best", "range", "best"] if ours else [])
    rows = []
    for case in results.measured_cases():
        row = [case, *(rate(results.speed(case, name)) for name in names)]
        if ours:
            best = results.best_peer(case)
            row += [*ratio_cells(results.speed_ratio(case, ours, best)), best or "-"]
        rows.append(row)
    return table("Speed, millions of operations per second, median; higher is better", header, rows)


def variant_table(results: Results, name: str, base: str) -> str:
    """Before and after: one of our columns against another."""
    rows = []
    for case in results.measured_cases():
        memory = results.memory_ratio(case, name, base)
        rows.append([case, *ratio_cells(results.speed_ratio(case, name, base)),
                     f"{memory.value:.3f}" if memory else "-"])
    return table(f"{name} / {base}", ["", "speed", "range", "memory"], rows)


def memory_table(results: Results) -> str:
    names, ours = [name for name in results.allocators if name != FLOOR], main_column(results)
    header = ["", *names] + ([f"{ours}/leanest", "leanest"] if ours else [])
    rows = []
    for case in results.measured_cases():
        row = [case, *(number(results.memory(case, name), 1024) for name in names)]
        if ours:
            ratio = results.memory_ratio(case, ours, results.leanest_peer(case))
            row += [f"{ratio.value:.3f}", ratio.other] if ratio else ["-", "-"]
        rows.append(row)
    return table("Peak resident memory, MiB, median; lower is better", header, rows)


def faults_table(results: Results) -> str:
    names = [name for name in results.allocators if name != FLOOR]
    rows = [[case, *(number(results.faults(case, name), 1, 0) for name in names)]
            for case in results.measured_cases()]
    return table("Minor page faults of the process, median", ["", *names], rows)


def spread_table(results: Results) -> str:
    """Empty where no program says what it holds at the end."""
    names = [name for name in results.allocators if name != FLOOR]
    rows = []
    for case in results.measured_cases():
        for rested, when in ((False, "at the end"), (True, "after a rest")):
            cells = [results.spread(case, name, rested) for name in names]
            if any(cell is not None for cell in cells):
                rows.append([f"{case}, {when}", *(number(cell) for cell in cells)])
    return table("Resident memory / live memory, median; lower is better", ["", *names], rows) if rows else ""


def mean_line(results: Results, label: str, ratios: list[Ratio | None], worst: Callable[..., Ratio]) -> str:
    """A geometric mean with the number of cases behind it and the least favourable of them."""
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return f"{label}: not measured"
    last = worst(known, key=lambda ratio: ratio.value)
    return (f"{label}: {geometric_mean(ratio.value for ratio in known):.3f}"
            f"  ({len(known)} of {len(results.cases)} benchmarks, worst {last.case} {last.value:.3f})")


def summary_of(results: Results, ours: str) -> list[str]:
    cases, leanest = results.measured_cases(), results.leanest_overall()
    lines = [
        mean_line(results, f"speed,  {ours} / best peer of each benchmark",
                  [results.speed_ratio(case, ours, results.best_peer(case)) for case in cases], min),
        mean_line(results, f"memory, {ours} / {leanest or 'no peer'}, the leanest peer overall",
                  [results.memory_ratio(case, ours, leanest) for case in cases], max),
        mean_line(results, f"memory, {ours} / leanest peer of each benchmark",
                  [results.memory_ratio(case, ours, results.leanest_peer(case)) for case in cases], max),
    ]
    if FLOOR in results.allocators:
        lines.append(mean_line(results, f"speed,  {ours} / floor",
                               [results.speed_ratio(case, ours, FLOOR) for case in cases], min))
    if ours != HAKMEM and HAKMEM in results.allocators:
        lines.append(mean_line(results, f"speed,  {ours} / {HAKMEM}",
                               [results.speed_ratio(case, ours, HAKMEM) for case in cases], min))
        lines.append(mean_line(results, f"memory, {ours} / {HAKMEM}",
                               [results.memory_ratio(case, ours, HAKMEM) for case in cases], max))
    return lines


def summary(results: Results) -> str:
    lines = ["Geometric means"]
    for ours in ours_in(results):
        lines += ["  " + line for line in summary_of(results, ours)]
    return "\n".join(lines)


def failures_text(results: Results) -> str:
    lines = ["Failures"]
    for failure in results.failures:
        lines.append(f"  {failure.case} under {failure.allocator}, round {failure.round}: {failure.reason}")
    return "\n".join(lines)


def full_report(results: Results) -> str:
    parts = [speed_table(results), memory_table(results), faults_table(results), spread_table(results)]
    base = main_column(results)
    parts += [variant_table(results, name, base) for name in ours_in(results) if base and name != base]
    if results.failures:
        parts.append(failures_text(results))
    if ours_in(results):
        parts.append(summary(results))
    return "\n\n".join(part for part in parts if part)
