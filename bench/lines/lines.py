#!/usr/bin/env python3
"""Cache lines that move between cores: ./dev bench --lines [OPTIONS]

Runs six patterns with 2 to 64 threads on a simulator of 64 private caches, each thread on a core of its own, under
HAKMEM, the system's malloc and each peer, all unmodified. Counts which lines move, why, and behind which structure.
The same program gives the same figures each time; nothing depends on how busy the machine is. docs/scaling.md says
what is counted and what the model makes of it. Every run is kept in a file of JSON lines; runs that the file already
has are not repeated.

Exit status: 0 good, 1 worse than the kept figures or against the clock, 2 cannot be run, 77 skipped (no valgrind for tools).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench" / "lines"), str(ROOT / "bench")]

import clock
import tables
import tool
from allocators import HAKMEM, PEERS, SYSTEM, Allocator, describe, environment_facts, find_peers, why_not_loaded
from patterns import PATTERNS, THREADS, Pattern

import guard

BROKEN, SKIPPED = 2, 77


def gather(chosen: str | None, library: Path, probe: Path) -> list[Allocator]:
    """The allocators that can be run here, ours first."""
    installed = find_peers()
    names = chosen.split(",") if chosen else [HAKMEM, SYSTEM, *PEERS]
    found = []
    for name in names:
        if name not in (HAKMEM, SYSTEM, *PEERS):
            raise tool.Unavailable(f"--alloc: unknown {name}; known are {', '.join((HAKMEM, SYSTEM, *PEERS))}")
        path = library if name == HAKMEM else None if name == SYSTEM else installed[name]
        if path is None and name != SYSTEM:
            print(f"  {name:12} left out: not installed; ./dev setup --peers installs it")
            continue
        allocator = Allocator(name, "ours" if name == HAKMEM else "peer", path)
        problem = why_not_loaded(allocator, probe) if path is not None else None
        if problem is not None and name == HAKMEM:
            raise tool.Unavailable(f"{path}: {problem}")
        print(f"  {name:12} {'left out: ' + problem if problem else describe(allocator)}")
        if problem is None:
            found.append(allocator)
    return found


def count(folder: Path, build: Path, pattern: Pattern, threads: int, allocator: Allocator, seed: int) -> dict[str, Any]:
    """The report of one run.  Without the background thread: it wakes up by the machine's clock, not by the simulated one."""
    environment = {**guard.plain(allocator.environment()), "HAKMEM_BACKGROUND": "0"}
    command = [str(build / "bench_lines"), *pattern.arguments(threads)]
    return tool.run(folder, command, environment, [*pattern.window(threads), f"--seed={seed}"])


def load(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def measure(options: argparse.Namespace, folder: Path, allocators: list[Allocator], out: Path) -> list[dict[str, Any]]:
    rows = load(out)
    done = {(row["pattern"], row["threads"], row["allocator"]) for row in rows if row["type"] == "run" and "report" in row}
    out.parent.mkdir(parents=True, exist_ok=True)
    patterns = [each for each in PATTERNS if re.search(options.only, each.name)]
    counts = [int(each) for each in options.threads.split(",")]
    with out.open("a", encoding="utf-8") as file:
        head = {"type": "head", "facts": environment_facts(), "allocators": {a.name: describe(a) for a in allocators},
                "date": time.strftime("%Y-%m-%d"), "seed": options.seed}
        for row in ([] if rows else [head]):
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
        for pattern, threads, allocator in ((p, t, a) for p in patterns for t in counts for a in allocators):
            if (pattern.name, threads, allocator.name) in done:
                continue
            row = {"type": "run", "pattern": pattern.name, "threads": threads, "allocator": allocator.name}
            try:
                row["report"] = count(folder, options.build, pattern, threads, allocator, options.seed)
                print(f"  {pattern.name:13} {threads:3} {allocator.name:12} {tables.messages(row['report']):9.4f} per operation", flush=True)
            except (tool.Unavailable, subprocess.TimeoutExpired) as error:
                row["failed"] = str(error)[-300:]
                print(f"  {pattern.name:13} {threads:3} {allocator.name:12} failed: {error}", flush=True)
            rows.append(row)
            print(json.dumps(row), file=file, flush=True)
    return rows


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench --lines", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--alloc", metavar="NAME,NAME", help="only these allocators")
    parser.add_argument("--only", default="", metavar="REGEX", help="only patterns whose name matches")
    parser.add_argument("--threads", default=",".join(map(str, THREADS)), metavar="N,N", help="even, 64 at most")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the lengths of turns")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="another library in HAKMEM's place")
    parser.add_argument("--out", type=Path, default=ROOT / "hakmem-results" / "lines.jsonl", metavar="FILE")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a file's tables and run nothing")
    parser.add_argument("--publish", type=Path, metavar="FILE", help="write a file's tables and chart into docs")
    parser.add_argument("--guard", action="store_true", help="three patterns at 16 threads against the kept figures")
    parser.add_argument("--update", action="store_true", help="with --guard: keep what is counted")
    parser.add_argument("--clock", action="store_true", help="compare the order at two threads with the clock; wants a quiet machine")
    options = parser.parse_args(arguments)
    wrong = [n for n in options.threads.split(",") if not n.isdecimal() or int(n) % 2 or not 2 <= int(n) <= 64]
    if wrong:
        parser.error(f"--threads: {wrong[0]} is no even number from 2 to 64")
    return options


def run(options: argparse.Namespace) -> int:
    options.build = options.build.absolute()
    if not (options.build / "bench_lines").is_file():
        raise tool.Unavailable(f"{options.build} lacks bench_lines: build first, with ./dev build release")
    folder = tool.build(ROOT / "out" / "lines")
    library = (options.lib or options.build / "libhakmem.so").absolute()
    if options.guard:
        return guard.check(options, library, lambda pattern, threads, who: count(folder, options.build, pattern, threads, who, options.seed))
    allocators = gather(options.alloc, library, options.build / "bench_lines")
    rows = measure(options, folder, allocators, options.out)
    for table in tables.all_tables(rows):
        print(tables.text(table))
    print(f"results: {options.out}")
    return clock.check(rows, options.build, allocators) if options.clock else 0


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    try:
        if options.publish:
            tables.publish(load(options.publish), ROOT)
            return 0
        if options.show:
            for table in tables.all_tables(load(options.show)):
                print(tables.text(table))
            return 0
        return run(options)
    except tool.Unavailable as error:
        print(f"lines: {'skipped: ' if options.guard else ''}{error}")
        return SKIPPED if options.guard else BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
