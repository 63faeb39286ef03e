#!/usr/bin/env python3
# test: timeout=120
""".ci/run keeps its form whatever comes of the tests: where they ran, then their own summary, and the right status. ./dev is a
stand-in here."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
RAN = "bare: ran in a bare root of some, made in 1 s; all of it"
NONE = "bare: no bare root here: only root can make one"


class Ci(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "run", self.root / ".ci" / "run")

    def set_dev(self, **commands):
        """A ./dev whose commands run these lines of shell; it writes down which were asked for."""
        cases = "".join(f"{name}) {body} ;;\n" for name, body in commands.items())
        (self.root / "dev").write_text(f'#!/bin/sh\necho "$*" >>"{self.root}/asked"\ncase $1 in\n{cases}esac\n')
        (self.root / "dev").chmod(0o755)

    def run_it(self):
        """(status, lines, what ./dev was asked for)"""
        environment = {**os.environ, "TMPDIR": str(self.root / "tmp")}
        (self.root / "tmp").mkdir()
        done = subprocess.run([self.root / ".ci" / "run"], check=False, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=50, cwd="/")
        self.assertEqual(list((self.root / "tmp").iterdir()), [], "something was left in the folder for temporary files")
        return done.returncode, done.stdout.splitlines(), (self.root / "asked").read_text().split()

    def test_in_a_bare_root(self):
        self.set_dev(bare=f"echo 3 skipped; echo 12 passed, 0 failed; echo '{RAN}'; echo one more line >&2")
        status, lines, asked = self.run_it()
        self.assertEqual(lines[-2:], [RAN, "12 passed, 0 failed"])
        self.assertIn("one more line", lines)
        self.assertEqual((status, asked), (0, ["bare"]))

    def test_failed_in_a_bare_root(self):
        for code in (1, 127, 137):
            with self.subTest(code=code):
                self.set_dev(bare=f"echo 11 passed, 1 failed; echo '{RAN}'; exit {code}")
                status, lines, asked = self.run_it()
                self.assertEqual(lines[-2:], [RAN, "11 passed, 1 failed"])
                self.assertEqual((status, asked), (1, ["bare"]), "what failed in the root is not tried again outside")
            self.forget()

    def forget(self):
        (self.root / "asked").unlink()
        (self.root / "tmp").rmdir()

    def test_on_the_machine(self):
        self.set_dev(bare=f"echo '{NONE}'; exit 77", test="echo 5 passed, 0 failed")
        status, lines, asked = self.run_it()
        self.assertEqual(lines[-2:], [f"{NONE}; ran on this machine", "5 passed, 0 failed"])
        self.assertEqual((status, asked), (0, ["bare", "demo", "test", "lint"]))

    def test_each_command_counts_on_the_machine(self):
        for part in ("demo", "test", "lint"):
            with self.subTest(part=part):
                commands = {"test": "echo 5 passed, 0 failed", "demo": ":", "lint": ":"}
                commands[part] += "; exit 3"
                self.set_dev(bare=f"echo '{NONE}'; exit 77", **commands)
                status, lines, asked = self.run_it()
                self.assertEqual((status, lines[-1]), (1, "5 passed, 0 failed"))
                self.assertEqual(asked, ["bare", "demo", "test", "lint"], "what failed keeps nothing from running")
            self.forget()

    def test_no_summary_is_a_failure(self):
        self.set_dev(bare=f"echo '{RAN}'")
        status, lines, _ = self.run_it()
        self.assertEqual(lines[-2:], [RAN, "0 passed, 1 failed"])
        self.assertEqual(status, 1)

    def test_ends_what_it_started(self):
        self.set_dev(bare=f"trap 'echo cleaned >{self.root}/cleaned; exit 143' TERM; "
                          f"sleep 55 & echo $! >{self.root}/sleeper; touch {self.root}/ready; wait")
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(signal=number):
                scratch = self.root / number.name
                scratch.mkdir()
                running = subprocess.Popen([self.root / ".ci" / "run"], env={**os.environ, "TMPDIR": str(scratch)},
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                self.wait_for((self.root / "ready").exists)
                sleeper = int((self.root / "sleeper").read_text())
                self.wait_for(lambda sleeper=sleeper: "(sleep)" in self.state(sleeper))   # before that, a shell may lose the signal
                running.send_signal(number)
                self.assertEqual(running.wait(timeout=20), 143)
                self.assertTrue((self.root / "cleaned").exists(), "./dev was not waited for")
                self.assertEqual(list(scratch.iterdir()), [])
                self.wait_for(lambda sleeper=sleeper: re.search(r"\) Z|^$", self.state(sleeper)))   # gone, or waits to be asked for
            for name in ("ready", "cleaned", "sleeper"):
                (self.root / name).unlink()

    def wait_for(self, holds):
        until = time.monotonic() + 20
        while not holds():
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    @staticmethod
    def state(process):
        """What the system says of a process; nothing of one that is gone."""
        try:
            return pathlib.Path(f"/proc/{process}/stat").read_text()
        except OSError:
            return ""


if __name__ == "__main__":
    unittest.main()
