"""What `hakmem waste` and the types of blocks make of heaps of a few blocks that are built here: exact figures."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hakmem_lab.inspect import block_types, waste
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.block_types import Types
from hakmem_lab.target import elf, process
from tests.walked import BASE, CODE, DATA, PAGE, SLAB, TYPE, at, built, filled, pointing, saved, word

# --- the walk ---------------------------------------------------------------------------------------------------------


def test_numbers_of_addresses() -> None:
    heap = built({64: [filled(64), None], 256: [filled(256)]}, [filled(SLAB)])
    asked = [BASE, BASE + 63, BASE + 64, BASE + 127, BASE + 128, BASE - 1, at(heap, 256), at(heap, 256) + 255]
    asked += [at(heap, 256) + 256, BASE + 2 * SLAB, BASE + 3 * SLAB - 1, BASE + 3 * SLAB, 0, 1 << 62]
    assert heap.number_of(np.array(asked, np.uint64)).tolist() == [0, 0, 1, 1, -1, -1, 2, 2, -1, 3, 3, -1, -1, -1]
    assert heap.count == 4


def test_numbers_in_huge_blocks_of_odd_sizes() -> None:
    heap = built({64: [filled(64)]})
    heap.huge_start, heap.huge_size = np.array([BASE + 3 * SLAB, BASE + 9 * SLAB]), np.array([3 * SLAB + 5, SLAB])
    asked = [BASE + 6 * SLAB + 4, BASE + 6 * SLAB + 5, BASE + 9 * SLAB, BASE + 10 * SLAB - 1, BASE + 10 * SLAB]
    assert heap.number_of(np.array(asked)).tolist() == [1, -1, 2, 2, -1]


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
    assert waste.find(built({16: [filled(16)], 32: [filled(32)]})).rounding_most == 15 + 15


def test_text_ends_at_its_0_and_the_most_frequent_is_the_example() -> None:
    def text(what: bytes, seed: int) -> bytes:
        return (what + b"\0" + filled(64, seed))[:64]

    contents = [text(b"a configuration", 1), text(b"a configuration", 2), *(text(b"another one", i) for i in range(3))]
    (group,) = waste.find(built({64: [*contents]})).groups
    assert group.type == "text" and group.saved == {"equal": 64 + 128} and group.bytes == 320
    assert group.example == "'another one', 3 times"
    assert saved(built({64: [text(b"a word!", 1), text(b"a word!", 2)]})) == {}  # may be a number
    (group,) = waste.find(built({128: [b"x" * 50 + bytes(78)] * 2})).groups
    assert group.example == f"'{'x' * 40}', 2 times"
    beside = waste.find(built({64: [*contents[:2], *[filled(64, 9)] * 3]})).groups
    assert {each.type[:4]: each.example for each in beside} == {"text": "'a configuration', 2 times", "begi": ""}
    assert waste.find(built({}, [b"x" * (SLAB + 1) + bytes(15)])).groups[0].type != "text"  # too long to be one


def test_tails() -> None:
    heap = built(
        {
            8192: [filled(3000) + bytes(5192), filled(6144) + bytes(2048), filled(6152) + bytes(2040)],
            256: [filled(64) + bytes(192), filled(192, 2) + bytes(64), filled(200, 3) + bytes(56)],
            128: [filled(16) + bytes(112)],
        },
        [filled(PAGE + 1) + bytes(3 * PAGE)],
    )
    groups = waste.find(heap).groups
    assert [each.total for each in groups] == [2 * PAGE, 8192 - 3072, 192, *[0] * (len(groups) - 3)]
    by_size = {each.size: each.saved for each in groups}
    assert by_size[8192] == {"tail": 8192 - 3072}  # 6,144 bytes need a block of 8,192
    assert by_size[256] == {"tail": 192} and by_size[128] == {}
    assert by_size[0] == {"tail": 2 * PAGE}
    assert saved(built({1024: [b"x" * 100 + b"\0" + filled(923)]})) == {"tail": 1024 - 128}  # behind a text


def test_tails_of_huge_blocks_are_whole_pages_from_a_quarter_on() -> None:
    for used, size, tail in ((9, 12, 3), (10, 13, 0), (8 * PAGE + 1, 13 * PAGE, 4 * PAGE)):
        unit = PAGE if tail < PAGE else 1
        heap = built({}, [filled(used * unit) + bytes((size - used) * unit)])
        assert saved(heap) == ({"tail": tail * unit} if tail else {})


def test_a_tail_that_was_never_touched_costs_nothing() -> None:
    heap = built({8192: [filled(3000), filled(3000, 2)]})
    assert saved(heap) == {"tail": 2 * (PAGE - 3072)}
    found = waste.find(heap)
    assert found.resident == 2 * PAGE and found.live_bytes == 4 * PAGE
    assert "8 KiB of their 16 KiB have no pages" in waste.says(found, "it")[1]
    across = waste.find(built({3072: [filled(3072), filled(1024, 2), None]}))  # the second lies in two pages
    assert (across.resident, across.live_bytes) == (PAGE, 6144) and across.saved["tail"] == 0
    third = waste.find(built({3072: [filled(3072), filled(3072, 2), filled(2048, 3)]}))
    assert (third.resident, third.live_bytes) == (2 * PAGE, 9216)


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


def test_joined_with_the_first_block_and_beside_pointers_to_none() -> None:
    heap = built({1024: [filled(1024, 5), filled(1024, 6)], 64: [filled(64, i) for i in range(3)]})
    pointing(heap, 64, 1, at(heap, 1024))
    assert saved(heap) == {"joined": 8}
    for place in range(3):  # a free place, and what lies behind a span's blocks
        pointing(heap, 64, place, at(heap, 64) + 3 * 64, 2)
    pointing(heap, 64, 1, heap.blocks.top - 8, 3)
    pointing(heap, 64, 1, heap.blocks.top, 4)
    assert saved(heap) == {"joined": 8}
    pointing(heap, 1024, 1, at(heap, 1024))  # from a block behind it
    assert saved(heap) == {}


def test_joined_in_hardened_and_other_spans_of_a_class() -> None:
    """The walk comes by the class twice."""
    heap = built({64: [filled(64), filled(64, 2)], 1024: [filled(1024, 5), filled(1024, 6)]})
    pointing(heap, 64, 0, at(heap, 1024))
    pointing(heap, 64, 1, at(heap, 1024, 1))
    small, large = heap.batches()

    def part(place: int) -> Any:
        names = ("numbers", "starts", "bytes", "pages")
        return replace(small, **{name: getattr(small, name)[place : place + 1] for name in names})

    heap.batches = lambda: iter([part(0), large, part(1)])
    assert saved(heap) == {"joined": 16}


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
    saved = dict.fromkeys(waste.KINDS, 0) | {"zero": 3 << 20, "sparse": 1 << 20}
    found = waste.Waste([], saved, 4 << 20, 3, 4 << 20, 0, 0, 0)
    assert waste.says(found, "it") == [
        "it: 3.0 MiB could be saved of 4.0 MiB resident in 3 live blocks (75 %), 1.0 MiB between them."
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
    contents = [word(CODE) + rest[0], rest[1][:8] + word(TYPE) + rest[1][:48], bytes(64), word(BASE + 325) + rest[3]]
    contents += [rest[4][:24] + word(TYPE) + rest[4][:32], rest[5] + rest[5][:8]]
    heap = built({64: [*contents, rest[2][:16] + word(CODE) + rest[2][:40]]})
    order, python, zeros, pointer, collected, other, not_there = types_of(heap)
    assert order == ("Order" if any(map(shutil.which, block_types.FILTERS)) else "_ZTV5Order")
    assert python == collected == "PyUnicode_Type"
    assert (zeros, pointer, other, not_there) == ("zeros", "a pointer first", "other data", "other data")
    assert types_of(built({16: [filled(16)]})) == ["other data"]


def test_a_type_is_more_than_text_and_zeros() -> None:
    heap = built({64: [word(CODE) + filled(56), filled(64, 2)]})
    for is_zero, what in ((True, "zeros"), (False, "text")):
        types = Types(heap)
        types.symbols = Names()  # type: ignore[assignment]
        (batch,) = heap.batches()
        every = np.ones(2, bool)
        numbers = types.of(batch, np.ascontiguousarray(batch.bytes).view(np.uint64), every, every & is_zero)
        assert list(types.numbers)[numbers[0]] == "_ZTV5Order" and list(types.numbers)[numbers[1]] == what


def test_among_many_words_a_type_is_one_that_repeats() -> None:
    def of(others: int, alike: int = 1) -> str:
        contents = [word(CODE) + filled(56, i) for i in range(alike)]
        return types_of(built({64: [*contents, *(filled(64, 50 + i) for i in range(others))]}))[0]

    assert of(127) != "other data" and of(128) == "other data" and of(128, 2) != "other data"


def test_a_class_that_a_python_program_defined() -> None:
    name = DATA + 100
    heap = built({64: [filled(8) + word(BASE + 1024 * 64) + filled(48)], 1024: [filled(1024)]})
    heap.memory.write(name, b"Order\0junk")
    kind = at(heap, 1024)
    heap.memory.write(BASE + 8, word(kind))
    heap.memory.write(kind + 8, word(CODE + 8))
    heap.memory.write(kind + 24, word(name))
    assert types_of(heap)[0] == "Python's Order"
    heap.memory.write(name, b"O" * 70)
    assert types_of(heap)[0] == "Python's " + "O" * 64
    first = built({1024: [filled(1024)], 64: [filled(8) + word(BASE) + filled(48)]})
    first.memory.write(BASE + 8, word(CODE + 8) + filled(8) + word(name))
    first.memory.write(name, b"Order\0")
    assert types_of(first)[0] == "Python's Order"
    heap.memory.write(name, b"Or der\0")
    assert types_of(heap)[0] == "other data"
    heap.memory.write(name, b"Order\0")
    heap.memory.write(kind + 8, word(CODE + 16))
    assert types_of(heap)[0] == "other data"


def test_leading_bytes_that_one_block_in_eight_has() -> None:
    def of(alike: int, others: int) -> list[str]:
        contents = [b"PNGimage" + filled(56, i) for i in range(alike)] + [filled(64, 50 + i) for i in range(others)]
        return types_of(built({64: [*contents]}))

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


def test_symbols_are_read_once_from_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heap, asked = built({64: [filled(64)]}), list[tuple[Path, int]]()
    second = CODE + 16 * PAGE

    def load_bias(file: Path, offset: int, first: int) -> int:
        asked.append((file, first + offset))
        return first - 64

    mapped = [
        (CODE, CODE + PAGE, "/then"),
        (second, second + PAGE, "/other"),
        (second + PAGE, second + 2 * PAGE, "/other"),
    ]
    monkeypatch.setattr(type(heap.allocator), "mapped_files", lambda _: mapped)
    monkeypatch.setattr(process, "inside", lambda pid, path: tmp_path / f"{pid}{path[1:]}")
    monkeypatch.setattr(elf, "describe", lambda file: True)
    monkeypatch.setattr(elf, "load_bias", load_bias)
    monkeypatch.setattr(elf, "objects", lambda file: [(64, 8, file.name)])
    (tmp_path / "7other").touch()
    symbols = block_types.Symbols(heap)
    assert [symbols.name(each) for each in (CODE, second, second + 7, second + 8, second + PAGE)] == [
        "",
        *["7other"] * 2,
        "",
        "",
    ]
    assert asked == [(tmp_path / "7other", second)]
