"""Why a process's memory is as large as it is: one verdict, its evidence, and the next command.

growth         live memory grows, and pointers lead to the new blocks
leak           live memory grows, and no pointer leads to many blocks
fragmentation  free bytes between live blocks
retention      unused memory that waits for use or for its return
cache          free blocks that lie ready in threads' caches
elsewhere      not the allocator's memory: code, stacks, mappings of the program's own
live           the program uses what it has; waste and cold say how well"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import Live
from hakmem_lab.inspect.live_blocks import WORD, Heap
from hakmem_lab.target import process
from hakmem_lab.terminal.amounts import counted, in_bytes
from hakmem_lab.terminal.errors import LabError

LOOKS = 11
LEAK = 0.1  # of live bytes in blocks to which no pointer leads
GROWS = 0.001  # of live memory in the time, in most of the looks
LARGE = 0.2  # a part of resident memory beside which live blocks are not the reason,
LEAST = 4 << 20  # if it has as many bytes: any process has some of code and stacks
CHUNK = 16 << 20
PARTS = {
    "fragmentation": ("free_in_slabs", "frontier_slack"),
    "retention": ("empty",),
    "cache": ("cached",),
    "elsewhere": ("not_ours", "metadata"),
}


@dataclass
class Course:
    """Looks at a process: seconds, and the ledger of each."""

    times: list[float] = field(default_factory=list)
    ledgers: list[dict[str, int]] = field(default_factory=list)
    classes: list[dict[int, int]] = field(default_factory=list)  # live bytes by block size

    def live(self) -> list[int]:
        return [sum(each.values()) for each in self.classes]


@dataclass(frozen=True)
class Verdict:
    word: str
    said: str
    next: str


def look(live: Live, seconds: float) -> Course:
    """Looks at the process at equal times; until now at Ctrl-C."""
    found, began = Course(), time.monotonic()
    with suppress(KeyboardInterrupt):
        for i in range(LOOKS):
            if not process.runs_until(live.pid, began + seconds * i / (LOOKS - 1)):
                raise process.ended(live.pid)
            snapshot = live.snapshot()
            if not ledger.add(live, snapshot):
                raise LabError(f"{live.name} has too large a heap to look at every page")
            found.times.append(time.monotonic() - began)
            found.ledgers.append(snapshot["ledger"])
            sizes = {row["size"]: row["live"] * row["size"] for row in snapshot["classes"]}
            found.classes.append(sizes | {0: snapshot["bytes"].get("huge", 0)})
    if not found.times:
        raise KeyboardInterrupt
    return found


def lost(live: Live) -> tuple[int, int]:
    """(blocks, bytes) to which nothing leads in two walks, and whose contents are the same in both: in a program that
    moves its pointers meanwhile, one walk may miss some."""
    first, second = unreferenced(Heap(live)), unreferenced(Heap(live))
    kept = [second[at][0] for at, each in first.items() if second.get(at) == each]
    return len(kept), sum(kept)


def unreferenced(heap: Heap) -> dict[int, tuple[int, int]]:
    """Size and sum of the words of each block to which no word leads that lies in another block, a stack or the
    program's data, by address. A block that only a register holds counts, too; of a lost list only the first does."""
    pointed = np.zeros(heap.count, bool)
    found: list[tuple[Any, Any, Any, int]] = []

    def note(words: Any, numbers: Any = None) -> None:
        """`numbers`: of the blocks that have equal parts of the words; a pointer to its own block does not count."""
        for at in range(0, len(words), CHUNK // WORD):
            some = words[at : at + CHUNK // WORD]
            to = heap.number_of(some)
            known = to >= 0
            if numbers is not None:
                known &= to != numbers[np.arange(at, at + len(some)) * len(numbers) // len(words)]
            pointed[to[known]] = True

    for batch in heap.batches():
        words = np.ascontiguousarray(batch.bytes).view(np.uint64)
        note(words.ravel(), batch.numbers)
        found.append((batch.numbers, batch.starts, words.sum(axis=1, dtype=np.uint64), batch.room))
    root = heap.allocator.root
    for each in process.mappings(heap.allocator.pid):
        ours = root["metadata"] <= each.start < heap.blocks.top or each.path in ("[vvar]", "[vsyscall]")
        if ours or not each.permissions.startswith("rw"):
            continue
        for start in range(each.start, each.end, CHUNK):
            size = min(CHUNK, each.end - start)
            pages = heap.resident(start, size)
            if pages.any() and not is_of_samples(heap, start):
                content = heap.content(start, size)[0]
                note(content[: len(content) // WORD * WORD].view(np.uint64))
    return {
        int(start): (size, int(total))
        for numbers, starts, sums, size in found
        for start, total in zip(starts[~pointed[numbers]], sums[~pointed[numbers]], strict=True)
    }


def is_of_samples(heap: Heap, address: int) -> bool:
    """Whether the address belongs to the profile's slots, or to its records behind them."""
    return heap.samples is not None and heap.samples.slots <= address < heap.samples.end


def judge(course: Course, without: tuple[int, int], pid: int) -> Verdict:
    """The verdict from the looks, and the blocks to which nothing leads."""
    last, live = course.ledgers[-1], course.live()
    rss = max(last["rss"], 1)
    steps = np.diff(live)
    grown = live[-1] - live[0]
    span = course.times[-1] - course.times[0]
    blocks, bytes_ = without
    held = last.get("live", 0) + last.get("huge", 0)
    said = f"{in_bytes(rss)} are resident, of which {in_bytes(held)} are live blocks"
    said += f"; live memory changed by {in_bytes(grown)} in {span:.0f} s."
    nothing = f" No pointer leads to {counted(blocks, 'block')} of {in_bytes(bytes_)}." if blocks else ""
    if len(steps) and grown > max(GROWS * live[-1], 4096) and (steps >= 0).mean() >= 0.7:
        first, most = course.classes[0], course.classes[-1]
        size = max(most, key=lambda each: most[each] - first.get(each, 0))
        of = f"blocks of {size} bytes" if size else "huge blocks"
        rate = in_bytes(grown / max(span, 0.001) * 3600)
        said += f" That is {rate} an hour, most of it in {of}."
        if bytes_ > LEAK * live[-1]:
            return Verdict("leak", said + nothing, NEXT["leak"])
        return Verdict("growth", said + nothing, NEXT["growth"].format(pid=pid))
    if bytes_ > LEAK * live[-1] and bytes_ > LARGE / 2 * rss:
        return Verdict("leak", said + nothing, NEXT["leak"])
    parts = {word: sum(last.get(name, 0) for name in names) for word, names in PARTS.items()}
    word = max(parts, key=lambda each: parts[each])
    if parts[word] > LARGE * rss and parts[word] > LEAST:
        return Verdict(word, f"{said} {because(word, parts[word])}", NEXT[word].format(pid=pid))
    return Verdict("live", f"{said} Nothing else is large.", f"hakmem waste {pid}, then hakmem cold {pid} --for 10m")


def because(word: str, size: int) -> str:
    what = {
        "fragmentation": "are free bytes of spans that other blocks keep in use",
        "retention": "are unused memory that waits for use or for its return",
        "cache": "are free blocks that lie ready in the threads' caches",
        "elsewhere": "are not blocks: code, stacks, the program's own mappings, tables",
    }
    return f"{in_bytes(size)} {what[word]}."


NEXT = {
    "leak": "hakmem leaks -- PROGRAM, which names the stacks at the program's end",
    "growth": "hakmem profile {pid} --seconds 60, which names the stacks that keep it",
    "fragmentation": "hakmem waste {pid}, which counts sparse spans; hakmem stats --map {pid} shows where they are",
    "retention": "HAKMEM_RETURN=5% in the environment, or hak_collect() in the program",
    "cache": "a smaller HAKMEM_THREAD_BUDGET, or fewer threads; hakmem stats {pid} says of which sizes",
    "elsewhere": "/proc/{pid}/smaps, since no allocator changes it",
}
