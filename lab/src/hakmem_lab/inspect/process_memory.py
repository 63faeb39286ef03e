"""Reads another process's memory while it runs, by process_vm_readv(2), which does not stop it. core.py reads that of a
dead process."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

if TYPE_CHECKING:
    Call = ctypes._NamedFuncPointer


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def _find_call(name: str) -> Call | None:
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is not None:
        call.restype = ctypes.c_ssize_t
        call.argtypes = (
            ctypes.c_int,
            ctypes.POINTER(_IoVec),
            ctypes.c_ulong,
            ctypes.POINTER(_IoVec),
            ctypes.c_ulong,
            ctypes.c_ulong,
        )
    return call


_READ, _WRITE = _find_call("process_vm_readv"), _find_call("process_vm_writev")


class Reader(ABC):
    """The memory of a process, running or dead."""

    @abstractmethod
    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at an address; a LabError if they cannot be read."""

    def read_if_there(self, address: int, size: int) -> bytes | None:
        """The same; None if they cannot be read."""
        try:
            return self.read(address, size)
        except LabError:
            return None

    def word(self, address: int) -> int:
        return int(struct.unpack("=Q", self.read(address, 8))[0])

    def half(self, address: int) -> int:
        return int(struct.unpack("=I", self.read(address, 4))[0])

    def words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"={count}Q", self.read(address, 8 * count))

    def text(self, address: int, most: int = 4096) -> str:
        """The string that ends with a 0; it may lie at the end of a mapping."""
        found = b""
        while b"\0" not in found and len(found) < most:
            at = address + len(found)
            found += self.read(at, 64 - at % 64)
        return found.partition(b"\0")[0].decode(errors="replace")


class Memory(Reader):
    """The memory of a running process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes at an address; a LabError if the process has ended, may not be read, or has nothing there."""
        if size == 0:
            return b""
        buffer = ctypes.create_string_buffer(size)
        self._move(_READ, address, buffer)
        return buffer.raw

    def write(self, address: int, content: bytes) -> None:
        """Writes into the process; a LabError if it has ended or may not be written to."""
        self._move(_WRITE, address, ctypes.create_string_buffer(content, len(content)))

    def _move(self, call: Call | None, address: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
        if call is None:
            raise LabError("this C library cannot look into processes", "Use HAKMEM_STATS=json:FILE instead.")
        done = 0
        while done < len(buffer):
            done += self._step(call, address + done, ctypes.addressof(buffer) + done, len(buffer) - done)

    def _step(self, call: Call, address: int, at: int, size: int) -> int:
        here, there = _IoVec(at, size), _IoVec(address, size)
        got = int(call(self.pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0))
        if got > 0:
            return got
        code = ctypes.get_errno()
        if code == errno.EPERM:
            raise process.refusal(self.pid)
        if code == errno.ESRCH or not process.exists(self.pid):
            raise process.ended(self.pid)
        raise LabError(
            f"process {self.pid} has nothing at {address:#x}: {os.strerror(code)}",
            "It may have executed another program meanwhile; try again.",
        )
