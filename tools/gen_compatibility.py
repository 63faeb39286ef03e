#!/usr/bin/env python3
"""Writes docs/compatibility.md from what the last soak has shown (tests/soak.txt), other systems (tests/systems.txt), unusual places
(tests/places.txt), and from the tests of programs in tests/programs. A program that no test has run on HAKMEM has no row.

  gen_compatibility.py            writes it; the soak does so after its report
  gen_compatibility.py --check    fails when it is not what this program writes
"""
import ast
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compatibility.md"
SOAK = ROOT / "tests" / "soak.txt"
PLACES_KEPT = ROOT / "tests" / "places.txt"
sys.dont_write_bytecode = True

from gen_options_doc import table
from systems import COUNTS, kept, mean, ratios

PLACES = """## Places

Where a program seldom runs: threads and forks with blocks of every kind, as `HAK_PLACES_NOTE=1 ./dev test release -R golden.test_places`
has found it. Heaps of hundreds of gigabytes are in `stress.test_vast`, kernels that lack newer calls in `oom.test_kernels`, and no memory left
in the other tests of `oom`. rr needs performance counters, which few virtual machines have; old versions of CRIU do not start on new kernels.
Where a sanitizer's malloc serves, HAKMEM never starts: making heaps, profiles and statistics fail with `ENOMEM`.

"""

MUSL = """## musl

`./dev test musl` builds for musl 1.2 and runs the tests by musl's loader; every change runs a part of them (`./dev test musl-brief`).
`./dev bench --musl` builds programs too and measures them ([benchmarks.md](benchmarks.md#on-musl)).
Of 2 MiB of locked memory, which hold a process of musl but none of glibc, the library's file takes 540 KiB.

- musl's loader has no room for thread-local words of a library opened by `dlopen`: preload `libhakmem.so` or link with it.
- Stacks in reports and profiles end in musl's own functions, which have no unwind tables, and in libraries opened after the start.
- A program with the C++ runtime linked into it keeps that runtime's operators: sizes given to `delete` are not checked there. If it is
  linked with `libhakmem.so` and the runtime is hidden, as zig's is, it ends where `std::bad_alloc` would be thrown.
- What only glibc has, such as `mallinfo` and `malloc_trim`, is not exported.
- `HAKMEM_MISUSE=report` does not give blocks of musl's malloc back to it; they are leaked.
- Preloaded into a program of glibc, the library ends it with the loader's one line, and vice versa.
"""

REPLACED = """## What it replaces besides malloc's family

`libhakmem.so` exports malloc's family, C++'s operators `new` and `delete`, its own `hak_*`, and these functions, which call the C
library's or the kernel. `libhakmem.a` has `mprotect` alone.

| Function | Why | Without it |
| --- | --- | --- |
| `mprotect` | A free writes a key into the block. If the program has made its pages read-only, the free restores them. | Such a free ends in SIGSEGV, as on most allocators, unless the block has more than 56 KiB at a multiple of a page. |
| `prctl` | A filter of system calls (seccomp) may end the process at `mincore` or `getrusage`. After this call HAKMEM no longer uses them, and reads no file; what it needs, it reads before. A vfork child's call does not count: such a child should not allocate behind its own filter. | The filter has to allow both, or answer them with an error. |
| `setuid` `setgid` `seteuid` `setegid` `setreuid` `setregid` `setresuid` `setresgid` `setgroups` `initgroups` | The background thread, which only the kernel knows ([0064](decisions/0064-a-thread-that-only-the-kernel-knows.md)), would keep the old credentials. HAKMEM ends it before and starts a new one after. | No background thread in a process that is root or of two users, unless `HAKMEM_BACKGROUND=1`, which then must not change credentials. |
| `_exit` `_Exit` `daemon` | They run no destructor, so each `sh -c` and each child that ends by them would leave its file in the folder of the [black box](blackbox.md), as would the process that `daemon` ends. HAKMEM removes it first, then makes the system call itself; `daemon` is the C library's. | The files stay. |
| `dlopen` `dlmopen` | A library opened with `RTLD_DEEPBIND`, as PHP opens its extensions, would use the C library's free on HAKMEM's blocks. HAKMEM drops the flag ([api.md](api.md#libraries-opened-with-rtld_deepbind)). | Blocks must not change hands between the program and such a library. |

`cmake -DHAKMEM_INTERPOSE=malloc-only` builds libraries without all of them ([0092](decisions/0092-what-is-replaced-besides-malloc.md)).
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
        yield [what, *(said.get(word, "") for word in ("cases", "skipped", "failed", "different")), verdict]


def programs(rows):
    """The soak's loads, with the number of processes that were proved to be served."""
    for name, _, what, _, _, figure, verdict in rows:
        if name.startswith("program "):
            said = figures(figure)
            served = said.get("served", "") if said.get("blocks") != "0" else "0"   # the library was there, another malloc served
            yield f"- {name.partition(' ')[2]}: {what} ({served})" + ("" if verdict == "passed" else f": {verdict}")


def each_change():
    """What the tests of every change run: the first sentence of each one's description."""
    for path in sorted((ROOT / "tests" / "programs").glob("test_*.py")):
        name = path.stem.partition("_")[2]
        if name not in NO_PROGRAMS:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))).split("\n\n")[0]
            yield f"- `{path.stem}`: {' '.join(text.split())}"


def places():
    """The table that tests/golden/test_places.py has kept."""
    lines = PLACES_KEPT.read_text(encoding="utf-8").splitlines()
    return PLACES + table(["Place", "Result"], [line.split("\t") for line in lines if not line.startswith("#")])


SYSTEMS = """## Systems

What passed of each family of tests, out of those that ran. `./dev test root RELEASE` runs the released library in a root of that Debian;
`./dev test aarch64` and `riscv64` run under qemu: there was no native run
([what that cannot show](tests.md#the-tests-and-what-must-come-out)). Debian's Redis 8, Valkey and BIND are
linked with libjemalloc.so and call `mallocx` and kin, which HAKMEM serves; `mallctl` stays jemalloc's, so `INFO memory` shows `allocator_`
figures of an idle jemalloc.

An empty cell was not run.
"""


def systems():
    """A row for each system, a column for each family; below, what failed."""
    found = kept()
    families = sorted({row[3] for row in found}, key=lambda family: (family.rpartition(".")[2], family))
    cells = {(row[0], row[3]): f"{row[4]} of {int(row[4]) + int(row[5])}" for row in found}
    body = [[*who, *(cells.get((who[0], family), "") for family in families)] for who in sorted({row[:3] for row in found})]
    failed = [f"- {row[0]}: {row[3]}: {row[7]}\n" for row in found if row[7]]
    return SYSTEMS + "\n" + table(["System", "C library", "Compiler", *families], body) + ("\nFailed:\n\n" + "".join(failed) if failed else "")


COMPILERS = """## Compilers

`./dev test compiler RELEASE COMPILER` builds the library and its tests in a root of that Debian (`gcc`, `clang-19`; `clang+lto`:
optimised at link time, but for the library, which never is); what passed stands above. The instructions of the benchmarks of
`bench/guard` inside of the library, by those of gcc 12's:
"""


def compilers():
    """A row for each compiler, a column for each benchmark, and their geometric mean."""
    found = {name: ratios(counts) for name, counts in sorted(json.loads(COUNTS.read_text(encoding="utf-8")).items())}
    body = [[name, *(f"{ratio:.3f}" for ratio in each.values()), f"{mean(each):.3f}"] for name, each in found.items()]
    return COMPILERS + "\n" + table(["Compiler", *next(iter(found.values())), "Mean"], body)


def page(text):
    """The page's text."""
    rows = items(text)
    parts = ["# Compatibility\n\nThe programs and tests that HAKMEM has run with, failures included; what is not listed was not tested, or is\n"
             "[not supported](../README.md#limits). The soak ran on\n"
             f"{line(text, 'Machine')}, at commit {line(text, 'Commit')}:\n{line(text, 'Verdict')}.\n",
             REPLACED, systems(), *([compilers()] if COUNTS.exists() else []), places(), MUSL,
             "\n".join(["## Programs in the tests of every change\n", *each_change(), ""])]
    suite_rows, loads = list(suites(rows)), list(programs(rows))
    if suite_rows:
        parts.append("## Programs' own test suites\n\nEach case has the same outcome as on the system's malloc, or counts as different.\n\n"
                     + table(["Suite", "Cases", "Skipped", "Failed on both", "Different", "Verdict"], suite_rows))
    if loads:
        parts.append("\n".join(["## Programs under load\n",
                                "The same results as on the system's malloc; in brackets the processes that HAKMEM was proved to have served\n"
                                "([tests.md](tests.md#programs-in-the-soak)).\n", *loads, ""]))
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
