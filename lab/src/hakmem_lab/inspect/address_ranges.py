"""The areas that `hakmem block` distinguishes: every address lies in exactly one, a block or something else, and the
areas before and after it are its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

# The words for each state. BLOCKS are blocks that the program has had or may get; PLACES are everything else.
BLOCKS = {
    "live": "live",
    "cached": "free, ready in the cache of heap {holder}",
    "kept": "free, kept in the large cache of heap {holder}",
    "outbox": "free, in the outbox of heap {holder}, which freed it and has not returned it yet",
    "freed_by_another": "free, freed by another thread and not yet collected by its heap",
    "quarantined": "free, in the quarantine of heap {holder}",
    "in_span": "free in its span",
    "freed": "freed",
    "never": "never handed out",
}
PLACES = {
    "tail": "after the last block of a span",
    "guard": "in a guard page",
    "huge_tail": "after a huge block, in pages that an earlier one used",
    "slack": "in a sampled block's pages, beside the block",
    "changing": "in a slab that is changing hands",
    "unused_slabs": "in unused slabs",
    "free_superslab": "in a free SuperSlab",
    "unmapped": "in unmapped memory of the window",
    "hole": "in a hole of the window: another library's mapping",
    "beyond": "beyond all memory that the allocator has taken so far",
    "tables": "in the allocator's own tables",
    "sample_range": "in the range of sampled blocks, where none lies",
    "foreign": "not from this allocator",
    "unread": "in memory that cannot be read here",
}
LIVE = ("live",)
FREE = ("cached", "kept", "outbox", "freed_by_another", "quarantined", "in_span", "freed")


@dataclass(frozen=True)
class AddressRange:
    """A range of addresses in one state."""

    start: int
    end: int
    state: str
    kind: str = ""  # of a block: "", "huge", "sampled", "zero-size", "hardened"
    size: int | None = None  # of a block: its usable bytes
    asked: int | None = None  # bytes requested, if known
    class_index: int | None = None
    heap: int | None = None  # that owns the block
    holder: int | None = None  # that holds the block, if free
    span: dict[str, int] | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_block(self) -> bool:
        return self.state in BLOCKS

    def noting(self, *notes: str) -> AddressRange:
        return replace(self, notes=(*self.notes, *notes))

    def says(self) -> str:
        """A description of the area without its addresses."""
        if not self.is_block:
            return PLACES[self.state]
        state = BLOCKS[self.state].format(holder=self.holder)
        kind = f"{self.kind} " if self.kind else ""
        return f"{kind}block of {self.size} bytes, {state}"

    def as_json(self) -> dict[str, Any]:
        """All that is known of it; addresses as in the text."""
        found: dict[str, Any] = {
            "state": self.state,
            "start": hex(self.start),
            "end": hex(self.end),
            "says": self.says(),
        }
        for name in ("kind", "size", "asked", "class_index", "heap", "holder", "span"):
            value = getattr(self, name)
            if value not in (None, ""):
                found[name] = value
        if self.span:
            found["span"] = self.span | {"start": hex(self.span["start"])}
        if self.notes:
            found["notes"] = list(self.notes)
        return found
