#!/usr/bin/env python3
"""The example of a heap in shared memory: what the workers wrote is read, and the one that was killed leaves the heap whole."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
CC = os.environ.get("CC", "cc")
WORDS = 10000


class Example(unittest.TestCase):
    def test_words_of_all_workers(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "shared_heap"
            subprocess.run([CC, "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", ROOT / "examples" / "shared_heap.c", f"-I{ROOT / 'include'}",
                            LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-o", program], check=True)
            for workers in 1, 4, 16:
                done = subprocess.run([program, str(workers)], capture_output=True, text=True, timeout=60, check=True)
                self.assertEqual(done.stderr, "")
                self.assertEqual(done.stdout, f"{(workers - 1) * WORDS} words read, {WORDS // 2} blocks left by the killed worker\n")


if __name__ == "__main__":
    unittest.main()
