"""Runs beside a command and cleans up after it if it dies without warning: SIGKILL, a crash, out of memory.

Each message of its input, a socket that keeps messages apart, is a JSON list: a key, and a task that is pending from
now on, or null to cancel it. The input ends when the command ends, in whatever way. A task is a command to run, or
names programs to end together with all that they have started: by the id of one, or by the files that they write to,
which are known before the programs start and inherited by their children. The kernel's parent-death signal would reach
only the program itself, and is lost in a fork.

The files come open with their task and stay open here until it is done or cancelled: a file that nobody has open any
more leaves its inode to the next one, which may be what another command's program writes to.

It is run as a file and imports little, so that it starts quickly and needs little memory."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

END_S = 10.0  # for killed processes to end
COMMAND_S = 60.0
MESSAGE = 1 << 17  # bytes of a message: a command of one page
FILES = 8  # of a task
Task = dict[str, Any]  # {"process": id}, {"files": [descriptor, ...]} or {"command": [word, ...]}


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


def writes_to(pid: int, files: list[os.stat_result]) -> bool:
    """Whether one of these files is a process's standard output or standard error."""
    for number in (1, 2):
        with suppress(OSError):
            found = Path(f"/proc/{pid}/fd/{number}").stat()
            if any(os.path.samestat(found, each) for each in files):
                return True
    return False


def family(task: Task) -> set[int]:
    """The task's processes, those in a session that one of them leads, and the descendants of all these."""
    known = {int(each.name): fields(int(each.name)) for each in Path("/proc").iterdir() if each.name.isdigit()}
    known = {pid: has for pid, has in known.items() if has and pid != os.getpid()}
    pid, files = task.get("process"), [os.fstat(each) for each in task.get("files", [])]
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
    with socket.socket(fileno=sys.stdin.fileno()) as told:
        while True:
            message, files, _, _ = socket.recv_fds(told, MESSAGE, FILES)
            if not message:
                break
            key, task = json.loads(message)
            former, _ = tasks.pop(key, ({}, ""))
            for each in former.get("files", []):
                os.close(each)
            if task is not None:
                tasks[key] = (task | {"files": files} if files else task, started_at(task.get("process", 0)))
    for task, began in tasks.values():
        if "command" in task:
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(task["command"], check=False, timeout=COMMAND_S)
        elif began == started_at(task.get("process", 0)):  # not a later process with the same id
            end(task)


if __name__ == "__main__":
    main()
