"""Runs beside a command and cleans up after it if it dies without warning: SIGKILL, a crash, out of memory.

Each line of its input is a JSON list: a key, and a task that is pending from now on, or null to cancel it. The input
ends when the command ends, in whatever way. A task is a command to run, or names programs to end together with all that
they have started: by the id of one, or by the files that they write to, which are known before the programs start and
inherited by their children. The kernel's parent-death signal would reach only the program itself, and is lost in a
fork.

It is run as a file and imports little, so that it starts quickly and needs little memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

END_S = 10.0  # for killed processes to end
COMMAND_S = 60.0
Task = dict[str, Any]  # {"process": id}, {"files": [[device, inode], ...]} or {"command": [word, ...]}


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session ...; empty if the process has
    ended."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if found[:1] in (["Z"], ["X"]) else found


def started_at(pid: int) -> str:
    """When a process started, which tells it from a later one with the same id; empty if it has ended."""
    return "".join(fields(pid)[19:20])


def writes_to(pid: int, files: list[list[int]]) -> bool:
    """Whether one of these files is a process's standard output or standard error."""
    for number in (1, 2):
        with suppress(OSError):
            found = Path(f"/proc/{pid}/fd/{number}").stat()
            if [found.st_dev, found.st_ino] in files:
                return True
    return False


def family(task: Task) -> set[int]:
    """The task's processes, those in a session that one of them leads, and the descendants of all these."""
    known = {int(each.name): fields(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    known = {pid: has for pid, has in known.items() if has and pid != os.getpid()}
    pid, files = task.get("process"), task.get("files", [])
    found = {each for each, has in known.items() if each == pid or int(has[3]) == pid or writes_to(each, files)}
    grown = True
    while grown:
        more = {each for each, has in known.items() if int(has[1]) in found} - found
        grown = bool(more)
        found |= more
    return found


def end(task: Task) -> None:
    until = time.monotonic() + END_S
    while (left := family(task)) and time.monotonic() < until:
        for each in left:
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
        time.sleep(0.01)


def main() -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    tasks: dict[int, tuple[Task, str]] = {}
    for line in sys.stdin:
        key, task = json.loads(line)
        tasks.pop(key, None)
        if task is not None:
            tasks[key] = (task, started_at(task.get("process", 0)))
    for task, began in tasks.values():
        if "command" in task:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(task["command"], check=False, timeout=COMMAND_S)
        elif began == started_at(task.get("process", 0)):  # not a later process with the same id
            end(task)


if __name__ == "__main__":
    main()
