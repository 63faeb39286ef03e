#!/usr/bin/env python3
"""The instructions that warm calls of the malloc family execute: how many, and none that is slow by nature.

No call (nothing is looked up, counted or checked elsewhere), no atomic read-modify-write; but for large and huge blocks that the
thread keeps, which are only counted. The program fast_path.c steps
through the functions and gives the bytes of each instruction that it met. The library is looked at as it is built
by default and without the checks of every free (HAKMEM_PROTECT=OFF), whose budget is the smaller one.
"""
import itertools
import os
import pathlib
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SKIPPED = 77
SIZES = (16, 64, 1000, 1025, 30000)
LIBRARIES = {  # {library: {pair of fast_path.c: {function: its most instructions}}}
    "libhakmem.so": {
        "malloc": {"malloc": 19, "free": 33},
        "memalign": {"memalign": 36},
        "posix_memalign": {"posix_memalign": 40},
        "new": {"new": 19, "delete": 48},
        "new_aligned": {"new_aligned": 38, "delete_aligned": 44},
        "sized": {"free_sized": 42},
        "usable": {"usable": 28},
    },
    "libhakmem-unprotected.so": {"malloc": {"malloc": 18, "free": 21}},
}
# {size: the most instructions}: blocks that the thread keeps; with calls and exchanges.
KEPT = {100_000: {"malloc": 73, "free": 81}, 2_000_000: {"malloc": 79, "free": 163}}
ABOVE_TINY = 3  # more instructions that malloc and new may take for the class of a size above 1024 bytes

PREFIXES = {0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf2, 0xf3}
LOCK = 0xf0


def kind(code):
    """'call', 'locked' or None of the instruction that begins with these bytes."""
    at = 0
    while code[at] in PREFIXES:
        at += 1
    if code[at] == LOCK:
        return "locked"
    if code[at] & 0xf0 == 0x40:  # REX
        at += 1
    opcode, modrm = code[at], code[at + 1]
    if opcode == 0xe8 or (opcode == 0xff and modrm >> 3 & 7 in (2, 3)):
        return "call"
    if opcode in (0x86, 0x87) and modrm >> 6 != 3:  # exchange with memory locks by itself
        return "locked"
    return None


class FastPath(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        build = pathlib.Path(os.environ["HAK_TEST_LIB"]).parent
        cls.program = {}
        for name in LIBRARIES:
            cls.program[name] = pathlib.Path(cls.folder.name) / name.removesuffix(".so")
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "fast_path.c", build / name,
                            f"-Wl,-rpath,{build}", "-o", cls.program[name]], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def executed(self, library, pair, size):
        """{function: [the bytes of each instruction]}"""
        env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        done = subprocess.run([self.program[library], pair, str(size)], check=False, stdout=subprocess.PIPE, text=True, env=env)
        if done.returncode == SKIPPED:
            self.skipTest("programs cannot be traced here")
        self.assertEqual(done.returncode, 0)
        lines = [line.split() for line in done.stdout.splitlines()]
        return {name: [bytes.fromhex(code) for code in codes] for name, _, *codes in lines}

    def test_decoder_knows_what_it_looks_for(self):
        for text, wanted in (("e800000000", "call"), ("ff1500000000", "call"), ("41ffd4", "call"),
                             ("f0480fc102", "locked"), ("488702", "locked"), ("4887c2", None), ("64488b0425", None),
                             ("ff2500000000", None), ("c3", None)):
            self.assertEqual(kind(bytes.fromhex(text.ljust(16, "0"))), wanted, text)

    def test_instructions(self):
        for library, size in itertools.product(LIBRARIES, SIZES):
            for pair, budget in LIBRARIES[library].items():
                executed = self.executed(library, pair, size)
                self.assertEqual(set(executed), set(budget))
                for function, codes in executed.items():
                    with self.subTest(library=library, pair=pair, function=function, size=size):
                        self.hold(library, function, size, codes, budget[function])

    def test_kept_blocks(self):
        for size, budget in KEPT.items():
            executed = self.executed("libhakmem.so", "malloc", size)
            for function, most in budget.items():
                with self.subTest(function=function, size=size):
                    print(f"libhakmem.so: {function}({size}): {len(executed[function])} instructions")
                    self.assertGreater(len(executed[function]), 20)
                    self.assertLessEqual(len(executed[function]), most)

    def hold(self, library, function, size, codes, most):
        most += ABOVE_TINY if function in ("malloc", "new") and size > 1024 else 0
        print(f"{library}: {function}({size}): {len(codes)} instructions")
        self.assertGreater(len(codes), 5)
        self.assertLessEqual(len(codes), most)
        self.assertEqual(codes[-1][0], 0xc3)  # ret
        self.assertEqual([kind(code) for code in codes if kind(code)], [])


if __name__ == "__main__":
    unittest.main()
