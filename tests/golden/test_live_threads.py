#!/usr/bin/env python3
"""What living threads cost: 10,000 of them, at most 64 KiB each above glibc's malloc, when each uses one size of block and
when each uses eight or forty."""
# test: timeout=300
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COUNT, MOST = 10000, 64 << 10
SIZES = (1, 8, 40)


def resident(program, sizes, library):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    if library is not None:
        env["LD_PRELOAD"] = library
    done = subprocess.run([program, str(COUNT), str(sizes)], env=env, check=False, timeout=120, stdout=subprocess.PIPE, text=True)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"the program ended with {done.returncode}: {done.stdout}")
    return int(done.stdout)


def main():
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "live_threads"
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fno-builtin", HERE / "live_threads.c", "-o", program,
                        "-pthread"], check=True)
        bad = 0
        for sizes in SIZES:
            theirs, ours = resident(program, sizes, None), resident(program, sizes, os.environ["HAK_TEST_LIB"])
            more = (ours - theirs) / COUNT
            print(f"{COUNT} threads with {sizes} sizes each: {ours // COUNT >> 10} KiB resident for each, "
                  f"{theirs // COUNT >> 10} with glibc's malloc")
            if more > MOST:
                bad += 1
                print(f"that is {more / 1024:.1f} KiB more for each, and {MOST >> 10} are allowed")
    return bad


if __name__ == "__main__":
    sys.exit(main())
