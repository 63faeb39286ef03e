"""The end of a command, and of everything that it has started or switched on.

SIGTERM, which a CI sends to a cancelled job, and SIGHUP, which a closed terminal sends, are raised as
KeyboardInterrupt, so that every command does what it does at Ctrl-C. cleanup_process.py handles an end that no handler
is told of."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO

from hakmem_lab.children import cleanup_process
from hakmem_lab.terminal.errors import LabError

PR_SET_CHILD_SUBREAPER = 36
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


# --- signals ----------------------------------------------------------------------------------------------------------


class _State:
    """The handler's state: how many uninterruptible blocks are open, and whether a signal came meanwhile."""

    closed = 0
    waiting = False
    raised = False


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    if _State.closed:
        _State.waiting = True
        return
    _State.raised = True
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Whether a signal has interrupted this process."""
    return _State.raised


def obey() -> None:
    """From now on each of SIGNALS is a KeyboardInterrupt, unless it is ignored (nohup)."""
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:
            signal.signal(each, _interrupt)


def disobey() -> None:
    """Undoes obey() in a child of this process that is about to execute a program."""
    for each in SIGNALS:
        if signal.getsignal(each) == _interrupt:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A short block that a signal does not interrupt: one that comes meanwhile is raised at its end."""
    _State.closed += 1
    try:
        yield
    finally:
        _State.closed -= 1
        if _State.waiting and not _State.closed:
            _State.waiting = False
            _interrupt(0, None)


# --- processes --------------------------------------------------------------------------------------------------------


def children(pid: int | None = None) -> set[int]:
    """The children of this process or of another one, ended ones included, the cleanup process excluded."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid or os.getpid()}/task").iterdir():
            with contextlib.suppress(OSError):
                found.update(int(each) for each in (task / "children").read_text().split())
    return found - _Cleanup.pids


def descendants(pid: int) -> list[int]:
    """The process and all that descend from it, parents first."""
    found = [pid]
    for each in found:
        found += children(each)
    return found


def kill_tree(pid: int) -> None:
    """Ends a process and its descendants, the parents first, so that none of them starts another."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    for child in children(pid):
        kill_tree(child)


def end_descendants(before: set[int]) -> None:
    """Ends and reaps all children of this process that it did not have before, with their descendants."""
    with undisturbed():
        until = time.monotonic() + cleanup_process.END_S
        while (left := children() - before) and time.monotonic() < until:
            for pid in left:
                kill_tree(pid)
            for pid in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)


def become_reaper() -> None:
    """Makes orphaned descendants children of this process, so that none is lost."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise LabError(f"cannot watch over programs: prctl: {os.strerror(ctypes.get_errno())}")


def own_environment() -> dict[str, str]:
    """The environment for programs that are not measured: nothing in it changes or preloads an allocator."""
    return {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_") and k not in ("LD_PRELOAD", "LD_DEBUG")}


# --- tasks in case this process is killed -----------------------------------------------------------------------------


class _Cleanup:
    """The cleanup process: started when first needed, it ends with this process."""

    pids: set[int] = set()  # noqa: RUF012
    owner = 0  # a fork of this process would need its own
    keys = itertools.count()
    input: socket.socket | None = None

    @classmethod
    def start(cls) -> None:
        if cls.owner == os.getpid():
            return
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            started = subprocess.Popen(
                [sys.executable, "-I", cleanup_process.__file__],
                env=own_environment(),
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        cls.owner, cls.pids, cls.input = os.getpid(), {started.pid}, ours

    @classmethod
    def tell(cls, key: int, task: cleanup_process.Task | None) -> None:
        cls.start()
        cls.send(key, task)

    @classmethod
    def send(cls, key: int, task: cleanup_process.Task | None) -> None:
        assert cls.input
        with contextlib.suppress(OSError):  # it was killed: nothing else depends on it
            socket.send_fds(cls.input, [json.dumps([key, task]).encode()], (task or {}).get("files", []))


def ready() -> None:
    """Starts the cleanup process unless it runs already, so that it is not started while something is measured."""
    _Cleanup.start()


def end_writers(*files: IO[bytes]) -> cleanup_process.Task:
    """The task to end all programs that write to these files, which only this process's programs have."""
    return {"files": [each.fileno() for each in files]}


@contextlib.contextmanager
def otherwise(task: cleanup_process.Task) -> Iterator[None]:
    """A block that puts something in order at its end. If this process is killed first, cleanup_process.py does the
    task."""
    key = next(_Cleanup.keys)
    _Cleanup.tell(key, task)
    try:
        yield
    finally:
        _Cleanup.tell(key, None)


@contextlib.contextmanager
def ended_otherwise() -> Iterator[Callable[[], None]]:
    """A block that starts a program and waits for its end. If this process is killed first, cleanup_process.py ends the
    program: the new process names itself by the function that this gives, before it executes the program, so that at
    no moment the program runs unknown."""
    _Cleanup.start()
    key = next(_Cleanup.keys)
    try:
        yield lambda: _Cleanup.send(key, {"process": os.getpid()})
    finally:
        _Cleanup.tell(key, None)
