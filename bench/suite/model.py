"""What the scaling experiment's runs say: throughput by threads, memory per sleeping thread, touches of shared words.

docs/scaling.md explains the model. A shared word is either one for the whole process, so that all cores wait for one
another at it, or one of many, touched by a few threads each. For the first kind the estimate is how much of the time
the word would be busy with 128 cores; for the second, how much of a core's own time goes into waiting for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from figures import interval_of
from hakmem_lab.target.allocators import FLOOR, HAKMEM
from session import Results, Sample
from tables import Table

GROUP, IDLE, COUNTS = "scaling", "idle", "counts"
IDLE_PREFIX, COUNTS_PREFIX = "idle:", "counts:"
BASE = 2  # threads with which the others are compared: one per core of a small machine
LEAST_RATIO = 0.90
IDLE_LIMIT = 64 << 10
CORES = 128
TRANSFER_NS = 150  # a line that another core has just written; 100 to 200 on machines of that size
LOCKED_NS = 2 * TRANSFER_NS + 200  # the lock's word comes and goes; inside, some lines of the books
SYSTEM_NS = 2000  # a short call that changes mappings, with the kernel's lock on the address space

Counts = Mapping[str, float]


def name_of(pattern: str, threads: int) -> str:
    return f"{pattern}@{threads}"


def split_name(case: str) -> tuple[str, int]:
    pattern, _, threads = case.rpartition("@")
    return pattern, int(threads)


def flatten(statistics: Mapping[str, Any]) -> dict[str, float]:
    """HAKMEM's figures as group.name; of the classes, the sum of what the model needs."""
    found = {
        f"{group}.{name}": float(value)
        for group, figures in statistics.items()
        if isinstance(figures, dict)
        for name, value in figures.items()
        if isinstance(value, (int, float))
    }
    for column in ("warm_hits", "collected"):
        found[f"classes.{column}"] = float(sum(row.get(column, 0) for row in statistics.get("classes", [])))
    return found


@dataclass(frozen=True)
class Shared:
    """A word, or a few on one line, that several threads write."""

    name: str
    touches: Callable[[Counts], float]  # in a run, at most
    cost_ns: float
    everywhere: bool  # one for the whole process


def spans_begun(c: Counts) -> float:
    return c["stages.own_hint"] + c["stages.claimed"] + c["stages.locked"]


def searched(c: Counts) -> float:
    return c["stages.claimed"] + c["stages.locked"]


SHARED = (
    Shared("arena's lock", lambda c: c["superslabs.lock_takes"], LOCKED_NS, True),
    Shared(
        "kernel's lock of mappings",
        lambda c: sum(c[f"system.{name}"] for name in ("mmap", "munmap", "madvise", "mremap")),
        SYSTEM_NS,
        True,
    ),
    # A claim and a release each, of runs that a search found; the worst case is that all meet in one SuperSlab.
    Shared("word of a SuperSlab found by search", lambda c: 2 * searched(c), TRANSFER_NS, True),
    # Written only when a bit changes: at most once per such claim and once per release.
    Shared("hints of 64 SuperSlabs", lambda c: 2 * searched(c), TRANSFER_NS, True),
    Shared(
        "counts of pool and tiers", lambda c: 2 * (c["superslabs.opened"] + c["superslabs.closed"]), TRANSFER_NS, True
    ),
    # A thread's begin and end; an adoption takes off and puts back at most four heaps.
    Shared("stack of parked heaps", lambda c: 2 * c["remote.heaps"] + 8 * c["stages.adopted"], TRANSFER_NS, True),
    # Another thread writes to it when it frees a block there, or claims slabs before a further one is opened.
    Shared("word of the heap's own SuperSlab", lambda c: 2 * c["stages.own_hint"], TRANSFER_NS, False),
    # Remote bits, the span's mark, the pending stack; the owner's line comes back once.
    Shared("span and stack of a block's owner", lambda c: 4 * c["remote.published"], TRANSFER_NS, False),
    # Written when a span begins and ends; read by the frees of whoever has a slab on the same line.
    Shared("line of the owner map", lambda c: 2 * spans_begun(c), TRANSFER_NS, False),
    # Before a further SuperSlab is opened, and by upkeep: two lines of each other heap.
    Shared(
        "lines of other heaps, looked through",
        lambda c: 2 * (c["stages.locked"] + c["upkeep.steps"]) * c["remote.heaps"],
        TRANSFER_NS,
        False,
    ),
)

COUNTED: tuple[tuple[str, Callable[[Counts], float]], ...] = (
    ("misses of the thread's cache", lambda c: c["total.misses"]),
    ("... served without a search (warm pool)", lambda c: c["classes.warm_hits"]),
    ("frees of others' blocks, as published", lambda c: c["remote.frees"]),
    ("published", lambda c: c["remote.published"]),
    ("slabs from the own SuperSlab", lambda c: c["stages.own_hint"]),
    ("an own empty span", lambda c: c["stages.own_empty"]),
    ("adopted", lambda c: c["stages.adopted"]),
    ("slab runs claimed anywhere", lambda c: c["stages.claimed"]),
    ("SuperSlabs opened (stage locked)", lambda c: c["stages.locked"]),
    ("arena's lock taken", lambda c: c["superslabs.lock_takes"]),
    ("lock waits", lambda c: c["remote.lock_waits"]),
    ("system calls", lambda c: sum(v for k, v in c.items() if k.startswith("system.") and k != "system.failed")),
    ("page faults", lambda c: c["process.minor_faults"]),
    ("steps of upkeep", lambda c: c["upkeep.steps"]),
)


class Runs:
    """The measured runs by case and allocator."""

    def __init__(self, kept: Results) -> None:
        broken = kept.broken()
        self.names = [each.name for each in kept.head.allocators]
        self._by: dict[tuple[str, str], dict[int, Sample]] = {}
        for sample in kept.samples:
            if sample.round > 0 and (sample.case, sample.allocator) not in broken:
                self._by.setdefault((sample.case, sample.allocator), {})[sample.round] = sample
        keys = [split_name(case.name) for case in kept.head.cases if case.group == GROUP]
        self.patterns = list(dict.fromkeys(pattern for pattern, _ in keys))
        self.threads = sorted({threads for _, threads in keys})
        self.about = {case.name: case.about for case in kept.head.cases}
        self.idle = [case for case in kept.head.cases if case.group == IDLE]

    def of(self, case: str, name: str) -> dict[int, Sample]:
        return self._by.get((case, name), {})

    def rate(self, pattern: str, threads: int, name: str) -> float | None:
        """Operations per second, the median."""
        found = [1 / sample.time for sample in self.of(name_of(pattern, threads), name).values()]
        return median(found) if found else None

    def ratios(self, pattern: str, threads: int, name: str) -> list[float]:
        """Throughput by that of BASE threads in the same round."""
        base, these = self.of(name_of(pattern, BASE), name), self.of(name_of(pattern, threads), name)
        return [base[number].time / these[number].time for number in sorted(these) if number in base]

    def ratios_by_floor(self, pattern: str, threads: int, name: str) -> list[float]:
        """The same, divided by the floor's."""
        base, these = self.of(name_of(pattern, BASE), FLOOR), self.of(name_of(pattern, threads), FLOOR)
        ours_base, ours = self.of(name_of(pattern, BASE), name), self.of(name_of(pattern, threads), name)
        rounds = sorted(base.keys() & these.keys() & ours_base.keys() & ours.keys())
        return [ours_base[r].time / ours[r].time / (base[r].time / these[r].time) for r in rounds]

    def memory(self, case: str, name: str, field: str) -> float | None:
        found = [sample.extra[field] for sample in self.of(case, name).values() if field in sample.extra]
        return median(found) if found else None

    def counts(self, pattern: str, threads: int) -> tuple[Counts, float] | None:
        """The counters of a run and its operations."""
        found = self.of(COUNTS_PREFIX + name_of(pattern, threads), HAKMEM)
        if not found:
            return None
        sample = next(iter(found.values()))
        return sample.extra, sample.extra["operations"]


def verdict_row(label: str, found: Mapping[int, list[float]]) -> list[str] | None:
    """A pattern's row; None when there is nothing to compare."""
    cells, least = [], 1.0
    for count, values in found.items():
        if not values:
            cells.append("-")
        elif count == BASE:
            cells.append("1")
        else:
            low, high = interval_of(values)
            least = min(least, median(values))
            cells.append(f"{median(values):.2f} ({low:.2f}..{high:.2f})")
    if all(cell == "-" for cell in cells):
        return None
    return [label, *cells, "yes" if least >= LEAST_RATIO else "no"]


def verdicts(runs: Runs) -> Table | None:
    """Each pattern as it is, and by the floor where the program has one: what it loses itself is no allocator's."""
    rows = []
    threads = [count for count in runs.threads if count != 1]
    for pattern in runs.patterns:
        rows.append(verdict_row(pattern, {count: runs.ratios(pattern, count, HAKMEM) for count in threads}))
        by_floor = {count: runs.ratios_by_floor(pattern, count, HAKMEM) for count in threads}
        rows.append(verdict_row(f"{pattern} / floor", by_floor))
    note = (
        f"HAKMEM's throughput by that of {BASE} threads in the same round: median and the lab's 95 % interval. "
        f"It must not fall below {LEAST_RATIO:.2f}. / floor: divided by the same figure of "
        "the ideal allocator, which shows what the program, the scheduler and the caches lose by themselves."
    )
    header = ["pattern", *(f"{count} threads" for count in threads), "holds"]
    found = [row for row in rows if row is not None]
    return Table("Throughput by threads", note, header, found) if found else None


def throughputs(runs: Runs) -> list[Table]:
    found = []
    for pattern in runs.patterns:
        rows = []
        for name in runs.names:
            cells = []
            for count in runs.threads:
                rate, ratios = runs.rate(pattern, count, name), runs.ratios(pattern, count, name)
                ratio = f" ({median(ratios):.2f})" if ratios and count != BASE else ""
                cells.append("-" if rate is None else f"{rate / 1e6:.3g}{ratio}")
            if any(cell != "-" for cell in cells):
                rows.append([name, *cells])
        about = next(text for case, text in runs.about.items() if case.startswith(f"{pattern}@"))
        note = f"{about}. Million operations per second, and the ratio to {BASE} threads."
        if rows:
            found.append(
                Table(
                    pattern,
                    note,
                    ["allocator", *(f"{count} thread{'s' * (count > 1)}" for count in runs.threads)],
                    rows,
                )
            )
    return found


def idle(runs: Runs) -> Table | None:
    names = [name for name in runs.names if any(runs.of(case.name, name) for case in runs.idle)]
    rows = []
    for case in runs.idle:
        cells = []
        for name in names:
            found = [runs.memory(case.name, name, field) for field in ("idle_bytes", "rested_bytes")]
            cells.append("-" if None in found else " / ".join(f"{(value or 0) / 1024:.1f}" for value in found))
        ours = runs.memory(case.name, HAKMEM, "rested_bytes")
        holds = "-" if ours is None else "yes" if ours <= IDLE_LIMIT else "no"
        label = case.name.removeprefix(IDLE_PREFIX)
        rows.append([label, f"{case.about}; {case.command[1]} threads", *cells, holds])
    note = (
        "KiB that have become resident per thread: right after the last free / after 2.5 s of sleep. "
        "background: HAKMEM_BACKGROUND=1; alone: HAKMEM_BACKGROUND=0; else as by default. "
        f"holds: HAKMEM stays within {IDLE_LIMIT >> 10} KiB."
    )
    return Table("Memory per idle thread", note, ["", "each thread", *names, "holds"], rows) if names else None


def worst(runs: Runs, pattern: str, get: Callable[[Counts], float]) -> float | None:
    """The most touches per operation over all numbers of threads but one."""
    found = [runs.counts(pattern, count) for count in runs.threads if count >= BASE]
    values = [get(each[0]) / each[1] for each in found if each is not None]
    return max(values) if values else None


def per_million(value: float | None) -> str:
    if value is None:
        return "-"
    millionth = value * 1e6
    return f"{millionth:,.0f}" if millionth >= 10 or millionth == 0 else f"{millionth:.2g}"


def counters(runs: Runs) -> Table | None:
    ends = [BASE, max(runs.threads)]
    columns = [(pattern, count) for pattern in runs.patterns for count in dict.fromkeys(ends)]
    found = {key: runs.counts(*key) for key in columns}
    columns = [key for key in columns if found[key] is not None]
    rows = []
    for label, get in COUNTED:
        cells = []
        for key in columns:
            counted = found[key]
            cells.append("-" if counted is None else per_million(get(counted[0]) / counted[1]))
        rows.append([label, *cells])
    note = "HAKMEM's statistics of one run each, start and end of the program included."
    header = ["per million operations", *(f"{pattern}, {count}" for pattern, count in columns)]
    return Table("Counters", note, header, rows) if columns else None


def percent(value: float) -> str:
    return (
        "< 0.01 %"
        if 0 < value < 1e-4
        else "0"
        if value == 0
        else f"{value * 100:.2g} %"
        if value < 1
        else f"{value:.2g} x"
    )


def estimate(touches: float, rate_per_core: float, word: Shared) -> float:
    """Of the word's time with CORES cores, or of the core's own."""
    return touches * rate_per_core * word.cost_ns * 1e-9 * (CORES if word.everywhere else 1)


def estimates(runs: Runs) -> Table | None:
    rows = []
    patterns = [
        each for each in runs.patterns if runs.rate(each, BASE, HAKMEM) and worst(runs, each, spans_begun) is not None
    ]
    for word in SHARED:
        cells = []
        for pattern in patterns:
            touches, rate = worst(runs, pattern, word.touches), runs.rate(pattern, BASE, HAKMEM)
            if touches is None or rate is None:
                cells.append("-")
            else:
                cells.append(f"{per_million(touches)}: {percent(estimate(touches, rate / BASE, word))}")
        rows.append([word.name, "all cores" if word.everywhere else "few", f"{word.cost_ns:g}", *cells])
    note = (
        "Touches per million operations, the most over all numbers of threads, and what follows. Shared by all cores: "
        f"the part of its time that the word would be busy if {CORES} cores ran the pattern as fast as each does here; "
        "from 100 % on (1 x) it is what bounds the throughput. Shared by few: the part of a core's time that it waits."
    )
    return Table("Shared words", note, ["word", "shared by", "ns a touch", *patterns], rows) if patterns else None


def failures(kept: Results) -> Table | None:
    rows = [[each.case, each.allocator, each.reason] for each in kept.failures]
    rows += [[each.name, "", each.reason] for each in kept.head.missing]
    return (
        Table("Left out", "A pair that failed is not run again.", ["case", "allocator", "why"], rows) if rows else None
    )


def all_tables(kept: Results) -> list[Table]:
    runs = Runs(kept)
    found: Sequence[Table | None] = [
        verdicts(runs),
        *throughputs(runs),
        idle(runs),
        counters(runs),
        estimates(runs),
        failures(kept),
    ]
    return [table for table in found if table is not None and table.rows]


def page_tables(kept: Results) -> list[Table]:
    """What a person reads in docs/scaling.md; --show prints all."""
    left_out = {"Counters", *Runs(kept).patterns}
    return [table for table in all_tables(kept) if table.title not in left_out]


def throughput_rows(kept: Results) -> list[list[str]]:
    """Million operations per second by pattern and allocator, under a header: what docs/scaling/throughput.csv holds."""
    found = [table for table in throughputs(Runs(kept)) if table is not None]
    return [["pattern", *found[0].header], *([table.title, *row] for table in found for row in table.rows)] if found else []
