"""An address space out of the ordinary, with the release library preloaded: see addresses.c.

A foreign reservation above the heap, of 64 GiB to 4 TiB, makes no malloc fail, and neither it nor a very wide alignment leaves
a cost: two requests that follow, in the process and in a child, fault in a few pages. Where everything is reserved in pieces of 16
or 64 GiB, small blocks are served from the gaps; where nothing is left, malloc says so. Where addresses are not to be random
(setarch -R), those of blocks are the same in each run, and else they differ.

usage: test_addresses.py LIBRARY ADDRESSES
"""
# test: timeout=300

import ctypes
import subprocess
import sys

SKIPPED = 77
ADDR_NO_RANDOMIZE = 0x0040000
CASES = [("hole", "1"), ("hole", "64"), ("hole", "1024"), ("hole", "4096"), ("wide", "36"), ("wide", "41")]
REPEATABLE = [("reserved", "16"), ("reserved", "64"), ("full", "")]  # how long the gaps are is chance elsewhere


def not_random():
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)


def run(library, command, before=None, **options):
    environment = {"LD_PRELOAD": library, "PATH": "/usr/bin:/bin", "HAKMEM_BACKGROUND": "0", **options}
    return subprocess.run(command, env=environment, preexec_fn=before, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


def main():
    library, program = sys.argv[1:3]
    failed = 0
    for mode, number in CASES:
        done = run(library, [program, mode, number])
        print("%-5s %5s %d %s" % (mode, number, done.returncode, done.stderr.strip()))
        failed += done.returncode not in (0, SKIPPED)
    for mode, number in REPEATABLE:
        for options in ({}, {"HAKMEM_HARDEN": "1"}):
            done = run(library, [program, mode, number], not_random, **options)
            print("%-8s %2s %-20s %d %s" % (mode, number, options or "", done.returncode, done.stderr.strip()))
            failed += done.returncode != 0
    fixed = {run(library, [program, "print"], not_random).stdout for _ in range(4)}
    varied = {run(library, [program, "print"]).stdout for _ in range(4)}
    print("without randomization %d different results of 4, with it %d" % (len(fixed), len(varied)))
    failed += len(fixed) != 1 or "" in fixed or len(varied) != 4
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
