"""What a block holds, by its first words: a C++ object by its vtable, a Python object by its type, text, or leading
bytes that many blocks of a size share."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import Live
from hakmem_lab.inspect.live_blocks import WORD, Batch, Heap
from hakmem_lab.target import elf, process

TYPE_WORDS = (0, 1, 3)  # a vtable; CPython's ob_type, and behind the header of the garbage collector
TP_NAME = 24
TEXT_LEAST = 8  # a pointer's or a small number's bytes may look like text, but have a 0 among the first eight
COMMON = 8  # leading bytes are named that at least one block in so many has
FILTERS = ("llvm-cxxfilt", "c++filt")


class Symbols:
    """The names of addresses in the files that a process has mapped."""

    def __init__(self, heap: Heap) -> None:
        self.pid = heap.allocator.pid if isinstance(heap.allocator, Live) else 0
        self.files = [each for each in heap.allocator.mapped_files() if each[2].startswith("/")]
        self.starts = np.array([start for start, _, _ in self.files], np.uint64)
        self.ends = np.array([end for _, end, _ in self.files], np.uint64)
        self.tables: dict[str, tuple[int, list[tuple[int, int, str]]]] = {}

    def inside(self, words: Any) -> Any:
        """Whether each word is an address in a file."""
        if not len(self.files):
            return np.zeros(len(words), bool)
        at = np.searchsorted(self.starts, words, side="right") - 1
        return (at >= 0) & (words < self.ends[np.maximum(at, 0)])

    def name(self, address: int) -> str:
        """The symbol at an address; empty if none has it."""
        at = int(np.searchsorted(self.starts, np.uint64(address), side="right")) - 1
        path = self.files[at][2]
        if path not in self.tables:
            file = process.inside(self.pid, path) if self.pid else Path(path)
            first = next(start for start, _, each in self.files if each == path)
            bias = elf.load_bias(file, 0, first) if file.is_file() and elf.describe(file) else None
            self.tables[path] = (bias or 0, elf.objects(file) if bias is not None else [])
        bias, table = self.tables[path]
        place = bisect.bisect_right(table, (address - bias, 1 << 64, "")) - 1
        if place < 0:
            return ""
        start, size, name = table[place]
        return name if address - bias < start + size else ""


class Types:
    """Numbers for what blocks hold, and the name of each."""

    def __init__(self, heap: Heap) -> None:
        self.heap, self.symbols = heap, Symbols(heap)
        self.numbers: dict[str, int] = {}
        self.known: dict[int, int] = {}  # by the word: the number of what it names; -1: nothing

    def number(self, name: str) -> int:
        return self.numbers.setdefault(name, len(self.numbers))

    def of(self, batch: Batch, words: Any, is_text: Any, is_zero: Any) -> Any:
        """The number of each block's type."""
        found = np.full(len(words), -1, np.int64)
        for column in TYPE_WORDS:
            if column < words.shape[1]:
                open_ = np.flatnonzero(found < 0)
                found[open_] = self._by_word(words[open_, column], column)
        found[(found < 0) & is_zero] = self.number("zeros")
        found[(found < 0) & is_text] = self.number("text")
        rest = np.flatnonzero(found < 0)
        if len(rest) and words.shape[1]:
            points = self.heap.number_of(words[rest, 0]) >= 0
            found[rest[points]] = self.number("a pointer first")
            rest = rest[~points]
            values, which, counts = np.unique(words[rest, 0], return_inverse=True, return_counts=True)
            common = (counts * COMMON >= len(words)) & (counts > 1)
            for value in np.flatnonzero(common).tolist():
                found[rest[which == value]] = self.number(f"begins {leading(int(values[value]))}")
        found[found < 0] = self.number("other data")
        return found

    def _by_word(self, column: Any, place: int) -> Any:
        values, which = np.unique(column, return_inverse=True)
        if len(values) > len(column) // 2 + 64:  # no type has few blocks
            counts = np.bincount(which)
            values = np.where(counts > 1, values, 0)
        maybe = self.symbols.inside(values) | ((place > 0) & (self.heap.number_of(values) >= 0))
        numbers = np.full(len(values), -1, np.int64)
        for at in np.flatnonzero(maybe).tolist():
            numbers[at] = self._named(int(values[at]), place)
        return numbers[which]

    def _named(self, word: int, place: int) -> int:
        if word not in self.known:
            inside = bool(self.symbols.inside(np.array([word], np.uint64))[0])
            name = self.symbols.name(word) if inside else self._python_class(word)
            self.known[word] = self.number(name) if name else -1
        return self.known[word]

    def _python_class(self, address: int) -> str:
        """The name of a class that a Python program has defined: its own type is PyType_Type, or a class again."""
        head = self.heap.memory.read_if_there(address, TP_NAME + WORD)
        if head is None:
            return ""
        kind, name = (int.from_bytes(head[at : at + WORD], "little") for at in (WORD, TP_NAME))
        inside = self.symbols.inside(np.array([kind], np.uint64))[0]
        if not inside or self.symbols.name(kind) != "PyType_Type":
            return ""
        text = self.heap.memory.read_if_there(name, 64) or b""
        found = text.partition(b"\0")[0].decode(errors="replace")
        return f"Python's {found}" if re.fullmatch(r"[\w.]+", found) else ""

    def names(self) -> list[str]:
        """The names by number, C++'s as in its source."""
        names = list(self.numbers)
        tool = next((path for each in FILTERS if (path := shutil.which(each))), None)
        if tool and any(name.startswith("_Z") for name in names):
            done = subprocess.run([tool], input="\n".join(names), capture_output=True, text=True, check=False)
            if len(lines := done.stdout.splitlines()) == len(names):
                names = lines
        return [name.removeprefix("vtable for ") for name in names]


def leading(word: int) -> str:
    """A block's first eight bytes: as text if most are, else in hexadecimal, in the order of memory."""
    content = word.to_bytes(WORD, sys.byteorder)
    shown = "".join(chr(each) if 32 <= each < 127 else "." for each in content)
    return repr(shown) if shown.count(".") <= WORD // 2 else content.hex(" ")


def text_ends(rows: Any) -> Any:
    """The place of the 0 behind the ASCII text with which each block begins; -1 for a block that begins otherwise."""
    other = (rows >= 127) | ((rows < 32) & (rows != 9) & (rows != 10) & (rows != 13))
    end = other.argmax(axis=1)
    ends_there = other[np.arange(len(rows)), end] & (rows[np.arange(len(rows)), end] == 0)
    return np.where(ends_there & (end >= TEXT_LEAST), end, -1)
