#!/usr/bin/env python3
"""What compilers and their analysers say of mistakes with hakmem.h's functions: all that they say of the same mistakes with the C
library's, what the remarks of header_mistakes.c promise of heaps, and nothing of what is right."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SOURCE = (HERE / "header_mistakes.c").read_text(encoding="utf-8")
OF_MALLOC, OF_HEAPS = SOURCE.split("/* Heaps: ", 1)
FIRST_OF_HEAPS = OF_MALLOC.count("\n") + 1
TOOLS = {
    "gcc": ["gcc", "-O2", "-Wall", "-Wextra", "-c"],
    "analyzer": ["gcc", "-O0", "-fanalyzer", "-c"],
    "clang": ["clang", "--analyze"],
}
ALIKE = {"stringop-overflow=": "array-bounds"}   # which of them gcc says depends on its version


def run_tool(*words):
    run = subprocess.run(words, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"})
    return run.stdout + run.stderr


def said(tool, text):
    """{(line, kind)} of the warnings."""
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "mistakes.c"
        source.write_text(text, encoding="utf-8")
        words = run_tool(*TOOLS[tool], f"-I{HERE.parents[1] / 'include'}", source, "-o", pathlib.Path(folder) / "out")
    found = re.findall(r"mistakes\.c:(\d+):\d+: warning: .*\[(-Wanalyzer-|-W|unix\.)([\w=-]+)\]$", words, re.M)
    return {(int(line), ALIKE.get(kind, kind)) for line, family, kind in found if tool != "analyzer" or family == "-Wanalyzer-"}


class Attributes:
    tool = ""

    def setUp(self):
        if shutil.which(TOOLS[self.tool][0]) is None:
            self.skipTest(f"{TOOLS[self.tool][0]} is not installed")
        if self.tool != "clang" and int(run_tool("gcc", "-dumpversion").split(".")[0]) < 11:
            self.skipTest("gcc knows which function frees a block from version 11 on")

    def test_all_that_is_said_of_malloc(self):
        of_malloc = said(self.tool, OF_MALLOC.replace('#include "hakmem.h"', "").replace("hak_", ""))
        self.assertGreater(len(of_malloc), 3)
        self.assertEqual(of_malloc - said(self.tool, SOURCE), set())

    def test_what_is_said_of_heaps_and_of_what_is_right(self):
        promised = set()
        for number, line in enumerate(OF_HEAPS.splitlines(), FIRST_OF_HEAPS):
            remarks = re.findall(r"(\w+): ([\w=-]+)[; ]", line.partition("/*")[2])
            promised |= {(number, kind) for tool, kind in remarks if tool == self.tool}
        self.assertEqual({each for each in said(self.tool, SOURCE) if each[0] > FIRST_OF_HEAPS}, promised)


class Compiler(Attributes, unittest.TestCase):
    tool = "gcc"


class Analyzer(Attributes, unittest.TestCase):
    tool = "analyzer"


class Clang(Attributes, unittest.TestCase):
    tool = "clang"


if __name__ == "__main__":
    unittest.main()
