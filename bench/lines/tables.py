"""What the counts say: messages per operation, their causes, the hottest structures, and the model's throughput.

A message is a line that comes from another core's cache, or the notice to other cores to drop theirs before a write. The
program's own lines (its rings of pointers) are left out of what is compared, because they are the same for all; the model
counts them, because a core waits for them too.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent.parent / "suite"))

from drawing import Curve, curves
from patterns import PATTERNS

Report = Mapping[str, Any]
CAUSES = ("true", "false", "migration", "upgrade")
OURS = "hakmem"
MESSAGE_NS = 150  # a line or a notice from another core; 100 to 200 on machines of 64 cores and more
INSTRUCTION_NS = 0.15  # about 2.2 instructions a cycle at 3 GHz
SYSTEM_NS = 2000  # a short call that changes mappings, under the kernel's lock of the address space
MAPPING_CALLS = ("mmap", "munmap", "madvise", "mprotect", "mremap", "brk", "mincore")
CHART = "docs/scaling/lines.svg"
BESIDE = "docs/scaling/lines.csv"


@dataclass(frozen=True)
class Table:
    title: str
    about: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def total(report: Report, groups: Sequence[str], causes: Sequence[str] = CAUSES) -> float:
    return sum(report["groups"][group][cause] for group in groups for cause in causes) / report["operations"]


def messages(report: Report) -> float:
    """Per operation, of what the allocator has placed."""
    return total(report, ("metadata", "blocks"))


def structures(report: Report, most: int) -> list[str]:
    """The hottest structures that the allocator has placed, hottest first."""
    found = []
    for each in report["structures"]:
        if each["group"] == "program" or len(found) == most:
            continue
        where = "block" if each["group"] == "blocks" else each["memory"]
        per = sum(each[cause] for cause in CAUSES) / report["operations"]
        found.append(f"{where} in {each['code']} ({per:.2g})")
    return found


# --- the model --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Predicted:
    """Million operations per second, and which bound holds."""

    rate: float
    bound: str
    mapping_calls: float  # per second, in thousands


def predict(report: Report, cores: int) -> Predicted:
    """Of as many cores as were counted: start-up and what grows with the cores' number can't be told apart beyond them."""
    operations = report["operations"]
    own_ns = report["instructions"] / operations * INSTRUCTION_NS
    waits_ns = total(report, ("metadata", "blocks", "program")) * MESSAGE_NS
    calls = sum(report["calls"].get(name, 0) for name in MAPPING_CALLS) / operations
    bounds = {"cores": cores * 1000 / (own_ns + waits_ns + calls * SYSTEM_NS)}
    if report.get("busiest"):
        bounds["one line"] = 1000 / (report["busiest"] / operations * MESSAGE_NS)
    if calls > 0:
        bounds["mappings"] = 1000 / (calls * SYSTEM_NS)
    least = min(bounds, key=lambda name: bounds[name])
    return Predicted(bounds[least], least, calls * bounds[least] * 1000)


class Runs:
    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.head = next(row for row in rows if row["type"] == "head")
        runs = [row for row in rows if row["type"] == "run" and "report" in row]
        self.report: dict[tuple[str, int, str], Report] = {(r["pattern"], r["threads"], r["allocator"]): r["report"] for r in runs}
        self.patterns = [each for each in PATTERNS if any(key[0] == each.name for key in self.report)]
        self.threads = sorted({key[1] for key in self.report})
        self.names = list(dict.fromkeys(r["allocator"] for r in runs))

    def messages(self, pattern: str, threads: int, name: str) -> float | None:
        report = self.report.get((pattern, threads, name))
        return None if report is None else messages(report)


def number(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.4f}" if value < 0.01 else f"{value:.3g}"


# --- tables -----------------------------------------------------------------------------------------------------


def per_pattern(runs: Runs, pattern: str, about: str) -> Table:
    rows = []
    most = max(runs.threads)
    for name in runs.names:
        found = [runs.messages(pattern, threads, name) for threads in runs.threads]
        report = runs.report.get((pattern, most, name))
        busiest = number(report["busiest"] / report["operations"]) if report and "busiest" in report else "-"
        rows.append([name, *(number(each) for each in found), busiest])
    header = ["allocator", *(f"{n} threads" for n in runs.threads), "busiest line"]
    return Table(f"Messages per operation: {pattern}", f"{about}. Busiest line: at {most} threads.", header, rows)


def causes(runs: Runs) -> Table:
    """What the messages are, for a look at one allocator."""
    rows = []
    most = max(runs.threads)
    for pattern in runs.patterns:
        for name in runs.names:
            report = runs.report.get((pattern.name, most, name))
            if report is not None:
                each = [number(total(report, ("metadata", "blocks"), (cause,))) for cause in CAUSES]
                calls = sum(report["calls"].get(c, 0) for c in MAPPING_CALLS) / report["operations"] * 1000
                rows.append([pattern.name, name, *each, number(calls)])
    return Table("Causes", f"At {most} threads.", ["pattern", "allocator", *CAUSES, "mapping calls / 1000"], rows)


def goals(runs: Runs) -> Table:
    rows = []
    most = max(runs.threads)
    for pattern in runs.patterns:
        found = {name: runs.messages(pattern.name, most, name) for name in runs.names}
        have = {name: value for name, value in found.items() if value is not None}
        if OURS not in have:
            continue
        others = {name: value for name, value in have.items() if name != OURS}
        best = min(others, key=lambda name: others[name]) if others else OURS
        base = runs.messages(pattern.name, 8, OURS)
        growth = have[OURS] / base if base else None
        ratio = f"{have[OURS] / have[best]:.2f}" if have[best] else "-"
        rows.append([pattern.name, number(have[OURS]), f"{best}: {number(have[best])}", ratio,
                     "-" if growth is None else f"{growth:.2f}", "yes" if have[OURS] <= have[best] else "no"])
    return Table("Goals", f"HAKMEM at {most} threads beside the best of the others; growth from 8 threads; whether it has the fewest.",
                 ["pattern", "hakmem", "best other", "ratio", f"growth 8 to {most}", "fewest"], rows)


def hottest(runs: Runs) -> Table:
    most = max(runs.threads)
    rows = []
    for pattern in runs.patterns:
        for name in runs.names:
            report = runs.report.get((pattern.name, most, name))
            if report is not None:
                found = structures(report, 3)
                rows.append([pattern.name, name, *found, *["-"] * (3 - len(found))])
    return Table("Hottest structures", f"At {most} threads: the memory, the function from which most messages about it came, and how many"
                 " per operation. A block is memory that the program itself touches too; mapped: memory without a symbol.",
                 ["pattern", "allocator", "first", "second", "third"], rows)


def throughput(runs: Runs) -> Table:
    most = max(runs.threads)

    def rate(each: Predicted) -> str:
        return f"{each.rate:,.0f}" if each.rate >= 1000 else f"{each.rate:.3g}"

    short = {"cores": "", "one line": " (line)", "mappings": " (mappings)"}
    rows = []
    for name in runs.names:
        reports = [runs.report.get((pattern.name, most, name)) for pattern in runs.patterns]
        found = [None if report is None else predict(report, most) for report in reports]
        rows.append([name, *("-" if each is None else f"{rate(each)}{short[each.bound]}" for each in found)])
    about = f"Million operations per second on {most} cores, and what bounds them where it is not the cores: one line, or calls that change mappings."
    return Table("The model's throughput", about, ["allocator", *(pattern.name for pattern in runs.patterns)], rows)


def at_most_threads(runs: Runs) -> Table:
    """One row per allocator, at the largest number of threads."""
    most = max(runs.threads)
    rows = [[name, *(number(runs.messages(pattern.name, most, name)) for pattern in runs.patterns)] for name in runs.names]
    return Table("Messages per operation", f"At {most} threads; fewer threads and the busiest lines: [lines.csv](scaling/lines.csv).",
                 ["allocator", *(pattern.name for pattern in runs.patterns)], rows)


def beside_the_page(runs: Runs) -> list[list[str]]:
    """Every pattern's table as one, under a header: what docs/scaling/lines.csv holds."""
    found = [per_pattern(runs, each.name, each.about) for each in runs.patterns]
    return [["pattern", *found[0].header], *([each.name, *row] for each, table in zip(runs.patterns, found) for row in table.rows)]


def all_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    runs = Runs(rows)
    patterns = [per_pattern(runs, each.name, each.about) for each in runs.patterns]
    return [goals(runs), *patterns, causes(runs), hottest(runs), throughput(runs)]


def page_tables(rows: Sequence[Mapping[str, Any]]) -> list[Table]:
    """What a person reads in docs/scaling.md; --show prints all."""
    runs = Runs(rows)
    return [goals(runs), at_most_threads(runs), throughput(runs)]


def text(table: Table) -> str:
    grid = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in grid) for i in range(len(table.header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in grid]
    return "\n".join(["", table.title, table.about, *lines])


def markdown(table: Table) -> str:
    def row(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[") for cell in cells) + " |"

    rule = "| " + " | ".join("---" for _ in table.header) + " |"
    return "\n".join([f"#### {table.title}", "", table.about, "", row(table.header), rule, *(row(cells) for cells in table.rows)])


def chart(runs: Runs) -> str:
    found = [Curve(f"{pattern.name}", {name: [(float(n), value) for n in runs.threads
                                             if (value := runs.messages(pattern.name, n, name)) is not None]
                                      for name in runs.names}) for pattern in runs.patterns]
    return curves(found, OURS, "Messages between cores per operation, by threads")


def publish(rows: Sequence[Mapping[str, Any]], root: Path) -> None:
    """Replaces what stands between the markers of docs/scaling.md, and the chart."""
    runs = Runs(rows)
    facts = [f"| {name} | {value} |" for name, value in {**runs.head["allocators"], "run": runs.head["date"]}.items()]
    facts = [re.sub(r"/\S*/", "", line) for line in facts]
    parts = ["\n".join(["|  |  |", "| --- | --- |", *facts]), f"![messages per operation by threads]({CHART.partition('/')[2]})",
             *(markdown(table) for table in page_tables(rows))]
    where, picture = root / "docs" / "scaling.md", root / CHART
    before, after = "<!-- lines:begin -->", "<!-- lines:end -->"
    found = where.read_text(encoding="utf-8")
    start, end = found.index(before) + len(before), found.index(after)
    where.write_text(found[:start] + "\n\n" + "\n\n".join(parts) + "\n\n" + found[end:], encoding="utf-8")
    picture.parent.mkdir(exist_ok=True)
    picture.write_text(chart(runs), encoding="utf-8")
    with (root / BESIDE).open("w", encoding="utf-8", newline="") as beside:
        csv.writer(beside, lineterminator="\n").writerows(beside_the_page(runs))
