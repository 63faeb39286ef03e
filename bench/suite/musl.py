#!/usr/bin/env python3
"""Builds for musl what ./dev bench --musl runs besides HAKMEM: real programs, from Debian's sources, into out/musl-release; the peers whose
builds take another compiler, into out/musl-release/peers. What is built stays; what cannot be built is a line, and its row is left out."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD, SOURCES, COMPILERS = ROOT / "out/musl-release", ROOT / "out/cross/sources", ROOT / "out/cross/x86_64-linux-musl"
CC, CXX = f"{COMPILERS}/cc", f"{COMPILERS}/c++"
FLAGS, LINK = "-O2 -fPIC -w -Wno-date-time", "-dynamic -pie"
CONFIGURE = f"./configure CC={CC} CFLAGS='{FLAGS}' LDFLAGS='{LINK}'"
PEERS = ("mimalloc3", "mimalloc2", "rpmalloc", "jemalloc5")

# The source's package, how it is built there, and the programs that this makes.
PROGRAMS = (
    ("lua5.4", f"touch src/lua5.4-deb-multiarch.h; rm -f src/luac.c; {CC} {FLAGS} {LINK} -DLUA_USE_POSIX -DDEB_HOST_MULTIARCH='\"\"' src/*.c -lm -o lua5.4",
     ("lua5.4",)),
    ("sqlite3", f"{CONFIGURE} --disable-shared --disable-tcl --disable-readline && make sqlite3.c shell.c &&"
     f" {CC} {FLAGS} {LINK} -DSQLITE_ENABLE_MATH_FUNCTIONS shell.c sqlite3.c -lm -o sqlite3", ("sqlite3",)),
    # One after the other: each makes the same libraries.
    ("redis", " && ".join(f"make -j2 MALLOC=libc CC={CC} CFLAGS='{FLAGS}' LDFLAGS='{LINK}' OPTIMIZATION=-O2 USE_SYSTEMD=no redis-{name}"
                          for name in ("server", "benchmark")), ("src/redis-server", "src/redis-benchmark")),
    ("zlib", f"CC={CC} CFLAGS='{FLAGS}' ./configure --static && make libz.a", ("libz.a",)),
    # Zig's musl is newer than that of systems, and has these two functions; zig refuses -pie for extension modules.
    ("python3.11", "export ac_cv_func_preadv2=no ac_cv_func_pwritev2=no LINKFORSHARED='-pie -Xlinker -export-dynamic'"
     f" ZLIB_CFLAGS=-I../zlib ZLIB_LIBS='-L../zlib -lz'; {CONFIGURE.replace(LINK, '-dynamic')} --without-ensurepip --disable-test-modules &&"
     " make -j2 python sharedmods && ln -sf python python3", ("python3",)),
)


def build_program(package: str, command: str, programs: tuple[str, ...]) -> None:
    from sources import Archive  # type: ignore[import-not-found]

    if all((BUILD / Path(program).name).exists() for program in programs):
        return
    print(f"building {package} for musl", flush=True)
    SOURCES.mkdir(parents=True, exist_ok=True)
    folder = BUILD / "programs" / package
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(Archive(SOURCES).source(package), folder, symlinks=True)
    with (folder / "hakmem-build.log").open("w", encoding="utf-8") as log:
        status = subprocess.run(["sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False).returncode
    for program in programs:
        if status != 0 or not (folder / program).exists():
            raise OSError(f"it does not build; see {log.name}")
        (BUILD / Path(program).name).symlink_to(folder / program)   # Python finds its library where the link leads


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests/suites"))
    from outcome import Skip  # type: ignore[import-not-found]

    for row in PROGRAMS:
        try:
            build_program(*row)
        except (OSError, Skip) as error:
            print(f"{row[0]}: {error}", file=sys.stderr)
    environment = {**os.environ, "CC": CC, "CXX": CXX, "HAKMEM_PEERS": str(BUILD / "peers"), "PEERS_PROBE": str(BUILD / "bench_tiny_hot")}
    missing = [name for name in PEERS if not [*BUILD.glob(f"peers/{name}-*/*.so*")]]
    if missing:
        subprocess.run([sys.executable, "-B", ROOT / "tools/build_peers.py", *missing], env=environment, check=False)


if __name__ == "__main__":
    main()
