"""Files that commands write."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file that appears whole, or leaves the former one. What cannot be replaced is written itself: a pipe, a
    device, a file in a folder that may not be written."""
    place = path.resolve()
    if not os.access(place.parent, os.W_OK) or (path.exists() and not path.is_file()):
        path.write_bytes(content)
        return
    beside = place.with_name(f".{os.getpid()}.new")
    try:
        beside.write_bytes(content)
        if place.exists():
            beside.chmod(place.stat().st_mode & 0o7777)
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)
