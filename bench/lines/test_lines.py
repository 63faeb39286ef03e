#!/usr/bin/env python3
"""The tool of bench/lines on programs whose transfers follow from their text, and its tables, model, guard and clock.

    test_lines.py BUILD

BUILD has bench_lines and lines_known. 77: this system's valgrind has nothing to build tools with.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import clock
import tables
import tool
from patterns import PATTERNS

import guard

BUILD = Path()
TOOL = Path()


def known(case: str, threads: int, rounds: int) -> dict[str, tuple[int, ...]]:
    """Messages by cause of each variable of lines_known."""
    report = tool.run(TOOL, [str(BUILD / "lines_known"), case, str(threads), str(rounds)], guard.plain(os.environ), ["--turn=0"])
    return {line["memory"]: tuple(line[cause] for cause in tables.CAUSES)
            for line in report["lines"] if line["memory"].startswith("known_")}


def report(messages: int = 0, busiest: int = 0, mmap: int = 0, operations: int = 1000, instructions: int = 100_000) -> dict[str, object]:
    zero = dict.fromkeys(tables.CAUSES, 0)
    return {"operations": operations, "instructions": instructions, "busiest": busiest,
            "calls": {**dict.fromkeys(tables.MAPPING_CALLS, 0), "mmap": mmap},
            "groups": {"metadata": {**zero, "true": messages}, "blocks": zero, "program": zero}, "structures": []}


class KnownTransfers(unittest.TestCase):
    def test_a_shared_word_moves_at_each_addition(self) -> None:
        for threads, rounds in ((2, 100), (16, 20), (64, 5)):
            self.assertEqual(known("shared", threads, rounds), {"known_shared": (threads * rounds - 1, 0, 0, 0)})

    def test_padded_counters_stay_where_they_are(self) -> None:
        self.assertEqual(known("padded", 16, 20), {})

    def test_two_words_of_a_line_are_false_sharing(self) -> None:
        for threads, rounds in ((2, 100), (16, 20)):
            self.assertEqual(known("pair", threads, rounds), {"known_pair": (0, threads * rounds - 1, 0, 0)})

    def test_what_is_only_overwritten_migrates(self) -> None:
        self.assertEqual(known("handed", 2, 100), {"known_handed": (0, 0, 199, 0)})

    @unittest.skipUnless(platform.machine() == "x86_64", "the tool knows the instruction of x86-64 alone")
    def test_a_prefetch_for_writing_saves_the_upgrade(self) -> None:
        rounds = 100
        self.assertEqual(known("look", 2, rounds), {"known_shared": (2 * rounds - 1, 0, 0, 2 * rounds - 1)})
        self.assertEqual(known("claim", 2, rounds), {"known_shared": (2 * rounds - 1, 0, 0, 0)})

    def test_a_ring_moves_three_lines_forth_and_back(self) -> None:
        """The consumer begins: it looks at all lines before anybody has written, so the first write of each finds no news."""
        rounds = 100
        self.assertEqual(known("ring", 2, rounds), {"known_slot": (rounds - 1, 1, 0, rounds - 1),
                                                    "known_tail": (rounds - 1, 1, 0, rounds - 1),
                                                    "known_head": (rounds, 0, 0, rounds - 1)})

    def test_the_same_program_gives_the_same_figures(self) -> None:
        command = [str(BUILD / "bench_lines"), *PATTERNS[-1].arguments(8)]
        runs = [tool.run(TOOL, command, guard.plain(os.environ), ["--skip=1000", "--count=4000", "--seed=7"]) for _ in range(2)]
        self.assertEqual(runs[0], runs[1])
        self.assertGreater(tables.messages(runs[0]), 0.1)
        self.assertEqual(runs[0]["operations"], 4000)


class Model(unittest.TestCase):
    def test_without_messages_cores_add_up(self) -> None:
        found = tables.predict(report(), 64)
        self.assertEqual(found.bound, "cores")
        self.assertAlmostEqual(found.rate, 64 * 1000 / (100 * tables.INSTRUCTION_NS))

    def test_one_line_bounds_whatever_the_number_of_cores(self) -> None:
        for cores in (8, 64):
            found = tables.predict(report(messages=1000, busiest=1000), cores)
            self.assertEqual((found.bound, round(found.rate, 3)), ("one line", round(1000 / tables.MESSAGE_NS, 3)))

    def test_mappings_bound_and_are_counted(self) -> None:
        found = tables.predict(report(mmap=100), 64)
        self.assertEqual(found.bound, "mappings")
        self.assertAlmostEqual(found.mapping_calls, 1e6 / tables.SYSTEM_NS)

    def test_growth_is_that_of_what_was_counted(self) -> None:
        rows = [{"type": "head", "allocators": {"hakmem": "x"}, "date": "2026-01-01"}]
        rows += [{"type": "run", "pattern": "mid", "threads": n, "allocator": "hakmem", "report": report(messages=n)} for n in (8, 32, 64)]
        runs = tables.Runs(rows)
        self.assertEqual(tables.throughput(runs).header, ["allocator", "mid"])
        self.assertIn("on 64 cores", tables.throughput(runs).about)
        self.assertIn("8.00", tables.goals(runs).rows[0])


class Publishing(unittest.TestCase):
    def test_tables_and_chart_replace_what_stands_between_the_marks(self) -> None:
        rows = [{"type": "head", "allocators": {"hakmem": "x"}, "date": "2026-01-01"}]
        rows += [{"type": "run", "pattern": "mid", "threads": n, "allocator": "hakmem", "report": report(messages=n)} for n in (2, 64)]
        with tempfile.TemporaryDirectory() as folder:
            document = Path(folder) / "docs" / "scaling.md"
            document.parent.mkdir()
            document.write_text("before\n<!-- lines:begin -->\nold\n<!-- lines:end -->\nafter\n", encoding="utf-8")
            tables.publish(rows, Path(folder))
            text = document.read_text(encoding="utf-8")
            self.assertTrue(text.startswith("before\n") and text.endswith("after\n") and "old" not in text)
            self.assertIn("| hakmem | 0.064 |", text)
            self.assertIn("mid,hakmem,0.0020,0.064,", (Path(folder) / tables.BESIDE).read_text(encoding="utf-8"))
            self.assertIn("<polyline", (Path(folder) / tables.CHART).read_text(encoding="utf-8"))


class Judging(unittest.TestCase):
    def test_the_guard_allows_a_quarter(self) -> None:
        kept = {"mid": 0.1, "exchange": 2.0}
        self.assertEqual(guard.wrong({"mid": 0.129, "exchange": 2.5}, kept), [])
        self.assertEqual(len(guard.wrong({"mid": 0.131, "exchange": 2.6}, kept)), 2)
        self.assertEqual(len(guard.wrong({"large": 0.0}, kept)), 1)

    def test_only_clear_differences_of_the_clock_count(self) -> None:
        times = {"fast": [1.0, 1.1, 1.0], "slow": [2.0, 2.1, 1.9], "near": [1.02, 1.05, 1.04]}
        self.assertEqual(clock.judge(times, {"fast": 1, "slow": 2, "near": 0.5}), (2, []))
        self.assertEqual(clock.judge(times, {"fast": 3, "slow": 2, "near": 1}), (2, ["fast and slow"]))


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).absolute()
    try:
        TOOL = tool.build(BUILD / "lines")
    except tool.Unavailable as why:
        print(f"skipped: {why}")
        sys.exit(77)
    unittest.main()
