#!/usr/bin/env python3
"""What a heap of one's own costs, in instructions by valgrind: a warm hak_heap_malloc and free beside malloc and free, for one
thread and for several on one heap; and that it is the same however many blocks went before. And what a heap with one block costs: its
whole life in instructions, and the resident bytes of one.

The program is heap_path.c. Its loop is counted too, for both alike; the limits are those of the two calls alone, so what the loop
costs is measured by itself and taken off.
"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROUNDS = 20000
BLOCKS = 1000      # of `requests`
FILL = 19          # instructions of its loop
LOOP = 12          # instructions of the loop around the two calls, by which the limits are meant
ALONE = 1.3        # hak_heap_malloc and free, in terms of malloc and free
TOGETHER = 1.5     # the same on four threads
DEFAULT = 1.01     # malloc and free with a default heap
TURNS = 2.5        # the same with a thousand heaps by turns
BUMP = 4           # HAK_HEAP_BUMP
LIFE = {0: 4300, BUMP: 3400}     # instructions of a heap's life with one block, by its flags
MANY = 95          # instructions a block of a heap's life with a thousand of 16 to 1040 bytes
HELD = {0: 9.3 * 1024, BUMP: 13.5 * 1024}   # bytes of such a heap


class HeapPath(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("valgrind") is None:
            raise unittest.SkipTest("valgrind is not installed")
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name) / "heap_path"
        library = pathlib.Path(os.environ["HAK_TEST_LIB"])
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", f"-I{HERE.parents[1] / 'include'}", f"-I{HERE.parent}",
                        HERE / "heap_path.c", library, f"-Wl,-rpath,{library.parent}", "-pthread", "-o", cls.program],
                       check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def environment(self, flags=0):
        mine = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        return {**mine, "HEAP_PATH_FLAGS": str(flags)}

    def counted(self, kind, threads, count, flags=0):
        done = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                               "--soname-synonyms=somalloc=nouserintercepts", self.program, kind, str(threads), str(count), "100"],
                              check=True, stderr=subprocess.PIPE, text=True, env=self.environment(flags))
        return int(re.search(r"refs:\s+([\d,]+)", done.stderr)[1].replace(",", ""))

    def pair(self, kind, threads=1):
        more = self.counted(kind, threads, ROUNDS + 1000) - self.counted(kind, threads, 1000)
        return more / ROUNDS / threads - LOOP

    def test_one_thread(self):
        plain, heap = self.pair("malloc"), self.pair("heap")
        print(f"malloc and free: {plain:.1f} instructions; hak_heap_malloc and free: {heap:.1f} = {heap / plain:.3f} x")
        self.assertLessEqual(heap, ALONE * plain)

    def test_default_heap(self):
        plain, heap = self.pair("malloc"), self.pair("default")
        print(f"malloc and free with a default heap: {heap:.1f} instructions = {heap / plain:.3f} x")
        self.assertLessEqual(heap, DEFAULT * plain)

    def test_heaps_by_turns(self):
        plain = self.pair("malloc")
        for heaps in (2, 9, 1000):
            heap = self.pair(f"turns{heaps}")
            print(f"{heaps} heaps by turns: {heap:.1f} instructions = {heap / plain:.3f} x")
            self.assertLessEqual(heap, TURNS * plain)

    def test_several_threads(self):
        plain, heap = self.pair("malloc", 4), self.pair("heap", 4)
        print(f"4 threads: {plain:.1f} and {heap:.1f} instructions = {heap / plain:.3f} x")
        self.assertLessEqual(heap, TOGETHER * plain)

    def test_a_heap_with_many_blocks(self):
        life = (self.counted("requests", 1, 80) - self.counted("requests", 1, 20)) / 60
        each = life / BLOCKS - FILL
        print(f"a heap with {BLOCKS} blocks: {each:.1f} instructions a block")
        self.assertLessEqual(each, MANY)

    def test_a_heap_with_one_block(self):
        for flags, most in LIFE.items():
            life = (self.counted("life", 1, 1200, flags) - self.counted("life", 1, 200, flags)) / 1000
            done = subprocess.run([self.program, "held", "1", "2000", "100"], check=True, stdout=subprocess.PIPE, text=True,
                                  env=self.environment(flags))
            held = int(re.search(r"bytes=(\d+)", done.stdout)[1])
            print(f"a heap with one block, flags {flags}: {life:.0f} instructions, {held} bytes")
            self.assertLessEqual(life, most)
            self.assertLessEqual(held, HELD[flags])


if __name__ == "__main__":
    unittest.main()
