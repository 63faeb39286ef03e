#!/usr/bin/env python3
"""packaging/unit.flags, by which the library is built without CMake, says what CMake does; the version is one everywhere."""
import json
import os
import pathlib
import re
import shlex
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = pathlib.Path(os.environ["HAK_TEST_OUT"])
VERSION = os.environ["HAK_TEST_VERSION"]


def listed(word):
    lines = (ROOT / "packaging" / "unit.flags").read_text(encoding="utf-8").splitlines()
    return {flag for line in lines if line.split()[:1] == [word] for flag in line.split()[1:]}


def built():
    """The words with which CMake compiles the library's unit."""
    for entry in json.loads((OUT / "compile_commands.json").read_text(encoding="utf-8")):
        if "hakmem_unit.dir" in entry["command"] and entry["file"].endswith("unity.c"):
            return set(shlex.split(entry["command"]))
    raise AssertionError("the unit is not in compile_commands.json")


class Flags(unittest.TestCase):
    def test_compile(self):
        words = {word for word in built() if re.match(r"-(f|std|O)", word)} - {"-O3"}
        words = {word for word in words if not word.startswith("-ffile-prefix-map")}
        self.assertEqual(words - listed("compile") - listed("known"), set())
        self.assertEqual(listed("compile") - words, set())
        self.assertIn("-fno-lto", words)   # a program's own malloc would not be seen by what the library calls

    def test_define(self):
        names = {word[2:] for word in built() if word.startswith("-D")}
        names = {name for name in names if not name.startswith(("HAK_VERSION_STRING", "HAK_OVERRIDE"))}
        self.assertEqual(names, listed("define"))

    def test_link(self):
        text = (ROOT / "cmake" / "HakmemLibrary.cmake").read_text(encoding="utf-8")
        given = {"-Wl," + each for each in re.findall(r'LINKER:(-z,[^">]+)[">]', text)}
        self.assertEqual(given, listed("link"))

    def test_one_version(self):
        for name, pattern in (("lab/pyproject.toml", r'^version = "(.*)"'), ("rust/hakmem/Cargo.toml", r'^version = "(.*)"'),
                              ("rust/hakmem-sys/Cargo.toml", r'^version = "(.*)"'),
                              ("lab/src/hakmem_lab/__init__.py", r'__version__ = "(.*)"')):
            text = (ROOT / name).read_text(encoding="utf-8")
            self.assertEqual(re.search(pattern, text, re.M).group(1), VERSION, name)


if __name__ == "__main__":
    unittest.main()
