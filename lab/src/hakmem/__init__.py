"""HAKMEM from inside a Python process that runs on it: its statistics, returning its memory, and the allocations of a
block of code.

    hakmem run --python -- python3 program.py

starts such a process; in any other one, `active()` is false and the other functions raise NotActive. Only the standard
library is imported."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hakmem import layout, open_heaps

__all__ = [
    "Allocated",
    "Heap",
    "NotActive",
    "active",
    "collect",
    "heap",
    "labels",
    "open_metrics",
    "path",
    "stats",
    "track",
    "version",
]
NEVER_REFUSED = 1024  # bytes; without small blocks the interpreter cannot raise a MemoryError, and may hang
BUNDLED = Path(__file__).resolve().parent / "libhakmem.so"


class NotActive(RuntimeError):
    """This process does not run on HAKMEM."""

    def __init__(self) -> None:
        super().__init__("this process does not run on HAKMEM; start it with: hakmem run --python -- python3 ...")


@functools.cache
def _library() -> ctypes.CDLL:
    """The library that serves this process's malloc."""
    process = ctypes.CDLL(None, use_errno=True)
    try:
        process.hak_stats_snapshot.argtypes = process.hak_stats_ledger.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        process.hak_collect.restype = ctypes.c_size_t
        process.hak_version.restype = ctypes.c_char_p
        process.hak_label_set.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        for each in (process.hak_label_set, process.hak_label_switch, process.hak_label_get):
            each.restype = ctypes.c_void_p
        process.hak_label_switch.argtypes = [ctypes.c_void_p]
        process.hak_heap_new.argtypes = [ctypes.c_void_p]
        process.hak_heap_stats.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        process.hak_heap_set_limit.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        process.hak_heap_set_default.argtypes = [ctypes.c_void_p]
        for each in (process.hak_heap_new, process.hak_heap_set_default, process.hak_heap_get_default):
            each.restype = ctypes.c_void_p
    except AttributeError:
        raise NotActive from None
    return process


def active() -> bool:
    """Whether this process's malloc is HAKMEM's."""
    try:
        _library()
    except NotActive:
        return False
    return True


def version() -> str:
    """The version of the library in use."""
    return str(_library().hak_version().decode())


def path() -> Path:
    """The library's file: the one in this package, or the one that the lab finds."""
    if BUNDLED.is_file():
        return BUNDLED
    from hakmem_lab.target import libhakmem

    return libhakmem.find()


def collect() -> int:
    """Empties this thread's cache and returns unused memory to the system; the result is the bytes returned."""
    return int(_library().hak_collect())


def _values(structure: ctypes.Structure) -> dict[str, Any]:
    named = ((each[0], getattr(structure, each[0])) for each in structure._fields_)
    return {
        name: list(value) if isinstance(value, ctypes.Array) else value for name, value in named if name != "reserved"
    }


def stats(ledger: bool = False) -> dict[str, Any]:
    """The statistics, by the names of hakmem_stats.h; `classes` and the latencies are dictionaries.

    `ledger` adds all resident memory by state, which takes some milliseconds."""
    library, filled = _library(), layout.Stats()
    ask = library.hak_stats_ledger if ledger else library.hak_stats_snapshot
    if ask(ctypes.byref(filled), ctypes.sizeof(filled)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    found = _values(filled)
    found["classes"] = [_values(each) for each in filled.classes[: filled.class_count]]
    for name in ("latency_malloc", "latency_free"):
        found[name] = _values(found[name])
    return found


def open_metrics(end: bool = True) -> str:
    """The current figures as OpenMetrics text, for a program that serves its own /metrics; `end`: with its end mark. It
    needs the package hakmem-lab."""
    from hakmem_lab.inspect import openmetrics
    from hakmem_lab.inspect.snapshots import Snapshot

    found = stats()
    groups: dict[str, dict[str, int]] = {}
    hidden = {"ledger"} | (set() if found["flags"] & layout.HAK_STATS_HAS_CALLS else {"calls"})
    for metric in openmetrics.metrics():
        name = f"{metric.group}_{metric.name}"
        if metric.group not in hidden and name in found:
            groups.setdefault(metric.group, {})[metric.name] = found[name]
    text = openmetrics.text(Snapshot(version=1, **groups))  # type: ignore[arg-type]
    return text if end else text.removesuffix("# EOF\n")


@dataclass
class Allocated:
    """The allocations of a block of code, known when it ends.  All threads count.

    A block that Python's own small-object allocator serves does not reach malloc: PYTHONMALLOC=malloc, which
    `hakmem run --python` sets, makes every object one of malloc."""

    live_bytes: int = 0  # growth of live blocks
    live_blocks: int = 0
    mapped_bytes: int = 0  # growth of mapped memory
    refilled_blocks: int = 0  # blocks moved from spans into caches
    mallocs: int | None = None  # calls, if HAKMEM_STATS=exact counts them
    frees: int | None = None
    classes: dict[int, int] = field(default_factory=dict)  # growth of live blocks, by size

    def __str__(self) -> str:
        calls = "" if self.mallocs is None else f", {self.mallocs} mallocs and {self.frees} frees"
        return (
            f"{self.live_bytes:+,} bytes in {self.live_blocks:+,} blocks are left, "
            f"{self.mapped_bytes:+,} bytes mapped{calls}"
        )


def _fill(report: Allocated, before: dict[str, Any], after: dict[str, Any]) -> None:
    def gained(name: str) -> int:
        return int(after[name] - before[name])

    report.live_bytes = gained("bytes_live") + gained("bytes_huge")
    report.live_blocks = gained("total_live") + gained("huge_live")
    report.mapped_bytes = gained("bytes_mapped")
    report.refilled_blocks = gained("total_refilled")
    if after["flags"] & layout.HAK_STATS_HAS_CALLS:
        report.mallocs, report.frees = gained("calls_malloc"), gained("calls_free")
    pairs = zip(before["classes"], after["classes"], strict=True)
    report.classes = {new["size"]: new["live"] - old["live"] for old, new in pairs if new["live"] != old["live"]}


@contextlib.contextmanager
def track() -> Iterator[Allocated]:
    """A context manager whose value has the allocations of the block of code once that has ended.

    with hakmem.track() as allocated:
        table = load()
    print(allocated)
    """
    report, before = Allocated(), stats()
    try:
        yield report
    finally:
        _fill(report, before, stats())


@contextlib.contextmanager
def labels(**values: str | None) -> Iterator[None]:
    """A context manager: what this thread allocates in the block of code has these labels in heap profiles, None being
    no label, beside those that it has already. In a process without HAKMEM it does nothing.

    with hakmem.labels(tenant=tenant, query="search"):
        rows = search()

    The labels are the thread's: a coroutine that awaits in the block lends them to what runs meanwhile."""
    library = _library() if active() else None
    if library is None:
        yield
        return
    former = library.hak_label_get()
    try:
        for key, value in values.items():
            library.hak_label_set(key.encode(), None if value is None else value.encode())
        yield
    finally:
        library.hak_label_switch(former)


class Heap:
    """What `heap` measures."""

    def __init__(self, name: str) -> None:
        self.handle: int | None = None  # until the block of code begins, and after its end
        self.name = name
        self._figures = layout.HeapFigures()

    def stats(self) -> dict[str, Any]:
        """The figures, by the names of `struct hak_heap_figures` in hakmem.h; of an ended heap, those at its end."""
        with _handles.stay:
            if self.handle is not None:
                _library().hak_heap_stats(self.handle, ctypes.byref(self._figures), ctypes.sizeof(self._figures))
        return _values(self._figures) | {"name": self.name}

    def _end(self) -> None:
        with _handles.stay:
            self.stats()
            self._figures.name = None  # it ends with the heap
            self.handle = None


class _Handles:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.stay = threading.RLock()  # as long as it is held


_handles = _Handles()
# A thread that the child does not have may hold the lock.
os.register_at_fork(after_in_child=_handles.begin)


@contextlib.contextmanager
def heap(name: str = "python", limit: int = 0) -> Iterator[Heap]:
    """A context manager: what this thread mallocs in the block of code comes from a heap of its own. It has figures and
    may have a limit in bytes (0: none), above which blocks of more than 1 KiB are a MemoryError. In a block within a
    block the inner heap counts in the outer one, too. What is left at the end lives on as malloc's.

    with hakmem.heap("parse", limit=1 << 30) as parsing:
        tree = parse(text)
    print(parsing.stats()["peak_bytes"])

    Blocks that Python's own small-object allocator has in its memory are no part of this: PYTHONMALLOC=malloc, which
    `hakmem run --python` sets. The heap is the thread's: a coroutine that awaits in the block lends it to what runs
    meanwhile. Blocks of coroutines and generators may end in any order and in any thread: the one that began them
    mallocs from the heap opened last of those whose blocks are still open."""
    if not 0 <= limit <= ctypes.c_size_t(-1).value:
        raise ValueError(f"limit={limit}: not a number of bytes from 0 (none) to {ctypes.c_size_t(-1).value}")
    library = _library()
    options = layout.HeapOptions(
        size=ctypes.sizeof(layout.HeapOptions),
        name=name.encode(),
        limit=limit,
        pressure=ctypes.cast(library.hak_heap_limit_large, ctypes.c_void_p),
        argument=NEVER_REFUSED,
    )
    made = Heap(name)
    opened = open_heaps.this_thread(library).open(options)
    try:
        made.handle = opened.handle
        yield made
    finally:
        made._end()
        opened.end()
