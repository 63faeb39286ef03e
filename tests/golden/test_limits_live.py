#!/usr/bin/env python3
"""The limit of a memory control group is kept to while it is kept to by the kernel: a server that holds 300 MiB where there is no limit
is not killed in 256 MiB, since memory goes back before; and a limit that is lowered while the server runs is followed."""
# test: serial timeout=120
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

from memory_group import memory_group

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
MIB = 1 << 20


class LiveLimits(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server, cls.again = (pathlib.Path(cls.folder.name) / name for name in ("group_server", "group_again"))
        for program in (cls.server, cls.again):
            command = [os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-pthread", "-I", HERE.parent.parent / "include",
                       HERE / f"{program.name}.c", "-o", program]
            subprocess.run(command, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, group, argument, program=None):
        process = subprocess.Popen([program or self.server, str(argument)], env={**os.environ, "LD_PRELOAD": str(LIBRARY)}, text=True,
                                   stdout=subprocess.PIPE, preexec_fn=group.enter)  # noqa: PLW1509
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def test_not_killed(self):
        with memory_group(256 * MIB) as group:
            if group is None:
                self.skipTest("no memory control group can be made here")
            process = self.serve(group, 6)
            self.assertEqual(process.communicate(timeout=60)[0], "served\n")
            self.assertEqual(process.returncode, 0)
            self.assertEqual(group.kills, 0)

    def test_grown_again(self):
        """Memory whose pages have gone back counts when it is used again: the callback is called in time each time."""
        for size in (700, 20000, 200000, 3 * MIB):
            with self.subTest(size), memory_group(128 * MIB) as group:
                if group is None:
                    self.skipTest("no memory control group can be made here")
                process = self.serve(group, size, self.again)
                said = process.communicate(timeout=60)[0]
                self.assertRegex(said, r"^called at 9[0-5] % at most\n$")
                self.assertEqual(group.kills, 0)

    def test_lowered(self):
        """From a limit that asks for nothing to one that is about what the server holds."""
        with memory_group(4096 * MIB) as group:
            if group is None:
                self.skipTest("no memory control group can be made here")
            process = self.serve(group, 12)
            time.sleep(5)
            before = group.used
            if before < 260 * MIB:
                self.skipTest(f"the server held only {before // MIB} MiB: this machine had no time for it")
            group.limit(before + 16 * MIB)
            least = before
            until = time.monotonic() + 5
            while time.monotonic() < until:
                time.sleep(0.1)
                least = min(least, group.used)
            self.assertEqual(process.communicate(timeout=60)[0], "served\n")
            self.assertEqual(group.kills, 0)
            self.assertLess(least, before - 30 * MIB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
