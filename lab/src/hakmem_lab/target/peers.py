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
    """A peer built from its repository at a revision, or else from the older sources that a Rust crate has."""

    name: str
    release: str
    date: str  # of the revision
    repository: str  # on GitHub; "": built from the crate alone
    revision: str
    crate: str
    version: str  # of the crate
    of_crate: str  # the release of the allocator in it
    file_name: str
    tunable: str = ""  # of glibc's that its programs need

    @property
    def folder(self) -> Path:
        """The folder in which it is built; each revision has its own."""
        return folder() / f"{self.name}-{self.revision[:12]}"

    @property
    def path(self) -> Path:
        return self.folder / self.file_name

    @property
    def origin(self) -> Path:
        """The file that says in one line from what the library was built."""
        return self.folder / "origin"

    def from_repository(self) -> str:
        return f"{self.release}, {self.date}, built from {self.repository} {self.revision[:12]}"

    def from_crate(self) -> str:
        date = "" if self.repository else f", {self.date}"
        return f"{self.of_crate}{date}, built from crate {self.crate} {self.version}"

    def described(self) -> str:
        """The code that a library is."""
        code = self.origin.read_text(encoding="utf-8").strip() if self.origin.is_file() else self.from_repository()
        return code + (f", with GLIBC_TUNABLES={self.tunable}" if self.tunable else "")


JEMALLOC = ("2026-05-18", "jemalloc/jemalloc", "295e48944b200b595a72902a81e1ed8cad6a3866", "tikv-jemalloc-sys", "0.7.1",
            "jemalloc 5.3.1", "libjemalloc.so.2")

BUILT: tuple[Built, ...] = (
    Built("mimalloc3", "mimalloc 3.4.3", "2026-07-20", "microsoft/mimalloc", "v3.4.3", "libmimalloc-sys", "0.1.49",
          "mimalloc 3.3.2", "libmimalloc.so"),
    Built("mimalloc2", "mimalloc 2.4.1", "2026-07-14", "microsoft/mimalloc", "v2.4.1", "libmimalloc-sys", "0.1.49",
          "mimalloc 2.3.2", "libmimalloc.so"),
    Built("snmalloc", "snmalloc 0.7.5+1", "2026-06-27", "microsoft/snmalloc",
          "f70eb82634ff280bd39a815ed5a1315bb064c164", "snmalloc-sys", "0.7.6", "snmalloc of crate 0.7.6",
          "libsnmallocshim.so"),
    Built("rpmalloc", "rpmalloc 2.0.1", "2026-07-15", "mjansson/rpmalloc", "2.0.1", "rpmalloc-sys", "0.2.3+b097fd0",
          "rpmalloc 1.4.3", "librpmalloc.so"),
    Built("jemalloc5", "jemalloc 5.3.1+47", *JEMALLOC),
    Built("gtcmalloc", "Google's tcmalloc", "2026-08-21", "google/tcmalloc", "fce3f55de93a0dd7611990d9bfcf96db426e01dc",
          "libtcmalloc-sys", "0.1.14", "Google's tcmalloc of crate 0.1.14", "libtcmalloc.so",
          "glibc.pthread.rseq=0"),  # its caches per CPU need rseq, which glibc else takes
)

# Built only when named, and not a peer in benchmarks: record 0080 compares with it.
VARIANTS: tuple[Built, ...] = (Built("jemalloc5-prof", "jemalloc 5.3.1+47 with its profiler", *JEMALLOC),)


def of_crate(name: str, release: str, date: str, crate: str, version: str, file_name: str) -> Built:
    return Built(name, release, date, "", version[-12:], crate, version, release, file_name)


HARDENED_MALLOC = ("2026-07-15", "hardened-malloc-sys", "16.0.2026071503")

# Beside hardened mode alone (bench/hardened.py), with clang's Scudo, which is a package.
HARDENED: tuple[Built, ...] = (
    of_crate("mimalloc2-secure", "mimalloc 2.3.2 with MI_SECURE=4", "2026-04-29", "libmimalloc-sys", "0.1.49",
             "libmimalloc-secure.so"),
    of_crate("hardened_malloc-light", "hardened_malloc, light", *HARDENED_MALLOC, "libhardened_malloc-light.so"),
    of_crate("hardened_malloc", "hardened_malloc", *HARDENED_MALLOC, "libhardened_malloc.so"),
)
SCUDO = "lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.scudo_standalone-*.so"  # below /usr

EVERY: tuple[Built, ...] = (*BUILT, *VARIANTS, *HARDENED)

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
    return next((each for each in EVERY if each.path == path), None)
