"""What an address belongs to: the area in which it lies and the areas beside it, from the library's own tables.

The order of questions is that of the library's crash report: which SuperSlab, which span, which bit, and for a block
whose bits do not tell, which stack, outbox or quarantine holds it. A block that is in none of them is live."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.address_ranges import AddressRange
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.guarded_blocks import Guarded, Hardened
from hakmem_lab.inspect.heap_contents import HeapContents
from hakmem_lab.inspect.live import Allocator
from hakmem_lab.terminal.errors import LabError

MOST_BACK = 16  # slabs per span
PAGE_OF_NULL = 4096
PURGED = "its pages went back to the system, except those that it shares with other blocks"
IN_HAND = "it has the mark of a free block: it was on its way to or from a cache, or the program wrote the same value"


@dataclass(frozen=True)
class Span:
    """A span's descriptor and bitmaps."""

    slab: int
    start: int
    end: int
    index: int  # of its class
    blocks: int
    frontier: int
    hardened: bool
    purged: bool
    free: int  # a bit for each block
    remote: int
    heap: int


class Blocks:
    """One look at an allocator. It reads everything only once, so a running process needs a new object for each
    look."""

    def __init__(self, allocator: Allocator) -> None:
        if "span_free" not in allocator.number:
            raise LabError(
                f"{allocator.name}: its library does not describe the layout of its blocks",
                "It is older than this lab.",
            )
        self.allocator, self.memory, self.number = allocator, allocator.memory, allocator.number
        self.heaps = HeapContents(allocator)
        self.hardened = Hardened(allocator)
        self.guarded = Guarded(allocator)
        self.freed_key = self.memory.word(allocator.root["freed_key"])
        self.sizes: list[int] = allocator.class_table("size", np.uint32).tolist()
        self.class_blocks: list[int] = allocator.class_table("blocks", np.uint16).tolist()
        self.base = allocator.root["window"]
        self.slab_size = 1 << self.number["slab_shift"]
        self.super_size = 1 << self.number["super_shift"]
        self.supers = self.memory.word(allocator.root["frontier"])
        self.top = self.base + self.supers * self.super_size
        self._kinds: Any = None
        self._spans: dict[int, Span | None] = {}

    # --- any address ----------------------------------------------------------------------------------------------

    def at(self, address: int) -> AddressRange:
        """The area in which an address lies."""
        guarded = self.guarded.at(address)
        if guarded:
            return guarded
        if self.allocator.root["metadata"] <= address < self.base:
            return self._table(address)
        if self.base <= address < self.top:
            return self._in_window(address)
        if self.top <= address < self.base + (1 << self.number["window_shift"]):
            return AddressRange(self.top, self.base + (1 << self.number["window_shift"]), "beyond")
        return self._foreign(address)

    def neighbours(self, area: AddressRange) -> tuple[AddressRange | None, AddressRange | None]:
        """The areas before and after it; None for memory that is not the allocator's."""
        if area.state in ("foreign", "tables", "beyond", "hole"):
            return None, None
        before, behind = self.at(area.start - 1), self.at(area.end)
        return (None if before.state in ("foreign", "tables") else before), behind

    def walk(self) -> Iterator[AddressRange]:
        """All areas of the window, by address."""
        at = self.base
        while at < self.top:
            area = self.at(at)
            yield area
            at = area.end

    def _table(self, address: int) -> AddressRange:
        root, n = self.allocator.root, self.number
        heap, _ = divmod(address - root["heaps"], n["heap_stride"])
        if 0 < heap <= self.heaps.last:
            start = self.heaps.address_of(heap)
            return AddressRange(start, start + n["heap_stride"], "tables", heap=heap, notes=(f"in heap {heap} itself",))
        return AddressRange(root["metadata"], self.base, "tables")

    def _foreign(self, address: int) -> AddressRange:
        file = self.allocator.file_at(address)
        near_null = address < PAGE_OF_NULL
        notes = ("it is NULL, or near it",) if near_null else (f"it is in {file}",) if file else ()
        return AddressRange(address, address + 1, "foreign", notes=notes)

    # --- SuperSlabs -----------------------------------------------------------------------------------------------

    def _kind(self, place: int) -> int:
        if self._kinds is None:
            self._kinds = ledger.super_kinds(self.allocator, self.supers)
        return int(self._kinds[place])

    def _super(self, place: int, name: str, form: str) -> int:
        n = self.number
        at = self.allocator.root["supers"] + place * n["super_stride"] + n["super_" + name]
        return int(struct.unpack("=" + form, self.memory.read(at, struct.calcsize("=" + form)))[0])

    def _in_window(self, address: int) -> AddressRange:
        place = (address - self.base) // self.super_size
        start = self.base + place * self.super_size
        kind, n = self._kind(place), self.number
        if kind == n["kind_in_slabs"]:
            return self._in_slabs(address, place)
        if kind in (n["kind_huge"], n["kind_huge_tail"]):
            return self._huge(address, place)
        if kind == n["kind_hole"]:
            return AddressRange(start, start + self.super_size, "hole", notes=self._foreign(address).notes)
        mapped = self._super(place, "mapped", "I")
        if address - start >= mapped:
            return AddressRange(start + mapped, start + self.super_size, "unmapped")
        dirty = self._super(place, "dirty", "I")
        said = f"its first {dirty} bytes may hold old data" if dirty else "its pages went back, or were never touched"
        return AddressRange(start, start + mapped, "free_superslab", notes=(said,))

    def _huge(self, address: int, place: int) -> AddressRange:
        n = self.number
        first = place
        while first > 0 and self._kind(first) == n["kind_huge_tail"]:
            first -= 1
        last = first + 1
        while last < self.supers and self._kind(last) == n["kind_huge_tail"]:
            last += 1
        start, end = self.base + first * self.super_size, self.base + last * self.super_size
        size, guard = self._super(first, "huge_bytes", "Q"), self._super(first, "guard", "I")
        word = self._owner(first * self.super_size // self.slab_size)
        live = word == n["huge_id"] << n["class_offset_bits"] | n["class_offset_huge"]
        if not live:
            said = "its addresses stay unused for a while" if self.hardened.on else "it waits for a request of its size"
            return AddressRange(start, end, "freed", kind="huge", size=size, notes=(said,))
        behind = f"after a live huge block of {size} bytes at {start:#x}"
        place = (address - self.base) // self.super_size
        mapped = self.base + place * self.super_size + self._super(place, "mapped", "I")
        if start + size + guard <= address < mapped:
            return AddressRange(start + size + guard, mapped, "huge_tail", notes=(behind,))
        if address >= start + size + guard:
            return AddressRange(max(start + size + guard, mapped), end, "unmapped", notes=(behind,))
        if address >= start + size:
            return AddressRange(start + size, start + size + guard, "guard", notes=(behind,))
        area = AddressRange(start, start + size, "live", kind="huge", size=size)
        return self.hardened.sealed_huge(area) if self._huge_is_sealed(first) else area

    def _huge_is_sealed(self, first: int) -> bool:
        n = self.number
        if not self.hardened.on or not self.hardened.canary or n["map_start_bound"] == 0:
            return False
        slab = first * self.super_size // self.slab_size
        return self.memory.half(self.allocator.root["map"] + slab * n["map_stride"] + n["map_start_bound"]) == 0

    # --- slabs ----------------------------------------------------------------------------------------------------

    def _owner(self, slab: int) -> int:
        return self.memory.half(
            self.allocator.root["map"] + slab * self.number["map_stride"] + self.number["map_owner"]
        )

    def _in_slabs(self, address: int, place: int) -> AddressRange:
        slab = (address - self.base) // self.slab_size
        if self._owner(slab) == 0:
            return self._without_owner(slab, place)
        span = self._span_of(slab)
        if span is None or not span.start <= address < span.end:
            start = self.base + slab * self.slab_size
            return AddressRange(start, start + self.slab_size, "changing")
        return self._in_span(span, address)

    def _without_owner(self, slab: int, place: int) -> AddressRange:
        """A run of slabs in the same state; or a claimed slab that has no span yet, or no longer has one."""
        per_super = self.super_size // self.slab_size
        word, here = self._super(place, "slabs", "Q"), slab % per_super
        start = self.base + place * self.super_size

        def state(i: int) -> tuple[int, int]:
            return word >> i & 1, word >> per_super + i & 1

        unused, dirty = state(here)
        if not unused:
            return AddressRange(start + here * self.slab_size, start + (here + 1) * self.slab_size, "changing")
        first = last = here
        while first > 0 and state(first - 1) == (unused, dirty):
            first -= 1
        while last + 1 < per_super and state(last + 1) == (unused, dirty):
            last += 1
        said = "they may hold old data" if dirty else "their pages went back, or were never touched"
        return AddressRange(
            start + first * self.slab_size, start + (last + 1) * self.slab_size, "unused_slabs", notes=(said,)
        )

    def _span_of(self, slab: int) -> Span | None:
        """The span in which a slab lies; None if its descriptor contradicts the owner map."""
        n = self.number
        first = slab
        for _ in range(MOST_BACK):
            if self._owner(first) & (1 << n["class_offset_bits"]) - 1 != n["class_offset_inner"] or first == 0:
                break
            first -= 1
        back_at = self.allocator.root["spans"] + first * n["span_stride"] + n["span_back"]
        first -= self.memory.read(back_at, 1)[0]
        if first not in self._spans:
            self._spans[first] = self._read_span(first)
        return self._spans[first]

    def _read_span(self, first: int) -> Span | None:
        n = self.number
        if first < 0:
            return None
        word = self._owner(first)
        index = self.allocator.class_of(word)
        row = self.memory.read(self.allocator.root["spans"] + first * n["span_stride"], n["span_stride"])
        blocks, frontier, own_index = (
            struct.unpack_from("=H", row, n["span_" + name])[0] for name in ("blocks", "frontier", "class")
        )
        slabs, doubted = row[n["span_slabs"]], row[n["span_keys"]]
        per_super = self.super_size // self.slab_size
        fits = 0 < slabs <= per_super - first % per_super and frontier <= blocks and own_index == index
        if word == 0 or index >= n["class_count"] or not fits or blocks > slabs * self.slab_size // n["block_align"]:
            return None
        free, remote = (struct.unpack_from("=Q", row, n["span_" + name])[0] for name in ("free", "remote"))
        start = self.base + first * self.slab_size
        return Span(
            slab=first,
            start=start,
            end=start + slabs * self.slab_size,
            index=index,
            blocks=blocks,
            frontier=frontier,
            purged=bool(row[n["span_purged"]]),
            hardened=self.hardened.on and doubted == n["keys_hardened"],
            free=self._bits(free, blocks),
            remote=self._bits(remote, blocks),
            heap=word >> n["class_offset_bits"] & n["heap_id_mask"],
        )

    def _bits(self, at: int, blocks: int) -> int:
        return int.from_bytes(self.memory.read(at, (blocks + 63) // 64 * 8), "little")

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _in_span(self, span: Span, address: int) -> AddressRange:
        size = self.sizes[span.index]
        place = (address - span.start) // size
        if place < span.blocks:
            area = self._block(span, place, size)
            if address < area.end:
                return area
        page = self.allocator.page
        if span.hardened and self.hardened.guards and address >= span.end - page:
            return AddressRange(
                span.end - page, span.end, "guard", notes=(f"at the end of a span of {size}-byte blocks",)
            )
        end = span.end - (page if span.hardened and self.hardened.guards else 0)
        said = f"of {span.blocks} blocks of {size} bytes from {span.start:#x} on"
        return AddressRange(span.start + span.blocks * size, end, "tail", heap=span.heap, notes=(said,))

    def _block(self, span: Span, place: int, size: int) -> AddressRange:
        start = span.start + place * size
        state, holder = self._state(span, place, start)
        area = AddressRange(
            start,
            start + (self.hardened.room[span.index] if span.hardened else size),
            state,
            kind="hardened" if span.hardened else "",
            size=size,
            class_index=span.index,
            heap=span.heap,
            holder=holder,
            span={
                "start": span.start,
                "bytes": span.end - span.start,
                "blocks": span.blocks,
                "frontier": span.frontier,
                "place": place,
            },
        )
        if state == "in_span" and self._has_gone(span, place, size):
            area = area.noting(PURGED)
        return self._hardened(span, area) if span.hardened else self._marked(area)

    def _state(self, span: Span, place: int, start: int) -> tuple[str, int | None]:
        """The state of a block and the heap that holds it."""
        if place >= span.frontier:
            return "never", None
        if span.blocks > 1 or span.hardened:  # the bits of a single-block span do not tell
            if span.free >> place & 1:
                return "in_span", None
            if span.remote >> place & 1:
                return "freed_by_another", None
        stacks = "kept" if span.index >= self.number["first_large"] else "cached"
        for state, held in (
            (stacks, self.heaps.in_stacks(span.index)),
            ("outbox", self.heaps.in_outboxes()),
            ("quarantined", self.heaps.in_quarantines()),
        ):
            if start in held:
                return state, held[start]
        return "live", None

    def _has_gone(self, span: Span, place: int, size: int) -> bool:
        """Whether a free block lies in pages that were returned: those that only free blocks cover."""
        first = last = place
        while span.purged and first > 0 and span.free >> first - 1 & 1:
            first -= 1
        while span.purged and span.free >> last + 1 & 1:
            last += 1
        page = self.allocator.page
        start, end = -(first * size // -page) * page, (last + 1) * size // page * page
        return span.purged and max(start, place * size) < min(end, (place + 1) * size)

    def _first_word(self, area: AddressRange) -> int | None:
        found = self.memory.read_if_there(area.start, 8)
        return None if found is None else int.from_bytes(found, "little")

    def _marked(self, area: AddressRange) -> AddressRange:
        """A block that is live by the tables may be passing through the allocator at this moment."""
        if area.state == "live" and self.freed_key and self._first_word(area) == self.freed_key:
            return area.noting(IN_HAND)
        return area

    def _hardened(self, span: Span, area: AddressRange) -> AddressRange:
        mark = self.hardened.mark(area, span.index)
        if area.state == "live":
            in_hand = mark == self.freed_key
            return area.noting(IN_HAND) if in_hand else self.hardened.sealed(area, span.index)
        if area.state == "in_span" and mark == self.hardened.never_key:
            return replace(area, state="never")
        return area if area.state == "never" else self.hardened.clear(area, span.index)
