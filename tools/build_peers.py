#!/usr/bin/env python3
"""Builds the allocators to compare with from the sources that Rust crates carry along.

  tools/build_peers.py [NAME...]    builds those that are missing, or the ones that are named (some are built by name only)
  tools/build_peers.py --list       says which there are, and which are built

They are fetched by cargo and built by gcc, cmake and make as their projects build a release, into
$HAKMEM_PEERS or ~/.cache/hakmem/peers, one folder per version (about a quarter of an hour of one CPU in all).
One that cannot be had here is a line, not an error: the exit status is 1 only when none could be built.
"""

from __future__ import annotations

import os
import re
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


def manifest(wanted: Sequence[Built]) -> str:
    """A cargo project whose only purpose is to depend on the crates, at exactly these versions."""
    versions = {each.crate: each.version.partition("+")[0] for each in wanted}
    lines = ["[package]", 'name = "peers"', 'version = "0.0.0"', 'edition = "2021"', "[workspace]", "[dependencies]"]
    return "\n".join(lines + [f'{crate} = "={version}"' for crate, version in sorted(versions.items())]) + "\n"


def fetch(wanted: Sequence[Built]) -> Path:
    """The folder with one folder of sources per crate."""
    root = peers.folder() / "source"
    shutil.rmtree(root, ignore_errors=True)
    (root / "src").mkdir(parents=True)
    (root / "src" / "lib.rs").write_text("")
    (root / "Cargo.toml").write_text(manifest(wanted))
    run(["cargo", "vendor", "--quiet", "crates"], root, root / "log")
    return root / "crates"


# --- one function per peer: from the crate's sources to the library ------------------------------------------


def mimalloc(peer: Built, crate: Path, log: Path) -> None:
    source = crate / "c_src" / "mimalloc" / ("v" + peer.name[-1])
    defines = ("-DMI_MALLOC_OVERRIDE", "-DMI_SHARED_LIB", "-DMI_SHARED_LIB_EXPORT", "-DMI_BUILD_RELEASE", "-DMI_DEBUG=0")
    run(["gcc", "-std=gnu11", *C_FLAGS, *defines, "-fvisibility=hidden", f"-I{source}/include", f"-I{source}/src",
         "-shared", "-o", peer.path, source / "src" / "static.c", "-lrt", "-latomic"], source, log)


def rpmalloc(peer: Built, crate: Path, log: Path) -> None:
    source = crate / "rpmalloc" / "rpmalloc"
    run(["gcc", "-std=gnu11", *C_FLAGS, "-D_GNU_SOURCE=1", "-DENABLE_PRELOAD=1", "-DENABLE_OVERRIDE=1", "-shared",
         "-o", peer.path, source / "rpmalloc.c"], source, log)


def snmalloc(peer: Built, crate: Path, log: Path) -> None:
    build = peer.folder / "build"
    run(["cmake", "-S", crate / "upstream", "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         "-DSNMALLOC_BUILD_TESTING=OFF"], peer.folder, log)
    run(["cmake", "--build", build, "--target", "snmallocshim"], peer.folder, log)
    shutil.copy(build / peer.file_name, peer.path)


def jemalloc(peer: Built, crate: Path, log: Path) -> None:
    build = peer.folder / "build"
    shutil.copytree(crate / "jemalloc", build)
    shutil.copy(crate / "configure" / "configure", build)
    found = re.search(r"\+(\S+?-g)([0-9a-f]+)", (crate / "Cargo.toml").read_text())
    version = found.group(1) + found.group(2).ljust(40, "0")[:40] if found else "5.0.0-0-g" + "0" * 40
    more = ["--enable-prof"] if peer in peers.VARIANTS else []
    run(["sh", "configure", f"--with-version={version}", "--disable-doc", "--disable-static", *more], build, log)
    run(["make", "-j", str(JOBS), "build_lib_shared"], build, log)
    shutil.copy(build / "lib" / peer.file_name, peer.path)


def tcmalloc(peer: Built, crate: Path, log: Path) -> None:
    """The files are those that the crate's own build names; its bridge is replaced by the library's malloc."""
    named = re.findall(r'"(c_src/[\w/.-]+\.(?:cc|S))"', (crate / "build.rs").read_text())
    sources = [name for name in named if "bridge" not in name] + ["c_src/tcmalloc/tcmalloc/tcmalloc.cc"]
    build = peer.folder / "build"
    build.mkdir()
    flags = ("-std=c++17", *C_FLAGS, "-DTCMALLOC_INTERNAL_8K_PAGES", "-Ic_src/abseil-cpp", "-Ic_src/tcmalloc")

    def compile_one(name: str) -> Path:
        target = build / (name.replace("/", "_") + ".o")
        run(["g++", *flags, "-c", "-o", target, name], crate, log)
        return target

    with ThreadPoolExecutor(JOBS) as pool:
        objects = list(pool.map(compile_one, sources))
    run(["g++", "-shared", "-pthread", "-o", peer.path, *objects], build, log)


BUILDERS: dict[str, Callable[[Built, Path, Path], None]] = {
    "libmimalloc-sys": mimalloc, "rpmalloc-sys": rpmalloc, "snmalloc-sys": snmalloc, "tikv-jemalloc-sys": jemalloc,
    "libtcmalloc-sys": tcmalloc,
}


# --- the program ---------------------------------------------------------------------------------------------


def serves_malloc(peer: Built) -> None:
    """A library that cannot be preloaded must not be taken for one that can."""
    done = subprocess.run(["/bin/true"], env={"LD_PRELOAD": str(peer.path), "LD_BIND_NOW": "1"}, text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0 or done.stderr:
        raise BuildFailed(f"it cannot be preloaded: {done.stderr.strip() or done.returncode}")


def build(peer: Built, crates: Path) -> None:
    shutil.rmtree(peer.folder, ignore_errors=True)
    peer.folder.mkdir(parents=True)
    try:
        BUILDERS[peer.crate](peer, crates / peer.crate, peer.folder / "log")
        serves_malloc(peer)
    except BuildFailed:
        peer.path.unlink(missing_ok=True)
        raise


def chosen(names: Sequence[str]) -> list[Built]:
    known = (*peers.BUILT, *peers.VARIANTS)
    unknown = sorted(set(names) - {each.name for each in known})
    if unknown:
        raise SystemExit(f"build_peers.py: unknown {', '.join(unknown)}; there are " + ", ".join(each.name for each in known))
    if names:
        return [each for each in known if each.name in names]
    return [each for each in peers.BUILT if not each.path.is_file()]


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0
    if arguments and arguments[0] == "--list":
        for each in (*peers.BUILT, *peers.VARIANTS):
            print(f"{each.name:14} {each.release:36} {'built' if each.path.is_file() else 'missing'}")
        return 0
    wanted = chosen(arguments)
    if not wanted:
        return 0
    try:
        crates = fetch(wanted)
    except BuildFailed as error:
        print(f"build_peers.py: the sources cannot be had: {error}", file=sys.stderr)
        return 1
    built = 0
    for each in wanted:
        print(f"building {each.release}", flush=True)
        try:
            build(each, crates)
            built += 1
        except (BuildFailed, OSError, shutil.Error) as error:
            print(f"build_peers.py: {each.name} is missing: {error}", file=sys.stderr)
    shutil.rmtree(crates.parent, ignore_errors=True)
    return 0 if built else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
