#!/usr/bin/env python3
"""Loading at run time: the library itself by dlopen, and libraries that allocate into a program that runs on it."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]


class Dlopen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name) / "dlopen_user"
        cls.plugin = pathlib.Path(cls.folder.name) / "plugin.so"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", HERE / "dlopen_user.c", "-o", cls.program,
                        "-pthread", "-ldl"], check=True)
        subprocess.run([os.environ.get("CXX", "c++"), "-O1", "-std=c++17", "-fPIC", "-shared",
                        HERE / "dlopen_plugin.cpp", "-o", cls.plugin, "-pthread"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, *arguments, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        done = subprocess.run([self.program, *arguments], env={**env, **more}, check=False, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def test_the_allocator_loaded_locally(self):
        self.assertEqual(self.run_program("allocator", LIBRARY), "")

    def test_a_plugin_under_the_preloaded_allocator(self):
        said = self.run_program("plugin", self.plugin, LD_PRELOAD=LIBRARY, HAKMEM_STATS="1")
        live = re.search(r"^total .* live=(\d+) ", said, re.M)
        self.assertIsNotNone(live, said)
        self.assertLess(int(live.group(1)), 2000)  # 50 rounds of hundreds of strings: nothing is left of them


if __name__ == "__main__":
    unittest.main()
