#!/usr/bin/env python3
"""Keeps the allocator as fast as it was: guard.py [OPTIONS]

Runs six short benchmarks under callgrind and compares the instructions that were executed inside libhakmem.so with
bench/guard/golden.json; more than 2 % above fails. The counts depend on the compiler, not on the machine's speed nor on
the C library. golden.json has one list per compiler and architecture; for any other the test is skipped, and --update
adds a list. Without --counts the times are then compared with the last tagged version, built in out/guard, in
interleaved rounds; one that is slower by 5 % in the median and slower in every round fails.

Exit status: 0 good, 1 slower, 2 cannot be run, 77 skipped (no valgrind, or no list for this compiler).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = Path(__file__).resolve().parent / "golden.json"
ALLOWED = 0.02
SLOWER = 1.05
ROUNDS = 7
TIMEOUT_S = 120
GOOD, BAD, BROKEN, SKIPPED = 0, 1, 2, 77

# Single-threaded, so that the counts repeat; the working sets are those of the longer benchmarks.
BENCHMARKS: dict[str, list[str]] = {
    "tiny_hot": ["bench_tiny_hot", "16", "200000"],
    "random_mixed": ["bench_random_mixed", "200000", "400"],
    "tree": ["bench_tree", "14", "10"],
    "mid": ["bench_mid_large_mt", "1", "60000", "64"],
    "large": ["bench_large_mt", "1", "8000", "16"],
    "simplify": ["suite_simplify", "30", "60"],
}
TIMED = "^(tiny_hot|random_mixed|tree|mid_large_mt|large_mt|remote)$"


class GuardError(Exception):
    """Why nothing can be said."""


# --- instructions ---------------------------------------------------------------------------------------------


def count_in(profile: str, library: str) -> int:
    """The instructions that a callgrind profile has inside an object, without what it called."""
    names: dict[str, str] = {}
    inside, skip, total = False, False, 0
    for line in profile.splitlines():
        found = re.match(r"(c?ob)=\((\d+)\)(?: (.*))?$", line)
        if found:
            if found.group(3) is not None:
                names[found.group(2)] = found.group(3)
            if found.group(1) == "ob":
                inside = names.get(found.group(2), "").rpartition("/")[2].startswith(library)
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[0-9+*-]", line):
            if inside and not skip:
                total += int(line.split()[1])
            skip = False
    return total


def count(command: list[str], library: Path, build: Path) -> int:
    """The instructions of one run inside the library."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    environment.update(LD_PRELOAD=str(library), HAKMEM_BACKGROUND="0")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile"
        done = subprocess.run(
            ["valgrind", "--quiet", "--tool=callgrind", f"--callgrind-out-file={out}", str(build / command[0]), *command[1:]],
            env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            timeout=TIMEOUT_S, check=False)
        if done.returncode != 0 or not out.is_file():
            raise GuardError(f"{' '.join(command)} failed under valgrind: {done.stderr.strip()[-300:]}")
        found = count_in(out.read_text(), library.name.partition(".so")[0])
    if found == 0:
        raise GuardError(f"{' '.join(command)} executed nothing in {library.name}")
    return found


def compiler(build: Path) -> str:
    """Which list applies: the compiler with its major version, and the architecture."""
    cache = (build / "CMakeCache.txt").read_text()
    found = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache, re.M)
    if found is None:
        raise GuardError(f"{build} does not say which compiler it was built with")
    said = subprocess.run([found.group(1), "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    version = re.search(r"(\d+)\.\d+", said)
    kind = "clang" if "clang" in said else "gcc"
    return f"{kind} {version.group(1) if version else 'unknown'} {platform.machine()}"


def compare(found: dict[str, int], golden: dict[str, int]) -> list[str]:
    """What is wrong, a line each; prints the table."""
    wrong = []
    for name, number in found.items():
        kept = golden.get(name)
        if kept is None:
            wrong.append(f"{name}: {GOLDEN.name} has no figure; --update adds it")
            continue
        change = number / kept - 1
        print(f"  {name:14} {number:>12,} instructions, {kept:>12,} kept, {change:+.2%}")
        if number > kept * (1 + ALLOWED):
            wrong.append(f"{name}: {change:+.2%} instructions, more than {ALLOWED:.0%} allowed")
        elif change < -ALLOWED:
            print(f"  {'':14} fewer than kept: --update makes that the new figure")
    return wrong


def check_counts(build: Path, library: Path, update: bool) -> int:
    if shutil.which("valgrind") is None:
        print("guard: skipped: valgrind is not installed (./dev setup --programs installs it)")
        return SKIPPED
    which = compiler(build)
    kept = json.loads(GOLDEN.read_text()) if GOLDEN.is_file() else {}
    if which not in kept and not update:
        print(f"guard: skipped: {GOLDEN.name} has no figures for {which}, only for {', '.join(kept)}; --update adds them")
        return SKIPPED
    print(f"Instructions inside {library.name}, {which}")
    found = {name: count(command, library, build) for name, command in BENCHMARKS.items()}
    if update:
        kept[which] = found
        GOLDEN.write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")
    wrong = compare(found, kept[which])
    for each in wrong:
        print(f"guard: {each}")
    return BAD if wrong else GOOD


# --- time -----------------------------------------------------------------------------------------------------


def last_tag() -> str | None:
    """The newest tag before this commit."""
    done = subprocess.run(["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or None


def build_tag(tag: str) -> Path:
    """The tag's library, built once."""
    folder = ROOT / "out" / "guard" / tag.replace("/", "-")
    library = folder / "build" / "libhakmem.so"
    if library.is_file():
        return library
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "source").mkdir(parents=True)
    archive = folder / "source.tar"
    steps = [["git", "-C", str(ROOT), "archive", "-o", str(archive), tag],
             ["tar", "-xf", str(archive), "-C", str(folder / "source")],
             ["cmake", "-S", str(folder / "source"), "-B", str(folder / "build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
              "-DHAKMEM_BUILD_TESTS=OFF", "-DHAKMEM_BUILD_BENCH=OFF", "-DHAKMEM_BUILD_DEMO=OFF"],
             ["cmake", "--build", str(folder / "build")]]
    for step in steps:
        done = subprocess.run(step, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise GuardError(f"{tag} could not be built: {' '.join(step)}: {done.stdout.strip()[-300:]}")
    return library


def slower(results: list[dict[str, object]], ours: str, before: str) -> list[str]:
    """The benchmarks that became slower, from run.py's raw results; prints a line for each."""
    speed: dict[tuple[str, str], dict[int, float]] = {}
    for each in results:
        if each["type"] == "result":
            key = (str(each["case"]), str(each["allocator"]))
            speed.setdefault(key, {})[int(str(each["round"]))] = float(str(each["ops_per_s"]))
    wrong = []
    for case in sorted({case for case, _ in speed}):
        now, then = speed.get((case, ours), {}), speed.get((case, before), {})
        ratios = [then[number] / now[number] for number in now if number in then]
        if not ratios:
            continue
        middle = statistics.median(ratios)
        print(f"  {case:14} time {middle:.3f} of {before}'s ({min(ratios):.2f}..{max(ratios):.2f})")
        if middle > SLOWER and min(ratios) > 1:
            wrong.append(f"{case}: {middle:.3f} times as long as {before}")
    return wrong


def check_times(build: Path, library: Path) -> int:
    tag = last_tag()
    if tag is None:
        print("guard: no version is tagged yet: times are not compared")
        return GOOD
    before = build_tag(tag)
    print(f"Times beside {tag}, {ROUNDS} rounds")
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw"
        done = subprocess.run(
            [sys.executable, str(ROOT / "bench" / "run.py"), "--build", str(build), "--lib", str(library), "--lib",
             f"{tag}={before}", "--alloc", f"hakmem,{tag}", "--only", TIMED, "--rounds", str(ROUNDS), "--json", str(raw)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise GuardError(f"the benchmarks failed: {done.stdout.strip()[-300:]}")
        wrong = slower([json.loads(line) for line in raw.read_text().splitlines()], "hakmem", tag)
    for each in wrong:
        print(f"guard: {each}")
    return BAD if wrong else GOOD


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="guard.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "out" / "release", metavar="FOLDER",
                        help="where the benchmarks and the library are (out/release)")
    parser.add_argument("--lib", type=Path, metavar="PATH", help="another library")
    parser.add_argument("--counts", action="store_true", help="only count instructions")
    parser.add_argument("--update", action="store_true", help="keep what is counted as the figures from now on")
    options = parser.parse_args(arguments)
    build = options.build.absolute()
    library = (options.lib or build / "libhakmem.so").absolute()
    try:
        for path in (library, *(build / command[0] for command in BENCHMARKS.values())):
            if not path.is_file():
                raise GuardError(f"{path} does not exist: build first, with ./dev build release")
        counted = check_counts(build, library, options.update)
        timed = GOOD if options.counts else check_times(build, library)
        return BAD if timed == BAD else counted
    except (GuardError, OSError, subprocess.SubprocessError) as error:
        print(f"guard: {error}", file=sys.stderr)
        return BROKEN


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
