"""What any allocator could gain for a program at most.

Time: the program runs with k nanoseconds added to each call of malloc and free (k = DELAYS), in interleaved rounds. The
slope of its time over k is the number of calls that it waits for; their number in all shows which part of the
allocator's time it feels. One call in 61 is timed, which gives the allocator's own time, and the kernel counts page
faults, whose cost is calibrated. An allocator whose calls took no time and that never had a page fault would save the
felt part of both. What other addresses change in the caches is not in it.

Waiting for a processor lengthens the whole, and not the calls in it: on a busy machine `cpu` takes processor time
instead.

Memory: at the peak, resident memory beside what live blocks asked for at least, by their classes."""

from __future__ import annotations

import ctypes
import math
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hakmem_lab.children.beside import Beside
from hakmem_lab.decide.statistics import CONFIDENCE
from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.live import Live
from hakmem_lab.measure import one_run
from hakmem_lab.target import process
from hakmem_lab.terminal import progress
from hakmem_lab.terminal.amounts import in_bytes
from hakmem_lab.terminal.errors import LabError

DELAYS = (0, 5, 10, 20)  # ns
SOURCE = Path(one_run.__file__).with_name("added_delay.c")
CALIBRATION = 20_000_000  # turns of the idle loop
LOOK_S = 0.05
WIDEST = 100  # %: an interval from nothing to more than this advises nothing
MOST = 0.99  # of the time: calls that took more of it are too short to be timed one by one


@dataclass(frozen=True)
class Round:
    """One round: the plain program, and the same with each delay."""

    plain_s: float
    delayed_s: tuple[float, ...]  # by DELAYS
    calls: int
    inside_s: float  # in calls, of all threads
    faults_s: float

    @property
    def slope(self) -> float:
        """Calls that the program waits for."""
        return float(np.polyfit(np.array(DELAYS) * 1e-9, self.delayed_s, 1)[0])


@dataclass
class Memory:
    """The moment of most resident memory."""

    resident: int = 0
    live: int = 0
    rounding: int = 0  # what classes may add to live blocks at most
    elsewhere: int = 0  # not the allocator's

    @property
    def most_saved(self) -> int:
        return max(self.resident - self.elsewhere - (self.live - self.rounding), 0)


@dataclass
class Worth:
    """The bounds."""

    rounds: list[Round] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    def felt(self) -> tuple[float, float, float]:
        """The part of the time in calls that the program waits for, with its interval: 1, less with threads beside each
        other. A machine that is too busy to show the slope leaves it open, from 0 to 1."""
        middle, low, high = with_interval([each.slope / max(each.calls, 1) for each in self.rounds])
        return min(max(middle, 0.0), 1.0), min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)

    def gains(self, felt: float) -> list[float]:
        """By round: the most that an allocator could gain, in % as hakmem ab says it."""
        found = []
        for each in self.rounds:
            share = min((each.inside_s * felt + each.faults_s) / each.plain_s, MOST)
            found.append(100 * share / (1 - share))
        return found

    def bound(self) -> tuple[float, float, float]:
        """The mean with its interval, which has that of `felt` in it."""
        middle, low, high = self.felt()
        least, most = with_interval(self.gains(low))[1], with_interval(self.gains(high))[2]
        return float(np.mean(self.gains(middle))), max(least, 0.0), most

    def why_unbounded(self) -> str:
        """Why the runs do not bound the time; empty: they do."""
        _, low, high = self.bound()
        if max(self.gains(self.felt()[0])) >= 100 * MOST / (1 - MOST):
            return "calls and page faults, timed one by one, take longer than the whole program"
        return "take longer ones, more --runs, or --cpu" if low <= 0 and high > WIDEST else ""


def with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean with Student's interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return mean, mean - float(half), mean + float(half)


def build(folder: Path) -> tuple[Path, float]:
    """The library that delays calls, and turns of its idle loop per nanosecond."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        raise LabError("worth needs a C compiler (cc) for the library that delays calls", "Install gcc or clang.")
    path = folder / "added_delay.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(path), str(SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise LabError("the library that delays calls does not compile here", one_run.last_words(done.stderr))
    idle = ctypes.CDLL(str(path)).worth_idle
    idle.argtypes = (ctypes.c_uint64,)
    best = math.inf
    for _ in range(5):
        began = time.thread_time_ns()  # not of others' turns on a busy machine
        idle(CALIBRATION)
        best = min(best, time.thread_time_ns() - began)
    return path, CALIBRATION / best


def measure(
    command: Sequence[str],
    environment: Mapping[str, str],
    rounds: int,
    seed: int,
    timeout_s: float | None = None,
    cpu: bool = False,
) -> Worth:
    """Carries the rounds out, each in random order, after one for the memory.  timeout_s: for a run."""
    found, order = Worth(), random.Random(seed)
    resolved, environment = one_run.resolve(command), {**environment, **({"WORTH_CPU": "1"} if cpu else {})}
    with tempfile.TemporaryDirectory(prefix="hakmem-") as name, progress.of(1 + rounds * 5, "runs") as tick:
        library, per_ns = build(Path(name))
        found.memory = _memory(resolved, environment, timeout_s)
        tick("memory")
        for number in range(rounds):
            runs: dict[int, Any] = {}
            for delay in order.sample((-1, *DELAYS), 5):
                outcome, counts = _run(resolved, environment, Path(name), library, per_ns, delay, timeout_s)
                runs[delay] = (outcome.cpu_s if cpu else outcome.wall_s), counts
                tick(f"round {number + 1}")
            calls, inside, faults = runs[0][1]
            found.rounds.append(Round(runs[-1][0], tuple(runs[k][0] for k in DELAYS), calls, inside, faults))
    return found


def _run(
    command: list[str],
    environment: Mapping[str, str],
    folder: Path,
    library: Path,
    per_ns: float,
    delay: int,
    timeout_s: float | None,
) -> tuple[one_run.Outcome, tuple[int, float, float]]:
    """One run; calls, seconds in them and in page faults."""
    counts = folder / "counts"
    counts.unlink(missing_ok=True)
    more = {}
    if delay >= 0:
        more = {"LD_PRELOAD": f"{library} {environment['LD_PRELOAD']}", "WORTH_FILE": str(counts)}
        more["WORTH_TURNS"] = str(round(delay * per_ns))
    outcome = one_run.require_success(one_run.run(command, {**environment, **more}, timeout_s))
    if delay < 0:
        return outcome, (0, 0.0, 0.0)
    lines = counts.read_text().splitlines() if counts.exists() else []
    values = np.array([line.split() for line in lines], np.int64).reshape(-1, 4)
    if not len(values) or not values[:, 0].sum():
        raise LabError(
            "the program's calls were not counted: it made none, or ended by _exit() or a signal",
            "A static program, and one with its own malloc, cannot be measured.",
        )
    inside = float((values[:, 1] * values[:, 0] / np.maximum(values[:, 2], 1)).sum()) * 1e-9
    faults = outcome.minor_faults * float(np.median(values[:, 3])) * 1e-9
    return outcome, (int(values[:, 0].sum()), inside, faults)


def _memory(command: list[str], environment: Mapping[str, str], timeout_s: float | None) -> Memory:
    """The peak of the main process's memory, looked at from outside."""
    best = Memory()

    def looks_at(pid: int) -> Beside:
        def look() -> float:
            with suppress(LabError, ValueError, OSError):
                at = memory_of(pid)
                if at.resident > best.resident:
                    vars(best).update(vars(at))
            return LOOK_S

        return Beside(look, LOOK_S)

    one_run.require_success(one_run.run(command, environment, timeout_s, beside=looks_at))
    return best


def memory_of(pid: int) -> Memory:
    """A running process's memory now."""
    resident = process.kilobytes(pid, "VmRSS")
    live = Live(pid)
    snapshot = live.snapshot()
    if not ledger.add(live, snapshot):
        raise LabError(f"process {pid} has too large a heap to look at every page")
    sizes = live.class_table("size", np.uint32)
    smaller = np.concatenate([[0], sizes[:-1]])
    rounding = 0
    for row in snapshot["classes"]:
        place = int(np.searchsorted(sizes, row["size"]))
        rounding += row["live"] * int(row["size"] - smaller[place] - 1)
    found = snapshot["ledger"]
    held = snapshot["bytes"]["live"] + snapshot["bytes"].get("huge", 0)
    return Memory(max(resident, found["rss"]), min(held, found["rss"]), rounding, found["not_ours"])


def says(found: Worth) -> list[str]:
    """The bounds in sentences."""
    mean, low, high = found.bound()
    advice = "do not spend a week here" if high < 3 else "worth an afternoon" if high < 10 else "worth a comparison"
    bound = f"at most {mean:.1f} % ({low:.1f} .. {high:.1f}) for any allocator; {advice}"
    if why := found.why_unbounded():
        bound = f"these runs do not bound it: {why}"
    calls = int(np.mean([each.calls for each in found.rounds]))
    plain = float(np.mean([each.plain_s for each in found.rounds]))
    inside = float(np.mean([each.inside_s for each in found.rounds]))
    faults = float(np.mean([each.faults_s for each in found.rounds]))
    felt, least, most = found.felt()
    said = [
        f"Time: {bound}.",
        f"Of {plain:.3g} s, {inside:.3g} s, as timed, are in {calls:,} calls, of which the program waits for "
        f"{100 * felt:.0f} % ({100 * least:.0f} .. {100 * most:.0f}), and {faults:.3g} s in page faults. "
        "What other addresses change in the processor's caches is not in it.",
    ]
    memory = found.memory
    if memory.resident:
        share = 100 * memory.most_saved / memory.resident
        said.append(
            f"Memory: at most {in_bytes(memory.most_saved)} ({share:.0f} %) of {in_bytes(memory.resident)} at the "
            f"peak; {in_bytes(memory.live)} were live, of which size classes add at most {in_bytes(memory.rounding)}."
        )
    else:
        said.append("Memory: the program ended before it could be looked at.")
    return said
