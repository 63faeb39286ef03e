#!/usr/bin/env python3
"""Builds the packages and, on request, installs each in a bare root and uses it there.

  package.py [--test] [WHAT...]     WHAT: wheel deb rpm crates conan tarball; all that can be built here without it

They go to out/package/dist. Debian's are built twice, and must come out with the same bytes."""
import argparse
import importlib
import sys

from package_common import OUT, Failed

KINDS = ("wheel", "deb", "rpm", "crates", "conan", "tarball")


def parsed():
    parser = argparse.ArgumentParser(prog="./dev package", description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="*", help=f"of {', '.join(KINDS)}; all of them without it")
    parser.add_argument("--test", action="store_true", help="install each in a bare root and run programs there; as root")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.what if name not in KINDS]
    if unknown:
        parser.error(f"no package {unknown[0]}; there are {', '.join(KINDS)}")
    return chosen


def make(kind, with_test):
    """Builds one kind; with a test, uses it."""
    builder = importlib.import_module(f"package_{kind}")
    target = OUT / "dist"
    target.mkdir(parents=True, exist_ok=True)
    files = builder.build(target)
    for path in files:
        print(f"{kind}: {path.relative_to(OUT.parent.parent)} ({path.stat().st_size:,} bytes)", flush=True)
    if with_test:
        builder.test(files)


def main():
    chosen, failed = parsed(), 0
    for kind in chosen.what or KINDS:
        try:
            make(kind, chosen.test)
        except Failed as error:
            print(f"{kind}: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
