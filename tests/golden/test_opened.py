#!/usr/bin/env python3
"""Which files of the system's the library opens, and when: none in a small process; each once in one that has grown; before a filter of
system calls comes, and none behind it; and at its start where no function of its own hears of a filter."""
import os
import pathlib
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
FILES = ["/proc/sys/vm/overcommit_memory", "/proc/sys/vm/max_map_count", "/sys/kernel/mm/transparent_hugepage/enabled"]
NO_TRACE = 77


class Opened(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.user = pathlib.Path(cls.folder.name) / "user"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "opened.c", "-o", cls.user], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def seen(self, mode, library=LIBRARY, **options):
        """What the program opens of these files, and "prctl", in turn."""
        environment = {"LD_PRELOAD": str(library), "HAKMEM_BACKGROUND": "0", **options}
        done = subprocess.run([self.user, "trace", "/usr/bin/env", *(f"{name}={value}" for name, value in environment.items()),
                               self.user, mode], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
        if done.returncode == NO_TRACE:
            self.skipTest("processes cannot be traced here, or have no filters")
        self.assertEqual(done.returncode, 0, mode)
        return [line for line in done.stdout.splitlines() if line in FILES or line == "prctl"]

    def test_a_small_process_opens_none(self):
        self.assertEqual(self.seen("small"), [])

    def test_one_that_grows_opens_each_once(self):
        self.assertEqual(self.seen("grown"), FILES)

    def test_again_if_no_descriptor_was_free(self):
        seen = self.seen("limited")
        self.assertEqual(seen[-len(FILES):], FILES)
        self.assertGreater(len(seen), len(FILES))

    def test_before_a_filter(self):
        self.assertEqual(self.seen("filtered"), [*FILES, "prctl"])

    def test_none_behind_it(self):
        done = subprocess.run([self.user, "seccomp"], env={"LD_PRELOAD": str(LIBRARY)}, timeout=60, check=False)
        self.assertIn(done.returncode, (0, NO_TRACE))

    def test_at_the_start_where_no_call_tells(self):
        library = LIBRARY.with_name("libhakmem-malloc-only.so")
        if not library.exists():
            self.skipTest(f"{library.name} is not built")
        self.assertEqual(self.seen("small", library), FILES)
        self.assertEqual(self.seen("filtered", library), [*FILES, "prctl"])

    def test_at_the_start_for_the_black_box(self):
        self.assertEqual(self.seen("small", HAKMEM_BLACKBOX=self.folder.name), FILES)


if __name__ == "__main__":
    unittest.main()
