#!/usr/bin/env python3
"""The commands on the pages: each ./dev command and its options exist, each file of the tree that a command names is there, and the
commands that link a program (docs/api.md) do what the page says."""
# test: timeout=200 cost=5
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = pathlib.Path(os.environ["HAK_TEST_OUT"])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(path):
    """The fenced blocks of a page: [(language, lines)]."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)
    return [(language, text.splitlines()) for language, text in found]


def code(path):
    """Every command on a page: the lines of its blocks, and what stands between backquotes."""
    fenced = [line for language, lines in blocks(path) if language in ("", "sh") for line in lines]
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return fenced + [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)]


def section(path, title):
    """The commands of the section's blocks without a language, comments left away."""
    text = path.read_text(encoding="utf-8")
    part = re.search(rf"^## {title}\n(.*?)^## ", text, re.M | re.S).group(1)
    return [found.strip() for found in re.findall(r"^```\n(.*?)^```$", part, re.M | re.S)]


class Pages(unittest.TestCase):
    def test_dev_commands_exist(self):
        script = (ROOT / "dev").read_text(encoding="utf-8")
        known = set(re.findall(r"^cmd_(\w+)\(\)", script, re.M)) | {"help"}
        seen = {}
        for page in PAGES:
            for line in code(page):
                for word in re.findall(r"(?:^|[\s;&(])\./dev ([a-z]\w*)", line):
                    seen.setdefault(word, page.name)
        self.assertGreater(len(seen), 10)
        self.assertEqual({word: page for word, page in seen.items() if word not in known}, {})

    def test_files_of_commands_exist(self):
        pattern = re.compile(r"(?:^|[\s=])((?:tools|tests|packaging|docs|include|src|bench|lab|cmake|demo)/[\w./-]+\w)")
        missing = {}
        for page in PAGES:
            for _, lines in blocks(page):
                for name in (name for line in lines for name in pattern.findall(line)):
                    if not (ROOT / name).exists() and "/found-" not in name:   # which a command makes
                        missing[name] = page.name
        self.assertEqual(missing, {})

    def test_linking(self):
        """The blocks of docs/api.md, Linking, with this build in place of out/release."""
        installing, linking, *_ = section(ROOT / "docs" / "api.md", "Linking")
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            shutil.copy(ROOT / "tests" / "package" / "consumer" / "main.c", folder / "program.c")
            install = installing.splitlines()[-1].replace("out/release", str(OUT), 1)
            script = "\n".join([install, linking, "./program_static", "./program_archive"])
            done = subprocess.run(["sh", "-euc", script], cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(done.stdout.count(f"hakmem {os.environ['HAK_TEST_VERSION']}\n"), 3, done.stdout)


if __name__ == "__main__":
    unittest.main()
