#!/usr/bin/env python3
"""What hardened mode costs: processor time per operation of the micro benchmarks, in ratios.

  bench/hardened.py [--real] [--rounds N] [--parts] [--peer LIBRARY] [--build FOLDER] [--only REGEX]

Columns are configurations of one library: `off` (HAKMEM_HARDEN=0, in ns per operation), `on`, and with --parts each part of it
alone (`quarantine`: beside zero_size, since it is no part that can be alone); with --peer another library, preloaded in HAKMEM's place. They run interleaved; each figure is
the median of the rounds. All but `off` are in relation to it; the last line is the geometric mean. --peer adds a column `on/peer`.
--real: whole programs, in relation to the C library's malloc; each figure but the first is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import resource
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
REAL = {"json": (sys.executable, "-c", JSON), "python": (sys.executable, "-c", PARSE), "perl": ("perl", "-e", HASH),
        "sqlite": ("sqlite3", ":memory:", SORT)}
Environment = dict[str, str]


def configurations(library: Path, parts: bool, peer: Path | None) -> dict[str, Environment]:
    """Name and environment of each, in the order of the columns."""
    every = {"off": {"HAKMEM_HARDEN": "0"}, "on": {"HAKMEM_HARDEN": "1"}}
    for part in PARTS if parts else ():
        every[part] = {"HAKMEM_HARDEN": part, "HAKMEM_HARDEN_QUARANTINE": "0"}
    if parts:
        every["quarantine"] = {"HAKMEM_HARDEN": "zero_size"}
    for environment in every.values():
        environment["LD_PRELOAD"] = str(library)
    if peer is not None:
        every["peer"] = {"LD_PRELOAD": str(peer)}
    return every


def run(command: list[str], environment: Environment) -> float:
    """Nanoseconds of processor time per operation."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, env={**clean, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    operations = sum(float(speed) * float(seconds)
                     for speed, seconds in re.findall(r"ops_per_s=(\S+) seconds=(\S+)", done.stdout))
    return spent * 1e9 / operations


def run_real(name: str, environment: Environment) -> float:
    """Milliseconds of processor time."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HAKMEM_")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(REAL[name], env={**clean, "PYTHONMALLOC": "malloc" if name == "json" else "default", **environment},
                   stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1e3


def compare_real(every: dict[str, Environment], rounds: int, only: str) -> None:
    every = {"glibc": {}, **every}
    names = list(every)[1:]
    print("| Program | glibc, ms | " + " | ".join(names) + " |\n|---|---|" + "---|" * len(names))
    means: dict[str, list[float]] = {name: [] for name in names}
    for program in (name for name in REAL if re.search(only, name)):
        times = [{name: run_real(program, environment) for name, environment in every.items()} for _ in range(rounds)]
        for name in names:
            means[name].append(statistics.median(time[name] / time["glibc"] for time in times))
        print(f"| {program} | {statistics.median(time['glibc'] for time in times):.0f} | "
              + " | ".join(f"{means[name][-1]:.2f}" for name in names) + " |", flush=True)
    print("| geometric mean | | " + " | ".join(f"{statistics.geometric_mean(means[name]):.2f}" for name in names) + " |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--peer", type=Path)
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    every = configurations(arguments.build / "libhakmem.so", arguments.parts, arguments.peer)
    if arguments.real:
        compare_real(every, arguments.rounds, arguments.only)
        return 0
    programs = [program for program in PROGRAMS if re.search(arguments.only, program)]
    rows: dict[str, dict[str, float]] = {}
    for program in programs:
        figures: dict[str, list[float]] = {name: [] for name in every}
        for _ in range(arguments.rounds):
            for name, environment in every.items():
                name_and_arguments = program.split()
                command = [str(arguments.build / name_and_arguments[0]), *name_and_arguments[1:]]
                figures[name].append(run(command, environment))
        rows[program] = {name: statistics.median(values) for name, values in figures.items()}
    names = [name for name in every if name != "off"]
    if arguments.peer is not None:
        names.append("on/peer")
    print("| Program | off, ns | " + " | ".join(names) + " |")
    print("|---|---|" + "---|" * len(names))
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for program, row in rows.items():
        cells = []
        for name in names:
            ratios[name].append(row["on"] / row["peer"] if name == "on/peer" else row[name] / row["off"])
            cells.append(f"{ratios[name][-1]:.2f}")
        print(f"| `{program}` | {row['off']:.1f} | " + " | ".join(cells) + " |")
    means = [f"{math.exp(statistics.fmean(map(math.log, ratios[name]))):.2f}" for name in names]
    print("| geometric mean | | " + " | ".join(means) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
