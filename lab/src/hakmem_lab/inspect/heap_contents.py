"""Which heap holds a free block that is not in its span: the stacks of caches, the outboxes, the quarantines."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hakmem_lab.inspect.live import WHOLE_WORD, Allocator

Held = dict[int, int]  # the heap that holds a block, by the block's address


@dataclass(frozen=True)
class Heap:
    """One heap, its state and its thread."""

    id: int
    state: str  # "active", "parked", "lost", or "new"
    busy: str
    thread: int | None

    def says(self) -> str:
        words = [f"heap {self.id}", self.state]
        if self.thread is not None:
            words.append(f"of thread {self.thread}")
        if self.busy:
            words.append(self.busy)
        return ", ".join(words)


class HeapContents:
    """All heaps of an allocator, and the free blocks in them."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator = allocator
        self.memory = allocator.memory
        self.number = allocator.number
        self.last = self.memory.half(allocator.root["heap_last"])
        self.threads = self._threads()
        self._in_stacks: dict[int, Held] = {}
        self._in_outboxes: Held | None = None
        self._in_quarantines: Held | None = None

    def address_of(self, heap: int) -> int:
        return self.allocator.root["heaps"] + heap * self.number["heap_stride"]

    def ids(self) -> list[int]:
        return [
            heap
            for heap in range(1, self.last + 1)
            if self.memory.half(self.address_of(heap) + self.number["heap_state"]) != 0
        ]

    def heap(self, heap: int) -> Heap | None:
        """The heap with this number; None if there is none."""
        if not 0 < heap <= self.last:
            return None
        n, at = self.number, self.address_of(heap)
        states = {n["state_active"]: "active", n["state_parked"]: "parked", n["state_unusable"]: "lost by a fork"}
        state = self.memory.half(at + n["heap_state"])
        lock = self.memory.half(at + n["heap_lock"])
        busy = "locked by another thread" if lock & n["lock_sweeper"] else "inside a slow path"
        return Heap(
            heap,
            states.get(state, "new"),
            busy if lock not in (0, n["lock_lost"]) else "",
            self.threads.get(heap) if state == n["state_active"] else None,
        )

    def _threads(self) -> dict[int, int]:
        """The thread of each heap, if thread pointers are known: a heap lies at the sentinel plus the thread's word."""
        allocator, n = self.allocator, self.number
        found = {}
        for thread, pointer in allocator.threads().items():
            place = pointer + allocator.root["thread_word"] & WHOLE_WORD
            word = int.from_bytes(self.memory.read_if_there(place, 8) or b"", "little")
            heap = allocator.root["sentinel"] + word & WHOLE_WORD
            index, rest = divmod(heap - allocator.root["heaps"], n["heap_stride"])
            if rest == 0 and 0 < index <= self.last:
                found[index] = thread
        return found

    # --- what lies in them ----------------------------------------------------------------------------------------

    def in_stacks(self, index: int) -> Held:
        """The cached blocks of a class: the used part of each real stack, without NULLs."""
        if index not in self._in_stacks:
            found: Held = {}
            for heap in self.ids():
                for block in self._stack(self.address_of(heap), index):
                    found[block] = heap
            found.pop(0, None)
            self._in_stacks[index] = found
        return self._in_stacks[index]

    def _stack(self, heap: int, index: int) -> tuple[int, ...]:
        n, memory = self.number, self.memory
        at = heap + n["heap_classes"] + index * n["heap_class_stride"]
        row = memory.read(at, n["heap_class_stride"])
        bottom = struct.unpack_from("=Q", row, n["heap_class_bottom"])[0]
        if memory.read(heap + n["heap_closed"] + index, 1)[0]:
            top = struct.unpack_from("=Q", row, n["heap_class_hidden"] + n["bin_top"])[0]
        else:
            top = memory.word(heap + n["heap_bins"] + index * n["bin_stride"] + n["bin_top"])
        count = (top - bottom) // 8
        ceiling = struct.unpack_from("=H", row, n["heap_class_ceiling"])[0]
        return memory.words(bottom, count) if bottom and 0 < count <= ceiling else ()

    def in_outboxes(self) -> Held:
        """The blocks that were freed for other heaps and are not yet published."""
        if self._in_outboxes is None:
            self._in_outboxes = {}
            n = self.number
            for heap in self.ids():
                rows = self.memory.read(
                    self.address_of(heap) + n["heap_outbox"], n["bucket_count"] * n["bucket_stride"]
                )
                for i in range(n["bucket_count"]):
                    row = rows[i * n["bucket_stride"] : (i + 1) * n["bucket_stride"]]
                    for block in self._bucket(row):
                        self._in_outboxes[block] = heap
        return self._in_outboxes

    def _bucket(self, row: bytes) -> tuple[int, ...]:
        n = self.number
        slab = struct.unpack_from("=I", row, n["bucket_slab"])[0]
        count = struct.unpack_from("=H", row, n["bucket_blocks"])[0]
        taken = struct.unpack_from("=H", row, n["bucket_taken"])[0]
        if slab == 0 or not taken < count <= n["bucket_room"]:
            return ()
        return struct.unpack_from(f"={count - taken}Q", row, n["bucket_list"] + 8 * taken)

    def in_quarantines(self) -> Held:
        """Hardened mode: the blocks that wait before they are reused."""
        if self._in_quarantines is None:
            found: Held = {}
            n, memory = self.number, self.memory
            for heap in self.ids():
                at = memory.word(self.address_of(heap) + n["heap_quarantine"])
                if at:
                    blocks = memory.words(at + n["quarantine_mixed"], n["quarantine_mixed_count"])
                    blocks += memory.words(at + n["quarantine_queue"], n["quarantine_queue_count"])
                    found |= dict.fromkeys(blocks, heap)
            found.pop(0, None)
            self._in_quarantines = found
        return self._in_quarantines
