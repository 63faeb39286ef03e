"""Measures the programs of docs/recipes.md: each does a fixed work on the system's malloc and on HAKMEM, in rounds, in random order.

    ./dev bench --recipes [NAME...] [--rounds N] [--quick] [--publish]

Time is that of the whole work, its server's start and end included; processor time is that of all its processes, clients too.
Memory is the most that the processes of the program held together, by PSS of the kernel, looked at every 50 ms. The results must be
equal on both, and the program's processes must have the library. --quick does one round, which says nothing of time. --publish
writes the table of docs/recipes.md from the last measurement of each program, of ten rounds or more."""
import argparse
import contextlib
import json
import os
import pathlib
import platform
import random
import resource
import shutil
import sys
import tempfile
import threading
import time

import works  # since then the folder of the soak's programs is known
from program import Program
from running import Failure, Run, Skip, adopt_orphans, need
from served import end_descendants

ROOT, WORKS = works.ROOT, works.WORKS
RESULTS = ROOT / "out" / "recipes.jsonl"
PAGE = ROOT / "docs" / "recipes.md"
LEAST_ROUNDS = 10   # that are published
TITLES = {"processor time": "cpu", "time": "seconds", "peak memory": "bytes"}
INTERVAL = 0.05


class PlainRun(Run):
    """A run whose processes have the library and nothing else."""

    def environment(self, preload=True, extra=None):
        environment = super().environment(preload, extra)
        environment.pop("HAKMEM_STATS", None)
        return environment


class Memory(threading.Thread):
    """The most that all processes below this one which bear the program's name hold at once, and which of them have a library."""

    def __init__(self, names, library):
        super().__init__(daemon=True)
        self.names, self.shared_object, self.most, self.done = names, library, 0, threading.Event()
        self.loaded = {}   # {process: whether the library is in it}

    def run(self):
        while not self.done.wait(INTERVAL):
            self.most = max(self.most, sum(self.held(pid) for pid in descendants(os.getpid())))

    def held(self, pid):
        with contextlib.suppress(OSError, ValueError):
            name = pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            if any(pathlib.PurePath(name).match(pattern[:15]) for pattern in self.names):
                if self.shared_object and not self.loaded.get(pid):
                    self.loaded[pid] = str(self.shared_object) in pathlib.Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
                rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
                return next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
        return 0

    def stop(self):
        self.done.set()
        self.join()
        return self.most


def descendants(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text(encoding="utf-8").split():
                found += [int(child), *descendants(int(child))]
    return found


def processor_time():
    """Seconds of all processes that have ended; orphans are adopted, so none is missed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def names_of(program: Program):
    return [name for serving in program.serving for name in serving.name.split("|")]


def once(program, folder, prepared, library):
    """One run: its result, and what it took."""
    place = pathlib.Path(tempfile.mkdtemp(dir=folder))
    place.chmod(0o755)
    run, memory = PlainRun(place, 0, prepared, library), Memory(names_of(program), library)
    memory.start()
    begun, used = time.monotonic(), processor_time()
    try:
        result = program.load(run)
        seconds = time.monotonic() - begun
        run.check_logs()
    finally:
        held = memory.stop()
        end_descendants()
        run.close()
        shutil.rmtree(place, ignore_errors=True)
    if library and not any(memory.loaded.values()):
        raise Failure(f"{program.name} did not run on HAKMEM: none of {len(memory.loaded)} processes has the library")
    return result, {"seconds": seconds, "cpu": processor_time() - used, "bytes": held}


def measure(name, rounds, library):
    """All rounds of one program: the record of what they gave."""
    program = WORKS[name]()
    for each, package in program.packages.items():
        need(each, package)
    with tempfile.TemporaryDirectory(prefix="hakmem-") as work:
        folder = pathlib.Path(work)
        folder.chmod(0o755)
        ours = pathlib.Path(shutil.copy(library, folder / "libhakmem.so"))
        program.prepare(folder)
        expected = once(program, folder, folder, None)[0]
        runs = []
        for _ in range(rounds):
            sides = [("system", None), ("hakmem", ours)]
            random.shuffle(sides)
            runs.append({})
            for side, preloaded in sides:
                result, runs[-1][side] = once(program, folder, folder, preloaded)
                if result != expected:
                    raise Failure(f"{name} has another result on {side}")
    return {"name": name, "when": int(time.time()), "what": WORKS[name].__doc__.splitlines()[0], "rounds": runs,
            "machine": f"{platform.machine()}, {os.cpu_count()} processors, Linux {platform.release()}"}


def gain(record, what):
    """(HAKMEM's part of the system's in the geometric mean, its 95 % interval)."""
    import math

    import numpy
    from hakmem_lab.decide import statistics

    logs = numpy.log([each["hakmem"][what] / each["system"][what] for each in record["rounds"] if each["system"][what]])
    found = statistics.interval(logs)
    return [1 + part / 100 for part in (found.gain, found.low, found.high)] if len(logs) > 1 else [math.exp(logs[0]), 0.0, math.inf]


def row(record):
    cells = [record["name"], record["what"].split(": ", 1)[1].rstrip(".")]
    for what in TITLES.values():
        middle, low, high = gain(record, what)
        cells.append(f"{middle:.3f} ({low:.2f} to {high:.2f})".replace(" to ", "&nbsp;to&nbsp;"))
    return "| " + " | ".join(cells) + " |\n"


def publish():
    """Writes the page's table; an older measurement of a program gives way to its newest."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.is_file() else []
    newest = {record["name"]: record for record in map(json.loads, lines) if len(record["rounds"]) >= LEAST_ROUNDS}
    if not newest:
        sys.exit(f"no program was measured in {LEAST_ROUNDS} rounds; ./dev bench --recipes measures them")
    text = "| Program | Work | Processor time | Time | Peak memory |\n| --- | --- | --: | --: | --: |\n"
    text += "".join(row(newest[name]) for name in WORKS if name in newest)
    text += f"\n{min(len(each['rounds']) for each in newest.values())} rounds or more; {next(iter(newest.values()))['machine']}.\n"
    begin, end = "<!-- recipes:begin -->\n", "<!-- recipes:end -->\n"
    content = PAGE.read_text(encoding="utf-8")
    before, rest = content.split(begin)
    PAGE.write_text(before + begin + "\n" + text + "\n" + end + rest.split(end)[1], encoding="utf-8")


def parsed():
    parser = argparse.ArgumentParser(prog="./dev bench --recipes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(WORKS)}; all without it")
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--library", dest="shared_object", type=pathlib.Path, default=ROOT / "out" / "release" / "libhakmem.so")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in WORKS]
    if unknown or chosen.rounds < 1:
        parser.error(f"no program {unknown[0]}" if unknown else "one round at least")
    return chosen


def main():
    chosen = parsed()
    if chosen.list:
        print("\n".join(f"{name:14}{work.__doc__.splitlines()[0]}" for name, work in WORKS.items()))
        return 0
    if chosen.publish:
        publish()
        return 0
    os.umask(0o022)
    adopt_orphans()
    failed = 0
    for name in chosen.names or WORKS:
        try:
            record = measure(name, 1 if chosen.quick else chosen.rounds, chosen.shared_object.resolve(strict=True))
        except Skip as skip:
            print(f"{name}: skipped: {skip}", flush=True)
            continue
        except (Failure, OSError) as failure:
            print(f"{name}: FAILED: {failure}", flush=True)
            failed += 1
            continue
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{name}: " + ", ".join(f"{title} {gain(record, what)[0]:.3f}" for title, what in TITLES.items()) + " of the system's",
              flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
