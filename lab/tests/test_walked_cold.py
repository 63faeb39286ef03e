"""What `hakmem cold` and `why` make of heaps of a few blocks that are built here: exact figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hakmem_lab.inspect import cold, ledger, why
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.cold import Cold
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError
from tests.walked import BASE, DATA, PAGE, SLAB, Blocks, at, built, filled, pointing, word

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
    assert searched(heap, {BASE // PAGE}, monkeypatch, own=PAGE // 2).cold_bytes == 7 * PAGE


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
    monkeypatch.setattr("time.monotonic_ns", lambda: ((1 << 32) + 2500) * 1_000_000)
    starts, born = np.array([BASE + 16384, BASE + 8192, BASE + 8]), np.array([500, 2000, (1 << 32) - 500], np.uint32)
    heap.samples = SimpleNamespace(starts=starts, born_ms=born)
    found = searched(heap, {BASE // PAGE + 2}, monkeypatch).samples
    assert found["cold"].tolist() == [8192, PAGE, 0] and found["age"].tolist() == [2.0, 0.5, 3.0]


def probed(pages: Any, rises: list[int]) -> Any:
    """The share of each page that counts as cold if the looks at them raise the count by so many pages."""
    heap = built({8192: [filled(8192)]})
    heap.memory.write(BASE, filled(PAGE) * 1024)
    watched = SimpleNamespace(total=0, pid=7, live=heap.memory)
    left = iter([0] * (cold.DRIFT_LOOKS + 1) + rises)

    def used() -> int:
        watched.total += PAGE * next(left)
        return int(watched.total)

    watched.used = used
    return cold.Search(heap, watched, Cold(1.0))._probe(pages + BASE // PAGE)  # type: ignore[arg-type]


@pytest.mark.parametrize(("first", "cold_pages"), [(512, 512), (300, 300), (256, 256), (255, 1)])
def test_a_huge_page_has_one_note(first: int, cold_pages: int) -> None:
    """The first look into it raises the count by all its pages."""
    found = probed(np.arange(1024), [first, *[0] * 511, 0, *[1] * 511])
    assert found[:512].tolist() == [1.0] * cold_pages + [0.0] * (512 - cold_pages)
    assert found[512:].tolist() == [0.0, *[1.0] * 511]


def test_a_huge_page_of_which_blocks_have_a_part() -> None:
    pages = np.array([*range(508, 512), *range(512, 516)])
    assert probed(pages, [512, *[0] * 7]).tolist() == [1.0] * 4 + [0.0] * 4


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
    assert {name: each for name, each in vars(Cold(2.0)).items() if each} == {"seconds": 2.0, "unit": 1}
    assert len(cold.says(Cold(1.0), "it")) == 3 and "(0 %)" in cold.says(Cold(1.0), "it")[0]
    more = cold.says(Cold(1.0, huge=2 << 20, swapped=3 << 20), "it")
    assert more[1].startswith("2.0 MiB lie in huge pages") and more[2].startswith("Another 3.0 MiB") and len(more) == 5


class Clock:
    """Time that passes only in sleep()."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    def runs_until(self, pid: int, moment: float) -> bool:
        self.now = max(self.now, moment)
        return pid == 1


def test_waits_and_reads_the_count_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    def watched(counts: list[int]) -> tuple[Any, list[str]]:
        found, did, left = object.__new__(cold.Watch), list[str](), iter(counts)

        def used() -> int:
            for each in left:
                found.huge = 7
                clock.now += 0.25
                return each
            raise KeyboardInterrupt

        found.pid = 1
        monkeypatch.setattr(found, "clear", lambda: did.append("clear"), raising=False)
        monkeypatch.setattr(found, "used", used, raising=False)
        return found, did

    clock = Clock()
    monkeypatch.setattr(cold, "time", clock)
    monkeypatch.setattr(process, "runs_until", clock.runs_until)
    watch, did = watched([1, 2, 3, 4, 5, 6])
    found = watch.wait(10.0)
    times = [0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert [at for at, _ in found.used] == pytest.approx(times) and [each for _, each in found.used] == [
        1,
        2,
        3,
        4,
        5,
        6,
    ]
    assert did == ["clear"] and (found.seconds, found.huge) == (10.25, 7)
    watch, _ = watched([1, 2])
    found = watch.wait(10.0)  # Ctrl-C
    assert [each for _, each in found.used] == [1, 2] and found.seconds == pytest.approx(1.0)


def test_looks_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, heap = Clock(), built({8192: [filled(8192, i) for i in range(20)]})
    monkeypatch.setattr(cold, "time", clock)
    read = heap.memory.read_if_there

    def slow(address: int, size: int) -> bytes | None:
        clock.now += 0.5
        found: bytes | None = read(address, size)
        return found

    heap.memory.read_if_there = slow
    notes = Notes(heap, set())
    used = notes.used

    def looked() -> int:
        clock.now += 1.0
        return used()

    notes.used = looked  # type: ignore[method-assign]
    found = Cold(1.0)
    monkeypatch.setattr(cold, "LEAST_LOOKS", 2)
    monkeypatch.setattr(process, "kilobytes", lambda pid, name: 0)
    heap.memory.read.clear()
    cold.Search(heap, notes, found).run()  # type: ignore[arg-type]
    # 15 s are enough for 15 looks, so each is at three of the 40 pages; 6 are for the drift.
    assert (found.unit, found.looks, found.look_seconds) == (3, 14, 6 + 14 + 20)


def test_clears_the_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch: Any = object.__new__(cold.Watch)
    watch.pid, there, written = 7, True, list[str]()
    monkeypatch.setattr(process, "folder", lambda pid: tmp_path)
    monkeypatch.setattr(process, "exists", lambda pid: there)
    write = Path.write_text

    def noted(path: Path, text: str) -> int:
        written.append(path.name + text)
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", noted)
    watch.clear()
    assert written == ["clear_refs2", "clear_refs4"]
    (tmp_path / "clear_refs").unlink()
    (tmp_path / "clear_refs").mkdir()
    with pytest.raises(LabError, match="keeps no notes of used pages: Is a directory"):
        watch.clear()
    there = False
    with pytest.raises(LabError, match="process 7 has ended"):
        watch.clear()


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
{BASE + (1 << 31):x}-{BASE + (1 << 31) + SLAB:x} rw-p 00000000 00:00 0
Referenced:         8000 kB
"""


@pytest.mark.parametrize("step", [1, 37, 1 << 16])
def test_used_bytes_of_the_allocators_mappings(step: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smaps").write_text(SMAPS)
    monkeypatch.setattr(process, "folder", lambda pid: tmp_path)
    monkeypatch.setattr(cold, "STEP", step)
    live = SimpleNamespace(pid=7, number={"window_shift": 20}, root={"window": BASE})
    watched = cold.Watch(live)  # type: ignore[arg-type]
    assert watched.huge == 0 and watched.used() == 16 << 10 and watched.huge == 4096 << 10
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
    spaces[0] = mapped(heap.blocks.top, PAGE)
    heap.memory.write(heap.blocks.top + 8, word(at(heap, 256)))
    assert at(heap, 256) not in why.unreferenced(heap)
    heap.samples = SimpleNamespace(slots=DATA, end=DATA + PAGE)
    spaces[0] = mapped(DATA, PAGE)
    assert [why.is_of_samples(heap, DATA + each) for each in (-1, 0, 8, PAGE)] == [False, True, True, False]
    assert at(heap, 256) in why.unreferenced(heap)


def test_pointers_are_followed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """By chunks of two words, pointers at every place of a block and of data are found."""
    monkeypatch.setattr(why, "CHUNK", 16)
    for place in range(8):
        heap = built({64: [filled(64, i) for i in range(3)]})
        pointing(heap, 64, 1, at(heap, 64, 2), place)
        pointing(heap, 64, 2, at(heap, 64, 2), place)
        heap.memory.write(DATA + 8 * place, word(at(heap, 64, 1)))
        monkeypatch.setattr(process, "mappings", lambda pid: [mapped(DATA, 64)])
        assert list(why.unreferenced(heap)) == [BASE]
    monkeypatch.setattr(why, "CHUNK", PAGE)
    heap = built({64: [filled(64, 1), filled(64, 2)]})
    heap.memory.write(DATA + PAGE + 8, word(BASE))
    heap.memory.write(DATA + 2 * PAGE - 8, word(BASE + 64))
    monkeypatch.setattr(process, "mappings", lambda pid: [mapped(DATA, 3 * PAGE // 2)])
    assert list(why.unreferenced(heap)) == [BASE + 64]
    monkeypatch.setattr(process, "mappings", lambda pid: [mapped(DATA, 2 * PAGE)])
    assert not why.unreferenced(heap)


def test_looks_at_equal_times(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, looks = Clock(), list[int]()

    def snapshot() -> dict[str, Any]:
        looks.append(1)
        clock.now += 0.3
        if len(looks) == 15:
            raise KeyboardInterrupt
        return {
            "classes": [{"size": 64, "live": 2}, {"size": 128, "live": len(looks)}],
            "bytes": {"huge": 5} if len(looks) > 1 else {},
        }

    def add(live: Any, snapshot: dict[str, Any]) -> bool:
        snapshot["ledger"] = {"rss": len(looks)}
        return len(looks) < 16

    monkeypatch.setattr(why, "time", clock)
    monkeypatch.setattr(process, "runs_until", clock.runs_until)
    monkeypatch.setattr(ledger, "add", add)
    live: Any = SimpleNamespace(snapshot=snapshot, name="it", pid=1)
    found = why.look(live, 5.0)
    assert found.times == pytest.approx([0.3 + 0.5 * i for i in range(11)]) and found.ledgers[-1] == {"rss": 11}
    assert found.classes[0] == {64: 128, 128: 128, 0: 0} and found.classes[1] == {64: 128, 128: 256, 0: 5}
    assert found.live()[1] == 389
    assert why.look(live, 0.0).times == pytest.approx([0.3, 0.6, 0.9])  # until Ctrl-C
    with pytest.raises(LabError, match="it has too large a heap"):
        why.look(live, 1.0)


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
    return why.Course([3.0 + i for i in range(len(live))], [{"rss": MIB}] * (len(live) - 1) + [last], sizes)


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
    assert word_of(course([ten])) == "live" and word_of(course([ten, ten, ten + 10490])) == "live"


def test_growth_says_its_rate_and_size() -> None:
    found = why.judge(course([10 * MIB, 11 * MIB, 12 * MIB]), (3, 3000), 7)
    assert found.word == "growth" and "--seconds 60" in found.next and "profile 7 " in found.next
    assert found.said == (
        "100.0 MiB are resident, of which 12.0 MiB are live blocks; live memory changed by 2.0 MiB in 2 s."
        " That is 3.52 GiB an hour, most of it in blocks of 1024 bytes. No pointer leads to 3 blocks of 3 KiB."
    )
    huge = course([10 * MIB, 10 * MIB], huge=11 * MIB)
    said = why.judge(huge, (0, 0), 7).said
    assert "of which 21.0 MiB are live blocks" in said and "No pointer" not in said
    huge.classes[1] = {0: 5 * MIB, 64: MIB, 1024: 9 * MIB}
    assert "most of it in huge blocks" in why.judge(huge, (0, 0), 7).said


def test_leaks() -> None:
    growing, still = course([9 * MIB, 10 * MIB]), course([50 * MIB] * 2)
    assert word_of(growing, 5, MIB + 1) == "leak" and word_of(growing, 5, MIB) == "growth"
    assert word_of(still, 5, 10 * MIB + 1) == "leak" and word_of(still, 5, 10 * MIB) == "live"
    assert word_of(course([90 * MIB] * 2), 5, 9 * MIB + 1) == "live"
    assert word_of(course([110 * MIB] * 2), 5, 10 * MIB + 1) == "live"
    shrunk = course([120 * MIB, 60 * MIB, 50 * MIB])
    assert (
        word_of(shrunk, 5, 10 * MIB + 1) == "leak"
        and word_of(course([90 * MIB, 95 * MIB, 99 * MIB]), 5, 9 * MIB) == "growth"
    )
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
    del small.ledgers[-1]["live"]
    assert "of which 0 B are live blocks" in why.judge(small, (0, 0), 7).said
