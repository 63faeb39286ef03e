"""Little room, with the release library preloaded and with the C library's malloc: see little.c.

Of what that serves under RLIMIT_AS and RLIMIT_DATA of 8 to 64 MiB, and with all memory locked under RLIMIT_MEMLOCK of 2 to 64
MiB, at least 75 % can be had, and again after it was freed, where the pages of the library's own file, which are locked as
well, count as had: of 2 MiB all of them, since only a process of a small C library, such as musl's,
locks that little. mlockall(MCL_CURRENT) makes every page of a block resident.

usage: test_little_room.py LIBRARY LITTLE
"""
# test: timeout=300

import resource
import struct
import subprocess
import sys

SKIPPED = 77
MIB = 1 << 20
SIZES = [100, 1000, 3000, 20000, 100 << 10, 0]
LIMITS = [("RLIMIT_AS", resource.RLIMIT_AS), ("RLIMIT_DATA", resource.RLIMIT_DATA)]
LEAST = 0.75
OWN_PAGES = 128 << 10   # of the library's file: a fortieth of 5 MiB, and nothing of address space or data


def run(library, command, limit=None):
    def lower():
        if limit is not None:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
    environment = {"PATH": "/usr/bin:/bin", **({"LD_PRELOAD": library} if library else {})}
    return subprocess.run(command, env=environment, preexec_fn=lower, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120, check=False)


def pages_of_file(library):
    """The bytes of the library's segments in memory, in whole pages."""
    page = resource.getpagesize()
    with open(library, "rb") as file:
        head = file.read(page)
    first, (size, count) = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<HH", head, 54)
    segments = [struct.unpack_from("<IIQQQQQQ", head, first + i * size) for i in range(count)]
    return sum(-(-(start % page + in_memory) // page) * page for kind, _, _, start, _, _, in_memory, _ in segments if kind == 1)


def compare(library, name, command, limit=None, own=0):
    """Whether the library serves its share of what the C library does."""
    got = []
    for which in (None, library):
        done = run(which, command, limit)
        if done.returncode == SKIPPED:
            return True
        words = done.stdout.split()
        got.append(tuple(int(word) for word in words) if done.returncode == 0 and len(words) == 2 else (0, 0))
    peer, ours = got
    good = ours[0] + own >= LEAST * peer[0] and ours[1] + own >= min(LEAST * peer[1], 0.95 * ours[0])
    print("%-44s %7d of %7d KiB, then %7d of %7d%s" % (name, ours[0] >> 10, peer[0] >> 10, ours[1] >> 10, peer[1] >> 10,
                                                     "" if good else "  FAILED"))
    return good


def main():
    library, program = sys.argv[1:3]
    failed = 0
    for name, kind in LIMITS:
        for mib in (8, 16, 32, 64):
            for size in SIZES:
                failed += not compare(library, "%s %d MiB, blocks of %s" % (name, mib, size or "100 to 3100"),
                                      [program, "fill", str(size)], (kind, mib * MIB))
    for mib in (2, 5, 8, 64):
        for size in SIZES:
            failed += not compare(library, "locked %d MiB, blocks of %s" % (mib, size or "100 to 3100"),
                                  [program, "locked", str(mib * 1024), str(size)], own=pages_of_file(library) if mib == 2 else OWN_PAGES)
    done = run(library, [program, "populated"])
    print("populated: %d %s" % (done.returncode, done.stderr.strip()))
    failed += done.returncode not in (0, SKIPPED)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
