#!/usr/bin/env python3
"""A program that allocates, writes and frees the same large buffers again and again faults no page in once it has had them:
what was in use a moment ago stays, since it raises no peak. The peak is checked too: the buffers and little more."""
# test: timeout=300
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
CASES = ((40_000_000, 1), (900_000, 4), (3_000_000, 4), (10_000_000, 2), (10_000_000, 3), (10_000_000, 4))
ROUNDS, FAULTS_PER_ROUND, BESIDES = 40, 1, 6 * MIB


def measure(program, size, count):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    # A busy machine may make a round last longer than the delay, which is not what is looked at.
    env |= {"LD_PRELOAD": os.environ["HAK_TEST_LIB"], "HAKMEM_PURGE_DELAY": "60s"}
    done = subprocess.run([program, str(size), str(count), str(ROUNDS)], env=env, check=True, timeout=120,
                          stdout=subprocess.PIPE, text=True)
    faults, peak = map(int, done.stdout.split())
    return faults / (ROUNDS - ROUNDS // 2), peak


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "buffers_again"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "buffers_again.c", "-o", program], check=True)
        for size, count in CASES:
            faults, peak = measure(program, size, count)
            print(f"{count} buffers of {size} bytes: {faults:.1f} page faults a round, {peak / MIB:.1f} MiB at most")
            bad += faults > FAULTS_PER_ROUND or peak > size * count + BESIDES
    return bad


if __name__ == "__main__":
    sys.exit(main())
