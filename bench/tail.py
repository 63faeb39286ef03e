#!/usr/bin/env python3
"""How long single calls take: quantiles of malloc and free in ns, under HAKMEM and every peer.

  ./dev bench --tail [--rounds N] [--only REGEX] [--alloc NAME[,NAME]] [--lib PATH] [--quick]

Rounds are interleaved, allocators in random order; each figure is the median of the rounds. The time of an empty call is taken
off (bench/micro/bench_tail.c), so also most of what interrupts and other programs cost; what is left of those grows with the load.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import subprocess
import sys
from pathlib import Path

from allocators import HAKMEM, SYSTEM, Allocator, find_peers, why_not_loaded

ROOT = Path(__file__).resolve().parent.parent
FIELDS = ("p50", "p99", "p99_9", "p99_99", "p99_999", "longest", "slow")
PATTERNS = {"small, one thread": "replace {} 1 20000 16 128", "mixed, one thread": "replace {} 1 20000 16 1040",
            "mixed, two threads": "replace {} 2 10000 16 1040", "large, two threads": "replace {} 2 200 4096 200000",
            "growth and shrink": "swing {} 2 20000 16 1040", "with pauses": "rest {} 2 10000 16 1040"}
Figures = dict[str, list[dict[str, float]]]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tail.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="only patterns whose name matches")
    parser.add_argument("--alloc", metavar="NAME[,NAME]", help="only these allocators")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="replaces HAKMEM's library")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="one short round: shows that all runs, no figures")
    return parser.parse_args()


def allocators(chosen: argparse.Namespace) -> list[Allocator]:
    ours = (chosen.lib or chosen.build / "libhakmem.so").absolute()
    every = [Allocator(HAKMEM, "ours", ours), Allocator(SYSTEM, "peer"),
             *(Allocator(name, "peer", library) for name, library in find_peers().items() if library is not None)]
    wanted = [each for each in every if chosen.alloc is None or each.name in chosen.alloc.split(",")]
    return [each for each in wanted if each.shared_object is None or why_not_loaded(each, chosen.build / "bench_tail") is None]


def run(allocator: Allocator, build: Path, arguments: str) -> dict[str, dict[str, float]]:
    """The fields of malloc and of free."""
    done = subprocess.run([str(build / "bench_tail"), *arguments.split()], env=allocator.environment(), stdout=subprocess.PIPE,
                          text=True, check=True)
    lines = re.findall(r"^bench_tail/(\w+) (.*) args=", done.stdout, re.MULTILINE)
    return {call: {name: float(value) for name, value in (field.split("=") for field in fields.split())} for call, fields in lines}


def table(call: str, figures: Figures) -> str:
    heads = [name.replace("_", ".").replace("slow", "per mille above 10 us") for name in FIELDS]
    rows = [f"| {call}, ns | " + " | ".join(heads) + " |", "| --- |" + " --: |" * len(FIELDS)]
    for name, rounds in figures.items():
        medians = (statistics.median(each[field] for each in rounds) for field in FIELDS)
        rows.append(f"| {name} | " + " | ".join(f"{median:,.0f}" for median in medians) + " |")
    return "\n".join(rows)


def main() -> int:
    chosen = options()
    every = allocators(chosen)
    rounds, count = (1, 20000) if chosen.quick else (chosen.rounds, 2000000)
    for pattern, arguments in PATTERNS.items():
        if not re.search(chosen.only, pattern):
            continue
        found: dict[str, Figures] = {call: {each.name: [] for each in every} for call in ("malloc", "free")}
        for _ in range(rounds):
            for allocator in random.sample(every, len(every)):
                for call, fields in run(allocator, chosen.build, arguments.format(count)).items():
                    found[call][allocator.name].append(fields)
        print(f"\n### {pattern}: `bench_tail {arguments.format(count)}`\n")
        print("\n\n".join(table(call, figures) for call, figures in found.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
