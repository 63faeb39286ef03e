"""The ledger of resident memory from outside: what each resident byte of a process is to the allocator.

Resident pages come from /proc/PID/pagemap, the use of each slab from the library's owner map, both read while the
process runs. A span's resident bytes are divided by its counters: the bytes of live and of cached blocks count as
theirs, the rest as free. The library's own ledger (HAKMEM_STATS_LEDGER=1) looks at each block instead."""

from __future__ import annotations

from typing import Any

from hakmem_lab.inspect.arrays import column, np
from hakmem_lab.inspect.live import PRESENT, Allocator, Live
from hakmem_lab.target import process

MOST_BYTES = 64 << 30  # of a heap; in a larger one, looking at every page takes too long
CHUNK = 1 << 20  # entries of pagemap at once


def slab_residents(live: Live, supers: int, maps: list[process.Mapping]) -> Any:
    """The resident bytes of each slab of the window."""
    page, slab = live.page, 1 << live.number["slab_shift"]
    base, size = live.root["window"], supers << live.number["super_shift"]
    pages = np.zeros(size // page, bool)
    for mapping in maps:
        end = (min(mapping.end, base + size) - base) // page
        for first in range((max(mapping.start, base) - base) // page, end, CHUNK):
            last = min(first + CHUNK, end)
            pages[first:last] = live.page_entries(base // page + first, base // page + last) & PRESENT != 0
    return pages.reshape(-1, slab // page).sum(axis=1) * page


def slab_classes(live: Allocator, slabs: int) -> tuple[Any, Any]:
    """The owner word of each slab, and the class of its span (-1: none)."""
    n = live.number
    words = column(live.rows("map", "map_stride", slabs), n["map_owner"], np.uint32)
    code = (words & np.uint32((1 << n["class_offset_bits"]) - 1)).astype(np.int64) // n["class_offset_unit"]
    classes = np.where((words != 0) & (code < n["class_count"]), code, -1)
    # The inner slabs of a single-block span have their own code; they belong to the slab before them.
    inner = (words != 0) & (code >= n["class_count"])
    places = np.where(inner, 0, np.arange(slabs))
    return words, np.where(inner, classes[np.maximum.accumulate(places)], classes)


def super_kinds(live: Allocator, supers: int) -> Any:
    return column(live.rows("supers", "super_stride", supers), live.number["super_kind"], np.uint32)


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
    guarded, slots, tables = sampled_ranges(live)
    sampled = {"guarded": 0, "slots": 0}
    for mapping in maps:
        if mapping.start in guarded:
            sampled["guarded"] += mapping.resident
        elif mapping.start in slots:
            sampled["slots"] += mapping.resident
        elif mapping.start in tables or live.is_metadata(mapping):
            ledger["metadata"] += mapping.resident
        elif not in_window(live, mapping, supers) or holes[(mapping.start - live.root["window"]) >> n["super_shift"]]:
            ledger["not_ours"] += mapping.resident
    # A block with guard pages counts with these, so its bytes are none of a slot's.
    blocks = live.memory.words(live.root["sampled"], 2)[1] if "sampled" in live.root else 0
    in_slots = min(max(blocks - sampled["guarded"], 0), sampled["slots"])
    ledger["live"] += sampled["guarded"] + in_slots
    ledger["free_in_slabs"] += sampled["slots"] - in_slots
    snapshot["ledger"] = ledger | {"sum": sum(ledger.values()), "rss": sum(m.resident for m in maps)}
    snapshot["ledger_by"] = "books"
    return True


def sampled_ranges(live: Live) -> list[range]:
    """Where sampled blocks with guard pages lie, those in slots of classes, and the tables behind the slots."""
    if "store_end" not in live.number:  # an older library
        return [range(0)] * 3
    names = ("sample_start", "sample_bytes", "slots_start", "slots_bytes", "store_end")
    start, size, slots, slots_size, end = (
        live.memory.word(live.root["sample"] + live.number[name]) for name in names
    )
    return [range(start, start + size), range(slots, slots + slots_size), range(slots + slots_size, end)]


def in_window(live: Live, mapping: process.Mapping, supers: int) -> bool:
    return 0 <= mapping.start - live.root["window"] < supers << live.number["super_shift"]
