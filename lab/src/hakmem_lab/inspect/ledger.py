"""The ledger of resident memory from outside: what each resident byte of a process is to the allocator.

Resident pages come from /proc/PID/pagemap, the use of each slab from the library's owner map, both read while the
process runs. A span's resident bytes are divided by its counters: the bytes of live and of cached blocks count as
theirs, the rest as free. The library's own ledger (HAKMEM_STATS_LEDGER=1) looks at each block instead."""

from __future__ import annotations

from typing import Any

from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import Allocator, Live
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

PRESENT = np.uint64(1 << 63)
MOST_BYTES = 64 << 30  # of a heap; in a larger one, looking at every page takes too long
CHUNK = 1 << 20  # entries of pagemap at once


def resident_pages(live: Live, start: int, end: int, page: int) -> Any:
    """Whether each page of [start, end) is resident."""
    found = []
    try:
        with (process.folder(live.pid) / "pagemap").open("rb", buffering=0) as file:
            for at in range(start // page, end // page, CHUNK):
                file.seek(8 * at)
                count = min(CHUNK, end // page - at)
                entries = np.frombuffer(file.read(8 * count), np.uint64)
                found.append((entries & PRESENT) != 0)
                if len(entries) < count:
                    found.append(np.zeros(count - len(entries), bool))
    except PermissionError:
        raise process.refusal(live.pid) from None
    except (FileNotFoundError, ProcessLookupError):
        raise LabError(f"process {live.pid} has ended", "Start it again, and repeat this while it runs.") from None
    return np.concatenate(found) if found else np.zeros(0, bool)


def slab_residents(live: Live, supers: int, maps: list[process.Mapping]) -> Any:
    """The resident bytes of each slab of the window."""
    page, slab = process_page(), 1 << live.number["slab_shift"]
    base, size = live.root["window"], supers << live.number["super_shift"]
    pages = np.zeros(size // page, bool)
    for mapping in maps:
        start, end = max(mapping.start, base), min(mapping.end, base + size)
        if start < end:
            pages[(start - base) // page : (end - base) // page] = resident_pages(live, start, end, page)
    return pages.reshape(-1, slab // page).sum(axis=1) * page


def process_page() -> int:
    import resource

    return resource.getpagesize()


def slab_classes(live: Allocator, slabs: int) -> tuple[Any, Any]:
    """The owner word of each slab, and the class of its span (-1: none)."""
    n = live.number
    rows = np.frombuffer(live.memory.read(live.root["map"], n["map_stride"] * slabs), np.uint8)
    at = n["map_owner"]
    words = np.ascontiguousarray(rows.reshape(slabs, n["map_stride"])[:, at : at + 4]).view(np.uint32)[:, 0]
    code = (words & np.uint32((1 << n["class_offset_bits"]) - 1)).astype(np.int64) // n["class_offset_unit"]
    classes = np.where((words != 0) & (code < n["class_count"]), code, -1)
    # The inner slabs of a single-block span have their own code; they belong to the slab before them.
    inner = (words != 0) & (code >= n["class_count"])
    places = np.where(inner, 0, np.arange(slabs))
    return words, np.where(inner, classes[np.maximum.accumulate(places)], classes)


def super_kinds(live: Allocator, supers: int) -> Any:
    n = live.number
    rows = np.frombuffer(live.memory.read(live.root["supers"], supers * n["super_stride"]), np.uint8)
    at = n["super_kind"]
    return np.ascontiguousarray(rows.reshape(supers, n["super_stride"])[:, at : at + 4]).view(np.uint32)[:, 0]


def add(live: Live, snapshot: dict[str, Any]) -> bool:
    """Adds the group `ledger` to a snapshot of the same process, and `pinned` to its classes; False if the heap is
    too large to look at every page."""
    n = live.number
    per_super = 1 << n["super_shift"] - n["slab_shift"]
    maps = process.mappings(live.pid, resident=True)
    supers = live.memory.word(live.root["frontier"])
    if supers << n["super_shift"] > MOST_BYTES:
        return False
    resident = slab_residents(live, supers, maps)
    words, classes = slab_classes(live, supers * per_super)
    kinds = np.repeat(super_kinds(live, supers), per_super)
    in_slabs = kinds == n["kind_in_slabs"]
    spans = np.bincount(classes[in_slabs & (classes >= 0)], resident[in_slabs & (classes >= 0)], n["class_count"])

    ledger = dict.fromkeys(("live", "cached", "free_in_slabs", "empty", "huge", "metadata", "not_ours"), 0)
    for row in snapshot["classes"]:
        lying = int(spans[np.searchsorted(live.class_table("size", np.uint32), row["size"])])
        cached = (row["cached"] + row["outbox"]) * row["size"]
        held = row["live"] * row["size"] + cached
        taken = min(held, lying)
        of_caches = taken * cached // held if held else 0
        ledger["cached"] += of_caches
        ledger["live"] += taken - of_caches
        ledger["free_in_slabs"] += lying - taken
        row["pinned"] = lying - taken if row["live"] else 0
    huge = (kinds == n["kind_huge"]) | (kinds == n["kind_huge_tail"])
    # The first slab of a run tells whether it holds a live block or waits for the thread that freed it.
    firsts = (kinds == n["kind_huge"]) & (np.arange(len(kinds)) % per_super == 0)
    run = np.maximum.accumulate(np.where(firsts, np.arange(len(kinds)), 0))
    waits = huge & (words[run] == 0)
    unused = (in_slabs & (words == 0)) | (kinds == n["kind_free"]) | waits
    ledger["empty"] = int(resident[unused].sum())
    ledger["huge"] = int(resident[huge & ~waits].sum())
    holes = kinds[::per_super] == n["kind_hole"]
    for mapping in maps:
        if live.is_metadata(mapping):
            ledger["metadata"] += mapping.resident
        elif not in_window(live, mapping, supers) or holes[(mapping.start - live.root["window"]) >> n["super_shift"]]:
            ledger["not_ours"] += mapping.resident
    snapshot["ledger"] = ledger | {"sum": sum(ledger.values()), "rss": sum(m.resident for m in maps)}
    snapshot["ledger_by"] = "books"
    return True


def in_window(live: Live, mapping: process.Mapping, supers: int) -> bool:
    return 0 <= mapping.start - live.root["window"] < supers << live.number["super_shift"]
