"""Limits on the address space, with the release library preloaded.

Programs start under `ulimit -v 65536`; of limits from 128 MiB to 1 GiB at least 80 % is usable, in blocks of every
pool, and can be had again after freeing, in blocks of another pool too and by other threads, old and new; what is free goes back
to the program's own mappings; under a small HAKMEM_LIMIT no request of a single thread is refused after all was freed, and a thread
gets what another one has freed between blocks in use, its cache, and what ended threads had; hardened mode serves about the same each
time; a limit that a program sets on itself later leaves threads and allocation working; virtual size stays near what is in use.

usage: test_limits.py LIBRARY LIMITED
"""
# test: timeout=600 cost=60

import pathlib
import resource
import subprocess
import sys

MIB = 1 << 20
SIZES = [100, 10 << 10, 100 << 10, 1536 << 10, 10 << 20, 0]
LIMITS = [128, 256, 512, 1024]
# how a limit comes, its MiB, the blocks' sizes in turn, the share that each gets at least, options
HARDEN = {"HAKMEM_HARDEN": "1"}
REFILLS = [
    ("ulimit", 1000, (2 << 20, 100), 0.85, {}),
    ("ulimit", 300, (2 << 20, 16, 100, 3000, 60000, 200000, 2 << 20, 16), 0.75, {}),
    ("data", 100, (100, 200, 1000, 100000, 3000000, 100), 0.8, {}),
    ("data", 100, (100, 200, 1000, 100), 0.65, HARDEN),
    ("as", 200, (100, 200, 1000, 100), 0.65, HARDEN),
    ("none", 100, (2 << 20, 100, 5000, 100000, 16), 0.8, {"HAKMEM_LIMIT": "100M"}),
    ("none", 100, (100, 200, 1000, 100), 0.65, {"HAKMEM_LIMIT": "100M", **HARDEN}),
    ("none", 100, (200000, 90000), 0.85, {"HAKMEM_LIMIT": "100M", **HARDEN}),
]


class Failures:
    """Counts what went wrong and says it at once."""

    def __init__(self):
        self.count = 0

    def expect(self, condition, message):
        if not condition:
            self.count += 1
            print("FAILED: " + message)


def run(library, command, limit_mib=None, **options):
    """The finished process of a command on the library, under a limit on its address space."""
    def lower():
        if limit_mib is not None:
            resource.setrlimit(resource.RLIMIT_AS, (limit_mib * MIB, limit_mib * MIB))
    return subprocess.run(command, env={"LD_PRELOAD": library, "PATH": "/usr/bin:/bin", **options}, preexec_fn=lower,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)


def programs_of(program):
    """Commands of the system; of musl's, which is not this system's C library, there is only the test's own program."""
    if b"/ld-musl-" in pathlib.Path(program).read_bytes()[:4096]:
        return [[program, "fill", "100"]]
    return [["/bin/true"], ["/bin/sh", "-c", "echo $((1 + 1)) | cat"], [sys.executable, "-c", "pass"],
            [sys.executable, "-c", "import json, threading; json.dumps(list(range(10000)))"]]


def starts(library, program, failures):
    for command in programs_of(program):
        done = run(library, command, 64)
        print("ulimit -v 65536: %-60s %d" % (" ".join(command), done.returncode))
        failures.expect(done.returncode == 0, "{}: {}".format(command, done.stderr[-300:]))


def usable(library, program, failures):
    print("usable share of a limit, first and second time")
    for limit in LIMITS:
        for size in SIZES:
            done = run(library, [program, "fill", str(size)], limit)
            name = "%d MiB in blocks of %s" % (limit, size or "many sizes")
            if done.returncode != 0:
                failures.expect(False, "%s: %d %s" % (name, done.returncode, done.stderr[-300:]))
                continue
            first, second = (int(word) / (limit * MIB) for word in done.stdout.split())
            print("  %-34s %5.1f %% %5.1f %%" % (name, 100 * first, 100 * second))
            failures.expect(first >= 0.8, "{}: {:.1f} % usable".format(name, 100 * first))
            failures.expect(second >= 0.95 * first, "{}: {:.1f} % the second time".format(name, 100 * second))


def words(done, failures, name):
    failures.expect(done.returncode == 0, "%s: %d %s" % (name, done.returncode, done.stderr[-300:]))
    return [int(word) for word in done.stdout.split()] if done.returncode == 0 else []


def refilled(library, program, failures):
    print("share of a limit, by one size after another")
    for kind, mib, sizes, least, options in REFILLS:
        whole = mib if kind == "ulimit" else None
        done = run(library, [program, "refill", "none" if kind == "ulimit" else kind, str(mib), *map(str, sizes)], whole, **options)
        got = [round(number / (mib * MIB), 2) for number in words(done, failures, "refill")]
        print("  %-6s %4d MiB %s %s" % (kind, mib, options or "", ", ".join("%d: %s" % pair for pair in zip(sizes, got))))
        failures.expect(len(got) == len(sizes) and min(got) >= least, "{} {}: a size cannot have what others have freed".format(kind, options))


def served_threads(library, program, failures):
    print("the first requests of threads after a limit was used up and freed: refused, of 40; new threads made")
    for kind in ("as", "data"):
        for size in (2 << 20, 100, 5000):
            for options in ({}, HARDEN) if kind == "data" and size != 100 else ({},):
                done = run(library, [program, "threads", kind, str(size)], 1000 if kind == "as" else None, **options)
                got = words(done, failures, "threads") or [0, 40, 0]
                print("  %-4s %7d %s %d, %d" % (kind, size, options or "", got[1], got[2]))
                failures.expect(got[1] == 0, "threads that had not allocated before get nothing")
                failures.expect(got[2] == 40, "no new thread can be made")


def emptied(library, program, failures):
    print("requests refused after everything was freed, of 2,000")
    for limit, size in (("4M", 300), ("4M", 20000), ("8M", 20000), ("16M", 100000)):
        for options in ({}, HARDEN):
            got = words(run(library, [program, "emptied", str(size)], HAKMEM_LIMIT=limit, **options), failures, "emptied")
            print("  %-4s %7d %s %s" % (limit, size, options or "", got))
            failures.expect(got == [0], "what is free cannot be had")


def beside(library, program, failures):
    print("bytes after a living thread has freed a hundred blocks; those of every second block, and what another thread gets of them")
    for size in (1000, 3000):
        got = words(run(library, [program, "beside", str(size)], HAKMEM_LIMIT="8M"), failures, "beside") or [0, 1, 0]
        print("  %d: %s" % (size, got))
        failures.expect(got[0] >= 100 * size + MIB // 2, "another thread's cache cannot be had")
        failures.expect(got[2] >= got[1] * 0.7, "what another thread has freed cannot be had")  # by blocks of three quarters of the size


def ended(library, program, failures):
    got = [words(run(library, [program, "ended"], HAKMEM_LIMIT="100M", **options), failures, "ended") for options in ({}, HARDEN) * 6]
    print("requests refused after threads that took all have freed it and ended: %s" % got)
    failures.expect(got == [[0]] * len(got), "what ended threads have freed cannot be had")


def goes_back(library, program, failures):
    for size in (2 << 20, 100, 200000):
        for ms in words(run(library, [program, "back", str(size)], HAKMEM_PURGE_DELAY="300"), failures, "back"):
            print("blocks of %d: the program can map what they had after %d ms" % (size, ms))
            failures.expect(ms <= 4000, "addresses stay")


def later(library, program, failures):
    done = run(library, [program, "later"])
    print("a limit set later: %d" % done.returncode)
    failures.expect(done.returncode == 0, "a limit set later: " + done.stderr[-300:])


def sizes(library, program, failures):
    done = run(library, [program, "sizes"])
    failures.expect(done.returncode == 0, "sizes: " + done.stderr[-300:])
    if done.returncode != 0:
        return
    live, virtual, resident, virtual_left, resident_left = (int(word) for word in done.stdout.split())
    print("live %d MiB: virtual %d MiB, resident %d MiB; after freeing: virtual %d MiB, resident %d MiB" % tuple(
        n // MIB for n in (live, virtual, resident, virtual_left, resident_left)))
    failures.expect(virtual <= 1.35 * live + 32 * MIB, "virtual size is far above what is in use")
    failures.expect(resident_left <= 16 * MIB, "memory stays resident after malloc_trim")


def main():
    library, program = sys.argv[1:3]
    failures = Failures()
    starts(library, program, failures)
    usable(library, program, failures)
    refilled(library, program, failures)
    served_threads(library, program, failures)
    emptied(library, program, failures)
    beside(library, program, failures)
    ended(library, program, failures)
    goes_back(library, program, failures)
    later(library, program, failures)
    sizes(library, program, failures)
    return 1 if failures.count else 0


if __name__ == "__main__":
    sys.exit(main())
