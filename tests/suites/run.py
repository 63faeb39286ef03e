#!/usr/bin/env python3
"""Real programs' own test suites: every case must end on HAKMEM as it ends on the system's malloc.

    run.py LIBRARY SUITE [--quick] [--work FOLDER] [--only PART]... [--prepare] [--jobs N]

Each part of the suite runs on both. A case that differs is run again, its part on both, up to twice: tests that time
out on a busy machine or pass by chance differ from themselves. What has differed every time, always in the same way, is
a finding; what has not is counted as unsteady. The last line is

    suite=NAME parts=N cases=N passed=N skipped=N failed=N different=N unsteady=N

(passed, skipped and failed are those on the system's malloc; a test may fail for want of something on this machine, and
must then fail on HAKMEM too). Exit status 0: nothing is different and something passed; 1: otherwise; 77: the suite
can't run here.
HAK_SUITE_SECONDS bounds the whole: parts that have not begun by then are left out and counted as left=N.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

from outcome import Skip
from sources import Archive
from suites import SUITES

SKIPPED = 77
AGAIN = 2  # times that a part which differs is run again
TOTAL_LINE = re.compile(r"total refilled=(\d+)")


def environment(library, extra):
    kept = {key: value for key, value in os.environ.items()
            if key not in ("LD_PRELOAD", "LC_ALL", "LANG") and not key.startswith(("HAKMEM_", "HAK_"))}
    kept["LC_ALL"] = "C.UTF-8"
    if library is not None:
        kept["LD_PRELOAD"] = str(library)
    return {**kept, **extra}


def run_process(argv, cwd, env, limit):
    """Run to the end or the limit, in a session that ends with it; what it printed."""
    process = subprocess.Popen([str(word) for word in argv], cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    try:
        text, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        end_session(process.pid)
        text, _ = process.communicate()
        return text + "\nend: timed out", True
    finally:
        end_session(process.pid)
    return text, False


def end_session(leader):
    """What a test has left running in its own process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Lanes:
    """Numbers of what runs at the same time: ports and the like differ by them."""

    def __init__(self, count):
        self.free = list(range(count))
        self.lock = threading.Lock()

    def take(self):
        with self.lock:
            return self.free.pop()

    def give(self, lane):
        with self.lock:
            self.free.append(lane)


class Runner:
    def __init__(self, suite, shared_object, work, jobs):
        self.suite, self.shared_object, self.work = suite, shared_object, work
        self.lanes = Lanes(jobs)
        self.serial = 0
        self.lock = threading.Lock()

    def once(self, part, library):
        """The outcomes of a part; its folder is removed."""
        with self.lock:
            self.serial += 1
            directory = self.work / "run" / f"{self.serial}-{os.getpid()}"
        directory.mkdir(parents=True)
        lane = self.lanes.take()
        try:
            argv, cwd, extra = self.suite.command(part, directory, lane)
            text, late = run_process(argv, cwd, environment(library, extra), self.suite.limit)
            cases = self.suite.read(part, text, directory)
            if late:
                cases.add("time", "failed")
            if not cases:
                cases.add(f"nothing was reported: {text[-300:]!r}", "failed")
            return cases, text
        finally:
            self.lanes.give(lane)
            shutil.rmtree(directory, ignore_errors=True)

    def compare(self, part):
        """Run a part on both, again where they differ: outcomes, {case: (system's, HAKMEM's)}, unsteady cases."""
        expected, _ = self.once(part, None)
        result, text = self.once(part, self.shared_object)
        different = differences(expected, result)
        unsteady = set()
        for _ in range(AGAIN):
            if not different:
                break
            again, _ = self.once(part, None)
            second, text = self.once(part, self.shared_object)
            now = differences(again, second)
            unsteady |= {case for case in different if now.get(case) != different[case]}
            different = {case: pair for case, pair in different.items() if now.get(case) == pair}
        return expected, different, unsteady, text


def differences(expected, result):
    return {case: (expected.get(case, "missing"), result.get(case, "missing"))
            for case in {**expected, **result} if expected.get(case) != result.get(case)}


def prove_served(suite, library):
    """The program's own process prints the library's statistics."""
    done = subprocess.run([str(word) for word in suite.witness], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False, timeout=300,
                          env=environment(library, {"HAKMEM_STATS": "1"}), cwd=os.environ.get("TMPDIR", "/tmp"))
    totals = [int(found) for found in TOTAL_LINE.findall(done.stderr)]
    if not totals or max(totals) == 0:
        raise SystemExit(f"FAILED: {suite.witness[0]} is not served by {library.name}:\n{done.stderr[-2000:]}")


def run_suite(suite, options, library):
    runner = Runner(suite, library, options.work / suite.name, options.jobs)
    parts = options.only or suite.parts(options.quick)
    if not parts:
        raise Skip("the suite has no parts here")
    end = time.monotonic() + float(os.environ.get("HAK_SUITE_SECONDS") or 1e9)
    counts, bad, unsteady, left, cases = collections.Counter(), {}, [], 0, 0

    def compare(part):
        return runner.compare(part) if time.monotonic() < end else None

    with concurrent.futures.ThreadPoolExecutor(options.jobs if suite.at_once else 1) as pool:
        for number, (part, found) in enumerate(zip(parts, pool.map(compare, parts)), 1):
            if found is None:
                left += 1
                continue
            expected, different, flaky, text = found
            cases += len(expected)
            counts.update(expected.values())
            unsteady += [f"{part}: {case}" for case in sorted(flaky)]
            print(f"  {number}/{len(parts)} {part}: {len(expected)} cases"
                  + (f", {len(different)} DIFFERENT" if different else ""), flush=True)
            if different:
                bad[part] = different
                (options.work / f"different-{suite.name}-{part.replace('/', '-')}.log").write_text(text)
    for part, different in bad.items():
        for case, (system, ours) in sorted(different.items()):
            print(f"DIFFERENT {part}: {case}: {system} on the system's malloc, {ours} on HAKMEM")
    for line in unsteady:
        print(f"unsteady {line}")
    total = sum(len(different) for different in bad.values())
    print(f"suite={suite.name} parts={len(parts) - left} cases={cases} passed={counts['passed']}"
          f" skipped={counts['skipped']} failed={counts['failed']} different={total} unsteady={len(unsteady)}"
          + (f" left={left}" if left else ""))
    return 1 if total or counts["passed"] == 0 else 0   # a suite of which nothing passes shows nothing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_object", metavar="LIBRARY", type=pathlib.Path)
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--quick", action="store_true", help="a few parts")
    parser.add_argument("--prepare", action="store_true", help="fetch and build what the suite needs, and end")
    parser.add_argument("--only", action="append", help="this part (repeatable)")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("out/suites"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    suite = SUITES[options.suite]()
    try:
        library = options.shared_object.resolve(strict=True)
        suite.prepare(Archive(options.work))
        if options.prepare:
            return 0
        prove_served(suite, library)
        return run_suite(suite, options, library)
    except Skip as skip:
        print(f"SKIPPED: {skip}")
        return SKIPPED
    except FileNotFoundError as error:
        print(f"FAILED: {error}")
        return 1
    finally:
        shutil.rmtree(options.work / suite.name / "run", ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
