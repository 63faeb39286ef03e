"""Live memory that nobody has used for some time, found from outside and without privilege.

The kernel notes in the page tables which pages are used, and gives two ways to them: /proc/PID/clear_refs clears the
notes, and smaps counts the pages of a mapping that have one. A read from outside sets a page's note, too. So, when the
time is over, the pages of live blocks are read one unit after another: the count of the allocator's mappings rises by
those that nobody had used. Units are single pages, or equal runs where these would take `MOST_LOOKS` or `MOST_S`.

Of a page with several blocks one use is enough: small blocks beside a used one do not count as cold."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import PRESENT, SWAPPED, Live
from hakmem_lab.inspect.live_blocks import Heap
from hakmem_lab.target import process
from hakmem_lab.terminal.amounts import counted, in_bytes
from hakmem_lab.terminal.errors import LabError

ANONYMOUS, AND_FLUSH = "2", "4"  # the second also makes processors forget what they know of the notes
MOST_LOOKS, LEAST_LOOKS, MOST_S = 2000, 50, 15.0
MOMENTS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of the time, when the count is read meanwhile
DRIFT_LOOKS = 5
HUGE_PAGE = 2 << 20
STEP = 1 << 16
LINES = re.compile(rb"^(?:([0-9a-f]+)-[0-9a-f]+ |(Referenced|AnonHugePages):\s+(\d+) kB)", re.MULTILINE)


@dataclass
class Cold:
    """What was used, and what not."""

    seconds: float
    live_bytes: int = 0  # of live blocks in resident pages
    cold_bytes: int = 0  # of these, in pages that nobody used
    cold_pages: int = 0  # bytes of whole pages, with what else lies in them
    swapped: int = 0  # bytes of live blocks that were in swap already
    drift: int = 0  # bytes of pages that the program began to use during the looks, by those before the first
    looks: int = 0
    unit: int = 1  # pages
    look_seconds: float = 0.0
    huge: int = 0  # bytes in huge pages, which have one note each
    used: list[tuple[float, int]] = field(default_factory=list)  # seconds, bytes of pages used until then
    classes: list[tuple[int, int, int]] = field(default_factory=list)  # block size (0: huge), live bytes, cold bytes
    samples: dict[str, Any] = field(default_factory=dict)  # cold bytes of each sampled block; its age in seconds
    blocks: Any = None  # first and last address of each live block, its share that is cold


class Watch:
    """The notes of one process."""

    def __init__(self, live: Live) -> None:
        self.live, self.pid, self.huge = live, live.pid, 0
        n, window = live.number, live.root["window"]
        self.ranges = [range(window, window + (1 << n["window_shift"]))]
        if "slots_bytes" in n and (slots := live.memory.word(live.root["sample"] + n["slots_start"])):
            size = live.memory.word(live.root["sample"] + n["slots_bytes"])
            self.ranges.append(range(slots, slots + size))
        self.end = max(each.stop for each in self.ranges)

    def clear(self) -> None:
        try:
            for what in (ANONYMOUS, AND_FLUSH):
                (process.folder(self.pid) / "clear_refs").write_text(what)
        except PermissionError:
            raise process.refusal(self.pid) from None
        except OSError as error:
            if not process.exists(self.pid):
                raise process.ended(self.pid) from None
            raise LabError(f"this kernel keeps no notes of used pages: {error.strerror}") from None

    def used(self) -> int:
        """Bytes of the allocator's resident pages that were used since. Mappings come by address, and the kernel looks
        at the pages of those that are read."""
        total, ours, content = 0, False, b""
        self.huge = 0
        smaps = process.folder(self.pid) / "smaps"
        with process.looked_at(self.pid), smaps.open("rb", buffering=0) as file:
            while more := file.read(STEP):
                content += more
                whole, _, content = content.rpartition(b"\n")
                for start, what, size in LINES.findall(whole + b"\n"):
                    if start:
                        ours = any(int(start, 16) in each for each in self.ranges)
                        if int(start, 16) >= self.end:
                            return total
                    elif ours and what == b"Referenced":
                        total += int(size) << 10
                    elif ours:
                        self.huge += int(size) << 10
        return total

    def wait(self, seconds: float) -> Cold:
        """Clears the notes and waits, or until Ctrl-C."""
        self.clear()
        began = time.monotonic()
        found = Cold(seconds)
        with suppress(KeyboardInterrupt):
            for share in (*MOMENTS, 1.0):
                if not process.runs_until(self.pid, began + share * seconds):
                    raise process.ended(self.pid)
                found.used.append((time.monotonic() - began, self.used()))
        found.seconds, found.huge = time.monotonic() - began, self.huge
        return found


def watch(live: Live, seconds: float) -> tuple[Cold, Heap]:
    """What of the live memory nobody uses in this time, and the blocks at its end."""
    watched = Watch(live)
    found = watched.wait(seconds)
    heap = Heap(live)
    Search(heap, watched, found).run()
    return found, heap


class Search:
    """The look at the end of the time."""

    def __init__(self, heap: Heap, watched: Watch, found: Cold) -> None:
        self.heap, self.watched, self.found, self.page = heap, watched, found, heap.page
        spans = np.repeat(np.arange(len(heap.span_start)), heap.span_frontier)[heap.live]
        places = np.flatnonzero(heap.live) - heap.span_number[spans]
        starts = heap.span_start[spans] + places * heap.span_size[spans]
        self.starts = np.concatenate([starts, heap.huge_start])
        self.sizes = np.concatenate([heap.span_size[spans], heap.huge_size])
        self.classes = np.concatenate([heap.span_size[spans], np.zeros(len(heap.huge_start), np.int64)])

    def run(self) -> None:
        first, last = self.starts // self.page, (self.starts + np.maximum(self.sizes, 1) - 1) // self.page
        self.pages = pages_of(first, last)
        entries = self._entries()
        present = entries & PRESENT != 0
        began = time.monotonic()
        cold = np.zeros(len(self.pages))
        cold[present] = self._probe(self.pages[present])
        self.found.look_seconds = time.monotonic() - began
        self.found.cold_pages = round(float(cold.sum())) * self.page
        self._to_blocks(first, last, present, cold, entries & SWAPPED != 0)

    def _entries(self) -> Any:
        found = np.zeros(len(self.pages), np.uint64)
        breaks = np.flatnonzero(np.diff(self.pages) > 1) + 1
        for part in np.split(np.arange(len(self.pages)), breaks) if len(self.pages) else []:
            found[part] = self.watched.live.page_entries(int(self.pages[part[0]]), int(self.pages[part[-1]]) + 1)
        return found

    def _probe(self, pages: Any) -> Any:
        """Which of the resident pages nobody has used: 0, 1, or the share of its unit."""
        found = self.found
        cold = np.zeros(len(pages))
        began = time.monotonic()
        looks = [self.watched.used() for _ in range(DRIFT_LOOKS + 1)]
        each_s = max((time.monotonic() - began) / len(looks), 1e-6)
        most = max(min(MOST_LOOKS, int(MOST_S / each_s)), LEAST_LOOKS)
        found.unit = max(-(-len(pages) // most), 1)
        before, carried, former = looks[-1], 0, -1
        for at in range(0, len(pages), found.unit):
            unit = pages[at : at + found.unit]
            for page in unit.tolist():
                self.heap.memory.read_if_there(page * self.page, 1)
            now = self.watched.used()
            rise = max(now - before, 0) // self.page
            huge = int(unit[0]) * self.page // HUGE_PAGE
            carried = carried if huge == former else 0  # a huge page has one note for all of its pages
            mine = min(rise + carried, len(unit))
            carried = max(rise + carried - mine, 0) if rise >= HUGE_PAGE // self.page // 2 or carried else 0
            cold[at : at + found.unit] = mine / len(unit)
            before, former = now, huge
            found.looks += 1
        found.drift = round(max(looks[-1] - looks[0], 0) / DRIFT_LOOKS * found.looks)
        return cold

    def _to_blocks(self, first: Any, last: Any, present: Any, cold: Any, swapped: Any) -> None:
        """From pages to blocks: a block's bytes in its first and last page, and whole pages between them."""
        place = np.searchsorted(self.pages, first)
        end = place + last - first
        into = self.starts - first * self.page
        head = np.minimum(self.sizes, self.page - into)
        tail = np.where(end > place, self.starts + self.sizes - last * self.page, 0)

        def of(pages: Any) -> Any:
            sums = np.concatenate([[0.0], np.cumsum(pages.astype(float))])
            between = np.where(end > place, sums[end] - sums[np.minimum(place + 1, len(pages))], 0.0)
            return head * pages[place] + between * self.page + tail * pages[end]

        found = self.found
        if not len(self.starts):
            return
        live, idle = of(present), of(cold)
        found.live_bytes, found.cold_bytes = round(float(live.sum())), round(float(idle.sum()))
        in_swap = process.kilobytes(self.watched.pid, "VmSwap")  # guard pages have the same mark
        found.swapped = min(round(float(of(swapped).sum())), in_swap)
        for size in np.unique(self.classes).tolist():
            mine = self.classes == size
            found.classes.append((size, round(float(live[mine].sum())), round(float(idle[mine].sum()))))
        found.classes.sort(key=lambda each: -each[2])
        found.blocks = (self.starts, self.sizes, idle)
        samples = self.heap.samples
        if samples is not None:
            order = np.argsort(self.starts)
            at = order[np.minimum(np.searchsorted(self.starts[order], samples.starts), len(order) - 1)]
            found.samples["cold"] = np.where(self.starts[at] == samples.starts, idle[at], 0)
            now = np.uint32(time.monotonic_ns() // 1_000_000 & 0xFFFFFFFF)
            found.samples["age"] = (now - samples.born_ms).astype(np.uint32) / 1000


def pages_of(first: Any, last: Any) -> Any:
    """The numbers of all pages in these ranges, each once, in order."""
    if not len(first):
        return np.zeros(0, np.int64)
    order = np.argsort(first)
    first, last = first[order], np.maximum.accumulate(last[order])
    begins = np.concatenate([[True], first[1:] > last[:-1]])
    starts, ends = first[begins], np.concatenate([last[:-1][begins[1:]], last[-1:]])
    counts = ends - starts + 1
    return np.repeat(starts - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts) + np.arange(int(counts.sum()))


def says(found: Cold, name: str) -> list[str]:
    """The result in sentences."""
    share = 100 * found.cold_bytes / found.live_bytes if found.live_bytes else 0
    said = [
        f"{name}: {in_bytes(found.cold_bytes)} of {in_bytes(found.live_bytes)} in live blocks ({share:.0f} %) were "
        f"neither read nor written for {found.seconds:.0f} s."
    ]
    if found.huge:
        said.append(
            f"{in_bytes(found.huge)} lie in huge pages, of which the kernel notes a use as a whole: cold memory beside "
            "a used one does not show. HAKMEM_THP=never shows it."
        )
    if found.swapped:
        said.append(f"Another {in_bytes(found.swapped)} of them are in swap already.")
    if found.cold_bytes:
        said.append(
            f"Dropping the cold blocks would save {in_bytes(found.cold_bytes)}; zswap or madvise(MADV_COLD) could "
            f"take {in_bytes(found.cold_pages)} in whole pages, before compression."
        )
    said.append(
        f"{counted(found.looks, 'look')} at {counted(found.unit, 'page')} each took {found.look_seconds:.1f} s, in "
        f"which the program itself began to use about {in_bytes(found.drift)}: so much may wrongly count as cold."
    )
    said.append(
        "The kernel's notes of used pages were cleared and each cold page read once, so the kernel knows less about "
        "what to reclaim until the pages are used again."
    )
    return said
