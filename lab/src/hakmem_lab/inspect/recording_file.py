"""A recording on disk: a full sample now and then, and in between the changes since the previous sample.

A sample of a heap of 100 MiB takes 50 kB, most of it the map of SuperSlabs. Therefore only full samples have the map,
and the others are merge patches (RFC 7396) of the snapshot. When the file reaches its maximum size, every second sample
is removed and samples are taken half as often, so that a recording always covers the whole life of its program.

The first line has room for an error message, so that it can be written even if the disk is full."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WHOLE_EVERY = 64
MOST_BYTES = 32 << 20
HEAD_BYTES = 256  # within one block of any file system: overwriting it in place needs no more space

Document = dict[str, Any]


def head(problem: str = "") -> bytes:
    """The first line, which always has the same length."""
    text = json.dumps({"problem": problem})
    while len(text) >= HEAD_BYTES:
        problem = problem[: len(problem) - 8]
        text = json.dumps({"problem": problem})
    return text.ljust(HEAD_BYTES - 1).encode() + b"\n"


def patch(before: Document, now: Document) -> Document:
    """The patch that turns `before` into `now`; null for entries that are gone."""
    found: Document = {name: None for name in before if name not in now}
    for name, value in now.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = patch(old, value)
            if inner:
                found[name] = inner
        elif value != old:
            found[name] = value
    return found


def patched(before: Document, change: Document) -> Document:
    """`before` with the changes applied."""
    found = dict(before)
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        elif isinstance(value, dict):
            found[name] = patched(before[name] if isinstance(before.get(name), dict) else {}, value)
        else:
            found[name] = value
    return found


def _by_size(snapshot: Document) -> Document:
    """The snapshot without its map and with its classes by size, so that a patch names only those that changed."""
    found = {name: value for name, value in snapshot.items() if name != "map"}
    found["classes"] = {str(row["size"]): row for row in snapshot.get("classes", [])}
    return found


def _in_rows(snapshot: Document) -> Document:
    return {**snapshot, "classes": [snapshot["classes"][size] for size in sorted(snapshot["classes"], key=int)]}


def looks(lines: Iterable[Document]) -> Iterator[Document]:
    """The samples of a recording, all completed; only those that were written in full have a map."""
    state: Document = {}
    for each in lines:
        if "snapshot" in each:
            state = _by_size(each["snapshot"])
            yield each
        elif "change" in each:
            state = patched(state, each["change"])
            yield {"time": each["time"], "snapshot": _in_rows(state)}


class Recorder:
    """Writes a recording whose first line exists; an OSError in `add` leaves the earlier samples intact."""

    def __init__(self, path: Path, most: int = MOST_BYTES) -> None:
        self.path = path
        self.most = most
        self.spread = 1  # the requested interval is multiplied by it
        self._open()

    def _open(self) -> None:
        self._file = self.path.open("r+b", buffering=0)
        self._length = self._file.seek(0, os.SEEK_END)
        self._state: Document = {}
        self._since_whole = WHOLE_EVERY

    @property
    def whole_next(self) -> bool:
        """Whether the next sample is written in full and may have a map."""
        return self._since_whole >= WHOLE_EVERY

    def add(self, look: Document, anew: bool = False) -> None:
        """Adds a sample with its pid, time and snapshot.  anew: it is the first one of a program."""
        self._add(look, anew)
        while self._length > self.most and self._thin():
            pass

    def _add(self, look: Document, anew: bool) -> None:
        now = _by_size(look["snapshot"])
        if anew or self.whole_next:
            self._line({**look, "anew": True} if anew else look)
            self._since_whole = 1
        else:
            self._line({"time": look["time"], "change": patch(self._state, now)})
            self._since_whole += 1
        self._state = now

    def _line(self, document: Document) -> None:
        self._write(json.dumps(document, separators=(",", ":")).encode() + b"\n")

    def _write(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError:
            self._file.truncate(self._length)
            self._file.seek(self._length)
            raise
        self._length += len(data)

    def _thin(self) -> bool:
        """Removes every second sample; False if there are too few."""
        with self.path.open("rb") as file:
            if sum(1 for _ in file) < 4:  # the first line and at most two samples
                return False
        beside = self.path.with_name(self.path.name + ".part")
        try:
            with self.path.open("rb") as file:
                thinned = _half(map(json.loads, file), beside)
            os.replace(beside, self.path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise
        self._file.close()
        self._file, self._length = thinned._file, thinned._length
        self._state, self._since_whole = thinned._state, thinned._since_whole
        self.spread *= 2
        return True

    def problem(self, said: str) -> None:
        """Writes an error message into the first line."""
        self._file.seek(0)
        self._file.write(head(said))
        self._file.seek(self._length)


def _half(lines: Iterable[Document], into: Path) -> Recorder:
    """Writes every second sample of a recording into another file."""
    into.write_bytes(head())
    found, anew = Recorder(into), False
    for place, look in enumerate(looks(lines)):
        anew = anew or bool(look.pop("anew", False))
        if place % 2 == 0:
            found._add(look, anew)
            anew = False
    return found
