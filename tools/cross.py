#!/usr/bin/env python3
"""Compilers for systems other than this machine's, with their C libraries: zig's, from the Python index.

  cross.py [--tests] TARGET...   makes out/cross/TARGET/cc, c++ and ar; with --tests, cmocka for the target too

A target is zig's, such as x86_64-linux-musl, aarch64-linux-musl or x86_64-linux-gnu.2.28. cmake/cross.cmake takes it from there."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PLACE = ROOT / "out/cross"
ZIG = PLACE / "ziglang/zig"
VERSION = "ziglang==0.17.*"

# Zig links statically for musl unless told otherwise, and lets undefined behaviour trap in builds without optimisation.
WRAPPER = """#!/bin/sh
exec "{zig}" {tool} -target {target} -fno-sanitize=undefined "$@"
"""


def make_compilers(target):
    folder = PLACE / target
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("cc", WRAPPER.format(zig=ZIG, tool="cc", target=target)),
                       ("c++", WRAPPER.format(zig=ZIG, tool="c++", target=target)),
                       ("ar", f'#!/bin/sh\nexec "{ZIG}" ar "$@"\n'),
                       ("ranlib", f'#!/bin/sh\nexec "{ZIG}" ranlib "$@"\n')):
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            path.chmod(0o755)
    return folder


def make_cmocka(folder):
    """From the source of Debian's package, as an archive."""
    if (folder / "lib/libcmocka.a").exists():
        return
    sys.path.insert(0, str(ROOT / "tests/suites"))
    from sources import Archive  # pylint: disable=import-outside-toplevel
    (PLACE / "sources").mkdir(exist_ok=True)
    source = Archive(PLACE / "sources").source("cmocka")
    for name in ("include", "lib"):
        (folder / name).mkdir(exist_ok=True)
    for header in source.glob("include/cmocka*.h"):
        (folder / "include" / header.name).write_bytes(header.read_bytes())
    defines = [f"-DHAVE_{word}=1" for word in
               ("ASSERT_H", "INTTYPES_H", "MALLOC_H", "MEMORY_H", "SETJMP_H", "SIGNAL_H", "STDARG_H", "STDDEF_H",
                "STDINT_H", "STDIO_H", "STDLIB_H", "STRING_H", "STRINGS_H", "TIME_H", "UNISTD_H", "CLOCK_REALTIME",
                "STRUCT_TIMESPEC", "CLOCK_GETTIME", "GCC_THREAD_LOCAL_STORAGE", "STRSIGNAL", "STRCMP", "SETJMP")]
    subprocess.run([folder / "cc", "-O1", "-fPIC", "-w", "-std=gnu11", *defines, f"-I{source / 'include'}", "-c", source / "src/cmocka.c",
                    "-o", folder / "lib/cmocka.o"], check=True)
    subprocess.run([folder / "ar", "rcs", folder / "lib/libcmocka.a", folder / "lib/cmocka.o"], check=True)


def main(arguments):
    if arguments[:1] in ([], ["--help"], ["-h"]):
        print(__doc__)
        return 0 if arguments else 2
    tests = arguments[0] == "--tests"
    if not ZIG.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--upgrade", "--target", PLACE,
                        VERSION], check=True)
    for target in arguments[tests:]:
        folder = make_compilers(target)
        if tests:
            make_cmocka(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
