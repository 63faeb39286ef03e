"""The suite's tables, as lists of rows; shown on a terminal by show.py, written to the documents by publish.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from figures import Claim, Figures, Get, Ratio, by_plain, claims, cpu_of, family_claims, faults_of, memory_of, system_claims, time_of
from hakmem_lab.target.allocators import FLOOR, SYSTEM
from listing import REAL


@dataclass(frozen=True)
class Table:
    title: str
    note: str
    header: list[str]
    rows: list[list[str]]


def duration(seconds: float | None) -> str:
    """With three digits and a unit that suits it."""
    if seconds is None:
        return "-"
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "us"), (1e9, "ns")):
        if abs(seconds) * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.2f} ns"


def mebibytes(bytes_: float | None) -> str:
    return "-" if bytes_ is None else f"{bytes_ / 2**20:.1f}"


def count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def ratio_cells(ratio: Ratio | None) -> list[str]:
    return (
        ["-", "-", "-"] if ratio is None else [f"{ratio.value:.3f}", f"{ratio.low:.2f}..{ratio.high:.2f}", ratio.other]
    )


def _per_case(figures: Figures, get: Get, shown) -> list[list[str]]:  # type: ignore[no-untyped-def]
    return [
        [case.name, *(shown(figures.median(case.name, name, get)) for name in figures.names)] for case in figures.cases
    ]


def overview(figures: Figures) -> Table | None:
    """Each benchmark in a row: what it is, and HAKMEM beside the best."""
    ours = figures.ours
    if ours is None:
        return None
    rows = []
    for case in figures.cases:
        leanest = figures.best(case.name, figures.fast_peers, memory_of)
        memory = figures.ratio(case.name, ours, leanest, memory_of) if leanest else None
        least = [f"{memory.value:.2f}", memory.other] if memory else ["-", "-"]
        rows.append([case.name, *ratio_cells(figures.to_best(case.name, ours)), *least, case.about])
    note = (
        "HAKMEM by the best peer in time, which is chosen on one half of the rounds and compared on the other, and by the leanest "
        "of the fast peers in peak memory. Below 1 is faster, or leaner."
    )
    return Table("By benchmark", note, ["benchmark", "time", "95 %", "best peer", "memory", "leanest", "what it does"], rows)


def times(figures: Figures) -> Table:
    names = [*figures.names, FLOOR] if figures.own_cost_cases() else figures.names
    rows = [
        [case.name, *(duration(figures.median(case.name, name, time_of)) for name in names)] for case in figures.cases
    ]
    note = "Median time per operation, or of the whole run where no operations are counted."
    return Table("Time", note, ["benchmark", *names], rows)


def memory(figures: Figures) -> Table:
    rows = _per_case(figures, memory_of, mebibytes)
    return Table("Peak memory", "Median of the most resident memory, MiB.", ["benchmark", *figures.names], rows)


def beyond(figures: Figures) -> Table | None:
    """The same without what no allocator is to blame for."""
    if not figures.bare:
        return None
    note = (
        "The same without what the program holds before its first request: the peak of a run that ends there. Where a "
        "program starts others, it is that of the first."
    )
    held = {case: mebibytes(size) for case, size in figures.bare.items()}
    rows = [[row[0], held.get(row[0], "-"), *row[1:]] for row in _per_case(figures, figures.beyond, mebibytes)]
    return Table("Peak memory beyond the program's own", note, ["benchmark", "program's own", *figures.names], rows)


def processor_time(figures: Figures) -> Table:
    rows = _per_case(figures, cpu_of, duration)
    return Table(
        "Processor time", "Median of user and system time of the whole run.", ["benchmark", *figures.names], rows
    )


def faults(figures: Figures) -> Table:
    rows = _per_case(figures, faults_of, count)
    return Table("Page faults", "Median of minor faults.", ["benchmark", *figures.names], rows)


def own_cost(figures: Figures) -> Table | None:
    cases = figures.own_cost_cases()
    if not cases:
        return None

    def cell(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1e9:.2f}"

    rows = [
        [case, cell(figures.median(case, FLOOR, time_of)), *(cell(figures.own_cost(case, n)) for n in figures.names)]
        for case in cases
    ]
    rows.append(["geometric mean", "", *(cell(figures.own_cost_mean(name)) for name in figures.names)])
    note = (
        "Nanoseconds per operation above the floor, which is the same loop with arrays in place of an allocator. "
        "Where a row is below 0 the allocator placed its blocks better than the floor does; the mean counts 0.05."
    )
    return Table("Own cost", note, ["benchmark", "floor itself", *figures.names], rows)


def means(figures: Figures, title: str = "Geometric means", group: str | None = None) -> Table | None:
    """Each allocator's geometric means over the benchmarks, of one group if it is named, the system's malloc being 1."""
    if SYSTEM not in figures.names:
        return None
    rows = []
    for name in figures.names:
        found = [figures.mean_ratio(name, SYSTEM, get, group) for get in (time_of, cpu_of, memory_of)]
        if found[0] is not None:
            rows.append([name, *(cell for ratio in found for cell in ratio_cells(ratio)[:2]), str(found[0].rounds)])
    rows.sort(key=lambda row: row[1])
    note = "By the system's malloc, medians of the rounds' ratios; below 1 is faster, or leaner."
    header = ["allocator", "time", "time, 95 %", "processor time", "processor, 95 %", "peak memory", "memory, 95 %", "benchmarks"]
    return Table(title, note, header, rows)


def real_means(figures: Figures) -> Table | None:
    """The same of real programs, which are the README's figures (tools/gen_readme.py)."""
    return means(figures, "Real programs", REAL)


def claimed(found: Sequence[Claim]) -> Table:
    words = {True: "yes", False: "no", None: "-"}
    rows = [[claim.text, claim.found, words[claim.holds]] for claim in found]
    return Table("What has to hold", "With protection on, as by default.", ["", "found", "holds"], rows)


def family(figures: Figures) -> list[Table]:
    """Warm pairs of the malloc family, which take part in nothing else."""
    if not figures.family or figures.ours is None:
        return []
    rows = []
    for case in figures.family:
        plain = by_plain(figures, case.name)
        cells = [duration(figures.median(case.name, name, time_of)) for name in figures.names]
        ratio = ratio_cells(figures.to_best(case.name, figures.ours))
        rows.append([case.name, *ratio, f"{plain:.2f}" if plain is not None else "-", *cells, case.about])
    header = ["pair", "ratio", "95 %", "best peer", "hakmem / plain", *figures.names, ""]
    note = "Median time of a pair. The ratio is that to the best peer, chosen as above; plain is malloc and free of 48 bytes."
    return [Table("The malloc family", note, header, rows), claimed(family_claims(figures))]


def beside_system(figures: Figures) -> list[Table]:
    """HAKMEM by the C library's malloc, and what has to hold there."""
    if figures.ours is None or SYSTEM not in figures.names:
        return []
    rows = []
    for case in figures.cases:
        peak, time = (figures.ratio(case.name, figures.ours, SYSTEM, get) for get in (memory_of, time_of))
        held, rounds = figures.median(case.name, SYSTEM, memory_of), peak.rounds if peak else 0
        rows.append([case.name, *ratio_cells(peak)[:2], mebibytes(held), *ratio_cells(time)[:2], str(rounds), case.about])
    note = "HAKMEM by the C library's malloc, whose peak is in the fourth column, in MiB. Below 1 is leaner, or faster."
    header = ["benchmark", "peak memory", "95 %", "MiB", "time", "95 %", "rounds", "what it does"]
    return [Table("By the system's malloc", note, header, rows), claimed(system_claims(figures))]


def failures(figures: Figures, missing: bool = True) -> Table | None:
    rows = [[each.case, each.allocator, each.reason] for each in figures.failures]
    rows += [[each.name, "", each.reason] for each in figures.head.missing if missing]
    return (
        Table("Left out", "A pair that failed is not run again.", ["benchmark", "allocator", "why"], rows)
        if rows
        else None
    )


# What a person reads on the page, and what stands beside it for programs; the others are printed by --show.
ON_THE_PAGE = {"Real programs", "Geometric means", "By benchmark", "Left out", "What has to hold"}
BESIDE_THE_PAGE = {"Time": "time.csv", "Peak memory": "peak-memory.csv"}


def page_tables(figures: Figures) -> list[Table]:
    return [table for table in all_tables(figures) if table.title in ON_THE_PAGE]


def all_tables(figures: Figures) -> list[Table]:
    if not figures.cases:  # the family alone
        return [table for table in [failures(figures)] if table is not None]
    found = [
        real_means(figures),
        means(figures),
        overview(figures),
        times(figures),
        memory(figures),
        beyond(figures),
        own_cost(figures),
        processor_time(figures),
        faults(figures),
        failures(figures),
        claimed(claims(figures)) if figures.ours else None,
    ]
    return [table for table in found if table is not None and table.rows]
