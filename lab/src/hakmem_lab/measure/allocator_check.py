"""Checks that the allocator under test really serves the program. A static program, one that a script starts without
LD_PRELOAD, and one with its own allocator run on another malloc, so that both sides of an experiment would be equal.

A thread looks at the processes of a run every few milliseconds: can the library be loaded into the program, is it
loaded, and has HAKMEM served a block? Processes are weighted by their processor time. Only the first run of each
configuration, the warm-up, is checked. A process that is too short-lived to be seen is not judged."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from hakmem_lab.children.beside import Beside
from hakmem_lab.children.shutdown import children
from hakmem_lab.inspect.live import Live, NotHakmem
from hakmem_lab.target import elf, preload, process
from hakmem_lab.target.allocators import HAKMEM, Allocator
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.errors import LabError

LEAST_S, MOST_S = 0.002, 0.02  # between two looks
SETTLED_S = 0.03  # after this time a program's environment is known
NEARLY_ALL = 0.8  # of a run's processor time: a program that has requested no block by then never does
BEGUN_S = 0.02  # processor time of a program that has started
LITTLE_S = 0.05  # processor time of a run that sleeps
MOST_OF_IT = 0.5  # of the processor time that was seen
LEAST_SEEN = 0.25  # of all of it; smaller shares count as this much
AGAIN_S = 0.1  # between two checks of how much of its memory a served program gets from HAKMEM
INSIDE_BYTES, INSIDE_SHARE = (
    16 << 20,
    0.1,
)  # a program with this much memory, of which HAKMEM holds less than this share, has its own allocator
ENDED = (LabError, OSError, ValueError, IndexError, KeyError, struct.error)  # while it was examined
LAUNCHERS = ("env", "setsid")  # of one_run.py and of others: they only start the program
OWN = "Build it without its allocator, or against the C library's malloc."
NOT_LOADED = (
    "LD_PRELOAD does not reach it",
    "Something removes the variable on the way (env -u, env -i, sudo); start the program itself.",
)


class NotServed(LabError):
    """The run says nothing about the allocator."""


@dataclass
class Image:
    """A process while it runs one program."""

    program: str
    began: float
    before_s: float  # processor time of the process before that
    obstacle: tuple[str, str] | None  # why the library cannot serve it, and what to do; None: it can
    last: float = 0.0
    cpu_s: float = 0.0
    live: Live | None = None
    loaded: bool = False
    served: bool = False
    without_s: float = 0.0  # processor time by which it had requested no block, as far as its figures could be read
    asked: float = 0.0
    held: int = 0  # bytes held by HAKMEM
    anonymous: int = 0  # bytes of anonymous memory

    def is_known_to_lack(self, used_s: float) -> bool:
        """Whether it is not served and never will be; used_s: the processor time of the whole run."""
        if self.served or self.obstacle is None:
            return not self.served and self.without_s >= max(BEGUN_S, NEARLY_ALL * used_s)
        return self.obstacle is not NOT_LOADED or self.last - self.began >= SETTLED_S

    @property
    def brings_its_own(self) -> bool:
        return self.served and self.anonymous > INSIDE_BYTES and self.held < INSIDE_SHARE * self.anonymous


def _seconds(pid: int) -> float:
    """Processor time so far: in ticks with ended threads included, or exact for running threads, whichever is more."""
    fields = process.text(pid, "stat").rpartition(")")[2].split()
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    exact = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        exact = sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())
    return max(ticks, exact / 1e9)


class AllocatorCheck(Beside):
    """Watches the programs that this process starts while its `with` block runs."""

    def __init__(self, allocator: Allocator) -> None:
        super().__init__(self._look_at_all, LEAST_S)
        assert allocator.shared_object is not None
        self.allocator = allocator
        self.preload = str(allocator.shared_object)
        self.mapped = os.path.realpath(allocator.shared_object)
        self.name = "HAKMEM" if allocator.name == HAKMEM else allocator.name
        self.without: set[int] = set()  # processes that are not checked: a server's client
        self.images: dict[tuple[int, str], Image] = {}
        self._library = elf.describe(allocator.shared_object)
        self._own = process.read(os.getpid(), "cmdline")
        self._before: set[int] = set()
        self._pause = LEAST_S

    def __enter__(self) -> AllocatorCheck:
        self._before = children()
        return super().__enter__()

    def _look_at_all(self) -> float:
        began = time.monotonic()
        waiting = [pid for pid in sorted(children()) if pid not in self._before]
        while waiting:
            pid = waiting.pop()
            if pid not in self.without:
                waiting += sorted(children(pid))
                with contextlib.suppress(*ENDED):
                    self.look(pid)
        self._pause = max(time.monotonic() - began, min(self._pause * 1.2, MOST_S))
        return self._pause

    def look(self, pid: int) -> None:
        """Records the current state of a process."""
        program, now, cpu_s = process.executable(pid), time.monotonic(), _seconds(pid)
        if process.read(pid, "cmdline") == self._own or Path(program).name in LAUNCHERS:
            return
        image = self.images.get((pid, program))
        if image is None:
            before_s = sum(each.cpu_s for (of, _), each in self.images.items() if of == pid)
            image = self.images[pid, program] = Image(program, now, before_s, self._obstacle(pid, program))
        image.last, image.cpu_s = now, cpu_s - image.before_s
        image.loaded = image.loaded or any(each.path == self.mapped for each in process.mappings(pid))
        if image.obstacle is NOT_LOADED and (image.loaded or self._is_asked_for(pid)):  # the first look was too early
            image.obstacle = None
        if image.loaded and self.allocator.kind == "ours":
            if not image.served or now - image.asked > AGAIN_S:
                self._ask(pid, image)
                image.asked = now
        elif image.loaded:  # other allocators' counters are not known
            image.served = image.obstacle is None

    def _obstacle(self, pid: int, program: str) -> tuple[str, str] | None:
        """The obstacle that keeps the library out of a process, as far as its file and initial environment show."""
        found = preload.look(program, os.environ)
        if self._library is not None and (problem := preload.obstacle(found, self._library)) is not None:
            return problem[0].replace(found.name, "it", 1), problem[1]
        if not self._is_asked_for(pid):
            return NOT_LOADED
        return ("it has a malloc of its own", OWN) if preload.own_malloc(found) else None

    def _is_asked_for(self, pid: int) -> bool:
        return self.preload in process.environment(pid).get("LD_PRELOAD", "")

    def _ask(self, pid: int, image: Image) -> None:
        """Reads HAKMEM's figures in the process."""
        with contextlib.suppress(NotHakmem):
            image.live = image.live or Live(pid)
            found = image.live.snapshot()
            image.served = image.served or bool(found["classes"]) or found["huge"]["allocated"] > 0
            if not image.served:
                image.without_s = image.cpu_s
            image.held = max(image.held, found["bytes"]["spans"] + found["bytes"]["huge"])
            image.anonymous = max(image.anonymous, process.kilobytes(pid, "RssAnon"))

    def require_served(self, used_s: float) -> None:
        """Raises a NotServed if most of the run was not served. used_s: the processor time of the whole run."""
        served = [each for each in self.images.values() if each.served]
        others = [each for each in self.images.values() if each.is_known_to_lack(used_s)]
        whole_s = max(LEAST_SEEN * used_s, sum(each.cpu_s for each in served + others), 1e-9)
        share = sum(each.cpu_s for each in others) / whole_s
        sleeps = not served and max(used_s, whole_s) < LITTLE_S and any(not each.loaded for each in others)
        if share < MOST_OF_IT and not sleeps:
            return
        most = max(others, key=lambda each: each.cpu_s)
        nothing = ("it requested none: it needs no memory, or has its own allocator", OWN)
        why, advice = most.obstacle or nothing
        raise NotServed(
            f"{self.name} served no block of {most.program} ({most.cpu_s / whole_s:.0%} of the processor time): {why}",
            f"{advice} --anyway measures it nevertheless.",
        )

    def remark(self) -> str:
        """A remark on a program that gets most of its memory elsewhere; empty if there is none."""
        inside = [each for each in self.images.values() if each.brings_its_own]
        if not inside:
            return ""
        most = max(inside, key=lambda each: each.anonymous)
        return (
            f"{self.name} holds {in_bytes(most.held)} of the {in_bytes(most.anonymous)} of {most.program}, which seems "
            "to have its own allocator: a verdict says little about that"
        )
