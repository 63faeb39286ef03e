"""Writes a result of the suite into docs/benchmarks.md (tables, charts), from which tools/gen_readme.py draws README's. The malloc
family has a place of its own, so its pairs may be measured by themselves.

Only what stands between the markers is replaced; the reasons beside the tables are written by hand.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import drawing
import session
import tables
from drawing import Bar, Point
from figures import Figures, memory_of, time_of
from hakmem_lab.target.allocators import SYSTEM
from hakmem_lab.terminal.errors import LabError
from session import Head, Results
from tables import Table

CHARTS = Path("docs") / "benchmarks"
DOCUMENT = Path("docs") / "benchmarks.md"


def markdown(table: Table, title: str = "### ") -> str:
    """A table as GitHub shows it, numbers to the right."""

    def row(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    texts = table.title in ("Environment", "Left out", "What has to hold")
    words = ("best peer", "leanest", "what it does", "")
    rule = ["---" if place == 0 or texts or name in words else "--:" for place, name in enumerate(table.header)]
    heading = [f"{title}{table.title}", "", table.note, ""] if title else []
    return "\n".join([*heading, row(table.header), row(rule), *(row(cells) for cells in table.rows)])


def comma_separated(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


def run_of(head: Head, rounds: str) -> str:
    """When a file was measured, and how often."""
    quick = ", QUICK: the figures mean nothing" if head.plan.quick else ""
    return f"{head.created:%Y-%m-%d}, {rounds}, seed {head.plan.seed}{quick}"


def environment(head: Head, rounds: str, others: Sequence[Figures] = ()) -> str:
    """Where, when and with what: without names that belong to one machine. The other files' benchmarks are named."""
    facts = dict(head.machine.facts)
    facts.pop("load", None)
    facts["kernel"] = re.sub(r"(\d+\.\d+)\S*", r"\1", facts.get("kernel", "unknown"), count=1)
    rows = [[name, value] for name, value in facts.items()]
    rows.append(["commit", head.commit or "unknown"])
    rows.append(["run", run_of(head, rounds)])
    rows += [[f"run of {', '.join(case.name for case in other.head.cases)}", run_of(other.head, other.rounds)] for other in others]
    rows += [[each.name, each.description] for each in head.allocators]
    return markdown(Table("Environment", "", ["", ""], rows), title="")


def charts(figures: Figures) -> dict[str, str]:
    """The files' names and contents."""
    found: dict[str, str] = {}
    points = []
    for name in figures.names:
        time, memory = (figures.mean_ratio(name, SYSTEM, get) for get in (time_of, memory_of))
        if time is not None and memory is not None:
            points.append(Point(name, time.value, memory.value, name == figures.ours))
    if len(points) > 1:
        found["time-memory.svg"] = drawing.scatter(
            points, "Time against peak memory, geometric means, the system's malloc = 1", "time", "peak memory"
        )
    if figures.ours:
        rows = [
            Bar(case.name, ratio.value, ratio.low, ratio.high)
            for case in figures.cases
            if (ratio := figures.to_best(case.name, figures.ours)) is not None
        ]
        if rows:
            found["ratios.svg"] = drawing.bars(
                rows, "Time of HAKMEM by that of each benchmark's best peer; below 1 is faster"
            )
    return found


def replace(text: str, name: str, body: str, where: str) -> str:
    """The text with what stands between its markers replaced; a LabError when it has none."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise LabError(f"{where} has no place between {begin} and {end}")
    return f"{text[: text.index(begin)]}{begin}\n\n{body}\n\n{end}{text[text.index(end) + len(end) :]}"


def full(figures: Figures, facts: str) -> str:
    """What docs/benchmarks.md holds."""
    parts = [facts]
    for name in charts(figures):
        parts.append(f"![{name.partition('.')[0]}]({CHARTS.name}/{name})")
    return "\n\n".join(parts + [markdown(table) for table in tables.page_tables(figures)])


def of_musl(figures: Figures) -> str:
    """What docs/benchmarks.md holds of a run on musl."""
    found = [tables.means(figures), *tables.beside_system(figures), tables.failures(figures, missing=False)]
    return "\n\n".join([environment(figures.head, figures.rounds), *(markdown(table) for table in found if table is not None)])


def publish(files: Sequence[Results], root: Path) -> None:
    """Replaces the tables, charts and files of medians; of a run on musl its tables. Several files are put together."""
    kept = session.joined(files)
    if any(case.group == "scaling" for case in kept.head.cases):
        raise LabError("the file is a result of ./dev bench --scaling", "Publish it with ./dev bench --scaling --publish.")
    figures = Figures(kept)
    first, *others = map(Figures, files)
    facts = environment(first.head, first.rounds, others)
    if not figures.cases and not figures.family:
        raise LabError("the file holds no measured round", "Let the suite run longer.")
    where = root / DOCUMENT
    text = where.read_text(encoding="utf-8")
    if figures.on_musl:
        text = replace(text, "musl", of_musl(figures), str(DOCUMENT))
    elif figures.cases:
        (root / CHARTS).mkdir(exist_ok=True)
        for name, content in charts(figures).items():
            (root / CHARTS / name).write_text(content, encoding="utf-8")
        for table in tables.all_tables(figures):
            if table.title in tables.BESIDE_THE_PAGE:
                beside = root / CHARTS / tables.BESIDE_THE_PAGE[table.title]
                beside.write_text(comma_separated(table.header, table.rows), encoding="utf-8")
        text = replace(text, "suite", full(figures, facts), str(DOCUMENT))
    if figures.family:
        head = [] if figures.cases else [facts]
        text = replace(text, "family", "\n\n".join([*head, *map(markdown, tables.family(figures))]), str(DOCUMENT))
    where.write_text(text, encoding="utf-8")
