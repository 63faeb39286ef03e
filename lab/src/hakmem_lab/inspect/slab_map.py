"""The map of SuperSlabs in a running process: which slabs are used, by blocks of which size, and how full they are.

It is read from outside while the process runs, so a span may change during the look. Impossible rows (a span longer
than its SuperSlab, more used blocks than it has) are left out."""

from __future__ import annotations

from typing import Any

from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.arrays import column, np
from hakmem_lab.inspect.live import Allocator

KINDS = ("free", "in_slabs", "huge", "huge_tail", "hole")
MOST_SUPERS = 4096  # 8 GiB; a larger map shows little, and its descriptors are megabytes


def superslabs(live: Allocator) -> list[dict[str, Any]]:
    """One row per SuperSlab up to the frontier: kind, slabs, and its spans as [first slab, slabs, block size, live or
    cached blocks, all blocks]; `dirty`: unused slabs that may hold old data."""
    n = live.number
    supers = min(live.memory.word(live.root["frontier"]), MOST_SUPERS)
    if supers == 0 or "span_stride" not in n or "spans" not in live.root:
        return []
    per_super = 1 << n["super_shift"] - n["slab_shift"]
    names = {n["kind_" + name]: name for name in KINDS}
    kinds = ledger.super_kinds(live, supers)
    masks = _masks(live, supers)
    words, classes = ledger.slab_classes(live, supers * per_super)
    sizes = live.class_table("size", np.uint32)
    found = []
    for place in range(supers):
        row: dict[str, Any] = {"kind": names.get(int(kinds[place]), "unknown"), "slabs": per_super}
        if kinds[place] == n["kind_in_slabs"]:
            first = place * per_super
            there = slice(first, first + per_super)
            row["spans"] = _spans(live, first, words[there], classes[there], sizes)
            row["dirty"] = (int(masks[place]) >> per_super & int(masks[place]) & (1 << per_super) - 1).bit_count()
        found.append(row)
    return found


def _masks(live: Allocator, supers: int) -> Any:
    """The word of each SuperSlab: its unused slabs in the lower half, those with old data in the upper."""
    return column(live.rows("supers", "super_stride", supers), live.number["super_slabs"], np.uint64)


def _spans(live: Allocator, first: int, words: Any, classes: Any, sizes: Any) -> list[list[int]]:
    """The spans of one SuperSlab."""
    count = len(words)
    rows = live.rows("spans", "span_stride", count, first)

    def field(name: str, dtype: Any) -> Any:
        return column(rows, live.number["span_" + name], dtype).astype(np.int64)

    back, slabs, blocks = field("back", np.uint8), field("slabs", np.uint8), field("blocks", np.uint16)
    used = field("frontier", np.uint16) - field("free_count", np.uint16)
    found = []
    for slab in range(count):
        possible = back[slab] == 0 and 0 < slabs[slab] <= count - slab and 0 <= used[slab] <= blocks[slab]
        if words[slab] and classes[slab] >= 0 and possible:
            size = int(sizes[classes[slab]])
            found.append([slab, int(slabs[slab]), size, int(used[slab]), int(blocks[slab])])
    return found
