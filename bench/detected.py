"""What allocators notice of misuse: the cases of tests/misuse/matrix, each a run of a program under the allocator."""

from __future__ import annotations

import importlib.util
import itertools
import resource
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

PROGRAMS = Path("tests/misuse")  # in the build
TIMEOUT_S = 60
Case = tuple[str, ...]  # the program and its arguments


def script(name: str) -> ModuleType:
    """The lists of cases stand in the tests' scripts."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).resolve().parent.parent / PROGRAMS / "matrix" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


matrix, outside = script("run"), script("outside")


def blocks(*kinds: str) -> list[Case]:
    return [("outside", kind, str(size)) for kind, size in itertools.product(kinds, outside.SIZES)]


def calls(names: Iterable[str]) -> list[Case]:
    return [("matrix", name, "free", str(size)) for name, size in itertools.product(names, matrix.SIZES)]


GROUPS: dict[str, list[Case]] = {
    "1 byte written behind a block": blocks("over-1"),
    "16 bytes written behind it": blocks("over-16"),
    "256 bytes to 1 MiB written behind it": blocks("over-256", "over-4096", "over-mib"),
    "zeros written behind a block that is never freed": blocks("zeros-kept"),
    "16 bytes written before a block": blocks("under-16"),
    "8 bytes written 1 MiB behind it": blocks("jump-mib"),
    "8 bytes written 16 or 4,096 bytes behind it": blocks("jump-16", "jump-4096"),
    "a write into a freed block": blocks("freed-write", "freed-write-elsewhere"),
    "a second free": blocks("twice", "twice-later", "twice-elsewhere"),
    "a free inside a block": blocks("interior", "misaligned"),
    "realloc of a freed block": blocks("freed-realloc"),
    "a read 4 KiB or 1 MiB behind a block, or after its free": blocks("read-4096", "read-mib", "freed-read"),
    "a second free after other calls": calls(name for name in matrix.HISTORIES if name not in (*matrix.BY_ANOTHER, "reused")),
    "a second free after or by another thread": calls(matrix.BY_ANOTHER),
    "a free of what is no block": calls(matrix.POINTERS),
    "a delete with a wrong size": [("matrix", "size-as", "delete-sized", sizes) for sizes in (*matrix.WRONG, *matrix.WRONG_HARDENED)],
}


def command(build: Path, case: Case) -> list[str]:
    return [str(build / PROGRAMS / case[0]), *case[1:]]


def outcome(build: Path, case: Case, environment: dict[str, str]) -> str:
    """`stopped` by a signal; `reported`: the allocator said so and went on; `unnoticed`; or `not made`."""
    try:
        done = subprocess.run(command(build, case), env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S,
                              check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0)))
    except subprocess.TimeoutExpired:
        return "unnoticed"
    if done.returncode > 0 or (case[0] == "matrix" and b"calling with" not in done.stdout):
        return "not made"
    return "stopped" if done.returncode < 0 else "reported" if done.stderr else "unnoticed"


def outcomes(build: Path, cases: list[Case], environment: dict[str, str], jobs: int = 2) -> Iterator[tuple[Case, str]]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from zip(cases, pool.map(lambda case: outcome(build, case, environment), cases))


def cell(found: Counter[str]) -> str:
    """Of a group under one allocator: how many were stopped, and how many reported; of how many, if some were not made."""
    text = str(found["stopped"]) + (f" + {found['reported']}" if found["reported"] else "")
    return text + (f" of {sum(found.values()) - found['not made']}" if found["not made"] else "")
