"""Atomics only through base/atomic.h; no conditional compilation inside functions outside base/ and os/; what an address is, is asked in
kinds/ alone."""
import re

from lint_common import functions, read, source_files, strip_comments

NAME = "idioms"
ATOMICS_HEADER = "src/base/atomic.h"
MAY_BRANCH = ("src/base/", "src/os/")

ATOMIC = re.compile(r"\b(__atomic_\w+|__sync_\w+|"
                    r"atomic_(?:load|store|exchange|compare_exchange_\w+|fetch_\w+|flag_\w+|init|\w+_fence)\w*)\s*\(")
ATOMIC_HEADER = re.compile(r"#\s*include\s*<stdatomic\.h>")
CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|else)\b", re.M)

# Whether an address is of a kind: asked by the folders that know it, and by kinds/; all others call a function of its table.
KINDS = {"hak__sample_has": ("sample", "profile"), "hak__guarded_has": ("sample", "profile"), "hak__slots_have": ("sample",),
         "hak__zero_size_has": ("harden",), "hak__region_of": ("region",)}
KIND = re.compile(rf"\b({'|'.join(KINDS)})\(")


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def run(root):
    files, findings = source_files(root), []
    for path in files:
        where, text = path.relative_to(root).as_posix(), strip_comments(read(path))
        if where != ATOMICS_HEADER:
            for pattern in (ATOMIC, ATOMIC_HEADER):
                findings += [f"{where}:{line_of(text, match.start())}: '{match.group().strip()}': "
                             f"use {ATOMICS_HEADER}" for match in pattern.finditer(text)]
        if where.startswith("src/") and not where.startswith("src/kinds/"):
            findings += [f"{where}:{line_of(text, match.start())}: {match.group(1)} is asked by kinds/ (src/kinds/kind.h)"
                         for match in KIND.finditer(text) if where.split("/")[1] not in KINDS[match.group(1)]]
        if not where.startswith(MAY_BRANCH):
            bodies = functions(text)
            for match in CONDITION.finditer(text):
                line = line_of(text, match.start())
                findings += [f"{where}:{line}: conditional compilation inside {name}"
                             for name, first, last in bodies if first <= line <= last]
    return len(files), findings
