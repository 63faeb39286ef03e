#!/usr/bin/env python3
# test: serial
"""A small program stays small: HAKMEM adds at most 300 KB to `hello world`, and 16 bytes of static TLS.

The peak is the kernel's figure for the whole process. It counts in steps (of up to 128 KiB on newer
kernels), so that `cat` also reads its own exact size from the page tables at a time when it runs.
"""

import re
import statistics
import subprocess

from support import Allocator, check, main, need

MOST_ADDED_KB = 300
MOST_TLS_BYTES = 16
RUNS = 21


def peak_kb(allocator, measure, program):
    """The program's peak as the kernel has it, in kB."""
    done = subprocess.run([measure, program], env=allocator.environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    check(done.returncode == 0 and done.stdout == "hello, world\n", f"hello failed on {allocator.name}: {done}")
    return int(done.stderr) * 1.024


def exact_kb(allocator, cat):
    """The resident size of `cat` while it reads, in kB."""
    rollup = allocator.run([cat, "/proc/self/smaps_rollup"])
    return int(re.search(r"^Rss:\s+(\d+) kB$", rollup, re.MULTILINE).group(1)) * 1.024


def compare(what, measure, system, replaced):
    """Measure both in turn and check the difference of the medians."""
    rounds = [(measure(system), measure(replaced)) for _ in range(RUNS)]
    before, after = (statistics.median(column) for column in zip(*rounds))
    print(f"  {what}: {before:.0f} kB on the system's malloc, {after:.0f} kB on HAKMEM: {after - before:+.0f} kB")
    check(after - before <= MOST_ADDED_KB, f"{what} grows by {after - before:.0f} kB, at most {MOST_ADDED_KB}")


def static_tls(library, readelf):
    """The size of the library's TLS segment."""
    headers = subprocess.run([readelf, "-lW", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in headers.splitlines():
        words = line.split()
        if words[:1] == ["TLS"]:
            return int(words[5], 16)
    return 0


def test(setup):
    hello, measure = setup.arguments
    cat = need("cat", "coreutils")
    quiet = Allocator("HAKMEM", setup.library)
    tls = static_tls(setup.library, need("readelf", "binutils"))
    print(f"  static TLS: {tls} bytes")
    check(tls <= MOST_TLS_BYTES, f"{tls} bytes of static TLS, at most {MOST_TLS_BYTES}")
    setup.require_bindings([hello])
    compare("the peak of hello world", lambda allocator: peak_kb(allocator, measure, hello), setup.system, quiet)
    compare("the size of cat", lambda allocator: exact_kb(allocator, cat), setup.system, quiet)


main(test)
