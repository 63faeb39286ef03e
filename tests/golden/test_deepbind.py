#!/usr/bin/env python3
"""Libraries that a program on HAKMEM opens with RTLD_DEEPBIND: they share its malloc, and whoever opens them is still who opens
them for the C library."""
# test: interposed timeout=200
import os
import pathlib
import platform
import re
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]
ARCHIVE = os.environ["HAK_TEST_ARCHIVE"]
BUILDS = ("preload", "shared")
LAST_JUMPS = {"x86_64": r"jmp +\*%r\w+$", "aarch64": r"br\s+x1[67]$"}
KEEP = {"HAKMEM_KEEP_DEEPBIND": "1"}


def build(*arguments):
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", *arguments, "-pthread", "-ldl"], check=True)


@unittest.skipIf(platform.machine() not in LAST_JUMPS, "dlopen is the C library's on this processor")
class Deepbind(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.plugin = cls.path / "plugin.so"
        cls.users = {name: cls.path / ("user_" + name) for name in ("preload", "shared", "archive")}
        build(HERE / "deepbind_user.c", "-o", cls.users["preload"])
        build(HERE / "deepbind_user.c", "-o", cls.users["shared"], LIBRARY, "-Wl,-rpath," + os.path.dirname(LIBRARY))
        build(HERE / "deepbind_user.c", "-o", cls.users["archive"], "-Wl,-u,malloc", ARCHIVE)
        build("-fPIC", "-shared", HERE / "loader_plugin.c", "-o", cls.plugin)
        for what in ("replaces", "wraps"):
            build("-fPIC", "-shared", "-D" + what.upper(), HERE / "loader_preload.c", "-o", cls.path / (what + ".so"))
        for number in ("1", "2"):
            place = cls.path / number / "below"
            place.mkdir(parents=True)
            build("-fPIC", "-shared", "-DNUMBER=" + number, HERE / "deepbind_caller.c", "-o", place / "libopened.so",
                  "-Wl,-soname,libopened.so")
            build("-fPIC", "-shared", HERE / "deepbind_caller.c", "-o", cls.path / number / "caller.so",
                  "-Wl,--enable-new-dtags,-rpath,$ORIGIN/below")
        cls.callers = [cls.path / number / "caller.so" for number in ("1", "2")]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def said(self, kind, *arguments, preload=LIBRARY, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
        if kind == "preload":
            env["LD_PRELOAD"] = preload
        done = subprocess.run([self.users["preload" if kind == "none" else kind], *arguments], env={**env, **more}, check=False,
                              timeout=100, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return done.stdout

    # --- one malloc -----------------------------------------------------------------------------------------------

    def test_the_library_has_the_programs_malloc(self):
        for kind in BUILDS:
            with self.subTest(kind):
                self.assertEqual(self.said(kind, "malloc", self.plugin), "the same malloc\n")

    def test_blocks_of_either_in_the_others_hands(self):
        for kind in BUILDS:
            with self.subTest(kind):
                self.assertEqual(self.said(kind, "exchange", self.plugin), "exchanged\n")

    def test_threads_that_open_and_close_it(self):
        self.assertEqual(self.said("preload", "threads", self.plugin), "exchanged\n")

    def test_the_option_leaves_the_flag(self):
        for kind in BUILDS:
            with self.subTest(kind):
                self.assertEqual(self.said(kind, "malloc", self.plugin, **KEEP), "another malloc\n")

    def test_another_library_preloaded_before(self):
        for what in ("replaces", "wraps"):
            with self.subTest(what):
                both = f"{self.path / (what + '.so')}:{LIBRARY}"
                self.assertEqual(self.said("preload", "malloc", self.plugin, preload=both), "the same malloc\n")

    def test_the_archive_leaves_dlopen_alone(self):
        self.assertEqual(self.said("archive", "malloc", self.plugin), "another malloc\n")
        names = subprocess.run(["nm", ARCHIVE], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertNotRegex(names, r"\bdlm?open\b|\bdlsym\b")

    # --- the caller -----------------------------------------------------------------------------------------------

    def as_without(self, expected, *arguments):
        self.assertEqual(self.said("none", *arguments), expected)
        for kind in BUILDS:
            with self.subTest(kind):
                self.assertEqual(self.said(kind, *arguments), expected)
                self.assertEqual(self.said(kind, *arguments, **KEEP), expected)

    def test_a_name_is_looked_for_in_the_callers_runpath(self):
        self.as_without(" 1 2 1 2 1 2 none\n", "callers", *self.callers, "libopened.so")

    def test_origin_is_the_callers_place(self):
        self.as_without(" 1 2 1 2 1 2 none\n", "callers", *self.callers, "$ORIGIN/below/libopened.so")

    def test_namespaces(self):
        for number, caller in enumerate(self.callers, 1):
            self.as_without(f" {number} elsewhere\n", "namespace", caller, "libopened.so")

    def test_failures(self):
        said = "none libnosuch.so: cannot open shared object file: No such file or directory\n"
        self.as_without(said, "missing")

    def test_both_functions_end_in_a_jump(self):
        for name in ("dlopen", "dlmopen"):
            text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", f"--disassemble={name}", LIBRARY], check=True,
                                  stdout=subprocess.PIPE, text=True, env={**os.environ, "LC_ALL": "C"}).stdout
            body = re.search(rf"<{name}>:\n((?: +[0-9a-f]+:.*\n)+)", text).group(1).splitlines()
            self.assertRegex(body[-1].rstrip(), LAST_JUMPS[platform.machine()])
            self.assertEqual([line for line in body if re.search(r"\tret\b", line)], [])


if __name__ == "__main__":
    unittest.main()
