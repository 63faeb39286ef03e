#!/usr/bin/env python3
"""Reports go where descriptor 2 led when the library was loaded: not into a file of the program's own that has the number by then,
also if the program has closed every descriptor, and not nowhere, if it has closed 2 as `ls` does; single lines also into a log that
the program has redirected it to. A reader that has gone away changes no exit status, and one that reads nothing holds no exit up
for more than a few seconds. The same for files of statistics and profiles that are given by a name of descriptor 2."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]
STATS = {"HAKMEM_STATS": "1"}
SEVERAL = {**STATS, "HAKMEM_WARM_POOL_STATS": "1", "HAKMEM_SHARED_POOL_STATS": "1", "HAKMEM_STATS_LEDGER": "1"}
STALL = 15  # seconds: far more than the library waits for a reader


class Descriptor2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.user = pathlib.Path(cls.folder.name) / "user"
        cls.file = pathlib.Path(cls.folder.name) / "file"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "stderr_user.c", "-o", cls.user], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_with(self, command, stderr=subprocess.PIPE, **options):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        return subprocess.run(command, env={**environment, "LD_PRELOAD": LIBRARY, **options}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=stderr, text=True, timeout=STALL, check=False,
                              cwd=self.folder.name)

    def user_with(self, mode, **options):
        self.file.unlink(missing_ok=True)
        done = self.run_with([self.user, mode, self.file], **options)
        return done, self.file.read_text()

    def test_says_it_where_it_was(self):
        for options in (STATS, SEVERAL, {"HAKMEM_PROFILE": "1", **STATS}, {"HAKMEM_STATS": "json:/dev/stderr"},
                        {"HAKMEM_STATS": "prom:/proc/self/fd/2"}):
            for mode in ("replace", "all"):
                done, own = self.user_with(mode, **options)
                self.assertEqual((done.returncode, own), (0, "data\n"), (mode, options))
                self.assertEqual("bytes live" in done.stderr or "hakmem_" in done.stderr or '"' in done.stderr, mode == "replace",
                                 (mode, options, done.stderr))

    def test_a_profile_may_be_asked_for_there(self):
        done, own = self.user_with("dump", HAKMEM_PROFILE="ready")
        self.assertEqual((done.returncode, own), (0, "data\n"))
        self.assertIn("heap_v2", done.stderr)

    def test_programs_that_close_it(self):
        for command in (["ls", "/"], ["sort", "/dev/null"]):
            done = self.run_with(command, **STATS)
            self.assertIn("bytes live", done.stderr)
        done = self.run_with(["sh", "-c", f"exec 2>&-; exec {self.user} replace {self.file}"], **STATS)
        self.assertEqual((done.stderr, self.file.read_text()), ("", "data\n"))

    def test_misuse(self):
        done, own = self.user_with("misuse")
        self.assertEqual((done.returncode, own), (-signal.SIGABRT, "data\n"))
        done, log = self.user_with("redirect")
        self.assertEqual(done.returncode, -signal.SIGABRT)
        self.assertIn("double free", log)
        for options in ({"HAKMEM_HARDEN": "1"}, STATS):   # statistics keep a descriptor, hardened mode alone does not
            done, own = self.user_with("misuse", **options)
            self.assertEqual((done.returncode, own), (-signal.SIGABRT, "data\n"))
        self.assertIn("double free", done.stderr)

    def test_without_a_reader(self):
        for options in (STATS, SEVERAL):
            reader, writer = os.pipe()
            os.close(reader)
            self.assertEqual(self.run_with(["/bin/true"], stderr=writer, **options).returncode, 0)
            os.close(writer)
        for _ in range(20):
            reader, writer = os.pipe()
            with subprocess.Popen(["head", "-c", "1"], stdin=reader, stdout=subprocess.DEVNULL) as head:
                os.close(reader)
                self.assertEqual(self.run_with(["/bin/true"], stderr=writer, **SEVERAL).returncode, 0)
                os.close(writer)
                head.wait(timeout=STALL)

    def test_with_a_reader_that_reads_nothing(self):
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, bytes(4096))
        except BlockingIOError:
            os.set_blocking(writer, True)
        began = time.monotonic()
        self.assertEqual(self.run_with(["/bin/true"], stderr=writer, **SEVERAL).returncode, 0)
        self.assertLess(time.monotonic() - began, STALL)
        pipe = pathlib.Path(self.folder.name) / "pipe"
        os.mkfifo(pipe)
        done = self.run_with(["/bin/true"], HAKMEM_STATS=f"json:{pipe}")
        self.assertEqual(done.returncode, 0)
        self.assertIn("could not be written", done.stderr)
        os.close(reader)
        os.close(writer)

    def test_costs_a_descriptor_only_where_something_is_said(self):
        for options, code in (({}, 1), (STATS, 0)):
            self.assertEqual(self.run_with(["readlink", "/proc/self/fd/1000"], **options).returncode, code)


if __name__ == "__main__":
    unittest.main()
