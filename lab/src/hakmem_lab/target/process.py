"""A running process as /proc shows it: its mappings, its environment, and whether its memory may be read.

Every function takes a process id. If the process has ended or may not be read, it raises a LabError that names the rule
that forbids it and a way round it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.terminal.errors import LabError

CAP_SYS_PTRACE = 1 << 19
LOOK_S = 0.25  # whether the process still runs


@dataclass(frozen=True)
class Mapping:
    """One line of /proc/PID/maps; end is the first address after it."""

    start: int
    end: int
    permissions: str
    offset: int
    inode: int
    path: str
    resident: int = 0  # bytes, where smaps was read

    @property
    def size(self) -> int:
        return self.end - self.start


MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) ([0-9a-f]+) \S+ (\d+)\s*(.*)")


def folder(pid: int) -> Path:
    return Path(f"/proc/{pid}")


def exists(pid: int) -> bool:
    """Whether the process exists and has not ended; a zombie has."""
    try:
        return status_field(pid, "State")[:1] not in ("Z", "X")
    except LabError:
        return False


def runs_until(pid: int, moment: float) -> bool:
    """Waits until a moment of the monotonic clock, or until the process has ended: then False."""
    while runs := exists(pid):
        left = moment - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(left, LOOK_S))
    return runs


def read(pid: int, name: str) -> bytes:
    """A file of /proc/PID."""
    try:
        content = (folder(pid) / name).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise LabError(
            f"there is no process {pid}", "Give the id of a running process; 'pgrep NAME' finds it."
        ) from None
    except PermissionError:
        raise refusal(pid) from None
    return content


def text(pid: int, name: str) -> str:
    return read(pid, name).decode(errors="replace")


def status_field(pid: int, name: str) -> str:
    found = re.search(rf"^{name}:\s*(.*)$", text(pid, "status"), re.MULTILINE)
    return found.group(1) if found else ""


def kilobytes(pid: int, name: str) -> int:
    """A field of /proc/PID/status that is in kB, in bytes; 0 if there is no such field."""
    words = status_field(pid, name).split()
    return int(words[0]) * 1024 if words else 0


def minor_faults(pid: int) -> int:
    """The minor page faults of the process itself."""
    return int(text(pid, "stat").rpartition(")")[2].split()[7])


def command(pid: int) -> str:
    words = read(pid, "cmdline").split(b"\0")
    return " ".join(word.decode(errors="replace") for word in words if word) or status_field(pid, "Name")


def environment(pid: int) -> dict[str, str]:
    """The environment with which the process was started."""
    entries = read(pid, "environ").decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def executable(pid: int) -> str:
    try:
        return os.readlink(folder(pid) / "exe")
    except FileNotFoundError:
        raise LabError(
            f"there is no process {pid}", "Give the id of a running process; 'pgrep NAME' finds it."
        ) from None
    except PermissionError:
        raise refusal(pid) from None


def parse_mappings(lines: Iterator[str]) -> Iterator[Mapping]:
    """Mappings from the lines of maps, or of smaps, whose Rss becomes `resident`."""
    last: Mapping | None = None
    for line in lines:
        found = MAPPING.match(line)
        if found:
            if last:
                yield last
            start, end, permissions, offset, inode, path = found.groups()
            last = Mapping(int(start, 16), int(end, 16), permissions, int(offset, 16), int(inode), path)
        elif last and line.startswith("Rss:"):
            last = Mapping(**{**vars(last), "resident": int(line.split()[1]) * 1024})
    if last:
        yield last


def mappings(pid: int, resident: bool = False) -> list[Mapping]:
    """All mappings by address; with their resident bytes on request, for which the kernel looks at every page."""
    found = list(parse_mappings(iter(text(pid, "smaps" if resident else "maps").splitlines())))
    if not found and exists(pid):
        raise LabError(f"process {pid} has no memory of its own: it is a kernel thread", "Give another process.")
    if not found:
        raise ended(pid)
    return found


def inside(pid: int, path: str) -> Path:
    """A file as the process sees it: it may be in a container with files of its own."""
    seen = folder(pid) / "root" / path.lstrip("/")
    return seen if seen.exists() else Path(path)


# --- who may look inside ----------------------------------------------------------------------------------------------


def ended(pid: int) -> LabError:
    return LabError(f"process {pid} has ended", "Start it again, and repeat this while it runs.")


@contextmanager
def looked_at(pid: int) -> Iterator[None]:
    """A block that uses files of /proc/PID: their errors as a LabError."""
    try:
        yield
    except PermissionError:
        raise refusal(pid) from None
    except (FileNotFoundError, ProcessLookupError):
        raise ended(pid) from None


def may_trace_any_process() -> bool:
    return bool(int(status_field(os.getpid(), "CapEff") or "0", 16) & CAP_SYS_PTRACE)


def yama_scope() -> int:
    try:
        return int(Path("/proc/sys/kernel/yama/ptrace_scope").read_text())
    except (OSError, ValueError):
        return 0


def namespace(pid: int, name: str) -> str | None:
    try:
        return os.readlink(folder(pid) / "ns" / name)
    except OSError:
        return None


def another_user(pid: int) -> tuple[int, int] | None:
    """(its user, ours) if the process belongs to another user."""
    theirs = [int(word) for word in status_field(pid, "Uid").split()]
    ours = os.geteuid()
    return None if set(theirs) == {ours} else (next(uid for uid in theirs if uid != ours), ours)


def refusal(pid: int) -> LabError:
    """The rule that forbids us to read the process, and a way round it."""
    head = f"process {pid} may not be read"
    as_root = f"run this command as root: sudo hakmem ... {pid}"
    if not exists(pid):
        return ended(pid)
    users = another_user(pid)
    if users and not may_trace_any_process():
        return LabError(
            f"{head}: it belongs to user {users[0]}, and you are user {users[1]}",
            f"Look as that user (sudo -u '#{users[0]}' hakmem ...), or {as_root}.",
        )
    scope = yama_scope()
    if scope == 3:
        return LabError(
            f"{head}: kernel.yama.ptrace_scope is 3, which forbids it to all users until the next boot",
            "Use HAKMEM_STATS=json:FILE with HAKMEM_STATS_SIGNAL=N: the process then writes its figures itself.",
        )
    try:
        hidden = (folder(pid) / "status").stat().st_uid != int(status_field(pid, "Uid").split()[1])
    except OSError:
        hidden = False
    if hidden and not may_trace_any_process():
        return LabError(
            f"{head}: it is not dumpable (PR_SET_DUMPABLE is 0: it was privileged, or protects a secret)",
            f"To read it anyway, {as_root}.",
        )
    if scope in (1, 2) and not may_trace_any_process():
        return LabError(
            f"{head}: kernel.yama.ptrace_scope is {scope}, so only "
            + ("its own parents" if scope == 1 else "CAP_SYS_PTRACE")
            + " may",
            f"Either {as_root}, or allow it until the next boot: sudo sysctl kernel.yama.ptrace_scope=0.",
        )
    theirs = namespace(pid, "user")
    if theirs is not None and theirs != namespace(os.getpid(), "user"):
        head += ", and it is in another user namespace (a container)"
    return LabError(
        f"{head}: the kernel refuses (ptrace rules, a seccomp profile, or a missing capability)",
        f"In a container: start it with --cap-add=SYS_PTRACE, or run this command outside it. Otherwise {as_root}.",
    )
