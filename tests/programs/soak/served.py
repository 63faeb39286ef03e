"""Who was served: looks at every process that a run starts, and says how many blocks HAKMEM has given to each.

A process counts under the name of the program that it runs. Its blocks are those of its statistics at exit
(HAKMEM_STATS=json:FOLDER/%p), or those that were read while it ran, whichever are more. What a forked child had inherited
from its parent, whose counters it goes on with, is not its own.
"""

import fnmatch
import json
import os
import pathlib
import threading
import time

from live import NotServed, executable

PAUSE = 0.04         # seconds between two looks
ENOUGH = 10_000_000  # a process with so many blocks is not read again


class Process:
    """What is known of one process."""

    def __init__(self, pid, parent):
        self.pid, self.parent = pid, parent
        self.name = None
        self.mapped = False   # the library is in it and has started
        self.inherited = self.blocks = 0

    def rename(self, name):
        """A program's start makes the process a new one; until then a child is its parent's copy."""
        self.inherited = self.parent.blocks if self.parent and self.parent.name == name else 0
        self.name, self.mapped, self.blocks = name, False, 0

    @property
    def own(self):
        return max(0, self.blocks - self.inherited)


def process_table():
    """{pid: (parent's pid, start)} of the whole system."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = pathlib.Path("/proc", entry, "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            fields = stat.rpartition(")")[2].split()
            table[int(entry)] = (int(fields[1]), fields[19])
    return table


def descendants(table, ancestor):
    """The pids below one process, parents first."""
    children = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


class Watcher(threading.Thread):
    """Looks at this process's descendants until it is stopped."""

    def __init__(self, reader, statistics, names):
        super().__init__(daemon=True)
        self.reader, self.statistics, self.names = reader, statistics, names
        self.processes = {}
        self.current = {}
        self.started = {}   # {pid: name} of processes that may have ended before they were seen
        self.done = threading.Event()

    def run(self):
        while not self.done.is_set():
            self.look()
            self.done.wait(PAUSE)

    def look(self):
        table = process_table()
        for pid in descendants(table, os.getpid()):
            key = pid, table[pid][1]
            if key not in self.processes:
                self.processes[key] = self.current[pid] = Process(pid, self.current.get(table[pid][0]))
            self._read(self.processes[key])

    def _read(self, process):
        name = executable(process.pid)
        if name is None:
            return
        if name != process.name:
            process.rename(name)
        if process.blocks < ENOUGH and any(fnmatch.fnmatchcase(name, pattern) for pattern in self.names):
            try:
                process.blocks = max(process.blocks, self.reader.refilled(process.pid))
                process.mapped = True
            except NotServed:
                pass

    def stop(self):
        """The processes that there were, with the statistics that they have left."""
        self.done.set()
        self.join()
        for path in self.statistics.glob("*.json"):
            pid = int(path.stem)
            process = self.current.get(pid)
            if process is None or process.name is None:
                process = self.processes[pid, None] = Process(pid, None)
                process.rename(self.started.get(pid, "?"))
            try:
                process.blocks = max(process.blocks, json.loads(path.read_text())["total"]["refilled"])
                process.mapped = True
            except (ValueError, KeyError):
                continue   # It was still being written when its process was ended.
        return list(self.processes.values())


class Serving:
    """What must be shown: at least `processes` processes of a program that HAKMEM gave at least `blocks` each.

    `name` is a pattern of the executable's name, or several with | between. With 0 blocks it is enough that the library
    is in the process and has started.
    """

    def __init__(self, name, blocks, processes=1):
        self.name, self.blocks, self.processes = name, blocks, processes

    def of(self, processes):
        """The blocks of each process that counts, the most first."""
        return sorted((process.own for process in processes
                       if process.mapped and any(fnmatch.fnmatchcase(process.name, name) for name in self.name.split("|"))
                       and process.own >= self.blocks), reverse=True)

    def lacking(self, processes):
        """What is not shown, in a sentence; None when all is."""
        if len(self.of(processes)) >= self.processes:
            return None
        seen = sorted(((process.name, process.own) for process in processes if process.name), key=lambda pair: -pair[1])
        return (f"HAKMEM gave {self.blocks} blocks to {len(self.of(processes))} processes of {self.name}, not"
                f" {self.processes}; there were {', '.join(f'{name} ({own})' for name, own in seen[:12]) or 'none'}")


def end_descendants(patience=10):
    """End every process below this one, also those that have left its session; say how many there were."""
    ended = set()
    end = time.monotonic() + patience
    while time.monotonic() < end:
        table = process_table()
        left = [pid for pid in descendants(table, os.getpid()) if not is_zombie(pid)]
        if not left:
            break
        for pid in left:
            ended.add(pid)
            try:
                os.kill(pid, 9)
            except OSError:
                continue
        time.sleep(0.02)
    reap()
    return len(ended)


def is_zombie(pid):
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def reap():
    """Take note of the ends of orphans, which are this process's children now."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
