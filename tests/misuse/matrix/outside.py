#!/usr/bin/env python3
# test: cost=20
"""Mistakes of programs that know nothing of the library, in hardened mode: how many are stopped, and when.

    outside.py LIBRARY PROGRAM

Each row is one run of the program (outside.c): a kind of mistake and a size. A row is stopped when the program ends by a signal before
the end of main, by whatever hand; found at exit when it ends by a signal after that. At least so many must be, and the rows of MUST.
Prints the table and the counts.
"""
import concurrent.futures
import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from emulated import FACTOR, on_library

SIZES = (24, 100, 1000, 4096, 20000, 100_000, 262_144, 1 << 20, 2_000_000, 8 << 20)
KINDS = ("over-1", "over-16", "over-256", "over-4096", "over-mib", "jump-mib", "under-16", "zeros-kept", "freed-write",
         "freed-write-elsewhere", "twice", "twice-later", "twice-elsewhere", "interior", "misaligned", "freed-realloc")
BESIDE = ("jump-16", "jump-4096", "over-kept", "freed-write-first", "read-4096", "read-mib", "freed-read")  # printed, not counted
LEAST_STOPPED, LEAST_FOUND = 142, 149
MUST = tuple(("zeros-kept", size) for size in (24, 100, 1000, 20000, 100_000)) + tuple(
    (kind, size) for kind in ("over-1", "over-16", "jump-4096", "read-4096", "read-mib", "jump-mib") for size in (2 << 20, 8 << 20))
SIGNS = {"stopped": "X", "at exit": "e", "survived": "."}


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ending(library, program, kind, size):
    """When the program was stopped."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    command, env = on_library(library, [program, kind, str(size)], dict(env, HAKMEM_HARDEN="1"))
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * FACTOR, check=False,
                          preexec_fn=without_cores)
    if done.returncode > 0:
        sys.exit(f"outside {kind} {size}: ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    if done.returncode == 0:
        return "survived"
    return "at exit" if b"survived" in done.stdout else "stopped"


def main():
    library, program = sys.argv[1:3]
    rows = [(kind, size) for kind in KINDS + BESIDE for size in SIZES] + [row for row in MUST if row[1] not in SIZES]
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        ends = dict(zip(rows, pool.map(lambda row: ending(library, program, *row), rows)))
    print(f"{'':22}" + " ".join(f"{size:>8}" for size in SIZES))
    for kind in KINDS + BESIDE:
        print(f"{kind:22}" + " ".join(f"{SIGNS[ends[kind, size]]:>8}" for size in SIZES))
    counted = [ends[kind, size] for kind in KINDS for size in SIZES]
    stopped, at_exit = counted.count("stopped"), counted.count("at exit")
    missed = [row for row in MUST if ends[row] == "survived"]
    print(f"{len(counted)} programs: {stopped} stopped, {at_exit} more found at exit (at least {LEAST_STOPPED}, {LEAST_FOUND} together)")
    for kind, size in missed:
        print(f"not found: {kind} {size}")
    return 1 if missed or stopped < LEAST_STOPPED or stopped + at_exit < LEAST_FOUND else 0


if __name__ == "__main__":
    sys.exit(main())
