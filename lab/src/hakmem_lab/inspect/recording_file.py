"""A recording on disk: a whole look at times, between them what has changed since the look before.

A look at a heap of 100 MiB weighs 50 kB, most of it the map of SuperSlabs.  Therefore only whole looks have the map,
and the others are merge patches (RFC 7396) of the snapshot.  When the file has reached its bound, every second look is
left out and looks are taken half as often, so that a recording of any length covers all of its program's life.

The first line has room for what went wrong, so that it can be said even when the disk is full."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

WHOLE_EVERY = 64
MOST_BYTES = 32 << 20
HEAD_BYTES = 256  # within one block of every file system: written over in place, it needs no more space

Document = dict[str, Any]


def head(problem: str = "") -> bytes:
    """The first line, always of the same length."""
    text = json.dumps({"problem": problem})
    while len(text) >= HEAD_BYTES:
        problem = problem[: len(problem) - 8]
        text = json.dumps({"problem": problem})
    return text.ljust(HEAD_BYTES - 1).encode() + b"\n"


def patch(before: Document, now: Document) -> Document:
    """What makes `before` into `now`; null for what is gone."""
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
    """`before` with the changes."""
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
    """The snapshot without its map, the rows of its classes by size, so that a patch names those that changed."""
    found = {name: value for name, value in snapshot.items() if name != "map"}
    found["classes"] = {str(row["size"]): row for row in snapshot.get("classes", [])}
    return found


def _in_rows(snapshot: Document) -> Document:
    return {**snapshot, "classes": [snapshot["classes"][size] for size in sorted(snapshot["classes"], key=int)]}


def looks(lines: Iterable[Document]) -> Iterator[Document]:
    """The looks of a recording, all of them whole; only those that were written whole have a map."""
    state: Document = {}
    for each in lines:
        if "snapshot" in each:
            state = _by_size(each["snapshot"])
            yield each
        elif "change" in each:
            state = patched(state, each["change"])
            yield {"time": each["time"], "snapshot": _in_rows(state)}


class Recorder:
    """Writes a recording whose first line is there already; an OSError of `add` leaves what was written before."""

    def __init__(self, path: Path, most: int = MOST_BYTES) -> None:
        self.path = path
        self.most = most
        self.spread = 1  # so many times the interval asked for lies between two looks
        self._open()

    def _open(self) -> None:
        self._file = self.path.open("r+b", buffering=0)
        self._length = self._file.seek(0, os.SEEK_END)
        self._state: Document = {}
        self._since_whole = WHOLE_EVERY

    @property
    def whole_next(self) -> bool:
        """Whether the next look is written whole, and can have a map."""
        return self._since_whole >= WHOLE_EVERY

    def add(self, look: Document, anew: bool = False) -> None:
        """A look with its pid, time and snapshot.  anew: it is the first one at a program."""
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
        """Leaves out every second look; False when there are too few for that."""
        with self.path.open("rb") as file:
            if sum(1 for _ in file) < 4:  # the first line, and two looks at most
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
        """Notes what went wrong."""
        self._file.seek(0)
        self._file.write(head(said))
        self._file.seek(self._length)


def _half(lines: Iterable[Document], into: Path) -> Recorder:
    """Every second look of a recording in a file of its own."""
    into.write_bytes(head())
    found, anew = Recorder(into), False
    for place, look in enumerate(looks(lines)):
        anew = anew or bool(look.pop("anew", False))
        if place % 2 == 0:
            found._add(look, anew)
            anew = False
    return found
