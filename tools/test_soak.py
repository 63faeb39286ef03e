#!/usr/bin/env python3
"""The soak's own test: the list is read and scaled, mistakes in it are named, an interrupted soak goes on, a hang ends,
and the report says what the results say."""
import contextlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

import gen_compatibility
import soak

HEAD = "[soak]\nhours = 4\n"


class SoakTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        kept = soak.ROOT
        soak.ROOT = self.root
        self.addCleanup(lambda: setattr(soak, "ROOT", kept))

    def read(self, text, **how):
        path = self.root / "soak.ini"
        path.write_text(HEAD + text)
        return soak.read_list(path, **how)[0]

    def command_item(self, code, expected=1.0, name="it"):
        return soak.Item(name, "release", "what", "", "{python} -c " + repr(code), "", "", False, {}, expected)

    def quiet(self, call, *arguments):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            result = call(*arguments)
        return result, said.getvalue()

    # --- the list

    def test_scales(self):
        text = "[a]\nwhat = w\nseconds = 60\nquick_seconds = 1\nenvironment = S={seconds}\n"
        self.assertEqual(self.read(text)[0].settings(), {"S": "60"})
        self.assertEqual(self.read(text, hours=8)[0].settings(), {"S": "120"})
        self.assertEqual(self.read(text, hours=0.001)[0].settings(), {"S": "1"})
        self.assertEqual(self.read(text, quick=True)[0].settings(), {"S": "1"})

    def test_scales_amounts_and_strides(self):
        text = "[a]\nwhat = w\namount = 1000000000\nquick_amount = 10\nstride = 1\nquick_stride = 90\ntakes = 100\n"
        item = self.read(text, hours=1)[0]
        self.assertEqual(item.values, {"amount": 250000000, "stride": 4})
        self.assertAlmostEqual(item.expected, 100 / 4 / 4)
        self.assertEqual(self.read(text, hours=40)[0].values["stride"], 1)
        self.assertEqual(self.read(text, quick=True)[0].values, {"amount": 10, "stride": 90})

    def test_builds_are_items(self):
        items = self.read("[a]\nwhat = w\nbuilds = debug asan\n[b]\nwhat = w\nquick = no\n")
        self.assertEqual([item.key for item in items], ["a @ debug", "a @ asan", "b @ release"])
        self.assertEqual(len(self.read("[a]\nwhat = w\n[b]\nwhat = w\nquick = no\n", quick=True)), 1)

    def test_mistakes_are_named(self):
        for text, said in (("", "no items"), ("[a]\nseconds = 5\n", "what it is for"),
                           ("[a]\nwhat = w\nsecond = 5\n", "second: not known"),
                           ("[a]\nwhat = w\nseconds = many\n", "not a number"),
                           ("[a]\nwhat = w\nseconds = 0\n", "not above 0"),
                           ("[a]\nwhat = w\nenvironment = A={amuont}\n", "amuont"),
                           ("[a]\nwhat = w\nenvironment = A\n", "not NAME=VALUE"),
                           ("[a]\nwhat = w\ntests = x\ncommand = y\n", "tests and a command"),
                           ("[a]\nwhat = w\n[a]\nwhat = w\n", "already exists")):
            with self.assertRaises(soak.Mistake) as caught:
                self.read(text)
            self.assertIn(said, str(caught.exception))
        with self.assertRaises(soak.Mistake):
            self.read("[a]\nwhat = w\nseconds = 5\n", quick=True)

    def test_the_list_itself(self):
        path = pathlib.Path(__file__).resolve().parent.parent / "tests" / "soak.ini"
        for quick in (False, True):
            items, _ = soak.read_list(path, quick=quick)
            self.assertGreater(len(items), 20)
            self.assertEqual(len(items), len({item.key for item in items}))

    # --- running

    def test_verdicts(self):
        for code, verdict in (("print('n=5')", "passed"), ("import sys; sys.exit(3)", "failed"),
                              ("print('SKIPPED: no x'); raise SystemExit(77)", "skipped")):
            result = soak.run_item(self.command_item(code), True, self.root)
            self.assertEqual(result["verdict"], verdict)
        self.assertEqual(soak.run_item(self.command_item("print('n=5')"), True, self.root)["figure"], "n=5")

    def test_a_hang_ends_with_its_children(self):
        code = ("import os, subprocess, sys, time\n"
                "child = subprocess.Popen(['sleep', '60'])\n"
                f"open({str(self.root / 'child')!r}, 'w').write(str(child.pid))\n"
                "time.sleep(60)\n")
        with open(self.root / "log", "w", encoding="utf-8") as log:
            start = time.monotonic()
            status = soak.run_bounded([sys.executable, "-c", code], {}, str(self.root), 3, log)
        self.assertIsNone(status)
        self.assertLess(time.monotonic() - start, 50)
        child = int((self.root / "child").read_text())
        for _ in range(500):  # until somebody has taken note of its end
            if not pathlib.Path(f"/proc/{child}").exists() or \
                    pathlib.Path(f"/proc/{child}/stat").read_text().split(") ")[1][0] == "Z":
                return
            time.sleep(0.01)
        self.fail("the child goes on")

    def test_no_test_is_a_failure(self):
        item = self.read("[stress.none]\nwhat = w\n")[0]
        soak.tests_of.cache_clear()
        kept, soak.tests_of = soak.tests_of, lambda build: {"stress.some": (["true"], {}, "/")}
        self.addCleanup(lambda: setattr(soak, "tests_of", kept))
        self.assertEqual(soak.run_item(item, False, self.root)["verdict"], "failed")

    def test_several_tests_are_one_item(self):
        kept = soak.tests_of
        soak.tests_of = lambda build: {"m.a": (["true"], {"X": "1"}, "/"), "m.b": (["false"], {}, "/")}
        self.addCleanup(lambda: setattr(soak, "tests_of", kept))
        item = self.read("[m.*]\nwhat = w\n")[0]
        result = soak.run_item(item, False, self.root)
        self.assertEqual((result["verdict"], result["figure"]), ("failed", "1 of 2 tests passed"))
        each = soak.split(self.read("[m.*]\nwhat = w\neach = yes\n"))
        self.assertEqual([one.name for one in each], ["m.a", "m.b"])

    def test_settings_win_over_the_tests_own(self):
        kept = soak.tests_of
        soak.tests_of = lambda build: {"a": ([sys.executable, "-c", "import os; print('got=' + os.environ['S'])"],
                                             {"S": "2"}, "/")}
        self.addCleanup(lambda: setattr(soak, "tests_of", kept))
        item = self.read("[a]\nwhat = w\nenvironment = S=60\n")[0]
        self.assertEqual(soak.run_item(item, False, self.root)["figure"], "got=60")

    def test_figures(self):
        self.assertEqual(soak.figure_of("a=1\nb=2 c=3\nthe end\n", ""), "b=2 c=3")
        self.assertEqual(soak.figure_of("runs=5\nruns=6 x\n", r"runs=(\d+)"), "6")
        self.assertEqual(soak.figure_of("nothing", r"runs=(\d+)"), "")

    # --- going on

    def state(self, **more):
        return {"commit": "c", "date": "d", "machine": "m", "hours": 4, "items": {}, **more}

    def test_goes_on_where_it_stopped(self):
        items = [self.command_item("pass", name=name) for name in ("a", "b", "c")]
        path, ran = self.root / "state.json", []

        def run(item, quick, out):
            if item.name == "b" and ran == ["a"]:
                raise KeyboardInterrupt
            ran.append(item.name)
            return {"verdict": "passed", "figure": "", "seconds": 1, "asked": {}, "what": "", "log": ""}

        with self.assertRaises(KeyboardInterrupt):
            self.quiet(soak.soak, items, self.state(), path, False, run)
        ran.append("stopped")
        good, said = self.quiet(soak.soak, items, soak.load(path), path, False, run)
        self.assertTrue(good)
        self.assertEqual(ran, ["a", "stopped", "b", "c"])
        self.assertIn("[2/3] b @ release", said)

    def test_results_of_something_else_are_left(self):
        self.assertIsNone(soak.usable({}, "c", 4))
        self.assertIsNone(soak.usable(self.state(), "c", 4))
        self.assertIn("left behind", soak.usable(self.state(), "d", 4))
        self.assertIn("left behind", soak.usable(self.state(), "c", 1))

    def test_a_damaged_state_is_said(self):
        (self.root / "state.json").write_text("{")
        with self.assertRaises(soak.Mistake):
            soak.load(self.root / "state.json")

    def test_estimates_learn(self):
        items = [self.command_item("pass", 100, name) for name in ("a", "b")]
        self.assertEqual(soak.remaining(items, {}), 200)
        self.assertEqual(soak.remaining(items, {"a @ release": {"seconds": 200}}), 200)

    # --- the report

    def test_report(self):
        items = [self.command_item("pass", name=name) for name in ("a", "b", "c")]
        results = {key: {"verdict": verdict, "figure": "x|y=1", "seconds": 90, "asked": {"amount": 1000000}}
                   for key, verdict in (("a @ release", "passed"), ("b @ release", "hung"))}
        page = soak.report(self.state(items=results), items)
        self.assertIn("1 passed, 1 failed, 0 skipped, 1 not run", page)
        self.assertIn("| `a` | release | what | amount 1,000,000 | 90 s | x\\|y=1 | passed |", page)
        self.assertIn("| `c` | release | what |  | 0 s |  | not run |", page)

    def test_machine_and_commit_are_said(self):
        self.assertIn("processors", soak.machine())
        self.assertNotIn(os.uname().nodename + " ", soak.machine())

    # --- the page of compatibility

    def test_compatibility_shows_what_has_run(self):
        text = soak.report(
            {"commit": "c0ffee", "date": "2026-01-01", "machine": "a machine, Linux 6, glibc 2.36", "hours": 1, "items": {
                "program it @ release": {"verdict": "failed", "figure": "program=it runs=1 served=3 blocks=12000 seconds=2",
                                         "seconds": 2.0, "asked": {}}}},
            [self.named("program it"), self.named("stress.other"), self.named("program absent")])
        page = gen_compatibility.page(text)
        self.assertIn("- it: what (3): failed", page)
        self.assertIn("a machine, Linux 6, glibc 2.36", page)
        for absent in ("stress.other", "absent", "own test suites", "Other processors"):
            self.assertNotIn(absent, page)

    @staticmethod
    def named(name):
        return soak.Item(name, "release", "what", "", "true", "", "", False, {}, 1.0)


if __name__ == "__main__":
    unittest.main()
