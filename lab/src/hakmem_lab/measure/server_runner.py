"""One run of a server with a client: start the server, wait until it is ready, run the client, stop the server.

The configuration applies to the server only; the client runs in the lab's own environment. Time, exit status and output
are the client's. Memory is that of the server and all its descendants (prefork servers): the largest sum of
proportional set sizes, which count a shared page once, sampled every 20 ms while the client runs. Processor time,
faults and switches are also those of the server and its descendants while the client runs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hakmem_lab.children import shutdown
from hakmem_lab.measure import one_run
from hakmem_lab.terminal.errors import LabError

LOOK_S = 0.02
READY_S = 60.0  # for a server to become ready, unless --timeout is given
STOP_S = 10.0  # between SIGTERM and SIGKILL
READY_EXAMPLE = "Known are port:NUMBER, output:REGEX, file:PATH, and a time such as 2s."


def parse_ready(text: str) -> tuple[str, str]:
    """'port:6379', 'output:REGEX', 'file:PATH' or '1.5s' as (kind, what)."""
    if re.fullmatch(r"\d+(\.\d+)?s", text):
        return "time", text[:-1]
    kind, _, what = text.partition(":")
    if kind not in ("port", "output", "file") or not what:
        raise LabError(f"--ready {text}: unknown", READY_EXAMPLE)
    if kind == "port" and not (what.isdigit() and 0 < int(what) < 65536):
        raise LabError(f"--ready {text}: not a port", READY_EXAMPLE)
    if kind == "output":
        try:
            re.compile(what)
        except re.error as error:
            raise LabError(f"--ready {text}: not a regular expression: {error}", READY_EXAMPLE) from error
    return kind, what


@dataclass(frozen=True)
class Used:
    """The resources that a set of processes has used so far."""

    user_s: float = 0.0
    system_s: float = 0.0
    minor: float = 0
    major: float = 0
    switches: float = 0

    def less(self, before: Used) -> Used:
        return Used(*(max(now - then, 0) for now, then in zip(self.parts, before.parts, strict=True)))

    @property
    def parts(self) -> tuple[float, ...]:
        return self.user_s, self.system_s, self.minor, self.major, self.switches


def _text(pid: int, name: str) -> str:
    """A file of /proc/PID; empty if the process has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return ""


def _used(pid: int) -> Used:
    """The use of one process and of the children that it has waited for."""
    fields = _text(pid, "stat").rpartition(")")[2].split()
    if len(fields) < 15:
        return Used()
    ticks = os.sysconf("SC_CLK_TCK")
    minor, minor_of_children, major, major_of_children = (int(fields[place]) for place in (7, 8, 9, 10))
    user, system, user_of_children, system_of_children = (int(fields[place]) / ticks for place in (11, 12, 13, 14))
    switches = sum(
        int(each) for each in re.findall(r"^\w*voluntary_ctxt_switches:\s+(\d+)", _text(pid, "status"), re.M)
    )
    return Used(
        user + user_of_children,
        system + system_of_children,
        minor + minor_of_children,
        major + major_of_children,
        switches,
    )


def _proportional(pid: int) -> int:
    """Resident bytes; a shared page counts in equal parts for the processes that share it."""
    found = re.search(r"^Pss:\s+(\d+) kB", _text(pid, "smaps_rollup"), re.M)
    return int(found.group(1)) * 1024 if found else 0


class Server:
    """A running server, as a context manager: at its end the server and all its descendants are ended."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        source: Path | None,
        aside: set[int] | None = None,
    ) -> None:
        shutdown.ready()
        shutdown.become_reaper()
        self._before = shutdown.children()
        self._kept = contextlib.ExitStack()
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the server)
        self.client: int | None = None
        self._aside = set() if aside is None else aside
        self._counting = threading.Lock()
        self.peak = 0
        self._kept.enter_context(shutdown.otherwise(shutdown.end_writers(self.output)))
        with one_run.opened(source) as given:
            self._leader = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=given,
                stdout=self.output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._done = threading.Event()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        with shutdown.undisturbed(), self._kept:
            self._stop()
            self.output.close()

    def processes(self) -> list[int]:
        """The server with all its descendants; orphans among them have become this process's children."""
        new = [pid for pid in shutdown.children() if pid not in self._before and pid != self.client]
        found, waiting = set(new), list(new)
        while waiting:
            for child in shutdown.children(waiting.pop()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return sorted(pid for pid in found if _text(pid, "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"]))

    @property
    def ended(self) -> bool:
        """Whether the server runs; one that became a daemon lives on in its descendants."""
        return self._leader.poll() is not None and not self.processes()

    def said(self) -> str:
        return os.pread(self.output.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait_until_ready(self, ready: str, limit_s: float) -> None:
        """Waits until it is ready; a RunFailed if it ends or is not ready in time."""
        kind, what = parse_ready(ready)
        if kind == "time":
            time.sleep(float(what))
        until = time.monotonic() + limit_s
        while not self._is_ready(kind, what):
            if self.ended:
                raise one_run.RunFailed("the server ended before it was ready", one_run.last_words(self.said()))
            if time.monotonic() > until:
                raise one_run.RunFailed(
                    f"the server was not ready ({ready}) within {limit_s:g} s", one_run.last_words(self.said())
                )
            time.sleep(LOOK_S)

    def _is_ready(self, kind: str, what: str) -> bool:
        if self.ended:
            return False
        if kind == "port":
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(what)), timeout=1):
                return True
            return False
        if kind == "output":
            return re.search(what, self.said(), re.MULTILINE) is not None
        return kind == "time" or Path(what).exists()

    def used(self) -> Used:
        parts = [_used(pid).parts for pid in self.processes()]
        return Used(*(sum(column) for column in zip(*parts, strict=True))) if parts else Used()

    def look(self) -> None:
        """Updates the peak with the current memory."""
        with self._counting:
            self.peak = max(self.peak, sum(_proportional(pid) for pid in self.processes()))

    def start_client(self, command: str, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Starts the client. It is a child of this process like the server's orphans, so no sample may be taken before
        its id is known."""
        with self._counting:
            client = subprocess.Popen(
                ["/bin/sh", "-c", command],
                env=shutdown.own_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.client = client.pid
            self._aside.add(client.pid)
        return client

    def watch(self) -> threading.Thread:
        """Samples until the server is stopped."""

        def looks() -> None:
            while not self._done.wait(LOOK_S):
                self.look()

        thread = threading.Thread(target=looks, daemon=True)
        thread.start()
        return thread

    def _stop(self) -> None:
        """Stops the server. A prefork server ends its children itself; those that it leaves behind are ended here."""
        told: set[int] = set()
        for how in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + STOP_S
            while not self.ended and time.monotonic() < until:
                alone = how == signal.SIGTERM and self._leader.poll() is None
                for pid in {self._leader.pid} if alone else set(self.processes()):
                    if how == signal.SIGKILL or pid not in told:
                        told.add(pid)
                        with contextlib.suppress(ProcessLookupError, PermissionError):
                            os.kill(pid, how)
                time.sleep(LOOK_S)
                self._reap()
        self._reap()

    def _reap(self) -> None:
        """Reaps orphans that have become this process's children."""
        self._leader.poll()
        for pid in shutdown.children() - self._before - {self._leader.pid, self.client}:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def _run_client(server: Server, command: str, timeout_s: float | None) -> tuple[int, float, str]:
    """(exit status as a shell gives it, seconds, output)."""
    with tempfile.TemporaryFile() as output, shutdown.otherwise(shutdown.end_writers(output)):
        began = time.perf_counter()
        client = server.start_client(command, output)
        try:
            status = client.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise one_run.RunFailed(f"no end of the client after {timeout_s:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGKILL)
            client.wait()
        seconds = time.perf_counter() - began
        output.seek(0)
        return (status if status >= 0 else 128 - status), seconds, output.read().decode(errors="replace")


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    client: str,
    ready: str,
    timeout_s: float | None = None,
    source: Path | None = None,
    aside: set[int] | None = None,
) -> one_run.Outcome:
    """Runs the server's resolved command and the client once; a RunFailed if the server ends early.

    aside: receives the client's process id."""
    with Server(command, environment, source, aside) as server:
        server.wait_until_ready(ready, timeout_s or READY_S)
        before = server.used()
        server.look()
        server.watch()
        status, seconds, output = _run_client(server, client, timeout_s)
        server.look()
        used = server.used().less(before)
        if server.ended:
            raise one_run.RunFailed("the server ended while the client ran", one_run.last_words(server.said()))
        return one_run.Outcome(
            status=status,
            wall_s=seconds,
            cpu_user_s=used.user_s,
            cpu_system_s=used.system_s,
            peak_rss_bytes=server.peak,
            minor_faults=int(used.minor),
            major_faults=int(used.major),
            switches=int(used.switches),
            output=output,
        )
