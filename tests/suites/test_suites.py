#!/usr/bin/env python3
# test: timeout=120
"""What runs the suites: formats are read, a difference is found and an unsteady case is not taken for one, a program
that the library does not serve is noticed, and the system's lists become lists of sources."""
import contextlib
import io
import pathlib
import sys
import tempfile
import types
import unittest

import outcome
import redis_soak
import run
import sources
import suites

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None


class Fake(suites.Suite):
    """A suite of one part that prints what a script says."""

    name = "fake"
    limit = 20

    def __init__(self, script):
        self.script = script
        self.witness = [sys.executable, "-c", "x = ['a' * 5000] * 10"]

    def parts(self, quick):
        return ["part"]

    def command(self, part, directory, lane):
        return ["sh", "-c", self.script], directory.parent, {}


class Formats(unittest.TestCase):
    def test_tap(self):
        text = "1..5\nok 1 - a\nnot ok 2 - b\nok 3 # skip no b\nnot ok 4 - c # TODO later\nnoise\nok 5\n"
        self.assertEqual(outcome.from_tap(text), {"1": "passed", "2": "failed", "3": "skipped", "4": "passed",
                                                  "5": "passed"})
        self.assertEqual(outcome.from_tap("1..3\nok 1\n"), {"1": "passed", "plan": "failed"})
        self.assertEqual(outcome.from_tap("1..0 # SKIP no threads\n"), {"all": "skipped"})
        self.assertEqual(outcome.from_tap("Segmentation fault\n"), {"plan": "failed"})

    def test_junit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "r.xml"
            self.assertEqual(outcome.from_junit(path), {"report": "failed"})
            path.write_text("<t><testcase name='a'/><testcase name='b'><skipped/></testcase>"
                            "<testcase name='a'><error/></testcase></t>")
            self.assertEqual(outcome.from_junit(path), {"a": "passed", "b": "skipped", "a (2)": "failed"})

    def test_redis_and_busybox(self):
        redis = suites.Redis().read("p", "[ok]: SET (3 ms)\n\x1b[31m[err]: GET in tests/x.tcl\n", None)
        self.assertEqual(redis, {"SET": "passed", "GET": "failed", "end": "failed"})
        busybox = suites.Busybox().read("p", "PASS: awk -F\nFAIL: awk -f\nSKIPPED: awk x\n", None)
        self.assertEqual(busybox, {"awk -F": "passed", "awk -f": "failed", "awk x": "skipped"})

    def test_sqlite(self):
        text = "a-1.1... Ok\na-1.2...\n! a-1.2 expected: [1]\n! a-1.2 got: [2]\n1 errors out of 2 tests\n"
        cases = suites.Sqlite().read("p", text, None)
        self.assertEqual(cases["a-1.1"], "passed")
        self.assertEqual((cases["a-1.2"], cases["end"]), ("failed", "failed"))
        self.assertIn("count 2", cases)

    def test_sqlite_failing_allocations(self):
        text = ("m.pc=1.iFail=1-sql... Ok\nm.pc=1.iFail=2-sql... Ok\nm.pc=1.iFail=2-sql... Ok\n"
                "! m.pc=2.iFail=7 expected: [1]\nm.pc=2.iFail=8... Ok\n0 errors out of 5 tests\n")
        cases = suites.Sqlite().read("p", text, None)
        self.assertEqual(cases, {"m.iFail=n-sql": "passed", "m.iFail=n": "failed", "end": "passed"})

    def test_sources(self):
        self.assertEqual(sources.with_sources("# c\ndeb http://m/debian s main\n", True),
                         "deb http://m/debian s main\ndeb-src http://m/debian s main\n")
        self.assertIn("Types: deb deb-src\n", sources.with_sources("Types: deb\nURIs: u\n", False))


class Comparing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def result(self, script):
        options = types.SimpleNamespace(work=self.work, jobs=1, only=None, quick=False)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = run.run_suite(Fake(script), options, LIBRARY or pathlib.Path("/nonexistent"))
        return code, said.getvalue()

    def test_equal(self):
        code, said = self.result("echo 1..3; echo ok 1; echo not ok 2; echo ok 3 '# skip'")
        self.assertEqual(code, 0)
        self.assertIn("cases=3 passed=1 skipped=1 failed=1 different=0 unsteady=0", said)

    def test_different(self):
        code, said = self.result("echo 1..1; if [ -n \"$LD_PRELOAD\" ]; then echo not ok 1; else echo ok 1; fi")
        self.assertEqual(code, 1)
        self.assertIn("DIFFERENT part: 1: passed on the system's malloc, failed on HAKMEM", said)

    def test_a_case_that_vanishes_is_different(self):
        code, said = self.result("echo ok 1; [ -n \"$LD_PRELOAD\" ] || echo ok 2")
        self.assertEqual(code, 1)
        self.assertIn("missing on HAKMEM", said)

    def test_unsteady(self):
        script = f"n=$(ls {self.work} | wc -l); : > {self.work}/$n; if [ $n = 2 ]; then echo not ok 1; else echo ok 1; fi"
        code, said = self.result(f"echo 1..1; {script}")
        self.assertEqual(code, 0)
        self.assertIn("different=0 unsteady=1", said)

    def test_nothing_reported_is_a_case(self):
        fake = Fake("exit 0")
        fake.read = lambda part, text, directory: outcome.Cases()
        cases, _ = run.Runner(fake, LIBRARY, self.work, 1).once("part", None)
        self.assertEqual(list(cases.values()), ["failed"])

    def test_a_part_that_hangs_ends(self):
        fake = Fake("sleep 60")
        fake.limit = 1
        cases, _ = run.Runner(fake, LIBRARY, self.work, 1).once("part", None)
        self.assertEqual(cases["time"], "failed")

    @unittest.skipIf(LIBRARY is None, "no library was named")
    def test_served(self):
        run.prove_served(Fake(""), LIBRARY)
        other = Fake("")
        other.witness = ["true", "x"]
        with self.assertRaises(SystemExit):
            run.prove_served(other, pathlib.Path("/nonexistent.so"))


class Slope(unittest.TestCase):
    def test_slope(self):
        rise, mean = redis_soak.slope([(t, 100 + 2 * t) for t in range(11)])
        self.assertAlmostEqual(rise, 2)
        self.assertAlmostEqual(mean, 110)
        self.assertAlmostEqual(redis_soak.slope([(t, 5) for t in range(11)])[0], 0)


if __name__ == "__main__":
    unittest.main()
