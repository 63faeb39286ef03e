#!/usr/bin/env python3
"""The instructions by which 64-bit Arm orders memory in the lock-free parts: each operation of the source has those that its order
asks for, and no others stand in the code. lock_free_arm.txt lists those of the protocols in docs/concurrency.md, for a processor
without LSE, with the functions of the compiler's library that ask at run time (outline atomics), as in releases, and with LSE.

    test_lock_free_arm.py --write    writes that list anew

The library is cross-compiled as a release is, but that no two operations share an instruction; the lines of its debug information name the operation of an instruction."""
# test: timeout=600 cost=120
import collections
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CC, SKIPPED = "aarch64-linux-gnu-gcc", 77
KEPT = HERE / "lock_free_arm.txt"
BUILDS = {"without LSE": ["-march=armv8-a", "-mno-outline-atomics"], "outline": ["-march=armv8-a", "-moutline-atomics"],
          "LSE": ["-march=armv8.1-a"]}
UNITS = {"src/unity.c": "", "src/unity_rare.c": "rare", "src/entry/cxx_linked.c": "beside", "src/os/keys.c": "beside",
         "src/unity_region.c": "region"}
CALL = re.compile(r"\bhak_(load|store|exchange|fetch_add|fetch_sub|fetch_or|fetch_and|cas_weak|cas_strong|owner_store|peek)\(")
ORDERS = ("RELAXED", "ACQUIRE", "RELEASE", "ACQ_REL", "SEQ_CST")
OF_ITSELF = {"owner_store": ("RELEASE",), "peek": ("ACQUIRE",)}   # base/atomic.h
NAMES = {"exchange": "swp", "fetch_add": "ldadd", "fetch_sub": "ldadd", "fetch_or": "ldset", "fetch_and": "ldclr", "cas_weak": "cas",
         "cas_strong": "cas"}
ATOMIC = re.compile(r"(ldapu?r|ldaxr|ldar|stlr|stlxr|ldxr|stxr|casp?|swp|ldadd|ldclr|ldset|ldeor|stadd|stclr|stset|steor)(al|a|l)?([bh])?$|dmb$|dsb$")
PROTOCOL = re.compile(r"`(\w+/\w+\.[ch])`")   # in docs/concurrency.md
HELPER = re.compile(r"\bbl?\s+\w+ <(__aarch64_(?:cas|swp|ld[a-z]{3})\d+_\w+)")

Operation = collections.namedtuple("Operation", "file function lines kind orders")


# --- what the source names -----------------------------------------------------------------------------------------------

def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda found: re.sub(r"[^\n]", " ", found.group()), text, flags=re.S)


def arguments(text, start):
    """Those of a call whose parenthesis opens before `start`."""
    found, depth, begin = [], 0, start
    for at in range(start, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            if depth == 0:
                return [*found, text[begin:at].strip()]
            depth -= 1
        elif text[at] == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    raise ValueError(text[start:start + 40])


def lines_of(text, at):
    """The call's own line, and those of the calls around it: a macro's code has the line of its outermost macro."""
    lines, depth = {text.count("\n", 0, at) + 1}, 0
    for back in range(at - 1, -1, -1):
        if text[back] in ";{}" and depth == 0:
            return lines
        depth += {")": 1, "(": -1}.get(text[back], 0)
        if depth < 0:
            lines.add(text.count("\n", 0, back) + 1)
            depth = 0
    return lines


def operations(path):
    """Those of a source file that order memory, or read and write in one."""
    text = without_comments(path.read_text(encoding="utf-8"))
    for found in CALL.finditer(text):
        kind, words = found.group(1), arguments(text, found.end())
        orders = OF_ITSELF.get(kind) or tuple(word.removeprefix("HAK_") for word in words[-2 if kind.startswith("cas") else -1:])
        if not set(orders) <= set(ORDERS):
            raise ValueError(f"{path.name}: {text[found.start():found.start() + 80]}")
        if kind in NAMES or orders != ("RELAXED",):
            yield Operation(str(path.relative_to(ROOT / "src")), None, frozenset(lines_of(text, found.start())), kind, orders)


# --- what the compiler makes of it ---------------------------------------------------------------------------------------

def wanted(operation, build):
    """The instructions that an operation has to have."""
    acquires = any(order in ("ACQUIRE", "ACQ_REL", "SEQ_CST") for order in operation.orders)
    releases = any(order in ("RELEASE", "ACQ_REL", "SEQ_CST") for order in operation.orders)
    if operation.kind not in NAMES:
        return {"ldar" if operation.kind in ("load", "peek") else "stlr"}
    if build == "without LSE":
        return {"ldaxr" if acquires else "ldxr", "stlxr" if releases else "stxr"}
    name = NAMES[operation.kind]
    if build == "LSE":
        return {name + "a" * acquires + "l" * releases}
    return {f"{name}_{('acq_' * acquires + 'rel' * releases).strip('_') or 'relax'}"}


def instruction(text):
    """Its name without the width, or None where it orders nothing."""
    helper = HELPER.search(text)
    if helper:
        return re.sub(r"__aarch64_([a-z]+)\d+", r"\1", helper.group(1))
    found = ATOMIC.match(text.split()[0])
    if not found:
        return None
    name = text.split()[0]
    name = name[:-1] if found.group(3) else name
    return re.sub(r"^st(add|clr|set|eor)", r"ld\1", name)   # whose result nobody asks for


def flags(*words):
    lines = (ROOT / "packaging/unit.flags").read_text(encoding="utf-8").splitlines()
    return [flag for line in lines if line.split()[:1] and line.split()[0] in words for flag in line.split()[1:]]


def run(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True, errors="replace", **more).stdout


def compiled(place, build, unit):
    """The object file of a unit."""
    target = place / f"{build}.{pathlib.Path(unit).stem}.o".replace(" ", "_")
    run(CC, *[f"-D{name}" for name in flags("define")], "-DHAK_OVERRIDE=1", '-DHAK_VERSION_STRING="0.0.0"', "-I", ROOT / "src", "-I",
        ROOT / "include", *flags("compile", UNITS[unit]), *["-DHAK_SHARED=0"] * (UNITS[unit] == "beside"), "-fno-semantic-interposition", *BUILDS[build], "-g", "-fno-crossjumping", "-c",
        *shlex.split(os.environ.get("CFLAGS", "")), ROOT / unit, "-o", target)
    return target


def ordered(objects):
    """(file, line, function, instruction) of each instruction; in place of those that order no memory None."""
    target = objects[0].with_suffix(".so")
    run(CC, "-shared", "-nostdlib", *objects, "-o", target)
    code = re.findall(r"^ +([0-9a-f]+):\t(.*)$", run("aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", target), re.M)
    code = [(at, instruction(text)) for at, text in code]
    said = run("aarch64-linux-gnu-addr2line", "-f", "-e", target, input="\n".join(at for at, _ in code)).splitlines()
    for (_, known), function, where in zip(code, said[::2], said[1::2]):
        path, _, line = where.partition(" ")[0].rpartition(":")
        if function.startswith("__aarch64_") or not line.isdigit():   # the compiler's library, or its stubs
            continue
        yield os.path.relpath(os.path.normpath(path), ROOT / "src"), int(line), function, known


def all_compiled():
    """{build: [(file, line, function, instruction)]}; the library, and what stands beside it."""
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = {build: [pool.submit(compiled, pathlib.Path(folder), build, unit) for unit in UNITS] for build in BUILDS}
        made = {build: [job.result() for job in each] for build, each in jobs.items()}
        return {build: [*ordered(objects[:-1]), *ordered(objects[-1:])] for build, objects in made.items()}


def compiler():
    return run(CC, "-dumpversion").strip().partition(".")[0]


class Found:
    """The operations of the source, and the instructions of each in each build."""

    def __init__(self):
        self.operations = [each for path in sorted((ROOT / "src").rglob("*.[ch]")) if path.name != "atomic.h" for each in operations(path)]
        self.by_line = collections.defaultdict(list)
        for each in self.operations:
            for line in each.lines:
                self.by_line[each.file, line].append(each)
        self.functions, self.found, self.compiled, self.problems = {}, collections.defaultdict(set), set(), []
        for build, rows in all_compiled().items():
            for row in rows:
                self.take(build, *row)

    def take(self, build, file, line, function, known):
        self.compiled.add((file, line))
        if known is None:
            return
        fitting = [each for each in self.by_line[file, line] if known in wanted(each, build)]
        if not fitting:
            self.problems.append(f"{build}: {file}:{line}: {function}: {known}, which no operation of that line names")
        for each in fitting:
            self.functions[each] = re.sub(r"\.(?:isra|part|constprop|cold).*", "", function)
            self.found[each, build].add(known)

    def missing(self):
        """Of operations that are compiled: assertions are not, nor what is for other processors."""
        return [f"{build}: {each.file}:{min(each.lines)}: {each.kind} {' '.join(each.orders)} has {sorted(self.found[each, build])}"
                for each in self.operations if any((each.file, line) in self.compiled for line in each.lines)
                for build in BUILDS if self.found[each, build] != wanted(each, build)]

    def text(self):
        """A row for each function: its operations in the source's order."""
        files, rows = set(PROTOCOL.findall((ROOT / "docs/concurrency.md").read_text(encoding="utf-8"))), collections.defaultdict(list)
        for each in self.operations:
            if each in self.functions and each.file in files:
                rows[each.file, self.functions[each]].append(each)
        head = f"# gcc {compiler()}: function: " + " | ".join(BUILDS)
        parts = [head]
        for (file, function), each in rows.items():
            parts += [f"\n{file}"] * (f"\n{file}" not in parts)
            parts.append(f"{function}: " + " | ".join(", ".join(" ".join(sorted(self.found[one, build])) for one in each) for build in BUILDS))
        return "\n".join(parts) + "\n"


class LockFreeOnArm(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.of = Found()

    def test_no_other_instruction(self):
        self.assertEqual(self.of.problems, [])

    def test_each_operation(self):
        self.assertEqual(self.of.missing(), [])

    def test_the_list_is_current(self):
        kept = KEPT.read_text(encoding="utf-8")
        if not kept.startswith(f"# gcc {compiler()}:"):
            self.skipTest("the list is of another compiler")
        self.assertEqual(kept, self.of.text(), "write it by test_lock_free_arm.py --write")


if __name__ == "__main__":
    if shutil.which(CC) is None:
        print("./dev setup --aarch64 installs the compiler")
        sys.exit(SKIPPED)
    if sys.argv[1:] == ["--write"]:
        KEPT.write_text(Found().text(), encoding="utf-8")
    else:
        unittest.main()
