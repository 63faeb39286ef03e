"""The profile in a core dump: the sites that the library would have written into a dump."""

from __future__ import annotations

import struct
from pathlib import Path

from hakmem_lab.inspect.core import Dead
from hakmem_lab.profile.heap_dumps import Labels, Mapping, Profile, Site, labels_of, minus, short_lived
from hakmem_lab.terminal.errors import LabError


class Sites:
    """The table of sites."""

    def __init__(self, dead: Dead) -> None:
        if "profile_sites" not in dead.root:
            raise LabError("the core is of a library whose profile cannot be read there", "Use a newer library.")
        self.memory, self.number = dead.memory, dead.number
        self.interval = self.memory.word(dead.root["profile"] + self.number["profile_interval"])
        self.table = self.memory.word(dead.root["profile_sites"])
        self._labels: dict[int, Labels] = {0: ()}

    def read(self) -> list[Site]:
        found = []
        for first in self.memory.words(self.table, self.number["site_buckets"]) if self.table else ():
            at = first
            while at:
                row = self.memory.read(at, self.number["site_frames"])
                site = self._site(at, row)
                found += [site] if site else []
                at = self._field(row, "next", "Q")
        return found

    def _field(self, row: bytes, name: str, form: str) -> int:
        return int(struct.unpack_from("=" + form, row, self.number["site_" + name])[0])

    def _site(self, at: int, row: bytes) -> Site | None:
        n = self.number
        if self._field(row, "interval", "Q") != self.interval or self._field(row, "group", "I") == n["site_traced"]:
            return None
        made, made_bytes, freed, freed_bytes = struct.unpack_from("=4Q", row, n["site_allocated"])
        lifetimes = struct.unpack_from(f"={n['site_lifetimes_most']}I", row, n["site_lifetimes"])
        frames = self.memory.words(at + n["site_frames"], self._field(row, "frame_count", "H"))
        counted = {
            "live": minus((made, made_bytes), (freed, freed_bytes)),
            "allocated": (made, made_bytes),
            "short": short_lived((freed, freed_bytes), list(lifetimes)),
        }
        return Site(frames, counted, lifetimes, self.labels(self._field(row, "labels", "Q")))

    def labels(self, at: int) -> Labels:
        """A combination of labels (src/sample/sample.h)."""
        if at not in self._labels:
            n, word, text = self.number, self.memory.word, self.memory.text
            value = word(at + n["labels_of"])
            key = word(value + n["labels_of"])
            pair = {text(key + n["labels_text"], 64): text(value + n["labels_text"], 256)}
            self._labels[at] = labels_of(dict(self.labels(word(at + n["labels_under"]))) | pair)
        return self._labels[at]


def of_core(path: Path, file: Path | None = None) -> Profile:
    """The profile of the process that left this core dump; a LabError if none was on."""
    dead = Dead(path, file)
    sites = Sites(dead)
    if not sites.table:
        raise LabError(f"{path}: no profile was ever on in this process", "HAKMEM_PROFILE=1 starts one.")
    mappings = [Mapping(part.start, part.end, part.offset, part.path) for part in dead.core.files]
    return Profile(sites.interval, sites.read(), mappings, kinds=("live", "allocated", "short"))
