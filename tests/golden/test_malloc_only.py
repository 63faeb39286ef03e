#!/usr/bin/env python3
"""The library of the build option HAKMEM_INTERPOSE=malloc-only: it exports malloc's family, C++'s operators and its own functions,
and docs/compatibility.md lists what the whole library exports besides."""
# test: interposed
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from test_shared_object import INTERPOSED, LIBC_NAMES, LIBRARY, OPERATORS, output

HERE = pathlib.Path(__file__).resolve().parent
MALLOC_ONLY = os.environ["HAK_TEST_MALLOC_ONLY"]
PAGE = HERE.parent.parent / "docs" / "compatibility.md"
README = HERE.parent.parent / "README.md"


def names(library):
    return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", library).splitlines()
            if line.split()[-2] != "A"}


def documented():
    """The functions in the page's table of what is replaced."""
    part = PAGE.read_text(encoding="utf-8").split("## What it replaces besides malloc's family")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


class MallocOnly(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.folder.name) / "user"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-D_GNU_SOURCE", HERE / "malloc_only_user.c", "-o", cls.program, "-pthread",
                        "-ldl"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def said(self, *arguments, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
        return subprocess.run([self.program, *arguments], env={**kept, "LD_PRELOAD": MALLOC_ONLY, **more}, check=True, timeout=100,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True).stdout

    def test_exports_mallocs_family_alone(self):
        own = {name for name in names(LIBRARY) if name.startswith(("hak_", "hakmem_"))}
        self.assertEqual(names(MALLOC_ONLY), own | set(OPERATORS) | set(LIBC_NAMES) - {"mprotect"})

    def test_the_page_lists_all_others(self):
        self.assertEqual(documented(), names(LIBRARY) - names(MALLOC_ONLY))
        self.assertEqual(documented(), {*INTERPOSED, "mprotect"})

    def test_the_readme_names_them(self):
        limits = README.read_text(encoding="utf-8").split("## Limits")[1].split("\n## ")[0]
        item = re.search(r"^- Besides malloc's family(.*?)(?=^- )", limits, re.M | re.S)[1]
        self.assertEqual(set(re.findall(r"`(\w+)`", item)), documented())

    def test_other_functions_are_the_c_librarys(self):
        for line in self.said("malloc", *sorted(documented())).splitlines():
            name, place = line.split()
            self.assertEqual(pathlib.Path(place).name == pathlib.Path(MALLOC_ONLY).name, name == "malloc", line)

    def test_no_thread_where_credentials_can_change(self):
        """Unless it is asked for: it would keep the credentials that it began with."""
        self.assertEqual(self.said("tasks", HAKMEM_BACKGROUND="1"), "3\n")
        self.assertEqual(self.said("tasks"), "2\n" if os.geteuid() == 0 else "3\n")


if __name__ == "__main__":
    unittest.main()
