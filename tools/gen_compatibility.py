#!/usr/bin/env python3
"""Writes docs/compatibility.md from what the last soak has shown (tests/soak.txt) and from the tests of programs in tests/programs.
A program that no test has run on HAKMEM has no row.

  gen_compatibility.py            writes it; the soak does so after its report
  gen_compatibility.py --check    fails when it is not what this program writes
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
SOAK = ROOT / "tests" / "soak.txt"
sys.dont_write_bytecode = True

from gen_options_doc import table
from systems import kept

MUSL = """## musl

`./dev test musl` builds the library and its tests for musl 1.2 by zig's clang, and runs them by musl's loader.

- A program that opens `libhakmem.so` by `dlopen` is refused by musl's loader, which has no room for its thread-local words: preload it or
  link with it.
- musl's own functions have no unwind tables, so stacks in reports and profiles end in them; so do those from libraries opened after the start.
- A program with the C++ runtime linked into it keeps that runtime's operators, which call the library's malloc; sizes given to
  `delete` are not checked there.
- What only glibc has, such as `mallinfo` and `malloc_trim`, is not exported.
- Preloaded into a program of glibc, the library ends it with the loader's one line; a library for glibc ends a program of musl so.
- The list of tests has not been run to its end there.
"""

REPLACED = """## What it replaces besides malloc's family

`libhakmem.so` exports malloc's family, C++'s operators `new` and `delete`, its own `hak_*`, and these functions of the C library.
Each calls the C library's function and notes the call for the allocator. `libhakmem.a` has `mprotect` alone.

| Function | Why | Without it |
| --- | --- | --- |
| `mprotect` | A free writes a key into the block. If the program has made some of the block's pages read-only, the free restores them. | Such a free ends in SIGSEGV, as on most allocators, unless the block has more than 56 KiB at a multiple of a page: restore the rights first. |
| `prctl` | A filter of system calls (seccomp) may end the process at `mincore`, which HAKMEM uses to return memory. After this call it no longer does. | The filter has to allow `mincore`, or answer it with an error. |
| `setuid` `setgid` `seteuid` `setegid` `setreuid` `setregid` `setresuid` `setresgid` `setgroups` `initgroups` | Only the kernel knows the background thread ([0064](decisions/0064-a-thread-that-only-the-kernel-knows.md)), so it would keep the old credentials. HAKMEM ends it before the change and starts a new one afterwards. | No background thread in a process that is root or of two users, unless `HAKMEM_BACKGROUND=1`, which then must not change credentials. |
| `dlopen` `dlmopen` | A library opened with `RTLD_DEEPBIND` would use the C library's free on HAKMEM's blocks. HAKMEM drops the flag ([api.md](api.md#libraries-opened-with-rtld_deepbind)). | Blocks must not change hands between the program and such a library. PHP opens its extensions so. |

`cmake -DHAKMEM_INTERPOSE=malloc-only` builds libraries without all of them; `golden.test_malloc_only` holds this table against both
builds, and `malloc_only.override.*` run on it. [0092](decisions/0092-what-is-replaced-besides-malloc.md) decides why it is not the
default.
"""

NO_PROGRAMS = {"footprint"}   # tests in tests/programs that are not about a program's work


def plain(cell):
    return cell.strip().strip("`")


def items(text):
    """The rows of the soak's table that have run: item, build, what, asked, time, figure, verdict."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in text.splitlines() if line.startswith("| `")]
    found = [[plain(cell) for cell in row] for row in rows if len(row) == 7]
    return [row for row in found if row[-1] not in ("not run", "skipped")]


def line(text, word):
    """What the report's head says of `word`."""
    return re.search(rf"^- {word}: (.*)$", text, re.M).group(1)


def figures(text):
    return dict(re.findall(r"(\w+)=(\S+)", text))


def suites(rows):
    """Each program's own tests: a failure that is the same on the system's malloc is the program's."""
    for name, _, what, _, _, figure, verdict in rows:
        if not name.startswith("suite "):
            continue
        said = figures(figure)
        yield [what, *(said.get(word, "") for word in ("cases", "passed", "skipped", "failed", "different")), verdict]


def programs(rows):
    """The soak's loads, with the processes that were proved to be served."""
    for name, _, what, _, _, figure, verdict in rows:
        if name.startswith("program "):
            said = figures(figure)
            yield [name.partition(" ")[2], what, said.get("served", ""), said.get("blocks", ""), verdict]


def each_change():
    """What the tests of every change run: the first sentence of each one's description."""
    for path in sorted((ROOT / "tests" / "programs").glob("test_*.py")):
        name = path.stem.partition("_")[2]
        if name not in NO_PROGRAMS:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).split("\n\n")[0]
            yield [f"`programs.{path.stem}`", " ".join(text.split())]


SYSTEMS = """## Systems

What passed of each family of tests, out of those that ran, and what failed. `./dev test root RELEASE` runs the released library in a
root of that Debian, with tests built here, or by its own compiler; musl, 64-bit Arm and RISC-V are `./dev test musl`, `aarch64` and `riscv64`, the latter
two under qemu, with the size of pages that is named: there was no native run. Redis 8 calls jemalloc's own functions beside malloc's, so it
cannot run on another malloc.
"""


def systems():
    """A row for each system, a column for each family; below, what failed."""
    found = kept()
    families = sorted({row[3] for row in found}, key=lambda family: (family.rpartition(".")[2], family))
    cells = {(row[0], row[3]): f"{row[4]} of {int(row[4]) + int(row[5])}" for row in found}
    body = [[*who, *(cells.get((who[0], family), "") for family in families)] for who in sorted({row[:3] for row in found})]
    failed = [f"- {row[0]}: {row[3]}: {row[7]}\n" for row in found if row[7]]
    return SYSTEMS + "\n" + table(["System", "C library", "Compiler", *families], body) + ("\nFailed:\n\n" + "".join(failed) if failed else "")


def page(text):
    """The page's text."""
    rows = items(text)
    parts = ["# Compatibility\n\nThe programs and tests that HAKMEM has run with, failures included. `tools/gen_compatibility.py` writes "
             "this page from the\ntests; a program that is not listed was not tested.\n",
             REPLACED,
             "## Where\n\n" + table(["What", "Which"], [["Machine, kernel and C library of the soak", line(text, "Machine")],
                                                        ["Commit", line(text, "Commit")],
                                                        ["Its tests and programs", f"{line(text, 'Verdict')}; single figures in tests/soak.txt"]]),
             "[README.md](../README.md#limits) says what is not supported.\n", systems(), MUSL,
             "## Programs in the tests of every change\n\n" + table(["Test", "What it shows"], each_change())]
    for title, intro, head, body in (
            ("Programs' own test suites", "Each case has the same outcome as on the system's malloc, or counts as different.",
             ["Suite", "Cases", "Passed", "Skipped", "Failed on both", "Different", "Verdict"], list(suites(rows))),
            ("Programs under load", "The same results as on the system's malloc, and processes that HAKMEM was proved to have served "
             "([tests.md](tests.md#programs-in-the-soak)).",
             ["Program", "Work", "Processes served", "Blocks", "Verdict"], list(programs(rows))),
            ):
        if body:
            parts.append(f"## {title}\n\n{intro}\n\n" + table(head, body))
    return "\n".join(parts)


def main():
    wanted = page(SOAK.read_text(encoding="utf-8"))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted, encoding="utf-8")
    elif not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted:
        sys.exit("docs/compatibility.md is not current: run tools/gen_compatibility.py")
    else:
        print("docs/compatibility.md is current")


if __name__ == "__main__":
    main()
