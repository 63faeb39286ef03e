#!/usr/bin/env python3
"""The path of a miss of malloc and of a free of another thread's block grows no longer, and src/README.md says how long they are."""
# test: cost=20
import unittest

import path

# A ratchet: lower a bound when the path has become shorter. Where they shall end: 25, 180, 250 and 12, 50, 60.
BOUNDS = {
    "malloc": {"files": 37, "functions": 245, "changes": 364},
    "free": {"files": 20, "functions": 53, "changes": 78},
}
TOLERANCE = 0.1  # of the page's figures: another kernel or compiler may take a turn more


class Paths(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.found = {which: figure for which, (figure, _) in path.measured().items()}
        cls.page = path.sections(path.PAGE.read_text(encoding="utf-8"))

    def test_bounds(self):
        for which, bounds in BOUNDS.items():
            for name, bound in bounds.items():
                with self.subTest(path=which, figure=name):
                    self.assertLessEqual(self.found[which][name], bound, "the path has grown: ./dev path --functions shows it")

    def test_page_is_current(self):
        for which, figure in self.found.items():
            with self.subTest(path=which):
                said, now = self.page[which].split("```"), path.section(figure).split("```")
                numbers = [[int(word) for word in text.split("-->")[1].split() if word.isdigit()] for text in (said[0], now[0])]
                for old, new in zip(*numbers):
                    self.assertAlmostEqual(old, new, delta=TOLERANCE * new, msg="src/README.md: run ./dev path --write")
                other = set(said[1].split()) ^ set(now[1].split())
                self.assertLessEqual(len(other), TOLERANCE * figure["files"], f"src/README.md: run ./dev path --write ({other})")

    def test_both_begin_and_end_where_they_should(self):
        malloc, free = self.found["malloc"]["in_order"], self.found["free"]["in_order"]
        self.assertTrue(malloc[0].endswith("malloc.c") and free[0].endswith("free.c"))
        self.assertTrue(any(file.startswith("os/") for file in malloc))
        self.assertTrue(all((path.ROOT / "src" / file).is_file() for file in malloc + free))


class Counting(unittest.TestCase):
    def test_figures(self):
        calls = [(0, "a", "x.c"), (1, "b", "y.h"), (1, "b", "y.h"), (1, "c", "x.c")]
        self.assertEqual(path.figures("free", calls), {
            "path": "free", "files": 2, "sources": 1, "functions": 3, "calls": 4, "changes": 2, "in_order": ["x.c", "y.h"]})


if __name__ == "__main__":
    unittest.main()
