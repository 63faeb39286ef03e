"""How many blocks HAKMEM has given to a running process, read from outside as include/hakmem_live.h says.

Nothing is asked of the process, so that this works for servers, for sandboxed workers and for children that end without
running exit's functions.
"""

import ctypes
import os
import pathlib
import struct

MAGIC, VERSION = 0x4C4B4148, 1
ROOTS, NUMBERS, FIGURES, COLUMNS = range(4)   # the lists of struct hak_live_tables
CLASS = 3                                     # the kind of a column that is added up over all heaps


class NotServed(Exception):
    """The process has no started library in it, or has ended."""


def base_address(pid, path):
    """Where a file is mapped in a process: its lowest address, or None."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                if line.rstrip("\n").endswith(path):
                    return int(line.partition("-")[0], 16)
    except OSError:
        pass
    return None


def read_memory(pid, address, size):
    """Bytes of a process that this one may trace."""
    try:
        memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    except OSError as error:
        raise NotServed(str(error)) from None
    try:
        data = os.pread(memory, size, address)
    except OSError as error:
        raise NotServed(str(error)) from None
    finally:
        os.close(memory)
    if len(data) < size:
        raise NotServed("the process has ended")
    return data


class Reader:
    """Reads the counters of every process that maps one file of the library.

    Where the counters lie in it is found in another copy, which this process loads: its own children, which are its
    copies until they start a program, do not seem to run on HAKMEM.
    """

    def __init__(self, library, copy):
        self.shared_object = str(library)
        structure = ctypes.c_uint32.in_dll(ctypes.CDLL(str(copy)), "hak_live")
        self.offset = ctypes.addressof(structure) - base_address(os.getpid(), str(copy))
        self.tables = None   # the same in every process

    def refilled(self, pid):
        """Blocks that moved from spans to the process's threads since its start; NotServed without the library."""
        base = base_address(pid, self.shared_object)
        if base is None:
            raise NotServed("the library is not mapped")
        at = base + self.offset
        magic, version, _size, count = struct.unpack("=4I", read_memory(pid, at, 16))
        if (magic, version) != (MAGIC, VERSION):
            raise NotServed("the library has not started")
        roots = struct.unpack(f"={count}Q", read_memory(pid, at + 16, 8 * count))
        if self.tables is None:
            self.tables = Tables(read_memory(pid, roots[0], struct.unpack("=I", read_memory(pid, roots[0], 4))[0]))
        return sum(self._column(pid, dict(zip(self.tables.roots, roots)), self.tables.columns["refilled"]))

    def _column(self, pid, root, where):
        """A column's word of each class of each heap that is in use."""
        number, kind, offset = self.tables.numbers, where >> 28, where & 0xfffff
        if kind != CLASS:
            raise NotServed("the library counts in another way")
        last, = struct.unpack("=I", read_memory(pid, root["heap_last"], 4))
        for heap in range(1, last + 1):
            at = root["heaps"] + heap * number["heap_stride"]
            data = read_memory(pid, at, number["heap_size"])
            if struct.unpack_from("=I", data, number["heap_state"])[0] != 0:
                for index in range(number["class_count"]):
                    place = number["heap_classes"] + index * number["heap_class_stride"] + offset
                    yield struct.unpack_from("=Q", data, place)[0]


class Tables:
    """The lists by which the library describes itself."""

    def __init__(self, data):
        self.data = data
        self.roots, self.numbers, self.columns = self.names(ROOTS), self.values(NUMBERS), self.values(COLUMNS)

    def _list(self, which):
        return struct.unpack_from("=3I", self.data, 8 + 12 * which)

    def names(self, which):
        count, at, _ = self._list(which)
        return [name.decode() for name in self.data[at:].split(b"\0", count)[:count]]

    def values(self, which):
        count, _, at = self._list(which)
        return dict(zip(self.names(which), struct.unpack_from(f"={count}I", self.data, at)))


def executable(pid):
    """The name of the program that a process runs; of a kernel thread or one that has ended, None."""
    try:
        return pathlib.Path(os.readlink(f"/proc/{pid}/exe")).name.removesuffix(" (deleted)")
    except OSError:
        return None
