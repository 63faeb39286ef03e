#!/usr/bin/env python3
"""docs/tests.md and what is tested agree: every test that ctest knows is in the document, every one of the document's is in
ctest's list. And docs/statistics.md names every figure of src/diag/stats.def.

    test_documented.py CTEST BUILD KIND...

BUILD is a build folder, KIND what is built in it: `release` (the library), `checked` (the test build), or both.

The document's form: an item "- `NAME` (KIND): ..." is a test. NAME may hold a `*`; KIND is release, checked, or both with a comma
between."""
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAVOURS = ("preload", "shared", "archive", "static")


def documented(text):
    """{name: kinds}, in the document's order."""
    tests = {}
    for name, kinds in re.findall(r"^- `([^`]+)` \(([a-z, ]+)\): ", text, re.M):
        if name in tests:
            sys.exit(f"docs/tests.md: `{name}` stands there twice")
        tests[name] = set(re.split(r",\s*", kinds))
    return tests


def listed(ctest, build):
    """The names of ctest's tests; those that differ in their build only (override) once, as NAME.*."""
    done = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
    return {re.sub(r"\.({})$".format("|".join(FLAVOURS)), ".*", test["name"]) for test in json.loads(done.stdout)["tests"]}


def compare(tests, names, kinds):
    """What is wrong, in sentences that say what to do."""
    for name in sorted(names):
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in tests):
            yield f"{name} is not in docs/tests.md: add it, with what must come out"
    for pattern, where in tests.items():
        if not where <= {"release", "checked"}:
            yield f"{pattern}: ({', '.join(sorted(where))}) should be release, checked, or both"
        if where & kinds and not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            yield f"{pattern} is in docs/tests.md, but ctest does not know it: take it out, or register it"


def figures_of(text):
    """The names of the figures and columns in stats.def."""
    return re.findall(r"^HAK_STATS_(?:FIGURE\(\w+, |COLUMN\()(\w+)", text, re.M)


def missing_figures(root):
    """The figures that docs/statistics.md does not name, in sentences."""
    figures = figures_of((root / "src" / "diag" / "stats.def").read_text(encoding="utf-8"))
    if not figures:
        sys.exit("nothing was compared: src/diag/stats.def has no figures")
    words = set(re.findall(r"\w+", (root / "docs" / "statistics.md").read_text(encoding="utf-8")))
    for figure in figures:
        if figure not in words:
            yield f"the figure {figure} of src/diag/stats.def is not in docs/statistics.md: say what it means"


def main(arguments):
    if len(arguments) < 3:
        sys.exit(__doc__)
    ctest, build, *kinds = arguments
    tests = documented((ROOT / "docs" / "tests.md").read_text(encoding="utf-8"))
    names = listed(ctest, build)
    if not tests or not names:
        sys.exit("nothing was compared: docs/tests.md or ctest's list is empty")
    findings = [*compare(tests, names, set(kinds)), *missing_figures(ROOT)]
    for finding in findings:
        print(finding)
    print(f"{len(names)} tests: " + (f"{len(findings)} found" if findings else "ok"))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
