#!/usr/bin/env python3
"""./dev release refuses what is dirty, untested or unversioned, and its bill of materials names every file."""
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import release

LOG = "# Changelog\n\n## [0.2.0] - unreleased\n\n- new\n\n## [0.1.0] - 2026-01-02\n\n- **first**\n"


class Release(unittest.TestCase):
    def reasons(self, status="", tags="v0.1.0\n", log=LOG, tested="abc", number="0.1.0"):
        """What release.reasons says where git, the changelog and the tests say this."""
        def git(*words):
            return {"status": status, "tag": tags, "rev-parse": "abc\n"}[words[0]]
        with tempfile.TemporaryDirectory() as work:
            root = pathlib.Path(work)
            (root / "CHANGELOG.md").write_text(log, encoding="utf-8")
            (root / "tested").write_text(tested + "\n", encoding="utf-8")
            with mock.patch.multiple(release, git=git, ROOT=root, TESTED=root / "tested", broken_interface=lambda: []):
                return release.reasons(number, rehearsal=True)

    def test_nothing_against_it(self):
        self.assertEqual(self.reasons(), [])

    def test_dirty(self):
        self.assertEqual(self.reasons(status=" M src/entry/free.c\n"), ["changed or not tracked: src/entry/free.c"])

    def test_untagged(self):
        self.assertIn("no tag v0.1.0", self.reasons(tags="v0.0.9\n")[0])

    def test_undated(self):
        self.assertIn("does not date", self.reasons(number="0.2.0", tags="v0.2.0\n")[0])
        self.assertIn("no section", self.reasons(number="0.3.0", tags="v0.3.0\n")[0])

    def test_untested(self):
        self.assertIn(".ci/run", self.reasons(tested="another commit")[0])

    def test_section(self):
        self.assertEqual(release.section(LOG, "0.1.0"), ("2026-01-02", "- **first**\n"))

    def test_bill(self):
        with tempfile.TemporaryDirectory() as work:
            path = pathlib.Path(work) / "file"
            path.write_bytes(b"abc")
            with mock.patch.object(release, "git", lambda *_: "abc\n"), mock.patch.object(release.common, "epoch", lambda: "0"):
                bill = release.bill([path], "0.1.0")
        self.assertEqual(bill["files"][0]["checksums"][1]["checksumValue"][:8], "ba7816bf")
        names = {each["SPDXID"] for each in bill["packages"] + bill["files"]} | {"SPDXRef-DOCUMENT"}
        for each in bill["relationships"]:
            self.assertLessEqual({each["spdxElementId"], each["relatedSpdxElement"]}, names)


if __name__ == "__main__":
    unittest.main()
