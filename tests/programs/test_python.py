#!/usr/bin/env python3
# test: timeout=600 cost=80
"""Python's own test modules give the same results as on the system's malloc.

PYTHONMALLOC=malloc takes Python's own allocator away, so that every object goes to malloc. Each
module runs in a process of its own; most of the time is spent in tests that sleep, so several run
at once. A test that fails on the system's malloc too isn't ours, any other failure is.
"""

import concurrent.futures
import glob
import os
import subprocess
import sys
import xml.etree.ElementTree

from support import Failure, Hang, Skip, check, main

MODULES = [  # The slowest first, so that the others run beside it.
    "test_multiprocessing_fork", "test_subprocess", "test_threading", "test_ctypes",
    "test_bytes", "test_json", "test_dict", "test_list",
]
COUNTED_EXACTLY = ["test_bytes", "test_json", "test_dict", "test_list"]
AT_ONCE = 8
HANGS_AFTER_S = 450  # then regrtest shows the stacks and ends

# A thread that ends reads its interpreter once more when it has given up the lock, by which time
# another thread may have freed it (drop_gil in Python's ceval_gil.h): it crashes wherever freed
# memory is taken away at once, as in hardened mode, or on glibc with
# GLIBC_TUNABLES=glibc.malloc.mmap_threshold=32768.
LEFT_OUT = "test_threads_join*"

# The tests compare what their children write to stderr, so that only this process may print
# statistics: the library has read the option, the children shall not see it. regrtest's own main is
# called because `-m test` starts another process in newer versions. A shell that starts tests in the
# background has them ignore SIGINT, for which several tests wait.
RUNNER = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
os.environ.pop("HAKMEM_STATS", None)
from test.libregrtest.main import main
main()
"""

FINDER = f"""
import importlib.util, sys
modules = ["libregrtest"] + {MODULES}
sys.exit(any(importlib.util.find_spec("test." + name) is None for name in modules))
"""


def find_python():
    """Find an interpreter that has all modules; distributions put them into packages of their own."""
    candidates = [sys.executable]
    for directory in [*os.environ["PATH"].split(os.pathsep), "/usr/bin"]:
        candidates += sorted(glob.glob(os.path.join(directory, "python3")) +
                             glob.glob(os.path.join(directory, "python3.[0-9]*[0-9]")))
    for candidate in dict.fromkeys(candidates):
        found = subprocess.run([candidate, "-c", FINDER], stderr=subprocess.DEVNULL, check=False)
        if found.returncode == 0:
            executable = [candidate, "-c", "import sys; print(sys.executable)"]
            return subprocess.run(executable, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    raise Skip("no python3 has its own test modules: on Debian install the package that"
               " `apt-cache search 'libpython3.*-testsuite'` names, such as libpython3.11-testsuite")


def outcome(case):
    """What became of one test case in the XML report."""
    kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    return kinds[0] if kinds else "passed"


def run_module(python, module, allocator, directory):
    """Run one module and return the outcome of each of its test cases, and what it printed."""
    directory = directory / f"{module}-{allocator.name.replace(' ', '-')}"
    directory.mkdir()
    report = directory / "report.xml"
    printed = ""
    try:
        allocator.run([python, "-c", RUNNER, "--timeout", HANGS_AFTER_S, "--junit-xml", report,
                       "--ignore", LEFT_OUT, module],
                      cwd=directory, extra={"PYTHONMALLOC": "malloc", "TMPDIR": str(directory)},
                      limit_s=HANGS_AFTER_S + 60)
    except Hang:
        raise
    except Failure as failure:
        printed = str(failure)
    check(report.exists() and report.stat().st_size, f"{module} didn't finish: {printed}")
    cases = xml.etree.ElementTree.parse(report).iter("testcase")
    return {case.get("name"): outcome(case) for case in cases}, printed


def compare_module(module, system, replaced):
    """Expect that every test case which passes on the system's malloc passes on HAKMEM."""
    (expected, _), (result, printed) = system, replaced
    bad = {name: result.get(name, "missing") for name, kind in expected.items()
           if kind in ("passed", "skipped") and result.get(name) != kind}
    check(not bad, f"{module} differs on HAKMEM: {bad}\n{printed}")
    counts = [list(result.values()).count(kind) for kind in ("passed", "skipped", "failure", "error")]
    print("  {}: {} passed, {} skipped, {} failed on both".format(module, *counts[:2], sum(counts[2:])), flush=True)


def test(setup):
    python = find_python()
    setup.require_bindings([python, "-c", "import json, ctypes"], extra={"PYTHONMALLOC": "malloc"})

    jobs = {}
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        def start(module, allocator):
            jobs[module, allocator] = pool.submit(run_module, python, module, allocator, setup.directory)

        for module in MODULES:
            for allocator in [setup.system, *setup.replaced]:
                if allocator.statistics != "exact" or module in COUNTED_EXACTLY:
                    start(module, allocator)

    for (module, allocator), job in jobs.items():
        if allocator is not setup.system:
            compare_module(module, jobs[module, setup.system].result(), job.result())
    for allocator in setup.replaced:
        allocator.require(1_000_000, 5_000_000)


main(test)
