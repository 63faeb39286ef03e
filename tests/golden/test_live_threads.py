#!/usr/bin/env python3
"""What living threads cost: 10,000 of them, each with a little memory in use, at most 64 KiB each above glibc's malloc."""
# test: timeout=300
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
COUNT, MOST = 10000, 64 << 10


def resident(program, library):
    env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    if library is not None:
        env["LD_PRELOAD"] = library
    done = subprocess.run([program, str(COUNT)], env=env, check=False, timeout=120, stdout=subprocess.PIPE, text=True)
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
        theirs, ours = resident(program, None), resident(program, os.environ["HAK_TEST_LIB"])
    print(f"{COUNT} threads: {ours >> 10} KiB resident, {theirs >> 10} KiB with glibc's malloc: "
          f"{(ours - theirs) / COUNT / 1024:.1f} KiB more for each")
    if ours > theirs + COUNT * MOST:
        sys.exit(f"that is more than {MOST >> 10} KiB for each")


if __name__ == "__main__":
    main()
