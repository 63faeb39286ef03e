#!/usr/bin/env python3
"""A real program on HAKMEM: the same work and the same output as on the system's malloc, and proof that HAKMEM served it.

    run.py LIBRARY PROGRAM [--seconds S] [--anyway]
    run.py --list | --missing

The program works on the system's malloc first, then on HAKMEM for S seconds (default: once, or 3 seconds of a server's
load). Each time the results must be equal, no report of the library may appear, and the processes that matter must have
been given as many blocks as the description says, by the library's own counters. The last line is

    program=NAME runs=N served=N blocks=N seconds=S

with the processes that were served and their blocks. Exit status 0, 1, or 77 where the program can't run here.
--list prints the programs, --missing the Debian packages that are missing for them.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time

from catalogue import PROGRAMS
from live import Reader
from running import Failure, Run, Skip, adopt_orphans, check, find, need
from served import Watcher, end_descendants
from support import SKIPPED

SHORT = 2   # seconds of a load on the system's malloc, and of one that nobody asked to be long


class Session:
    """The runs of one program."""

    def __init__(self, program, library, directory):
        self.program, self.shared_object, self.directory = program, library, directory
        self.reader = Reader(library, shutil.copy(library, directory / "copy.so"))
        self.prepared = self._folder()
        program.prepare(self.prepared)
        self.runs = self.served = self.blocks = 0

    def on_system(self):
        return self._bounded(Run(self._folder(), SHORT, self.prepared))

    def on_hakmem(self, seconds):
        """One run; its result, when its processes are proved to have been served."""
        folder = self._folder()
        statistics = folder / "statistics"
        statistics.mkdir()
        statistics.chmod(0o1777)
        watcher = Watcher(self.reader, statistics, [name for serving in self.program.serving for name in serving.name.split("|")])
        watcher.start()
        try:
            result = self._bounded(Run(folder, seconds, self.prepared, self.shared_object, statistics, watcher))
        finally:
            processes = watcher.stop()
        self.runs += 1
        self._prove(processes)
        shutil.rmtree(folder, ignore_errors=True)
        return result

    def _folder(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.directory))
        folder.chmod(0o755)
        return folder

    def _prove(self, processes):
        for serving in self.program.serving:
            lacking = serving.lacking(processes)
            check(lacking is None, lacking)
            self.served += len(serving.of(processes))
            self.blocks += sum(serving.of(processes))

    def _bounded(self, run):
        """The work, in its time; whatever it has started is ended."""
        signal.alarm(int(self.program.limit + run.seconds))
        try:
            result = self.program.load(run)
            run.check_logs()
            return result
        finally:
            signal.alarm(0)
            end_descendants()
            run.close()


def compare(session, seconds):
    """Run on both until the time has passed."""
    start = time.monotonic()
    expected = session.on_system()
    print(f"  on the system's malloc: {time.monotonic() - start:.1f} s", flush=True)
    end = time.monotonic() + seconds
    while session.runs == 0 or (not session.program.lasting and time.monotonic() < end):
        begun = time.monotonic()
        result = session.on_hakmem(max(seconds, SHORT))
        check(result == expected, first_difference(expected, result))
        print(f"  on HAKMEM: {time.monotonic() - begun:.1f} s", flush=True)
    print(f"program={session.program.name} runs={session.runs} served={session.served} blocks={session.blocks}"
          f" seconds={time.monotonic() - start:.0f}")


def lines_of(result):
    """A result of texts in lists and the like as lines."""
    if isinstance(result, dict):
        return [line for pair in sorted(result.items()) for line in lines_of(pair)]
    if isinstance(result, (list, tuple)):
        return [line for part in result for line in lines_of(part)]
    return str(result).split("\n")


def first_difference(expected, result):
    """Where two results part, with some lines before."""
    system, ours = lines_of(expected), lines_of(result)
    place = next((i for i, pair in enumerate(zip(system, ours)) if pair[0] != pair[1]), min(len(system), len(ours)))
    shown = ["\n".join(line[:500] for line in lines[max(0, place - 2):place + 3]) for lines in (system, ours)]
    return f"the result differs in line {place + 1}:\non the system's malloc:\n{shown[0]}\non HAKMEM:\n{shown[1]}"


def shared_copy(library, directory):
    """A copy of the library that every user may read, wherever it was built."""
    directory.chmod(0o755)
    return pathlib.Path(shutil.copy(library, directory / "libhakmem.so"))


def run_program(program, library, seconds, anyway):
    if program.refuses and not anyway:
        raise Skip(program.refuses)
    for name, package in program.packages.items():
        need(name, package)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="hakmem-"))
    try:
        compare(Session(program, shared_copy(library, directory), directory), seconds)
    finally:
        end_descendants()
        shutil.rmtree(directory, ignore_errors=True)


def missing_packages():
    return sorted({package for program in PROGRAMS.values() for name, package in program.packages.items()
                   if find(name) is None})


def stopped(number, _):
    raise Failure("it takes too long" if number == signal.SIGALRM else f"ended by signal {number}")


def listen_to_signals():
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stopped)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_object", metavar="LIBRARY", type=pathlib.Path, nargs="?")
    parser.add_argument("program", metavar="PROGRAM", choices=sorted(PROGRAMS), nargs="?")
    parser.add_argument("--seconds", type=float, default=0, help="how long it runs on HAKMEM")
    parser.add_argument("--anyway", action="store_true", help="also a program of which it is known that it refuses")
    parser.add_argument("--list", action="store_true", help="print the programs, and end")
    parser.add_argument("--missing", action="store_true", help="print the packages that are missing, and end")
    options = parser.parse_args()
    if not (options.list or options.missing or options.program):
        parser.error("give a library and a program, or --list")
    return options


def main():
    options = parse_arguments()
    if options.list:
        for name, program in PROGRAMS.items():
            print(f"{name:16} {program.__doc__.splitlines()[0]}")
        return 0
    if options.missing:
        print(*missing_packages())
        return 0
    listen_to_signals()
    os.umask(0o022)
    adopt_orphans()
    try:
        run_program(PROGRAMS[options.program](), options.shared_object.resolve(strict=True), options.seconds, options.anyway)
    except Skip as skip:
        print(f"SKIPPED: {skip}")
        return SKIPPED
    except (Failure, OSError) as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
