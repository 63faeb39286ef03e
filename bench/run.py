#!/usr/bin/env python3
"""Run every micro benchmark under HAKMEM, the system's malloc and each installed peer, and compare.

Rounds are interleaved: each round runs every benchmark once under every allocator, in a random order of
allocators, so that a change of the machine's speed meets all of them.  A discarded warm-up comes first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import report
from allocators import FLOOR, HAKMEM, PEERS, SYSTEM, Allocator, describe, environment_facts, find_peers, why_not_loaded
from cases import CASES, Case
from report import Failure, Result, Results

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 180
LONG_TIMEOUT_S = 3600
EXIT_FAILURES, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


class UsageError(Exception):
    """Something that the caller has to put right before anything can be measured."""


# ---- command line ----------------------------------------------------------------------------------


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"not a regular expression: {error}") from error


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Exit status: 0 all ran, 1 a program failed, 2 nothing could be measured, 130 interrupted.")
    parser.add_argument("--rounds", type=positive, metavar="N", help="measured rounds (7; 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="small workloads: shows that all runs, no figures")
    parser.add_argument("--long", action="store_true",
                        help="minutes instead of seconds for benchmarks that have a long form (fragment)")
    parser.add_argument("--only", type=pattern, metavar="REGEX", help="only benchmarks whose name matches")
    parser.add_argument("--alloc", metavar="NAME[,NAME]", help="only these allocators")
    parser.add_argument("--lib", action="append", default=[], metavar="[NAME=]PATH",
                        help="PATH replaces HAKMEM's library; NAME=PATH adds a column; may be repeated")
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER",
                        help="where the programs and the library are (out/release)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every raw result there, one per line")
    parser.add_argument("--seed", type=int, metavar="N", help="seed of the random order")
    parser.add_argument("--list", action="store_true", help="list benchmarks and allocators, run nothing")
    return parser.parse_args(arguments)


def split_libraries(values: list[str], default: Path) -> dict[str, Path]:
    """Our columns: HAKMEM, whose library a plain PATH replaces, then the variants in the order given."""
    libraries = {HAKMEM: default}
    taken = {SYSTEM, FLOOR, *PEERS}
    for value in values:
        named = re.match(r"([A-Za-z0-9_.+-]+)=(.+)", value)
        name, path = (named.group(1), named.group(2)) if named else (HAKMEM, value)
        if name in taken:
            raise UsageError(f"--lib {value}: the name {name} is taken by another column")
        libraries[name] = Path(path).absolute()
    return libraries


def choose_cases(only: re.Pattern[str] | None) -> list[Case]:
    chosen = [case for case in CASES if only is None or only.search(case.name)]
    if not chosen:
        raise UsageError("--only matches no benchmark; --list shows their names")
    return chosen


def choose_names(listed: str | None, known: list[str]) -> list[str]:
    if listed is None:
        return known
    names = listed.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--alloc: unknown {', '.join(unknown)}; known are {', '.join(known)}")
    return [name for name in known if name in names]


# ---- allocators ------------------------------------------------------------------------------------


def require_built(build: Path, cases: list[Case]) -> None:
    programs = {"bench_floor", *(case.program for case in cases)}
    missing = sorted(name for name in programs if not (build / name).is_file())
    if missing:
        raise UsageError(f"{build} lacks {', '.join(missing)}: build first, with ./dev build release")


def ours(name: str, library: Path, probe: Path) -> Allocator:
    """HAKMEM or a variant: what cannot be loaded ends the run, since it is what is being measured."""
    if not library.is_file():
        raise UsageError(f"{name}: {library} does not exist: build first, with ./dev build release")
    allocator = Allocator(name, "ours", library)
    problem = why_not_loaded(allocator, probe)
    if problem is not None:
        raise UsageError(f"{name}: {library} does not serve malloc when preloaded: {problem}")
    return allocator


def peer(name: str, library: Path | None, probe: Path) -> Allocator | None:
    """A peer, or None with a line in the report when it cannot take part."""
    if library is None:
        print(f"  {name:10} not installed; ./dev setup --peers installs it")
        return None
    allocator = Allocator(name, "peer", library)
    problem = why_not_loaded(allocator, probe)
    if problem is not None:
        print(f"  {name:10} left out: {problem}")
        return None
    return allocator


def gather(names: list[str], libraries: dict[str, Path], probe: Path) -> list[Allocator]:
    """The columns in their order, each shown with what it stands for."""
    installed = find_peers()
    found: list[Allocator] = []
    print("Allocators")
    for name in names:
        if name in libraries:
            allocator: Allocator | None = ours(name, libraries[name], probe)
        elif name == SYSTEM:
            allocator = Allocator(SYSTEM, "peer")
        elif name == FLOOR:
            allocator = Allocator(FLOOR, "floor")
        else:
            allocator = peer(name, installed[name], probe)
        if allocator is not None:
            found.append(allocator)
            print(f"  {name:10} {describe(allocator)}")
    return found


# ---- measuring -------------------------------------------------------------------------------------


def command_of(case: Case, allocator: Allocator, build: Path, quick: bool, long: bool = False) -> list[str] | None:
    """The command line, or None where the floor has no such loop."""
    if allocator.kind != "floor":
        return [str(build / case.program), *case.arguments(quick, long)]
    if not case.floor:
        return None
    return [str(build / "bench_floor"), case.floor, *case.arguments(quick)]


def parse_result(output: str) -> dict[str, float]:
    """The numbers of a result line; empty when the output holds none."""
    for line in output.splitlines():
        fields = dict(re.findall(r"(\w+)=([0-9.]+)(?=\s|$)", line))
        if {"ops_per_s", "seconds", "peak_rss_kb", "minor_faults"} <= fields.keys():
            return {name: float(value) for name, value in fields.items()}
    return {}


def run_once(command: list[str], allocator: Allocator, timeout: float = TIMEOUT_S) -> tuple[dict[str, float], str]:
    """The numbers of one run, or no numbers and the reason why."""
    try:
        done = subprocess.run(command, env=allocator.environment(), capture_output=True, text=True,
                              errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return {}, f"no end after {timeout:g} s"
    last_words = " | ".join(done.stderr.strip().splitlines()[-3:])
    if done.returncode < 0:
        return {}, f"ended by signal {-done.returncode}: {last_words or 'no message'}"
    if done.returncode > 0:
        return {}, f"exit status {done.returncode}: {last_words or 'no message'}"
    numbers = parse_result(done.stdout)
    return numbers, "" if numbers else "no result line in its output"


class Session:
    """One run of the suite: what to measure, and where the raw results go."""

    def __init__(self, cases: list[Case], allocators: list[Allocator], options: argparse.Namespace) -> None:
        self.cases = cases
        self.allocators = allocators
        self.build: Path = options.build
        self.quick: bool = options.quick
        self.long: bool = options.long
        self.rounds: int = options.rounds or (1 if options.quick else 7)
        self.random = random.Random(options.seed)
        self.raw: IO[str] | None = open(options.json, "w", encoding="utf-8") if options.json else None
        self.broken: set[tuple[str, str]] = set()
        self.results = Results([case.name for case in cases], [each.name for each in allocators],
                               [each.name for each in allocators if each.kind == "peer"])

    def write_raw(self, kind: str, fields: dict[str, Any]) -> None:
        if self.raw is not None:
            print(json.dumps({"type": kind, **fields}), file=self.raw, flush=True)

    def order(self) -> Iterator[tuple[Case, Allocator]]:
        """All pairs of one round: the cases in order, the allocators of each at random."""
        for case in self.cases:
            for allocator in self.random.sample(self.allocators, len(self.allocators)):
                yield case, allocator

    def one_round(self, number: int) -> None:
        """Round 0 is the warm-up: quick, and only its failures count."""
        for case, allocator in self.order():
            command = command_of(case, allocator, self.build, self.quick or number == 0, self.long)
            if command is None or (case.name, allocator.name) in self.broken:
                continue
            show_progress(f"round {number} of {self.rounds}: {case.name} under {allocator.name}")
            numbers, problem = run_once(command, allocator, LONG_TIMEOUT_S if self.long else TIMEOUT_S)
            if problem:
                self.fail(Failure(number, case.name, allocator.name, problem))
            elif number > 0:
                self.keep(Result(number, case.name, allocator.name, numbers["ops_per_s"], numbers["seconds"],
                                 numbers["peak_rss_kb"], numbers["minor_faults"],
                                 *(numbers.get(name, 0) for name in ("live_kb", "rss_kb", "rested_rss_kb"))), command)

    def keep(self, result: Result, command: list[str]) -> None:
        self.results.add(result)
        self.write_raw("result", {**asdict(result), "command": " ".join([Path(command[0]).name, *command[1:]])})

    def fail(self, failure: Failure) -> None:
        """A pair that failed is not tried again: a crash would repeat, a hang would cost minutes a round."""
        self.broken.add((failure.case, failure.allocator))
        self.results.failures.append(failure)
        self.write_raw("failure", asdict(failure))

    def run(self) -> bool:
        """Runs all rounds; returns whether they were completed."""
        try:
            for number in range(self.rounds + 1):
                self.one_round(number)
        except KeyboardInterrupt:
            return False
        finally:
            show_progress("")
        return True


def show_progress(text: str) -> None:
    """A line that the next one replaces, for a person who watches; nothing goes into a log."""
    if sys.stderr.isatty():
        print("\r\033[K" + text, end="", file=sys.stderr, flush=True)


# ---- the program -----------------------------------------------------------------------------------


def print_list() -> int:
    print("Benchmarks")
    for case in CASES:
        print(f"  {case.name:16} {case.about}")
        print(f"  {'':16} {case.program} {case.args}" + ("" if case.floor else "  (not on the floor)"))
    print("\nAllocators")
    print(f"  {HAKMEM}\n  {SYSTEM}")
    for name, library in find_peers().items():
        print(f"  {name:16} {library or 'not installed'}")
    print(f"  {FLOOR}", flush=True)
    return 0


def measure(options: argparse.Namespace) -> int:
    cases = choose_cases(options.only)
    options.build = options.build.absolute()
    require_built(options.build, cases)
    libraries = split_libraries(options.lib, options.build / "libhakmem.so")
    names = choose_names(options.alloc, [*libraries, SYSTEM, *PEERS, FLOOR])
    facts = environment_facts()
    print("Environment")
    for name, value in facts.items():
        print(f"  {name:10} {value}")
    print(flush=True)
    allocators = gather(names, libraries, options.build / cases[0].program)
    if not allocators:
        raise UsageError("none of the allocators asked for is installed")
    session = Session(cases, allocators, options)
    rounds = "1 round" if session.rounds == 1 else f"{session.rounds} rounds, interleaved"
    print(f"\n{rounds}" + (", quick: the figures mean nothing" if options.quick else "") + "\n", flush=True)
    session.write_raw("environment", {**facts, **{each.name: describe(each) for each in allocators}})
    completed = session.run()
    print(report.full_report(session.results))
    if not completed:
        print("\nInterrupted: the tables show what was measured until then.")
        return EXIT_INTERRUPTED
    return EXIT_FAILURES if session.results.failures else 0


def main(arguments: list[str]) -> int:
    options = parse_arguments(arguments)
    try:
        return print_list() if options.list else measure(options)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # the reader has had enough, of the flush at exit too
        return EXIT_FAILURES
    except (UsageError, OSError) as error:
        sys.stdout.flush()
        print(f"bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
