#!/usr/bin/env python3
"""What hardened mode costs and finds, beside the allocators that harden malloc (`./dev setup --hardened-peers` brings them).

  bench/hardened.py --real [--rounds N] [--publish]   whole programs: processor time and peak memory; and what each allocator notices
  bench/hardened.py --misuse [--cases]                what it notices alone; --cases: each case's command and outcome
  bench/hardened.py [--rounds N] [--parts]            processor time per operation of the micro benchmarks

Allocators run interleaved. Of whole programs each figure is the median of the rounds' ratios to the C library's malloc, of the micro
benchmarks the ratio of the medians to HAKMEM_HARDEN=0. --parts: each part of hardened mode alone too (`quarantine`: beside zero_size,
since it is no part that can be alone). --publish writes docs/security.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import detected
from allocators import Allocator, find_hardened, why_not_loaded
from memory.memory import code_of, facts_of_machine, publish

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/security.md")
PARTS = ("canary", "zero", "random", "quarantine", "guards", "regions", "zero_size")
PROGRAMS = ("bench_tiny_hot 16 8000000", "bench_random_mixed 1500000 400", "bench_mid_large_mt 2 20000 64",
            "bench_large_mt 2 3000", "larson 1 8 1000 500 100 4141 2", "bench_tree 14 10", "bench_remote oneway 1 200000",
            "bench_remote exchange 1 200000", "bench_thread_churn 400", "bench_calloc 4096 16 20", "bench_realloc all 2")
JSON = ("import json; d = [{'id': i, 'name': 'user %d' % i, 'tags': ['a%d' % (i % 7), 'b', 'c' * (i % 30)], 'v': i * 1.5, 'n': None, "
        "'sub': {'x': i, 'y': [i, i + 1, i + 2]}} for i in range(5000)]\nfor _ in range(6): json.loads(json.dumps(d))")
PARSE = "import ast, json.decoder as d; source = open(d.__file__).read()\nfor _ in range(40): ast.parse(source)"
HASH = ("my %h; for my $i (1..120000) { $h{\"k$i\"} = [$i, \"v$i\"]; } my $s = 0; "
        "for my $k (sort keys %h) { $s += $h{$k}[0]; delete $h{$k} if $s % 3 == 0; } my @a = map { join(',', $_, 2 * $_) } 1..60000;")
SORT = ("with recursive c(x) as (select 1 union all select x + 1 from c where x < 300000) select sum(length(y)) from "
        "(select x, printf('%d-%s', x, hex(x)) y from c order by y);")
SUITE = ROOT / "bench" / "suite" / "real"
REAL = {"json": ("env", "PYTHONMALLOC=malloc", sys.executable, "-c", JSON), "python": (sys.executable, "-c", PARSE),
        "g++": ("g++", "-std=c++20", "-O1", "-c", "-o", "/dev/null", str(SUITE / "heavy.cpp")), "sqlite": ("sqlite3", ":memory:", SORT),
        "lua": ("lua5.4", str(SUITE / "objects.lua"), "25"), "perl": ("perl", "-e", HASH)}
Spent = dict[str, float]  # seconds, peak_kb, operations


@dataclass(frozen=True)
class Column:
    name: str
    allocator: Allocator
    settings: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        clean = {name: value for name, value in self.allocator.environment().items() if not name.startswith("HAKMEM_")}
        return {**clean, **self.settings}


def columns(options: argparse.Namespace) -> list[Column]:
    """HAKMEM by default and hardened, then its parts, then the others."""
    ours = Allocator("hakmem", "ours", (options.build / "libhakmem.so").absolute())
    found = [Column("HAKMEM", ours, {"HAKMEM_HARDEN": "0"}), Column("HAKMEM hardened", ours, {"HAKMEM_HARDEN": "1"})]
    for part in PARTS if options.parts else ():
        alone = "zero_size" if part == "quarantine" else part
        found.append(Column(part, ours, {"HAKMEM_HARDEN": alone, **({} if part == "quarantine" else {"HAKMEM_HARDEN_QUARANTINE": "0"})}))
    given = dict(each.rpartition("=")[::2] for each in options.peer)
    for name, library in {**find_hardened(), **{name or Path(path).stem: Path(path).absolute() for name, path in given.items()}}.items():
        # mimalloc ignores some mistakes, and says so only when asked.
        found.append(Column(name, Allocator(name, "peer", library), {"MIMALLOC_SHOW_ERRORS": "1"} if "mimalloc" in name else {}))
    for column in list(found):
        problem = why_not_loaded(column.allocator, options.build / "bench_tiny_hot")
        if problem is not None:
            print(f"{column.name}: left out: {problem}", file=sys.stderr)
            found.remove(column)
    return found


def run(command: tuple[str, ...], environment: dict[str, str]) -> Spent | None:
    """What the command and its children took; None if it failed."""
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, errors="replace") as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
    operations = sum(float(speed) * float(seconds) for speed, seconds in re.findall(r"ops_per_s=(\S+) seconds=(\S+)", said))
    return None if status else {"seconds": usage.ru_utime + usage.ru_stime, "peak_kb": usage.ru_maxrss, "operations": operations}


def table(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *("--:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *rows))


# --- whole programs ------------------------------------------------------------------------------------------


def measure(program: str, every: list[Column], rounds: int) -> dict[str, list[Spent | None]]:
    found: dict[str, list[Spent | None]] = {each.name: [] for each in every}
    for _ in range(rounds):
        for each in every:
            found[each.name].append(run(REAL[program], each.environment()))
    return found


def ratio(mine: list[Spent | None], system: list[Spent | None], key: str) -> float | None:
    """None if a round failed."""
    if None in mine:
        return None
    return statistics.median(each[key] / base[key] for each, base in zip(mine, system))


def mean(values: list[float | None]) -> str:
    """In brackets if programs failed."""
    there = [value for value in values if value is not None]
    text = f"{statistics.geometric_mean(there):.2f}" if there else "-"
    return text if len(there) == len(values) else f"({text})"


def compare_real(every: list[Column], options: argparse.Namespace) -> str:
    results = {}
    for program in (name for name in REAL if re.search(options.only, name)):
        if shutil.which(REAL[program][0]) is None:
            print(f"{program}: left out: there is no {REAL[program][0]}", file=sys.stderr)
            continue
        results[program] = measure(program, every, options.rounds)
    rows = []
    for each in every:
        times, peaks = ([ratio(found[each.name], found["glibc"], key) for found in results.values()] for key in ("seconds", "peak_kb"))
        rows.append([each.name, *("fails" if time is None else f"{time:.2f}" for time in times), mean(times), mean(peaks)])
    return table(["", *results, "mean", "memory"], rows)


# --- misuse --------------------------------------------------------------------------------------------------


def compare_misuse(every: list[Column], options: argparse.Namespace) -> str:
    rows: list[list[str]] = []
    counted = {each.name: Counter() for each in every}
    for group, cases in ((name, cases) for name, cases in detected.GROUPS.items() if re.search(options.only, name)):
        cells = []
        for each in every:
            found = list(detected.outcomes(options.build, cases, each.environment()))
            for case, outcome in found if options.cases else ():
                library = each.allocator.shared_object
                settings = {**each.settings, **({"LD_PRELOAD": str(library)} if library else {})}
                words = [*(f"{name}={value}" for name, value in settings.items()), *detected.command(options.build, case)]
                print(f"{outcome}: {shlex.join(words)}", flush=True)
            cells.append(detected.cell(Counter(outcome for _, outcome in found)))
            counted[each.name].update(outcome for case, outcome in found if case[1] in detected.outside.KINDS)
        rows.append([group, str(len(cases)), *cells])
    rows.append(["all of the test `misuse.hardened.outside`", str(sum(counted["glibc"].values())), *(detected.cell(found) for found in counted.values())])
    return table(["Mistake", "cases", *(each.name for each in every)], rows)


def facts(every: list[Column], rounds: int) -> str:
    lines = facts_of_machine()
    lines["run"] = f"{datetime.date.today()}, median of {rounds} rounds"
    for each in every:
        library = each.allocator.shared_object
        packaged = datetime.date.fromtimestamp(library.stat().st_mtime) if each.name == "scudo" else ""
        lines[each.name] = code_of(each.allocator) + (f", {packaged}" if packaged else "") + \
            "".join(f", {name}={value}" for name, value in each.settings.items())
    return "\n".join(f"- {name}: {value}" for name, value in lines.items())


# --- micro benchmarks ----------------------------------------------------------------------------------------


def compare_micro(every: list[Column], options: argparse.Namespace) -> str:
    ratios: dict[str, list[float | None]] = {each.name: [] for each in every[1:]}
    rows = []
    for program in (program for program in PROGRAMS if re.search(options.only, program)):
        name, *rest = program.split()
        figures: dict[str, list[float]] = {each.name: [] for each in every}
        for _ in range(options.rounds):
            for each in every:
                spent = run((str(options.build / name), *rest), each.environment())
                figures[each.name] += [spent["seconds"] * 1e9 / spent["operations"]] if spent else []
        base = statistics.median(figures[every[0].name])
        for each in every[1:]:
            ratios[each.name].append(statistics.median(figures[each.name]) / base if figures[each.name] else None)
        rows.append([f"`{program}`", f"{base:.1f}", *("fails" if found[-1] is None else f"{found[-1]:.2f}" for found in ratios.values())])
    rows.append(["geometric mean", "", *map(mean, ratios.values())])
    return table(["Program", f"{every[0].name}, ns", *ratios], rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--misuse", action="store_true")
    parser.add_argument("--cases", action="store_true")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=LIBRARY", help="a library more, or in that one's place")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER")
    parser.add_argument("--only", default="", metavar="REGEX", help="only programs, or kinds of misuse, that match")
    parser.add_argument("--publish", action="store_true", help=f"with --real: write {PAGE}")
    options = parser.parse_args()
    if options.publish and not options.real:
        parser.error("--publish needs --real")
    every = columns(options)
    if not (options.real or options.misuse):
        print(compare_micro(every, options))
        return 0
    every.insert(0, Column("glibc", Allocator("system", "peer")))
    parts = [facts(every, options.rounds)]
    if options.real:
        parts.append("Processor time and peak memory, glibc = 1:\n\n" + compare_real(every, options))
    if options.misuse or options.publish:
        parts.append("Mistakes that end the program, + those that are reported and ignored:\n\n" + compare_misuse(every, options))
    print("\n\n".join(parts))
    if options.publish:
        publish("\n\n".join(parts), ROOT, PAGE, "hardened")
    return 0


if __name__ == "__main__":
    sys.exit(main())
