#!/usr/bin/env python3
# test: timeout=600 cost=20
"""Places where a program seldom runs: limits of every resource, many mappings and threads, a terabyte of addresses, small control
groups, settings for huge pages, debuggers, profilers, sanitizers, checkpoints. Each is a row of docs/compatibility.md.

usage: test_places.py [NAME...]
HAK_TEST_LONG=1     the limits in each mode of the library
HAK_PLACES_NOTE=1   keeps the results in tests/places.txt, from which the page is made
HAK_PLACES_SYSTEM=1 changes settings of the whole system for some seconds (root)
HAK_TEST_CRIU=...   the criu to try, in place of the installed one"""
import contextlib
import fnmatch
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

from memory_group import ROOT as GROUPS
from memory_group import memory_group

HERE = pathlib.Path(__file__).resolve().parent
KEPT = HERE.parent / "places.txt"
LIBRARY = str(pathlib.Path(os.environ["HAK_TEST_LIB"]).resolve())
CC = os.environ.get("CC", "cc")
MIB, NOBODY, SECONDS = 1 << 20, 65534, 120
LONG = os.environ.get("HAK_TEST_LONG", "0") not in ("", "0")
MODES = ({}, {"HAKMEM_HARDEN": "1"}, {"HAKMEM_BACKGROUND": "1"}) if LONG else ({},)
ADDRESSES_FIXED = ["setarch", "-R"]
SERVED = re.compile(r"^done heaps=[1-9]\d*$", re.M)
ASIDE = "hakmem: a sanitizer's malloc serves this program\n"
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage")


class Skipped(Exception):
    """Why a place cannot be had here."""


class Places:
    """The places, each a function of its own name; its first line of text is the table's."""

    def __init__(self, folder):
        self.folder, self.commands = folder, {}
        self.program = self.build("places_user", HERE / "places_user.c", "-I", HERE.parent.parent / "include")

    def build(self, name, source, *flags, compiler=CC):
        program = self.folder / name
        done = subprocess.run([compiler, "-O1", "-g", "-fno-builtin", "-D_GNU_SOURCE", source, "-o", program, *flags, "-pthread", "-ldl"],
                              capture_output=True, text=True, check=False)
        return program if done.returncode == 0 else None

    def run(self, command, before=None, **options):
        """(status, stdout, stderr) of a command that has the library preloaded."""
        environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LD_PRELOAD": LIBRARY, **options}
        done = subprocess.run([str(word) for word in command], env=environment, cwd=self.folder, preexec_fn=before, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
        return done.returncode, done.stdout, done.stderr

    def serve(self, *words, first=(), before=None, said="", **options):
        """The program with these words ends well, was served, and nothing else was said."""
        status, out, err = self.run([*first, self.program, *words], before, **options)
        assert (status, err) == (0, said) and SERVED.search(out), f"{words} {options}: {status} {out[-300:]} {err[-500:]}"

    # --- limits of resources -----------------------------------------------------------------------------------------------

    def limited(self, name, most, *words, early=True):
        """The limit is set once the program runs, and before it begins."""
        number = getattr(resource, f"RLIMIT_{name}", None)
        for options in MODES:
            self.serve("limit", name, most, *words, **options)
            if early and number is not None:
                self.serve(*words, before=lambda: resource.setrlimit(number, (most, most)), **options)

    def rlimit_as(self):
        """RLIMIT_AS of 256 MiB"""
        self.limited("AS", 256 * MIB, "most", 300000, "work")

    def rlimit_data(self):
        """RLIMIT_DATA of 256 MiB"""
        self.limited("DATA", 256 * MIB, "most", 300000, "work")

    def rlimit_stack(self):
        """RLIMIT_STACK of 128 KiB"""
        self.limited("STACK", 128 << 10, "work")

    def rlimit_memlock(self):
        """RLIMIT_MEMLOCK of 0"""
        self.limited("MEMLOCK", 0, "work")

    def rlimit_nofile(self):
        """RLIMIT_NOFILE of 3: no file can be opened"""
        self.limited("NOFILE", 3, "work", early=False)   # the loader needs one
        status, _, err = self.run([self.program, "limit", "NOFILE", 3, "again"])
        assert status == -6 and "hakmem: free(): double free of" in err, f"{status} {err}"

    def rlimit_nproc(self):
        """RLIMIT_NPROC of 0 for another user than root: no thread and no process can be made"""
        def lower():
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
        if not self.folder.parent.stat().st_mode & 1:
            raise Skipped("another user cannot read the program")
        for options in MODES:
            self.serve("alone", before=lower, **options)

    def rlimit_fsize(self):
        """RLIMIT_FSIZE of 0: no file can be written"""
        self.limited("FSIZE", 0, "work")
        status, out, err = self.run([self.program, "work"], lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
                                    HAKMEM_BLACKBOX=str(self.folder))
        assert status == 0 and SERVED.search(out) and re.fullmatch(r"hakmem: option blackbox: .* cannot be written .*\n", err), err

    def rlimit_cpu(self):
        """RLIMIT_CPU of 20 s"""
        self.limited("CPU", 20, "work")

    def rlimit_rest(self):
        """RLIMIT_CORE, LOCKS, MSGQUEUE, NICE, RSS, RTPRIO and SIGPENDING of 0, RTTIME of 1 ms"""
        for name in ("CORE", "LOCKS", "MSGQUEUE", "NICE", "RSS", "RTPRIO", "SIGPENDING"):
            self.serve("limit", name, 0, "work", HAKMEM_BACKGROUND="1")
        self.serve("limit", "RTTIME", 1000, "work")

    # --- much of something -------------------------------------------------------------------------------------------------

    def mappings(self):
        """64,000 mappings of the program's own"""
        allowed = int(pathlib.Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
        if allowed < 65000:
            raise Skipped(f"the system allows {allowed}")
        for options in MODES:
            self.serve("mappings", 64000, "work", **options)

    def threads(self):
        """10,000 threads at once"""
        try:
            self.serve("threads", 10000)
        except AssertionError as failure:
            if "no thread" in str(failure):
                raise Skipped("the system allows fewer") from failure
            raise

    def terabyte(self):
        """1 TiB of huge blocks that are touched at their ends"""
        if pathlib.Path("/proc/sys/vm/overcommit_memory").read_text(encoding="ascii").strip() == "2":
            raise Skipped("the system promises no more memory than it has")
        self.serve("vast", 1024)
        self.serve("vast", 64, HAKMEM_HARDEN="1")

    def fixed_addresses(self):
        """Addresses that are not random (setarch -R)"""
        for options in MODES:
            self.serve("work", first=ADDRESSES_FIXED, **options)

    # --- control groups ----------------------------------------------------------------------------------------------------

    def grouped(self, version):
        there = 2 if (GROUPS / "cgroup.controllers").exists() else 1
        if there != version:
            raise Skipped(f"memory is in groups of version {there}")
        with memory_group(16 * MIB) as group:
            if group is None:
                raise Skipped("no memory control group can be made")
            for words in (("alone",), ("work",)):
                self.serve("most", 20000, *words, before=group.enter)
            assert group.kills == 0, f"{group.kills} killed"

    def group_1(self):
        """A control group of version 1 with 16 MiB"""
        self.grouped(1)

    def group_2(self):
        """A control group of version 2 with 16 MiB"""
        self.grouped(2)

    # --- huge pages --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def setting(self, name, value):
        file = HUGE_PAGES / name
        if os.environ.get("HAK_PLACES_SYSTEM", "0") in ("", "0"):
            raise Skipped("HAK_PLACES_SYSTEM=1 is not set")
        try:
            before = re.search(r"\[(.*)\]", file.read_text(encoding="ascii")).group(1)
            file.write_text(value, encoding="ascii")
        except OSError as failure:
            raise Skipped(str(failure)) from failure
        try:
            yield
        finally:
            file.write_text(before, encoding="ascii")

    def huge_pages(self):
        """transparent_hugepage/enabled: always, madvise, never"""
        for value in ("always", "madvise", "never"):
            with self.setting("enabled", value):
                for options in ({}, {"HAKMEM_HARDEN": "1"}, {"HAKMEM_THP": "always"}, {"HAKMEM_THP": "never"}):
                    self.serve("work", **options)

    def huge_pages_defrag(self):
        """transparent_hugepage/defrag: always, defer, defer+madvise, never"""
        for value in ("always", "defer", "defer+madvise", "never"):
            with self.setting("defrag", value):
                self.serve("work", HAKMEM_THP="always")

    def huge_pages_shared(self):
        """transparent_hugepage/shmem_enabled: always, within_size, advise, force, with a heap in shared memory"""
        shared = pathlib.Path(os.environ.get("HAK_TEST_OUT", ".")) / "tests/override/test_regions_preload"
        if not shared.exists():
            raise Skipped("tests/override is not built")
        for value in ("always", "within_size", "advise", "force"):
            with self.setting("shmem_enabled", value):
                status, out, err = self.run([shared])
                assert status == 0, f"{value}: {status} {out[-300:]} {err[-300:]}"

    # --- tools ---------------------------------------------------------------------------------------------------------------

    @staticmethod
    def tool(name):
        found = shutil.which(name)
        if found is None:
            raise Skipped(f"{name} is not installed")
        return found

    def perf(self):
        """perf record: the library's functions by name"""
        perf, data = self.tool("perf"), self.folder / "perf.data"
        status, _, err = self.run([perf, "record", "-q", "-e", "cpu-clock", "-F", "5000", "-g", "-o", data, self.program, "work"])
        if status != 0 and ("ermission" in err or "not supported" in err):
            raise Skipped(err.strip().splitlines()[0])
        assert status == 0, f"{status} {err}"
        seen = self.run([perf, "script", "-i", data, "-F", "ip,sym,dso"], LD_PRELOAD="")[1]
        assert re.search(r"\bhak\S* .*libhakmem", seen), seen[:500]

    def gdb(self):
        """gdb: breakpoints in malloc and in the program, stacks"""
        done = self.run([self.tool("gdb"), "-q", "-batch", "-nx", "-ex", f"set environment LD_PRELOAD {LIBRARY}", "-ex", "break work",
                         "-ex", "run", "-ex", "break malloc", "-ex", "continue", "-ex", "bt", "-ex", "delete", "-ex", "continue",
                         "--args", self.program, "alone"], LD_PRELOAD="")[1]
        assert SERVED.search(done) and re.search(r"^#0 .* in \S+ .*libhakmem.*^#\d+ .*\bstep\b", done, re.M | re.S), done[-1500:]

    def valgrind(self):
        """valgrind: none; memcheck with HAKMEM and, as is usual, with its own malloc"""
        program, memcheck = ["most", "100000", "alone"], ["--tool=memcheck", "--error-exitcode=9"]
        valgrind = self.tool("valgrind")
        for words in (["--tool=none"], [*memcheck, "--soname-synonyms=somalloc=nouserintercepts"]):
            self.serve(*program, first=[valgrind, "-q", *words])
        status, out, err = self.run([valgrind, "-q", *memcheck, self.program, *program])
        assert (status, out, err) == (0, "done heaps=0\n", ""), f"{status} {out} {err}"

    def rr(self):
        """rr: record and replay"""
        rr = self.tool("rr")
        status, out, err = self.run([rr, "record", "-n", "-o", self.folder / "trace", self.program, "work"])
        if status != 0:
            raise Skipped("rr: " + (err.strip().splitlines() or ["no performance counters"])[0].rpartition("] ")[2])
        assert SERVED.search(out), out
        status, out, err = self.run([rr, "replay", "-a", self.folder / "trace"], LD_PRELOAD="")
        assert status == 0 and SERVED.search(out), f"{status} {out} {err}"

    # --- checkpoints ---------------------------------------------------------------------------------------------------------

    def restored(self, criu, **options):
        """A program with threads that forks is written to files, ends, comes back, and goes on."""
        images, end, out = self.folder / "images", self.folder / "end", self.folder / "restored.txt"
        shutil.rmtree(images, ignore_errors=True)
        images.mkdir()
        end.unlink(missing_ok=True)
        with open(out, "wb") as file:
            process = subprocess.Popen([self.program, "until", end], env={"LD_PRELOAD": LIBRARY, **options}, stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=file, start_new_session=True)
        for _ in range(50):   # until no child is just ending
            time.sleep(0.5)
            status, _, err = self.run([criu, "dump", "-t", process.pid, "-D", images], LD_PRELOAD="")
            if status == 0 or "Zombies" not in err:
                break
        if status != 0:
            process.kill()
        process.wait(SECONDS)
        assert status == 0, f"dump: {err[-500:]}"
        for _ in range(50):   # until the numbers of its children are free too
            status, _, err = self.run([criu, "restore", "-d", "-D", images], LD_PRELOAD="")
            if status == 0 or "File exists" not in err:
                break
            time.sleep(0.1)
        assert status == 0, f"restore: {err[-500:]}"
        time.sleep(0.5)
        end.touch()
        for _ in range(300):
            if "done" in out.read_text(encoding="utf-8") or not pathlib.Path(f"/proc/{process.pid}").exists():
                break
            time.sleep(0.1)
        said = out.read_text(encoding="utf-8")
        assert SERVED.fullmatch(said.strip()), f"{options}: {said}"

    def criu(self):
        """CRIU: a program with threads and children goes on after checkpoint and restore"""
        criu = os.environ.get("HAK_TEST_CRIU") or self.tool("criu")
        if os.geteuid() != 0:
            raise Skipped("needs root")
        status, out, err = self.run([criu, "check"], LD_PRELOAD="")
        if status != 0:
            raise Skipped(f"{self.version(criu)} does not work with this kernel: {(out + err).strip().splitlines()[-1]}")
        for options in ({}, {"HAKMEM_BACKGROUND": "1"}, {"HAKMEM_HARDEN": "1"}, {"HAKMEM_SAMPLE_GUARDS": "100"}):
            self.restored(criu, **options)
        return self.version(criu)

    def version(self, criu):
        return "criu " + self.run([criu, "--version"], LD_PRELOAD="")[1].split()[1]

    # --- sanitizers ----------------------------------------------------------------------------------------------------------

    def sanitized(self, compiler, name):
        """The command of a program that makes mistakes if it is told to."""
        key = compiler, name
        if key not in self.commands:
            self.commands[key] = self.build_sanitized(compiler, name)
        return self.commands[key]

    def build_sanitized(self, compiler, name):
        if shutil.which(compiler) is None:
            raise Skipped(f"{compiler} is not installed")
        program = self.build(f"{compiler}_{name}", HERE / "sanitized_user.c", f"-fsanitize={name}", compiler=compiler)
        if program is None:
            raise Skipped(f"{compiler} has no -fsanitize={name}")
        # Random addresses may lie where the runtime has its own memory.
        command = [*(ADDRESSES_FIXED if self.run([*ADDRESSES_FIXED, "true"], LD_PRELOAD="")[0] == 0 else ()), program]
        if self.run([*command, "work"], LD_PRELOAD="")[0] != 0:
            raise Skipped(f"{compiler}'s -fsanitize={name} does not work here by itself")
        return command

    def stands_aside(self, compiler, name, **options):
        """The runtime's malloc serves, and one line says so."""
        status, out, err = self.run([*self.sanitized(compiler, name), "work"], **options)
        assert (status, out, err) == (0, "done\n", ASIDE), f"{status} {out} {err[-500:]}"

    def finds(self, compiler, name, mistake, what, said=ASIDE, **options):
        status, _, err = self.run([*self.sanitized(compiler, name), mistake], **options)
        assert status != 0 and what in err and err.startswith(said), f"{mistake}: {status} {err[-1000:]}"

    def gcc_address(self):
        """gcc's AddressSanitizer, with ASAN_OPTIONS=verify_asan_link_order=0: its malloc serves, and it finds mistakes"""
        options = {"ASAN_OPTIONS": "verify_asan_link_order=0"}
        self.stands_aside("gcc", "address", **options)
        self.finds("gcc", "address", "behind", "heap-buffer-overflow", **options)
        self.finds("gcc", "address", "after", "heap-use-after-free", **options)
        self.finds("gcc", "address", "leak", "LeakSanitizer: detected memory leaks", **options)

    def gcc_address_alone(self):
        """gcc's AddressSanitizer, as it is: ends the program with one line about LD_PRELOAD"""
        status, _, err = self.run([*self.sanitized("gcc", "address"), "work"])
        assert status != 0 and err.count("\n") == 1 and "ASan runtime does not come first" in err, f"{status} {err}"

    def gcc_thread(self):
        """gcc's ThreadSanitizer: its malloc serves, and it finds races"""
        self.stands_aside("gcc", "thread")
        self.finds("gcc", "thread", "race", "ThreadSanitizer: data race")

    def gcc_leak(self):
        """gcc's LeakSanitizer: its malloc serves, and it finds leaks"""
        self.stands_aside("gcc", "leak")
        self.finds("gcc", "leak", "leak", "LeakSanitizer: detected memory leaks")

    def gcc_undefined(self):
        """gcc's UndefinedBehaviorSanitizer, which has no malloc: HAKMEM serves"""
        status, out, err = self.run([*self.sanitized("gcc", "undefined"), "work"])
        assert (status, out, err) == (0, "done\n", ""), f"{status} {out} {err}"

    def clang_memory(self):
        """clang's MemorySanitizer: its malloc serves, and it finds uninitialised memory"""
        self.stands_aside("clang", "memory")
        self.finds("clang", "memory", "unset", "use-of-uninitialized-value")

    def clang_rest(self):
        """clang's AddressSanitizer and ThreadSanitizer, which define the program's malloc"""
        for name, mistake, what in (("address", "behind", "heap-buffer-overflow"), ("thread", "race", "data race")):
            status, out, err = self.run([*self.sanitized("clang", name), "work"])
            assert (status, out, err) == (0, "done\n", ""), f"{name}: {status} {out} {err[-500:]}"
            self.finds("clang", name, mistake, what, said="=")


PLACES = ("rlimit_as", "rlimit_data", "rlimit_stack", "rlimit_memlock", "rlimit_nofile", "rlimit_nproc", "rlimit_fsize", "rlimit_cpu",
          "rlimit_rest", "mappings", "threads", "terabyte", "fixed_addresses", "group_1", "group_2", "huge_pages", "huge_pages_defrag",
          "huge_pages_shared", "perf", "gdb", "valgrind", "rr", "criu", "gcc_address", "gcc_address_alone", "gcc_thread", "gcc_leak",
          "gcc_undefined", "clang_memory", "clang_rest")


def result(place):
    """What comes of a place: passed, failed, or why it cannot be had."""
    try:
        remark = place()
    except Skipped as why:
        return f"not run: {why}"
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        print(failure, flush=True)
        return "failed"
    return f"passed ({remark})" if remark else "passed"


def main():
    wanted = sys.argv[1:] or ["*"]
    rows = []
    with tempfile.TemporaryDirectory(prefix="hakmem-places-") as folder:
        os.chmod(folder, 0o755)
        places = Places(pathlib.Path(folder))
        assert places.program is not None, "places_user.c does not build"
        for name in PLACES:
            if any(fnmatch.fnmatch(name, pattern) for pattern in wanted):
                began = time.monotonic()
                rows.append((getattr(places, name).__doc__, result(getattr(places, name))))
                print(f"{name}: {rows[-1][1]} ({time.monotonic() - began:.1f} s)", flush=True)
    if os.environ.get("HAK_PLACES_NOTE", "0") not in ("", "0"):
        KEPT.write_text("# Written by tests/golden/test_places.py: place, result\n" + "".join(f"{what}\t{came}\n" for what, came in rows),
                        encoding="utf-8")
    failed = sum(came == "failed" for _, came in rows)
    print(f"passed={sum(came.startswith('passed') for _, came in rows)} failed={failed} elsewhere={sum('not run' in came for _, came in rows)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
