#!/usr/bin/env python3
"""The library's binary interface: every exported name with its version, kept as Debian's packaging/debian/libhakmem0.symbols, and where
each member of a public structure lies, kept as packaging/abi/structures.txt.

  abi.py LIBRARY              compares; what has gone or moved is broken, what is new must be written down
  abi.py LIBRARY --update     writes both, the names by dpkg-gensymbols; refuses when something has gone or moved, unless with --break

The policy is in docs/policy.md."""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRUCTURES = ROOT / "packaging" / "abi" / "structures.txt"
SYMBOLS = ROOT / "packaging" / "debian" / "libhakmem0.symbols"
LAYOUT = ROOT / "lab" / "src" / "hakmem" / "layout.py"


def symbols(library):
    """The exported names, each with its version; those of C and C++ have none."""
    listed = subprocess.run(["nm", "-D", "--defined-only", str(library)], check=True, stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "LC_ALL": "C"}).stdout
    names = [line.split()[-1] for line in listed.splitlines()]
    return {name.replace("@@", "@") if "@" in name else f"{name}@Base" for name in names if not name.startswith("HAKMEM_")}


def members():
    """Every member of the structures that programs fill, with its place and size."""
    spec = importlib.util.spec_from_file_location("layout", LAYOUT)
    layout = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layout)
    for structure in (layout.StatsClass, layout.StatsLatency, layout.Stats):
        for name, _ in structure._fields_:
            if name == "reserved":   # from which new members are taken
                continue
            place = getattr(structure, name)
            yield f"{structure.__name__}.{name} at {place.offset} of {place.size}"
        yield f"{structure.__name__} of {ctypes.sizeof(structure)}"


def interface(library):
    return sorted(symbols(library)) + list(members())


def kept_symbols():
    """The names that Debian's file lists, without the nodes of versions."""
    text = SYMBOLS.read_text(encoding="utf-8")
    return [name for name in re.findall(r"^ (\S+@\S+) ", text, re.M) if not name.startswith("HAKMEM_")]


def kept():
    return kept_symbols() + STRUCTURES.read_text(encoding="utf-8").splitlines()


def compare(now, before):
    """What is wrong, in sentences."""
    yield from (f"broken: {line} has gone or moved" for line in before if line not in now)
    yield from (f"new: {line}; write it down with tools/abi.py LIBRARY --update" for line in now if line not in before)


def update_symbols(library):
    """Debian's own program writes its file: names that stay keep the release that brought them, new ones are of this release."""
    release = re.search(r"project\(hakmem VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
    if shutil.which("dpkg-gensymbols") is None:
        sys.exit("dpkg-gensymbols is not installed; Debian's dpkg-dev has it")
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder, "usr", "lib")
        tree.mkdir(parents=True)
        shutil.copy(library, tree / library.name)
        written = pathlib.Path(folder, "written")
        subprocess.run(["dpkg-gensymbols", f"-v{release}", "-plibhakmem0", f"-P{folder}", f"-e{tree / library.name}", f"-I{SYMBOLS}",
                        f"-O{written}", "-c0"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        lines = [line for line in written.read_text(encoding="utf-8").splitlines() if not line.startswith("#MISSING")]
    SYMBOLS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def update(library, now, may_break):
    gone = [line for line in kept() if line not in now]
    if gone and not may_break:
        sys.exit("\n".join(["has gone or moved:", *gone, "give --break when the soname changes as well"]))
    update_symbols(library)
    STRUCTURES.write_text("\n".join(members()) + "\n", encoding="utf-8")
    print(f"{len(now)} lines written")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shared_object", metavar="library", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--break", dest="may_break", action="store_true")
    chosen = parser.parse_args()
    now = interface(chosen.shared_object)
    if chosen.update:
        return update(chosen.shared_object, now, chosen.may_break)
    findings = list(compare(now, kept()))
    print("\n".join(findings) or f"the interface is as it was: {len(now)} lines")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
