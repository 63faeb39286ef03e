"""Hardened blocks, sampled blocks and blocks of size 0: whether their seals and slack are intact, and their records.

The arithmetic of seals is that of the library's hardened mode; it takes all its constants from the running library."""

from __future__ import annotations

import struct

from hakmem_lab.inspect.address_ranges import AddressRange
from hakmem_lab.inspect.live import WHOLE_WORD, Allocator
from hakmem_lab.terminal.errors import LabError

WORD = 8
UNREAD = "its bytes cannot be read here"
BROKEN = "its seal is broken: something was written past its end, or over all of it"
NOT_SEALED = (
    "its seal is missing, and its page is all zeros: the dump left the page out, or its thread was sealing it just then"
)
NOT_CLEAR = "it is not cleared: it was written to after it was freed"


class Hardened:
    """The hardened mode of a process at the time of the look."""

    def __init__(self, allocator: Allocator) -> None:
        self.memory, self.number = allocator.memory, allocator.number
        n, at = self.number, allocator.root["hardened"]
        self.on = bool(self._byte(at + n["hardened_on"]))
        self.canary = bool(self._byte(at + n["hardened_canary"]))
        self.zero = bool(self._byte(at + n["hardened_zero"]))
        self.guards = bool(self._byte(at + n["hardened_guards"]))
        self.keys = self.memory.words(at + n["hardened_keys"], 3)
        self.fill = self.memory.word(at + n["hardened_fill"])
        self.never_key = self.memory.word(at + n["hardened_never_key"])
        self.room = struct.unpack(
            f"={n['class_count']}I", self.memory.read(at + n["hardened_room"], 4 * n["class_count"])
        )

    def _byte(self, address: int) -> int:
        return self.memory.read(address, 1)[0]

    def _secret(self, block: int) -> int:
        x = (block ^ self.keys[0]) * self.keys[1] & WHOLE_WORD
        return x ^ x >> 32

    def _seal(self, secret: int, slack: int) -> int:
        check = (secret ^ self.keys[2] ^ slack) * self.keys[1] & WHOLE_WORD
        return (slack ^ secret >> self._shift) << self._shift & WHOLE_WORD | (check >> 32) << 8

    @property
    def _shift(self) -> int:
        return self.number["seal_shift"]

    def _slack_is_whole(self, block: int, asked: int, end: int) -> bool:
        """Whether the checked bytes after the request are whole: a 0, then the secret pattern."""
        at = asked & ~(WORD - 1)
        stop = min(end, at + self.number["seal_checked"])
        if asked == end:
            return True
        found = self.memory.read(block + at, max(stop, at + WORD) - at)
        shift = 8 * (asked % WORD)
        first = (self.fill << shift << 8) & WHOLE_WORD
        wrong = (int.from_bytes(found[:WORD], "little") ^ first) >> shift
        rest = struct.pack("=Q", self.fill) * (len(found) // WORD - 1)
        return wrong == 0 and found[WORD:] == rest

    def sealed(self, area: AddressRange, index: int) -> AddressRange:
        """A live block with the findings on its seal."""
        end = self.room[index] - self.number["seal_size"]
        found = self.memory.read_if_there(area.start + end, WORD)
        if not self.canary or found is None:
            return area if found is not None else area.noting(UNREAD)
        secret, seal = self._secret(area.start), int.from_bytes(found, "little")
        slack = (seal ^ secret) >> self._shift
        if seal != self._seal(secret, slack) or slack > end:
            return area.noting(self._why_unsealed(area.start + end))
        return self._of(area, end - slack, end)

    def sealed_huge(self, area: AddressRange) -> AddressRange:
        """The same for a huge block, which ends with its size and a seal of it."""
        end = area.end - area.start - self.number["seal_huge"]
        words = self.memory.read_if_there(area.start + end, 2 * WORD)
        if words is None:
            return area.noting(UNREAD)
        seal, size = struct.unpack("=QQ", words)
        secret = self._secret(area.start)
        asked = size ^ secret
        wanted = ((secret ^ self.keys[2] ^ asked) * self.keys[1] & WHOLE_WORD ^ secret) & ~0xFF
        if asked > end or seal != wanted:
            return area.noting(self._why_unsealed(area.start + end))
        return self._of(area, asked, end)

    def _of(self, area: AddressRange, asked: int, end: int) -> AddressRange:
        try:
            whole = self._slack_is_whole(area.start, asked, end)
        except LabError:
            return area.noting(UNREAD)
        said = (
            "its seal and its slack are intact" if whole else "its slack is damaged: something was written past its end"
        )
        return AddressRange(**{**vars(area), "asked": asked}).noting(said)

    def _why_unsealed(self, at: int) -> str:
        page = self.memory.read_if_there(at & ~4095, 4096)
        return NOT_SEALED if page is not None and not any(page) else BROKEN

    def mark(self, area: AddressRange, index: int) -> int | None:
        """The last word, which holds the mark of a free block."""
        found = self.memory.read_if_there(area.start + self.room[index] - WORD, WORD)
        return None if found is None else int.from_bytes(found, "little")

    def clear(self, area: AddressRange, index: int) -> AddressRange:
        """A free block; if free blocks are cleared (harden: zero), it is zeros up to its mark."""
        if not self.zero:
            return area
        found = self.memory.read_if_there(area.start, self.room[index])
        if found is None:
            return area.noting(UNREAD)
        return area.noting(NOT_CLEAR) if any(found[:-WORD]) else area


class Guarded:
    """The two ranges before the window: sampled blocks, and hardened mode's blocks of size 0."""

    def __init__(self, allocator: Allocator) -> None:
        self.allocator, self.memory, self.number = allocator, allocator.memory, allocator.number
        n, root = self.number, allocator.root
        self.start = self.memory.word(root["sample"] + n["sample_start"])
        self.bytes = self.memory.word(root["sample"] + n["sample_bytes"])
        self.slots = self.memory.word(root["sample"] + n["sample_slots"])
        self.nothing = self.memory.word(root["zero_size"] + n["zero_size_range"])
        self.in_use = self.memory.word(root["zero_size"] + n["zero_size_in_use"])
        self.ever_used = self.memory.word(root["zero_size"] + n["zero_size_ever_used"])

    def at(self, address: int) -> AddressRange | None:
        """None for an address in neither range."""
        if 0 <= address - self.start < self.bytes:
            return self._sampled(address)
        if self.nothing and 0 <= address - self.nothing < self.number["zero_size_most"] * self.number["block_align"]:
            return self._of_no_bytes(address)
        return None

    # --- sampled blocks -------------------------------------------------------------------------------------------

    def _sampled(self, address: int) -> AddressRange:
        n = self.number
        slot = (address - self.start) // n["sample_step"]
        start = self.start + slot * n["sample_step"]
        row = self.memory.read(self.slots + slot * n["slot_stride"], n["slot_stride"])
        state, size = (struct.unpack_from("=I", row, n["slot_" + name])[0] for name in ("state", "size"))
        block, pages, page_bytes = (
            struct.unpack_from("=Q", row, n["slot_" + name])[0] for name in ("block", "pages", "page_bytes")
        )
        known = block != 0 and state in (n["slot_live"], n["slot_freeing"], n["slot_is_freed"])
        if not known:
            return AddressRange(start, start + n["sample_step"], "sample_range")
        if address < pages:
            return AddressRange(start, pages, "guard", notes=(f"before a sampled block of {size} bytes at {block:#x}",))
        if address < block:
            return AddressRange(pages, block, "slack", notes=(f"of the sampled block of {size} bytes at {block:#x}",))
        if address < block + size:
            return self._sampled_block(row, block, size, state)
        if address < pages + page_bytes:
            end = pages + page_bytes
            return AddressRange(
                block + size, end, "slack", notes=(f"of the sampled block of {size} bytes at {block:#x}",)
            )
        end = start + n["sample_step"]
        first = max(block + size, pages + page_bytes)
        return AddressRange(first, end, "guard", notes=(f"after a sampled block of {size} bytes at {block:#x}",))

    def _sampled_block(self, row: bytes, block: int, size: int, state: int) -> AddressRange:
        n = self.number
        live = state == n["slot_live"]
        area = AddressRange(block, block + size, "live" if live else "freed", kind="sampled", size=size, asked=size)
        area = area.noting(*self._event(row, "allocated"))
        if not live:
            return area.noting(*self._event(row, "freed"), "its pages are inaccessible: an access to it faults")
        return area.noting(self._slack(row, block, size))

    def _slack(self, row: bytes, block: int, size: int) -> str:
        n = self.number
        pages, page_bytes = (struct.unpack_from("=Q", row, n["slot_" + name])[0] for name in ("pages", "page_bytes"))
        most, byte = n["sample_slack_most"], bytes([n["sample_slack"]])
        before, behind = min(block - pages, most), min(pages + page_bytes - block - size, most)
        sides = (("before it", block - before, before), ("past its end", block + size, behind))
        for side, at, length in sides:
            found = self.memory.read_if_there(at, length)
            if found is None:
                return "its slack cannot be read here"
            if found != byte * length:
                return f"its slack is damaged: something was written {side}"
        return "its slack is intact"

    def _event(self, row: bytes, name: str) -> list[str]:
        n = self.number
        at = n["slot_" + name]
        thread, frames = (struct.unpack_from("=I", row, at + n["event_" + each])[0] for each in ("thread", "frames"))
        if thread == 0:
            return []
        trace = struct.unpack_from(f"={min(frames, n['event_frames_most'])}Q", row, at + n["event_trace"])
        lines = [f"{name} by thread {thread}" + ("" if trace else " (no stack trace)")]
        return lines + [f"  #{i} {each:#x} {self.allocator.code_at(each)}".rstrip() for i, each in enumerate(trace)]

    # --- blocks of no bytes ---------------------------------------------------------------------------------------

    def _of_no_bytes(self, address: int) -> AddressRange:
        step = self.number["block_align"]
        place = (address - self.nothing) // step
        start = self.nothing + place * step

        def bit(bits: int) -> bool:
            return bool(self.memory.word(bits + place // 64 * 8) >> place % 64 & 1)

        state = "live" if bit(self.in_use) else "freed" if bit(self.ever_used) else "never"
        return AddressRange(start, start + step, state, kind="zero-size", size=0, asked=0)
