#!/usr/bin/env python3
"""malloc_info's XML: well-formed to a real parser, of glibc's shape, its sums right, and in accord with mallinfo2."""
import os
import pathlib
import subprocess
import tempfile
import unittest
from xml.etree import ElementTree

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = ("arena", "uordblks", "fordblks", "hblks", "hblkhd", "ordblks")
EXAMPLE = HERE.parent.parent / "examples" / "which_allocator.c"
COUNT, HUGE, HUGE_BYTES = 3000, 3, 5000000


class MallocInfo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            user = pathlib.Path(folder) / "user"
            subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "malloc_info_user.c", "-o", user,
                            "-pthread"], check=True)
            env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
            done = subprocess.run([user], env={**env, "LD_PRELOAD": os.environ["HAK_TEST_LIB"]}, check=True, timeout=60,
                                  stdout=subprocess.PIPE, text=True)
        cls.moments = {}
        for part in done.stdout.split("moment ")[1:]:
            line, _, text = part.partition("\n")
            name, *figures = line.split()
            cls.moments[name] = (ElementTree.fromstring(text), dict(zip(FIGURES, map(int, figures))))

    def test_has_every_moment(self):
        self.assertEqual(list(self.moments), ["start", "small", "huge", "freed", "thread", "trimmed"])

    def test_has_the_c_librarys_shape(self):
        for root, _ in self.moments.values():
            self.assertEqual((root.tag, root.get("version")), ("malloc", f"hakmem-{os.environ['HAK_TEST_VERSION']}"))
            self.assertEqual([(heap.tag, heap.get("nr")) for heap in root], [("heap", "0")])
            self.assertEqual([element.tag for element in root[0]], ["sizes", *["total"] * 3, *["system"] * 2])
            self.assertEqual([total.get("type") for total in root.iter("total")], ["fast", "rest", "mmap"])
            self.assertEqual([system.get("type") for system in root.iter("system")], ["current", "max"])

    def test_every_number_is_one(self):
        for root, _ in self.moments.values():
            for element in root.iter():
                for name, value in element.items():
                    if name not in ("version", "type"):
                        self.assertRegex(value, r"\A[0-9]+\Z", element.tag + "." + name)

    def test_sizes_follow_each_other_without_overlap(self):
        for root, _ in self.moments.values():
            before = 0
            for size in root.iter("size"):
                least, most = int(size.get("from")), int(size.get("to"))
                self.assertTrue(before < least <= most)
                self.assertEqual(int(size.get("total")), int(size.get("count")) * most)
                before = most

    def test_sums(self):
        for root, _ in self.moments.values():
            fast = root.find("heap/total[@type='fast']")
            self.assertEqual(int(fast.get("count")), sum(int(size.get("count")) for size in root.iter("size")))
            self.assertEqual(int(fast.get("size")), sum(int(size.get("total")) for size in root.iter("size")))

    def test_agrees_with_mallinfo2(self):
        for root, info in self.moments.values():
            rest, mmap = (root.find(f"heap/total[@type='{kind}']") for kind in ("rest", "mmap"))
            current, most = (int(system.get("size")) for system in root.iter("system"))
            self.assertEqual((int(mmap.get("count")), int(mmap.get("size"))), (info["hblks"], info["hblkhd"]))
            self.assertEqual(int(rest.get("size")), info["fordblks"])
            self.assertEqual(int(root.find("heap/total[@type='fast']").get("count")), info["ordblks"])
            self.assertEqual(current, info["arena"] + info["hblkhd"])
            self.assertEqual(info["arena"], info["uordblks"] + info["fordblks"])
            self.assertGreaterEqual(most, current)

    def test_figures_follow_the_program(self):
        info = {name: figures for name, (_, figures) in self.moments.items()}
        used = sum(i * 37 % 3000 + 1 for i in range(COUNT))
        self.assertGreaterEqual(info["small"]["uordblks"] - info["start"]["uordblks"], used)
        self.assertLessEqual(info["small"]["uordblks"] - info["start"]["uordblks"], used * 5 // 4)
        self.assertEqual(info["huge"]["hblks"] - info["small"]["hblks"], HUGE)
        self.assertGreaterEqual(info["huge"]["hblkhd"] - info["small"]["hblkhd"], HUGE * HUGE_BYTES)
        self.assertEqual((info["freed"]["hblks"], info["freed"]["hblkhd"]), (0, 0))
        self.assertEqual(info["freed"]["uordblks"], info["start"]["uordblks"])
        self.assertGreaterEqual(info["thread"]["uordblks"] - info["freed"]["uordblks"], used)
        self.assertLess(info["trimmed"]["fordblks"], info["thread"]["fordblks"] + 1)


class Version(unittest.TestCase):
    """What tells other tools which allocator serves: examples/which_allocator.c asks for the symbol."""

    def test_an_example_says_it(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "which"
            subprocess.run([os.environ.get("CC", "cc"), "-O1", EXAMPLE, "-o", program, "-ldl"], check=True)
            env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
            said = [subprocess.run([program], env={**env, **more}, check=True, timeout=60, stdout=subprocess.PIPE, text=True).stdout
                    for more in ({"LD_PRELOAD": os.environ["HAK_TEST_LIB"]}, {})]
        self.assertEqual(said[0], f"HAKMEM {os.environ['HAK_TEST_VERSION']}\n")
        self.assertRegex(said[1], r"malloc of /\S+/libc\.so\.6\n")


if __name__ == "__main__":
    unittest.main()
