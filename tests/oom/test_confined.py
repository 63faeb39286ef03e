"""System calls that are forbidden or fail, with the release library preloaded: see confined.c.

After its start the library uses mmap, munmap, madvise, mremap, mprotect and futex, nothing else; never asks for
executable memory; a call that fails makes NULL and ENOMEM of a request at most and leaves errno alone in a free; a
program that can ask the system nothing at all from its first instruction on starts and works.

usage: test_confined.py LIBRARY CONFINED CONFINED_STATIC
"""
# test: timeout=300 cost=30

import errno
import subprocess
import sys

SKIPPED = 77
# Without the background thread: making a thread takes calls that a program of this kind may not have allowed.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "HAKMEM_BACKGROUND": "0", "HAKMEM_PURGE_DELAY": "1"}
REFUSED = ("mmap", "munmap", "madvise", "mremap", "mprotect", "all")


def run(command, library=None):
    environment = dict(ENVIRONMENT, **({"LD_PRELOAD": library} if library else {}))
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


def main():
    library, program, static = sys.argv[1:4]
    cases = [([program, "only"], library), ([program, "threads"], library),
             ([program, "deny", static, "use"], None)]
    cases += [([program, "refused", name, str(code)], library) for name in REFUSED
              for code in (errno.ENOMEM, errno.EINVAL)]
    failed = 0
    for command, preloaded in cases:
        done = run(command, preloaded)
        print("%-40s %d %s" % (" ".join(command[1:]), done.returncode, done.stderr.strip()))
        if done.returncode == SKIPPED:
            return SKIPPED
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
