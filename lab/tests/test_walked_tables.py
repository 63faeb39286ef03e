"""How the walk of a heap reads the library's tables: spans, bitmaps, huge blocks, slots of samples and seals, all of
them built here."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from hakmem_lab.inspect import ledger, live_blocks, sampled_blocks
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.guarded_blocks import Hardened
from hakmem_lab.inspect.live_blocks import Heap
from hakmem_lab.target import process
from tests.walked import BASE, DATA, PAGE, SIZES, SLAB, at, built, filled

PER_SUPER, IN_SLABS, HUGE = 4, 1, 2
FIELDS = {"slabs": 0, "blocks": 2, "frontier": 4, "back": 6, "class": 8, "keys": 10, "free": 16, "remote": 24}
FORMATS = ["u1", "<u2", "<u2", "u1", "<u2", "u1", "<u8", "<u8"]
ROW: Any = np.dtype({"names": [*FIELDS], "formats": FORMATS, "offsets": [*FIELDS.values()], "itemsize": 32})
NUMBERS = {f"span_{name}": offset for name, offset in FIELDS.items()}
NUMBERS |= {"kind_in_slabs": IN_SLABS, "keys_hardened": 9, "kind_huge": HUGE}


def empty() -> Any:
    heap: Any = object.__new__(Heap)
    heap.per_super, heap.sizes, heap.page = PER_SUPER, np.array(SIZES, np.int64), PAGE
    heap.blocks = SimpleNamespace(base=BASE, slab_size=SLAB, super_size=PER_SUPER * SLAB)
    heap.blocks.hardened = SimpleNamespace(on=True)
    return heap


def spans(*rows: tuple[int, ...], kind: int = IN_SLABS, words: int = 1, classes: Any = None) -> Any:
    """A heap with these rows: slabs, blocks, frontier, back, class, keys, free, remote."""
    heap, table = empty(), np.array(list(rows), ROW)
    heap.allocator = SimpleNamespace(rows=lambda *_: table.view(np.uint8).reshape(-1, 32))
    heap.kinds = np.full(len(rows), kind)
    of_map = table["class"].astype(np.int64) if classes is None else np.array(classes)
    heap._spans(NUMBERS, np.full(len(rows), words), of_map)
    return heap


GOOD = (1, 64, 50, 0, 5, 0, 800, 808)  # 64 blocks of 1,024 bytes, of which 50 have been taken so far


def test_spans() -> None:
    heap = spans(GOOD, (2, 16, 1, 0, 8, 9, 816, 824), (2, 16, 1, 1, 8, 9, 816, 824), GOOD)
    assert heap.span_start.tolist() == [BASE, BASE + SLAB, BASE + 3 * SLAB] and heap.window_spans == 3
    assert heap.span_bytes.tolist() == [SLAB, 2 * SLAB, SLAB] and heap.span_of_slab.tolist() == [0, 1, 1, 2]
    assert (heap.span_class.tolist(), heap.span_size.tolist()) == ([5, 8, 5], [1024, 8192, 1024])
    assert (heap.span_blocks.tolist(), heap.span_frontier.tolist()) == ([64, 16, 64], [50, 1, 50])
    assert heap.span_hardened.tolist() == [False, True, False] and heap.span_number.tolist() == [0, 50, 51, 101]
    assert heap._free.tolist() == [800, 816, 800] and heap._remote.tolist() == [808, 824, 808]
    assert len(heap.chunks) == len(heap.huge_start) == len(heap.huge_size) == 0


@pytest.mark.parametrize(
    "row",
    [(0, 64, 50, 0, 5), (1, 64, 50, 1, 5), (1, 64, 65, 0, 5), (1, 65, 50, 0, 5), (3, 64, 50, 0, 5), (1, 64, 50, 0, 4)],
)
def test_rows_that_are_no_spans(row: tuple[int, ...]) -> None:
    classes = [5] * 4
    assert spans(GOOD, GOOD, (*row, 0, 0, 0), GOOD, classes=classes).span_of_slab.tolist() == [0, 1, -1, 2]
    whole = (1, 64, 64, 0, 5, 0, 0, 0)
    assert spans(GOOD, GOOD, (2, *whole[1:]), whole).window_spans == 4  # up to the SuperSlab's end, and quite full
    others: tuple[dict[str, Any], ...] = ({"kind": HUGE}, {"words": 0}, {"classes": [-1] * 4})
    for more in others:
        assert spans(*[GOOD] * 4, **more).window_spans == 0


@pytest.mark.parametrize(("sampled", "is_hardened"), [(False, False), (True, False), (True, True)])
def test_a_look_reads_one_table_after_another(
    sampled: bool, is_hardened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    did, samples = list[str](), SimpleNamespace() if sampled else None
    blocks = SimpleNamespace(super_size=4 * SLAB, slab_size=SLAB, supers=3, sizes=SIZES)
    blocks.hardened = SimpleNamespace(on=is_hardened)
    monkeypatch.setattr(live_blocks, "Blocks", lambda allocator: blocks)
    monkeypatch.setattr(ledger, "super_kinds", lambda allocator, supers: np.arange(supers))
    monkeypatch.setattr(ledger, "slab_classes", lambda allocator, slabs: (slabs, -slabs))
    monkeypatch.setattr(sampled_blocks, "read", lambda allocator: samples)
    for name in ("_spans", "_live", "_huge", "_slots"):
        monkeypatch.setattr(Heap, name, lambda self, *given, name=name: did.append(f"{name}{given[1:]}"))
    child: Any = SimpleNamespace(memory="memory", page=PAGE, number={})
    heap = Heap(child)
    assert did == ["_spans(12, -12)", "_live()", "_huge()", *(["_slots()"] if sampled and not is_hardened else [])]
    assert heap.kinds.tolist() == [0] * 4 + [1] * 4 + [2] * 4 and heap.sizes.tolist() == list(SIZES)
    assert (heap.per_super, heap.page, heap.unread, heap.in_hand, heap.samples) == (4, PAGE, 0, 0, samples)


def test_live_blocks_by_bitmaps_and_caches() -> None:
    single = (1, 1, 1, 0, 8, 0, 0, 0)
    heap = spans((1, 64, 10, 0, 5, 0, 800, 808), single, (*single[:5], 9, 816, 816), (1, 64, 3, 0, 5, 0, 1, 808))
    bits = {800: 0b0000000110, 808: 0b1000000000, 816: 1}
    asked = []

    def read(address: int, size: int) -> bytes | None:
        asked.append(size)
        return bits[address].to_bytes(size, "little") if address in bits else None

    heap.memory = SimpleNamespace(read_if_there=read)
    stacks = {5: [BASE, BASE + 3 * 1024, BASE + 60 * 1024], 8: []}
    heap.blocks.heaps = SimpleNamespace(
        in_stacks=lambda index: stacks[index],
        in_outboxes=lambda: [BASE + 4096],
        in_quarantines=lambda: [BASE + 5 * 1024, 1],
    )
    heap._live()
    assert np.flatnonzero(heap.live).tolist() == [6, 7, 8, 10] and len(heap.live) == 15 and set(asked) == {8}
    heap._free[3], stacks[8] = 808, [BASE + SLAB]
    heap._live()
    assert np.flatnonzero(heap.live).tolist() == [6, 7, 8, 12, 13, 14]


def test_huge_blocks() -> None:
    def area(state: str, kind: str, asked: int | None, size: int | None) -> SimpleNamespace:
        return SimpleNamespace(state=state, kind=kind, asked=asked, size=size)

    heap = empty()
    heap.kinds = np.repeat([HUGE, IN_SLABS, HUGE, HUGE, HUGE, HUGE], PER_SUPER)
    areas = [
        area("live", "huge", 5000, 8192),
        None,
        area("freed", "huge", 1, 1),
        area("live", "block", 1, 1),
        area("live", "huge", None, 4096),
        area("live", "huge", None, None),
    ]
    step = PER_SUPER * SLAB
    for place, each in enumerate(areas):
        if each is not None:
            each.start = BASE + place * step + 64
    heap.blocks.at = lambda address: areas[(address - BASE) // step] if (address - BASE) % step == 0 else None
    heap._huge(NUMBERS)
    assert heap.huge_start.tolist() == [BASE + place * step + 64 for place in (0, 4, 5)]
    assert heap.huge_size.tolist() == [5000, 4096, 0]


def test_slots_of_samples_are_spans() -> None:
    heap = built({64: [filled(64), None]})
    heap.span_blocks = np.array([1024])
    first, second = DATA, DATA + 3 * SLAB
    starts = np.array([second + 256, first + 2048, first, second, BASE])
    asked = np.array([20, 700, 1000, 30, 64])
    samples: Any = SimpleNamespace(starts=starts, asked=asked, in_slots=starts != BASE, slots=DATA)
    heap._slots(samples)
    # What has 256 bytes between its blocks may have been aligned; 1,000 bytes need 1,024.
    assert heap.chunks.tolist() == [first, second] and heap.span_start.tolist() == [BASE, first, second]
    assert heap.span_size.tolist() == [64, 1024, 32] and heap.span_class.tolist() == [2, 5, 1]
    assert heap.span_blocks.tolist() == [1024, 64, 2048] and heap.span_frontier.tolist() == [2, 64, 2048]
    assert heap.span_bytes.tolist() == [SLAB] * 3 and heap.span_number.tolist() == [0, 2, 66, 66 + 2048]
    assert heap.span_hardened.tolist() == [False] * 3 and np.flatnonzero(heap.live).tolist() == [0, 2, 4, 66, 74]
    nothing: Any = SimpleNamespace(starts=starts[:0], asked=asked[:0], in_slots=np.zeros(0, bool), slots=DATA)
    heap = built({64: [filled(64), None]})
    heap.span_blocks = np.array([1024])
    heap._slots(nothing)
    assert len(heap.chunks) == 0 and heap.live.tolist() == [True, False]
    odd = heap._class_of_chunk(np.array([DATA + 1024, DATA + 4096]), None, np.array([4, 4]), np.array([0, 1]))
    assert odd.tolist() == [4, 4]
    starts = np.array([DATA + 16, DATA + 3072, DATA + 6144])
    later = heap._class_of_chunk(starts, None, np.array([0, 6]), np.array([0, 1]))
    assert later.tolist() == [0, 6]


def hardened() -> Any:
    """Rooms of 56 bytes in blocks of 64, the last 8 of them a seal."""
    found: Any = object.__new__(Hardened)
    found.keys, found.number = (0x123456789ABCDEF1, 0x9E3779B97F4A7C15, 77), {"seal_size": 8, "seal_shift": 40}
    found.on, found.canary, found.room = True, True, [0, 0, 60, *[0] * 6]
    return found


def test_requests_by_seals() -> None:
    mode, start = hardened(), BASE + 128
    starts, rows = np.array([start + 64 * i for i in range(4)]), np.zeros((4, 64), np.uint8)
    for place, slack in enumerate((0, 12, 52, 53)):
        seal = mode._seal(mode._secret(int(starts[place])), slack)
        rows[place, 52:60] = np.frombuffer(seal.to_bytes(8, "little"), np.uint8)
    assert live_blocks.asked_for(mode, starts, rows, 2).tolist() == [52, 40, 0, 52]


def test_batches_of_hardened_blocks() -> None:
    heap = built({64: [filled(64, 1), filled(64, 2)], 256: [filled(256)]})
    heap.blocks.hardened, heap.span_hardened = hardened(), np.array([True, False])
    heap.allocator.number = {"seal_size": 8}
    for place, slack in enumerate((12, 4)):
        seal = heap.blocks.hardened._seal(heap.blocks.hardened._secret(at(heap, 64, place)), slack)
        heap.memory.write(at(heap, 64, place) + 52, seal.to_bytes(8, "little"))
    plain, batch = heap.batches()
    assert (plain.room, plain.asked, batch.room, batch.size) == (256, None, 64, 48)
    assert batch.asked.tolist() == [40, 48] and batch.bytes.shape == (2, 48)
    assert batch.bytes[0].tobytes() == filled(64, 1)[:40] + bytes(8) and batch.bytes[1].tobytes() == filled(64, 2)[:48]
    heap.blocks.hardened.canary = False
    (batch,) = (each for each in heap.batches() if each.index == 2)
    assert batch.asked is None and batch.bytes[0, :40].tobytes() == filled(64, 1)[:40]


def test_batches_end_at_their_most_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({64: [filled(64, i) for i in range(3)], 128: [filled(128)]})
    heap.span_class[1], heap.span_size[1] = 2, 64  # two spans of one class
    content = filled(64, 9) * 3
    heap.content = lambda start, size: (np.frombuffer(content[:size], np.uint8), np.ones(1, bool))
    for most, counts in ((192, [3, 1]), (193, [4]), (1, [3, 1])):
        monkeypatch.setattr(live_blocks, "BATCH", most)
        assert [len(each.numbers) for each in heap.batches()] == counts


def test_content_is_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = built({8192: [filled(8192, i) for i in range(4)]})
    heap.memory.touched.discard(BASE // PAGE + 5)
    monkeypatch.setattr(live_blocks, "BATCH", 2 * PAGE)
    heap.memory.lost.add(BASE // PAGE + 7)
    content, pages = heap.content(BASE, 8 * PAGE)
    assert heap.memory.read == [BASE, BASE + 2 * PAGE, BASE + 4 * PAGE, BASE + 6 * PAGE] and heap.unread == 2 * PAGE
    assert pages.tolist() == [True] * 5 + [False] * 3
    assert content.tobytes() == filled(8192, 0) + filled(8192, 1) + filled(8192, 2)[:PAGE] + bytes(3 * PAGE)


def test_pages_of_a_core_are_resident_if_they_hold_something() -> None:
    heap: Any = object.__new__(Heap)
    held = bytes(PAGE) + b"x" + bytes(PAGE - 1)
    asked = []

    def read(address: int, size: int) -> bytes | None:
        asked.append((address, size))
        return held if len(asked) == 1 else None

    heap.page, heap.allocator, heap.memory = PAGE, None, SimpleNamespace(read_if_there=read)
    assert heap.resident(3 * PAGE + 7, PAGE).tolist() == [False, True] and asked == [(3 * PAGE, 2 * PAGE)]
    assert heap.resident(3 * PAGE, 3 * PAGE).tolist() == [False] * 3


def test_a_process_is_stopped_for_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    told, states = list[int](), iter("SRRT")
    monkeypatch.setattr("os.kill", lambda pid, number: told.append(number))
    monkeypatch.setattr("time.sleep", lambda seconds: told.append(0))
    monkeypatch.setattr(process, "status_field", lambda pid, name: next(states))
    child = built({64: [None]}).allocator
    with live_blocks.stopped(child, True):
        assert told == [signal.SIGSTOP, 0, 0]
    assert told[3:] == [signal.SIGCONT]
    for state, wanted in (("T", True), ("t (tracing stop)", True), ("S", False)):
        states = iter([state])
        with live_blocks.stopped(child, wanted):
            assert len(told) == 4
    with live_blocks.stopped(SimpleNamespace(pid=0), True):  # type: ignore[arg-type]
        assert len(told) == 4
