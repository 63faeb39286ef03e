#!/usr/bin/env python3
# test: timeout=120
"""The runner of programs in the soak, on programs made up here: what differs, what was not served, what is left running
and what is missing is found; and every description has its section in soak.ini.

    test_runner.py LIBRARY
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

import run as runner
from catalogue import PROGRAMS
from program import Program
from running import Failure, Skip, adopt_orphans
from served import Serving, descendants, process_table

LIBRARY = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
PYTHON = pathlib.Path(os.path.realpath(sys.executable))
WORK = "import os, sys\nkept = [bytes(n) for n in range(600, 30000)]\nprint(sum(map(len, kept)))\n"


def program(code=WORK, serving=(Serving(PYTHON.name, 5_000),), **fields):
    """A description whose load is a program in Python."""
    return type("MadeUp", (Program,), {"name": "made-up", "serving": serving, "limit": 20,
                                       "load": lambda self, run: run.command([PYTHON, "-c", code]), **fields})()


class RunnerTest(unittest.TestCase):
    def run_it(self, description, seconds=0, anyway=False):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            runner.run_program(description, LIBRARY, seconds, anyway)
        return said.getvalue().splitlines()[-1]

    def expect_failure(self, description, pattern):
        with self.assertRaisesRegex(Failure, pattern):
            self.run_it(description)

    def left_running(self):
        return descendants(process_table(), os.getpid())

    # --- results

    def test_the_same_is_a_success(self):
        last = self.run_it(program())
        self.assertRegex(last, r"^program=made-up runs=1 served=1 blocks=\d{4,} seconds=\d+$")

    def test_it_is_repeated_until_the_time_has_passed(self):
        runs = re.search(r"runs=(\d+)", self.run_it(program(), seconds=2)).group(1)
        self.assertGreater(int(runs), 1)

    def test_another_output_is_found(self):
        self.expect_failure(program(WORK + "print('LD_PRELOAD' in os.environ)"), r"differs in line 2:\n(?:.*\n)+False\n(?:.*\n)+True")

    def test_another_end_is_found(self):
        self.expect_failure(program(WORK + "sys.exit('LD_PRELOAD' in os.environ)"), "on HAKMEM ended with 1")

    def test_a_report_is_found(self):
        self.expect_failure(program(WORK + "if 'LD_PRELOAD' in os.environ:\n print('hakmem: free(): invalid', file=sys.stderr)"),
                            r"reports hakmem: free\(\)")

    def test_a_report_from_the_library_is_found(self):
        code = WORK + "import ctypes\nif 'LD_PRELOAD' in os.environ:\n ctypes.CDLL(None).free(ctypes.c_void_p(4096))"
        self.expect_failure(program(code), r"ended with -6")

    def test_a_hang_is_ended(self):
        start = time.monotonic()
        self.expect_failure(program("import time; time.sleep(60)", limit=1), "too long")
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(self.left_running(), [])

    # --- service

    def test_a_program_without_the_library_is_not_served(self):
        bare = program(load=lambda self, run: run.client([PYTHON, "-c", WORK]))
        self.expect_failure(bare, "gave 5000 blocks to 0 processes")

    def test_another_program_does_not_count(self):
        self.expect_failure(program(serving=(Serving("another", 1),)), "0 processes of another, not 1; there were python")

    def test_too_few_processes_do_not_count(self):
        self.expect_failure(program(serving=(Serving(PYTHON.name, 5_000, processes=2),)), "to 1 processes")

    def test_what_a_child_inherits_does_not_count(self):
        code = WORK + "import time\ntime.sleep(.3)\nif os.fork() == 0:\n time.sleep(.3)\n os._exit(0)\nos.wait()"
        self.expect_failure(program(code, serving=(Serving(PYTHON.name, 4_000, processes=2),)), "to 1 processes")

    def test_what_a_child_does_counts(self):
        code = "import os, time\ntime.sleep(.2)\nif os.fork() == 0:\n" + \
               " kept = [bytes(n) for n in range(600, 30000)]\n time.sleep(.3)\n os._exit(0)\nos.wait()"
        self.run_it(program(code, serving=(Serving(PYTHON.name, 4_000),)))

    def test_a_process_without_statistics_is_read_from_outside(self):
        code = WORK + "import time\nsys.stdout.flush()\ntime.sleep(.5)\nos._exit(0)"
        self.run_it(program(code))

    def test_a_library_that_is_only_mapped(self):
        self.run_it(program(serving=(Serving(PYTHON.name, 0),)))
        bare = program(serving=(Serving(PYTHON.name, 0),), load=lambda self, run: run.client([PYTHON, "-c", WORK]))
        self.expect_failure(bare, "0 processes")

    # --- processes

    def test_a_server_is_ended(self):
        def load(_, run):
            server = run.start([PYTHON, "-c", WORK + "import time; sys.stdout.flush(); time.sleep(60)"])
            server.wait_until(lambda: server.output.stat().st_size, "print")
            return 1
        self.run_it(program(load=load))
        self.assertEqual(self.left_running(), [])

    def test_a_daemon_is_ended(self):
        code = WORK + "import time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0:\n  time.sleep(60)\n os._exit(0)"
        self.run_it(program(code))
        self.assertEqual(self.left_running(), [])

    def test_a_server_that_dies_is_found(self):
        def load(_, run):
            run.start([PYTHON, "-c", "import sys; print('no', file=sys.stderr); sys.exit(4)"]).wait_until(lambda: False, "stay")
        self.expect_failure(program(load=load), r"ended with 4, it should stay:\nno")

    # --- what can't run

    def test_a_missing_program_is_skipped(self):
        with self.assertRaisesRegex(Skip, "no-such-program is missing: install some-package"):
            self.run_it(program(packages={"no-such-program": "some-package"}))

    def test_a_program_that_refuses_is_skipped(self):
        refusing = program(refuses="it has its reasons")
        with self.assertRaisesRegex(Skip, "it has its reasons"):
            self.run_it(refusing)
        self.run_it(refusing, anyway=True)

    def test_skipping_is_said_and_is_77(self):
        done = subprocess.run([PYTHON, "-B", runner.__file__, LIBRARY, "firefox"], stdout=subprocess.PIPE, text=True, check=False,
                              env={**os.environ, "PATH": "/nonexistent"})
        self.assertEqual(done.returncode, 77)
        self.assertRegex(done.stdout, "^SKIPPED: ")

    # --- the descriptions

    def test_every_description_is_whole(self):
        for name, each in PROGRAMS.items():
            self.assertTrue(each.packages and each.serving and each.__doc__, name)

    def test_every_program_is_in_the_soak(self):
        text = (pathlib.Path(__file__).resolve().parents[2] / "soak.ini").read_text(encoding="utf-8")
        sections = re.findall(r"(?m)^\[program (\S+)\]\n(?:.+\n)*?command = .* (\S+) --seconds \{seconds\}$", text)
        self.assertEqual(sorted(sections), sorted((name, name) for name in PROGRAMS))


if __name__ == "__main__":
    if LIBRARY is None:
        sys.exit(__doc__)
    adopt_orphans()
    runner.listen_to_signals()
    unittest.main()
