#!/usr/bin/env python3
"""In steady state the library asks the system for less than one thing per million operations: two runs of different
length, and the difference of what they asked for. The runs begin alike, so the difference is what the longer one added.

A thread that waits for a processor does not use its memory, and the purge delay goes by meanwhile: what is purged then, and
looked at with mincore, is no steady state. Where a try fails because the machine was short of processors, the next one has a
purge delay longer than the run, and shows what the operations alone ask for. With processors enough the delay stays."""
import json
import os
import pathlib
import re
import resource
import subprocess
import tempfile
import time
import unittest

LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
PROGRAMS = LIBRARY.parent
CALLS = ("mmap", "munmap", "madvise", "mremap", "probe", "mincore")
TRIES = 3
SHORT = 1.5  # times longer than with a processor for each thread: the machine is short of them
NO_PURGE = "3600s"


def processor_time():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command, threads, delay):
    """The operations of a run as its result line has them, the calls that the library made in it, and how many times longer
    it took than it would have if each of its threads had had a processor, as far as there are so many."""
    before, began = processor_time(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "stats.json"
        environment = dict(os.environ, LD_PRELOAD=str(LIBRARY), HAKMEM_STATS=f"json:{file}",
                           **({"HAKMEM_PURGE_DELAY": delay} if delay else {}))
        done = subprocess.run([str(part) for part in command], env=environment, check=True, stdout=subprocess.PIPE,
                              text=True, timeout=120)
        system = json.loads(file.read_text())["system"]
    rate, seconds = re.search(r"ops_per_s=([0-9.]+) seconds=([0-9.]+)", done.stdout).groups()
    processors = min(threads, len(os.sched_getaffinity(0)))
    longer = (time.monotonic() - began) * processors / max(processor_time() - before, 0.001)
    return float(rate) * float(seconds), sum(system[call] for call in CALLS), longer


class SteadyState(unittest.TestCase):
    def check(self, program, arguments, short, long, threads=2):
        """`arguments` are a function of the length."""
        path = PROGRAMS / program
        if not path.exists():
            self.skipTest(f"{program} is not built")
        seen, delay = [], None
        for _ in range(TRIES):
            before, after = (run([path, *arguments(length)], threads, delay) for length in (short, long))
            operations, calls = after[0] - before[0], after[1] - before[1]
            if operations < 1e6:  # of runs of a given time, the machine had no processor for the longer one
                seen.append(f"{operations / 1e6:.1f} million operations more in the longer run")
                long *= 2
                continue
            seen.append(f"{calls} calls in {operations / 1e6:.1f} million operations, purge delay {delay or 'as it is'}")
            if calls < operations / 1e6:
                return
            delay = NO_PURGE if max(before[2], after[2]) > SHORT else None
        self.fail(f"{program} {arguments(long)}: {seen}")

    def test_random_mixed(self):
        self.check("bench_random_mixed", lambda n: (n, 400, 1), 2_000_000, 12_000_000, threads=1)

    def test_mid_large_mt(self):
        self.check("bench_mid_large_mt", lambda n: (2, n, 64), 1_000_000, 6_000_000)

    def test_large_mt(self):
        self.check("bench_large_mt", lambda n: (2, n, 16), 1_000_000, 8_000_000)

    def test_larson(self):
        """Its length is in seconds. A thread ends after 1000 replacements of each of its blocks, and another one goes on, so
        the ends of threads are in it."""
        self.check("larson", lambda seconds: (seconds, 8, 1000, 5000, 1000, 4141, 2), 1, 3)

    def test_larson_of_wide_range(self):
        self.check("larson", lambda seconds: (seconds, 8, 8000, 1000, 1000, 4141, 2), 1, 3)


if __name__ == "__main__":
    unittest.main()
