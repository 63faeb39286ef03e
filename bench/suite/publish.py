"""Writes a result of the suite into docs/benchmarks.md (tables, charts) and README.md (the short table). The malloc family has a place
of its own, so its pairs may be measured by themselves.

Only what stands between the markers is replaced; the reasons beside the tables are written by hand.
"""

from __future__ import annotations

import re
from pathlib import Path

import drawing
import tables
from drawing import Bar, Point
from figures import Figures, memory_of, time_of
from hakmem_lab.target.allocators import SYSTEM
from hakmem_lab.terminal.errors import LabError
from session import Head, Results
from tables import Table

CHARTS = Path("docs") / "benchmarks"
DOCUMENT, README = Path("docs") / "benchmarks.md", Path("README.md")
NAME = {DOCUMENT: "suite", README: "bench"}
MEANS = {"mean time": time_of, "mean memory": memory_of}  # places in README's sentences


def markdown(table: Table, title: str = "### ") -> str:
    """A table as GitHub shows it, numbers to the right."""

    def row(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    texts = table.title in ("Environment", "Left out", "What has to hold")
    rule = ["---" if place == 0 or texts else "--:" for place in range(len(table.header))]
    heading = [f"{title}{table.title}", "", table.note, ""] if title else []
    return "\n".join([*heading, row(table.header), row(rule), *(row(cells) for cells in table.rows)])


def environment(head: Head, rounds: str) -> str:
    """Where, when and with what: without names that belong to one machine."""
    facts = dict(head.machine.facts)
    facts.pop("load", None)
    facts["kernel"] = re.sub(r"(\d+\.\d+)\S*", r"\1", facts.get("kernel", "unknown"), count=1)
    rows = [[name, value] for name, value in facts.items()]
    rows.append(["commit", head.commit or "unknown"])
    rows.append(
        [
            "run",
            f"{head.created:%Y-%m-%d}, {rounds}, seed {head.plan.seed}"
            + (", QUICK: the figures mean nothing" if head.plan.quick else ""),
        ]
    )
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


def replace_words(text: str, figures: Figures, where: str) -> str:
    """The text with the means that stand in its sentences replaced; a LabError when it has no place for them."""
    for name, get in MEANS.items():
        ratio = figures.mean_ratio(figures.ours, SYSTEM, get) if figures.ours and SYSTEM in figures.names else None
        text, count = re.subn(
            rf"(<!-- {name} -->)[^<]*(<!-- / -->)",
            rf"\g<1>{ratio.value:.2f}\g<2>" if ratio else r"\g<0>",
            text,
        )
        if count != 1:
            raise LabError(f"{where} has no place <!-- {name} -->...<!-- / -->")
    return text


def full(figures: Figures) -> str:
    """What docs/benchmarks.md holds."""
    parts = [environment(figures.head, figures.rounds)]
    for name in charts(figures):
        parts.append(f"![{name.partition('.')[0]}]({CHARTS.name}/{name})")
    return "\n\n".join(parts + [markdown(table) for table in tables.all_tables(figures)])


def short(figures: Figures) -> str:
    """What README.md holds: the environment in a line, the means, a ratio per benchmark."""
    facts = figures.head.machine.facts
    kernel = re.sub(r"(\d+\.\d+)\S*", r"\1", facts.get("kernel", "unknown"), count=1)
    parts = [
        f"{facts.get('processor', 'unknown')}; {kernel}; {facts.get('C library', '')}; {figures.rounds}."
    ]
    means = tables.means(figures)
    if means is not None:
        parts.append(markdown(means, title=""))
    if figures.ours:
        rows = []
        for case in figures.cases:
            time = figures.to_best(case.name, figures.ours)
            leanest = figures.best(case.name, figures.fast_peers, memory_of)
            memory = figures.ratio(case.name, figures.ours, leanest, memory_of) if leanest else None
            rows.append(
                [case.name, case.about, *tables.ratio_cells(time)[:3], f"{memory.value:.2f}" if memory else "-"]
            )
        header = ["benchmark", "", "time / best peer", "95 %", "best peer", "memory / leanest fast peer"]
        parts.append(markdown(Table("", "", header, rows), title=""))
    return "\n\n".join(parts)


def publish(kept: Results, root: Path) -> None:
    """Replaces the tables and charts."""
    if any(case.group == "scaling" for case in kept.head.cases):
        raise LabError("the file is a result of ./dev bench --scaling", "Publish it with ./dev bench --scaling --publish.")
    figures = Figures(kept)
    if not figures.cases and not figures.family:
        raise LabError("the file holds no measured round", "Let the suite run longer.")
    if figures.family:
        where = root / DOCUMENT
        body = "\n\n".join([environment(figures.head, figures.rounds), *map(markdown, tables.family(figures))])
        where.write_text(replace(where.read_text(encoding="utf-8"), "family", body, str(DOCUMENT)), encoding="utf-8")
    if not figures.cases:
        return
    (root / CHARTS).mkdir(exist_ok=True)
    for name, content in charts(figures).items():
        (root / CHARTS / name).write_text(content, encoding="utf-8")
    for path, body in ((DOCUMENT, full(figures)), (README, short(figures))):
        where = root / path
        text = replace(where.read_text(encoding="utf-8"), NAME[path], body, str(path))
        where.write_text(replace_words(text, figures, str(path)) if path == README else text, encoding="utf-8")
