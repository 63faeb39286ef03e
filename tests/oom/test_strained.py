"""Near the limits of the system, with the release library preloaded: see strained.c.

Promised memory and, under mlockall, resident memory stay within 64 MiB of what is resident or live; a process without a
mapping left goes on; mappings are few and none is executable; threads that have ended leave nothing; small blocks that
were freed go back, and so does what realloc cuts off; addresses vary; long-tailed use makes nothing grow, and an adversary no more than it must.

Promised memory is measured with HAKMEM_UNMAP=1, which is what vm.overcommit_memory=2 makes of the option (unit.test_limit):
the kernel counts the same mappings whatever its setting. Of the residue of small blocks, 10 % means a tenth of the peak.
HAK_LIMITS_LONG=1: 10^5 threads, 10^7 operations (10^8 long-tailed ones), 1,000 addresses, 4 s of light use under the usual purge_delay.

usage: test_strained.py LIBRARY STRAINED
"""
# test: serial timeout=600

import os
import subprocess
import sys

MIB = 1 << 20
SKIPPED = 77
LONG = os.environ.get("HAK_LIMITS_LONG", "0") != "0"
# The window's base is a random multiple of 2 MiB, in the upper half of a gibibyte; the first block lies at its start.
RANDOM_BITS = {*range(21, 46)} - {29}


class Strained:
    """Runs the program and counts what went wrong."""

    def __init__(self, shared_object, program):
        self.shared_object, self.program, self.failures = shared_object, program, 0

    def expect(self, condition, message):
        if not condition:
            self.failures += 1
            print("FAILED: " + message)

    def run(self, *arguments, **options):
        """The lines of a run as lists of words; none when it can't run here or failed."""
        environment = dict({"LD_PRELOAD": self.shared_object, "PATH": "/usr/bin:/bin"}, **options)
        done = subprocess.run([self.program, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, check=False)
        if arguments[0] != "address":
            print("%s: %d\n%s%s" % (" ".join(map(str, arguments)), done.returncode, done.stdout, done.stderr), end="")
        self.expect(done.returncode in (0, SKIPPED), "%s ends with %d" % (arguments[0], done.returncode))
        return [line.split() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def states(strained):
    for state, _, promised, resident in strained.run("commit", 128 if LONG else 32, HAKMEM_UNMAP="1", HAKMEM_PURGE_DELAY="200"):
        strained.expect(int(promised) <= int(resident) + 64 * MIB, f"promised memory, {state}")
    for state, live, resident, _ in strained.run("locked", HAKMEM_PURGE_DELAY="200"):
        strained.expect(int(resident) <= int(live) + 64 * MIB, f"locked memory, {state}")


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
        strained.expect(later <= start + peak // 10, "small blocks that were freed stay resident")
        strained.expect(trimmed <= start + 4 * MIB, "malloc_trim(0) leaves more than 4 MiB")


def cuts(strained):
    for sizes in ((900000, 100000), (4000000, 1500000), (3000000, 1100000), (500000, 70000)):
        for options in ({}, {"HAKMEM_HARDEN": "1"}):
            for resident, live in strained.run("cut", *sizes, 1500, HAKMEM_PURGE_DELAY="200", **options):
                strained.expect(int(resident) <= 1.2 * int(live) + 12 * MIB, "what realloc has cut off stays resident")


def tail(strained):
    """The line that fits the second half's resident memory best rises by 2 % of it at most from end to end; by 4 % in the short
    form, which ends while the longest-lived blocks still find their places."""
    for words in strained.run("slope", 100_000_000 if LONG else 10_000_000):
        figures = [int(word) for word in words]
        mean, middle = sum(figures) / len(figures), (len(figures) - 1) / 2
        slope = sum((i - middle) * (figure - mean) for i, figure in enumerate(figures))
        slope /= sum((i - middle) ** 2 for i in range(len(figures)))
        rise = slope * (len(figures) - 1) / mean
        print(f"resident memory rises by {100 * rise:.2f} % in the second half")
        strained.expect(rise <= (0.02 if LONG else 0.04), "resident memory grows with the number of operations")


def robson(strained):
    """No allocator can promise less than M (log2(n) / 2 + 1) for M live bytes in blocks of up to n units; a sixteenth more is
    for metadata and caches."""
    for most, _, bound in strained.run("robson"):
        strained.expect(int(most) <= int(bound) * 17 // 16, "Robson's adversary forces more than its bound")


def addresses(strained):
    seen = [int(strained.run("address")[0][0], 16) for _ in range(1000 if LONG else 200)]
    varying = [bit for bit in range(64) if len({address >> bit & 1 for address in seen}) == 2]
    print("bits of the first block's address that vary:", varying)
    strained.expect(set(varying) >= RANDOM_BITS, "each of the bits 21 to 45 but one must vary")


def main():
    strained = Strained(*sys.argv[1:3])
    for part in (states, mappings, threads, residue, cuts, tail, robson, addresses):
        part(strained)
    return 1 if strained.failures else 0


if __name__ == "__main__":
    sys.exit(main())
