"""Records a program from a second process while it runs: `hakmem run --sample`.

The program replaces this process, so a separate process has to record it. That one has its own session and is not the
program's child, so that neither a program that waits for its children nor Ctrl-C on the terminal affects it. It ends
when the program ends."""

from __future__ import annotations

import ctypes
import importlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hakmem_lab.inspect import recording_file
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

PR_SET_PTRACER = 0x59616D61
START_S = 10.0  # within which the library must have started in the program
SHORT_S = 0.01


def prepare(path: Path) -> None:
    """Creates the file, so that a full disk is reported before the program starts."""
    importlib.import_module("hakmem_lab.inspect.sampler")  # here, so that the first sample need not wait for it

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(recording_file.head())
    except OSError as error:
        raise LabError(f"--sample {path}: {error.strerror}", "Give a file that can be written.") from error


@contextmanager
def beside(pid: int, path: Path, interval: float) -> Iterator[None]:
    """Records a child of this process from a thread of this one."""
    thread = threading.Thread(target=_look, args=(pid, path, interval), daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def start(path: Path, interval: float) -> None:
    """Starts the process that records this one, whatever program it becomes, with one line per sample. The file has
    been prepared."""
    watched = os.getpid()
    ours, theirs = os.pipe()
    waiting, until_exec = os.pipe()  # the end that this process keeps is closed when it becomes the program
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.close(ours)
        os.write(theirs, str(os.getpid()).encode())
        os.close(until_exec)
        os.read(waiting, 1)
        _become_quiet()
        try:
            _look(watched, path, interval)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(theirs)
    os.close(waiting)
    sampler = int(os.read(ours, 32) or b"0")
    os.close(ours)
    # For Yama's rule that a process may read only its children; without Yama this call fails and is not needed.
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, sampler, 0, 0, 0)


def _become_quiet() -> None:
    """Closes the program's input and output, so that a reader of them does not wait for this process."""
    null = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1, 2):
        os.dup2(null, each)
    os.closerange(3, 256)


def _look(pid: int, path: Path, interval: float) -> None:
    recorder = recording_file.Recorder(path)
    try:
        problem = _record(pid, recorder, interval)
    except OSError as error:
        problem = f"the recording ends early: {error.strerror}"
    if problem:
        recorder.problem(problem)


def _record(pid: int, recorder: recording_file.Recorder, interval: float) -> str:
    """Records until the program ends; returns why there is no sample, if there is none."""
    from hakmem_lab.inspect.sampler import Sampler

    problem = "the program ended before the first sample"
    seen: Sampler | None = None
    looks, due, until = 0, time.monotonic(), time.monotonic() + START_S
    while process.exists(pid) and (seen is not None or time.monotonic() < until):
        anew = seen is None
        # While the dynamic linker works, or the program ends, its memory may hold anything.
        try:
            if seen is None:
                seen = Sampler(pid, with_map=True)
            else:
                seen.with_map = recorder.whole_next
                seen.step()
        except Exception as error:
            if process.exists(pid):
                problem = getattr(error, "message", str(error))
            if seen is not None:  # it is ending, or has executed another program
                seen, until = None, time.monotonic() + START_S
            time.sleep(min(SHORT_S, interval))
            continue
        recorder.add(seen.as_look(), anew)
        looks += 1
        due = max(due + interval * recorder.spread, time.monotonic())
        time.sleep(due - time.monotonic() if due > time.monotonic() else 0.0)
    return "" if looks else problem
