"""Core dumps: `hakmem stats` and `hakmem block` say the same of a dead process as of the live one, as the library
itself and as the program; and a core that cannot be read is refused with a reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hakmem_lab.inspect import core, slab_map
from hakmem_lab.inspect.address_ranges import FREE, AddressRange
from hakmem_lab.inspect.blocks import Blocks
from hakmem_lab.inspect.core import Dead
from hakmem_lab.inspect.live import MAGIC, Allocator, Live
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError
from tests.inside import LIBRARY, compile_c, hakmem
from tests.known import (
    ARCHIVE,
    FLAVOURS,
    SOURCE,
    Subject,
    kernel_writes_here,
    stripped_copy,
    waiting,
)

MODES: dict[str, dict[str, str]] = {
    "plain": {"HAKMEM_PURGE_DELAY": "3600s"},
    "hardened": {"HAKMEM_HARDEN": "1"},
    "sampled": {"HAKMEM_SAMPLE_GUARDS": "1"},
}
WHOLE = "its seal and its slack are intact"
OVERRUN = "its slack is damaged: something was written past its end"

# By mode and name: the state, the size, and notes that must be among the area's.
EXPECTED: dict[str, dict[str, tuple[str, int | None, list[str]]]] = {
    "plain": {
        "data": ("foreign", None, []),
        "before_hole": ("live", 640, []),
        "hole": ("in_span", 640, []),
        "behind_hole": ("live", 640, []),
        "small": ("live", 64, []),
        "mid": ("live", 8192, []),
        "large": ("live", 229376, []),
        "huge": ("live", 3 << 20, []),
        "cached": ("cached", 48, []),
        "kept": ("kept", 114688, []),
        "huge_tail": ("huge_tail", None, []),
        "huge_freed": ("free_superslab", None, ["its pages went back, or were never touched"]),
        "huge_waiting": ("freed", 5 << 20, ["it waits for a request of its size"]),
        "little": ("live", 96, []),
        "never": ("never", 96, []),
        "published": ("freed_by_another", 1024, []),
        "outbox": ("outbox", 1024, []),
        "of_thread": ("live", 3072, []),
        "of_the_parked": ("live", 768, []),
    },
    "hardened": {
        "sealed": ("live", 64, [WHOLE]),
        "huge_sealed": ("live", (3 << 20) + 4096, [WHOLE]),
        "overrun": ("live", 64, [OVERRUN]),
        "smashed": ("live", 64, ["its seal is broken: something was written past its end, or over all of it"]),
        "quarantined": ("quarantined", 112, []),
        "written": ("quarantined", 224, ["it is not cleared: it was written to after it was freed"]),
        "zero_size": ("live", 0, []),
        "zero_size_freed": ("freed", 0, []),
        "zero_size_never": ("never", 0, []),
    },
    "sampled": {
        "sampled": ("live", 100, ["its slack is intact"]),
        "sampled_behind": ("guard", None, []),
        "sampled_overrun": ("live", 33, [OVERRUN]),
        "sampled_freed": ("freed", 200, ["its pages are inaccessible: an access to it faults"]),
    },
}
ASKED = {"sealed": 50, "huge_sealed": (3 << 20) + 5, "overrun": 41, "sampled": 100}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of known.py, to be run with the library preloaded."""
    return compile_c(tmp_path_factory.mktemp("known"), SOURCE)


class Remains:
    """One run of the program: the answers while it lived, then its cores."""

    def __init__(self, subject: Subject) -> None:
        self.places, self.pid, self.folder = subject.places, subject.pid, subject.folder
        os.kill(subject.pid, signal.SIGSTOP)
        self.snapshot = json.loads(hakmem("stats", "--map", "--json", subject.pid).stdout)
        live = Blocks(Live(subject.pid))
        self.live = {name: live.at(place) for name, place in subject.places.items()}
        self.memory, self.mappings = self._memory(live)
        os.kill(subject.pid, signal.SIGCONT)
        self.cores: dict[str, Path] = {}
        if shutil.which("gcore"):
            self.cores["gcore"] = subject.gcore()
        if kernel_writes_here():
            self.cores["kernel"] = subject.die()

    def _memory(self, live: Blocks) -> tuple[dict[int, bytes | None], list[tuple[int, str]]]:
        """Page by page what the allocator's mappings hold (None: a guard page), and the flags of each."""
        memory, root = live.memory, live.allocator.root
        pages, flags, ours = {}, [], False
        for line in process.text(self.pid, "smaps").splitlines():
            found = process.MAPPING.match(line)
            if found:
                start, end = int(found[1], 16), int(found[2], 16)
                ours = root["metadata"] <= start < live.top
                for page in range(start, end, 4096) if ours else ():
                    pages[page] = memory.read_if_there(page, 4096)
            elif ours and line.startswith("VmFlags:"):
                flags.append((start, line))
        return pages, flags


@pytest.fixture(scope="module", params=list(MODES))
def remains(request: pytest.FixtureRequest, known: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    mode = request.param
    with waiting(known, mode, tmp_path_factory.mktemp("remains") / mode, more=MODES[mode]) as subject:
        yield mode, Remains(subject)


@pytest.fixture(scope="module")
def plain(known: Path, tmp_path_factory: pytest.TempPathFactory) -> Remains:
    """A core of the kernel's, for the tests that need one."""
    if not kernel_writes_here():
        pytest.skip("the kernel writes no cores into the folder of the process that dies (core_pattern)")
    with waiting(known, "plain", tmp_path_factory.mktemp("plain") / "run", more=MODES["plain"]) as subject:
        return Remains(subject)


def core_of(remains: Remains, by: str) -> Path:
    if by not in remains.cores:
        pytest.skip("gdb is not installed" if by == "gcore" else "the kernel writes no cores here (core_pattern)")
    return remains.cores[by]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def expect_verdicts(mode: str, found: dict[str, AddressRange], contents: bool = True) -> None:
    assert set(found) - {"data"} == set(EXPECTED[mode]) - {"data"}
    for name, (state, size, notes) in EXPECTED[mode].items():
        area = found[name]
        assert (name, area.state, area.size) == (name, state, size)
        if contents:
            assert set(notes) <= set(area.notes), (name, area.notes)
            assert area.asked == ASKED.get(name, area.asked), name


@pytest.mark.parametrize("by", ["kernel", "gcore"])
def test_every_state(remains: tuple[str, Remains], by: str) -> None:
    mode, of = remains
    expect_verdicts(mode, of.live)
    blocks = Blocks(Dead(core_of(of, by)))
    found = {name: blocks.at(place) for name, place in of.places.items()}
    # gcore (gdb 13) truncates a mapping at its first guard page, so the blocks' bytes are missing.
    expect_verdicts(mode, found, contents=by == "kernel" or mode != "hardened")
    if by == "kernel":
        assert found == of.live


def test_gcore_of_spans_without_guards(known: Path, tmp_path: Path) -> None:
    """As docs/lab.md says of gcore and guard pages: without those of spans, small blocks are complete."""
    more = {"HAKMEM_HARDEN": "canary,zero,random,regions,zero_size"}
    with waiting(known, "hardened", tmp_path, more=more) as subject:
        blocks = Blocks(Dead(subject.gcore()))
    for name, (_, size, notes) in EXPECTED["hardened"].items():
        if name != "huge_sealed":
            assert size is not None and set(notes) <= set(blocks.at(subject.places[name]).notes), name


def test_purged_pages(known: Path, tmp_path: Path) -> None:
    with waiting(known, "purged", tmp_path, more={"HAKMEM_PURGE_DELAY": "2"}) as subject:
        blocks = Blocks(Live(subject.pid))
        purged, beside = (blocks.at(subject.places[name]) for name in ("purged", "beside"))
    assert (purged.state, beside.state, beside.notes) == ("in_span", "live", ())
    assert purged.notes == ("its pages went back to the system, except those that it shares with other blocks",)


def test_whose(plain: Remains) -> None:
    """Heaps have threads, parked ones none, and the heap that holds a block may not be its owner."""
    blocks = Blocks(Dead(plain.cores["kernel"]))
    areas = {name: blocks.at(place) for name, place in plain.places.items()}

    def heap(name: str) -> Any:
        return blocks.heaps.heap(areas[name].heap or 0)

    assert (heap("small").state, heap("small").thread) == ("active", plain.pid)
    assert heap("of_thread").state == "active" and heap("of_thread").thread not in (None, plain.pid)
    assert heap("of_thread").thread in blocks.allocator.threads()
    assert (heap("of_the_parked").state, heap("of_the_parked").thread) == ("parked", None)
    assert areas["outbox"].heap == areas["small"].heap
    assert areas["outbox"].holder == areas["of_thread"].heap
    assert areas["cached"].holder == areas["cached"].heap == areas["small"].heap


def test_neighbours_and_offsets(plain: Remains) -> None:
    blocks = Blocks(Dead(plain.cores["kernel"]))
    hole = blocks.at(plain.places["hole"] + 639)
    assert (hole.start, hole.end) == (plain.places["hole"], plain.places["hole"] + 640)
    before, behind = blocks.neighbours(hole)
    assert before and before.start == plain.places["before_hole"] and before.state == "live"
    assert behind and behind.start == plain.places["behind_hole"] and behind.state == "live"
    huge = blocks.at(plain.places["huge"] + 12345)
    _, guard = blocks.neighbours(huge)
    assert guard and guard.start == huge.end and guard.state in ("guard", "unmapped")
    root = blocks.allocator.root
    assert blocks.at(root["metadata"]).state == "tables"
    assert blocks.at(root["heaps"] + blocks.number["heap_stride"] + 64).notes == ("in heap 1 itself",)
    assert blocks.at(blocks.top).state == "beyond"
    assert blocks.at(8).notes == ("it is NULL, or near it",)
    data = plain.places["data"]
    assert blocks.at(data).notes == (f"it is in {blocks.allocator.file_at(data)}",)
    assert blocks.allocator.file_at(data).endswith("/program")


def test_traces_name_their_code(known: Path, tmp_path: Path) -> None:
    with waiting(known, "sampled", tmp_path, more=MODES["sampled"]) as subject:
        area = Blocks(Live(subject.pid)).at(subject.places["sampled"])
        assert f"allocated by thread {subject.pid}" in area.notes
        assert any(f"{known}+0x" in note for note in area.notes)


# --- totals and walks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["kernel", "gcore"])
def test_totals_are_those_of_the_live_process(remains: tuple[str, Remains], by: str) -> None:
    _, of = remains
    path = core_of(of, by)
    done = hakmem("stats", "--map", "--json", path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    dead, live = json.loads(done.stdout), json.loads(json.dumps(of.snapshot))
    for name in ("process", "ledger", "ledger_by"):  # only the kernel knows it, and only while the process lives
        assert live.pop(name)
        assert name not in dead
    for row in live["classes"]:
        row.pop("pinned", None)
    assert dead == live
    shown = hakmem("stats", path)
    assert shown.returncode == 0
    assert "No ledger of resident memory: a core dump does not say which pages were resident." in shown.stdout


def counted(allocator: Allocator) -> dict[int, dict[str, int]]:
    """By class size how many blocks the walk finds in the states that the library counts."""
    blocks = Blocks(allocator)
    found: dict[int, dict[str, int]] = {}
    for area in blocks.walk():
        if area.class_index is not None:
            row = found.setdefault(blocks.sizes[area.class_index], {})
            row[area.state] = row.get(area.state, 0) + 1
    return found


@pytest.mark.parametrize("mode", ["plain", "hardened"])
def test_walk_adds_up_to_the_totals(known: Path, tmp_path: Path, mode: str) -> None:
    with waiting(known, mode, tmp_path, more=MODES[mode]) as subject:
        live = Live(subject.pid)
        walked, snapshot = counted(live), live.snapshot()
    assert len(snapshot["classes"]) >= 3
    for row in snapshot["classes"]:
        of = walked[row["size"]]
        # What others have freed is not counted as collected yet, and so as live.
        assert row["live"] == of.get("live", 0) + of.get("freed_by_another", 0), row
        assert row["cached"] == of.get("cached", 0) + of.get("kept", 0) + of.get("quarantined", 0), row
        assert row["outbox"] == of.get("outbox", 0), row


def in_the_library_s_words(area: AddressRange, address: int) -> str:
    """What hak__describe says of an address in such an area."""
    offset = address - area.start
    if area.kind == "huge":
        state = "live" if area.state == "live" else "free"
        return f"inside a {state} huge block of {area.size} bytes, offset {offset} (block {area.start:#x})"
    state = "live" if area.state == "live" else "free" if area.state in FREE else "never handed out"
    return f"inside a {state} block of {area.size} bytes, offset {offset} (block {area.start:#x}, heap {area.heap},"


def test_walk_is_the_library_s_own(tmp_path: Path) -> None:
    """Every block, at its first and its last byte, and the areas between blocks."""
    program = compile_c(tmp_path, SOURCE, "-DWITH_DESCRIPTION", *FLAVOURS["archive"])
    places = {"tail": "behind the last block of a slab of", "unused_slabs": "in a free slab"}
    seen: dict[str, int] = {}
    with waiting(program, "plain", tmp_path / "run", preload=None, more=MODES["plain"]) as subject:
        areas = list(Blocks(Live(subject.pid)).walk())
        subject.tell("w")
        for area in areas:
            wanted = places.get(area.state)
            if not area.is_block and wanted is None:
                continue
            # The run of a freed huge block extends beyond it.
            end = area.start + area.size if area.kind == "huge" and area.size else area.end
            for address in (area.start, end - 1):
                subject.tell(f"{address:#x}\n")
                said = subject.line()
                assert said.startswith(wanted or in_the_library_s_words(area, address)), (area, said)
            seen[area.state] = seen.get(area.state, 0) + 1
    for state in ("live", "cached", "kept", "outbox", "freed_by_another", "in_span", "never", *places):
        assert seen.get(state, 0) > 0, state
    assert sum(seen.values()) > 1000


# --- what a core has --------------------------------------------------------------------------------------------------


def test_a_core_lacks_nothing(remains: tuple[str, Remains]) -> None:
    """No mapping of the library is excluded from dumps, and the kernel's core has every byte of them."""
    mode, of = remains
    assert of.mappings and all(" dd" not in flags for _, flags in of.mappings)
    dead = Dead(core_of(of, "kernel"))
    assert dead.core.remarks() == []
    guards = [page for page, content in of.memory.items() if content is None]
    assert len(of.memory) > 20 and len(guards) < len(of.memory) / 10
    different = [
        page for page, content in of.memory.items() if content is not None and dead.memory.read(page, 4096) != content
    ]
    # What abort() itself touched: the thread that died may have been inside the allocator's tables.
    assert different == [], mode


@pytest.mark.parametrize("stripped", [False, True], ids=["", "stripped"])
@pytest.mark.parametrize("flavour", [name for name in FLAVOURS if name != "preload"])
def test_linked_programs(tmp_path: Path, flavour: str, stripped: bool) -> None:
    if not ARCHIVE.exists():
        pytest.skip("no libhakmem.a")
    program = compile_c(tmp_path, SOURCE, *FLAVOURS[flavour])
    if stripped:
        program = stripped_copy(program, tmp_path / "stripped")
    if not kernel_writes_here():
        pytest.skip("the kernel writes no cores here (core_pattern)")
    with waiting(program, "plain", tmp_path / "run", preload=None, more=MODES["plain"]) as subject:
        path = subject.die()
    blocks = Blocks(Dead(path))
    expect_verdicts("plain", {name: blocks.at(place) for name, place in subject.places.items()})
    heap = blocks.heaps.heap(blocks.at(subject.places["small"]).heap or 0)
    assert heap and heap.thread == subject.pid


def test_a_segmentation_fault(known: Path, tmp_path: Path) -> None:
    if not kernel_writes_here():
        pytest.skip("the kernel writes no cores here (core_pattern)")
    with waiting(known, "plain", tmp_path / "run", more=MODES["plain"]) as subject:
        os.kill(subject.pid, signal.SIGSEGV)
        assert subject.child.wait(30) == -signal.SIGSEGV
    found = hakmem("block", hex(subject.places["large"] + 5), subject.core())
    assert found.returncode == 0
    assert "lies in a block of 229376 bytes, live: at offset 5" in found.stdout


# --- the command ------------------------------------------------------------------------------------------------------


def test_what_is_printed(plain: Remains) -> None:
    place = plain.places["hole"]
    done = hakmem("block", hex(place + 3), plain.cores["kernel"])
    assert (done.returncode, done.stderr) == (0, "")
    span = place & ~0xFFFF
    number = (place - span) // 640
    lines = done.stdout.splitlines()
    assert lines[0] == f"{place + 3:#x} lies in a block of 640 bytes, free in its span: at offset 3"
    assert lines[1] == f"  range    {place:#x} .. {place + 640:#x}"
    assert lines[2].startswith("  class    ") and lines[2].endswith(", blocks of 640 bytes")
    assert lines[3].startswith(f"  span     {span:#x}, 64 KiB: this is block {number} of 102, of which ")
    assert lines[4] == f"  of       heap 1, active, of thread {plain.pid}"
    assert lines[5] == f"  before   {place - 640:#x} .. {place:#x}: block of 640 bytes, live"
    assert lines[6] == f"  behind   {place + 640:#x} .. {place + 1280:#x}: block of 640 bytes, live"
    assert len(lines) == 7


def test_as_json(plain: Remains) -> None:
    place = plain.places["outbox"]
    done = hakmem("block", "--json", str(place), plain.cores["kernel"])
    found = json.loads(done.stdout)
    assert found["address"] == hex(place) and found["offset"] == 0
    assert found["piece"]["state"] == "outbox" and found["piece"]["size"] == 1024
    assert found["piece"]["heap"]["thread"] == plain.pid
    assert found["piece"]["holder"]["id"] != found["piece"]["heap"]["id"]
    assert found["before"]["end"] == hex(place) and found["behind"]["start"] == hex(place + 1024)


def test_a_live_process(known: Path, tmp_path: Path) -> None:
    with waiting(known, "plain", tmp_path, more=MODES["plain"]) as subject:
        done = hakmem("block", hex(subject.places["cached"]), subject.pid)
        assert done.returncode == 0, done.stderr
        place = subject.places["cached"]
        said = f"{place:#x} is the start of a block of 48 bytes, free, ready in the cache of heap 1\n"
        assert done.stdout.startswith(said)
        assert "heap 1, active" in done.stdout and "thread" not in done.stdout


# --- refusals ---------------------------------------------------------------------------------------------------------


def refused(message: str, advice: str, *arguments: object) -> None:
    done = hakmem(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-2:] == [f"hakmem: {message}", f"        {advice}"]


def header(machine: int, bits: int = 64, big: bool = False) -> bytes:
    """The header of an empty core dump."""
    order = ">" if big else "<"
    start = b"\x7fELF" + bytes([bits // 32, 2 if big else 1, 1]) + bytes(9)
    word = "Q" if bits == 64 else "I"
    size = 64 if bits == 64 else 52
    return start + struct.pack(f"{order}HHI3{word}I6H", 4, machine, 1, 0, 0, 0, 0, size, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (header(183), "on aarch64, 64 bits, little-endian; this is x86-64"),
        (header(22, big=True), "on s390, 64 bits, big-endian; this is x86-64"),
        (header(3, bits=32), "on x86 (32 bits), 32 bits, little-endian; this is x86-64"),
    ],
)
def test_cores_of_other_machines(tmp_path: Path, content: bytes, what: str) -> None:
    if os.uname().machine != "x86_64":
        pytest.skip("the words are those of x86-64")
    path = tmp_path / "core.1"
    path.write_bytes(content)
    refused(f"{path} is a core dump of a process {what}", "Read it on a machine of the same kind.", "stats", path)
    refused(f"{path} is a core dump of a process {what}", "Read it on a machine of the same kind.", "block", "1", path)


def test_what_is_no_core(tmp_path: Path, known: Path) -> None:
    text = tmp_path / "text"
    text.write_text("hello\n")
    refused(f"{text} is not a core dump", "Give a core dump, or a process id.", "block", "0x10", text)
    advice = "Give the core that it left."
    refused(f"{known} is a program or a library, not a core dump", advice, "stats", known)
    refused(f"{LIBRARY} is a program or a library, not a core dump", advice, "block", "0x10", LIBRARY)
    refused("0xzz is not an address", "Give a number, such as 0x1b5801000040.", "block", "0xzz", text)
    missing = tmp_path / "missing"
    refused(
        f"{missing}: No such file or directory",
        "Give a core dump that you have permission to read.",
        "block",
        "1",
        missing,
    )


def test_core_without_the_library(known: Path, tmp_path: Path) -> None:
    if not kernel_writes_here():
        pytest.skip("the kernel writes no cores here (core_pattern)")
    with waiting(known, "idle", tmp_path / "run", preload=None) as subject:
        path = subject.die()
    refused(f"{path} (program) has no HAKMEM in it", "Give the core of a process that ran on HAKMEM.", "stats", path)


def test_cores_that_are_cut_off(plain: Remains, tmp_path: Path) -> None:
    whole = plain.cores["kernel"].read_bytes()
    parts = sorted(core.Core(plain.cores["kernel"]).memory, key=lambda part: part.offset)
    path = tmp_path / "core.cut"
    room = "Take a new core, with enough room on the disk and no limit (ulimit -c unlimited)."
    path.write_bytes(whole[:40])
    refused(f"{path} is truncated or not an ELF file: its header cannot be read", "Take a new core.", "stats", path)
    middle = parts[len(parts) // 3].offset
    path.write_bytes(whole[:middle])
    refused(f"{path} is truncated after {middle} bytes, before the data that would show HAKMEM", room, "stats", path)
    last = parts[-2].offset + 1  # only the end of the stacks is missing
    path.write_bytes(whole[:last])
    done = hakmem("block", hex(plain.places["small"]), path)
    assert done.returncode == 0
    assert done.stderr.startswith(f"hakmem: {path} is truncated after {last} bytes: ")
    assert " bytes of memory are missing, in " in done.stderr
    assert "is the start of a block of 64 bytes, live" in done.stdout


def test_cores_that_are_damaged(plain: Remains, tmp_path: Path) -> None:
    whole, path = plain.cores["kernel"].read_bytes(), tmp_path / "core.damaged"
    first, count = struct.unpack_from("=Q", whole, 32)[0], struct.unpack_from("=H", whole, 56)[0]
    headers = [(at, *struct.unpack_from("=IIQQQQ", whole, at)) for at in range(first, first + 56 * count, 56)]

    notes = next(each for each in headers if each[1] == 4)  # PT_NOTE
    damaged = bytearray(whole[: notes[3] + notes[6]])
    files = damaged.index(b"ELIF" + b"CORE\0\0\0\0") + 12
    struct.pack_into("=Q", damaged, files, 1 << 40)  # their number
    path.write_bytes(damaged)
    refused(f"{path} is truncated or not an ELF file: its header cannot be read", "Take a new core.", "stats", path)

    for held in (False, True):
        place = next(at for at, kind, _, _, _, _, size in headers if kind == 1 and bool(size) == held)  # PT_LOAD
        damaged = bytearray(whole)
        struct.pack_into("=I", damaged, place + 4, core.WRITABLE)
        struct.pack_into("=Q", damaged, place + 8, 1 << 63)  # the offset in the file
        path.write_bytes(damaged)
        assert len(core.Dead(path).core.remarks()) == held


def test_a_search_ends_with_the_file(plain: Remains, tmp_path: Path) -> None:
    """The memory behind a core whose last byte ends a page may not be touched, as mmap.find of older Pythons does when
    it ends at the last byte: it goes on by one byte before one that the magic number has, else by five."""
    found = core.Core(plain.cores["kernel"])
    part = next(part for part in found.memory if part.writable and found.files.at(part.start))
    page = bytearray(found.page)
    page[4] = page[5] = struct.pack("=I", MAGIC)[0]
    path = tmp_path / "core.cut"
    path.write_bytes(found.bytes[: part.offset] + page)
    source = """
import mmap, sys
from pathlib import Path
from hakmem_lab.inspect import core
from hakmem_lab.terminal.errors import LabError
guard = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)  # the core is mapped before it
try:
    core.Dead(Path(sys.argv[1]))
except LabError as error:
    print(error.message)
"""
    command = [sys.executable, "-c", source, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=100)
    assert done.returncode == 0 and "is truncated after" in done.stdout, done


def test_memory_that_was_left_out(known: Path, tmp_path: Path) -> None:
    """Bits of /proc/PID/coredump_filter: without bit 0 nothing can be read, with bit 2 the library's file is not
    needed."""
    if not kernel_writes_here():
        pytest.skip("the kernel writes no cores here (core_pattern)")
    library = tmp_path / LIBRARY.name
    shutil.copy(LIBRARY, library)
    paths = {}
    for name, mask in (("none", 0x10), ("files", 0x37), ("usual", 0x33)):
        with waiting(known, "plain", tmp_path / name, preload=library, more=MODES["plain"]) as subject:
            Path(f"/proc/{subject.pid}/coredump_filter").write_text(hex(mask))
            paths[name] = subject.die(), subject.places["small"]
    refused(
        f"{paths['none'][0]} lacks the program's data, in which HAKMEM would be found",
        "Bit 0 of /proc/PID/coredump_filter must be set before the process dies; the kernel's default, 0x33, has it.",
        "stats",
        paths["none"][0],
    )
    for name in ("files", "usual"):
        assert Blocks(Dead(paths[name][0])).at(paths[name][1]).state == "live"
    library.unlink()
    assert Blocks(Dead(paths["files"][0])).at(paths["files"][1]).state == "live"
    usual, small = paths["usual"]
    refused(
        f"{usual} needs {library}, from which the process ran: No such file or directory",
        "Give the file that ran, wherever it is now: --file PATH.",
        "block",
        hex(small),
        usual,
    )
    for arguments in (("block", hex(small), usual), ("stats", usual)):
        assert hakmem(*arguments, "--file", LIBRARY).returncode == 0
    wrong_files(usual, known, tmp_path)


def wrong_files(path: Path, known: Path, folder: Path) -> None:
    """--file with files that are not the one that ran."""
    advice = "Give the file that ran: --file PATH."
    dead = Dead(path, LIBRARY)
    tables = dead.root["tables"]
    part = dead.core.files.at(tables)
    assert part
    content = bytearray(LIBRARY.read_bytes())
    numbers = part.offset + tables - part.start + struct.unpack_from("=I", dead.memory.read(tables + 28, 4))[0]
    content[numbers + 40] ^= 8  # a stride, or an offset
    other = folder / "libother.so"
    other.write_bytes(content)
    refused(f"{other} is not the build that {path} ran on", advice, "stats", path, "--file", other)
    other.write_bytes(content[:64] + bytes(len(content) - 64))
    refused(f"{other} is not the build that {path} ran on", advice, "stats", path, "--file", other)
    short = hakmem("stats", path, "--file", known)
    assert short.returncode == 1
    assert f"{known} ends before the part that the process had mapped at 0x" in short.stderr
    assert short.stderr.splitlines()[-1] == f"        {advice}"
    refused(
        f"--file: {folder} is not an ELF file that can be read",
        "Give the library's file, or the program's.",
        "stats",
        path,
        "--file",
        folder,
    )


def patched(plain: Remains, path: Path, change: Any) -> Path:
    """A copy of the core in which the structure hak_live is another."""
    dead = Dead(plain.cores["kernel"])
    place = dead._find()
    part = dead.core.memory.at(place)
    assert part
    content = bytearray(plain.cores["kernel"].read_bytes())
    change(content, part.offset + place - part.start, list(dead.root))
    path.write_bytes(content)
    return path


def test_another_layout_or_version(plain: Remains, tmp_path: Path) -> None:
    def newer(content: bytearray, at: int, roots: list[str]) -> None:
        del roots
        assert struct.unpack_from("=I", content, at)[0] == MAGIC
        struct.pack_into("=I", content, at + 4, 2)

    def other(content: bytearray, at: int, roots: list[str]) -> None:
        content[at + 16 + 8 * roots.index("layout")] ^= 1

    path = patched(plain, tmp_path / "core.newer", newer)
    refused(
        f"{path} is from a HAKMEM whose tables have version 2; this lab reads 1",
        "Use the lab that came with that library.",
        "stats",
        path,
    )
    path = patched(plain, tmp_path / "core.other", other)
    refused(f"{LIBRARY} is not the build that {path} ran on", "Give the file that ran: --file PATH.", "stats", path)


def test_a_library_that_does_not_say_how_blocks_lie(known: Path, tmp_path: Path) -> None:
    with waiting(known, "plain", tmp_path, more=MODES["plain"]) as subject:
        live = Live(subject.pid)
        del live.number["span_free"]
        with pytest.raises(LabError, match="its library does not describe the layout of its blocks"):
            Blocks(live)


def test_a_large_core_is_not_loaded(plain: Remains, tmp_path: Path) -> None:
    """64 GiB more cost nothing: only what is needed is read."""
    path = tmp_path / "core.large"
    content = bytearray(plain.cores["kernel"].read_bytes())
    path.write_bytes(content)
    os.truncate(path, 64 << 30)  # a hole behind the last segment
    import resource

    dead = Dead(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert Blocks(dead).at(plain.places["small"]).state == "live"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_a_map_of_a_core(plain: Remains) -> None:
    rows = slab_map.superslabs(Dead(plain.cores["kernel"]))
    assert {row["kind"] for row in rows} >= {"huge", "in_slabs"}
    assert "SuperSlabs (a character per slab" in hakmem("stats", "--map", plain.cores["kernel"]).stdout
