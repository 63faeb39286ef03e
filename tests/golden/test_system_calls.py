#!/usr/bin/env python3
"""In steady state the library asks the system for less than one thing per million operations: two runs of different
length, and the difference of what they asked for. The runs begin alike, so the difference is what the longer one added."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
PROGRAMS = LIBRARY.parent
CALLS = ("mmap", "munmap", "madvise", "mremap", "probe")
TRIES = 3


def system_calls(command):
    """The operations of a run, and the calls that the library made in it."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "stats.json"
        environment = dict(os.environ, LD_PRELOAD=str(LIBRARY), HAKMEM_STATS=f"json:{file}")
        subprocess.run([str(part) for part in command], env=environment, check=True, stdout=subprocess.PIPE)
        system = json.loads(file.read_text())["system"]
    return sum(system[call] for call in CALLS)


class SteadyState(unittest.TestCase):
    def check(self, program, arguments, short, long, threads=1):
        """`arguments` are a function of the iterations per thread. What a machine that is short of processors does to
        one run in three is no steady state: the best of a few counts."""
        path = PROGRAMS / program
        if not path.exists():
            self.skipTest(f"{program} is not built")
        millions = (long - short) * threads / 1e6
        seen = []
        for _ in range(TRIES):
            before, after = system_calls([path, *arguments(short)]), system_calls([path, *arguments(long)])
            seen.append((before, after))
            if after - before < millions:
                return
        self.fail(f"{program}: calls in the short and in the long run {seen}, {millions:g} million operations apart")

    def test_random_mixed(self):
        self.check("bench_random_mixed", lambda n: (n, 400, 1), 2_000_000, 12_000_000)

    def test_mid_large_mt(self):
        self.check("bench_mid_large_mt", lambda n: (2, n, 64), 1_000_000, 6_000_000, threads=2)

    def test_large_mt(self):
        self.check("bench_large_mt", lambda n: (2, n, 16), 1_000_000, 8_000_000, threads=2)

    def test_larson(self):
        """Its length is in seconds. The loop of a thread ends after `rounds` times `chunks` replacements, and another
        thread goes on: 1000 rounds make that 5 million, so that the ends of threads count as well, as in life. Blocks of
        the wide range are of the mid pool too."""
        self.check_timed("larson", lambda seconds: (seconds, 8, 1000, 5000, 1000, 4141, 2), 1, 3)
        self.check_timed("larson", lambda seconds: (seconds, 8, 8000, 1000, 1000, 4141, 2), 1, 3)


if __name__ == "__main__":
    unittest.main()
