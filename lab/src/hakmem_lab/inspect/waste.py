"""The memory of live blocks that could be saved, by kind. Each byte counts at most once, in the first kind that has it,
and only if it has a page of its own: what was never touched costs nothing.

  zero      blocks that hold nothing but zeros
  equal     blocks whose contents another block of the same size has too: all but one of each; text ends at its 0
  tail      zeros behind the last byte in use, as far as a smaller block would do; blocks from TAIL_FROM on of which at
            least a quarter is unused, since in small ones trailing zeros are fields
  joined    a small block all of whose pointers lead into one block, to which no other block points: as one block they
            would do without the pointer, which is counted, and often with less rounding, which is not
  rounding  what size classes add to requests; only where requests are known (hardened mode, samples)
  sparse    free but resident bytes of spans that are less than a quarter live"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.block_types import Types, text_ends
from hakmem_lab.inspect.live_blocks import WORD, Batch, Heap
from hakmem_lab.terminal.amounts import counted, in_bytes

KINDS = ("zero", "equal", "tail", "joined", "rounding", "sparse")
MEANINGS = {
    "zero": "blocks of zeros only",
    "equal": "copies: blocks with the contents of another",
    "tail": "unused ends of blocks",
    "joined": "pointers of small blocks that could be part of the one they point to",
    "rounding": "what size classes add to requests",
    "sparse": "free bytes between few live blocks",
}
TAIL_FROM = 256
SMALL = 128  # bytes of a block that could be joined with another
SPARSE = 4  # a span of which less than this part is live
EXAMPLE, FREQUENT = 40, 8


@dataclass
class Group:
    """Blocks of one size that hold the same kind of thing."""

    size: int  # of each; 0: huge blocks, of any size
    type: str
    blocks: int = 0
    bytes: int = 0
    saved: dict[str, int] = field(default_factory=dict)
    example: str = ""  # the text that most of the copies have

    @property
    def total(self) -> int:
        return sum(self.saved.values())


@dataclass
class Waste:
    """All groups, and what the figures leave out."""

    groups: list[Group]
    saved: dict[str, int]
    live_bytes: int
    live_blocks: int
    resident: int  # bytes of live blocks with pages of their own
    rounding_most: int  # where requests are not known
    unread: int
    in_hand: int
    samples: dict[str, Any] = field(default_factory=dict)  # by kind: what each sampled block could save

    @property
    def total(self) -> int:
        return sum(self.saved.values())


def find(heap: Heap) -> Waste:
    return Search(heap).run()


class Search:
    """One search through all live blocks."""

    def __init__(self, heap: Heap) -> None:
        self.heap, self.types = heap, Types(heap)
        self.sums: dict[tuple[int, int], list[int]] = {}
        self.saved: dict[tuple[int, int], dict[str, int]] = {}
        self.examples: dict[tuple[int, int], tuple[int, str]] = {}
        self.pointed_at = np.zeros(heap.count, np.uint32)
        self.to_join: list[tuple[Any, Any, int, Any]] = []
        self.resident = self.bytes = self.rounding_most = 0
        self.sampled = heap.number_of(heap.samples.starts) if heap.samples is not None else np.zeros(0, np.int64)
        self.of_samples = {kind: np.zeros(len(self.sampled)) for kind in KINDS[:-1]}

    def run(self) -> Waste:
        held: list[_Looked] = []
        for batch in self.heap.batches():
            if held and held[0].batch.index != batch.index:
                self._end_class(held)
                held = []
            held.append(self._look(batch))
        if held:
            self._end_class(held)
        self._join()
        groups = self._groups()
        saved = {kind: sum(each.saved.get(kind, 0) for each in groups) for kind in KINDS}
        saved["sparse"] = self._sparse()
        blocks = sum(each.blocks for each in groups)
        return Waste(
            sorted(groups, key=lambda each: -each.total),
            saved,
            self.bytes,
            blocks,
            self.resident,
            0 if saved["rounding"] else self.rounding_most,
            self.heap.unread,
            self.heap.in_hand,
            self.of_samples,
        )

    # --- one batch ------------------------------------------------------------------------------------------------

    def _look(self, batch: Batch) -> _Looked:
        rows = np.ascontiguousarray(batch.bytes)
        ends = text_ends(rows) if batch.size <= 1 << 16 else np.full(len(rows), -1)
        is_text = ends >= 0
        if is_text.any():  # behind a text's 0 lies what an earlier block has left
            some = np.flatnonzero(is_text)
            rows[some] = np.where(np.arange(batch.size) <= ends[some][:, None], rows[some], 0)
        words = rows.view(np.uint64)
        filled = words != 0
        is_zero = ~filled.any(axis=1)
        used = np.where(is_zero, 0, batch.size - WORD * filled[:, ::-1].argmax(axis=1))
        resident = self._resident(batch, 0)
        looked = _Looked(batch, _keys(rows, batch.index < 0), is_zero, resident, self._tails(batch, used, resident))
        looked.types = self.types.of(batch, words, is_text, is_zero)
        looked.targets = self._targets(batch, words)
        if is_text.any():
            values, first, counts = np.unique(looked.keys[is_text], return_index=True, return_counts=True)
            for at in np.lexsort((first, -counts))[:FREQUENT].tolist():
                row = np.flatnonzero(is_text)[first[at]]
                looked.texts[int(values[at])] = rows[row, : min(ends[row], EXAMPLE)].tobytes()
        return looked

    def _resident(self, batch: Batch, begin: Any) -> Any:
        """The bytes of each block, from an offset on, that lie in resident pages."""
        places = np.arange(batch.pages.shape[1]) * self.heap.page - (batch.starts % self.heap.page)[:, None]
        start = np.maximum(places, np.asarray(begin).reshape(-1, 1))
        end = np.minimum(places + self.heap.page, batch.room)
        return (batch.pages * np.maximum(end - start, 0)).sum(axis=1)

    def _fitting(self, sizes: Any) -> Any:
        """The sizes of the blocks that would serve these requests."""
        classes, page = self.heap.sizes, self.heap.page
        place = np.searchsorted(classes, sizes)
        return np.where(place < len(classes), classes[np.minimum(place, len(classes) - 1)], -(-sizes // page) * page)

    def _tails(self, batch: Batch, used: Any, resident: Any) -> Any:
        if batch.room < TAIL_FROM:
            return np.zeros(len(used), np.int64)
        unused = (batch.room - used) * 4 >= batch.room
        fit = self._fitting(np.maximum(used, 1))
        return np.where(unused & (fit < batch.room), self._resident(batch, np.minimum(fit, batch.room)), 0)

    def _targets(self, batch: Batch, words: Any) -> Any:
        """The one block into which all pointers of each lead; -1: none or several. Counts who points at what."""
        base, end = self.heap.blocks.base, self.heap.blocks.top
        row, column = np.nonzero((words >= base) & (words < end))
        to = self.heap.number_of(words[row, column])
        row, to = row[to >= 0], to[to >= 0]
        pair = np.unique(row.astype(np.int64) * self.heap.count + to) if len(to) else np.zeros(0, np.int64)
        row, to = pair // max(self.heap.count, 1), pair % max(self.heap.count, 1)
        other = to != batch.numbers[row]
        np.add.at(self.pointed_at, to[other], 1)
        found = np.full(len(words), -1, np.int64)
        if batch.room <= SMALL:
            found[row] = to
            many = np.bincount(row, minlength=len(words)) != 1
            found[many | (found == batch.numbers)] = -1
        return found

    # --- one class ------------------------------------------------------------------------------------------------

    def _end_class(self, held: list[_Looked]) -> None:
        index = held[0].batch.index
        keys = np.concatenate([each.keys for each in held])
        zero = np.concatenate([each.is_zero for each in held])
        types = np.concatenate([each.types for each in held])
        resident = np.concatenate([each.resident for each in held])
        room = np.concatenate([np.full(len(each.keys), each.batch.room) for each in held])
        _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        alike = counts[which]
        copies = np.where(~zero & (alike > 1), resident * (1 - 1 / alike), 0)
        saved = {"zero": np.where(zero, resident, 0), "equal": copies}
        free = ~zero & (copies == 0)
        saved["tail"] = np.where(free, np.concatenate([each.tails for each in held]), 0)
        free &= saved["tail"] == 0
        if all(each.batch.asked is not None for each in held):
            asked = np.concatenate([each.batch.asked for each in held])
            saved["rounding"] = np.where(free, room - asked, 0)
        elif index >= 0:
            smaller = self.heap.sizes[index - 1] if index > 0 else 0
            self.rounding_most += int(free.sum()) * int(self.heap.sizes[index] - smaller - 1)
        self.resident += int(resident.sum())
        self.bytes += int(room.sum())
        for kind in np.unique(types).tolist():
            mine = types == kind
            group = (index, kind)
            sums = self.sums.setdefault(group, [0, 0])
            sums[0] += int(mine.sum())
            sums[1] += int(room[mine].sum())
            of = self.saved.setdefault(group, {})
            for name, each in saved.items():
                of[name] = of.get(name, 0) + round(float(each[mine].sum()))
            if of["equal"]:
                most = int(np.argmax(np.where(mine & ~zero, alike, 0)))
                texts = next((each.texts for each in held if int(keys[most]) in each.texts), {})
                if text := texts.get(int(keys[most])):
                    self.examples[group] = (int(alike[most]), text.decode(errors="replace"))
        numbers = np.concatenate([each.batch.numbers for each in held])
        targets = np.concatenate([each.targets for each in held])
        self._note(numbers, saved, room)
        ready = free & (targets >= 0) & (resident > 0)
        if ready.any():
            self.to_join.append((numbers[ready], targets[ready], index, types[ready]))

    def _note(self, numbers: Any, saved: dict[str, Any], room: Any = None) -> None:
        """Notes what sampled blocks among these could save, and what their class adds to them if they save nothing."""
        if self.heap.samples is None or not len(self.sampled) or not len(numbers):
            return
        order = np.argsort(numbers)
        at = np.minimum(np.searchsorted(numbers[order], self.sampled), len(numbers) - 1)
        found = np.flatnonzero(numbers[order][at] == self.sampled)
        rows, nothing = order[at[found]], np.ones(len(found), bool)
        for kind, each in saved.items():
            self.of_samples[kind][found] = each[rows]
            nothing &= each[rows] == 0
        if "joined" in saved:
            self.of_samples["rounding"][found] *= nothing
        elif "rounding" not in saved:
            added = room[rows] - self.heap.samples.asked[found]
            self.of_samples["rounding"][found] = np.where(nothing, added, 0)

    # --- the end --------------------------------------------------------------------------------------------------

    def _join(self) -> None:
        """The pointers of small blocks to their only target, if they alone point there."""
        for numbers, targets, index, types in self.to_join:
            gain = np.where(self.pointed_at[targets] == 1, WORD, 0)
            self._note(numbers, {"joined": gain})
            for kind in np.unique(types[gain > 0]).tolist():
                of = self.saved[(index, kind)]
                of["joined"] = of.get("joined", 0) + int(gain[types == kind].sum())

    def _groups(self) -> list[Group]:
        names = self.types.names()
        found = []
        for (index, kind), (blocks, size) in self.sums.items():
            each = int(self.heap.sizes[index]) if index >= 0 else 0
            saved = {name: value for name, value in self.saved[(index, kind)].items() if value}
            count, text = self.examples.get((index, kind), (0, ""))
            example = f"{text!r}, {count} times" if text else ""
            found.append(Group(each, names[kind], blocks, size, saved, example))
        return found

    def _sparse(self) -> int:
        heap, total = self.heap, 0
        for i in range(heap.window_spans):
            at, count = int(heap.span_number[i]), int(heap.span_frontier[i])
            live = int(heap.live[at : at + count].sum()) * int(heap.span_size[i])
            if 0 < live < int(heap.span_bytes[i]) // SPARSE:
                pages = heap.resident(int(heap.span_start[i]), int(heap.span_bytes[i]))
                total += max(int(pages.sum()) * heap.page - live, 0)
        return total


@dataclass
class _Looked:
    """A batch without its contents, but with what was found in them."""

    batch: Batch
    keys: Any
    is_zero: Any
    resident: Any
    tails: Any
    types: Any = None
    targets: Any = None
    texts: dict[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.batch.bytes = None


def _keys(rows: Any, huge: bool) -> Any:
    """A number for each row by its contents; huge ones are not copied."""
    if huge:
        return np.array([int.from_bytes(hashlib.blake2b(row, digest_size=7).digest(), "little") for row in rows])
    text, size = rows.tobytes(), rows.shape[1]
    return np.array([hash(text[at : at + size]) for at in range(0, len(text), size)], np.int64)


def says(found: Waste, name: str) -> list[str]:
    """The result in sentences."""
    inside = found.total - found.saved["sparse"]
    share = 100 * inside / found.resident if found.resident else 0
    said = [
        f"{name}: {in_bytes(inside)} could be saved of {in_bytes(found.resident)} resident in "
        f"{counted(found.live_blocks, 'live block')} ({share:.0f} %), {in_bytes(found.saved['sparse'])} between them."
    ]
    untouched = found.live_bytes - found.resident
    if untouched * 20 > found.live_bytes:
        said.append(f"{in_bytes(untouched)} of their {in_bytes(found.live_bytes)} have no pages, and cost nothing.")
    if found.rounding_most:
        said.append(
            f"Size classes add at most {in_bytes(found.rounding_most)} to requests, which are not known here and not "
            "counted; a profile (hakmem profile PID --leave-on) shows what they add."
        )
    if found.unread:
        said.append(f"{in_bytes(found.unread)} could not be read: the process changed during the walk.")
    return said
