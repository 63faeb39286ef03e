"""Heaps of a few blocks that are built here, for tests of what walks one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from hakmem_lab.inspect import waste
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import OWN, PRESENT, SWAPPED, Live
from hakmem_lab.inspect.live_blocks import Heap

PAGE, SLAB, BASE = 4096, 1 << 16, 1 << 40
SIZES = (16, 32, 64, 128, 256, 1024, 3072, 4096, 8192)
DATA, CODE, TYPE = 1 << 30, 1 << 33, 1 << 33 | 0x100
Blocks = dict[int, list[bytes | None]]


def word(value: int) -> bytes:
    return value.to_bytes(8, "little")


def filled(size: int, seed: int = 1) -> bytes:
    return np.random.default_rng(seed).integers(1, 255, size, np.uint8).tobytes()


class Process(Live):
    """A process with one window, whose first pages are resident up to the end of what was written."""

    def __init__(self) -> None:
        self.name, self.pid, self.root, self.number = "process 7", 7, {"metadata": BASE - SLAB}, {}
        self.content = {BASE: bytearray(), DATA: bytearray(PAGE)}
        self.touched: set[int] = set()
        self.swapped: set[int] = set()
        self.lost: set[int] = set()  # pages that cannot be read
        self.zero_pages: set[int] = set()  # the kernel's own
        self.read: list[int] = []
        self.memory = self  # type: ignore[assignment]

    @property
    def page(self) -> int:
        return PAGE

    def mapped_files(self) -> list[tuple[int, int, str]]:
        return [(CODE, CODE + 2 * PAGE, "/lib/it.so"), (CODE + 4 * PAGE, CODE + 5 * PAGE, "[heap]")]

    def page_entries(self, first: int, last: int) -> Any:
        def entry(page: int) -> int:
            present = PRESENT | (0 if page in self.zero_pages else OWN) if page in self.touched else 0
            return int(present | (SWAPPED if page in self.swapped else 0))

        return np.array([entry(page) for page in range(first, last)], np.uint64)

    def read_if_there(self, address: int, size: int) -> bytes | None:
        self.read.append(address)
        if any(page in self.lost for page in range(address // PAGE, (address + size - 1) // PAGE + 1)):
            return None
        start = max(each for each in self.content if each <= address)
        found = bytes(self.content[start][address - start : address - start + size])
        return found + bytes(size - len(found))

    def write(self, address: int, content: bytes) -> None:
        start = max(each for each in self.content if each <= address)
        at, held = address - start, self.content[start]
        held.extend(bytes(max(at + len(content) - len(held), 0)))
        held[at : at + len(content)] = content
        self.touch(address, len(content))

    def touch(self, address: int, size: int) -> None:
        self.touched |= set(range(address // PAGE, (address + size - 1) // PAGE + 1))


def built(blocks: Blocks, huge: Sequence[bytes] = ()) -> Any:
    """A heap with a span of one slab for each size; None is a free block."""
    heap: Any = object.__new__(Heap)
    child = Process()
    heap.allocator = heap.memory = child
    heap.page, heap.unread, heap.in_hand, heap.samples = PAGE, 0, 0, None
    heap.sizes = np.array(SIZES, np.int64)
    starts = [BASE + place * SLAB for place in range(len(blocks))]
    top = BASE + (len(blocks) + 64) * SLAB
    heap.blocks = SimpleNamespace(base=BASE, top=top, slab_size=SLAB, super_size=32 * SLAB, freed_key=0)
    heap.blocks.hardened = SimpleNamespace(on=False, canary=False, room=SIZES)
    heap.span_start = np.array(starts, np.int64)
    heap.span_bytes = np.full(len(blocks), SLAB)
    heap.span_size = np.array(list(blocks), np.int64)
    heap.span_class = np.array([SIZES.index(size) for size in blocks], np.int64)
    heap.span_frontier = np.array([len(each) for each in blocks.values()], np.int64)
    heap.span_hardened = np.zeros(len(blocks), bool)
    heap.span_number = np.concatenate([[0], np.cumsum(heap.span_frontier)]).astype(np.int64)
    heap.window_spans, heap.chunks = len(blocks), np.zeros(0, np.int64)
    heap.span_of_slab = np.arange(len(blocks))
    every = [content for each in blocks.values() for content in each]
    heap.live = np.array([content is not None for content in every], bool)
    for start, (size, contents) in zip(starts, blocks.items(), strict=True):
        for place, content in enumerate(contents):
            if content is not None:
                child.write(start + place * size, content)
    at = BASE + len(blocks) * SLAB
    heap.huge_start = np.array([at + place * 8 * SLAB for place in range(len(huge))], np.int64)
    heap.huge_size = np.array([len(each) for each in huge], np.int64)
    for start, content in zip(heap.huge_start.tolist(), huge, strict=True):
        child.write(start, content)
    return heap


def at(heap: Any, size: int, place: int = 0) -> int:
    """The address of a block."""
    return int(heap.span_start[heap.span_size.tolist().index(size)]) + place * size


def saved(heap: Any) -> dict[str, int]:
    """What blocks could save; between them there is more."""
    return {kind: size for kind, size in waste.find(heap).saved.items() if size and kind != "sparse"}


def pointing(heap: Any, size: int, place: int, target: int, column: int = 1) -> None:
    heap.memory.write(at(heap, size, place) + 8 * column, word(target))
