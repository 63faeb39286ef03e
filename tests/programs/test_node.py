#!/usr/bin/env python3
# test: timeout=120
"""Node runs JSON, buffers, compression and worker threads, with the right checksums."""

import pathlib

from support import check, main, need

WORKLOAD = pathlib.Path(__file__).with_name("workload.js")


def test(setup):
    node = need("node", "nodejs")

    def workload(allocator, _):
        output = allocator.run([node, WORKLOAD])
        check(len(output.splitlines()) == 4, f"not every thread has printed its checksums:\n{output}")
        return output

    setup.require_bindings([node, "-e", "JSON.parse('[1]')"], programs=["node"])
    setup.compare(workload, refilled=200_000, calls=1_000_000)


main(test)
