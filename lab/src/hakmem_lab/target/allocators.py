"""The allocators that can be measured: HAKMEM and its variants, the system's malloc, installed peers, the floor.

Finds the peers' libraries, and proves with the dynamic linker's own log that a preloaded library really
serves malloc: the linker only warns about a library that it cannot load.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.target import libhakmem, peers

HAKMEM = "hakmem"
SYSTEM = "system"
FLOOR = "floor"

PEERS = peers.NAMES
LIBRARY_FOLDERS = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64", "/lib", "/lib64")

NOT_PASSED_ON = ("LD_PRELOAD", "LD_DEBUG", *libhakmem.OWN_VARIABLES)

# The allocators' own variables: passed on to programs, but shown, since they change what is measured.
TUNING_VARIABLES = re.compile(r"HAKMEM_|MIMALLOC_|MALLOC_|TCMALLOC_|GLIBC_TUNABLES$|_RJEM_|JE_")


@dataclass(frozen=True)
class Allocator:
    name: str
    kind: str  # "ours", "peer" or "floor"
    shared_object: Path | None = None  # what to preload
    libc: str = ""  # of the system's malloc, where it is not that of this interpreter

    def environment(self) -> dict[str, str]:
        """The environment in which a program runs on this allocator and no other."""
        environment = {k: v for k, v in os.environ.items() if k not in NOT_PASSED_ON}
        if self.shared_object is not None:
            environment["LD_PRELOAD"] = str(self.shared_object)
            peer = peers.built(self.shared_object)
            if peer is not None and peer.tunable:
                environment["GLIBC_TUNABLES"] = f"{environment.get('GLIBC_TUNABLES', '')}:{peer.tunable}".strip(":")
        return environment


def command_output(command: list[str]) -> str:
    """The command's output; empty if it does not exist or fails."""
    path = os.environ.get("PATH", os.defpath) + os.pathsep + "/sbin" + os.pathsep + "/usr/sbin"
    program = shutil.which(command[0], path=path)
    if program is None:
        return ""
    done = subprocess.run(
        [program, *command[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout if done.returncode == 0 else ""


def installed_libraries() -> list[Path]:
    """Every library that the dynamic linker knows, then those in the usual folders."""
    known = [
        Path(line.rsplit("=> ", 1)[1]) for line in command_output(["ldconfig", "-p"]).splitlines() if "=> " in line
    ]
    for folder in LIBRARY_FOLDERS:
        root = Path(folder)
        known += sorted(root.glob("*.so*")) + sorted(root.glob("*-linux-*/*.so*"))
    return [path for path in known if path.is_file()]


def find_peers() -> dict[str, Path | None]:
    """The library of each peer, or None if it is not installed: those built from source first, then packages."""
    files = installed_libraries()
    found: dict[str, Path | None] = {each.name: each.path if each.path.is_file() else None for each in peers.BUILT}
    for name, pattern in peers.INSTALLED.items():
        found[name] = next((path for path in files if re.fullmatch(pattern, path.name)), None)
    return found


def find_hardened() -> dict[str, Path]:
    """The libraries that harden malloc: the newest Scudo for this processor, and those that were built."""
    found = [path for path in Path("/usr").glob(peers.SCUDO) if path.stem.endswith(os.uname().machine)]
    found.sort(key=lambda path: [int(part) for part in re.findall(r"\d+", str(path.parent))])
    named = [*(("scudo", path) for path in found[-1:]), *((each.name, each.path) for each in peers.HARDENED)]
    return {name: path for name, path in named if path.is_file()}


def musl_loader(program: Path) -> str | None:
    """The dynamic linker of a program of musl."""
    found = re.search(rb"/lib/ld-musl-\w+\.so\.1", program.read_bytes()[:4096])
    return found.group().decode() if found else None


def c_library(program: Path) -> str:
    """Name and version of the C library on which a program runs."""
    loader = musl_loader(program)
    if loader is None:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown version"
    said = subprocess.run([loader], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False).stderr
    return f"musl {said.partition('Version ')[2].split()[0]}"


def served_by_musl(allocator: Allocator, program: Path, loader: str) -> tuple[Path | None, str]:
    """musl's linker has no log. It takes the first malloc in the order in which it lists the files."""
    from hakmem_lab.target import elf

    done = subprocess.run(
        [loader, "--list", str(program)],
        env=allocator.environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    files = [Path(found) for found in re.findall(r"(/\S+) \(0x", done.stdout)[1:]]  # behind the linker itself
    serving = next((file for file in files if elf.symbol(file, "malloc", (".dynsym",)) is not None), None)
    if done.returncode == 0 and serving is not None:
        return serving, ""
    return None, (done.stderr.splitlines() or ["no file that it loads has malloc"])[0]


def served_by(allocator: Allocator, program: Path) -> tuple[Path | None, str]:
    """The file in which the program's malloc was found, and the linker's message if it was not found."""
    loader = musl_loader(program)
    if loader is not None:
        return served_by_musl(allocator, program, loader)
    environment = {**allocator.environment(), "LD_DEBUG": "bindings", "LD_BIND_NOW": "1"}
    done = subprocess.run(
        [str(program), "--help"],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    binding = re.search(
        r"binding file " + re.escape(str(program)) + r" \[\d+\] to (\S+) \[\d+\]: normal symbol `malloc'", done.stderr
    )
    if binding is not None and done.returncode == 0:
        return Path(binding.group(1)), ""
    said = [line for line in done.stderr.splitlines() if line and not re.match(r"\s*\d+:", line)]
    return None, (said or [f"exit status {done.returncode}"])[0]


def why_not_loaded(allocator: Allocator, program: Path) -> str | None:
    """None if the preloaded library serves malloc, otherwise what is wrong."""
    if allocator.shared_object is None:
        return None
    found, said = served_by(allocator, program)
    if found is None:
        return said
    if not os.path.samefile(found, allocator.shared_object):
        return f"malloc comes from {found}, not from {allocator.shared_object}"
    return None


def package_version(library: Path) -> str:
    """The version of the package that installed the library, if a package manager knows it."""
    for path in (library, library.resolve(), Path("/usr") / library.resolve().relative_to("/")):
        owner = command_output(["dpkg-query", "-S", str(path)]).split(": ")[0].strip()
        if owner:
            return command_output(["dpkg-query", "-W", "-f", "${Package} ${Version}", owner]).strip()
    return command_output(["rpm", "-qf", str(library.resolve())]).strip()


def describe(allocator: Allocator) -> str:
    """One line for the report: the code that this column measures."""
    if allocator.kind == "floor":
        return "the same loops without refill, checks or ownership: a limit, not an allocator"
    if allocator.shared_object is None:
        return "the C library's malloc, " + (allocator.libc or os.confstr("CS_GNU_LIBC_VERSION") or "unknown version")
    built = peers.built(allocator.shared_object)
    if built is not None:
        return f"{allocator.shared_object} ({built.described()})"
    version = package_version(allocator.shared_object) if allocator.kind == "peer" else ""
    return f"{allocator.shared_object.resolve()}" + (f" ({version})" if version else "")


def first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()[0].strip()
    except (OSError, IndexError):
        return "unknown"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.lower().startswith(("model name", "cpu model", "hardware")):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def environment_facts() -> dict[str, str]:
    """The facts that a reader needs to judge the figures."""
    kernel = os.uname()
    facts = {
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} CPUs usable",
        "kernel": f"{kernel.sysname} {kernel.release} {kernel.machine}",
        "huge pages": first_line("/sys/kernel/mm/transparent_hugepage/enabled"),
        "load": f"{' '.join(first_line('/proc/loadavg').split()[:3])} over the 1, 5 and 15 minutes before",
    }
    tuning = [f"{k}={v}" for k, v in sorted(os.environ.items()) if TUNING_VARIABLES.match(k)]
    if tuning:
        facts["variables"] = " ".join(tuning)
    return facts
