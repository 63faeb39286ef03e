#!/usr/bin/env python3
"""run.py succeeds only when a target has ended well and says how much it did; a failure is never taken for a skipped test."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

RUN = pathlib.Path(__file__).resolve().parent / "run.py"


class Run(unittest.TestCase):
    def status(self, text, code, *options):
        """run.py's exit status for a target that prints this and ends so."""
        with tempfile.TemporaryDirectory() as folder:
            corpus = pathlib.Path(folder) / "made_up.txt"
            corpus.write_text("00 01\n", encoding="ascii")
            target = pathlib.Path(folder) / "fuzz_made_up"
            target.write_text(f"#!/bin/sh\necho '{text}'\nexit {code}\n", encoding="ascii")
            target.chmod(0o755)
            command = [sys.executable, "-B", str(RUN), *options, "--work", folder, str(corpus), str(target)]
            return subprocess.run(command, stdout=subprocess.DEVNULL, timeout=60, check=False).returncode

    def test_a_good_end(self):
        self.assertEqual(self.status("Done 5 runs in 0 second(s)", 0), 0)

    def test_failures_have_one_status(self):
        for code in (1, 70, 77, 134):
            self.assertEqual(self.status("Done 5 runs in 0 second(s)", code), 1, code)

    def test_a_target_that_did_nothing(self):
        self.assertEqual(self.status("", 0), 1)

    def test_found_inputs_are_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "an_input").write_bytes(b"\x00\xfe")
            done = subprocess.run([sys.executable, "-B", str(RUN), "--show", folder], stdout=subprocess.PIPE, text=True,
                                  timeout=60, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("00 fe", done.stdout.replace("00fe", "00 fe"))

    def test_planted_bugs_must_be_found(self):
        self.assertEqual(self.status("fuzz: the input of 3 bytes ended", 77, "--planted"), 0)
        self.assertEqual(self.status("Done 5 runs in 0 second(s)", 0, "--planted"), 1)


if __name__ == "__main__":
    unittest.main()
