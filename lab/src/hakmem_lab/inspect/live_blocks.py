"""All live blocks of a process at once, as arrays, and their contents: the walk of blocks.py for a whole heap.

Every place of every span has a number, in the order of addresses; slots of samples and huge blocks come after them. The
owner map and the bitmaps are read before the caches, so a block that is freed meanwhile is found in one of them; one
that was in the allocator's hands all the time has the mark of free blocks as its first word. Pages without memory of
their own (never touched, returned, swapped) are neither read nor counted: a read would make the kernel map them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hakmem_lab.children import shutdown
from hakmem_lab.inspect import ledger, sampled_blocks
from hakmem_lab.inspect.arrays import column, np
from hakmem_lab.inspect.blocks import Blocks
from hakmem_lab.inspect.guarded_blocks import Hardened
from hakmem_lab.inspect.live import OWN, PRESENT, Allocator, Live
from hakmem_lab.target import process

BATCH = 32 << 20  # bytes of blocks at once
WORD = 8
STOP_S = 5.0


@dataclass
class Batch:
    """Live blocks of one size with their contents; bytes that no page holds are 0."""

    numbers: Any  # of the blocks
    starts: Any
    size: int  # of each row of `bytes`, up to where it may be used
    room: int  # of the block in memory
    index: int  # of the class; -1: a huge block
    asked: Any | None  # hardened mode: the bytes requested
    bytes: Any
    pages: Any  # by row: whether each page from the block's first one on is resident


class Heap:
    """One look at all live blocks."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator, self.memory = allocator, allocator.memory
        self.blocks = Blocks(allocator)
        self.page = allocator.page
        self.window_spans = 0
        self.unread = 0  # bytes of live blocks that could not be read
        self.in_hand = 0
        b, n = self.blocks, allocator.number
        self.per_super = b.super_size // b.slab_size
        self.sizes = np.array(b.sizes, np.int64)
        self.kinds = np.repeat(ledger.super_kinds(allocator, b.supers), self.per_super)
        words, classes = ledger.slab_classes(allocator, b.supers * self.per_super)
        self._spans(n, words, classes)
        self._live()
        self._huge(n)
        self.samples = sampled_blocks.read(allocator)
        if self.samples is not None and not b.hardened.on:
            self._slots(self.samples)

    # --- which blocks ---------------------------------------------------------------------------------------------

    def _spans(self, n: dict[str, int], words: Any, classes: Any) -> None:
        count = len(words)
        rows = self.allocator.rows("spans", "span_stride", count)

        def field(name: str, dtype: Any) -> Any:
            return column(rows, n["span_" + name], dtype).astype(np.int64)

        slabs, blocks, frontier = field("slabs", np.uint8), field("blocks", np.uint16), field("frontier", np.uint16)
        known = (self.kinds == n["kind_in_slabs"]) & (words != 0) & (classes >= 0) & (field("back", np.uint8) == 0)
        places = np.arange(count) % self.per_super
        known &= (slabs > 0) & (slabs <= self.per_super - places) & (frontier <= blocks)
        known &= field("class", np.uint16) == classes
        size = self.sizes[np.maximum(classes, 0)]
        known &= blocks * size <= slabs * self.blocks.slab_size
        first = np.flatnonzero(known)
        self.span_start = self.blocks.base + first * self.blocks.slab_size
        self.span_bytes = slabs[first] * self.blocks.slab_size
        self.span_class, self.span_size = classes[first], size[first]
        self.span_blocks, self.span_frontier = blocks[first], frontier[first]
        self.span_hardened = self.blocks.hardened.on & (field("keys", np.uint8)[first] == n["keys_hardened"])
        self.span_number = np.concatenate([[0], np.cumsum(self.span_frontier)]).astype(np.int64)
        self._free, self._remote = field("free", np.uint64)[first], field("remote", np.uint64)[first]
        self.chunks = np.zeros(0, np.int64)  # of sampled blocks outside of the window; their spans come last
        self.huge_start = self.huge_size = np.zeros(0, np.int64)
        self.span_of_slab = np.full(count, -1, np.int64)
        self.window_spans = len(first)
        for place, slab in enumerate(first.tolist()):
            self.span_of_slab[slab : slab + int(slabs[slab])] = place

    def _live(self) -> None:
        self.live = np.zeros(int(self.span_number[-1]), bool)
        bits = (self.span_blocks + 63) // 64 * WORD
        for i in range(len(self.span_start)):
            at, count = int(self.span_number[i]), int(self.span_frontier[i])
            if self.span_blocks[i] == 1 and not self.span_hardened[i]:
                self.live[at : at + count] = True  # the bits of a single-block span do not tell
                continue
            found = [self.memory.read_if_there(int(where), int(bits[i])) for where in (self._free[i], self._remote[i])]
            if found[0] is None or found[1] is None:
                continue  # it has ended meanwhile
            free = np.frombuffer(found[0], np.uint8) | np.frombuffer(found[1], np.uint8)
            self.live[at : at + count] = np.unpackbits(free, bitorder="little")[:count] == 0
        heaps = self.blocks.heaps
        held = [each for index in np.unique(self.span_class).tolist() for each in heaps.in_stacks(index)]
        held += [*heaps.in_outboxes(), *heaps.in_quarantines()]
        found_in = self.number_of(np.array(held, np.uint64))
        self.live[found_in[found_in >= 0]] = False

    def _huge(self, n: dict[str, int]) -> None:
        heads = np.flatnonzero(self.kinds[:: self.per_super] == n["kind_huge"])
        found = []
        for head in heads.tolist():
            area = self.blocks.at(self.blocks.base + head * self.blocks.super_size)
            if area.state == "live" and area.kind == "huge":
                found.append((area.start, area.asked or area.size or 0))
        self.huge_start = np.array([start for start, _ in found], np.int64)
        self.huge_size = np.array([size for _, size in found], np.int64)

    def _slots(self, samples: sampled_blocks.Samples) -> None:
        """Adds the chunks of slots, as spans of which only the sampled blocks are live."""
        starts = np.sort(samples.starts[samples.in_slots])
        sizes = dict(zip(samples.starts.tolist(), samples.asked.tolist(), strict=True))
        chunk = (starts - samples.slots) // sampled_blocks.CHUNK
        self.chunks, first = np.unique(chunk, return_index=True)
        self.chunks = self.chunks * sampled_blocks.CHUNK + samples.slots
        asked = np.array([sizes[each] for each in starts.tolist()], np.int64)
        most = np.maximum.reduceat(asked, first) if len(first) else asked
        index = self._class_of_chunk(starts, chunk, np.searchsorted(self.sizes, most), first)
        size = self.sizes[index]
        count, same = sampled_blocks.CHUNK // size, np.full(len(index), sampled_blocks.CHUNK)
        for name, more in (("start", self.chunks), ("bytes", same), ("class", index), ("size", size)):
            setattr(self, f"span_{name}", np.concatenate([getattr(self, f"span_{name}"), more]))
        self.span_blocks, self.span_frontier = (
            np.concatenate([each, count]) for each in (self.span_blocks, self.span_frontier)
        )
        self.span_hardened = np.concatenate([self.span_hardened, np.zeros(len(index), bool)])
        self.span_number = np.concatenate([[0], np.cumsum(self.span_frontier)]).astype(np.int64)
        self.live = np.concatenate([self.live, np.zeros(int(count.sum()), bool)])
        self.live[self.number_of(starts)] = True

    def _class_of_chunk(self, starts: Any, chunk: Any, least: Any, first: Any) -> Any:
        """The class of each chunk: the least one that serves its blocks, and of which all begin at a multiple. An
        aligned request may have a larger class than its size asks for."""
        found = []
        ends = [*first.tolist(), len(starts)][1:]
        for begin, end, index in zip(first.tolist(), ends, least.tolist(), strict=True):
            offsets = starts[begin:end] % sampled_blocks.CHUNK
            found.append(next(i for i in range(index, len(self.sizes)) if not (offsets % self.sizes[i]).any()))
        return np.array(found, np.int64)

    def number_of(self, addresses: Any) -> Any:
        """The numbers of the blocks in which these addresses lie; -1: in none, live or not."""
        addresses = addresses.astype(np.int64)
        offset = addresses - self.blocks.base
        span = np.full(len(offset), -1, np.int64)
        inside = (offset >= 0) & (offset < len(self.span_of_slab) * self.blocks.slab_size)
        span[inside] = self.span_of_slab[offset[inside] // self.blocks.slab_size]
        if len(self.chunks):
            at = np.searchsorted(self.chunks, addresses, side="right") - 1
            in_slots = (at >= 0) & (addresses - self.chunks[at] < sampled_blocks.CHUNK)
            span[in_slots] = self.window_spans + at[in_slots]
        found = np.full(len(offset), -1, np.int64)
        of_span = np.flatnonzero(span >= 0)
        span = span[of_span]
        place = (addresses[of_span] - self.span_start[span]) // self.span_size[span]
        there = place < self.span_frontier[span]
        found[of_span[there]] = self.span_number[span[there]] + place[there]
        if len(self.huge_start):
            at = np.searchsorted(self.huge_start, addresses, side="right") - 1
            huge = (at >= 0) & (addresses < (self.huge_start + self.huge_size)[at])
            found[huge] = len(self.live) + at[huge]
        return found

    @property
    def count(self) -> int:
        """One more than the last number."""
        return len(self.live) + len(self.huge_start)

    # --- pages ----------------------------------------------------------------------------------------------------

    def resident(self, start: int, size: int) -> Any:
        """Whether each page that the range touches has memory of its own. A core does not tell: there a page of zeros
        counts as never touched."""
        first, last = start // self.page, -(-(start + size) // self.page)
        if not isinstance(self.allocator, Live):
            content = self.memory.read_if_there(first * self.page, (last - first) * self.page)
            if content is None:
                return np.zeros(last - first, bool)
            return np.frombuffer(content, np.uint8).reshape(-1, self.page).any(axis=1)
        return self.allocator.page_entries(first, last) & PRESENT != 0

    # --- contents -------------------------------------------------------------------------------------------------

    def content(self, start: int, size: int) -> tuple[Any, Any]:
        """The bytes of a range, and which of its pages are resident. A zero page of the kernel's counts as none."""
        pages = self.resident(start, size).copy()
        first = start // self.page * self.page
        bytes_ = np.zeros(len(pages) * self.page, np.uint8)
        edges = np.flatnonzero(np.diff(np.concatenate([[0], pages.astype(np.int8), [0]])))
        most = BATCH // self.page
        runs = edges.reshape(-1, 2).tolist()
        for one, end in [(at, min(at + most, last)) for begin, last in runs for at in range(begin, last, most)]:
            found = self.memory.read_if_there(first + one * self.page, (end - one) * self.page)
            if found is None:
                pages[one:end] = False
                self.unread += (end - one) * self.page
            else:
                bytes_[one * self.page : end * self.page] = np.frombuffer(found, np.uint8)
        if isinstance(self.allocator, Live):
            own = self.allocator.page_entries(first // self.page, first // self.page + len(pages)) & OWN != 0
            pages &= own | bytes_.reshape(-1, self.page).any(axis=1)
        return bytes_[start - first : start - first + size], pages

    def batches(self) -> Iterator[Batch]:
        """All live blocks of the window with their contents."""
        order = np.argsort(self.span_class, kind="stable")
        for hardened in (False, True):
            for index in np.unique(self.span_class).tolist():
                spans = order[(self.span_class[order] == index) & (self.span_hardened[order] == hardened)]
                yield from self._of_class(index, spans, hardened)
        for i, (start, size) in enumerate(zip(self.huge_start.tolist(), self.huge_size.tolist(), strict=True)):
            content, pages = self.content(start, size // WORD * WORD)
            number = np.array([len(self.live) + i])
            yield Batch(number, np.array([start]), len(content), size, -1, None, content[None], pages[None])

    def _of_class(self, index: int, spans: Any, hardened: bool) -> Iterator[Batch]:
        size = int(self.sizes[index])
        room = self.blocks.hardened.room[index] if hardened else size
        wide = (size + self.page - 1) // self.page + 1  # pages that a block may touch
        held: list[tuple[Any, Any, Any, Any]] = []
        bytes_held = 0
        for i in spans.tolist():
            at, count, start = int(self.span_number[i]), int(self.span_frontier[i]), int(self.span_start[i])
            places = np.flatnonzero(self.live[at : at + count])
            if len(places) == 0:
                continue
            content, pages = self.content(start, count * size)
            first = places * size // self.page
            rows = content.reshape(count, size)[places]
            shown = np.concatenate([pages, np.zeros(wide, bool)])[first[:, None] + np.arange(wide)]
            key = self.blocks.freed_key
            if key:  # live by the tables, and with the mark of a free block
                passing = column(rows, 0, np.uint64) == np.uint64(key)
                self.in_hand += int(passing.sum())
                places, rows, shown = places[~passing], rows[~passing], shown[~passing]
                self.live[at : at + count] = False
                self.live[at + places] = True
            held.append((at + places, start + places * size, rows, shown))
            bytes_held += rows.size
            if bytes_held >= BATCH:
                yield self._batch(held, room, size, index, hardened)
                held, bytes_held = [], 0
        if held:
            yield self._batch(held, room, size, index, hardened)

    def _batch(self, held: list[tuple[Any, Any, Any, Any]], room: int, size: int, index: int, hardened: bool) -> Batch:
        numbers, starts, rows, shown = (np.concatenate(each) for each in zip(*held, strict=True))
        asked, used = None, size
        if hardened and self.blocks.hardened.canary:
            asked = asked_for(self.blocks.hardened, starts, rows, index)
            used = room - self.allocator.number["seal_size"]
            rows = np.where(np.arange(used) < asked[:, None], rows[:, :used], 0).astype(np.uint8)
        return Batch(numbers, starts, used // WORD * WORD, size, index, asked, rows[:, : used // WORD * WORD], shown)


def asked_for(hardened: Hardened, starts: Any, rows: Any, index: int) -> Any:
    """What each hardened block was asked for, by its seal; its whole room if the seal is broken."""
    end = hardened.room[index] - hardened.number["seal_size"]
    seal = column(rows, end, np.uint64)
    with np.errstate(over="ignore"):
        x = (starts.astype(np.uint64) ^ np.uint64(hardened.keys[0])) * np.uint64(hardened.keys[1])
    secret = x ^ x >> np.uint64(32)
    slack = ((seal ^ secret) >> np.uint64(hardened.number["seal_shift"])).astype(np.int64)
    return np.where((slack >= 0) & (slack <= end), end - slack, end)


@contextlib.contextmanager
def stopped(allocator: Allocator, wanted: bool) -> Iterator[None]:
    """Stops a running process for the time of the block, however that ends; one that is stopped already stays so."""
    pid = allocator.pid
    if not wanted or not isinstance(allocator, Live) or is_stopped(pid):
        yield
        return
    resume = f"import os, signal; os.kill({pid}, signal.SIGCONT)"
    with shutdown.otherwise({"command": [sys.executable, "-c", resume]}):
        try:
            with process.looked_at(pid):
                os.kill(pid, signal.SIGSTOP)
            until = time.monotonic() + STOP_S
            while not is_stopped(pid) and time.monotonic() < until:  # its threads are told one after another
                time.sleep(0.001)
            yield
        finally:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    return process.status_field(pid, "State")[:1] in ("T", "t")
