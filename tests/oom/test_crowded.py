"""More blocks than the kernel allows a process mappings (vm.max_map_count), with the release library preloaded: see crowded.c.

All of them are served, as one mapping or a share of the allowed ones at most, so that threads can still be made; what is
mapped along is not resident. Where the program itself has used up its mappings, every request is served all the same.
One run is under a limit on the address space that has room for the blocks but not for a SuperSlab each.
HAK_LIMITS_LONG=1: a fifth more blocks than there are mappings; else as many and a thousand, and fewer of those that are aligned.

usage: test_crowded.py LIBRARY CROWDED
"""
# test: serial timeout=300

import os
import resource
import subprocess
import sys

SKIPPED = 77
LONG = os.environ.get("HAK_LIMITS_LONG", "0") != "0"
MOST_TRIED = 200_000  # where the kernel allows more mappings, nothing comes near its limit
MIB = 1 << 20


def allowed():
    try:
        with open("/proc/sys/vm/max_map_count", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return 65530


class Crowded:
    """Runs the program and counts what went wrong."""

    def __init__(self, library, program):
        self.shared_object, self.program, self.failures, self.skipped = library, program, 0, 0

    def expect(self, condition, message):
        if not condition:
            self.failures += 1
            print("FAILED: " + message)

    def run(self, *arguments, addresses=None, **options):
        """The lines of a run as lists of numbers; none when it can't run here or failed."""
        def lower():
            if addresses is not None:
                resource.setrlimit(resource.RLIMIT_AS, (addresses, addresses))
        environment = dict({"LD_PRELOAD": self.shared_object, "PATH": "/usr/bin:/bin", "HAKMEM_BACKGROUND": "0"}, **options)
        done = subprocess.run([self.program, *map(str, arguments)], env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=200, check=False, preexec_fn=lower)
        print("%s: %d\n%s%s" % (" ".join(map(str, arguments)), done.returncode, done.stdout, done.stderr), end="")
        self.skipped += done.returncode == SKIPPED
        self.expect(done.returncode in (0, SKIPPED), "%s ends with %d" % (arguments[0], done.returncode))
        return [[int(word) for word in line.split()] for line in done.stdout.splitlines()] if done.returncode == 0 else []

    def many(self, count, size, align, new, share, **limits):
        for got, mappings, in_memory, thread in self.run("many", count, size, align, new, **limits):
            self.expect(got == count, f"{got} of {count} blocks")
            self.expect(mappings <= share * allowed() + 1000, f"{mappings} mappings")
            self.expect(in_memory <= count * 12 * 1024 + 64 * MIB, f"{in_memory} bytes are resident")
            self.expect(thread == 1, "no thread can be made")


def main():
    crowded = Crowded(*sys.argv[1:3])
    count = allowed() * 6 // 5 if LONG else allowed() + 1000
    if count <= MOST_TRIED:
        crowded.many(count, 1_200_000, 16, 0, 0.3)
        crowded.many(count if LONG else allowed() * 3 // 8, 1_200_000, 4 * MIB, 0, 0.3)
        crowded.many(count, 2_000_000, 16, 1_100_000, 0.3)
        crowded.many(count, 2 * MIB, 16, 0, 0.3)
        crowded.many(count, 1_200_000, 16, 0, 0.8, addresses=count * 3 // 2 * MIB + 1024 * MIB)
        crowded.many(count, 1_200_000, 16, 0, 0.3, HAKMEM_HARDEN="1")
    for (refused,) in crowded.run("full"):
        crowded.expect(refused == 0, f"{refused} requests refused")
    if crowded.failures:
        return 1
    return SKIPPED if crowded.skipped else 0


if __name__ == "__main__":
    sys.exit(main())
