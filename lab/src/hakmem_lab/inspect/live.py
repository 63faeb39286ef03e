"""HAKMEM in a process, read from outside through include/hakmem_live.h. core.py does the same for a core dump.

The running library itself says where its counters lie. This module knows only the rules by which some figures follow
from others (docs/statistics.md)."""

from __future__ import annotations

import functools
import re
import resource
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hakmem_lab.inspect import user_heaps
from hakmem_lab.inspect.arrays import column, columns, np
from hakmem_lab.inspect.process_memory import Memory, Reader
from hakmem_lab.target import elf, process
from hakmem_lab.target.libhakmem import Option
from hakmem_lab.terminal.errors import LabError

SYMBOL = "hak_live"
MAGIC = 0x4C4B4148
VERSION = 1
ROOTS, NUMBERS, FIGURES, COLUMNS, PRESETS, ORIGINS, KINDS, WHEN, STATS = range(9)
WORD, HEAPS, CLASS, TABLE, RULE, KERNEL, PAGES, ALL = range(1, 9)
HARDEN_PARTS = ("canary", "zero", "random", "guards", "regions", "zero_size")  # from bit 1 on, as in diag/options.h
MOST_TABLES = 1 << 20
MIX = 0x9E3779B97F4A7C15
CLASSES_FROM = 1 << 16
WHOLE_WORD = (1 << 64) - 1
PRESENT, SWAPPED, OWN = (np.uint64(1 << bit) for bit in (63, 62, 56))  # of an entry of /proc/PID/pagemap
STATS_EXACT = 2

Rows = np.ndarray[Any, np.dtype[np.uint8]]


class NotHakmem(LabError):
    """The process can be read, but does not run on HAKMEM."""


@dataclass(frozen=True)
class Place:
    """The source of a figure."""

    kind: int
    root: int
    offset: int

    @classmethod
    def of(cls, word: int) -> Place:
        return cls(word >> 28, word >> 20 & 255, word & 0xFFFFF)


def candidates(pid: int) -> list[tuple[Path, process.Mapping]]:
    """The mapped files that may hold the library, each with its lowest mapping; those with its name come first. Loaders
    map privately; a shared mapping is one of a reader, such as a debugger or this lab."""
    first: dict[str, process.Mapping] = {}
    for mapping in process.mappings(pid):
        private = mapping.permissions.endswith("p")
        if mapping.path.startswith("/") and mapping.inode and mapping.offset == 0 and private:
            first.setdefault(mapping.path, mapping)
    order = sorted(first, key=lambda path: "hakmem" not in Path(path).name)
    return [(opened(pid, first[path]), first[path]) for path in order]


def opened(pid: int, mapping: process.Mapping) -> Path:
    """The mapped file itself, even if it was deleted or replaced since, as far as the kernel gives access to it."""
    itself = process.folder(pid) / "map_files" / f"{mapping.start:x}-{mapping.end:x}"
    try:
        with itself.open("rb"):
            return itself
    except OSError:
        return process.inside(pid, mapping.path.removesuffix(" (deleted)"))


class Allocator(ABC):
    """HAKMEM in the memory of a process, running or dead."""

    def __init__(self, memory: Reader, name: str, pid: int) -> None:
        self.memory = memory
        self.name = name  # of the process or core, for messages
        self.pid = pid

    @property
    @abstractmethod
    def page(self) -> int:
        """The page size of the process."""

    @abstractmethod
    def metadata_bytes(self) -> int:
        """Bytes mapped for the library's tables."""

    @abstractmethod
    def of_the_kernel(self) -> dict[str, int]:
        """The figures that only the kernel knows."""

    @abstractmethod
    def mapped_files(self) -> list[tuple[int, int, str]]:
        """Start, end and name of every named mapping, by address."""

    def file_at(self, address: int) -> str:
        """The name of the mapping at an address, mostly a file; empty if there is none."""
        return next((name for start, end, name in self.mapped_files() if start <= address < end), "")

    def code_at(self, address: int) -> str:
        """The same with the offset from the file's first mapping, as addr2line -e takes it."""
        name = self.file_at(address)
        first = next((start for start, _, each in self.mapped_files() if each == name), address)
        return f"{name}+{address - first:#x}" if name else ""

    @property
    def is_profiled(self) -> bool:
        """Whether a heap profile is on in the process."""
        if "profile" not in self.root:
            return False
        counts = self.memory.half(self.root["profile"] + self.number["profile_counts"])
        return bool(counts & self.number.get("profile_asked", 1))  # not only a tracer's

    @abstractmethod
    def threads(self) -> dict[int, int]:
        """Thread pointers by thread id, as far as they are known."""

    def _read_tables(self, address: int) -> None:
        """Reads everything that `hak_live` at this address leads to; a ValueError or a struct.error if the tables are
        not as expected."""
        memory = self.memory
        _, _, size, count = struct.unpack("=4I", memory.read(address, 16))
        roots = memory.words(address + 16, min(count, (size - 16) // 8))
        size, lists = struct.unpack("=2I", memory.read(roots[0], 8))
        if size > MOST_TABLES:
            raise ValueError(f"tables of {size} bytes")
        tables = memory.read(roots[0], size)

        def names(which: int) -> list[str]:
            length, at, _ = struct.unpack_from("=3I", tables, 8 + 12 * which)
            return [name.decode() for name in tables[at:].split(b"\0", length)[:length]]

        def values(which: int) -> dict[str, int]:
            length, _, at = struct.unpack_from("=3I", tables, 8 + 12 * which)
            return dict(zip(names(which), struct.unpack_from(f"={length}I", tables, at), strict=True))

        if lists <= STATS:
            raise ValueError(f"{lists} lists")
        self.roots = list(roots)
        self.root = dict(zip(names(ROOTS), roots, strict=False))
        self.number = values(NUMBERS)
        self.figures = {name: Place.of(word) for name, word in values(FIGURES).items()}
        self.columns = {name: Place.of(word) for name, word in values(COLUMNS).items()}
        self.words = {which: names(which) for which in (PRESETS, ORIGINS, KINDS, WHEN, STATS)}
        self.version = memory.text(self.root["version"])

    def layout(self) -> int:
        """The sum over numbers and classes that hakmem_live.h defines."""

        def mixed(value: int, i: int) -> int:
            for _ in range(2):
                value = (value + (i << 32)) * MIX & WHOLE_WORD
                value, i = value ^ value >> 32, 0
            return value

        total = sum(mixed(value, i) for i, value in enumerate(self.number.values()))
        sizes, blocks, slabs = (
            self.class_table(name, dtype)
            for name, dtype in (("size", np.uint32), ("blocks", np.uint16), ("slabs", np.uint8))
        )
        for i, (size, count, of) in enumerate(zip(sizes.tolist(), blocks.tolist(), slabs.tolist(), strict=True)):
            total += mixed(size | count << 32 | of << 56, CLASSES_FROM + i)
        return total & WHOLE_WORD

    # --- options --------------------------------------------------------------------------------------------------

    def options(self) -> dict[str, Option]:
        """All options with the values in force and where each comes from."""
        n, memory = self.number, self.memory
        rows = memory.read(self.root["option_rows"], n["option_count"] * n["option_stride"])
        in_force = memory.words(self.root["option_words"], n["option_count"])
        found = {}
        for i, word in enumerate(in_force):
            row = rows[i * n["option_stride"] :]

            def field(name: str, form: str, row: bytes = row) -> int:
                return int(struct.unpack_from("=" + form, row, n["option_" + name])[0])

            kind = self.words[KINDS][field("kind", "B")]
            value = word & (1 << n["origin_shift"]) - 1
            name = memory.text(self.root["option_text"] + field("name", "H"))
            found[name] = Option(
                name=name,
                help=memory.text(self.root["option_text"] + field("help", "H")),
                kind=kind,
                takes_effect=self.words[WHEN][field("when", "B")],
                origin=self.words[ORIGINS][word >> n["origin_shift"]],
                word=self._word_of(kind, value),
                value=value,
                standard=field("value", "Q"),
                least=field("least", "Q"),
                most=field("most", "Q"),
            )
        return found

    def _word_of(self, kind: str, value: int) -> str | None:
        if kind == "harden" and value > 1:
            return "+".join(name for i, name in enumerate(HARDEN_PARTS) if value >> i + 1 & 1)
        words = {
            "preset": self.words[PRESETS],
            "stats": self.words[STATS],
            "background": ["0", "1", "auto"],
            "thp": ["auto", "always", "never"],
            "harden": ["0", "1"],
            "misuse": ["abort", "report"],
            "profile": ["0", "1", "ready", "auto", "leaks"],
        }.get(kind, [])
        return words[value] or None if value < len(words) else None

    # --- figures --------------------------------------------------------------------------------------------------

    def _heaps(self) -> Rows:
        """The heaps in use, one row of bytes each."""
        n = self.number
        last = self.memory.half(self.root["heap_last"])
        found = []
        for heap in range(1, last + 1):
            at = self.root["heaps"] + heap * n["heap_stride"]
            if self.memory.half(at + n["heap_state"]) != 0:
                found.append(self.memory.read(at, n["heap_size"]))
        return np.frombuffer(b"".join(found), dtype=np.uint8).reshape(len(found), n["heap_size"])

    def _class_words(self, heaps: Rows, offset: int, dtype: Any = np.uint64) -> Any:
        """A field of every class of every heap."""
        n = self.number
        return columns(heaps, n["heap_classes"] + offset + n["heap_class_stride"] * np.arange(n["class_count"]), dtype)

    def _cached(self, heaps: Rows) -> Any:
        """Blocks in the stacks, by class: top - bottom of the real bin, as the library counts them."""
        n = self.number
        at = n["heap_bins"] + n["bin_top"] + n["bin_stride"] * np.arange(n["class_count"])
        visible = columns(heaps, at, np.int64)
        hidden = self._class_words(heaps, n["heap_class_hidden"] + n["bin_top"], np.int64)
        closed = heaps[:, n["heap_closed"] : n["heap_closed"] + n["class_count"]] != 0
        bottom = self._class_words(heaps, n["heap_class_bottom"], np.int64)
        ceiling = self._class_words(heaps, n["heap_class_ceiling"], np.uint16)
        count = (np.where(closed, hidden, visible) - bottom) // 8
        return np.where((bottom != 0) & (count >= 0) & (count <= ceiling), count, 0).sum(axis=0)

    def blocks_of(self, heaps: Rows) -> tuple[Any, Any]:
        """(live blocks, cached blocks) of all classes, as the library counts them for user heaps."""
        refilled, drained, collected = (
            self._class_words(heaps, self.columns[name].offset).sum(axis=0).astype(np.int64)
            for name in ("refilled", "drained", "collected")
        )
        cached = self._cached(heaps)
        return np.maximum(refilled - drained - collected - cached, 0), cached

    def _outbox(self, heaps: Rows) -> Any:
        """Blocks in outboxes, by class: the owner map tells the class of a bucket's slab."""
        n = self.number
        found = np.zeros(n["class_count"], dtype=np.int64)
        base = n["heap_outbox"] + n["bucket_stride"] * np.arange(n["bucket_count"])
        slabs = columns(heaps, base + n["bucket_slab"], np.uint32)
        blocks, taken = (columns(heaps, base + n[f"bucket_{name}"], np.uint16) for name in ("blocks", "taken"))
        blocks = np.where(blocks > taken, blocks - taken, 0)
        for slab, count in zip(slabs[slabs != 0].tolist(), blocks[slabs != 0].tolist(), strict=True):
            word = self.root["map"] + n["map_stride"] * (slab - 1) + n["map_owner"]
            class_index = self.class_of(self.memory.half(word))
            if class_index < n["class_count"]:
                found[class_index] += count
        return found

    def _quarantined(self, heaps: Rows) -> Any:
        """Hardened mode: blocks that wait before they are reused, by class; they count as cached."""
        n = self.number
        found = np.zeros(n["class_count"], dtype=np.int64)
        if "heap_quarantine" not in n:
            return found
        slabs = self.memory.word(self.root["frontier"]) << n["super_shift"] - n["slab_shift"]
        for at in column(heaps, n["heap_quarantine"], np.uint64).tolist():
            if at == 0:
                continue
            blocks = self.memory.words(at + n["quarantine_mixed"], n["quarantine_mixed_count"])
            blocks += self.memory.words(at + n["quarantine_queue"], n["quarantine_queue_count"])
            for block in blocks:
                slab = block - self.root["window"] >> n["slab_shift"]
                if block == 0 or not 0 <= slab < slabs:
                    continue
                word = self.memory.half(self.root["map"] + n["map_stride"] * slab + n["map_owner"])
                class_index = self.class_of(word)
                if class_index < n["class_count"]:
                    found[class_index] += 1
        return found

    def class_of(self, word: int) -> int:
        """The class that an owner word names; at least class_count if it names none."""
        return (word & (1 << self.number["class_offset_bits"]) - 1) // self.number["class_offset_unit"]

    def class_table(self, field: str, dtype: Any) -> Any:
        """A column of the library's table of size classes."""
        rows = self.rows("classes", "class_stride", self.number["class_count"])
        return column(rows, self.number["class_" + field], dtype).astype(np.int64)

    def rows(self, root: str, stride: str, count: int, first: int = 0) -> Rows:
        """Rows of one of the library's tables."""
        size = self.number[stride]
        content = self.memory.read(self.root[root] + first * size, count * size)
        return np.frombuffer(content, np.uint8).reshape(count, size)

    def _columns(self, heaps: Rows) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, place in self.columns.items():
            if place.kind == CLASS:
                found[name] = self._class_words(heaps, place.offset).sum(axis=0).astype(np.int64)
            elif place.kind == TABLE:
                found[name] = self.class_table(name, np.uint32)
        found["cached"] = self._cached(heaps) + self._quarantined(heaps)
        found["outbox"] = self._outbox(heaps)
        gone = found["drained"] + found["collected"] + found["cached"] + found["outbox"]
        found["live"] = np.maximum(found["refilled"] - gone, 0)
        found["hits"] = np.maximum(found["mallocs"] - found["misses"], 0)
        return found

    def _by_rule(self, heaps: Rows, columns: dict[str, Any]) -> dict[str, int]:
        """The figures of kind RULE, as stats/snapshot.c derives them, and those that the kernel knows."""
        n, size = self.number, columns["size"]
        state, held = column(heaps, n["heap_state"], np.uint32), column(heaps, n["heap_slab_count"], np.uint64)
        missing = self.memory.word(self.root["pieces_missing"]) if "pieces_missing" in self.root else 0
        whole = int(held.sum()) << n["slab_shift"]  # a sum modulo 2^64: a single heap's figure may be below 0
        sampled = self.memory.words(self.root["sampled"], 2) if "sampled" in self.root else [0, 0]
        found = {
            "remote_heaps": len(heaps),
            "remote_parked": (state == n["state_parked"]).sum(),
            "calls_malloc": columns["mallocs"].sum(),
            "calls_free": columns["frees"].sum(),
            "bytes_live": (columns["live"] * size).sum() + sampled[1],
            "bytes_cached": ((columns["cached"] + columns["outbox"]) * size).sum(),
            "bytes_spans": whole - missing if missing <= whole else whole,
            "bytes_metadata": self.metadata_bytes(),
            "total_refilled": columns["refilled"].sum(),
            "total_drained": (columns["drained"] + columns["collected"]).sum(),
            "total_misses": columns["misses"].sum(),
            "total_live": columns["live"].sum() + sampled[0],
        }
        return {name: int(value) for name, value in (found | self.of_the_kernel()).items()}

    def snapshot(self) -> dict[str, Any]:
        """The current figures in the form of HAKMEM_STATS=json, without the ledger, which ledger.py adds."""
        options = self.options()
        exact = "stats" in options and options["stats"].value == STATS_EXACT
        heaps = self._heaps()
        columns = self._columns(heaps)
        rules = self._by_rule(heaps, columns)
        huge = [self._figure(self.figures[name], heaps) for name in ("huge_allocated", "huge_freed")]
        rules["huge_live"] = max(huge[0] - huge[1], 0)
        found: dict[str, Any] = {"version": 1, "pid": self.pid}
        for name, place in self.figures.items():
            group, _, figure = name.partition("_")
            if (group == "calls" and not exact) or (name not in rules and place.kind not in (WORD, HEAPS, ALL)):
                continue
            found.setdefault(group, {})[figure] = rules[name] if name in rules else self._figure(place, heaps)
        if "latency" in options and options["latency"].value:
            found |= self._latencies()
        hidden = {"pinned"} | (set() if exact else {"mallocs", "frees", "hits"})
        shown = [name for name in self.columns if name in columns and name not in hidden]
        found["classes"] = [
            {name: int(columns[name][i]) for name in shown}
            for i in range(self.number["class_count"])
            if columns["refilled"][i] > 0
        ]
        own = user_heaps.rows(self)
        return found | ({"heaps": own} if own else {})

    def _figure(self, place: Place, heaps: Rows) -> int:
        if place.kind == WORD:
            return self.memory.word(self.roots[place.root] + place.offset)
        total = int(column(heaps, place.offset, np.uint64).sum())
        return total + self.memory.word(self.roots[place.root]) & WHOLE_WORD if place.kind == ALL else total

    def _latencies(self) -> dict[str, Any]:
        count, stride = self.number["latency_buckets"], self.number["latency_stride"]
        found = {}
        for i, name in enumerate(("latency_malloc", "latency_free")):
            total, *buckets = self.memory.words(self.root["latencies"] + i * stride, 1 + count)
            found[name] = {"sum": total, "buckets": buckets}
        return found

    def capacities(self) -> list[tuple[int, int, int]]:
        """(size, largest current capacity, ceiling) of each class, in blocks that a thread may cache."""
        heaps = self._heaps()
        if len(heaps) == 0:
            return []
        now = self._class_words(heaps, self.number["heap_class_capacity"], np.uint16).max(axis=0)
        most = self._class_words(heaps, self.number["heap_class_ceiling"], np.uint16).max(axis=0)
        sizes = self.class_table("size", np.uint32)
        return [(int(s), int(a), int(b)) for s, a, b in zip(sizes, now, most, strict=True)]


class Live(Allocator):
    """One process that runs on HAKMEM."""

    def __init__(self, pid: int) -> None:
        self.process_memory = Memory(pid)
        super().__init__(self.process_memory, f"process {pid}", pid)
        self.file, address = self._find()
        try:
            self._read_tables(address)
        except (ValueError, struct.error):
            raise LabError(
                f"{self.name}: the library's tables are truncated", "Rebuild the library and the lab."
            ) from None

    def _find(self) -> tuple[str, int]:
        """The file with the library in it, and the address of hak_live."""
        started = False
        for path, mapping in candidates(self.pid):
            offset = elf.symbol(path, SYMBOL)
            bias = None if offset is None else elf.load_bias(path, mapping.offset, mapping.start)
            if offset is None or bias is None:
                continue
            magic, version = struct.unpack("=II", self.memory.read(bias + offset, 8))
            if magic == MAGIC and version == VERSION:
                return mapping.path, bias + offset
            if magic == MAGIC:
                raise LabError(
                    f"process {self.pid} runs a HAKMEM whose tables have version {version}; this lab reads {VERSION}",
                    "Use the lab that came with that library.",
                )
            started = True
        if started:
            raise LabError(f"HAKMEM is loaded in process {self.pid}, but has not started yet", "Try again in a moment.")
        gone = [
            mapping.path
            for mapping in process.mappings(self.pid)
            if re.search(r"libhakmem.*\(deleted\)$", mapping.path)
        ]
        if gone:
            raise LabError(
                f"process {self.pid} runs on {gone[0].removesuffix(' (deleted)')}, which has been deleted or replaced",
                "Only root can read such a file. Restart the process, or run this as root.",
            )
        raise NotHakmem(
            f"process {self.pid} ({process.command(self.pid)[:60]}) does not run on HAKMEM",
            "Start it with 'hakmem run -- PROGRAM'; 'hakmem doctor' says whether a process can be read.",
        )

    @property
    def page(self) -> int:
        return resource.getpagesize()

    @functools.cached_property
    def _pagemap(self) -> IO[bytes]:
        return (process.folder(self.pid) / "pagemap").open("rb", buffering=0)

    def page_entries(self, first: int, last: int) -> Any:
        """The kernel's entries of pages [first, last), 0 where it has none."""
        with process.looked_at(self.pid):
            self._pagemap.seek(8 * first)
            found = np.frombuffer(self._pagemap.read(8 * (last - first)), np.uint64)
        return np.pad(found, (0, last - first - len(found)))

    def is_metadata(self, mapping: process.Mapping) -> bool:
        return self.root["metadata"] <= mapping.start < self.root["window"]

    def metadata_bytes(self) -> int:
        return sum(mapping.size for mapping in process.mappings(self.pid) if self.is_metadata(mapping))

    def of_the_kernel(self) -> dict[str, int]:
        return {
            "process_peak_rss_bytes": process.kilobytes(self.pid, "VmHWM"),
            "process_minor_faults": process.minor_faults(self.pid),
        }

    def mapped_files(self) -> list[tuple[int, int, str]]:
        return [(each.start, each.end, each.path) for each in process.mappings(self.pid) if each.path]

    def threads(self) -> dict[int, int]:
        return {}  # the kernel tells only a debugger that stops the process
