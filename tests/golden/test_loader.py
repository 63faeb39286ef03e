#!/usr/bin/env python3
"""The dynamic linker at work around the library: auditors, a second preloaded library before and after it, loading and
unloading by the thousand, namespaces of dlmopen and RTLD_DEEPBIND, whose pointers are another malloc's. Where nothing else is
preloaded, with the library preloaded, linked as .so, and in the program as .a."""
# test: timeout=300
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]
ARCHIVE = os.environ["HAK_TEST_ARCHIVE"]
OURS = "malloc of libhakmem.so"
BUILDS = ("preload", "shared", "archive")
LONG = os.environ.get("HAK_TEST_LONG", "0") not in ("", "0")
CALLS = ("free", "realloc", "malloc_usable_size")


def build(*arguments):
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", *arguments, "-pthread", "-ldl"], check=True)


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Loader(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(cls.folder.name)
        cls.plugin = path / "plugin.so"
        cls.users = {name: path / ("user_" + name) for name in BUILDS}
        build(HERE / "loader_user.c", "-o", cls.users["preload"])
        build(HERE / "loader_user.c", "-o", cls.users["shared"], LIBRARY, "-Wl,-rpath," + os.path.dirname(LIBRARY))
        build(HERE / "loader_user.c", "-o", cls.users["archive"], "-Wl,-u,malloc", ARCHIVE)
        build("-fPIC", "-shared", HERE / "loader_plugin.c", "-o", cls.plugin)
        for name in ("wraps", "replaces", "audits", "allocates", "notes"):
            setattr(cls, name, str(path / (name + ".so")))
            build("-fPIC", "-shared", "-D" + name.upper(), HERE / "loader_preload.c", "-o", path / (name + ".so"))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_user(self, *arguments, preload=LIBRARY, kind="preload", **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
        if kind == "preload":
            env["LD_PRELOAD"] = preload
        return subprocess.run([self.users[kind], *arguments], env={**env, **more}, check=False, timeout=200,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, preexec_fn=without_cores)

    def said(self, *arguments, **more):
        done = self.run_user(*arguments, **more)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    # --- other libraries ----------------------------------------------------------------------------------------

    def in_every_build(self, **more):
        for kind in BUILDS:
            with self.subTest(kind):
                ours = "malloc of user_archive" if kind == "archive" else OURS
                self.assertRegex(self.said("plain", kind=kind, **more), re.escape(ours) + r"[.0-9]*, no calls\n")

    def test_alone(self):
        self.in_every_build()

    def test_under_an_auditor(self):
        self.in_every_build(LD_AUDIT=self.audits)

    def test_under_an_auditor_with_immediate_binding(self):
        self.in_every_build(LD_AUDIT=self.audits, LD_BIND_NOW="1")

    def test_a_wrapper_preloaded_before(self):
        self.assertEqual(self.said("plain", preload=self.wraps + ":" + LIBRARY), "malloc of wraps.so, calls\n")

    def test_a_wrapper_preloaded_after(self):
        self.assertRegex(self.said("plain", preload=LIBRARY + ":" + self.wraps), re.escape(OURS) + r"[.0-9]*, no calls\n")

    def test_an_allocator_preloaded_before(self):
        self.assertEqual(self.said("plain", preload=self.replaces + ":" + LIBRARY), "malloc of replaces.so, calls\n")

    def test_an_allocator_preloaded_after(self):
        said = self.said("plain", preload=LIBRARY + ":" + self.replaces)
        self.assertRegex(said, re.escape(OURS) + r"[.0-9]*, no calls\n")

    def test_a_library_that_allocates_preloaded_before(self):
        self.assertIn(OURS, self.said("plain", preload=self.allocates + ":" + LIBRARY))

    def test_a_library_that_allocates_preloaded_after(self):
        self.assertIn(OURS, self.said("plain", preload=LIBRARY + ":" + self.allocates))

    def test_a_wrapper_of_system_calls_that_allocates(self):
        """None of the library's own calls comes through it."""
        for order in (self.notes + ":" + LIBRARY, LIBRARY + ":" + self.notes):
            with self.subTest(order):
                self.assertEqual(self.said("large", preload=order), "no calls\n")

    def test_preloaded_twice(self):
        self.assertIn(OURS, self.said("plain", preload=LIBRARY + ":" + LIBRARY))

    # --- loading and unloading ----------------------------------------------------------------------------------

    def test_cycles_of_dlopen_with_thread_local_memory(self):
        for kind in BUILDS:
            with self.subTest(kind):
                said = self.said("cycles", self.plugin, "10000" if LONG else "1000", kind=kind)
                self.assertLess(int(said.split()[-1]), 1 << 20)

    # --- pointers of another malloc ------------------------------------------------------------------------------

    def foreign(self, what, library, **more):
        """The library works with its own malloc beside ours; a pointer of its malloc is a report and an abort here."""
        for kind in BUILDS:
            with self.subTest(kind):
                self.assertEqual(self.said(what, library, "none", kind=kind, **more), "another malloc\n")
                for call in CALLS:
                    done = self.run_user(what, library, call, kind=kind, **more)
                    self.assertEqual((done.returncode, done.stdout), (-signal.SIGABRT, "another malloc\n"), done.stderr)
                    self.assertRegex(done.stderr, rf"\Ahakmem: {call}\(\): invalid pointer 0x[0-9a-f]+: "
                                                  r"not from this allocator\n\Z")

    def test_pointers_behind_a_wrapper(self):
        """What the wrapper passes on is not given back to it, though it is the program's malloc."""
        done = self.run_user("namespace", self.plugin, "free", preload=self.wraps + ":" + LIBRARY)
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertRegex(done.stderr, r"\Ahakmem: free\(\): invalid pointer 0x[0-9a-f]+: not from this allocator\n\Z")

    def test_pointers_of_a_namespace(self):
        self.foreign("namespace", self.plugin)

    def test_pointers_of_a_deeply_bound_library(self):
        self.foreign("deepbind", self.plugin, HAKMEM_KEEP_DEEPBIND="1")

    def test_pointers_of_the_library_in_another_namespace(self):
        self.foreign("twice", LIBRARY)


if __name__ == "__main__":
    unittest.main()
