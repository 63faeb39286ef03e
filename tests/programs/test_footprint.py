#!/usr/bin/env python3
# test: serial
"""A small program stays small: HAKMEM adds at most 300 KB to `hello world`, and 16 bytes of static TLS.

The program is looked at when it has said hello: it returns nothing to the system before, so that this is
its peak. Its size is read from the page tables; the kernel's own figure for the peak, which some kernels
count in coarse steps, is shown beside it. How many pages of the C library one fault brings in depends on where
it happens to lie, so that single runs differ by 100 KB: the means of many are compared.
"""

import pathlib
import re
import statistics
import subprocess

from support import Allocator, check, main, need

MOST_ADDED_KB = 300
MOST_TLS_BYTES = 16
RUNS = 101


def field_kb(path, name):
    """A field of a file under /proc, in kB of 1000 bytes."""
    return int(re.search(rf"^{name}:\s+(\d+) kB$", path.read_text(), re.MULTILINE).group(1)) * 1.024


def sizes_kb(hello, allocator):
    """The exact size of hello world and its peak as the kernel has counted it."""
    with subprocess.Popen([hello], env=allocator.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        check(process.stdout.readline() == "hello, world\n", f"{hello} didn't say hello on {allocator.name}")
        proc = pathlib.Path(f"/proc/{process.pid}")
        sizes = field_kb(proc / "smaps_rollup", "Rss"), field_kb(proc / "status", "VmHWM")
        process.stdin.close()
    check(process.returncode == 0, f"{hello} on {allocator.name} ended with {process.returncode}")
    return sizes


def static_tls(library, readelf):
    """The size of the library's TLS segment."""
    headers = subprocess.run([readelf, "-lW", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    for line in headers.splitlines():
        words = line.split()
        if words[:1] == ["TLS"]:
            return int(words[5], 16)
    return 0


def test(setup):
    hello, = setup.arguments
    tls = static_tls(setup.shared_object, need("readelf", "binutils"))
    print(f"  static TLS: {tls} bytes")
    check(tls <= MOST_TLS_BYTES, f"{tls} bytes of static TLS, at most {MOST_TLS_BYTES}")

    setup.require_bindings([hello], input="")
    quiet = Allocator("HAKMEM", setup.shared_object)
    rounds = [sizes_kb(hello, setup.system) + sizes_kb(hello, quiet) for _ in range(RUNS)]
    system, system_peak, hakmem, hakmem_peak = (statistics.mean(column) for column in zip(*rounds))
    print(f"  hello world: {system:.0f} kB on the system's malloc, {hakmem:.0f} kB on HAKMEM: {hakmem - system:+.0f} kB")
    print(f"  by the kernel's count: {system_peak:.0f} kB, {hakmem_peak:.0f} kB: {hakmem_peak - system_peak:+.0f} kB")
    check(hakmem - system <= MOST_ADDED_KB, f"hello world grows by more than {MOST_ADDED_KB} kB")


main(test)
