#!/usr/bin/env python3
"""How long single calls take: quantiles of malloc and free in ns, and the fixed part of processes and threads, under HAKMEM and
every peer.

  ./dev bench --tail [--rounds N] [--only REGEX] [--alloc NAME[,NAME]] [--lib PATH] [--quick] [--publish]

Rounds are interleaved, allocators in random order; each figure is the median of the rounds. The time of an empty call is taken
off (bench/micro/bench_tail.c), so also most of what interrupts and other programs cost; what is left of those grows with the load.
--publish writes tables and a chart into docs/benchmarks.md, and all figures beside it.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

from allocators import HAKMEM, SYSTEM, Allocator, find_peers, why_not_loaded
from memory import memory

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT, CHART, ALL = Path("docs/benchmarks.md"), Path("docs/benchmarks/tail.svg"), Path("docs/benchmarks/tail.csv")
FIELDS = ("p50", "p99", "p99_9", "p99_99", "p99_999", "longest", "slow")
PATTERNS = {"small, one thread": "replace {} 1 20000 16 128", "mixed, one thread": "replace {} 1 20000 16 1040",
            "mixed, two threads": "replace {} 2 10000 16 1040", "large, two threads": "replace {} 2 200 4096 200000",
            "growth and shrink": "swing {} 2 20000 16 1040", "with pauses": "rest {} 2 10000 16 1040"}
QUANTILES = {"p50": 2, "p99": 1e2, "p99_9": 1e3, "p99_99": 1e4, "p99_999": 1e5}  # one call in so many takes longer
FIXED = "fixed"  # the pattern that is no distribution
FIXED_FIELDS = {"process": "a process", "first_malloc": "its first malloc", "first_thread": "its first thread", "thread": "a thread",
                "fork": "a fork beside 1 GiB"}
Figures = dict[str, list[dict[str, float]]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tail.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="only patterns whose name matches")
    parser.add_argument("--alloc", metavar="NAME[,NAME]", help="only these allocators")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="replaces HAKMEM's library")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that all runs, no figures")
    parser.add_argument("--publish", action="store_true", help="write the figures into docs/benchmarks.md")
    chosen = parser.parse_args()
    if chosen.publish and (chosen.quick or chosen.only or chosen.alloc):
        parser.error("--publish replaces all published figures: run it without --quick, --only and --alloc")
    return chosen


def allocators(chosen: argparse.Namespace) -> list[Allocator]:
    ours = (chosen.lib or chosen.build / "libhakmem.so").absolute()
    every = [Allocator(HAKMEM, "ours", ours), Allocator(SYSTEM, "peer"),
             *(Allocator(name, "peer", library) for name, library in find_peers().items() if library is not None)]
    wanted = [each for each in every if chosen.alloc is None or each.name in chosen.alloc.split(",")]
    return [each for each in wanted if each.shared_object is None or why_not_loaded(each, chosen.build / "bench_tail") is None]


def parts_of(said: str) -> dict[str, dict[str, float]]:
    """The fields of each result line, by the part that it names: malloc and free, or the fixed part."""
    lines = re.findall(r"^bench_\w+?(?:/(\w+))? (.*) args=", said, re.MULTILINE)
    return {part or FIXED: {name: float(value) for name, value in (field.split("=") for field in fields.split())}
            for part, fields in lines}


def run(allocator: Allocator, command: list[str]) -> dict[str, dict[str, float]]:
    return parts_of(subprocess.run(command, env=allocator.environment(), stdout=subprocess.PIPE, text=True, check=True).stdout)


def median(rounds: list[dict[str, float]], field: str) -> float:
    return statistics.median(each[field] for each in rounds)


def table(call: str, figures: Figures, heads: dict[str, str]) -> str:
    rows = [f"| {call}, ns | " + " | ".join(heads.values()) + " |", "| --- |" + " --: |" * len(heads)]
    for name, rounds in figures.items():
        rows.append(f"| {name} | " + " | ".join(f"{median(rounds, field):,.0f}" for field in heads) + " |")
    return "\n".join(rows)


# --- the page -----------------------------------------------------------------------------------------------------------


def beside_best(found: dict[str, dict[str, Figures]]) -> str:
    """HAKMEM's quantiles beside the best peer's of each."""
    heads = {name: name.replace("_", ".") for name in FIELDS if name not in ("p50", "slow")}
    rows = ["| ns; in brackets the best peer's | | " + " | ".join(heads.values()) + " |", "| --- | --- |" + " --: |" * len(heads)]
    for pattern, calls in found.items():
        for call, figures in calls.items():
            cells = []
            for field in heads:
                best = min((name for name in figures if name != HAKMEM), key=lambda name: median(figures[name], field))
                cells.append(f"{median(figures[HAKMEM], field):,.0f} ({median(figures[best], field):,.0f} {best})")
            rows.append(f"| {pattern} | {call} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def chart(found: dict[str, dict[str, Figures]]) -> str:
    curves = [memory.drawing.Curve(f"{call}: {pattern}", {name: [(QUANTILES[field], median(rounds, field) / 1000) for field in QUANTILES]
                                                   for name, rounds in figures.items()})
              for pattern, calls in found.items() for call, figures in calls.items()]
    return memory.drawing.curves(curves, HAKMEM, "One call in so many takes longer than so many microseconds")


def every_figure(found: dict[str, dict[str, Figures]]) -> str:
    text = io.StringIO()
    rows = [[pattern, call, name, *(f"{median(rounds, field):.0f}" for field in FIELDS)]
            for pattern, calls in found.items() for call, figures in calls.items() for name, rounds in figures.items()]
    csv.writer(text, lineterminator="\n").writerows([["pattern", "call", "allocator", *FIELDS], *rows])
    return text.getvalue()


def publish(found: dict[str, dict[str, Figures]], fixed: Figures, facts: list[str], root: Path) -> None:
    (root / CHART).write_text(chart(found), encoding="utf-8")
    (root / ALL).write_text(every_figure(found), encoding="utf-8")
    parts = ["\n".join(facts), f"![tail](benchmarks/{CHART.name})", beside_best(found), table("the fixed part", fixed, FIXED_FIELDS)]
    memory.publish("\n\n".join(parts), root, DOCUMENT, "tail")


def main() -> int:
    chosen = options()
    every = allocators(chosen)
    rounds, count = (1, 20000) if chosen.quick else (chosen.rounds, 2000000)
    commands = {name: ["bench_tail", *arguments.format(count).split()] for name, arguments in PATTERNS.items()}
    commands[FIXED] = ["bench_fixed", *(["2", "5", "1", "4"] if chosen.quick else [])]
    found: dict[str, dict[str, Figures]] = {}
    for pattern, (program, *arguments) in commands.items():
        if not re.search(chosen.only, pattern):
            continue
        calls = found[pattern] = {}
        for _ in range(rounds):
            for allocator in random.sample(every, len(every)):
                for call, fields in run(allocator, [str(chosen.build / program), *arguments]).items():
                    calls.setdefault(call, {each.name: [] for each in every})[allocator.name].append(fields)
        heads = {name: name.replace("_", ".").replace("slow", "per mille above 10 us") for name in FIELDS}
        print(f"\n### {pattern}: `{' '.join([program, *arguments])}`\n")
        print("\n\n".join(table(call, figures, FIXED_FIELDS if call == FIXED else heads) for call, figures in calls.items()), flush=True)
    if chosen.publish:
        facts = ["| | |", "| --- | --- |", *(f"| {name} | {value} |" for name, value in memory.facts_of_machine().items()),
                 f"| rounds | {rounds} |", *(f"| {each.name} | {memory.code_of(each)} |" for each in every)]
        publish({name: calls for name, calls in found.items() if name != FIXED}, found.get(FIXED, {}).get(FIXED, {}), facts, ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
