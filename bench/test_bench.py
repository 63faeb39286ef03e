#!/usr/bin/env python3
"""Tests of the benchmarks: test_bench.py BUILD_FOLDER.

The programs must explain themselves, refuse wrong arguments and print a result line; run.py must draw
the right conclusions from results, and must not take a library for loaded when it isn't.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import allocators
import report
import run
import tail
from cases import CASES
from memory import memory

BUILD = Path(sys.argv.pop(1) if len(sys.argv) > 1 else "out/release").absolute()
PROGRAMS = sorted({case.program for case in CASES})


def execute(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(BUILD / command[0]), *command[1:]], capture_output=True, timeout=60,
                          text=True, check=False)


class Memory(unittest.TestCase):
    """The programs of docs/memory.md, and what memory.py makes of their lines."""

    def test_rows(self) -> None:
        for row in memory.ROWS:
            words = row.quick.split()
            if not (BUILD / words[0]).is_file():
                continue
            with self.subTest(row=row.name):
                done = execute(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                figures = memory.parse(done.stdout)
                self.assertLessEqual(set(row.shown), set(figures), done.stdout)

    def test_drift_says_what_is_live(self) -> None:
        environment = {**os.environ, "LD_PRELOAD": str(BUILD / "count_live.so")}
        done = subprocess.run([str(BUILD / "drift"), "2", "2", "7"], env=environment, capture_output=True, text=True, check=True)
        exactly = int(re.findall(r"^exactly_live=(\d+)$", done.stdout, re.MULTILINE)[0])
        self.assertEqual(memory.parse(done.stdout.replace("exactly_live", "#"))["live_kib"], exactly // 1024)
        alike = execute("drift", "2", "2", "7").stdout
        self.assertEqual(re.findall(r"check=\w+", done.stdout), re.findall(r"check=\w+", alike))
        self.assertNotEqual(re.findall(r"check=\w+", alike), re.findall(r"check=\w+", execute("drift", "2", "2", "8").stdout))

    def test_page(self) -> None:
        results = {"back_calls": {"hakmem": [{"back_ms": 100.0, "kept_mib": 1.5}], "system": [{"back_ms": 200.0, "kept_mib": 3.0}]},
                   "drift": {"hakmem": [{"end_ratio": 1.25, "slope": -0.5}]}}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "docs").mkdir()
            (Path(folder) / memory.PAGE).write_text(f"# M\n\n{memory.BEGIN}\nold\n{memory.END}\nend\n", encoding="utf-8")
            body = memory.page(results, {"hakmem": memory.curve("hour=1 ratio=1.0\nhour=2 ratio=2.0\nhour=30 ratio=3.0\n")},
                               ["fact"], Path(folder))
            memory.publish(body, Path(folder))
            text = (Path(folder) / memory.PAGE).read_text(encoding="utf-8")
            self.assertNotIn("old", text)
            self.assertIn("| hakmem | 100 | 1.5 |", text)
            self.assertIn("| hakmem | 1.25 | -0.5 | - | - |", text)
            self.assertTrue((Path(folder) / memory.CHARTS / "drift.svg").is_file())
            # What is not measured again stays as the page has it.
            joined = memory.joined(memory.published(text)[0], {"back_calls": {"glibc-2.43": [{"back_ms": 7.0}], "system": []}})
            self.assertEqual(joined["back_calls"], {**results["back_calls"], "glibc-2.43": [{"back_ms": 7.0}]})
            self.assertEqual(joined["drift"], results["drift"])
            self.assertIn("0.50", (Path(folder) / memory.CHARTS / "back_calls.svg").read_text(encoding="utf-8"))
            again = memory.page(joined, {}, ["fact"], Path(folder), {"back_calls": {}})
            self.assertIn("![drift](memory/drift.svg)", again)


class Programs(unittest.TestCase):
    def test_help(self) -> None:
        for command in [[name] for name in PROGRAMS] + [["bench_tail"], ["bench_fixed"], ["bench_floor"], ["bench_floor", "tree"]]:
            with self.subTest(command=command):
                done = execute(*command, "--help")
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertTrue(done.stdout.startswith("usage: " + command[0]), done.stdout)

    def test_wrong_arguments(self) -> None:
        wrong = [["bench_random_mixed", "abc"], ["bench_random_mixed", "-1"], ["bench_random_mixed", "0"],
                 ["bench_random_mixed", "1000", "10", "1", "64", "32"], ["bench_tiny_hot", "16x"],
                 ["bench_remote", "sideways"], ["bench_remote", "oneway", "1", "10", "8", "8", "1000"],
                 ["bench_thread_churn", "1", "1", "5", "6"], ["larson", "1", "2", "3", "4", "5", "6", "7", "8"],
                 ["bench_floor", "remote", "oneway"], ["bench_floor", "nothing"], ["bench_floor"]]
        for command in wrong:
            with self.subTest(command=command):
                done = execute(*command)
                self.assertEqual(done.returncode, 2)
                self.assertNotEqual(done.stderr + done.stdout, "")
                self.assertNotIn("ops_per_s", done.stdout)

    def test_result_lines(self) -> None:
        for case in CASES:
            for allocator in (allocators.Allocator("system", "peer"), allocators.Allocator("floor", "floor")):
                command = run.command_of(case, allocator, BUILD, quick=True)
                if command is None:
                    continue
                with self.subTest(command=command):
                    numbers, problem = run.run_once(command, allocator)
                    self.assertEqual(problem, "")
                    self.assertGreater(numbers["ops_per_s"], 0)
                    self.assertGreater(numbers["peak_rss_kb"], 100)

    def test_fragment_says_what_is_left(self) -> None:
        """The work is the same in every run: what survives is a tenth of each phase, two rounds long."""
        first, _ = run.run_once([str(BUILD / "bench_fragment"), "2", "4", "10", "0"], allocators.Allocator("system", "peer"))
        again, _ = run.run_once([str(BUILD / "bench_fragment"), "2", "4", "10", "0"], allocators.Allocator("system", "peer"))
        self.assertEqual(first["live_kb"], again["live_kb"])
        self.assertAlmostEqual(first["live_kb"] / (2 * 3 * 0.1 * 4096), 1, delta=0.1)
        self.assertGreater(first["rss_kb"], first["live_kb"])

    def test_arguments_in_force_are_shown(self) -> None:
        done = execute("bench_random_mixed", "1000", "10")
        self.assertIn('args="1000 10 1 16 1040"', done.stdout)
        self.assertTrue(done.stdout.startswith("bench_random_mixed ops_per_s="))

    def test_tail(self) -> None:
        """Both calls' quantiles ascend, below the longest, and the table has a row for each allocator, call and pattern."""
        for pattern in ("replace", "swing", "rest"):
            done = execute("bench_tail", pattern, "20000", "1", "500")
            lines = re.findall(r"^bench_tail/(malloc|free) .* p50=(\d+) p99=(\d+) p99_9=(\d+) .*longest=(\d+) slow=(\d+) ", done.stdout, re.M)
            self.assertEqual([line[0] for line in lines], ["malloc", "free"], done.stdout + done.stderr)
            for line in lines:
                median, slow, slower, longest, share = map(int, line[1:])
                self.assertLessEqual(median, slow)
                self.assertLessEqual(slow, slower)
                self.assertLess(slower, longest)
                self.assertLessEqual(share, 1000)
        done = subprocess.run([sys.executable, "-B", str(run.ROOT / "bench" / "tail.py"), "--quick", "--build", str(BUILD), "--alloc",
                               "system", "--only", "one thread"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(len(re.findall(r"^\| system \| [\d,]+ \|", done.stdout, re.M)), 4, done.stdout)

    def test_tail_publishes_no_part(self) -> None:
        """The section of the page would lose all other patterns and allocators."""
        for part in ("--quick", "--only=fixed", "--alloc=system"):
            said = io.StringIO()
            with unittest.mock.patch.object(sys, "argv", ["tail.py", "--publish", part]), contextlib.redirect_stderr(said):
                self.assertRaises(SystemExit, tail.options)
            self.assertIn("--publish replaces all", said.getvalue())

    def test_fixed(self) -> None:
        done = execute("bench_fixed", "2", "3", "2", "4")
        (fields,) = tail.parts_of(done.stdout).values()
        self.assertTrue(all(fields[name] > 0 for name in tail.FIXED_FIELDS), done.stdout + done.stderr)
        self.assertGreater(fields["process"], fields["first_malloc"])

    def test_tail_page(self) -> None:
        """Each quantile stands beside that of the peer that is best in it."""
        def figures(ns: float) -> list[dict[str, float]]:
            return [dict.fromkeys(tail.FIELDS, ns * factor) for factor in (1, 9, 2)]

        found = {"small": {"malloc": {"hakmem": figures(20), "system": figures(1500), "jemalloc": figures(15)}}}
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / tail.CHART).parent.mkdir(parents=True)
            (Path(folder) / tail.DOCUMENT).write_text("# B\n\n<!-- tail:begin -->\nold\n<!-- tail:end -->\nend\n", encoding="utf-8")
            tail.publish(found, {"hakmem": [dict.fromkeys(tail.FIXED_FIELDS, 1234.0)]}, ["| fact |"], Path(folder))
            text = (Path(folder) / tail.DOCUMENT).read_text(encoding="utf-8")
            self.assertIn("| small | malloc | 40 (30 jemalloc) |", text)
            self.assertIn("| hakmem | 1,234 |", text)
            self.assertNotIn("old", text)
            self.assertIn("small,malloc,system,3000,", (Path(folder) / tail.ALL).read_text(encoding="utf-8"))
            self.assertIn("<polyline", (Path(folder) / tail.CHART).read_text(encoding="utf-8"))

    @unittest.skipUnless((BUILD / "tests" / "misuse" / "outside").is_file(), "the tests' programs have not been built")
    def test_hardened(self) -> None:
        """Time and memory have a row for each allocator; each case has its outcome, which hardened mode's promises decide."""
        tool = [sys.executable, "-B", str(run.ROOT / "bench" / "hardened.py"), "--build", str(BUILD)]
        done = subprocess.run([*tool, "--real", "--rounds", "1", "--only", "perl|nosuch"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {cells[0]: cells[1:] for cells in re.findall(r"^\| (glibc|HAKMEM(?: hardened)?) \| (\S+) \| (\S+) \| (\S+) \|$", done.stdout, re.M)}
        self.assertEqual(rows["glibc"], ("1.00",) * 3, done.stdout)
        self.assertEqual(set(rows), {"glibc", "HAKMEM", "HAKMEM hardened"})
        done = subprocess.run([*tool, "--misuse", "--cases", "--only", "^1 byte written"], capture_output=True, text=True, timeout=60, check=False)
        self.assertRegex(done.stdout, r"(?m)^\| 1 byte written behind a block \| 10 \| \d+ \| \d+ \| 10 \|", done.stderr)
        shown = re.search(r"^stopped: (HAKMEM_HARDEN=1 .*outside over-1 24)$", done.stdout, re.M)
        by_hand = subprocess.run(f"ulimit -c 0; exec env {shown[1]}", shell=True, capture_output=True, text=True, check=False)
        self.assertEqual(by_hand.returncode, -signal.SIGABRT)
        self.assertIn("something was written past its end", by_hand.stderr)

    def test_floor_refuses_what_it_has_no_blocks_for(self) -> None:
        done = execute("bench_floor", "tiny_hot", "2000000", "10")
        self.assertEqual(done.returncode, 1)
        self.assertIn("above 1 MiB", done.stderr)


class Loading(unittest.TestCase):
    def test_plain_program_uses_the_c_library(self) -> None:
        found, _ = allocators.served_by(allocators.Allocator("system", "peer"), BUILD / PROGRAMS[0])
        self.assertIsNotNone(found)

    def test_library_without_malloc_is_noticed(self) -> None:
        maths = next(path for path in allocators.installed_libraries() if re.fullmatch(r"libm\.so\.6", path.name))
        problem = allocators.why_not_loaded(allocators.Allocator("x", "ours", maths), BUILD / PROGRAMS[0])
        self.assertIn("malloc comes from", problem or "")

    def test_preload_of_the_caller_is_dropped(self) -> None:
        os.environ["LD_PRELOAD"] = "libm.so.6"
        try:
            self.assertNotIn("LD_PRELOAD", allocators.Allocator("system", "peer").environment())
        finally:
            del os.environ["LD_PRELOAD"]


def sample() -> report.Results:
    """Two peers and HAKMEM over three rounds in which the machine gets slower and slower."""
    results = report.Results(["a", "b"], ["hakmem", "system", "fast", "floor"], ["system", "fast"])
    for number, pace in enumerate((1.0, 0.5, 0.25), start=1):
        for case, scale in (("a", 1.0), ("b", 10.0)):
            for name, speed, peak in (("hakmem", 120, 90), ("system", 50, 100), ("fast", 100, 200),
                                        ("floor", 480, 1)):
                results.add(report.Result(number, case, name, speed * pace * scale, 1.0, peak, 10))
    return results


class Conclusions(unittest.TestCase):
    def test_best_and_leanest_are_peers(self) -> None:
        self.assertEqual(sample().best_peer("a"), "fast")
        self.assertEqual(sample().leanest_peer("a"), "system")
        self.assertEqual(sample().leanest_overall(), "system")

    def test_ratio_is_taken_within_rounds(self) -> None:
        ratio = sample().speed_ratio("a", "hakmem", "fast")
        assert ratio is not None
        self.assertAlmostEqual(ratio.value, 1.2)
        self.assertAlmostEqual(ratio.low, ratio.high)

    def test_rounds_missing_on_one_side_are_left_out(self) -> None:
        results = sample()
        results.add(report.Result(4, "a", "hakmem", 1e9, 1.0, 90, 10))
        ratio = results.speed_ratio("a", "hakmem", "fast")
        assert ratio is not None
        self.assertAlmostEqual(ratio.high, 1.2)

    def test_geometric_mean(self) -> None:
        self.assertAlmostEqual(report.geometric_mean([0.5, 2.0, 1.0]), 1.0)

    def test_report(self) -> None:
        text = report.full_report(sample())
        self.assertIn("speed,  hakmem / best peer of each benchmark: 1.200  (2 of 2 benchmarks", text)
        self.assertIn("memory, hakmem / system, the leanest peer overall: 0.900", text)
        self.assertIn("speed,  hakmem / floor: 0.250", text)

    def test_memory_at_the_end(self) -> None:
        self.assertNotIn("live memory", report.full_report(sample()))
        results = sample()
        for number in (1, 2, 3):
            results.add(report.Result(number, "c", "fast", 1, 1.0, 9, 9, live_kb=100, rss_kb=300, rested_rss_kb=250))
        results.cases.append("c")
        text = report.full_report(results)
        self.assertRegex(text, r"c, at the end +- +- +3\.00\n")
        self.assertRegex(text, r"c, after a rest +- +- +2\.50\n")

    def test_variants_are_set_against_hakmem(self) -> None:
        results = sample()
        results.allocators.insert(1, "new")
        for number, pace in enumerate((1.0, 0.5, 0.25), start=1):
            results.add(report.Result(number, "a", "new", 132 * pace, 1.0, 45, 10))
        text = report.full_report(results)
        self.assertRegex(text, r"new / hakmem\n +speed +range +memory\n  a +1\.100  1\.10\.\.1\.10 +0\.500")
        self.assertIn("speed,  new / hakmem: 1.100  (1 of 2 benchmarks", text)

    def test_report_survives_a_missing_result(self) -> None:
        results = report.Results(["a"], ["hakmem", "system"], ["system"])
        results.failures.append(report.Failure(0, "a", "hakmem", "ended by signal 11: no message"))
        results.add(report.Result(1, "a", "system", 1e6, 1.0, 100, 10))
        text = report.full_report(results)
        self.assertIn("a under hakmem, round 0: ended by signal 11", text)
        self.assertIn("not measured", text)


class CommandLine(unittest.TestCase):
    def refused(self, *arguments: str) -> str:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = run.main(["--build", str(BUILD), *arguments])
        self.assertEqual(status, run.EXIT_USAGE)
        return errors.getvalue()

    def test_unbuilt(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("build first", self.refused("--build", folder))
            self.assertIn("build first", self.refused("--lib", folder + "/libhakmem.so"))

    def test_wrong_names(self) -> None:
        self.assertIn("unknown nosuch", self.refused("--alloc", "system,nosuch"))
        self.assertIn("matches no benchmark", self.refused("--only", "nosuch"))
        self.assertIn("is taken", self.refused("--lib", "system=/x.so"))

    def test_libraries(self) -> None:
        default = Path("/d.so")
        self.assertEqual(run.split_libraries(["/x.so"], default), {"hakmem": Path("/x.so")})
        self.assertEqual(list(run.split_libraries(["old=/o.so", "new=/n.so"], default)), ["hakmem", "old", "new"])

    def test_result_line(self) -> None:
        line = 'x/y ops_per_s=5 seconds=0.5 peak_rss_kb=7 minor_faults=9 args="seconds=1"\n'
        self.assertEqual(run.parse_result(line)["seconds"], 0.5)
        self.assertEqual(run.parse_result("nothing here"), {})


if __name__ == "__main__":
    unittest.main()
