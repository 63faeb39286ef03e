"""Facts about an executable or a library: its machine, its dynamic linker, the symbols that it defines."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

SHN_UNDEF = 0
STT_OBJECT, STT_FUNC = 1, 2
MACHINES = {
    "EM_X86_64": "x86-64",
    "EM_386": "x86 (32 bits)",
    "EM_AARCH64": "aarch64",
    "EM_ARM": "arm",
    "EM_RISCV": "riscv",
    "EM_PPC64": "ppc64",
    "EM_S390": "s390",
}


@dataclass(frozen=True)
class Elf:
    path: Path
    machine: str
    interpreter: str | None  # the dynamic linker; None in libraries and in static programs


def is_elf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def describe(path: Path) -> Elf | None:
    """None if the file is not ELF. OSError if it cannot be read."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import InterpSegment

    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            return None
        try:
            elf = ELFFile(file)
            interpreter = None
            for segment in elf.iter_segments():
                if isinstance(segment, InterpSegment):
                    interpreter = segment.get_interp_name()
            machine = str(elf["e_machine"])
            name = MACHINES.get(machine, machine.removeprefix("EM_").lower())
        except ELFError:
            return None
    return Elf(path, name, interpreter)


def needed(path: Path) -> list[str]:
    """The names of the libraries that a file needs."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            section = ELFFile(file).get_section_by_name(".dynamic")
            tags = section.iter_tags("DT_NEEDED") if isinstance(section, DynamicSection) else ()
            return [str(each.needed) for each in tags]
    except (OSError, ELFError):
        return []


def needs_musl(path: Path) -> bool:
    """Whether a library needs musl's C library, by its upstream name or Alpine's; glibc's is libc.so.6."""
    return any(name == "libc.so" or name.startswith("libc.musl-") for name in needed(path))


def symbol(path: Path, name: str, tables: tuple[str, ...] = (".dynsym", ".symtab")) -> int | None:
    """The address of a defined symbol relative to the file's own addresses, from the first of the tables that has it;
    None if none has it or the file is not ELF."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            for table in tables:
                section = elf.get_section_by_name(table)
                if isinstance(section, SymbolTableSection):
                    value = _value(elf, section, name.encode())
                    if value is not None:
                        return value
    except (OSError, ELFError):
        pass
    return None


def _value(elf: ELFFile, section: SymbolTableSection, name: bytes) -> int | None:
    """The value of a defined symbol. pyelftools would make an object of every symbol, which is slow for large
    programs."""
    names, form = section.stringtable.data(), "IBBHQQ" if elf.elfclass == 64 else "IIIBBH"
    wanted, place = set(), names.find(name + b"\0")
    while place >= 0:  # a name may be the end of another one
        wanted.add(place)
        place = names.find(name + b"\0", place + 1)
    if not wanted:
        return None
    for row in struct.iter_unpack(("<" if elf.little_endian else ">") + form, section.data()):
        index, value = (row[3], row[4]) if elf.elfclass == 64 else (row[5], row[1])
        if row[0] in wanted and index != SHN_UNDEF:
            return int(value)
    return None


def objects(path: Path) -> list[tuple[int, int, str]]:
    """Address, size and name of every named object and function in the file, by address; empty if it has no symbols."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    found: dict[int, tuple[int, str]] = {}
    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            for table in (".symtab", ".dynsym"):  # names that others link with win
                section = elf.get_section_by_name(table)
                if not isinstance(section, SymbolTableSection) or elf.elfclass != 64:
                    continue
                names = section.stringtable.data()
                for name, info, _, index, value, size in struct.iter_unpack("=IBBHQQ", section.data()):
                    if info & 15 in (STT_OBJECT, STT_FUNC) and index != SHN_UNDEF and size:
                        found[value] = (size, names[name : names.index(b"\0", name)].decode(errors="replace"))
    except (OSError, ELFError, ValueError):
        pass
    return sorted((value, size, name) for value, (size, name) in found.items())


def missing_debug_information(path: Path) -> str | None:
    """The build id, in hexadecimal, of a file that has one and no debug information of its own."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.segments import NoteSegment

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            if elf.get_section_by_name(".debug_info") is not None:
                return None
            for segment in elf.iter_segments():
                if not isinstance(segment, NoteSegment):
                    continue
                for note in segment.iter_notes():
                    if note["n_type"] == "NT_GNU_BUILD_ID":
                        return str(note["n_desc"])
    except (OSError, ELFError):
        pass
    return None


def load_bias(path: Path, file_offset: int, mapped_at: int) -> int | None:
    """What to add to the file's addresses if the part of it at file_offset is mapped at mapped_at.

    A page of the file can hold the end of one segment and the start of the next.
    A mapping that begins there is the next one's.
    """
    from elftools.elf.elffile import ELFFile

    bias = None
    page = os.sysconf("SC_PAGE_SIZE")
    with path.open("rb") as file:
        for segment in ELFFile(file).iter_segments():
            if segment["p_type"] != "PT_LOAD":
                continue
            start = segment["p_offset"] // page * page
            if start <= file_offset < segment["p_offset"] + segment["p_filesz"]:
                bias = int(mapped_at - file_offset - (segment["p_vaddr"] - segment["p_offset"]))
    return bias
