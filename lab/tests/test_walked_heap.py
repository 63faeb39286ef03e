"""What `hakmem waste`, `cold` and `why` make of heaps of a few blocks that are built here: exact figures."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hakmem_lab.inspect import block_types, cold, waste, why
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.block_types import Types
from hakmem_lab.inspect.cold import Cold
from hakmem_lab.inspect.live import OWN, PRESENT, SWAPPED, Live
from hakmem_lab.inspect.live_blocks import Batch, Heap
from hakmem_lab.target import process

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
            return present | (SWAPPED if page in self.swapped else 0)

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


# --- the walk ---------------------------------------------------------------------------------------------------------


def test_numbers_of_addresses() -> None:
    heap = built({64: [filled(64), None], 256: [filled(256)]}, [filled(SLAB)])
    asked = [BASE, BASE + 63, BASE + 64, BASE + 127, BASE + 128, BASE - 1, at(heap, 256), at(heap, 256) + 255]
    asked += [at(heap, 256) + 256, BASE + 2 * SLAB, BASE + 3 * SLAB - 1, BASE + 3 * SLAB, 0, 1 << 62]
    assert heap.number_of(np.array(asked, np.uint64)).tolist() == [0, 0, 1, 1, -1, -1, 2, 2, -1, 3, 3, -1, -1, -1]
    assert heap.count == 4


def test_numbers_of_addresses_in_slots() -> None:
    heap = built({64: [filled(64)]})
    heap.chunks = np.array([DATA, DATA + (4 << 20)])
    for name, more in (("start", heap.chunks), ("size", [1024, 64]), ("frontier", [4, 2])):
        setattr(heap, f"span_{name}", np.concatenate([getattr(heap, f"span_{name}"), more]).astype(np.int64))
    heap.span_number = np.concatenate([[0], np.cumsum(heap.span_frontier)])
    heap.live = np.ones(7, bool)
    asked = [DATA - 1, DATA, DATA + 1024, DATA + 4096, DATA + (4 << 20) + 64, DATA + (4 << 20) + 128, BASE]
    assert heap.number_of(np.array(asked)).tolist() == [-1, 1, 2, -1, 6, -1, 0]


def test_batches_have_the_live_blocks_by_class() -> None:
    heap = built({256: [filled(256, 1), None, filled(256, 2)], 64: [filled(64, 3)]}, [filled(PAGE + 12, 4)])
    small, middle, large = heap.batches()
    assert [each.index for each in (small, middle, large)] == [2, 4, -1]
    assert middle.starts.tolist() == [BASE, BASE + 512] and middle.numbers.tolist() == [0, 2]
    assert middle.bytes.tobytes() == filled(256, 1) + filled(256, 2) and middle.asked is None
    assert (middle.size, middle.room, large.size, large.room) == (256, 256, PAGE + 8, PAGE + 12)
    assert large.numbers.tolist() == [4] and large.bytes.tobytes() == filled(PAGE + 12, 4)[:-4]
    assert middle.pages.tolist() == [[True, False]] * 2 and large.pages.tolist() == [[True, True]]


def test_blocks_in_the_allocators_hands_are_left_out() -> None:
    heap = built({64: [filled(64), word(77) + filled(56), filled(64, 2)]})
    heap.blocks.freed_key = 77
    (batch,) = heap.batches()
    assert batch.numbers.tolist() == [0, 2] and heap.in_hand == 1 and heap.live.tolist() == [True, False, True]


def test_pages_that_cannot_be_read_and_zero_pages_are_none() -> None:
    heap = built({8192: [filled(8192), filled(8192, 2)]})
    heap.memory.lost.add(BASE // PAGE + 1)
    content, pages = heap.content(BASE + 16, 3 * PAGE)
    assert pages.tolist() == [False] * 4 and heap.unread == 4 * PAGE and not content.any()
    heap.memory.lost.clear()
    heap.memory.write(BASE + PAGE, bytes(PAGE))
    heap.memory.zero_pages |= {BASE // PAGE, BASE // PAGE + 1}
    content, pages = heap.content(BASE + 16, 3 * PAGE)
    assert pages.tolist() == [True, False, True, True] and content[:100].tobytes() == filled(8192)[16:116]
    heap.memory.touched.discard(BASE // PAGE + 2)
    assert heap.resident(BASE, 4 * PAGE).tolist() == [True, True, False, True]
    assert heap.resident(BASE + PAGE - 1, 2).tolist() == [True, True]


# --- waste ------------------------------------------------------------------------------------------------------------


def test_zero_and_equal_blocks() -> None:
    zero, one, two = bytes(64), filled(64, 1), filled(64, 2)
    found = waste.find(built({64: [zero, zero, one, one, one, two, None]}))
    assert found.saved == dict.fromkeys(waste.KINDS, 0) | {"zero": 128, "equal": 128, "sparse": PAGE - 384}
    assert (found.live_blocks, found.live_bytes, found.resident, found.total) == (6, 384, 384, PAGE - 128)
    assert found.rounding_most == 31  # of the one that is neither
    assert [(each.size, each.type, each.blocks, each.total) for each in found.groups] == [
        (64, "zeros", 2, 128),
        (64, "begins " + block_types.leading(int.from_bytes(one[:8], "little")), 3, 128),
        (64, "other data", 1, 0),
    ]


def test_equal_blocks_of_two_sizes_are_no_copies() -> None:
    assert saved(built({64: [filled(64)], 128: [filled(64) + bytes(64)]})) == {}


def test_text_ends_at_its_0_and_the_most_frequent_is_the_example() -> None:
    def text(what: bytes, seed: int) -> bytes:
        return (what + b"\0" + filled(64, seed))[:64]

    contents = [text(b"a configuration", 1), text(b"a configuration", 2), *(text(b"another one", i) for i in range(3))]
    (group,) = waste.find(built({64: contents})).groups
    assert group.type == "text" and group.saved == {"equal": 64 + 128} and group.bytes == 320
    assert group.example == "'another one', 3 times"
    assert saved(built({64: [text(b"a word!", 1), text(b"a word!", 2)]})) == {}  # may be a number


def test_tails() -> None:
    heap = built(
        {
            8192: [filled(3000) + bytes(5192), filled(6144) + bytes(2048), filled(6152) + bytes(2040)],
            256: [filled(64) + bytes(192), filled(192, 2) + bytes(64), filled(200, 3) + bytes(56)],
            128: [filled(16) + bytes(112)],
        },
        [filled(PAGE + 1) + bytes(3 * PAGE)],
    )
    by_size = {each.size: each.saved for each in waste.find(heap).groups}
    assert by_size[8192] == {"tail": 8192 - 3072}  # 6,144 bytes need a block of 8,192
    assert by_size[256] == {"tail": 192} and by_size[128] == {}
    assert by_size[0] == {"tail": 2 * PAGE}


def test_a_tail_that_was_never_touched_costs_nothing() -> None:
    heap = built({8192: [filled(3000), filled(3000, 2)]})
    assert saved(heap) == {"tail": 2 * (PAGE - 3072)}
    found = waste.find(heap)
    assert found.resident == 2 * PAGE and found.live_bytes == 4 * PAGE
    assert "8 KiB of their 16 KiB have no pages" in waste.says(found, "it")[1]


def pointing(heap: Any, size: int, place: int, target: int, column: int = 1) -> None:
    heap.memory.write(at(heap, size, place) + 8 * column, word(target))


def test_joined() -> None:
    def made() -> Any:
        return built({64: [filled(64, i) for i in range(3)], 1024: [filled(1024, 5), filled(1024, 6)]})

    heap = made()
    pointing(heap, 64, 0, at(heap, 1024) + 100)
    assert saved(heap) == {"joined": 8}
    pointing(heap, 64, 0, at(heap, 1024), 3)  # twice the same
    pointing(heap, 64, 0, at(heap, 64), 4)
    assert saved(heap) == {}  # into itself as well: two blocks
    heap = made()
    pointing(heap, 64, 0, at(heap, 1024))
    pointing(heap, 64, 1, at(heap, 1024, 1))
    assert saved(heap) == {"joined": 16}
    pointing(heap, 64, 2, at(heap, 1024))
    assert saved(heap) == {"joined": 8}  # two lead to the first
    pointing(heap, 64, 1, at(heap, 1024), 2)
    assert saved(heap) == {}
    heap = made()
    pointing(heap, 1024, 0, at(heap, 64))
    assert saved(heap) == {}  # too large to be a part
    pointing(heap, 64, 1, at(heap, 64, 1))
    assert saved(heap) == {}  # leads to itself
    heap = built({128: [filled(128)], 256: [filled(256)], 1024: [filled(1024, 5), filled(1024, 6)]})
    pointing(heap, 128, 0, at(heap, 1024))
    pointing(heap, 256, 0, at(heap, 1024, 1))
    assert saved(heap) == {"joined": 8}


def test_sparse_spans() -> None:
    def sparse() -> int:
        return waste.find(heap).saved["sparse"]

    heap = built({1024: [filled(1024), *[None] * 63], 256: [filled(256, i) for i in range(64)]})
    assert sparse() == PAGE - 1024
    heap.memory.touch(BASE, 10 * PAGE)
    assert sparse() == 10 * PAGE - 1024
    heap.live[1:15] = True
    heap.memory.write(BASE, filled(15 * 1024))
    assert sparse() == 10 * PAGE - 15 * 1024
    heap.live[15] = True
    assert sparse() == 0  # a quarter is live
    heap.live[:64] = False
    assert sparse() == 0


def test_requests_of_hardened_blocks() -> None:
    heap = built({64: [filled(64, 1), bytes(64), filled(64, 2)]})
    (batch,) = heap.batches()
    batch.asked = np.array([40, 40, 56])
    heap.batches = lambda: iter([batch])
    found = waste.find(heap)
    assert found.saved["rounding"] == 24 + 8 and found.saved["zero"] == 64 and found.rounding_most == 0


def test_sampled_blocks_have_their_own_figures() -> None:
    heap = built({64: [bytes(64), filled(64, 1), filled(64, 1), filled(64, 2)], 1024: [filled(1024, 3)]})
    pointing(heap, 64, 3, at(heap, 1024))
    starts = [at(heap, 64, place) for place in range(4)] + [at(heap, 1024)]
    heap.samples = SimpleNamespace(starts=np.array(starts), asked=np.array([50, 50, 60, 60, 1000]))
    found = waste.find(heap).samples
    assert found["zero"].tolist() == [64, 0, 0, 0, 0] and found["equal"].tolist() == [0, 32, 32, 0, 0]
    assert found["joined"].tolist() == [0, 0, 0, 8, 0] and found["rounding"].tolist() == [0, 0, 0, 0, 24]
    assert found["tail"].tolist() == [0] * 5


def test_what_waste_says() -> None:
    saved = dict.fromkeys(waste.KINDS, 0) | {"zero": 1 << 20, "sparse": 2048}
    found = waste.Waste([], saved, 4 << 20, 3, 4 << 20, 0, 0, 0)
    assert waste.says(found, "it") == [
        "it: 1.0 MiB could be saved of 4.0 MiB resident in 3 live blocks (25 %), 2 KiB between them."
    ]
    more = waste.Waste([], saved, 5 << 20, 1, 4 << 20, 1024, 4096, 0)
    said = waste.says(more, "it")
    assert said[1] == "1.0 MiB of their 5.0 MiB have no pages, and cost nothing."
    assert "at most 1 KiB to requests" in said[2] and said[3].startswith("4 KiB could not be read") and len(said) == 4
    assert "(0 %)" in waste.says(waste.Waste([], saved, 0, 0, 0, 0, 0, 0), "it")[0]
    just = waste.Waste([], saved, 20 << 20, 1, 19 << 20, 0, 0, 0)
    assert len(waste.says(just, "it")) == 1  # a twentieth is not worth a sentence


# --- types ------------------------------------------------------------------------------------------------------------


def test_text_ends() -> None:
    rows = [b"12345678\0tail...", b"1234567\0........", b"no end in sight!", b"tab\tnl\ncr\rx\0..."]
    rows += [b"caf\xe9 au lait\0.."]
    rows += [b"del\x7f and more\0.", b"~ tilde is one\0.", b"\x1f unit and me\0.", b"\0..............."]
    content = b"".join(each.ljust(16, b".")[:16] for each in rows)
    found = block_types.text_ends(np.frombuffer(content, np.uint8).reshape(-1, 16))
    assert found.tolist() == [8, -1, -1, 11, -1, -1, 14, -1, -1]


def test_leading_bytes() -> None:
    assert block_types.leading(int.from_bytes(b"PNG\0abc~", "little")) == "'PNG.abc~'"
    assert block_types.leading(int.from_bytes(b"ab\0\0cd\0\0", "little")) == "'ab..cd..'"
    assert block_types.leading(int.from_bytes(b"ab\0\0c\x1f\x7f\0", "little")) == "61 62 00 00 63 1f 7f 00"


class Names:
    """Symbols of one file."""

    def inside(self, words: Any) -> Any:
        return (words >= CODE) & (words < CODE + PAGE)

    def name(self, address: int) -> str:
        return {CODE: "_ZTV5Order", CODE + 8: "PyType_Type", TYPE: "PyUnicode_Type"}.get(address, "")


def types_of(heap: Any) -> list[str]:
    types = Types(heap)
    types.symbols = Names()  # type: ignore[assignment]
    found: list[str] = []
    for batch in heap.batches():
        words = np.ascontiguousarray(batch.bytes).view(np.uint64)
        nothing = np.zeros(len(words), bool)
        numbers = types.of(batch, words, nothing, ~words.any(axis=1))
        names = types.names()
        found += [names[each] for each in numbers.tolist()]
    return found


def test_types_by_vtable_type_and_first_word() -> None:
    rest = [filled(56, i) for i in range(9)]
    contents = [word(CODE) + rest[0], rest[1][:8] + word(TYPE) + rest[1][:48], bytes(64), word(BASE + 5) + rest[3]]
    contents += [rest[4][:24] + word(TYPE) + rest[4][:32], rest[5] + rest[5][:8]]
    heap = built({64: [*contents, rest[2][:16] + word(CODE) + rest[2][:40]]})
    order, python, zeros, pointer, collected, other, not_there = types_of(heap)
    assert order in ("Order", "_ZTV5Order") and python == collected == "PyUnicode_Type"
    assert (zeros, pointer, other, not_there) == ("zeros", "a pointer first", "other data", "other data")


def test_a_class_that_a_python_program_defined() -> None:
    name = DATA + 100
    heap = built({64: [filled(8) + word(BASE + 1024 * 64) + filled(48)], 1024: [filled(1024)]})
    heap.memory.write(name, b"Order\0junk")
    kind = at(heap, 1024)
    heap.memory.write(BASE + 8, word(kind))
    heap.memory.write(kind + 8, word(CODE + 8))
    heap.memory.write(kind + 24, word(name))
    assert types_of(heap)[0] == "Python's Order"
    heap.memory.write(name, b"Or der\0")
    assert types_of(heap)[0] == "other data"
    heap.memory.write(name, b"Order\0")
    heap.memory.write(kind + 8, word(CODE + 16))
    assert types_of(heap)[0] == "other data"


def test_leading_bytes_that_one_block_in_eight_has() -> None:
    def of(alike: int, others: int) -> list[str]:
        contents = [b"PNGimage" + filled(56, i) for i in range(alike)] + [filled(64, 50 + i) for i in range(others)]
        return types_of(built({64: contents}))

    assert of(2, 14) == ["begins 'PNGimage'"] * 2 + ["other data"] * 14
    assert of(2, 15) == ["other data"] * 17 and of(1, 0) == ["other data"]


def test_symbols_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({64: [filled(64)]})
    symbols = block_types.Symbols(heap)
    asked = np.array([CODE - 1, CODE, CODE + 2 * PAGE - 1, CODE + 2 * PAGE, CODE + 4 * PAGE], np.uint64)
    assert symbols.inside(asked).tolist() == [False, True, True, False, False]
    symbols.tables["/lib/it.so"] = (CODE - 0x1000, [(0x1000, 16, "one"), (0x1020, 8, "two")])
    names = [symbols.name(CODE + each) for each in (0, 15, 16, 0x1F, 0x20, 0x27, 0x28)]
    assert names == ["one", "one", "", "", "two", "two", ""]
    symbols.tables["/lib/it.so"] = (CODE, [(0x10, 16, "late")])
    assert symbols.name(CODE) == ""


# --- cold -------------------------------------------------------------------------------------------------------------


class Notes:
    """A watched process in which reading a page sets its note; `own`: bytes that the program begins to use per look."""

    def __init__(self, heap: Any, used: set[int], own: int = 0) -> None:
        self.heap, self.noted, self.own, self.looks = heap, set(used), own, 0
        self.live, self.pid, self.huge = heap.memory, 7, 0

    def used(self) -> int:
        self.looks += 1
        read = {address // PAGE for address in self.heap.memory.read}
        return len(self.noted | read & self.heap.memory.touched) * PAGE + self.looks * self.own


def searched(heap: Any, used: set[int], monkeypatch: pytest.MonkeyPatch, own: int = 0, swap: int = 0) -> Cold:
    found = Cold(1.0)
    monkeypatch.setattr(process, "kilobytes", lambda pid, name: swap)
    heap.memory.read.clear()
    cold.Search(heap, Notes(heap, used, own), found).run()  # type: ignore[arg-type]
    return found


def test_cold_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks: Blocks = {3072: [filled(3072, i) for i in range(4)], 8192: [filled(8192), None, filled(PAGE)]}
    heap = built(blocks, [filled(3 * PAGE - 96)])
    first, large, huge = BASE // PAGE, at(heap, 8192) // PAGE, int(heap.huge_start[0]) // PAGE
    found = searched(heap, {first, large + 1, huge}, monkeypatch)
    # The blocks of 3,072 bytes lie in three pages: 0, 0 and 1, 1 and 2, 2.
    assert found.classes == [
        (3072, 4 * 3072, 2 * PAGE),
        (8192, 8192 + PAGE, 2 * PAGE),
        (0, 3 * PAGE - 96, 2 * PAGE - 96),
    ]
    assert (found.live_bytes, found.cold_bytes, found.cold_pages) == (9 * PAGE - 96, 6 * PAGE - 96, 6 * PAGE)
    assert (found.unit, found.looks, found.drift, found.swapped) == (1, 9, 0, 0)
    assert found.blocks[2].tolist() == [0, 2048, 3072, 3072, PAGE, PAGE, 2 * PAGE - 96]


def test_cold_in_units_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({8192: [filled(8192, i) for i in range(8)]})
    first = BASE // PAGE
    monkeypatch.setattr(cold, "MOST_LOOKS", 4)
    monkeypatch.setattr(cold, "LEAST_LOOKS", 2)
    found = searched(heap, {first, first + 1, first + 2}, monkeypatch)
    assert (found.unit, found.looks) == (4, 4) and found.cold_bytes == 13 * PAGE
    assert found.blocks[2].tolist() == [2048, 2048, *[8192] * 6]
    monkeypatch.setattr(cold, "MOST_S", 0.0)
    assert searched(heap, set(), monkeypatch).unit == 8


def test_what_the_program_begins_to_use_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({8192: [filled(8192, i) for i in range(4)]})
    found = searched(heap, {BASE // PAGE}, monkeypatch, own=16)
    assert found.drift == 8 * 16 and found.looks == 8 and found.cold_bytes == 7 * PAGE


def test_swapped_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({8192: [filled(8192), filled(PAGE)]})
    heap.memory.swapped.add(BASE // PAGE + 3)
    assert searched(heap, set(), monkeypatch, swap=1 << 20).swapped == PAGE
    assert searched(heap, set(), monkeypatch, swap=100).swapped == 100


def test_nothing_is_cold_without_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = searched(built({64: [None]}), set(), monkeypatch)
    assert found.live_bytes == found.cold_bytes == 0 and found.classes == [] and found.blocks is None


def test_samples_of_cold_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({8192: [filled(8192, i) for i in range(3)]})
    monkeypatch.setattr(cold.time, "monotonic_ns", lambda: ((1 << 32) + 2500) * 1_000_000)
    starts, born = np.array([BASE + 16384, BASE + 8192, BASE + 8]), np.array([500, 2000, (1 << 32) - 500], np.uint32)
    heap.samples = SimpleNamespace(starts=starts, born_ms=born)
    found = searched(heap, {BASE // PAGE + 2}, monkeypatch).samples
    assert found["cold"].tolist() == [8192, PAGE, 0] and found["age"].tolist() == [2.0, 0.5, 3.0]


def test_a_huge_page_has_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look into it raises the count by all its pages."""
    content = filled(PAGE)
    heap = built({8192: [filled(8192)]}, [])
    heap.memory.write(BASE, content * 1024)
    rises = iter([512, *[0] * 511, 0, *[1] * 511])
    pages = np.arange(BASE // PAGE, BASE // PAGE + 1024)
    watched = SimpleNamespace(total=0, reads=0, pid=7, live=heap.memory)
    looks = iter([0] * (cold.DRIFT_LOOKS + 1))

    def used() -> int:
        watched.total += PAGE * (next(rises) if next(looks, None) is None else 0)
        return watched.total

    watched.used = used
    search = cold.Search(heap, watched, Cold(1.0))  # type: ignore[arg-type]
    found = search._probe(pages)
    assert found[:512].all() and found[512:].tolist() == [0.0, *[1.0] * 511]


@pytest.mark.parametrize(
    ("first", "last", "pages"),
    [
        ([], [], []),
        ([5], [5], [5]),
        ([5, 1, 3], [6, 2, 3], [1, 2, 3, 5, 6]),
        ([1, 1, 2], [9, 1, 3], [*range(1, 10)]),
        ([1, 3, 4], [3, 3, 4], [1, 2, 3, 4]),
    ],
)
def test_pages_of_ranges(first: list[int], last: list[int], pages: list[int]) -> None:
    assert cold.pages_of(np.array(first, np.int64), np.array(last, np.int64)).tolist() == pages


def test_what_cold_says() -> None:
    found = Cold(60.4, live_bytes=4 << 20, cold_bytes=1 << 20, cold_pages=2 << 20, drift=4096, looks=1, unit=2)
    said = cold.says(found, "it")
    assert said[0] == "it: 1.0 MiB of 4.0 MiB in live blocks (25 %) were neither read nor written for 60 s."
    assert "save 1.0 MiB; zswap or madvise(MADV_COLD) could take 2.0 MiB" in said[1]
    assert said[2].startswith("1 look at 2 pages each took 0.0 s") and "about 4 KiB" in said[2] and len(said) == 4
    assert len(cold.says(Cold(1.0), "it")) == 3 and "(0 %)" in cold.says(Cold(1.0), "it")[0]
    more = cold.says(Cold(1.0, huge=2 << 20, swapped=3 << 20), "it")
    assert more[1].startswith("2.0 MiB lie in huge pages") and more[2].startswith("Another 3.0 MiB") and len(more) == 5


SMAPS = f"""\
{BASE - PAGE:x}-{BASE:x} rw-p 00000000 00:00 0
Referenced:           64 kB
AnonHugePages:      2048 kB
{BASE:x}-{BASE + SLAB:x} rw-p 00000000 00:00 0
Size:                 64 kB
Referenced:           12 kB
AnonHugePages:      4096 kB
{BASE + SLAB:x}-{BASE + 2 * SLAB:x} rw-p 00000000 00:00 0
Referenced:            4 kB
{BASE + (1 << 30):x}-{BASE + (1 << 30) + SLAB:x} rw-p 00000000 00:00 0
Referenced:          400 kB
"""


@pytest.mark.parametrize("step", [1, 37, 1 << 16])
def test_used_bytes_of_the_allocators_mappings(step: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smaps").write_text(SMAPS)
    monkeypatch.setattr(process, "folder", lambda pid: tmp_path)
    monkeypatch.setattr(cold, "STEP", step)
    live = SimpleNamespace(pid=7, number={"window_shift": 20}, root={"window": BASE})
    watched = cold.Watch(live)  # type: ignore[arg-type]
    assert watched.used() == 16 << 10 and watched.huge == 4096 << 10
    assert watched.used() == 16 << 10 and watched.huge == 4096 << 10
    sampled = {"window_shift": 20, "slots_start": 8, "slots_bytes": 16}
    memory = SimpleNamespace(word=lambda at: {108: BASE + (1 << 30), 116: SLAB}[at])
    live = SimpleNamespace(pid=7, number=sampled, root={"window": BASE, "sample": 100}, memory=memory)
    assert cold.Watch(live).used() == 416 << 10  # type: ignore[arg-type]


# --- why --------------------------------------------------------------------------------------------------------------


def mapped(start: int, size: int, permissions: str = "rw-p", path: str = "") -> process.Mapping:
    return process.Mapping(start, start + size, permissions, 0, 0, path)


def test_blocks_to_which_nothing_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({64: [filled(64, i) for i in range(5)], 256: [filled(256, 8), None]}, [filled(SLAB, 9)])
    pointing(heap, 256, 0, at(heap, 64, 1))
    pointing(heap, 64, 1, at(heap, 64, 2) + 60)
    pointing(heap, 64, 3, at(heap, 64, 3))  # only its own
    huge = int(heap.huge_start[0])
    heap.memory.write(huge + 8, word(at(heap, 64, 4)))
    heap.memory.write(huge + 16, word(huge))
    heap.memory.write(DATA + 8, word(at(heap, 256) + 255))
    spaces = [mapped(DATA, PAGE), mapped(BASE, 8 * SLAB)]
    monkeypatch.setattr(process, "mappings", lambda pid: spaces)
    found = why.unreferenced(heap)
    assert {start: size for start, (size, _) in found.items()} == {
        at(heap, 64, 0): 64,
        at(heap, 64, 3): 64,
        huge: SLAB,
    }
    words = np.frombuffer(filled(64, 0), np.uint64)
    assert found[BASE][1] == int(words.sum(dtype=np.uint64))
    for one in (mapped(DATA, PAGE, "r--p"), mapped(DATA, PAGE, path="[vvar]"), mapped(BASE - SLAB, PAGE)):
        spaces[0] = one
        assert at(heap, 256) in why.unreferenced(heap)
    heap.samples = SimpleNamespace(slots=DATA, end=DATA + PAGE)
    spaces[0] = mapped(DATA, PAGE)
    assert why.is_of_samples(heap, DATA) and not why.is_of_samples(heap, DATA + PAGE)
    assert at(heap, 256) in why.unreferenced(heap)


def test_blocks_count_as_lost_that_two_walks_find_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    walks = iter([{1: (10, 5), 2: (20, 6), 3: (30, 7), 4: (40, 8)}, {1: (10, 5), 2: (20, 9), 4: (40, 8), 5: (50, 1)}])
    monkeypatch.setattr(why, "Heap", lambda live: live)
    monkeypatch.setattr(why, "unreferenced", lambda heap: next(walks))
    assert why.lost(None) == (2, 50)  # type: ignore[arg-type]


MIB = 1 << 20


def course(live: Sequence[int], **parts: int) -> why.Course:
    """Looks of one second, at live bytes in blocks of 1,024; the rest of 100 MiB is in `parts`."""
    last = {"rss": 100 * MIB, "live": live[-1], **parts}
    sizes = [{0: 0, 64: MIB, 1024: each - MIB} for each in live]
    return why.Course([float(i) for i in range(len(live))], [last] * len(live), sizes)


def word_of(found: why.Course, blocks: int = 0, size: int = 0) -> str:
    return why.judge(found, (blocks, size), 7).word


def test_growth_is_in_most_looks_and_a_thousandth() -> None:
    ten = 10 * MIB
    assert word_of(course([ten + i * 4096 for i in range(11)])) == "growth"
    assert word_of(course([ten, ten + 10486, ten + 10486])) == "live"
    assert word_of(course([ten, ten + 10497, ten + 10497])) == "growth"
    steady = [ten, ten + 90000, ten + 80000, ten + 100000, ten + 90000, ten + 110000, ten + 120000, *[ten + 130000] * 4]
    assert word_of(course(steady)) == "growth"  # eight of ten steps
    rocky = [ten, ten + 9000, ten, ten + 9000, ten, ten + 9000, ten, ten + 99000]
    assert word_of(course(rocky)) == "live"
    assert word_of(course([2 * MIB, 2 * MIB + 4096])) == "live"
    assert word_of(course([2 * MIB, 2 * MIB + 4097])) == "growth"
    assert word_of(course([ten])) == "live"


def test_growth_says_its_rate_and_size() -> None:
    found = why.judge(course([10 * MIB, 11 * MIB, 12 * MIB]), (3, 3000), 7)
    assert found.word == "growth" and "--seconds 60" in found.next and "profile 7 " in found.next
    assert found.said == (
        "100.0 MiB are resident, of which 12.0 MiB are live blocks; live memory changed by 2.0 MiB in 2 s."
        " That is 3.52 GiB an hour, most of it in blocks of 1024 bytes. No pointer leads to 3 blocks of 3 KiB."
    )
    huge = course([10 * MIB, 10 * MIB])
    huge.classes[1] = {0: 5 * MIB, 64: MIB, 1024: 9 * MIB}
    assert "most of it in huge blocks" in why.judge(huge, (0, 0), 7).said


def test_leaks() -> None:
    growing, still = course([9 * MIB, 10 * MIB]), course([50 * MIB] * 2)
    assert word_of(growing, 5, MIB + 1) == "leak" and word_of(growing, 5, MIB) == "growth"
    assert word_of(still, 5, 10 * MIB + 1) == "leak" and word_of(still, 5, 10 * MIB) == "live"
    assert word_of(course([90 * MIB] * 2), 5, 9 * MIB + 1) == "live"
    assert why.judge(still, (5, 11 * MIB), 7).said.endswith("No pointer leads to 5 blocks of 11.0 MiB.")


@pytest.mark.parametrize(
    ("part", "word", "said"),
    [
        ("free_in_slabs", "fragmentation", "free bytes of spans"),
        ("frontier_slack", "fragmentation", "free bytes of spans"),
        ("empty", "retention", "unused memory"),
        ("cached", "cache", "ready in the threads' caches"),
        ("not_ours", "elsewhere", "are not blocks"),
        ("metadata", "elsewhere", "are not blocks"),
    ],
)
def test_what_else_is_large(part: str, word: str, said: str) -> None:
    still = [50 * MIB] * 2
    found = why.judge(course(still, **{part: 20 * MIB + 1}), (0, 0), 7)
    assert found.word == word and said in found.said and "20.0 MiB are " in found.said
    assert "{pid}" not in found.next and word_of(course(still, **{part: 20 * MIB})) == "live"
    both = course(still, free_in_slabs=15 * MIB, frontier_slack=15 * MIB, empty=25 * MIB)
    assert word_of(both) == "fragmentation"
    found = why.judge(course(still), (0, 0), 7)
    assert found.said.endswith("Nothing else is large.") and "waste 7," in found.next


def test_a_part_of_a_small_process_is_no_reason() -> None:
    small = course([5 * MIB] * 2, empty=4 * MIB)
    small.ledgers[-1]["rss"] = 9 * MIB
    assert word_of(small) == "live"
    small.ledgers[-1]["empty"] += 1
    assert word_of(small) == "retention"
