"""The allocators to compare with: those of the system's packages, and newer releases built from source.

This is the one list of them.  Names, versions and files stand here; tools/build_peers.py builds what is built, and
`./dev setup --peers` calls it.  Needs nothing but the standard library.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "HAKMEM_PEERS"

# Installed ones: library name patterns, the plain variant of each allocator first.
INSTALLED: dict[str, str] = {
    "mimalloc": r"libmimalloc\.so(\.[0-9.]+)?",
    "jemalloc": r"libjemalloc\.so(\.[0-9.]+)?",
    "tcmalloc": r"libtcmalloc(_minimal)?\.so(\.[0-9.]+)?",
}


@dataclass(frozen=True)
class Built:
    """A peer that is built from the sources inside a Rust crate."""

    name: str
    release: str  # the release of the allocator in the crate
    crate: str
    version: str  # of the crate
    file_name: str

    @property
    def folder(self) -> Path:
        """The folder in which it is built; each version has its own."""
        return folder() / f"{self.name}-{self.version.partition('+')[0]}"

    @property
    def path(self) -> Path:
        return self.folder / self.file_name


BUILT: tuple[Built, ...] = (
    Built("mimalloc3", "mimalloc 3.3.2", "libmimalloc-sys", "0.1.49", "libmimalloc.so"),
    Built("mimalloc2", "mimalloc 2.3.2", "libmimalloc-sys", "0.1.49", "libmimalloc.so"),
    Built("snmalloc", "snmalloc 0.7.6", "snmalloc-sys", "0.7.6", "libsnmallocshim.so"),
    Built("rpmalloc", "rpmalloc 1.4.3", "rpmalloc-sys", "0.2.3+b097fd0", "librpmalloc.so"),
    Built("jemalloc5", "jemalloc 5.3.1", "tikv-jemalloc-sys", "0.7.1", "libjemalloc.so.2"),
    Built("gtcmalloc", "Google's tcmalloc of crate 0.1.14", "libtcmalloc-sys", "0.1.14", "libtcmalloc.so"),
)

# Built only when named, and not a peer in benchmarks: record 0080 compares with it.
VARIANTS: tuple[Built, ...] = (
    Built("jemalloc5-prof", "jemalloc 5.3.1 with its profiler", "tikv-jemalloc-sys", "0.7.1", "libjemalloc.so.2"),
)

NAMES: tuple[str, ...] = (*(each.name for each in BUILT), *INSTALLED)


def folder() -> Path:
    """The folder of built peers: $HAKMEM_PEERS, or hakmem/peers in the user's cache; all source trees share it."""
    given = os.environ.get(FOLDER_VARIABLE)
    if given:
        return Path(given).absolute()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hakmem" / "peers"


def built(path: Path) -> Built | None:
    """The built peer to which a library file belongs."""
    return next((each for each in (*BUILT, *VARIANTS) if each.path == path), None)
