"""What the program tests share: running a program on HAKMEM and proving that HAKMEM served it.

A test runs one workload on the system's malloc and then on HAKMEM, in two or three of its modes, and
expects the same result each time:

    statistics   HAKMEM_STATS=1: the mode of every user, blocks counted where batches move
    exact        HAKMEM_STATS=exact: every call goes the slow way and is counted
    hardened     HAKMEM_HARDEN=1, with --hardened

Two things prove that HAKMEM served a program. Its own statistics, printed by each process at exit,
must count at least as many blocks (or calls) as the workload is known to need. And the dynamic
linker, asked by LD_DEBUG=bindings, must have bound every reference to malloc's family to the library.

A test is started as `test_NAME.py LIBRARY [ARGUMENT...] [--hardened] [--peer]`. With --peer the library is another allocator,
which prints no statistics: this tells a fault of HAKMEM from a fault of every replaced malloc.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77  # the exit code that ctest takes for "skipped"

TOTAL_LINE = re.compile(r"total refilled=(\d+) drained=(\d+) misses=(\d+) live=(\d+) peak_bytes=(\d+)")
CALLS_LINE = re.compile(r"calls malloc=(\d+) free=(\d+)")
REPORT_LINE = re.compile(r"hakmem: (?:[\w ]+(?:\[\])?\(\)|option |assertion ).*")  # not a line of the table
BINDING_LINE = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\w+)'")

FAMILY = {
    "malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign", "memalign",
    "malloc_usable_size", "_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm",
}


class Failure(Exception):
    """A test found something wrong."""


class Hang(Failure):
    """A program, or one that it has left behind, doesn't end."""


class Skip(Exception):
    """A test can't run here."""


def check(condition, message):
    if not condition:
        raise Failure(message)


def need(program, package):
    """Give the path of a program, or skip and say which package has it."""
    path = shutil.which(program)
    if path is None:
        raise Skip(f"{program} is missing: install {package}")
    return path


def served_processes(shared_object):
    """What each thread of the processes with this library waits for."""
    lines = []
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(shared_object) in maps.read_text():
                lines.append((maps.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                lines += [f"  {task.name}: {(task / 'wchan').read_text()}, call {(task / 'syscall').read_text().strip()}"
                          for task in (maps.parent / "task").iterdir()]
    return "\n".join(lines)


def tail(text, lines=30):
    return "\n".join(text.splitlines()[-lines:])


class Allocator:
    """One way to run programs: on the system's malloc, or on the library in one mode.

    It adds up the statistics of all processes that it ran, for `require`.
    """

    def __init__(self, name, shared_object=None, statistics=None, **options):
        self.name = name
        self.shared_object = shared_object
        self.statistics = statistics
        self.options = options
        self.refilled = 0
        self.calls = 0
        self.processes = 0
        self.lock = threading.Lock()

    def environment(self, extra=None):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("LD_PRELOAD", "HAKMEM_"))}
        if self.shared_object:
            environment["LD_PRELOAD"] = str(self.shared_object)
        if self.statistics:
            environment["HAKMEM_STATS"] = self.statistics
        return {**environment, **self.options, **(extra or {})}

    def run(self, command, cwd=None, extra=None, input=None, expect=0, limit_s=None):
        """Run a program to its end, take up its statistics and return its standard output.

        What takes longer than `limit_s` hangs, and the failure says where.
        """
        try:
            done = subprocess.run(
                [str(word) for word in command], cwd=cwd, env=self.environment(extra), input=input,
                stdin=subprocess.DEVNULL if input is None else None,
                capture_output=True, text=True, errors="replace", check=False, timeout=limit_s)
        except subprocess.TimeoutExpired as late:
            raise Hang(f"{command[0]} on {self.name} or a process of its own hangs; still there:\n"
                       f"{served_processes(self.shared_object)}\n{late.stdout!r}\n{late.stderr!r}") from late
        self.take_statistics(done.stderr)
        check(done.returncode == expect,
              f"{command[0]} on {self.name} ended with {done.returncode} instead of {expect}:\n"
              f"{tail(done.stdout)}\n{tail(done.stderr)}")
        return done.stdout

    def take_statistics(self, stderr):
        """Add up what the processes behind this text printed; a report of misuse fails the test."""
        report = REPORT_LINE.search(stderr)
        check(report is None, f"{self.name}: the library reports {report and report.group()}")
        with self.lock:
            for totals in TOTAL_LINE.finditer(stderr):
                self.processes += 1
                self.refilled += int(totals.group(1))
            for calls in CALLS_LINE.finditer(stderr):
                self.calls += int(calls.group(1))

    def require(self, at_least_refilled, at_least_calls):
        """Check that the processes since the last time got at least so many blocks, by their own count."""
        if not self.statistics:
            return
        processes, refilled, calls = self.processes, self.refilled, self.calls
        self.processes = self.refilled = self.calls = 0
        print(f"  {self.name}: {processes} processes printed statistics,"
              f" {refilled} blocks refilled, {calls or 'uncounted'} calls of malloc", flush=True)
        check(processes > 0, f"no process printed HAKMEM's statistics on {self.name}")
        check(refilled >= at_least_refilled, f"{refilled} blocks refilled, expected {at_least_refilled}")
        if self.statistics == "exact":
            check(calls >= at_least_calls, f"{calls} calls of malloc, expected {at_least_calls}")


class Setup:
    """What a test gets: the library, further arguments, ways to run programs, a directory of its own."""

    def __init__(self, shared_object, options, directory):
        self.shared_object = shared_object
        self.arguments = options.arguments
        self.directory = directory
        self.system = Allocator("the system's malloc")
        if options.peer:
            self.replaced = [Allocator(shared_object.name, shared_object)]
        else:
            self.replaced = [Allocator("HAKMEM, statistics", shared_object, "1"),
                             Allocator("HAKMEM, exact", shared_object, "exact")]
        if options.hardened:
            self.replaced.append(Allocator("HAKMEM, hardened", shared_object, "1", HAKMEM_HARDEN="1"))

    def compare(self, workload, refilled, calls):
        """Run `workload(allocator, directory)` on every allocator and expect equal results.

        `refilled` blocks and `calls` of malloc are the least that HAKMEM must have counted.
        """
        expected = self._timed(workload, self.system)
        for allocator in self.replaced:
            result = self._timed(workload, allocator)
            check(result == expected,
                  f"the result differs:\non {self.system.name}: {str(expected)[:2000]}\n"
                  f"on {allocator.name}: {str(result)[:2000]}")
            allocator.require(refilled, calls)

    def _timed(self, workload, allocator):
        directory = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        start = time.monotonic()
        result = workload(allocator, directory)
        print(f"  {allocator.name}: {time.monotonic() - start:.1f} s", flush=True)
        return result

    def require_bindings(self, command, programs=(), extra=None, input=None):
        """Check that the dynamic linker binds malloc's family to the library in these programs.

        The command is run with every symbol bound at start. Every executable in `programs` must
        be among its processes and bind malloc or operator new itself; without them it is enough
        that some library of the process does.
        """
        traces = pathlib.Path(tempfile.mkdtemp(dir=self.directory)) / "bindings"
        debug = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(traces), "LD_BIND_NOW": "1"}
        Allocator("the library", self.shared_object).run(
            command, cwd=self.directory, extra={**debug, **(extra or {})}, input=input)
        bound = set()
        for trace in traces.parent.iterdir():
            bound |= self._check_trace(trace.read_text(errors="replace"))
        check(bound, f"nothing in {command[0]} binds malloc")
        missing = set(programs) - bound
        check(not missing, f"{', '.join(missing)}: doesn't bind malloc to {self.shared_object.name}")
        print(f"  malloc is bound to {self.shared_object.name} in {', '.join(sorted(bound))}", flush=True)

    def _check_trace(self, trace):
        """Check one process's bindings; return the names of the files that bind malloc or new.

        An executable that isn't position-independent lends its own PLT entry as the function's
        address to others; such a target is right if it binds the symbol to the library itself.
        """
        bindings = [(pathlib.Path(binder).name, pathlib.Path(target).name, symbol)
                    for binder, target, symbol in BINDING_LINE.findall(trace) if symbol in FAMILY]
        direct = {(binder, symbol) for binder, target, symbol in bindings if target == self.shared_object.name}
        for binder, target, symbol in bindings:
            good = self.shared_object.name in (target, binder) or (target, symbol) in direct
            check(good, f"{binder} binds {symbol} to {target}")
        return {binder for binder, symbol in direct if symbol in ("malloc", "_Znwm")} - {self.shared_object.name}


def main(test):
    """Run `test(setup)` and turn its outcome into an exit code."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_object", metavar="LIBRARY", type=pathlib.Path, help="the allocator to preload")
    parser.add_argument("arguments", nargs="*", help="what this test needs besides; see its CMakeLists.txt")
    parser.add_argument("--hardened", action="store_true", help="run on HAKMEM in hardened mode too")
    parser.add_argument("--peer", action="store_true", help="the library is another allocator, without statistics")
    options = parser.parse_intermixed_args()
    try:
        shared_object = options.shared_object.resolve(strict=True)
        directory = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-"))
        try:
            test(Setup(shared_object, options, directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)   # a process that was killed may still write
    except Skip as skip:
        print(f"SKIPPED: {skip}")
        sys.exit(SKIPPED)
    except (Failure, OSError) as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
    print("passed")
