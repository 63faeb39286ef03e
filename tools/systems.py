#!/usr/bin/env python3
"""Tests on systems other than this machine's, and their results for docs/compatibility.md.

  systems.py root RELEASE [FAMILY...]   in a root of another release of Debian (bullseye, trixie, forky): the built libhakmem.so
                                    preloaded into programs of that system and into tests, built here or, for a system that is older
                                    than this one, there. FAMILY: override, hardened.override, misuse, programs, unit, api; all without
                                    a name. As root, on Debian.
  systems.py compiler RELEASE COMPILER [FAMILY...]   in such a root, the library and the tests built there by gcc or clang, of
                                    which that Debian may have several (clang-19); gcc+lto and clang+lto: optimised at link time.
                                    Then the instructions of bench/guard's benchmarks inside of the library are counted: in the mean at
                                    most 3 % more than gcc 12's.
  systems.py note SYSTEM REPORT...  takes over what ctest has reported (JUnit) for a system; of a test in several reports the last

Results are kept in tests/systems.txt, a line for each system and family of tests; a new result replaces the old one."""
import collections
import concurrent.futures
import importlib
import json
import math
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "tests" / "systems.txt"
COUNTS = ROOT / "tests" / "compilers.json"
GUARD = ROOT / "bench" / "guard" / "golden.json"
PACKAGES = ("python3", "perl", "git", "sqlite3", "redis-server")
COMPILERS = ("gcc", "g++", "libc6-dev", "libcmocka-dev")
BUILDERS = ("gcc", "g++", "clang", "cmake", "ninja-build", "python3", "libcmocka-dev", "pkg-config", "valgrind", "lld")
COMPILED = ("misuse", "api", "unit", "override", "hardened.override")   # families that another compiler is tried with
OLDER = ("bullseye",)   # than the systems on which this is run
PROGRAMS = ("scripts", "sqlite", "git", "redis")
FAMILIES = ("misuse", "programs", "api", "unit", "override", "hardened.override")
SKIPPED, LATE, SECONDS, JOBS = 77, 124, 900, 2
MOST_INSTRUCTIONS = 1.03   # by those of gcc 12's library
HEAD = ("system", "C library", "compiler", "family", "passed", "failed", "skipped", "which failed")
sys.dont_write_bytecode = True


# --- results ---------------------------------------------------------------------------------------------------------------

def kept():
    """The rows of tests/systems.txt."""
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]


def keep(rows):
    """Replaces the rows of the same system and family."""
    new = {(row[0], row[3]): tuple(map(str, row)) for row in rows}
    old = {(row[0], row[3]): row for row in kept()}
    lines = ["\t".join(row) for _, row in sorted({**old, **new}.items())]
    KEPT.write_text("\n".join(["# Written by tools/systems.py: " + ", ".join(HEAD), *lines]) + "\n", encoding="utf-8")


def rows(system, libc, compiler, results):
    """Rows of (family, test, status)."""
    families = collections.defaultdict(list)
    for family, test, status in results:
        families[family].append((test, status))
    for family, tests in families.items():
        failed = sorted(test for test, status in tests if status not in (0, SKIPPED))
        yield (system, libc, compiler, family, sum(status == 0 for _, status in tests), len(failed),
               sum(status == SKIPPED for _, status in tests), " ".join(failed))


def note(system, reports):
    """Results out of ctest's reports; the family is the test's name up to its first dot but one."""
    results = {}
    for report in reports:
        for case in ElementTree.parse(report).iter("testcase"):
            name = case.get("name")
            family = re.match(r"(?:(?:hardened|malloc_only)\.)?\w+", name).group().replace("malloc_only", "malloc-only")
            results[family, name] = {"run": 0, "fail": 1}.get(case.get("status"), SKIPPED)
    libc, compiler = {"musl": ("musl 1.2", "zig's clang"), "RISC-V": ("glibc 2.36", "zig's clang")}.get(system.split()[0], ("glibc 2.36", "gcc 12"))
    keep(rows(system, libc, compiler, ((*which, status) for which, status in results.items())))


# --- in a root: every test is built by the system's compiler -----------------------------------------------------------------

class Inside:
    """The tests, in the root, where the project's files and what is built lie at the same places as outside."""
    c, cxx, archiver = "gcc", "g++", "ar"
    # The system is older than this one: it has mallinfo in place of mallinfo2, and without -fno-plt the address of malloc would
    # be that of the program's own entry in its PLT.
    more = ("-Dmallinfo2=mallinfo", "-fno-plt")

    def __init__(self, families):
        self.families = families
        self.release, self.debug = ROOT / "out/release", ROOT / "out/debug"
        self.tested = self.release / "libhakmem.so"
        self.results = []
        self.pool = concurrent.futures.ThreadPoolExecutor(JOBS)
        for folder in ("release/tests/override", "release/tests/misuse", "debug/tests/unit", "debug/tests/api", "debug/objects"):
            (ROOT / "out" / folder).mkdir(parents=True, exist_ok=True)

    def call(self, command, **environment):
        """(status, output)"""
        try:
            done = subprocess.run([str(word) for word in command], cwd=ROOT, env={**os.environ, **environment}, timeout=SECONDS,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  errors="replace", check=False)
        except subprocess.TimeoutExpired:
            return LATE, "too late"
        return done.returncode, done.stdout

    def build(self, source, target, *flags):
        """0, at once where it is built already."""
        if target.exists():
            return 0
        compiler = [self.cxx, "-std=gnu++17"] if source.suffix == ".cpp" else [self.c, "-std=gnu17"]
        status, said = self.call([*compiler, *self.more, "-D_GNU_SOURCE", "-w", "-I", ROOT / "include", source, "-o", target, *flags])
        if status != 0:
            print(f"{source.name} does not build:\n{said}", flush=True)
        return status

    def result(self, family, test, status, said=""):
        self.results.append((family, test, status))
        if status not in (0, SKIPPED):
            print(f"{family}: {test}: status {status}\n{said[-1500:]}", flush=True)

    def each(self, task, items):
        list(self.pool.map(task, sorted(items)))

    def traits(self, source, words="test"):
        lines = source.read_text(encoding="utf-8").splitlines()[:20]
        return [word for line in lines if (found := re.match(rf"(?://|#) {words}: (.*)", line)) for word in shlex.split(found.group(1))]

    def linked(self, source, region, names):
        """What such a program is linked with."""
        libraries = [self.release / "tests/libhakmem_test_names.so"] * names + [self.release / "libhakmem-region.so"] * region
        return ["-fno-builtin", "-rdynamic", *libraries, f"-Wl,-rpath,{self.release}:{self.release / 'tests'}", f"-L{self.release}",
                *self.traits(source, "build"), "-pthread", "-ldl", "-lrt"]

    def override(self, source):
        traits, text = self.traits(source), source.read_text(encoding="utf-8")
        flavours = [word.partition("=")[2].split(",") for word in traits if word.startswith("flavours=")]
        if flavours and "preload" not in flavours[0]:
            return
        program = self.release / f"tests/override/{source.stem}_preload"
        status = self.build(source, program, *self.linked(source, "hakmem_region.h" in text, True), *["-lcmocka"] * ("<cmocka.h>" in text))
        for family, more in (("override", {}), ("hardened.override", {"HAKMEM_HARDEN": "1"})):
            if family in self.families and (family == "override" or "ordinary" not in traits):
                self.result(family, source.stem, *((status,) if status else self.call([program], LD_PRELOAD=str(self.tested), **more)))

    def misuse(self, source):
        program = self.release / "tests/misuse" / source.stem
        status = self.build(source, program, "-O0", *self.linked(source, source.stem.startswith("heap_region_"), source.stem.startswith("heap_")))
        self.result("misuse", source.stem,
                    *((status,) if status else self.call([sys.executable, ROOT / "tests/misuse/run.py", self.tested, program, source])))

    def inner(self, source):
        """A test of unit or api, on the checked build of the library."""
        program = self.debug / "tests" / source.parent.name / source.stem
        status = self.build(source, program, *self.checked(), self.debug / "libhakmem_test.a", "-lcmocka", "-pthread", "-ldl")
        self.result(source.parent.name, source.stem, *((status,) if status else self.call([program])))

    def checked(self):
        return ["-DHAK_TESTING=1", "-DHAK_DEBUG=1", "-DHAK_OVERRIDE=0", '-DHAK_VERSION_STRING="0.0.0"', "-I", ROOT / "src", "-I", ROOT / "tests",
                "-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc", "-fno-builtin-free", "-fno-omit-frame-pointer", "-O1"]

    def build_checked(self):
        archive = self.debug / "libhakmem_test.a"
        if archive.exists():
            return
        objects = {path: self.debug / "objects" / ("_".join(path.relative_to(ROOT).parts) + ".o")
                   for path in (ROOT / "src").rglob("*.c") if not path.name.startswith("unity")}
        self.each(lambda path: self.build(path, objects[path], *self.checked(), "-c"), objects)
        self.call([self.archiver, "rcs", archive, *objects.values()])

    def program(self, name):
        self.result("programs", name, *self.call([sys.executable, "-B", ROOT / f"tests/programs/test_{name}.py", self.tested,
                                                  *([ROOT] if name == "git" else [])]))

    def run(self):
        self.build(ROOT / "tests/support/names.c", self.release / "tests/libhakmem_test_names.so", "-shared", "-fPIC")
        if "misuse" in self.families:
            self.each(self.misuse, (ROOT / "tests/misuse").glob("*.c*"))
        if "programs" in self.families:
            self.each(self.program, PROGRAMS)
        for folder in ("api", "unit"):
            if folder in self.families:
                self.build_checked()
                self.each(self.inner, (ROOT / "tests" / folder).glob("test_*.c*"))
        if any("override" in family for family in self.families):
            self.each(self.override, (ROOT / "tests/override").glob("test_*.c*"))
        (ROOT / "results.json").write_text(json.dumps([" ".join(platform.libc_ver()), self.results, *self.beside()]), encoding="utf-8")

    def beside(self):
        """What else is told."""
        return ()


class Compiled(Inside):
    """The same by a compiler of the root's, which builds the library too."""

    def __init__(self, compiler, families):
        super().__init__(families)
        self.more = ()
        self.c, _, lto = compiler.partition("+")
        kind, dash, number = self.c.partition("-")
        self.cxx = {"gcc": "g++", "clang": "clang++"}[kind] + dash + number
        if lto:
            self.more = ("-flto",) if kind == "gcc" else ("-flto", "-fuse-ld=lld", "-Wno-unused-command-line-argument")   # lld needs no index in an archive
            self.archiver = f"gcc-ar{dash}{number}" if kind == "gcc" else "ar"

    def build_library(self):
        build = ROOT / "out/built"
        flags = " ".join(self.more)
        command = ["cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_C_COMPILER={self.c}",
                   f"-DCMAKE_C_FLAGS={flags}", f"-DCMAKE_AR=/usr/bin/{self.archiver}", "-DHAKMEM_BUILD_TESTS=OFF", "-DHAKMEM_BUILD_BENCH=OFF",
                   "-DHAKMEM_BUILD_DEMO=OFF"]
        for step in (command, ["cmake", "--build", build]):
            status, said = self.call(step)
            if status != 0:
                sys.exit(f"{self.c} does not build the library:\n{said[-3000:]}")
        for path in build.glob("libhakmem*.so*"):
            shutil.copy2(path, self.release, follow_symlinks=False)

    def run(self):
        self.build_library()
        super().run()

    def beside(self):
        """The compiler's version, and the guard's counts."""
        sys.path.insert(0, str(ROOT / "bench/guard"))
        guard = importlib.import_module("guard")
        said = self.call([self.c, "--version"])[1]
        version = re.search(r"(\d+)\.\d+", said).group(1)
        return version, {name: guard.count(command, self.tested, self.release) for name, command in guard.BENCHMARKS.items()}


# --- roots -------------------------------------------------------------------------------------------------------------------

def stage_built(root, release):
    """The library, and for systems as new as this one the tests."""
    release_tests = [] if release in OLDER else [
        *ROOT.glob("out/release/tests/override/*_preload"), *ROOT.glob("out/release/tests/misuse/*"),
        *ROOT.glob("out/debug/tests/unit/test_*"), *ROOT.glob("out/debug/tests/api/test_*"), *ROOT.glob("out/debug/libhakmem_test.a"),
        *ROOT.glob("out/release/tests/lib*.so"), *pathlib.Path("/usr/lib").glob("*/libcmocka.so.0")]
    for path in [*release_tests, *ROOT.glob("out/release/libhakmem*.so*")]:
        if path.is_file():
            target = root / path.relative_to("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)


def run_in_root(release, families):
    """How many tests have passed and failed."""
    from bare import enter  # pylint: disable=import-outside-toplevel
    from package_common import bare_root, project_files, stage  # pylint: disable=import-outside-toplevel
    older = release in OLDER
    root = bare_root(f"system-{release}", (*(COMPILERS if older else ()), *PACKAGES), release)
    place = root / ROOT.relative_to("/")
    stage(place, project_files("src", "include", "tests", "tools"))
    stage_built(root, release)
    status = enter(root, ["nice", "python3", "-B", ROOT / "tools/systems.py", "inside", *families])
    if status != 0:
        sys.exit(f"{release}: ended with {status}")
    libc, results = json.loads((place / "results.json").read_text(encoding="utf-8"))
    found = list(rows(f"Debian {release}", libc, "its own" if older else "gcc 12", results))
    keep(found)
    for row in found:
        print(f"{row[0]}, {row[1]}: {row[3]}: {row[4]} passed, {row[5]} failed {row[7]}".rstrip(), flush=True)
    return sum(row[4] for row in found), sum(row[5] for row in found)


def tell(passed, failed):
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def ratios(counts):
    """{benchmark: its instructions by gcc 12's}"""
    own = json.loads(GUARD.read_text(encoding="utf-8"))["gcc 12 x86_64"]
    return {name: counts[name] / number for name, number in own.items()}


def mean(found):
    return math.prod(found.values()) ** (1 / len(found))


def keep_counts(name, counts):
    kept_counts = json.loads(COUNTS.read_text(encoding="utf-8")) if COUNTS.exists() else {}
    COUNTS.write_text(json.dumps({**kept_counts, name: counts}, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def run_compiler(release, compiler, families):
    """How many tests have passed and failed of those that a compiler of another Debian has built."""
    from bare import enter  # pylint: disable=import-outside-toplevel
    from package_common import bare_root, project_files, stage  # pylint: disable=import-outside-toplevel
    name, _, lto = compiler.partition("+")
    kind, dash, number = name.partition("-")
    packages = dict.fromkeys((*BUILDERS, name, {"gcc": "g++", "clang": "lld"}[kind] + dash + number))
    root = bare_root(f"compiler-{release}-{compiler}", tuple(packages), release)
    place = root / ROOT.relative_to("/")
    stage(place, project_files("src", "include", "tests", "tools", "bench/guard", "cmake", "starter", "CMakeLists.txt", "LICENSE"))
    benchmarks = place / "out/release"
    benchmarks.mkdir(parents=True)
    for program in [*ROOT.glob("out/release/bench_*"), ROOT / "out/release/suite_simplify"]:
        shutil.copy2(program, benchmarks)
    status = enter(root, ["nice", "python3", "-B", ROOT / "tools/systems.py", "compiled", compiler, *families])
    if status != 0:
        sys.exit(f"{release}, {compiler}: ended with {status}")
    libc, results, version, counts = json.loads((place / "results.json").read_text(encoding="utf-8"))
    said = f"{kind} {version}{', link-time' if lto else ''}"
    found = list(rows(f"Debian {release}, {said}", libc, said, results))
    keep(found)
    keep_counts(said, counts)
    for row in found:
        print(f"{row[0]}: {row[3]}: {row[4]} passed, {row[5]} failed {row[7]}".rstrip(), flush=True)
    more = mean(ratios(counts))
    print(f"instructions: {more:.3f} of gcc 12's, {MOST_INSTRUCTIONS} allowed")
    return sum(row[4] for row in found), sum(row[5] for row in found) + (more > MOST_INSTRUCTIONS)


def main(arguments):
    if len(arguments) < 1 or arguments[0] in ("--help", "-h"):
        print(__doc__)
        return 0 if arguments else 2
    command, *rest = arguments
    if command == "inside":
        Inside(rest).run()
    elif command == "note":
        note(rest[0], rest[1:])
    elif command == "compiled":
        Compiled(rest[0], rest[1:]).run()
    elif command == "root" and rest and set(rest[1:]) <= set(FAMILIES):
        return tell(*run_in_root(rest[0], rest[1:] or FAMILIES))
    elif command == "compiler" and len(rest) > 1 and re.match(r"(gcc|clang)(-\d+)?(\+lto)?$", rest[1]) and set(rest[2:]) <= set(COMPILED):
        return tell(*run_compiler(rest[0], rest[1], rest[2:] or COMPILED))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
