#!/usr/bin/env python3
"""Runs the demo's programs on the system's malloc and on HAKMEM in turn, and prints what they took.

The programs are the same files both times; HAKMEM comes in by LD_PRELOAD alone. Their output must be
the same as well. Started by run.sh.
"""

import argparse
import dataclasses
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent


@dataclasses.dataclass
class Program:
    """One program to run, and the figures that its runs gave: name of allocator -> list of figures."""

    title: str
    command: list
    input: bytes = b""
    environment: dict = dataclasses.field(default_factory=dict)
    seconds: dict = dataclasses.field(default_factory=dict)
    megabytes: dict = dataclasses.field(default_factory=dict)


def programs(build):
    # Without PYTHONMALLOC=malloc Python would serve small objects by itself and hardly call malloc.
    return [
        Program("Python: JSON and objects", [sys.executable, HERE / "objects.py"],
                environment={"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}),
        Program("SQLite: 300,000 rows", ["sqlite3", "-batch", ":memory:"], (HERE / "rows.sql").read_bytes()),
        Program("C++: server with 5 threads", [build / "demo_server"]),
    ]


def environment(program, library, **options):
    kept = {key: value for key, value in os.environ.items()
            if key != "LD_PRELOAD" and not key.startswith("HAKMEM_")}
    preload = {"LD_PRELOAD": str(library)} if library else {}
    return {**kept, **program.environment, **preload, **options}


def run(program, allocator, library):
    """Run the program once, note its time and peak memory, and return its output.

    The kernel counts into the peak what this process had when it started the program, about 15 MB. All
    programs here need more.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as output:
        source.write(program.input)
        source.seek(0)
        start = time.monotonic()
        process = subprocess.Popen(program.command, stdin=source, stdout=output,
                                   env=environment(program, library))
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"demo: '{program.title}' failed on {allocator} with {process.returncode}")
        program.seconds.setdefault(allocator, []).append(seconds)
        program.megabytes.setdefault(allocator, []).append(usage.ru_maxrss * 1024 / 1e6)
        output.seek(0)
        return output.read()


def run_round(program, allocators):
    """Run the program once on each allocator; the outputs must be equal."""
    outputs = {name: run(program, name, library) for name, library in allocators.items()}
    if len(set(outputs.values())) != 1:
        sys.exit(f"demo: '{program.title}' gives another result on HAKMEM: {outputs}")


def print_table(all_programs):
    print(f"{'':<28}{'------- time -------':^30}{'---- peak memory ----':^30}")
    print(f"{'':<28}" + 2 * f"{'system':>10}{'HAKMEM':>10}{'ratio':>10}")
    for program in all_programs:
        line = f"{program.title:<28}"
        for figures, unit in ((program.seconds, "{:.2f} s"), (program.megabytes, "{:.1f} MB")):
            system, hakmem = (statistics.median(figures[name]) for name in ("system", "HAKMEM"))
            line += f"{unit.format(system):>10}{unit.format(hakmem):>10}{hakmem / system:>10.2f}"
        print(line)


def print_statistics(program, library):
    """Let HAKMEM itself say what it did for one program."""
    done = subprocess.run(program.command, input=program.input, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          env=environment(program, library, HAKMEM_STATS="1"), check=False)
    text = done.stderr.decode(errors="replace")
    if done.returncode != 0 or "hakmem: statistics" not in text:
        sys.exit(f"demo: HAKMEM printed no statistics for '{program.title}':\n{text}")
    print(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_object", metavar="LIBRARY", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    library = options.shared_object.absolute()
    allocators = {"system": None, "HAKMEM": library}
    all_programs = programs(library.parent)

    print(f"Each program runs {options.rounds} times on the system's malloc and on HAKMEM in turn ...", flush=True)
    for _ in range(options.rounds):
        for program in all_programs:
            run_round(program, allocators)
    print("The results are the same. Medians of time and peak memory; a ratio below 1 is HAKMEM's favour:\n")
    print_table(all_programs)
    served = all_programs[-1]
    print(f"\nWhat HAKMEM says about '{served.title}' (HAKMEM_STATS=1). Each thread has a cache of blocks per size;\n"
          "'refilled' and 'drained' count blocks on their way into and out of the caches, 'collected' those that\n"
          "other threads have freed:\n", flush=True)
    print_statistics(served, library)
    print(f"Try it on a program of yours:  LD_PRELOAD={os.path.relpath(library)} PROGRAM")


main()
