#!/usr/bin/env python3
"""The library's binary interface as a file, packaging/abi/libhakmem.txt: every exported name with its version, and where each
member of a public structure lies.

  abi.py LIBRARY              compares; what has gone or moved is broken, what is new must be written down
  abi.py LIBRARY --update     writes the file, and what is new into Debian's; refuses when something has gone or moved, unless
                              with --break

The policy is in docs/policy.md."""
import argparse
import ctypes
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEPT = ROOT / "packaging" / "abi" / "libhakmem.txt"
DEBIAN = ROOT / "packaging" / "debian" / "libhakmem0.symbols"
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


def of_debian():
    """The names in Debian's file."""
    text = DEBIAN.read_text(encoding="utf-8")
    return {name for name in re.findall(r"^ (\S+@\S+) ", text, re.M) if not name.startswith("HAKMEM_")}


def compare(now, kept):
    """What is wrong, in sentences."""
    yield from (f"broken: {line} has gone or moved" for line in kept if line not in now)
    yield from (f"new: {line}; write it down with tools/abi.py LIBRARY --update" for line in now if line not in kept)


def update_debian(now):
    """Debian's file: names that stay keep the release that brought them, new ones are of this release."""
    release = re.search(r"project\(hakmem VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
    first, *lines = DEBIAN.read_text(encoding="utf-8").splitlines()
    known = {line.split()[0]: line for line in lines}
    nodes = {f"{version}@{version}" for version in (name.split("@")[1] for name in now) if version != "Base"}
    wanted = sorted(nodes | set(now))
    DEBIAN.write_text("\n".join([first, *(known.get(name, f" {name} {release}") for name in wanted)]) + "\n", encoding="utf-8")


def update(now, kept, may_break):
    gone = [line for line in kept if line not in now]
    if gone and not may_break:
        sys.exit("\n".join(["has gone or moved:", *gone, "give --break when the soname changes as well"]))
    KEPT.write_text("\n".join(now) + "\n", encoding="utf-8")
    update_debian([line for line in now if "@" in line])
    print(f"{len(now)} lines written")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shared_object", metavar="library", type=pathlib.Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--break", dest="may_break", action="store_true")
    chosen = parser.parse_args()
    now = interface(chosen.shared_object)
    kept = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.is_file() else []
    if chosen.update:
        return update(now, kept, chosen.may_break)
    findings = list(compare(now, kept))
    differ = of_debian() ^ symbols(chosen.shared_object)
    findings += [f"packaging/debian/libhakmem0.symbols and the library differ in {name}" for name in sorted(differ)]
    print("\n".join(findings) or f"the interface is as it was: {len(now)} lines")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
