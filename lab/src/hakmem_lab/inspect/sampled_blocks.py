"""The live blocks that the heap profiler has sampled: where each lies, what was asked for, and by which stack.

A block up to the mid classes lies in a slot outside the window, in chunks like spans of one slab; larger ones lie in
the window. The records of both follow the range of slots, in memory that is committed as it is used."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from hakmem_lab.inspect.arrays import column, np
from hakmem_lab.inspect.live import Allocator

CHUNK = 64 << 10
STEP = 256 << 10  # in which memory for records is committed


@dataclass
class Samples:
    """One row for each live sampled block."""

    starts: Any
    asked: Any
    born_ms: Any  # modulo 2^32
    sites: Any
    in_slots: Any
    slots: int  # the address of the first
    end: int  # of the records behind them
    intervals: dict[int, int]  # by site: mean bytes between samples
    frames: dict[int, tuple[int, ...]]

    def chances(self) -> Any:
        """The probability with which each was sampled."""
        interval = np.array([self.intervals[site] for site in self.sites.tolist()], float)
        return np.where(interval > 1, -np.expm1(-self.asked / np.maximum(interval, 1)), 1.0)


def read(allocator: Allocator) -> Samples | None:
    """None if no profile ever ran, or with a library that does not say where samples are."""
    n, memory = allocator.number, allocator.memory
    if "record_stride" not in n:
        return None
    slots = memory.word(allocator.root["sample"] + n["slots_start"])
    bytes_ = memory.word(allocator.root["sample"] + n["slots_bytes"])
    if not slots:
        return None
    parts: list[bytes] = []
    while (more := memory.read_if_there(slots + bytes_ + STEP * len(parts), STEP)) is not None:
        parts.append(more)
    content, stride = b"".join(parts), n["record_stride"]
    rows = np.frombuffer(content[: len(content) // stride * stride], np.uint8).reshape(-1, stride)
    sites = column(rows, n["record_site"], np.uint64)
    live = (column(rows, n["slot_state"], np.uint32) == n["slot_live"]) & (sites != 0)
    starts, asked = (column(rows, n[name], np.int64)[live] for name in ("slot_block", "record_bytes"))
    found = Samples(
        starts,
        asked,
        column(rows, n["record_born"], np.uint32)[live],
        sites[live],
        (starts >= slots) & (starts < slots + bytes_),
        slots,
        slots + bytes_ + len(content),
        {},
        {},
    )
    for site in np.unique(found.sites).tolist():
        head = memory.read(site, n["site_frames"])
        found.intervals[site] = struct.unpack_from("=Q", head, n["site_interval"])[0]
        count = struct.unpack_from("=H", head, n["site_frame_count"])[0]
        found.frames[site] = memory.words(site + n["site_frames"], count)
    return found
