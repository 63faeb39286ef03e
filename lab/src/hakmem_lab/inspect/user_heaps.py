"""User heaps, read from outside: the rows that HAKMEM_STATS=json has in "heaps"."""

from __future__ import annotations

import re
import struct
from typing import Any, Protocol

from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.process_memory import Reader

MOST = 1000  # the library shows no more either
NO_LIMIT = 2**64 - 1
NAME = 48
# What struct hak_regions has in `numbers` (src/region/region.c): sizes, and offsets in a row and a region.
REGION_NUMBERS = (
    *("most", "row_stride", "row_start", "row_size", "row_serial", "size", "name", "unit_shift"),
    *("slab_units", "large_units", "peak", "limit", "refused", "live_blocks", "live_bytes"),
)


class Tables(Protocol):
    """The part of live.Allocator that is used here."""

    memory: Reader
    root: dict[str, int]
    number: dict[str, int]

    def class_table(self, field: str, dtype: Any) -> Any: ...

    def blocks_of(self, heaps: Any) -> tuple[Any, Any]: ...


def rows(allocator: Tables) -> list[dict[str, Any]]:
    """A row for each heap; none with a library that does not say where they are."""
    if "owns" not in allocator.root:
        return []
    return [*_of_shares(allocator), *_in_regions(allocator)][:MOST]


def _name(content: bytes) -> str:
    """As the library prints it: control characters and bytes that are no UTF-8 become question marks."""
    return re.sub("[\0-\x1f\x7f-\x9f\udc80-\udcff]", "?", content.split(b"\0", 1)[0].decode(errors="surrogateescape"))


def _word(content: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(content[at : at + size], "little")


def _limit(value: int) -> int:
    return 0 if value == NO_LIMIT else value


def _of_shares(allocator: Tables) -> list[dict[str, Any]]:
    n, memory = allocator.number, allocator.memory
    own, seen = memory.word(allocator.root["owns"]), set[int]()
    found: list[dict[str, Any]] = []
    while own != 0 and own not in seen and len(found) < MOST:
        seen.add(own)
        content = memory.read(own, n["own_size"])
        if _word(content, 0, 4) == n["own_alive"]:
            huge = _word(content, n["own_huge_count"]), _word(content, n["own_huge_bytes"])
            live, live_bytes, cached_bytes = _blocks(allocator, _word(content, n["own_shares"]))
            found.append(
                {
                    "serial": _word(content, n["own_serial"]),
                    "name": _name(content[n["own_name"] : n["own_name"] + NAME]),
                    "used_bytes": _word(content, n["own_used"]),
                    "peak_bytes": _word(content, n["own_peak"]),
                    "live_bytes": live_bytes + huge[1],
                    "live_blocks": live + huge[0],
                    "cached_bytes": cached_bytes,
                    "limit": _limit(_word(content, n["own_limit"])),
                    "refused": _word(content, n["own_refused"]),
                }
            )
        own = _word(content, n["own_next"])
    return found


def _blocks(allocator: Tables, share: int) -> tuple[int, int, int]:
    """(live blocks, their bytes, bytes of cached blocks) of all shares in a list."""
    n, seen = allocator.number, set[int]()
    sizes = allocator.class_table("size", np.uint32)
    totals = np.zeros(3, dtype=np.int64)
    while share != 0 and share not in seen:
        seen.add(share)
        content = allocator.memory.read(share, n["heap_size"])
        heap = np.frombuffer(content, dtype=np.uint8).reshape(1, n["heap_size"])
        live, cached = allocator.blocks_of(heap)
        totals += [live.sum(), (live * sizes).sum(), (cached * sizes).sum()]
        share = _word(content, n["heap_next_share"])
    return int(totals[0]), int(totals[1]), int(totals[2])


def _in_regions(allocator: Tables) -> list[dict[str, Any]]:
    where, memory, found = allocator.number, allocator.memory, list[dict[str, Any]]()
    library = memory.word(allocator.root["regions"])
    if library == 0:  # the program is not linked with libhakmem-region
        return found
    regions = memory.read(library, where["regions_size"])
    numbers = struct.unpack_from(f"={len(REGION_NUMBERS)}I", regions, where["regions_numbers"])
    n = dict(zip(REGION_NUMBERS, numbers, strict=True))
    table = memory.read(_word(regions, where["regions_rows"]), n["most"] * n["row_stride"])
    for at in range(0, len(table), n["row_stride"]):
        row = table[at : at + n["row_stride"]]
        if _word(row, n["row_size"]) == 0:
            continue
        # The program may have unmapped the region, or reused its memory.
        content = memory.read_if_there(_word(row, n["row_start"]), n["size"])
        if content is None or _word(content, 0, 4) != where["own_in_region"]:
            continue
        shift = _word(content, n["unit_shift"], 4)
        units = _word(content, n["slab_units"]) + _word(content, n["large_units"])
        found.append(
            {
                "serial": _word(row, n["row_serial"]),
                "name": _name(content[n["name"] : n["name"] + NAME]),
                "used_bytes": units << shift,
                "peak_bytes": _word(content, n["peak"]),
                "live_bytes": _word(content, n["live_bytes"]),
                "live_blocks": _word(content, n["live_blocks"]),
                "cached_bytes": 0,
                "limit": _limit(_word(content, n["limit"])),
                "refused": _word(content, n["refused"]),
            }
        )
    return found
