#!/usr/bin/env python3
"""HAKMEM_WARM_POOL_STATS and HAKMEM_SHARED_POOL_STATS: what they print, that it agrees with the statistics, and that the
warm pool serves more than 90 % of the refills of every class that has many."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
PROGRAM = LIBRARY.parent / "bench_random_mixed"
MANY, LEAST = 100, 0.90
RUNS = (["20000000", "400"], ["1000000", "10000", "1", "16", "256"])
STAGES = ["own_hint", "own_empty", "adopted", "claimed", "locked"]
TITLE = "hakmem: warm pool\nhakmem:     size         hits       misses    prefilled   hit %\n"


def said(arguments, **options):
    """What the benchmark writes on stderr under the library and these options."""
    environment = {"LD_PRELOAD": str(LIBRARY), "PATH": os.environ["PATH"], **options}
    return subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, check=True).stderr


def rows(text):
    """size -> (hits, misses, prefilled, the printed rate) of the warm pool's table."""
    lines = re.findall(r"^hakmem: +(\d+) +(\d+) +(\d+) +(\d+) +(\d+\.\d\d)$", text, re.MULTILINE)
    return {int(size): (int(hits), int(misses), int(filled), float(rate)) for size, hits, misses, filled, rate in lines}


@unittest.skipUnless(PROGRAM.is_file(), "the benchmarks are not built")
class Pools(unittest.TestCase):
    def test_silent(self):
        self.assertEqual(said(["1000", "100"]), "")

    def test_hit_rate(self):
        many = 0
        for arguments in RUNS:
            table = rows(said(arguments, HAKMEM_WARM_POOL_STATS="1"))
            self.assertGreaterEqual(len(table), 12)
            for size, (hits, misses, _, _) in table.items():
                if hits + misses > MANY:
                    many += 1
                    self.assertGreater(hits / (hits + misses), LEAST, f"{size} B in {arguments}")
        self.assertGreater(many, 0, "no class has refilled often: the runs show nothing")

    def test_agrees_with_the_statistics(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "stats"
            text = said(RUNS[1], HAKMEM_WARM_POOL_STATS="1", HAKMEM_SHARED_POOL_STATS="1", HAKMEM_STATS=f"json:{path}")
            stats = json.loads(path.read_text(encoding="ascii"))
        self.assertTrue(text.startswith(TITLE), text)
        table = rows(text)
        self.assertEqual(sorted(table), [row["size"] for row in stats["classes"]])
        for row in stats["classes"]:
            hits, misses, prefilled, rate = table[row["size"]]
            self.assertEqual((hits, hits + misses, prefilled), (row["warm_hits"], row["misses"], row["warm_prefilled"]))
            self.assertEqual(rate, row["warm_hits"] * 10000 // row["misses"] / 100)
            self.assertGreater(prefilled, 0)
        line = re.search(r"^hakmem: spans from (.*)\nhakmem: waits for locks=(\d+)\n\Z", text, re.MULTILINE)
        stages = dict(word.split("=") for word in line.group(1).split())
        self.assertEqual(list(stages), STAGES)
        self.assertEqual({name: int(count) for name, count in stages.items()}, stats["stages"])
        self.assertEqual(int(line.group(2)), stats["remote"]["lock_waits"])
        self.assertGreaterEqual(stats["stages"]["locked"], 1)
        self.assertGreaterEqual(sum(stats["stages"].values()), sum(row["spans"] for row in stats["classes"]))

    def test_off(self):
        table = rows(said(RUNS[1], HAKMEM_WARM_POOL_STATS="1", HAKMEM_WARM_POOL_PREFILL="0"))
        self.assertEqual({(hits, prefilled) for hits, _, prefilled, _ in table.values()}, {(0, 0)})

    def test_a_value_out_of_range(self):
        self.assertEqual(said(["1000", "100"], HAKMEM_WARM_POOL_PREFILL="17"),
                         "hakmem: option warm_pool_prefill: '17' is not a number from 0 to 16; 3 is kept\n")


if __name__ == "__main__":
    unittest.main()
