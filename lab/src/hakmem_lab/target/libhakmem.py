"""Finds libhakmem.so, and reads its options from it.

The order: --library, the variable HAKMEM_LIBRARY, out/release of the source tree that the lab runs from (or, in the
wheel, the bundled library), the folders where packages install it.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.terminal.errors import LabError

NAME = "libhakmem.so"
VARIABLE = "HAKMEM_LIBRARY"
OWN_VARIABLES = (VARIABLE, "HAKMEM_PEERS", "HAKMEM_SUITE")  # the lab's, misspelt options to the library
BUNDLED = Path(__file__).resolve().parents[2] / "hakmem" / NAME  # in the wheel
INSTALLED = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib", "/usr/lib64")


def source_tree() -> Path | None:
    """The root of the source tree, if the lab runs from one."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "src" / "diag" / "options.def").is_file() and (folder / "dev").is_file():
            return folder
    return None


def places() -> list[Path]:
    """Where the library may be if the user does not say, the first choice first."""
    tree = source_tree()
    found = [tree / "out" / "release" / NAME] if tree else [BUNDLED]
    for folder in [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *INSTALLED]:
        if folder:
            root = Path(folder)
            found += [root / NAME, *sorted(root.glob(f"*-linux-*/{NAME}"))]
    return found


def find(wanted: Path | None = None) -> Path:
    """The library's file, absolute; a LabError that lists the places that were tried if there is none."""
    given, origin = (wanted, "--library") if wanted else (os.environ.get(VARIABLE), VARIABLE)
    if given:
        path = Path(given)
        if path.is_dir():
            path /= NAME
        if not path.is_file():
            raise LabError(f"{origin}: {path} does not exist", "Give the path of libhakmem.so or of its folder.")
        return path.resolve()
    tried = places()
    for path in tried:
        if path.is_file():
            return path.resolve()
    raise LabError(
        f"{NAME} was not found; tried {', '.join(str(path) for path in tried)}",
        f"Build it with './dev build', or say where it is with --library PATH or {VARIABLE}=PATH.",
    )


IN_BYTES = 1 << 55  # HAK_OPTION_IN_BYTES of hakmem.h


@dataclass(frozen=True)
class Option:
    """One option of the library, as hak_option_next describes it."""

    name: str
    help: str
    kind: str  # "count", "bytes", "time" (in ms), "every" (a time, or bytes with IN_BYTES added), "flag", ...
    takes_effect: str
    origin: str
    word: str | None
    value: int
    standard: int
    least: int
    most: int

    def form_of(self, value: int) -> tuple[str, int]:
        """The kind and the amount of a value: one of kind "every" is a time or a number of bytes."""
        if self.kind != "every":
            return self.kind, value
        return ("bytes", value - IN_BYTES) if value & IN_BYTES else ("time", value)

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "HAKMEM_" + self.name.upper()


# Runs in a child, so that neither a wrong file nor HAKMEM_STATS=1 in the environment affects the lab itself.
_QUESTION = """
import ctypes, json, os, sys
text, number = ctypes.c_char_p, ctypes.c_uint64
fields = [(name, text) for name in ("name", "help", "kind", "takes_effect", "origin", "word")]
fields += [(name, number) for name in ("value", "standard", "least", "most")]
Info = type("Info", (ctypes.Structure,), {"_fields_": fields})
step = ctypes.CDLL(sys.argv[1]).hak_option_next
cursor, info, found = ctypes.c_size_t(0), Info(), []
while step(ctypes.byref(cursor), ctypes.byref(info)) == 1:
    values = {name: getattr(info, name) for name, _ in fields}
    found.append({k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()})
json.dump(found, sys.stdout)
sys.stdout.flush()
os._exit(0)  # nothing is written at exit: no statistics, no profile
"""

# The names of presets stand in the tables of include/hakmem_live.h: list 4, its count and where its names begin.
_PRESETS = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
tables = ctypes.c_uint64.from_address(ctypes.addressof(ctypes.c_char.in_dll(library, "hak_live")) + 16).value
count, names = (ctypes.c_uint32 * 2).from_address(tables + 8 + 12 * 4)
found, at = [], tables + names
for _ in range(count):
    found.append(ctypes.string_at(at).decode())
    at += len(found[-1]) + 1
json.dump(found, sys.stdout)
"""


def _ask(library: Path, environment: Mapping[str, str]) -> tuple[dict[str, Option], str]:
    """The library's options in a process with this environment, and its output on standard error there."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _QUESTION, str(library)],
        env=dict(environment),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise LabError(f"{library} does not list its options: {why}", "Build it anew with './dev build'.")
    return {each["name"]: Option(**each) for each in json.loads(done.stdout)}, done.stderr.strip()


def without_settings() -> dict[str, str]:
    """The caller's environment without anything that changes the library or preloads one."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_") and k != "LD_PRELOAD"}


@functools.cache
def default_options(library: Path) -> dict[str, Option]:
    """The options of a library by name, in its order, each with its default."""
    return _ask(library, without_settings())[0]


@functools.cache
def presets(library: Path) -> tuple[str, ...]:
    """The names of a library's presets; none if it does not list them."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PRESETS, str(library)], env=without_settings(), capture_output=True, check=False
    )
    return tuple(json.loads(done.stdout)) if done.returncode == 0 else ()


def options(library: Path, environment: Mapping[str, str] | None = None) -> dict[str, Option]:
    """The options of a library by name, as they are in a process with this environment (None: all at defaults)."""
    return default_options(library) if environment is None else _ask(library, environment)[0]


def warnings(library: Path, environment: Mapping[str, str]) -> str:
    """What the library says at start about a process's settings; empty if all are right."""
    return _ask(library, environment)[1]
