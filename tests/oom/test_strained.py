"""Near the limits of the system, with the release library preloaded: see strained.c.

Promised memory and, under mlockall, resident memory stay within 64 MiB of what is resident or live; a process without a
mapping left goes on; mappings are few and none is executable; threads that have ended leave nothing; small blocks that
were freed go back; addresses vary.

Promised memory, locked memory, and the rest of freed small blocks are beyond their bounds as yet: HAK_LIMITS_OPEN=1 makes
that a failure. HAK_LIMITS_LONG=1: 10^5 threads, 10^7 operations, 1,000 addresses, 4 s of light use under the usual purge_delay.

usage: test_strained.py LIBRARY STRAINED
"""
# test: serial timeout=600

import os
import subprocess
import sys

MIB = 1 << 20
SKIPPED = 77
LONG = os.environ.get("HAK_LIMITS_LONG", "0") != "0"
OPEN_COUNTS = os.environ.get("HAK_LIMITS_OPEN", "0") != "0"
ADDRESS_BITS = 20


class Strained:
    """Runs the program and counts what went wrong."""

    def __init__(self, library, program):
        self.library, self.program, self.failures = library, program, 0

    def expect(self, condition, message, still_open=False):
        """`still_open`: known not to hold yet; said, and counted only when HAK_LIMITS_OPEN asks for it."""
        if not condition:
            self.failures += not still_open or OPEN_COUNTS
            print(("OPEN: " if still_open else "FAILED: ") + message)

    def run(self, *arguments, **options):
        """The lines of a run as lists of words; none when it can't run here or failed."""
        environment = dict({"LD_PRELOAD": self.library, "PATH": "/usr/bin:/bin"}, **options)
        done = subprocess.run([self.program, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        if arguments[0] != "address":
            print("%s: %d\n%s%s" % (" ".join(map(str, arguments)), done.returncode, done.stdout, done.stderr), end="")
        self.expect(done.returncode in (0, SKIPPED), "%s ends with %d" % (arguments[0], done.returncode))
        return [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def states(strained):
    for state, _, promised, resident in strained.run("commit", HAKMEM_PURGE_DELAY="200"):
        strained.expect(int(promised) <= int(resident) + 64 * MIB, f"promised memory, {state}", True)
    for state, live, resident, _ in strained.run("locked", HAKMEM_PURGE_DELAY="200"):
        strained.expect(int(resident) <= int(live) + 64 * MIB, f"locked memory, {state}", True)


def mappings(strained):
    strained.run("maps")
    for most, bare in strained.run("churn", 10_000_000 if LONG else 1_000_000):
        strained.expect(int(most) <= 2000, f"{most} mappings")
        strained.expect(int(bare) == 0, f"{bare} executable mappings")


def threads(strained):
    for words in strained.run("threads", 100_000 if LONG else 5_000):
        resident, before, resident_after, after = map(int, words)
        strained.expect(resident_after <= resident + MIB, "threads that have ended leave memory behind")
        strained.expect(after <= before + 4, "threads that have ended leave mappings behind")


def residue(strained):
    options = {} if LONG else {"HAKMEM_PURGE_DELAY": "200"}
    for words in strained.run("residue", 4000 if LONG else 1500, **options):
        start, peak, later, trimmed = map(int, words)
        strained.expect(later <= start + peak // 10, "small blocks that were freed stay resident", True)
        strained.expect(trimmed <= start + 4 * MIB, "malloc_trim(0) leaves more than 4 MiB", True)


def addresses(strained):
    seen = [int(strained.run("address")[0][0], 16) for _ in range(1000 if LONG else 200)]
    varying = [bit for bit in range(64) if len({address >> bit & 1 for address in seen}) == 2]
    print("bits of the first block's address that vary:", varying)
    strained.expect(len(varying) >= ADDRESS_BITS, f"{len(varying)} bits vary")


def main():
    strained = Strained(*sys.argv[1:3])
    for part in (states, mappings, threads, residue, addresses):
        part(strained)
    return 1 if strained.failures else 0


if __name__ == "__main__":
    sys.exit(main())
