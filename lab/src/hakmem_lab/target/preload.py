"""Whether a library can be preloaded into a program, and if not, why and what to do instead.

The dynamic linker ignores a library that it cannot preload, at most with a warning, and the program then runs on
another malloc. So the program is examined before it starts: its file, the interpreter of a script, and the dynamic
linker's own list of what it would load."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.target import elf
from hakmem_lab.terminal.errors import LabError

CANNOT_LOAD = 125  # as env, nohup and timeout have them
CANNOT_RUN = 126
NOT_FOUND = 127
MOST_INTERPRETERS = 5
SANITIZERS = re.compile(r"lib(clang_rt\.)?(asan|hwasan|lsan|msan|tsan)[-_.\w]*\.so")
LINK = "Link it with HAKMEM instead: libhakmem.a for a static program, -lhakmem for others (docs/lab.md, 'hakmem run')."


@dataclass(frozen=True)
class Program:
    """A program as it will be executed."""

    path: Path
    file: elf.Elf  # of the program, or of the interpreter when it is a script
    script: Path | None = None

    @property
    def name(self) -> str:
        if self.script:
            return f"{self.script}, whose interpreter is {self.file.path},"
        return str(self.path)

    def execution(self, words: list[str]) -> tuple[Path, list[str]]:
        """The file and the words to execute for a command. The kernel refuses a script without a first line #!, which
        execvp and shells give to the shell."""
        if self.script is None:
            return self.path, words
        with self.script.open("rb") as file:
            if file.read(2) == b"#!":
                return self.path, words
        return self.file.path, ["/bin/sh", str(self.path), *words[1:]]


def find(name: str, environment: Mapping[str, str]) -> Path:
    """The file that execvp would execute."""
    path = name if "/" in name else shutil.which(name, path=environment.get("PATH", os.defpath))
    if not name:
        raise LabError("the program's name is empty", "Give one; a variable in its place may be unset.", NOT_FOUND)
    if path is None:
        if Path(name).exists():
            raise LabError(f"{name}: no program of that name in PATH", f"There is one here: ./{name}", NOT_FOUND)
        raise LabError(
            f"{name}: no such file, and no program of that name in PATH", "Give its path, or correct it.", NOT_FOUND
        )
    found = Path(path)
    if not found.exists():
        raise LabError(f"{name}: there is no such file", "Give its path, or correct its name.", NOT_FOUND)
    if found.is_dir() or not os.access(found, os.X_OK):
        what = "is a folder" if found.is_dir() else "may not be executed"
        raise LabError(f"{name} {what}", "Give a program; 'chmod +x FILE' makes a file one.", CANNOT_RUN)
    return found


def interpreter_of(path: Path, environment: Mapping[str, str]) -> Path | None:
    """The program that the first line of a script names; through /usr/bin/env, the one that env would start."""
    with path.open("rb") as file:
        line = file.readline(256)
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode(errors="replace").split()
    if words and Path(words[0]).name == "env":
        rest = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return find(rest[0], environment) if rest else None
    return find(words[0], environment) if words else None


def look(name: str, environment: Mapping[str, str]) -> Program:
    """The program, or a LabError with the exit status that a shell would give."""
    path = current = find(name, environment)
    for _ in range(MOST_INTERPRETERS):
        try:
            described = elf.describe(current)
            if described is not None:
                return Program(path, described, None if current == path else path)
            following = interpreter_of(current, environment)
        except PermissionError:
            raise LabError(
                f"{current} may be executed but not read, so the lab cannot tell whether HAKMEM can be preloaded",
                "Start it with --anyway.",
                CANNOT_LOAD,
            ) from None
        if following is None:
            # A script without a first line is run by the shell, as execvp does.
            following = find("/bin/sh", environment)
        current = following
    raise LabError(
        f"{name}: its interpreter is a script, whose interpreter is a script, and so on",
        "Give the program itself.",
        CANNOT_RUN,
    )


def privileged(path: Path) -> str | None:
    """Why the kernel would set AT_SECURE for this file; None if it would not."""
    about = path.stat()
    if about.st_mode & stat.S_ISUID and about.st_uid != os.getuid():
        return "it is setuid"
    if about.st_mode & stat.S_ISGID and about.st_gid != os.getgid():
        return "it is setgid"
    try:
        os.getxattr(path, "security.capability")
    except OSError:
        return None
    return None if os.getuid() == 0 else "it has file capabilities"


def obstacle(program: Program, library: elf.Elf) -> tuple[str, str] | None:
    """(the obstacle, what to do about it), as far as the files show."""
    file = program.file
    if file.machine != library.machine:
        return (
            f"{program.name} is built for {file.machine}, and {library.path.name} for {library.machine}",
            f"Build HAKMEM for {file.machine}, and give that library with --library PATH.",
        )
    if file.interpreter is None:
        return (f"{program.name} is linked statically: it has its own malloc, and loads no library", LINK)
    own = "musl" if "musl" in Path(file.interpreter).name else "glibc"
    other = "musl" if elf.needs_musl(library.path) else "glibc"
    if own != other:
        return (
            f"{program.name} runs on {own} ({file.interpreter}), and {library.path.name} is for {other}",
            f"Build HAKMEM for {own} and give that library with --library PATH, or use a {other} build of the program.",
        )
    sanitizer = next(filter(SANITIZERS.match, elf.needed(file.path)), None)
    if sanitizer is not None:
        return (
            f"{program.name} is built with a sanitizer ({sanitizer}), which needs its own malloc",
            "Build it without -fsanitize; HAKMEM finds misuse of the heap itself: hakmem run --harden.",
        )
    why = privileged(file.path)
    if why:
        return (
            f"{program.name} is started privileged ({why}): the dynamic linker then ignores LD_PRELOAD",
            "Run a copy without the privilege (cp PROGRAM /tmp; a copy is not setuid), or link it with HAKMEM.",
        )
    return None


def refused_by_linker(program: Program, library: Path) -> str | None:
    """The dynamic linker's message if it would not preload the library; None if it would, or cannot be asked."""
    linker = program.file.interpreter
    if linker is None or not os.access(linker, os.X_OK):
        return None
    environment = {key: value for key, value in os.environ.items() if not key.startswith("LD_")}
    try:
        done = subprocess.run(
            [linker, "--preload", str(library), "--list", str(program.file.path)],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if str(library) in done.stdout or "unrecognized option" in done.stderr:
        return None
    said = [line for line in done.stderr.splitlines() if library.name in line]
    return said[0] if said else None


def check(program: Program, library: Path) -> None:
    """Raises a LabError if the library could not be loaded into the program."""
    described = elf.describe(library)
    if described is None:
        raise LabError(f"{library} is not a library", "Give libhakmem.so with --library PATH.", CANNOT_LOAD)
    found = obstacle(program, described)
    if found is None:
        said = refused_by_linker(program, library)
        if said:
            found = (f"{program.name} cannot load {library}: {said}", "Build HAKMEM on this system: './dev build'.")
        elif elf.symbol(library, "hak_malloc", tables=(".dynsym",)) is None:
            found = (f"{library} is another library, without hak_malloc", "Give libhakmem.so with --library PATH.")
    if found is not None:
        raise LabError(
            f"not started, because it would not run on HAKMEM: {found[0]}",
            f"{found[1]} --anyway starts it on its own malloc.",
            CANNOT_LOAD,
        )


def own_malloc(program: Program) -> bool:
    """Whether the program exports a malloc of its own, which a preloaded one does not replace."""
    return elf.symbol(program.file.path, "malloc", tables=(".dynsym",)) is not None
