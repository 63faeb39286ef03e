"""Contracts in the code: functions assert what they need, and modules have a unit test of their name.

The figures may only get better: asserts per thousand lines, in all of src/ and in each folder named here, and the number
of modules without tests/unit/test_MODULE.c. When you have made one better, write the new figure here.
"""
import re

from lint_common import all_files, blank_directives, read, source_files, strip_comments

NAME = "contracts"
ASSERTS = {  # per thousand lines, at least; "": all of src/
    "": 6.3,
    "arena": 29,
    "base": 14.5,
    "os": 11.5,
    "size": 40,
    "diag": 10,
}
UNTESTED = 54  # modules, at most

ASSERT = re.compile(r"\bhak_assert\(")


def count(paths):
    """The asserts per thousand lines of these files."""
    texts = [read(path) for path in paths]
    asserts = sum(len(ASSERT.findall(blank_directives(strip_comments(text)))) for text in texts)
    return 1000 * asserts / max(1, sum(text.count("\n") for text in texts))


def run(root):
    files, findings = [path for path in source_files(root) if path.suffix in (".c", ".h")], []
    sources = [path for path in files if path.relative_to(root).parts[0] == "src"]
    for folder, least in ASSERTS.items():
        where = root / "src" / folder
        inside = [path for path in sources if where in path.parents]
        figure = round(count(inside), 1)
        if not inside:
            findings.append(f"ASSERTS: there is no folder src/{folder}")
        elif figure < least:
            findings.append(f"{where.relative_to(root)}: {figure} asserts in a thousand lines; at least {least}")
    tests = {path.name for path in all_files(root) if path.parts[-2] == "unit"}
    untested = sorted(path.relative_to(root / "src").as_posix() for path in sources
                      if path.suffix == ".c" and not path.name.startswith("unity") and f"test_{path.name}" not in tests)
    if len(untested) > UNTESTED:
        findings.append(f"{len(untested)} modules without a unit test of their name; at most {UNTESTED}: {' '.join(untested)}")
    return len(sources), findings
