"""HAKMEM in a core dump: what live.py reads from a running process, from an ELF core.

A core usually holds only the pages that the program has written. The library's constant tables are therefore read from
the file that was mapped there, and the checksum of their layout shows whether it is the file that ran. The core is
mapped, not loaded: only the pages that a question needs are read."""

from __future__ import annotations

import bisect
import mmap
import os
import platform
import re
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

from hakmem_lab.inspect.live import MAGIC, VERSION, Allocator, NotHakmem
from hakmem_lab.inspect.process_memory import Reader
from hakmem_lab.target import elf
from hakmem_lab.terminal.errors import LabError

MOST_ROOTS = 256
WRITABLE = 2
HEADER = 16  # of struct hak_live

# The note with the thread pointer and its offset there, and the offset of the thread's id in NT_PRSTATUS.
THREAD_POINTER = {"x86-64": ("NT_PRSTATUS", 112 + 21 * 8), "aarch64": (0x401, 0)}
THREAD_ID = 32
MACHINES = {"x86_64": "x86-64", "arm64": "aarch64"}
FILTER = "/proc/PID/coredump_filter"


class Missing(LabError):
    """Memory that the core does not hold."""


@dataclass(frozen=True)
class Part:
    """A range of addresses of the process's memory, or of one of its files."""

    start: int
    end: int
    offset: int  # offset in the core or in the file
    held: int  # bytes present, from the start
    writable: bool = False
    path: str = ""


class Ranges:
    """Parts by address."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = sorted(parts, key=lambda part: part.start)
        self.starts = [part.start for part in self.parts]

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def at(self, address: int) -> Part | None:
        place = bisect.bisect_right(self.starts, address) - 1
        return self.parts[place] if place >= 0 and address < self.parts[place].end else None


def is_core(path: Path) -> bool:
    """Whether a file is a core dump rather than a program: its ELF type."""
    with path.open("rb") if elf.is_elf(path) else nullcontext() as file:
        return file is not None and len(head := file.read(18)) == 18 and 4 in (head[16], head[17])


class Core:
    """The core's file: memory, mapped files, threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = 0
        self.command = ""
        self.page = mmap.PAGESIZE
        self.files = Ranges([])
        self.threads: dict[int, int] = {}
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                self._read(file)
                self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise LabError(f"{path}: {error.strerror}", "Give a core dump that you have permission to read.") from None

    def _read(self, file: Any) -> None:
        try:
            whole = ELFFile(file)
            self._check(whole)
            segments = list(whole.iter_segments())
            for each in segments:
                if isinstance(each, NoteSegment) and each["p_offset"] + each["p_filesz"] <= self.size:
                    self._read_notes(each)
        except (ELFError, ConstructError, struct.error, OverflowError, ValueError):
            raise LabError(
                f"{self.path} is truncated or not an ELF file: its header cannot be read", "Take a new core."
            ) from None
        self.memory = Ranges(
            [
                Part(
                    start=each["p_vaddr"],
                    end=each["p_vaddr"] + each["p_memsz"],
                    offset=each["p_offset"],
                    held=each["p_filesz"],
                    writable=bool(each["p_flags"] & WRITABLE),
                )
                for each in segments
                if each["p_type"] == "PT_LOAD"
            ]
        )

    def _check(self, whole: ELFFile) -> None:
        machine = elf.MACHINES.get(whole["e_machine"], str(whole["e_machine"]).removeprefix("EM_").lower())
        here = MACHINES.get(platform.machine(), platform.machine())
        order = "little-endian" if whole.little_endian else "big-endian"
        if whole["e_type"] != "ET_CORE":
            raise LabError(f"{self.path} is a program or a library, not a core dump", "Give the core that it left.")
        if (machine, whole.elfclass, whole.little_endian) != (here, 64, True):
            raise LabError(
                f"{self.path} is a core dump of a process on {machine}, {whole.elfclass} bits, {order}; this is {here}",
                "Read it on a machine of the same kind.",
            )
        self.machine = machine

    def _read_notes(self, segment: NoteSegment) -> None:
        thread = 0
        note_of, place = THREAD_POINTER.get(self.machine, ("", 0))
        for note in segment.iter_notes():
            kind, content = note["n_type"], note["n_descdata"]
            if kind == "NT_PRPSINFO":
                self.pid = int(note["n_desc"]["pr_pid"])
                self.command = note["n_desc"]["pr_fname"].partition(b"\0")[0].decode(errors="replace")
            elif kind == "NT_PRSTATUS":
                thread = struct.unpack_from("=I", content, THREAD_ID)[0]
            elif kind == "NT_FILE":
                self._read_files(note["n_desc"])
            if kind == note_of and len(content) >= place + 8:
                self.threads[thread] = struct.unpack_from("=Q", content, place)[0]

    def _read_files(self, note: Any) -> None:
        unit, parts = int(note["page_size"]), []
        if unit > 1:  # gdb counts in bytes
            self.page = unit
        for entry, name in zip(note["Elf_Nt_File_Entry"], note["filename"], strict=True):
            start, end, offset = entry["vm_start"], entry["vm_end"], entry["page_offset"] * unit
            parts.append(Part(start, end, offset, end - start, path=os.fsdecode(name)))
        self.files = Ranges(parts)

    # --- what is missing ------------------------------------------------------------------------------------------

    @property
    def cut_off(self) -> int:
        """The bytes that the file should have but lacks."""
        return max(0, max((part.offset + part.held for part in self.memory if part.held), default=0) - self.size)

    def remarks(self) -> list[str]:
        """A sentence on what the core lacks; empty if it is whole."""
        if not self.cut_off:
            return []
        lost = [part for part in self.memory if part.held and part.offset + part.held > self.size]
        bytes_lost = sum(min(part.held, part.offset + part.held - self.size) for part in lost)
        return [
            f"{self.path} is truncated after {self.size} bytes: {bytes_lost} bytes of memory are missing, "
            f"in {len(lost)} mappings from {lost[0].start:#x} to {lost[-1].end:#x}"
        ]


class CoreMemory(Reader):
    """The memory of a core, completed from the files that were mapped."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.file = ""  # read instead of the file that the core names
        self.bias = 0  # added to that file's addresses; only if the core names no files
        self._contents: dict[str, mmap.mmap] = {}

    def read(self, address: int, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._step(address + len(found), size - len(found))
        return found

    def _step(self, address: int, size: int) -> bytes:
        """As many of the bytes as are contiguous."""
        core, part = self.core, self.core.memory.at(address)
        if part is None:
            return self._from_file(address, size, "nothing was mapped there, or the kernel left it out of the core")
        behind = address - part.start
        if behind >= part.held:
            there = min(size, part.end - address)
            # The kernel leaves out mappings that were never touched. What was touched is in the core: the data in
            # which hak_live was found is of the same kind.
            if part.writable and core.files.parts and core.files.at(address) is None:
                return bytes(there)
            return self._from_file(address, there, f"the kernel left it out of the core ({FILTER})")
        at = part.offset + behind
        there = min(size, part.held - behind, core.size - at)
        if there <= 0:
            raise Missing(
                f"{core.path} lacks the memory at {address:#x}: it is truncated after {core.size} bytes",
                "Take a new core, with enough room on the disk and no limit (ulimit -c unlimited).",
            )
        return core.bytes[at : at + there]

    def _from_file(self, address: int, size: int, why: str) -> bytes:
        part = self.core.files.at(address)
        if part is None and self.file and not self.core.files.parts:
            part = self._part_of_file(address)
        if part is None:
            raise Missing(
                f"{self.core.path} lacks the memory at {address:#x}: {why}", "Take a new core that includes it."
            )
        path = self.file or part.path.removesuffix(" (deleted)")
        if path not in self._contents:
            self._contents[path] = self._open(path)
        at = part.offset + address - part.start
        found = self._contents[path][at : at + min(size, part.end - address)]
        if not found:
            raise Missing(
                f"{path} ends before the part that the process had mapped at {address:#x}: the file has changed",
                "Give the file that ran: --file PATH.",
            )
        return found

    def _open(self, path: str) -> mmap.mmap:
        try:
            with open(path, "rb") as file:
                return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is empty"
            raise Missing(
                f"{self.core.path} needs {path}, from which the process ran: {why}",
                "Give the file that ran, wherever it is now: --file PATH.",
            ) from None

    def _part_of_file(self, address: int) -> Part | None:
        """The offset of an address in the file that the user gave, by its segment table."""
        with open(self.file, "rb") as file:
            for each in ELFFile(file).iter_segments():
                start = self.bias + each["p_vaddr"]
                if each["p_type"] == "PT_LOAD" and start <= address < start + each["p_filesz"]:
                    return Part(start, start + each["p_filesz"], each["p_offset"], each["p_filesz"])
        return None


class Dead(Allocator):
    """HAKMEM in a core dump. `file`: the library's or the program's file, if it is no longer where the core says."""

    def __init__(self, path: Path, file: Path | None = None) -> None:
        self.core = Core(path)
        self.core_memory = CoreMemory(self.core)
        super().__init__(self.core_memory, str(path), self.core.pid)
        address = self._find()
        self._take_file(address, file)
        self.file = self.file_at(self.memory.word(address + HEADER))
        self._read_checked(address)

    # --- finding --------------------------------------------------------------------------------------------------

    def _find(self) -> int:
        """The address of hak_live."""
        for address in self._candidates():
            version, size, count = struct.unpack("=3I", self.memory.read(address + 4, 12))
            if size % 8 or not 0 < count <= (size - HEADER) // 8 <= MOST_ROOTS:
                continue
            if version == VERSION:
                return address
            raise LabError(
                f"{self.name} is from a HAKMEM whose tables have version {version}; this lab reads {VERSION}",
                "Use the lab that came with that library.",
            )
        return self._not_found()

    def _places(self) -> list[Part]:
        """Writable memory that may hold the data of files: their own mappings and what follows without a gap (.bss).
        All writable memory, if the core does not name its files."""
        found: list[Part] = []
        for part in self.core.memory:
            near = bool(found) and found[-1].end == part.start
            if part.writable and (near or not self.core.files.parts or self.core.files.at(part.start)):
                found.append(part)
        return found

    def _candidates(self) -> Iterator[int]:
        core, magic = self.core, re.compile(re.escape(struct.pack("=I", MAGIC)))
        for part in self._places():
            end = min(part.offset + part.held, core.size)
            begin = min(part.offset, end)
            for found in magic.finditer(core.bytes, begin, end):  # mmap.find reads a byte beyond (gh-105235)
                at = found.start() - begin
                if at % 8 == 0 and found.start() + HEADER + 8 <= end:
                    yield part.start + at

    def _not_found(self) -> int:
        places = self._places()
        named = sorted({Path(part.path).name for part in self.core.files if "libhakmem" in part.path})
        if self.core.cut_off and any(part.offset + part.held > self.core.size for part in places):
            raise LabError(
                f"{self.name} is truncated after {self.core.size} bytes, before the data that would show HAKMEM",
                "Take a new core, with enough room on the disk and no limit (ulimit -c unlimited).",
            )
        if places and not any(part.held for part in places):
            raise LabError(
                f"{self.name} lacks the program's data, in which HAKMEM would be found",
                f"Bit 0 of {FILTER} must be set before the process dies; the kernel's default, 0x33, has it.",
            )
        if named:
            raise LabError(
                f"{named[0]} is loaded in {self.name}, but had not started", "The process had not allocated anything."
            )
        raise NotHakmem(
            f"{self.name} ({self.core.command or 'a process without a name'}) has no HAKMEM in it",
            "Give the core of a process that ran on HAKMEM.",
        )

    # --- tables ---------------------------------------------------------------------------------------------------

    def _take_file(self, address: int, file: Path | None) -> None:
        if file is None:
            return
        if not elf.is_elf(file):
            raise LabError(
                f"--file: {file} is not an ELF file that can be read", "Give the library's file, or the program's."
            )
        self.core_memory.file = str(file)
        if not self.core.files.parts:
            symbol = elf.symbol(file, "hak_live")
            if symbol is None:
                raise LabError(
                    f"{self.name} does not name its files, and {file} has no symbol hak_live", "Take a new core."
                )
            self.core_memory.bias = address - symbol

    def _read_checked(self, address: int) -> None:
        other = LabError(
            f"{self.core_memory.file or self.file} is not the build that {self.name} ran on",
            "Give the file that ran: --file PATH.",
        )
        try:
            self._read_tables(address)
            sound = self.root.get("layout", 0) in (0, self.layout())
        except (ValueError, struct.error, KeyError, IndexError):
            raise other from None
        if not sound:
            raise other

    # --- what Allocator asks --------------------------------------------------------------------------------------

    @property
    def page(self) -> int:
        return self.core.page

    def metadata_bytes(self) -> int:
        return sum(
            part.end - part.start
            for part in self.core.memory
            if self.root["metadata"] <= part.start < self.root["window"]
        )

    def of_the_kernel(self) -> dict[str, int]:
        return {}

    def mapped_files(self) -> list[tuple[int, int, str]]:
        return [(part.start, part.end, part.path) for part in self.core.files]

    def threads(self) -> dict[int, int]:
        return self.core.threads
