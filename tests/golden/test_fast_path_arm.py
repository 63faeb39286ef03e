#!/usr/bin/env python3
"""The instructions that warm calls of malloc and free execute on 64-bit Arm: how many, no call and nothing that locks.

The archive is cross-compiled as a release is, and the emulator runs a program one instruction at a time."""
# test: timeout=300 cost=40
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CC, EMULATOR, SKIPPED = "aarch64-linux-gnu-gcc", "qemu-aarch64", 77
MOST = {16: {"malloc": 25, "free": 51}, 1000: {"malloc": 25, "free": 51}, 30000: {"malloc": 28, "free": 51}}
LOCKED = re.compile(r"\b(?:ldx|stx|ldax|stlx|swp|cas|ldadd|ldclr|ldeor|ldset)\w*|\bblr?\b")
UNITS = (("src/unity.c", ""), ("src/unity_rare.c", "rare"), ("src/entry/cxx_linked.c", "beside"), ("src/os/keys.c", "beside"))


def flags(*words):
    lines = (ROOT / "packaging/unit.flags").read_text(encoding="utf-8").splitlines()
    return [flag for line in lines if line.split()[:1] and line.split()[0] in words for flag in line.split()[1:]]


def run(*command):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, errors="replace").stdout


class FastPathOnArm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        place = pathlib.Path(cls.folder.name)
        cls.program = place / "program"
        common = [f"-D{name}" for name in flags("define")] + ["-DHAK_OVERRIDE=1", '-DHAK_VERSION_STRING="0.0.0"', "-I", ROOT / "src", "-I",
                                                             ROOT / "include", *flags("compile"), "-fno-semantic-interposition",
                                                             "-mbranch-protection=standard", *shlex.split(os.environ.get("CFLAGS", ""))]
        for number, (name, kind) in enumerate(UNITS):
            run(CC, *common, *(["-DHAK_SHARED=0"] if kind == "beside" else []), *flags(kind), "-c", ROOT / name, "-o", place / f"{number}.o")
        run(CC, "-O1", "-fno-builtin", HERE / "fast_path_arm.c", *place.glob("*.o"), "-static", "-o", cls.program)
        cls.code = {}
        for line in run("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", cls.program).splitlines():
            found = re.match(r" +([0-9a-f]+):\t(.*)", line)
            if found:
                cls.code[int(found.group(1), 16)] = found.group(2)
        cls.marks = {name: int(at, 16) for at, name in re.findall(r"^([0-9a-f]+) \w (mark_malloc|mark_free|mark_end|main)$", run("aarch64-linux-gnu-nm", cls.program), re.M)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def executed(self, size):
        """{function: [its instructions]}, without those of main and of the marks."""
        log = pathlib.Path(self.folder.name) / "log"
        subprocess.run([EMULATOR, "-singlestep", "-d", "nochain,exec", "-D", log, self.program, str(size)], check=True,
                       stderr=subprocess.DEVNULL)
        found, now, begun = {}, None, {self.marks["mark_malloc"]: "malloc", self.marks["mark_free"]: "free", self.marks["mark_end"]: None}
        with open(log, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                match = re.match(r"Trace \d+: \S+ \[\w+/([0-9a-f]+)/", line)
                at = int(match.group(1), 16) if match else -1
                if at in begun:
                    now = begun[at]
                elif now and at in self.code and not self.in_main(at):
                    found.setdefault(now, []).append(self.code[at])
        log.unlink()
        return found

    def in_main(self, at):
        """main and the marks lie together, in the object that is linked first."""
        first, last = min(self.marks.values()), max(self.marks.values())
        return first <= at < last + 0x100

    def test_instructions(self):
        for size, budget in MOST.items():
            executed = self.executed(size)
            for function, most in budget.items():
                with self.subTest(function=function, size=size):
                    codes = executed[function]
                    print(f"{function}({size}): {len(codes)} instructions")
                    self.assertGreater(len(codes), 8)
                    self.assertLessEqual(len(codes), most)
                    self.assertEqual([code for code in codes if LOCKED.match(code)], [])
                    self.assertTrue(codes[-1].startswith("ret"), codes[-1])


if __name__ == "__main__":
    if shutil.which(CC) is None or shutil.which(EMULATOR) is None:
        print("./dev setup --aarch64 installs the compiler and the emulator")
        sys.exit(SKIPPED)
    unittest.main()
