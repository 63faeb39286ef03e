#!/usr/bin/env python3
# test: serial
"""A small program stays small: HAKMEM adds at most 390 KB to `hello world`, of which it has written 60 KB, and 32 bytes of
static TLS.

The program is looked at when it has said hello: it returns nothing to the system before, so that this is
its peak. Its size is read from the page tables; the kernel's own figure for the peak, which some kernels
count in coarse steps, is shown beside it. How many pages of the C library and its loader one fault brings in
depends on where they lie and on what else the system holds in memory, 100 KB from run to run. Every process
shares them, so they are not counted.
"""

import os
import pathlib
import re
import statistics
import struct
import subprocess

from support import Allocator, check, main, need

MOST_ADDED_KB = 390
WINDOW = 16  # pages
MOST_WRITTEN_KB = 60
MOST_TLS_BYTES = 32
RUNS = 101


def field_kb(path, name):
    """A field of a file under /proc, in kB of 1000 bytes."""
    return int(re.search(rf"^{name}:\s+(\d+) kB$", path.read_text(), re.MULTILINE).group(1)) * 1.024


def windows_kb(pid, start, end):
    """The kernel maps what it has of the 64 KiB around a touched page of a file, which depends on how the file came into memory: each
    such window counts whole."""
    page = os.sysconf("SC_PAGESIZE")
    with open(f"/proc/{pid}/pagemap", "rb") as file:
        file.seek(start // page * 8)
        words = [word >> 63 for (word,) in struct.iter_unpack("=Q", file.read((end - start) // page * 8))]
    first = -(start // page) % WINDOW  # windows lie at multiples of their size
    windows = [words[:first], *(words[at:at + WINDOW] for at in range(first, len(words), WINDOW))]
    return sum(len(window) for window in windows if any(window)) * page / 1000


def own_kb(pid, code_of):
    """What is in memory of all mappings but the C library's and its loader's, in kB of 1000 bytes."""
    total, counts = 0, False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if mapping := re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line):
            start, end, rights, name = mapping.groups()
            is_code = code_of is not None and os.path.basename(name) == os.path.basename(code_of) and "x" in rights
            counts = not is_code and re.search(r"/(libc|ld-linux|ld)[-.][^/]*$", name) is None
            total += windows_kb(pid, int(start, 16), int(end, 16)) if is_code else 0
        elif counts and (found := re.match(r"Rss:\s+(\d+) kB$", line)):
            total += int(found.group(1)) * 1.024
    return total


def sizes_kb(hello, allocator):
    """The exact size of hello world, its peak as the kernel has counted it, and what was written, the C library included."""
    with subprocess.Popen([hello], env=allocator.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        check(process.stdout.readline() == "hello, world\n", f"{hello} didn't say hello on {allocator.name}")
        proc = pathlib.Path(f"/proc/{process.pid}")
        sizes = own_kb(process.pid, allocator.shared_object), field_kb(proc / "status", "VmHWM"), field_kb(proc / "smaps_rollup", "Anonymous")
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
    system, system_peak, system_written, hakmem, hakmem_peak, hakmem_written = (
        statistics.mean(column) for column in zip(*rounds))
    print(f"  hello world: {system:.0f} kB on the system's malloc, {hakmem:.0f} kB on HAKMEM: {hakmem - system:+.0f} kB")
    print(f"  by the kernel's count: {system_peak:.0f} kB, {hakmem_peak:.0f} kB: {hakmem_peak - system_peak:+.0f} kB")
    print(f"  written: {system_written:.0f} kB, {hakmem_written:.0f} kB: {hakmem_written - system_written:+.0f} kB")
    check(hakmem - system <= MOST_ADDED_KB, f"hello world grows by more than {MOST_ADDED_KB} kB")
    check(hakmem_written - system_written <= MOST_WRITTEN_KB, f"hello world writes more than {MOST_WRITTEN_KB} kB more")


main(test)
