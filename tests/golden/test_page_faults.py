#!/usr/bin/env python3
"""A program that allocates, writes and frees the same large buffers again and again faults no page in once it has had them:
what was in use a moment ago stays, since it raises no peak. The peak is checked too: the buffers and little more. Nor does one whose
buffers have different sizes and lives, in any mixture."""
# test: timeout=300
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
CASES = ((40_000_000, 1), (900_000, 4), (3_000_000, 4), (10_000_000, 2), (10_000_000, 3), (10_000_000, 4))
ROUNDS, FAULTS_PER_ROUND, BESIDES = 40, 1, 6 * MIB
MIXTURES, WARM_AFTER, MIXTURE_MIB, MICRO = 60, 30, 60, HERE.parent.parent / "bench" / "micro"


def output_of(program, *arguments):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    # A busy machine may make a round last longer than the delay, which is not what is looked at.
    env |= {"LD_PRELOAD": os.environ["HAK_TEST_LIB"], "HAKMEM_PURGE_DELAY": "60s"}
    return subprocess.run([program, *map(str, arguments)], env=env, check=True, timeout=200, stdout=subprocess.PIPE,
                          text=True).stdout


def measure(program, size, count):
    faults, peak = map(int, output_of(program, size, count, ROUNDS).split())
    return faults / (ROUNDS - ROUNDS // 2), peak


def faulting_mixtures(program):
    lines = re.findall(r"^mixture/(\d+) .*faults_per_100=(\d+) .*$", output_of(program, 1, MIXTURES, WARM_AFTER, MIXTURE_MIB), re.MULTILINE)
    assert len(lines) == MIXTURES
    found = [f"mixture {number}: {int(faults) / 100} page faults a round" for number, faults in lines
             if int(faults) > 100 * FAULTS_PER_ROUND]
    print(*found, f"{MIXTURES} mixtures, {len(found)} fault", sep="\n")
    return len(found)


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "buffers_again"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "buffers_again.c", "-o", program], check=True)
        for size, count in CASES:
            faults, peak = measure(program, size, count)
            print(f"{count} buffers of {size} bytes: {faults:.1f} page faults a round, {peak / MIB:.1f} MiB at most")
            bad += faults > FAULTS_PER_ROUND or peak > size * count + BESIDES
        program = pathlib.Path(folder) / "bench_mixture"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", "-D_GNU_SOURCE", MICRO / "bench_mixture.c", MICRO / "common.c",
                        "-pthread", "-o", program], check=True)
        bad += faulting_mixtures(program)
    return bad


if __name__ == "__main__":
    sys.exit(main())
