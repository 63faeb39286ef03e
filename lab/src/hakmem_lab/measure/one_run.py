"""Runs one program and measures it: wall time, CPU time, peak memory, faults, and a figure that it prints.

Peak memory needs care.  A process's high-water mark starts with the memory of the process that executed it, so a child
of this interpreter would never show less than the interpreter's own 100 MB.  The program is therefore started by
`setsid --fork`, which is small and exits at once; this process is the reaper of orphans and waits for the program
itself.  Because the program has its own session, Ctrl-C reaches only the lab, which then ends the program and all that
it started, daemons included: orphans become children of the reaper, whatever their session.

Wall time includes the start of the launcher, about a millisecond; CPU time, memory and faults do not.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hakmem_lab.children import shutdown
from hakmem_lab.children.beside import Beside
from hakmem_lab.terminal.errors import LabError, UsageError

LAST_LINES = 12
PAGE = os.sysconf("SC_PAGE_SIZE")
QUANTILE = r"p\d+(\.\d+)?"  # of a client's latencies
BUILT_IN = ("time", "cpu", "rss", "mix", "gib_seconds", "instructions")  # mix: geometric mean of time and peak memory
LOOK_S = 0.02  # at memory over time
# What counts instructions, and how it says so: perf where the processor has counters, else valgrind.
COUNTERS = (
    (("perf", "stat", "-x", ",", "-e", "instructions:u", "--"), r"^(\d+),,instructions:u"),
    (
        ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--trace-children=yes"),
        r"==\d+== I\s+refs:\s+([\d,]+)",
    ),
)


@dataclass(frozen=True)
class Metric:
    """The compared quantity: wall time, CPU time, peak memory, or a number that the program prints."""

    name: str  # one of BUILT_IN, or a regular expression with one group
    higher_is_better: bool

    @classmethod
    def parse(cls, text: str, lower_is_better: bool = False) -> Metric:
        """One of BUILT_IN, or a regular expression with exactly one group, where higher is better by default."""
        if text in BUILT_IN or re.fullmatch(QUANTILE, text):
            return cls(text, higher_is_better=False)
        try:
            groups = re.compile(text).groups
        except re.error as error:
            raise LabError(
                f"--metric {text}: neither one of {', '.join(BUILT_IN)} nor a regular expression: {error}",
                r"Example: --metric 'ops_per_s=([0-9.]+)'",
            ) from error
        if groups != 1:
            raise UsageError(
                f"--metric {text}: needs exactly one group around the number, has {groups}",
                r"Example: --metric 'ops_per_s=([0-9.]+)'",
            )
        return cls(text, higher_is_better=not lower_is_better)

    @property
    def printed(self) -> bool:
        """Whether the program prints the number."""
        return self.name not in BUILT_IN and not re.fullmatch(QUANTILE, self.name)

    @property
    def unit(self) -> str:
        return {"time": "s", "cpu": "s", "rss": "MiB", "mix": "√(s·MiB)", "gib_seconds": "GiB·s"}.get(self.name, "")

    def of(self, outcome: Outcome) -> float:
        """The value of a run; a LabError if the program did not print one above 0."""
        known: dict[str, Callable[[], float]] = {
            "time": lambda: outcome.wall_s,
            "cpu": lambda: outcome.cpu_s,
            "rss": lambda: outcome.peak_rss_bytes / (1 << 20),
            "mix": lambda: math.sqrt(outcome.wall_s * outcome.peak_rss_bytes / (1 << 20)),
            "gib_seconds": lambda: self._over_time(outcome),
            "instructions": lambda: self._instructions(outcome),
        }
        if self.name in known:
            return known[self.name]()
        if not self.printed:
            return self._quantile(outcome)
        found = re.search(self.name, outcome.output, re.MULTILINE)
        if found is None:
            raise LabError(
                f"the program's output has no match for --metric {self.name}",
                last_words(outcome.output),
            )
        try:
            value = float(found.group(1).replace(",", ""))
        except (ValueError, AttributeError) as error:
            raise LabError(f"--metric {self.name} matches '{found.group(1)}', which is not a number") from error
        if not 0 < value < float("inf"):
            raise LabError(f"--metric {self.name} gives {value:g}; ratios need numbers above 0")
        return value

    @staticmethod
    def _over_time(outcome: Outcome) -> float:
        if outcome.gib_seconds is None:
            raise LabError("--metric gib_seconds is of a program, not of a server", "Use --metric rss.")
        return outcome.gib_seconds

    @staticmethod
    def _instructions(outcome: Outcome) -> float:
        """Those of all the program's processes."""
        found = re.findall(counter()[1], outcome.output, re.MULTILINE)
        if not found:
            raise LabError("no instructions were counted", last_words(outcome.output))
        return float(sum(int(each.replace(",", "")) for each in found))

    def wrapped(self, command: Sequence[str]) -> list[str]:
        """The command, behind what counts instructions if they are the metric."""
        if self.name != "instructions":
            return list(command)
        first = counter()[0]
        return [shutil.which(first[0]) or first[0], *first[1:], *command]

    def _quantile(self, outcome: Outcome) -> float:
        """One of a client's latencies."""
        if outcome.quantiles is None:
            raise LabError(
                f"--metric {self.name} needs the latencies of a client", "Give --client and --latency REGEX."
            )
        if self.name not in outcome.quantiles:
            known = ", ".join(name for name in outcome.quantiles if name != "count")
            raise LabError(f"the client's latencies are too few for --metric {self.name}", f"They give {known}.")
        return outcome.quantiles[self.name]


@dataclass(frozen=True)
class Outcome:
    """One finished run."""

    status: int  # as a shell gives it: 128 + signal if a signal ended the run
    wall_s: float
    cpu_user_s: float
    cpu_system_s: float
    peak_rss_bytes: int
    minor_faults: int
    major_faults: int
    switches: int  # both kinds of context switches
    output: str  # standard output, then standard error
    quantiles: dict[str, float] | None = None  # of the latencies that a client printed
    gib_seconds: float | None = None  # resident memory over time, if it was watched

    @property
    def cpu_s(self) -> float:
        return self.cpu_user_s + self.cpu_system_s


class RunFailed(LabError):
    """A program could not be started, failed, or did not end in time."""


def last_words(text: str) -> str:
    """The end of a program's output, as advice on why it failed."""
    lines = text.strip().splitlines()[-LAST_LINES:]
    return "\n".join(["Its last words:", *lines]) if lines else "It printed nothing."


def resolve(command: Sequence[str]) -> list[str]:
    """The command with the program's full path; a LabError if there is no such program."""
    if not command:
        raise UsageError("no program given", "Put it after --, for example: hakmem ab ... -- PROGRAM ARGUMENTS")
    program = shutil.which(command[0])
    if program is None:
        there = Path(command[0]).exists()
        raise LabError(
            f"{command[0]}: " + ("is not executable" if there else "no such program"),
            "Give a path, or the name of a program in PATH."
            + ("" if there else " './dev build' builds the benchmarks."),
        )
    return [program, *command[1:]]


def _started_at(pid: int) -> int:
    """When the process started, in the kernel's ticks; its name may contain spaces and ends at the last parenthesis.
    The kernel cuts it after 15 bytes, also within a character."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])


def _leader_among_new(before: set[int]) -> int:
    """The leader of the new session. The launcher's child creates the session after the launcher has ended; until then
    there is none that a time-out could end.

    A program that has already ended may have left children here, which started later."""
    while True:
        sessions = {pid: os.getsid(pid) for pid in shutdown.children() - before}
        leaders = [pid for pid, session in sessions.items() if session == pid]
        if leaders:
            return min(leaders, key=lambda pid: (_started_at(pid), pid))
        if os.getsid(0) not in sessions.values():
            raise RunFailed("the started program was not found")
        time.sleep(0.001)


def _launch(
    command: list[str],
    environment: Mapping[str, str],
    output: IO[bytes],
    complaints: IO[bytes],
    source: IO[bytes] | int,
    before: set[int],
) -> int:
    """Starts the program in its own session and returns its process id.

    before: this process's earlier children.

    env(1) sets the program's environment, so that a preloaded library is not loaded into the launcher."""
    launcher, setter = shutil.which("setsid"), shutil.which("env")
    if launcher is None or setter is None:
        raise LabError("setsid or env is missing; both start the measured program", "Install util-linux and coreutils.")
    assignments = [f"{name}={value}" for name, value in environment.items()]
    started = subprocess.Popen(
        [launcher, "--fork", setter, "-i", *assignments, *command],
        stdin=source,
        stdout=output,
        stderr=complaints,
        env={"PATH": os.environ.get("PATH", os.defpath)},
    )
    if started.wait() != 0:
        raise RunFailed("the program could not be started: setsid failed")
    return _leader_among_new(before)


def _end_session(leader: int, how: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, how)


@contextlib.contextmanager
def _watched(leader: int, timeout_s: float | None) -> Iterator[threading.Event]:
    """Ends the session when the time is up, which sets the event, and on any exception, such as Ctrl-C."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _end_session(leader)

    timer = threading.Timer(timeout_s, end) if timeout_s is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield late
    except BaseException:
        _end_session(leader)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(leader, 0)
        raise
    finally:
        if timer is not None:
            timer.cancel()


@functools.cache
def counter() -> tuple[tuple[str, ...], str]:
    """The first of COUNTERS that works here."""
    for command, pattern in COUNTERS:
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run([*command, "true"], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode == 0 and re.search(pattern, done.stderr, re.MULTILINE):
            return command, pattern
    raise LabError("--metric instructions needs valgrind, or perf and a processor with counters", "Install valgrind.")


class MemoryOverTime(Beside):
    """The resident memory of a program and all that it starts, over time; a page that two share counts twice."""

    def __init__(self, leader: int) -> None:
        super().__init__(self._look)
        self.leader, self.gib_seconds, self._former = leader, 0.0, time.monotonic()

    def _look(self) -> float:
        resident, now = 0, time.monotonic()
        for pid in shutdown.descendants(self.leader):
            with contextlib.suppress(OSError, IndexError):
                resident += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
        self.gib_seconds += resident * (now - self._former) / (1 << 30)
        self._former = now
        return LOOK_S


@contextlib.contextmanager
def opened(source: Path | None) -> Iterator[IO[bytes] | int]:
    """The input of a program: a file, or nothing."""
    if source is None:
        yield subprocess.DEVNULL
        return
    try:
        file = source.open("rb")
    except OSError as error:
        raise LabError(f"--input {source}: {error.strerror}", "Give a file that can be read.") from error
    with file:
        yield file


def run(
    command: Sequence[str],
    environment: Mapping[str, str],
    timeout_s: float | None = None,
    source: Path | None = None,
    beside: Callable[[int], contextlib.AbstractContextManager[object]] = contextlib.nullcontext,
) -> Outcome:
    """Runs a resolved command once and returns its measurements, whatever its exit status.

    beside: what watches the process with this id meanwhile.  source: the file with its input, which is empty by
    default.  timeout_s: it is ended after so many seconds, with a RunFailed, as when it cannot be started."""
    shutdown.ready()
    shutdown.become_reaper()
    before = shutdown.children()
    with (
        opened(source) as given,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaints,
        shutdown.otherwise(shutdown.end_writers(output, complaints)),
    ):
        began = time.perf_counter()
        try:
            leader = _launch(list(command), environment, output, complaints, given, before)
            with beside(leader) as watcher, _watched(leader, timeout_s) as late:
                _, status, usage = os.wait4(leader, 0)
            ended = time.perf_counter()
        finally:
            shutdown.end_descendants(before)
        texts = []
        for stream in (output, complaints):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    if late.is_set():
        raise RunFailed(f"no end after {timeout_s:g} s", last_words(texts[1]))
    code = os.waitstatus_to_exitcode(status)
    return Outcome(
        status=code if code >= 0 else 128 - code,
        wall_s=ended - began,
        cpu_user_s=usage.ru_utime,
        cpu_system_s=usage.ru_stime,
        peak_rss_bytes=usage.ru_maxrss * 1024,
        minor_faults=usage.ru_minflt,
        major_faults=usage.ru_majflt,
        switches=usage.ru_nvcsw + usage.ru_nivcsw,
        output="".join(texts),
        gib_seconds=watcher.gib_seconds if isinstance(watcher, MemoryOverTime) else None,
    )


def require_success(outcome: Outcome) -> Outcome:
    """The outcome if the run succeeded, otherwise a RunFailed with the end of the program's output."""
    if outcome.status == 0:
        return outcome
    if outcome.status > 128:
        number = outcome.status - 128
        names = {each.value: each.name for each in signal.Signals}
        how = f"ended by signal {number} ({names.get(number, 'unknown')})"
    else:
        how = f"exit status {outcome.status}"
    raise RunFailed(how, last_words(outcome.output))
