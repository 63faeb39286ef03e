#!/usr/bin/env python3
"""Loading at run time: the library itself by dlopen, and libraries that allocate into a program that runs on it."""
import os
import pathlib
import re
import shutil
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
        return self.run_to_end(*arguments, **more).stderr

    def run_to_end(self, *arguments, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        done = subprocess.run([self.program, *arguments], env={**env, **more}, check=False, timeout=60,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def build_library(self, name, *arguments):
        path = pathlib.Path(self.folder.name) / name
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-fPIC", "-shared", *arguments, "-o", path], check=True)
        return path

    def test_the_allocator_loaded_locally(self):
        self.assertEqual(self.run_program("allocator", LIBRARY), "")

    def test_blocks_of_the_malloc_that_was_there(self):
        """Counted to the byte, which the C library does for what lies in no thread's cache."""
        tunables = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
        for how in ("local", "global", "deepbind"):
            for mode in ("0", "1"):
                with self.subTest(how=how, hardened=mode):
                    done = self.run_to_end("others", LIBRARY, how, HAKMEM_HARDEN=mode, **tunables)
                    self.assertEqual((done.stdout, done.stderr), ("another malloc\n", ""))

    def test_a_second_copy_under_the_preloaded_allocator(self):
        """It takes the first one's blocks for what they are, and leaves the symbol that readers from outside look for."""
        second = shutil.copy(LIBRARY, pathlib.Path(self.folder.name) / "second.so")
        for mode in ("0", "1"):
            with self.subTest(hardened=mode):
                done = self.run_to_end("others", second, "local", LD_PRELOAD=LIBRARY, HAKMEM_HARDEN=mode)
                self.assertEqual((done.stdout, done.stderr), ("another malloc\n", ""))

    def test_a_library_that_is_bound_to_the_allocator(self):
        plugin = self.build_library("bound.so", HERE / "loader_plugin.c", LIBRARY,
                                    "-Wl,--no-as-needed,-rpath," + os.path.dirname(LIBRARY))
        done = self.run_to_end("bound", plugin)
        self.assertEqual((done.stdout, done.stderr), ("another malloc\n", ""))

    def test_no_key_is_left(self):
        """Nothing says that a thread ends: heaps of threads that are gone are found by looking."""
        for mode in ("0", "1"):
            with self.subTest(hardened=mode):
                done = self.run_to_end("keys", LIBRARY, HAKMEM_HARDEN=mode)
                self.assertEqual(done.stderr, "")
                self.assertLess(int(done.stdout.removesuffix(" KiB more\n")), 4096)

    def test_static_thread_local_memory_used_up(self):
        """The allocator needs 8 bytes of it. Without them dlopen says so, and the process goes on."""
        source = pathlib.Path(self.folder.name) / "tls.c"
        modules = []
        source.write_text("__thread char held[BYTES] __attribute__((aligned(8), tls_model(\"initial-exec\")));\n"
                          "char *tls_held(void);\nchar *tls_held(void) { return held; }\n")
        for size, count in ((256, 40), (8, 60)):
            first = self.build_library(f"tls{size}.so", f"-DBYTES={size}", source)
            for number in range(count):
                modules.append(first.with_name(f"tls{size}_{number}.so"))
                shutil.copy(first, modules[-1])
        done = self.run_to_end("tls", LIBRARY, *modules)
        self.assertRegex(done.stdout, r"\A\S*libhakmem\.so\S*: cannot allocate memory in static TLS block\n\Z")
        self.assertEqual(done.stderr, "")

    def test_a_plugin_under_the_preloaded_allocator(self):
        said = self.run_program("plugin", self.plugin, LD_PRELOAD=LIBRARY, HAKMEM_STATS="1")
        live = re.search(r"^total .* live=(\d+) ", said, re.M)
        self.assertIsNotNone(live, said)
        self.assertLess(int(live.group(1)), 2000)  # 50 rounds of hundreds of strings: nothing is left of them


if __name__ == "__main__":
    unittest.main()
