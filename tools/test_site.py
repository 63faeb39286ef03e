#!/usr/bin/env python3
"""The site's charts: what is read from a page's tables, and that each picture of the pages has a chart which its tables can fill."""
import unittest

import site_charts
from package_common import ROOT, Failed

PAGE = """# A page

## Time

| benchmark | hakmem | system |
| --- | --: | --: |
| one | 5.73 ns | 1e+03 ms |
| two | - | 2,001 |

text

| benchmark | hakmem |
| --- | --: |
| a second table | 1 |
"""


class SiteTest(unittest.TestCase):
    def test_tables_are_read(self):
        self.assertEqual(site_charts.tables(PAGE)["Time"][:2], [{"benchmark": "one", "hakmem": "5.73 ns", "system": "1e+03 ms"},
                                                               {"benchmark": "two", "hakmem": "-", "system": "2,001"}])

    def test_amounts(self):
        self.assertAlmostEqual(site_charts.amount("5.73 ns"), 5.73e-9)
        self.assertAlmostEqual(site_charts.amount("1e+03 ms"), 1.0)
        self.assertEqual([site_charts.amount(cell) for cell in ("2,001", "0.0000", "-", "", "mimalloc3")], [2001, 0, None, None, None])

    def test_a_page_without_a_picture_stays(self):
        self.assertEqual(site_charts.interactive(PAGE, "plotly.min.js"), PAGE)

    def test_tables_that_do_not_fit(self):
        with self.assertRaisesRegex(Failed, "time-memory.svg"):
            site_charts.interactive("![c](benchmarks/time-memory.svg)\n" + PAGE, "plotly.min.js")

    def test_the_pages_have_what_charts_are_drawn_from(self):
        for page, headings in (("benchmarks.md", ("Geometric means", "Time", "Peak memory", site_charts.TAIL)), ("scaling.md", (site_charts.LINES,))):
            text = (ROOT / "docs" / page).read_text(encoding="utf-8")
            pictures = [picture for picture in site_charts.CHARTS if f"]({picture})" in text]
            self.assertEqual(text.count(".svg)"), len(pictures), f"a picture of {page} has no chart in tools/site_charts.py")
            for heading in headings:
                rows = {**site_charts.medians(), **site_charts.tables(text)}[heading]
                self.assertTrue(any(site_charts.amount(cell) for cell in rows[0].values()), f"{heading} of {page} has no figures")


if __name__ == "__main__":
    unittest.main()
