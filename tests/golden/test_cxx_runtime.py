#!/usr/bin/env python3
"""operator new without memory, wherever the C++ runtime is: loaded by a C program for one library alone, twice in a process,
inside of that library, linked into the program in part or in whole, or nowhere."""
# test: timeout=300
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]
ARCHIVE = os.environ["HAK_TEST_ARCHIVE"]
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
BUILDS = {
    "preload": [],
    "shared": [LIBRARY, "-Wl,-rpath," + os.path.dirname(LIBRARY)],
    "archive": ["-Wl,-u,malloc", ARCHIVE, "-pthread"],
}
EXPECTED = {
    "failing": "ttttnnnn",
    "handler throws": "hhhhnnnn",
    "handler throws bad_alloc": "ttttnnnn",
    "room": "rrrrrrrr",
    "nothing left": "bad_alloc",
}
NO_RUNTIME = "hakmem: operator new(): out of memory, and no C++ runtime to throw std::bad_alloc\n"


def build(compiler, *arguments):
    return subprocess.run([compiler, "-O1", "-fno-builtin", *arguments], check=True)


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Runtime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        for name, linked in BUILDS.items():
            build(CC, HERE / "cxx_user.c", "-o", cls.path / f"user_{name}", *linked, "-ldl")
        cls.plugin = cls.make_plugin("plugin")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def make_plugin(cls, name, *more, compiler=CXX):
        path = cls.path / (name + ".so")
        build(compiler, "-std=c++17", "-fPIC", "-shared", HERE / "cxx_plugin.cpp", "-o", path, *more)
        return path

    def start(self, kind, *command):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
        if kind == "preload":
            env["LD_PRELOAD"] = LIBRARY
        return subprocess.run(command, env=env, check=False, timeout=200, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, preexec_fn=without_cores)

    def expect(self, said, kind, *command):
        done = self.start(kind, *command)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, said + "\n", ""))

    def every_case(self, *plugins):
        for kind in BUILDS:
            for case, expected in EXPECTED.items():
                with self.subTest(kind=kind, case=case):
                    self.expect(" ".join([expected] * len(plugins)), kind, self.path / f"user_{kind}", *plugins, case)

    # --- loaded by a C program --------------------------------------------------------------------------------------

    def test_a_plugin_of_a_c_program(self):
        self.every_case(self.plugin)

    def test_a_plugin_with_the_runtime_inside(self):
        for style in ("gnu", "sysv"):
            self.every_case(self.make_plugin("inside_" + style, "-static-libstdc++", "-static-libgcc", "-Wl,--hash-style=" + style))

    def test_two_runtimes_each_for_its_plugin(self):
        """Each has handlers and exceptions of its own, which the other one's catch clauses do not know."""
        clang = shutil.which("clang++")
        if clang is None or subprocess.run([clang, "-stdlib=libc++", "-x", "c++", "-shared", "-o", "/dev/null", "/dev/null"],
                                           check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest("a second runtime is missing: install clang and libc++-dev")
        other = self.make_plugin("other", "-stdlib=libc++", compiler=clang)
        self.every_case(self.plugin, other)   # loaded in the other order they crash on the system's malloc too

    # --- linked into the program -----------------------------------------------------------------------------------

    def test_a_program(self):
        for kind, linked in BUILDS.items():
            program = self.path / f"program_{kind}"
            build(CXX, "-std=c++17", "-DPROGRAM", HERE / "cxx_plugin.cpp", "-o", program, *linked)
            for case, expected in EXPECTED.items():
                with self.subTest(kind=kind, case=case):
                    self.expect(expected, kind, program, case)

    def test_a_runtime_in_part(self):
        for name, flags, kinds in (("dynamic", [], BUILDS), ("in the program", ["-static-libstdc++"], ["preload", "archive"]),
                                   ("static", ["-static"], ["archive"])):
            for kind in kinds:
                with self.subTest(kind=kind, runtime=name):
                    build(CXX, "-std=c++17", *flags, HERE / "cxx_small.cpp", "-o", self.path / "small", *BUILDS[kind])
                    done = self.start(kind, self.path / "small")
                    self.assertEqual((done.returncode, done.stderr), (3, ""))

    def test_a_runtime_in_the_program_is_the_programs_alone(self):
        """What the program exports for our sake would be used by every library that it loads later. So the library cannot reach
        what catches an exception there, and catches by itself what a handler throws out of new(nothrow)."""
        for inside in (["-static-libstdc++"], ["-static-libstdc++", "-static-libgcc"]):
            build(CXX, "-std=c++17", *inside, "-DPROGRAM", HERE / "cxx_plugin.cpp", "-o", self.path / "alone",
                  *BUILDS["shared"], "-Wl,-u,_ZSt17__throw_bad_allocv")
            for case, expected in EXPECTED.items():
                with self.subTest(case, inside=inside):
                    self.expect(expected, "shared", self.path / "alone", case)
        names = subprocess.run(["nm", "-D", "--defined-only", self.path / "alone"], check=True, stdout=subprocess.PIPE,
                               text=True).stdout
        self.assertNotIn("__cxa_", names)

    def test_a_program_without_exceptions(self):
        for kind, linked in BUILDS.items():
            with self.subTest(kind):
                build(CXX, "-std=c++17", "-fno-exceptions", "-DUNCAUGHT", HERE / "cxx_small.cpp", "-o", self.path / "plain",
                      *linked)
                done = self.start(kind, self.path / "plain")
                self.assertEqual(done.returncode, -signal.SIGABRT)
                self.assertIn("std::bad_alloc", done.stderr)
                self.assertNotIn("hakmem", done.stderr)

    def test_a_program_linked_with_another_allocator(self):
        """Each block of each operator new comes from here, so that each delete knows it."""
        other = self.path / "libother.so"
        build(CC, "-fPIC", "-shared", HERE / "cxx_other.c", "-o", other)
        build(CXX, "-std=c++17", HERE / "cxx_linked_user.cpp", "-o", self.path / "linked", other, "-Wl,-rpath," + str(self.path))
        self.expect("sorted", "preload", self.path / "linked")

    # --- nowhere ---------------------------------------------------------------------------------------------------

    def test_no_runtime(self):
        for kind, flags in (("shared", []), ("archive", []), ("archive", ["-static"])):
            with self.subTest(kind=kind, flags=flags):
                build(CC, *flags, HERE / "cxx_none.c", "-o", self.path / "none", *BUILDS[kind])
                done = self.start(kind, self.path / "none")
                self.assertEqual((done.returncode, done.stderr), (-signal.SIGABRT, NO_RUNTIME))


if __name__ == "__main__":
    unittest.main()
