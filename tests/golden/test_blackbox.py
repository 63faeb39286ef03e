#!/usr/bin/env python3
"""The black box: after SIGKILL by the kernel in a memory control group, and by this test, hakmem postmortem says what held the
memory and why; every process has a file of its own, and a normal exit removes it; what cannot be written costs one line."""
# test: emulated timeout=300
import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from memory_group import memory_group

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
from emulated import EMULATOR, of_program, on_library

LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
STARTER = [*([EMULATOR] if EMULATOR else []), LIBRARY.parent / "bin" / "hakmem"]
MIB = 1 << 20


# An emulator takes its time, and its own memory counts; it may not tell the library of a child.
native = unittest.skipIf(EMULATOR, "not under an emulator")


class BlackBox(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.user = pathlib.Path(cls.folder.name) / "blackbox_user"
        command = [os.environ.get("CC", "cc"), "-O1", "-g", "-rdynamic", "-fno-builtin", "-pthread", HERE / "blackbox_user.c", "-o", cls.user]
        subprocess.run(command, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        here = tempfile.TemporaryDirectory()
        self.addCleanup(here.cleanup)
        self.box = pathlib.Path(here.name)

    def start(self, *words, group=None, **settings):
        command, environment = on_library(LIBRARY, [self.user, *map(str, words)], {**os.environ, "HAKMEM_BLACKBOX": str(self.box), **settings})
        process = subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True, preexec_fn=group and group.enter)  # noqa: PLW1509
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def files(self):
        return sorted(self.box.glob("*.hakbox"))

    def page(self, *words, status=0):
        done = subprocess.run([*STARTER, "postmortem", *map(str, words or [self.box])], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout + done.stderr

    @staticmethod
    def records(path):
        """How many records the file has had so far, and where the last one is."""
        content = path.read_bytes()
        size, slot = (int.from_bytes(content[at:at + 8], "little") for at in (8, 16))
        return max((int.from_bytes(content[at:at + 8], "little"), at) for at in (size - 2 * slot, size - slot))

    def await_records(self, path, more=2):
        """Until so many have been written since: how often they come depends on what one takes."""
        wanted, until = self.records(path)[0] + more, time.monotonic() + 30
        while self.records(path)[0] < wanted and time.monotonic() < until:
            time.sleep(0.05)

    def held(self, *words, **settings):
        """The page after SIGKILL, once the program has said that it holds its memory, and that has been written."""
        process = self.start(*words, HAKMEM_BLACKBOX_EVERY="100", **settings)
        self.assertEqual(process.stdout.readline(), "held\n", process)
        self.await_records(self.files()[0])
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        self.assertNotIn("a process of this number runs", self.page())   # although nobody has asked for its status
        process.wait()
        return self.page()

    def share(self, page, row):
        return int(re.search(rf"^  {row} .* (\d+) %$", page, re.M).group(1))

    @native
    def test_killed_by_the_kernel(self):
        """The last record is from the end: most of the limit is used, by live blocks, and the stack that keeps them is named."""
        with memory_group(96 * MIB) as group:
            if group is None:
                self.skipTest("no memory control group can be made here")
            process = self.start("leak", group=group, HAKMEM_PROFILE="auto", HAKMEM_PROFILE_INTERVAL="64K")
            process.wait(timeout=60)
            self.assertEqual(process.returncode, -signal.SIGKILL)
            self.assertGreaterEqual(group.kills, 1)
        page = self.page()
        self.assertIn("the control group's limit", page)
        self.assertGreaterEqual(int(re.search(r"used \((\d+) %\)", page).group(1)), 80, page)
        self.assertGreaterEqual(self.share(page, "blocks in the program's hands"), 85, page)
        self.assertIn("Verdict: a leak", page)
        self.assertIn("keep_one", page)
        self.assertIn("killed, most likely for want of memory", page)

    @native
    def test_levels_without_a_group(self):
        """HAKMEM_LIMIT is a limit too; a program that meets it with ENOMEM exits by itself, and the box goes."""
        page = self.held("hold", 56, HAKMEM_LIMIT="64M")
        self.assertIn("HAKMEM_LIMIT", page)
        self.assertGreaterEqual(int(re.search(r"used \((\d+) %\)", page).group(1)), 80, page)
        self.files()[0].unlink()
        process = self.start("hold", 200, HAKMEM_LIMIT="64M")
        process.wait(timeout=60)
        self.assertEqual(process.returncode, 3)
        self.assertEqual(self.files(), [])

    @native
    def test_scattered(self):
        page = self.held("scatter", 96)
        self.assertIn("Verdict: fragmentation", page)

    @native
    def test_every_block_sampled(self):
        """Requests of sampled blocks have the limits looked at as well: no other request comes."""
        process = self.start("hold", 8, HAKMEM_PROFILE="leaks", HAKMEM_BLACKBOX_EVERY="100")
        self.assertEqual(process.stdout.readline(), "held\n", process)
        before = self.records(self.files()[0])[0]
        self.await_records(self.files()[0])
        self.assertGreaterEqual(self.records(self.files()[0])[0], before + 2)

    @native
    def test_outside(self):
        page = self.held("outside", 96)
        self.assertIn("Verdict: outside of malloc", page)

    @native
    def test_children(self):
        """A forked child has its own file, and its parent's stays the parent's."""
        process = self.start("fork", 32, HAKMEM_BLACKBOX_EVERY="100")
        process.stdout.readline()
        process.stdout.readline()
        until = time.monotonic() + 20
        while len(self.files()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        for path in self.files():
            self.await_records(path)
        names = [path.name for path in self.files()]
        self.assertEqual(len(names), 2, names)
        self.assertEqual(len([name for name in names if name.startswith(f"{process.pid}.")]), 1)
        for name in names:
            os.kill(int(name.split(".")[0]), signal.SIGKILL)
        for name in names:
            page = self.page(self.box / name)
            self.assertIn(f"process {name.split('.')[0]},", page)
        child = next(name for name in names if not name.startswith(f"{process.pid}."))
        self.assertGreater(self.resident(self.page(self.box / child)), 60)

    @native
    def test_ends_without_destructors(self):
        """_exit removes the caller's own file: not the parent's, whose memory a vfork child shares. Many shells end by it, and
        processes that become daemons."""
        process = self.start("ends", 1, HAKMEM_BLACKBOX_EVERY="100")
        until = time.monotonic() + 20
        while len(self.files()) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        self.assertEqual(len(self.files()), 2)
        self.assertEqual(process.stdout.readline(), "held\n", process)
        self.assertEqual([path.name.split(".")[0] for path in self.files()], [str(process.pid)])
        self.files()[0].unlink()
        environment = {**os.environ, "LD_PRELOAD": str(LIBRARY), "HAKMEM_BLACKBOX": str(self.box)}
        subprocess.run(["sh", "-c", "(:); exit 0"], env=environment, check=True)
        self.assertEqual(self.files(), [])
        become = "import ctypes, sys; ctypes.CDLL(None).daemon(0, 1); sys.stdout.write('a daemon')"
        done = subprocess.run([sys.executable, "-c", become], env=environment, stdout=subprocess.PIPE, text=True, check=True)
        self.assertEqual((done.stdout, self.files()), ("a daemon", []))  # the pipe is at its end once both have ended

    def resident(self, page):
        return float(re.search(r"memory +([0-9.]+) MiB resident", page).group(1))

    def test_crash(self):
        process = self.start("crash", 8)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGSEGV)
        page = self.page()
        self.assertIn("because of a crash", page)
        self.assertIn("signal    11, address 0x10", page)
        self.assertGreater(self.resident(page), 8)  # what came after the last look counts

    def test_misuse(self):
        """The report that ended the program stands in the box."""
        process = self.start("double", 1)
        said = of_program(process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, -signal.SIGABRT)
        self.assertEqual(said.count("hakmem:"), 1, said)
        self.assertRegex(self.page(), r"Last reports\n  hakmem: .*double free")

    def test_exit_in_order(self):
        process = self.start("exit", 8)
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertEqual(self.files(), [])

    def test_exit_by_a_thread(self):
        """_exit ends all threads, with its status."""
        process = self.start("leave", 8)
        self.assertEqual(process.wait(timeout=60), 4)
        self.assertEqual(self.files(), [])

    def test_folder_that_cannot_be_written(self):
        environment = {"HAKMEM_BLACKBOX": str(self.box / "none")}
        process = self.start("exit", 8, **environment)
        said = of_program(process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 0)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertIn("option blackbox", said)

    def test_full_disk(self):
        """A file system without room for the file: no signal, now or later."""
        small = self.box / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "none", small], capture_output=True, check=False).returncode != 0:
            self.skipTest("no file system can be mounted here")
        self.addCleanup(subprocess.run, ["umount", small], check=False)
        process = self.start("exit", 8, HAKMEM_BLACKBOX=str(small))
        said = of_program(process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 0)
        self.assertEqual(len(said.splitlines()), 1, said)
        self.assertEqual(list(small.iterdir()), [])

    @native
    def test_truncated_while_it_runs(self):
        """Costs one line, and the file; the process runs on, where a write behind the end of the file would be SIGBUS."""
        for size in (0, 100, 20000):
            process = self.start("hold", 8, HAKMEM_BLACKBOX_EVERY="100")
            self.assertEqual(process.stdout.readline(), "held\n", process)
            path = self.files()[0]
            os.truncate(path, size)
            said = process.stderr.readline()
            self.assertRegex(said, rf"\Ahakmem: option blackbox: {path} has been truncated")
            time.sleep(1.2)
            self.assertIsNone(process.poll())
            self.assertEqual(path.stat().st_size, size)
            process.kill()
            self.assertEqual(process.communicate()[1], "")
            path.unlink()

    def test_damaged_files(self):
        self.held("hold", 16)
        good = self.files()[0]
        content = good.read_bytes()
        for name, bad, wanted in [("1.1.hakbox", b"", "cannot be read, or is empty"),
                                  ("2.1.hakbox", b"x" * 100, "is no black box"),
                                  ("3.1.hakbox", content[:8] + b"\1" + content[9:], "another version"),
                                  ("4.1.hakbox", content[:200] + bytes(len(content) - 200), "no record in it is whole"),
                                  ("5.1.hakbox", content[:4096], "has been truncated")]:
            path = self.box / name
            path.write_bytes(bad)
            said = self.page(path, status=1)
            self.assertIn(wanted, said)
            self.assertEqual(len(said.splitlines()), 1, said)
        page = self.page()
        self.assertIn("blackbox_user", page)
        self.assertIn("no black box of process 6, but 6 of others", self.page(self.box, 6, status=1))

    def test_few_points(self):
        """Memory grows in each quarter, although the point of its end comes a moment after it."""
        self.held("hold", 64)
        path = self.files()[0]
        content = bytearray(path.read_bytes())
        slot, points = self.records(path)[1] + 16, 128 * 40
        ms, resident = struct.unpack_from("<Q112xQ", content, slot)
        start = len(content) - 2 * int.from_bytes(content[16:24], "little") - points
        content[start:start + points] = bytes(points)
        for number, (when, part) in enumerate(((0.01, 0.02), (1, 0.25), (2.03, 0.5), (3.06, 0.75), (4.06, 1))):
            struct.pack_into("<5Q", content, start + number * 40, int(when / 5.27 * ms), int(part * resident), 0, 0, 0)
        path.write_bytes(content)
        self.assertIn("Verdict: a leak", self.page(path))

    def test_one_slot_is_enough(self):
        """A byte that changed in the last record costs that record, not the one before it."""
        self.held("hold", 16)
        path = self.files()[0]
        content = bytearray(path.read_bytes())
        before = self.page(path)
        content[self.records(path)[1] + 4096] ^= 1
        path.write_bytes(content)
        after = self.page(path)
        self.assertIn("blackbox_user", after)
        self.assertNotEqual(before, after)


if __name__ == "__main__":
    unittest.main(verbosity=2)
