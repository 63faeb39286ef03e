"""Builds the tool from valgrind's own headers and libraries, and runs programs on it.

Needs what the system's package of valgrind installs (headers in include/valgrind, libcoregrind and libvex in
lib/.../valgrind), and a C compiler; a build takes a second or two. Nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = ("cache.c", "turns.c", "events.c", "calls.c", "prefetch.c", "report.c", "tool.c")
TIMEOUT_S = 600

# By machine: valgrind's name of it, and where a tool's text begins, out of the way of the program's.
MACHINES = {"x86_64": ("amd64", "0x58000000", ["-mno-red-zone"]), "aarch64": ("arm64", "0x58000000", [])}


class Unavailable(Exception):
    """Why the tool cannot be built or run here."""


def places() -> tuple[Path, Path, Path]:
    """The folders of headers, of libraries to link, and of what a tool needs at run time."""
    program = shutil.which("valgrind")
    if program is None:
        raise Unavailable("valgrind is not installed (./dev setup --programs installs it)")
    prefix = Path(program).resolve().parent.parent
    headers = prefix / "include" / "valgrind"
    libraries = [*prefix.glob("lib/*/valgrind/libcoregrind-*.a"), *prefix.glob("lib*/valgrind/libcoregrind-*.a")]
    runtime = [*prefix.glob("libexec/valgrind/default.supp"), *prefix.glob("lib*/valgrind/default.supp"),
               *prefix.glob("lib/*/valgrind/default.supp")]
    if not (headers / "pub_tool_tooliface.h").is_file() or not libraries or not runtime:
        raise Unavailable("valgrind's headers and libraries for tools are not installed")
    return headers, libraries[0].parent, runtime[0].parent


def compile_tool(target: Path, headers: Path, libraries: Path) -> None:
    """One static program, as valgrind's own tools are."""
    machine, text, more = MACHINES[platform.machine()]
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-fno-stack-protector",
             "-fno-builtin", "-fno-pie", *more]
    defines = [f"-DVGA_{machine}=1", "-DVGO_linux=1", f"-DVGP_{machine}_linux=1"]
    link = ["-static", "-no-pie", "-nodefaultlibs", "-nostartfiles", "-u", "_start", "-Wl,-z,noexecstack",
            "-Wl,--build-id=none", f"-Wl,-Ttext-segment={text}"]
    archives = [str(libraries / f"lib{name}-{machine}-linux.a") for name in ("coregrind", "vex")]
    support = [str(path) for path in libraries.glob(f"libgcc-sup-{machine}-linux.a")]
    command = [os.environ.get("CC", "gcc"), *flags, *defines, f"-isystem{headers}", f"-I{HERE}", *link, "-o", str(target),
               *(str(HERE / name) for name in SOURCES), *archives, "-lgcc", *support]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"the tool cannot be built with this valgrind and compiler: {done.stdout.strip()[-600:]}")


def key(libraries: Path) -> str:
    """Changes with the sources and with valgrind."""
    digest = hashlib.sha256()
    for path in [*sorted(HERE.glob("*.[ch]")), *sorted(libraries.glob("libcoregrind-*.a"))]:
        digest.update(path.name.encode() + (path.read_bytes() if path.parent == HERE else str(path.stat().st_mtime_ns).encode()))
    return digest.hexdigest()[:16]


def build(folder: Path) -> Path:
    """The folder for VALGRIND_LIB with the tool in it; built when something has changed."""
    if platform.machine() not in MACHINES:
        raise Unavailable(f"no tool for {platform.machine()}")
    headers, libraries, runtime = places()
    machine = MACHINES[platform.machine()][0]
    done = folder / key(libraries)
    if done.is_dir():
        return done
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        making = Path(fresh) / "tool"
        making.mkdir()
        compile_tool(making / f"lines-{machine}-linux", headers, libraries)
        for path in [runtime / "default.supp", *runtime.glob(f"vgpreload_core-{machine}-linux.so")]:
            (making / path.name).symlink_to(path)
        try:
            making.rename(done)
        except OSError:
            if not done.is_dir():  # else another process was quicker
                raise
    return done


def run(tool: Path, command: Sequence[str], environment: Mapping[str, str], options: Sequence[str] = ()) -> dict[str, Any]:
    """The report of one run."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report"
        done = subprocess.run(
            ["valgrind", "-q", "--tool=lines", "--vgdb=no", f"--out={out}", *options, *command],
            env={**environment, "VALGRIND_LIB": str(tool)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
        if done.returncode != 0 or not out.is_file():
            raise Unavailable(f"{' '.join(command)} failed under valgrind: {done.stderr.strip()[-400:]}")
        report: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return report
