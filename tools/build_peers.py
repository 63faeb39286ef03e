#!/usr/bin/env python3
"""Builds the newest releases of the allocators to compare with, from their repositories.

  tools/build_peers.py [NAME...]    builds those that are missing, or the ones that are named (some are built by name only)
  tools/build_peers.py --hardened   the missing ones of those that are compared with hardened mode, from crates
  tools/build_peers.py --list       says which there are, and which are built

They are built by gcc (or $CC), cmake and make as their projects build a release, into $HAKMEM_PEERS or ~/.cache/hakmem/peers, one
folder per revision (about half an hour of one CPU in all). git's own settings say where GitHub is (url.MIRROR.insteadOf). Where
a repository cannot be had, the older sources serve that a Rust crate carries along; the file `origin` in the folder, and each
table, say which it was. One that cannot be had at all is a line, not an error: the exit status is 1 only when none could be built.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable

sys.path.append(str(Path(__file__).resolve().parent.parent / "lab" / "src"))

from hakmem_lab.target import peers
from hakmem_lab.target.peers import Built

JOBS = len(os.sched_getaffinity(0))
CC = shlex.split(os.environ.get("CC", "gcc"))
PROBE = os.environ.get("PEERS_PROBE", "/bin/true")  # a program on which a library is tried
C_FLAGS = ("-O3", "-DNDEBUG", "-fPIC", "-pthread", "-w", "-fno-builtin-malloc", "-ftls-model=initial-exec")


class BuildFailed(Exception):
    """Why a peer is missing, in one line."""


def run(command: Sequence[str | Path], folder: Path, log: Path) -> None:
    """Runs a command in a folder, its output in the log."""
    with log.open("a", encoding="utf-8") as output:
        words = [str(word) for word in command]
        print("+", *words, file=output, flush=True)
        try:
            done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                                  stderr=subprocess.STDOUT, check=False)
        except OSError as error:
            raise BuildFailed(f"{words[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise BuildFailed(f"{words[0]} failed with status {done.returncode}; see {log}")


# --- sources -----------------------------------------------------------------------------------------------

ABSEIL = ("abseil/abseil-cpp", "20260817.0")  # what Google's tcmalloc is written on


def clone(repository: str, revision: str, target: Path, log: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    run(["git", "clone", "--quiet", "--no-checkout", "--filter=blob:none", f"https://github.com/{repository}", target], target.parent, log)
    run(["git", "-c", "advice.detachedHead=false", "checkout", "--quiet", revision], target, log)


def from_repository(peer: Built, log: Path) -> Path:
    source = peer.folder / "source"
    if peer.crate != "libtcmalloc-sys":
        clone(peer.repository, peer.revision, source, log)
        return source
    clone(peer.repository, peer.revision, source / "tcmalloc", log)
    clone(*ABSEIL, source / "abseil-cpp", log)
    return source


def manifest(peer: Built) -> str:
    """A cargo project whose only purpose is to depend on the crate, at exactly this version."""
    lines = ["[package]", 'name = "peers"', 'version = "0.0.0"', 'edition = "2021"', "[workspace]", "[dependencies]"]
    return "\n".join([*lines, f'{peer.crate} = "={peer.version.partition("+")[0]}"']) + "\n"


def from_crate(peer: Built, log: Path) -> Path:
    root = peer.folder / "crate"
    (root / "src").mkdir(parents=True)
    (root / "src" / "lib.rs").write_text("")
    (root / "Cargo.toml").write_text(manifest(peer))
    run(["cargo", "vendor", "--quiet", "crates"], root, log)
    crate = root / "crates" / peer.crate
    if peer.crate == "tikv-jemalloc-sys":
        shutil.copy(crate / "configure" / "configure", crate / "jemalloc")
    within = {"libmimalloc-sys": f"c_src/mimalloc/v{peer.name.removeprefix('mimalloc')[:1]}", "rpmalloc-sys": "rpmalloc", "snmalloc-sys": "upstream",
              "tikv-jemalloc-sys": "jemalloc", "libtcmalloc-sys": "c_src", "hardened-malloc-sys": "vendor/hardened-malloc"}
    return crate / within[peer.crate]


# --- one function per peer: from its sources to the library --------------------------------------------------


def mimalloc(peer: Built, source: Path, log: Path) -> None:
    defines = ("-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_BUILD_RELEASE", "-DMI_DEBUG=0")
    if peer in peers.HARDENED:
        defines += ("-DMI_SECURE=4",)
    run([*CC, "-std=gnu11", *C_FLAGS, *defines, "-fvisibility=hidden", f"-I{source}/include", f"-I{source}/src",
         "-shared", "-o", peer.path, source / "src" / "static.c", "-lrt", "-latomic"], source, log)


def hardened_malloc(peer: Built, source: Path, log: Path) -> None:
    """With the crate's settings; stdalign.h stands in for C23's alignas."""
    settings = source.parents[1] / f"config-{'light' if peer.name.endswith('light') else 'default'}.conf"
    defines = [f"-D{line}" for line in settings.read_text(encoding="utf-8").split() if re.fullmatch(r"\w+=\w+", line)]
    run([*CC, "-std=gnu2x", "-include", "stdalign.h", "-O3", "-flto", "-fPIC", "-fno-plt", "-pthread", "-w", "-fvisibility=hidden",
         "-D_GNU_SOURCE", *defines, f"-I{source}/include", f"-I{source}/third_party", "-shared", "-o", peer.path,
         *sorted(source.glob("*.c")), source / "new.cc", "-lstdc++"], source, log)


def rpmalloc(peer: Built, source: Path, log: Path) -> None:
    run([*CC, "-std=gnu11", *C_FLAGS, "-D_GNU_SOURCE=1", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1", "-shared",
         "-o", peer.path, source / "rpmalloc" / "rpmalloc.c"], source, log)


def snmalloc(peer: Built, source: Path, log: Path) -> None:
    build = peer.folder / "build"
    run(["cmake", "-S", source, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DSNMALLOC_BUILD_TESTING=OFF"], peer.folder, log)
    run(["cmake", "--build", build, "--target", "snmallocshim"], peer.folder, log)
    shutil.copy(build / peer.file_name, peer.path)


def jemalloc(peer: Built, source: Path, log: Path) -> None:
    if not (source / "configure").exists():
        run(["autoconf"], source, log)
    more = ["--enable-prof"] if peer in peers.VARIANTS else []
    more += [] if CC == ["gcc"] else ["--disable-cxx"]  # its operators do not compile with musl's headers
    run(["sh", "configure", f"--with-version={peer.release.split()[1].partition('+')[0]}-0-g{peer.revision}", "--disable-doc",
         "--disable-static", *more], source, log)
    run(["make", "-j", str(JOBS), "build_lib_shared"], source, log)
    shutil.copy(source / "lib" / peer.file_name, peer.path)


# What is no part of tcmalloc's library of 8 KiB pages: tests, variants, and profiles written by protobuf.
NOT_TCMALLOC = re.compile(r"_(test|tests|fuzz|benchmark|test_helper|unsupported)\.|/(mock|want|enable)_|profile_(builder|marshaler)|"
                          r"testing|selsan")
NOT_ABSEIL = re.compile(r"test|benchmark|mock|matchers|print_hash_of|gentables|chi_square|_win\.")


def tcmalloc_sources(source: Path) -> list[Path]:
    """The files that the crate's own build names, without its bridge; or those in the repositories' folders, whose build is bazel's."""
    named = source.parent / "build.rs"
    if named.is_file():
        found = re.findall(r'"c_src/([\w/.-]+\.(?:cc|S))"', named.read_text())
        return [source / name for name in [*found, "tcmalloc/tcmalloc/tcmalloc.cc"] if "bridge" not in name]
    folders = (source / "tcmalloc" / "tcmalloc", source / "tcmalloc" / "tcmalloc" / "internal")
    sources = [file for folder in folders for kind in ("*.cc", "*.S") for file in sorted(folder.glob(kind))
               if not NOT_TCMALLOC.search(f"/{file.name}") and "percpu_rseq_" not in file.name.replace("_asm", "")]
    sources += [file for file in sorted((source / "abseil-cpp" / "absl").rglob("*.cc"))
                if not NOT_ABSEIL.search(str(file.relative_to(source / "abseil-cpp")))]
    return sources


def tcmalloc(peer: Built, source: Path, log: Path) -> None:
    build = peer.folder / "build"
    build.mkdir(exist_ok=True)
    flags = ("-std=c++20", *C_FLAGS, "-ffunction-sections", "-fdata-sections", "-DTCMALLOC_INTERNAL_8K_PAGES",
             f"-I{source}/abseil-cpp", f"-I{source}/tcmalloc")

    def compile_one(file: Path) -> Path:
        target = build / (str(file.relative_to(source)).replace("/", "_") + ".o")
        run(["g++", *flags, "-c", "-o", target, file], source, log)
        return target

    with ThreadPoolExecutor(JOBS) as pool:
        objects = list(pool.map(compile_one, tcmalloc_sources(source)))
    run(["g++", "-shared", "-pthread", "-Wl,--gc-sections", "-o", peer.path, *objects], build, log)


BUILDERS: dict[str, Callable[[Built, Path, Path], None]] = {
    "libmimalloc-sys": mimalloc, "rpmalloc-sys": rpmalloc, "snmalloc-sys": snmalloc, "tikv-jemalloc-sys": jemalloc,
    "libtcmalloc-sys": tcmalloc, "hardened-malloc-sys": hardened_malloc,
}


# --- the program ---------------------------------------------------------------------------------------------


def serves_malloc(peer: Built) -> None:
    """A library that cannot be preloaded must not be taken for one that can."""
    done = subprocess.run([PROBE, "--help"], env={"LD_PRELOAD": str(peer.path), "LD_BIND_NOW": "1"}, text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0 or done.stderr:
        raise BuildFailed(f"it cannot be preloaded: {done.stderr.strip() or done.returncode}")


def build_from(peer: Built, get: Callable[[Built, Path], Path], origin: str) -> None:
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    log = peer.folder.with_name(f"{peer.folder.name}.{get.__name__}.log")   # the crate's does not replace the repository's
    log.unlink(missing_ok=True)
    try:
        BUILDERS[peer.crate](peer, get(peer, log), log)
        serves_malloc(peer)
    except BuildFailed:
        peer.path.unlink(missing_ok=True)
        raise
    peer.origin.write_text(origin + "\n", encoding="utf-8")
    for name in ("source", "crate", "build"):
        shutil.rmtree(peer.folder / name, ignore_errors=True)


def build(peer: Built) -> None:
    if not peer.repository:
        return build_from(peer, from_crate, peer.from_crate())
    try:
        build_from(peer, from_repository, peer.from_repository())
    except BuildFailed as error:
        print(f"build_peers.py: {peer.repository}: {error}; going on with the crate's {peer.of_crate}", file=sys.stderr)
        build_from(peer, from_crate, peer.from_crate())


def chosen(names: Sequence[str]) -> list[Built]:
    group = {(): peers.BUILT, ("--hardened",): peers.HARDENED}.get(tuple(names))
    if group is not None:
        return [each for each in group if not each.path.is_file()]
    unknown = sorted(set(names) - {each.name for each in peers.EVERY})
    if unknown:
        raise SystemExit(f"build_peers.py: unknown {', '.join(unknown)}; there are " + ", ".join(each.name for each in peers.EVERY))
    return [each for each in peers.EVERY if each.name in names]


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments and arguments[0] == "--list":
        for each in peers.EVERY:
            print(f"{each.name:21} {each.described() if each.path.is_file() else each.release + ': missing'}")
        return 0
    wanted = chosen(arguments)
    if not wanted:
        return 0
    built = 0
    for each in wanted:
        print(f"building {each.release}", flush=True)
        try:
            build(each)
            built += 1
        except (BuildFailed, OSError, shutil.Error) as error:
            print(f"build_peers.py: {each.name} is missing: {error}", file=sys.stderr)
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
