#!/usr/bin/env python3
"""Count what user heaps cost beside other allocators' heaps and pools: ./dev bench --heaps

Instructions, by callgrind, of a pair of calls or a block: the difference of two runs of table.c, without its loop. Bytes: resident ones of
a heap, and what can be used of a limit. Counts, so a busy machine does not matter; but a count of instructions is not a time: what waits
for memory costs more. APR and talloc are taken from the system or the folder of peers, std::pmr from the C++ compiler's library.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent))

from allocators import find_peers, installed_libraries
from hakmem_lab.target import peers

BUMP = 4           # HAK_HEAP_BUMP
BLOCKS = 1000      # of `fill`
LOOP = {"turns": 12.0, "fill0": 23.0, "fill64": 13.0, "reset0": 23.0, "reset64": 13.0}   # the program's own instructions, about
TIMEOUT_S = 300


@dataclass
class Column:
    name: str
    preload: Path | None = None
    opened: Path | None = None    # by the program
    flags: int = 0
    plain: bool = False           # malloc and free instead of heaps

    def environment(self) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "TABLE_", "LD_"))}
        if self.preload is not None:
            mine["LD_PRELOAD"] = str(self.preload)
        if self.opened is not None:
            mine["TABLE_OPENED"] = str(self.opened)
        if self.flags:
            mine["TABLE_FLAGS"] = str(self.flags)
        return mine


@dataclass(frozen=True)
class Row:
    what: str
    goal: str
    work: list[str]          # of table.c; "#": the number of rounds
    unit: Callable[[Program, Column, Row], float | None]
    rounds: tuple[int, int] = (200, 1200)
    per: float = 1.0
    factor: float = 1.0


class Program:
    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, column: Column, arguments: list[str], counted: bool) -> subprocess.CompletedProcess[str] | None:
        command = [str(self.path), *(["--malloc"] if column.plain else []), *arguments]
        if counted:
            command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--soname-synonyms=somalloc=nouserintercepts",
                       *command]
        try:
            done = subprocess.run(command, env=column.environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return None
        return done if done.returncode == 0 else None


def instructions(program: Program, column: Column, row: Row) -> float | None:
    """Of one round, by the difference of two runs."""
    totals = []
    for rounds in row.rounds:
        done = program.run(column, [str(rounds) if each == "#" else each for each in row.work], True)
        found = re.search(r"refs:\s+([\d,]+)", done.stderr) if done is not None else None
        if found is None:
            return None
        totals.append(int(found[1].replace(",", "")))
    return (totals[1] - totals[0]) / (row.rounds[1] - row.rounds[0]) / row.per - LOOP.get(row.work[0], LOOP.get(row.work[0] + row.work[1], 0))


def printed(program: Program, column: Column, row: Row) -> float | None:
    """What the program prints, as a part of `per`."""
    done = None if column.plain else program.run(column, row.work, False)
    found = re.search(r"bytes=(\d+)", done.stdout) if done is not None else None
    return None if found is None else int(found[1]) * row.factor / row.per


def turns(heaps: int, goal: str) -> Row:
    what = "malloc and free, its default heap" if heaps == 0 else f"a pair, {heaps:,} heap{'s' * (heaps > 1)} by turns"
    return Row(what, goal, ["turns", str(heaps), "#"], instructions, (2000, 12000))


def limit(kib: int, threads: int, goal: str) -> Row:
    return Row(f"usable of {kib} KiB, {threads} thread{'s' * (threads > 1)}, %", goal,
               ["limit", str(kib << 10), "1", str(threads)], printed, per=kib << 10, factor=100)


ROWS = [
    turns(1, "1.3 x malloc"), turns(2, ""), turns(8, ""), turns(9, ""), turns(1000, ""), turns(0, "1.2 x malloc"),
    Row("setting a default heap and back", "", ["switch", "0", "#"], instructions, (200, 2200)),
    Row("new to destroy, a block of 16 to 1040 bytes", ".7 of malloc", ["fill", "0", "#"], instructions, (20, 80), BLOCKS),
    Row("new to destroy, a block of 64 bytes", ".6 of peers", ["fill", "64", "#"], instructions, (20, 80), BLOCKS),
    Row("new to reset, a block of 16 to 1040 bytes", "", ["reset", "0", "#"], instructions, (20, 80), BLOCKS),
    Row("new to reset, a block of 64 bytes", "", ["reset", "64", "#"], instructions, (20, 80), BLOCKS),
    limit(256, 1, "85"), limit(256, 8, "85"), limit(1024, 1, "95"), limit(1024, 8, "95"), limit(4096, 1, "95"), limit(4096, 8, "95"),
    Row("bytes of a heap with a block of 100", "6144", ["one", "100", "1000"], printed),
]


def pool_library(name: str, pattern: str) -> Path | None:
    """From the system, or from a package unpacked in the folder of peers."""
    known = [*installed_libraries(), *(peers.folder() / name).rglob("lib*.so.*")]
    return next((path for path in known if re.fullmatch(pattern, path.name)), None)


def columns(library: Path, folder: Path) -> list[Column]:
    found = [Column("malloc", library, plain=True), Column("heap", library), Column("bump", library, flags=BUMP)]
    installed = find_peers()
    found += [Column(name, installed[name]) for name in ("mimalloc2", "mimalloc3", "jemalloc5") if installed[name] is not None]
    monotonic = folder / "monotonic.so"
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is not None and subprocess.run([compiler, "-O2", "-std=c++17", "-shared", "-fPIC", HERE / "monotonic.cpp", "-o", monotonic],
                                               check=False).returncode == 0:
        found.append(Column("pmr", opened=monotonic))
    for name, pattern in (("apr", r"libapr-1\.so\.0"), ("talloc", r"libtalloc\.so\.2")):
        pool = pool_library(name, pattern)
        if pool is not None:
            found.append(Column(name, opened=pool))
    missing = sorted({"mimalloc2", "mimalloc3", "jemalloc5", "pmr", "apr", "talloc"} - {each.name for each in found})
    if missing:
        print(f"not installed: {', '.join(missing)}")
    return found


def server(library: Path, folder: Path) -> None:
    """examples/http_heaps.c: instructions of a request in each way."""
    program, of = folder / "http_heaps", {}
    subprocess.run([os.environ.get("CC", "cc"), "-O2", f"-I{ROOT / 'include'}", ROOT / "examples" / "http_heaps.c", library,
                    f"-Wl,-rpath,{library.parent}", "-pthread", "-o", program], check=True)
    for kind in ("malloc", "heap"):
        of[kind] = instructions(Program(program), Column(kind), Row("", "", [kind, "#"], instructions, (100, 1100))) or 0.0
    print(f"\nexamples/http_heaps.c, instructions of a request: malloc {of['malloc']:,.0f}, heap {of['heap']:,.0f}"
          f" = {of['heap'] / of['malloc']:.2f} (goal .85)")


def show(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.0f}" if value >= 20 else f"{value:.1f}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="heaps.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="only rows that match")
    parser.add_argument("--ours", action="store_true", help="only HAKMEM's columns")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="HAKMEM's library (that of the build)")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER", help="the build (out/release)")
    options = parser.parse_args(arguments)
    if shutil.which("valgrind") is None:
        print("heaps: valgrind is not installed", file=sys.stderr)
        return 2
    library = (options.lib or options.build / "libhakmem.so").absolute()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", f"-I{ROOT / 'include'}", "-D_GNU_SOURCE", HERE / "table.c",
                        "-ldl", "-pthread", "-o", folder / "table"], check=True)
        program = Program(folder / "table")
        shown = [each for each in columns(library, folder) if not options.ours or each.preload == library]
        print(f"\n{'instructions, bytes, percent':46}{''.join(f'{each.name:>10}' for each in shown)}  goal")
        for row in ROWS:
            if re.search(options.only, row.what):
                cells = "".join(f"{show(row.unit(program, each, row)):>10}" for each in shown)
                print(f"{row.what:46}{cells}  {row.goal}", flush=True)
        if re.search(options.only, "examples/http_heaps.c"):
            server(library, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
