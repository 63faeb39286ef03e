#!/usr/bin/env python3
"""The library's names, versions and structures are those that packaging/debian/libhakmem0.symbols and packaging/abi keep, and a lost
one is found."""
# test: interposed
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import abi

LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])


PROGRAM = b"#include <hakmem.h>\nint main(void) { return hak_version()[0] == 0; }\n"


class Interface(unittest.TestCase):
    def test_is_as_kept(self):
        done = subprocess.run([sys.executable, "-B", str(ROOT / "tools" / "abi.py"), str(LIBRARY)], check=False,
                              stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_lost_name_is_broken(self):
        now = abi.interface(LIBRARY)
        self.assertEqual(list(abi.compare(now, now)), [])
        self.assertIn("broken", next(abi.compare(now[1:], now)))
        self.assertIn("new", next(abi.compare(now, now[1:])))

    @unittest.skipUnless(shutil.which("dpkg-gensymbols"), "dpkg-gensymbols is not installed")
    def test_an_update_writes_what_is_new(self):
        before = abi.SYMBOLS.read_text()
        with tempfile.TemporaryDirectory() as work, mock.patch.object(abi, "SYMBOLS", pathlib.Path(work) / "symbols"):
            abi.SYMBOLS.write_text("".join(line for line in before.splitlines(True) if "hak_malloc@" not in line))
            abi.update_symbols(LIBRARY.resolve())
            self.assertEqual(abi.SYMBOLS.read_text(), before)

    def test_own_functions_have_a_version(self):
        own = {name for name in abi.symbols(LIBRARY) if name.startswith("hak_")}
        self.assertTrue(own)
        self.assertEqual({name for name in own if not name.endswith("@HAKMEM_0.1")}, {name for name in own if name.startswith("hak__")})
        self.assertEqual({name for name in own if name.endswith("@HAKMEM_REGION_2")}, {name for name in own if name.startswith("hak__")})

    def test_the_region_library_is_as_kept(self):
        kept = (ROOT / "packaging" / "debian" / "libhakmem-region0.symbols").read_text()
        for name in abi.symbols(LIBRARY.with_name("libhakmem-region.so")):
            self.assertIn(f" {name} ", kept)

    def test_a_linked_program_asks_for_the_version(self):
        with tempfile.TemporaryDirectory() as work:
            program = pathlib.Path(work) / "program"
            subprocess.run([os.environ["CC"], "-x", "c", "-", "-o", str(program), "-I", str(ROOT / "include"), "-x", "none",
                            str(LIBRARY)], input=PROGRAM, check=True)
            wanted = subprocess.run(["readelf", "-V", str(program)], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertIn("HAKMEM_0.1", wanted)
            subprocess.run([str(program)], check=True, env={**os.environ, "LD_LIBRARY_PATH": str(LIBRARY.parent)})


if __name__ == "__main__":
    unittest.main()
