#!/usr/bin/env python3
# test: timeout=200
"""PHP runs arrays, objects, XML and SQLite, with Zend's own allocator and with malloc in its place.

It opens its extensions with RTLD_DEEPBIND, and they free what it has allocated. Zend's allocator takes pages from the system."""

import pathlib

from support import Skip, check, main, need

WORKLOAD = pathlib.Path(__file__).with_name("workload.php")
PARTS = 8


def test(setup):
    php = need("php", "php-cli")
    with_libraries, alone = (set(setup.system.run([php, *options, "-m"]).split()) for options in ([], ["-n"]))
    if not with_libraries - alone:
        raise Skip("php opens no extension: install php-xml php-sqlite3 php-mbstring")
    print(f"  extensions opened as libraries: {' '.join(sorted(with_libraries - alone))}", flush=True)

    def workload(allocator, directory):
        said = []
        for zend in ("1", "0"):
            output = allocator.run([php, "-d", "memory_limit=-1", WORKLOAD], cwd=directory, extra={"USE_ZEND_ALLOC": zend})
            check(len(output.splitlines()) == PARTS, f"not every part has printed its checksum:\n{output}")
            said.append(output)
        check(said[0] == said[1], f"Zend's allocator makes a difference:\n{said[0]}\n{said[1]}")
        return said

    setup.require_bindings([php, "-r", "echo json_encode([1]);"])
    setup.compare(workload, refilled=50_000, calls=500_000)


main(test)
