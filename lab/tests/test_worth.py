"""`hakmem worth`: the slope finds the calls for which a program waits, by counted delays; the bound follows from it and
from the time in calls, and noise leaves it open rather than wrong."""

from __future__ import annotations

import ctypes
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from hakmem_lab.experiment import worth
from hakmem_lab.experiment.worth import Memory, Round, Worth
from hakmem_lab.inspect import ledger
from hakmem_lab.inspect.arrays import np
from hakmem_lab.measure import one_run
from hakmem_lab.target import process
from hakmem_lab.terminal import progress
from hakmem_lab.terminal.errors import LabError
from tests import planted
from tests.inside import LIBRARY, clean_environment, compile_c, hakmem, running

# ARGUMENTS: calls; WHAT: "calls" makes them, "beside" has another thread make them, "fork" leaves a child with none.
SOURCE = r"""
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long count;

static void *call(void *unused)
{
    for (long i = 0; i < count; i++) {
        void *volatile p = malloc(16 + (size_t)i % 200);
        free(p);
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t id;
    count = atol(argv[1]);
    if (strcmp(argv[2], "beside") == 0)
        pthread_create(&id, NULL, call, NULL), pthread_join(id, NULL);
    else
        call(NULL);
    if (strcmp(argv[2], "fork") == 0 && fork() == 0)
        exit(0);
    return wait(NULL) < 0 && argc != 3;
}
"""

# Preloaded before the library that delays calls: notes the first thread's turns instead of taking any.
COUNTED = r"""
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t turns;
static __thread int is_first __attribute__((tls_model("initial-exec")));   /* 0: not known yet */

void worth_idle(uint64_t count)
{
    if (is_first == 0)
        is_first = syscall(SYS_gettid) == getpid() ? 1 : -1;
    turns += is_first > 0 ? count : 0;
}

__attribute__((destructor)) static void stop(void)
{
    dprintf(open(getenv("TURNS_FILE"), O_WRONLY | O_CREAT | O_APPEND, 0666), "%llu\n", (unsigned long long)turns);
}
"""
TURNS_PER_NS, FAULTS = 10, 1000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("worth"), SOURCE, "-O2")


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("counted"), COUNTED, "-O2", "-shared", "-fPIC", name="counted.so")


def made(slopes: list[float], inside: float = 0.1, faults: float = 0.0) -> Worth:
    """Rounds of 1 s with a million calls, and these slopes."""
    rounds = [Round(1.0, tuple(1 + s * k * 1e-9 for k in worth.DELAYS), 1_000_000, inside, faults) for s in slopes]
    return Worth(rounds, Memory())


def test_the_bound_follows_from_slope_and_time_in_calls() -> None:
    assert made([1e6] * 5).felt() == pytest.approx((1, 1, 1), abs=1e-6)
    assert made([1e6] * 5).bound()[0] == pytest.approx(100 * 0.1 / 0.9)
    assert made([5e5] * 5).bound()[0] == pytest.approx(100 * 0.05 / 0.95)
    assert made([0.0] * 5, faults=0.2).bound() == pytest.approx((25, 25, 25))


def test_noise_widens_the_interval_up_to_all_calls() -> None:
    middle, low, high = made([-2e6, 3e6, 1e6, -1e6, 0.5e6]).bound()
    assert low == 0 and high == pytest.approx(100 * 0.1 / 0.9) and low <= middle <= high


def test_memory_bound() -> None:
    assert Memory(resident=100, live=60, rounding=6, elsewhere=10).most_saved == 36


@pytest.fixture
def counts(counted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Delays are counted, and a run takes 1 s and what its first thread has waited; the lines of WORTH_FILE so far."""
    run, build, lines = one_run.run, worth.build, list[list[int]]()
    turns = tmp_path / "turns"

    def instead(command: Sequence[str], environment: Mapping[str, str], *limit: Any, **how: Any) -> one_run.Outcome:
        if "WORTH_FILE" not in environment:
            return run(command, environment, *limit, **how)
        turns.unlink(missing_ok=True)
        more = {"LD_PRELOAD": f"{counted} {environment['LD_PRELOAD']}", "TURNS_FILE": str(turns)}
        outcome = run(command, {**environment, **more}, *limit, **how)
        written = Path(environment["WORTH_FILE"]).read_text().splitlines()
        lines.extend([int(word) for word in line.split()] for line in written)
        waited = sum(map(int, turns.read_text().split())) / TURNS_PER_NS * 1e-9
        return replace(outcome, wall_s=1 + waited, minor_faults=FAULTS)

    monkeypatch.setattr(one_run, "run", instead)
    monkeypatch.setattr(worth, "build", lambda folder: (build(folder)[0], TURNS_PER_NS))
    return lines


def measured(*command: object) -> Worth:
    environment = clean_environment(LD_PRELOAD=str(LIBRARY))
    return worth.measure([str(each) for each in command], environment, 2, 1)


def test_counts_calls_and_finds_those_it_waits_for(program: Path, counts: list[list[int]]) -> None:
    found = measured(program, 200_000, "calls")
    assert len(counts) == 8 and all(timed == calls // 61 for calls, _, timed, _ in counts)
    assert all(ns > 0 and fault > 0 for _, ns, _, fault in counts)
    times = [(ns * calls / timed * 1e-9, FAULTS * fault * 1e-9) for calls, ns, timed, fault in counts]
    for each in found.rounds:
        assert 400_000 <= each.calls < 400_100
        assert each.slope == pytest.approx(400_000, rel=1e-9)  # those before its constructor are not delayed
        assert any((each.inside_s, each.faults_s) == pytest.approx(one) for one in times)
    assert found.felt() == pytest.approx((1, 1, 1), abs=1e-4)


def test_calls_of_another_thread_are_not_waited_for(program: Path, counts: list[list[int]]) -> None:
    found = measured(program, 100_000, "beside")
    assert all(each.calls >= 200_000 and each.slope < 100 for each in found.rounds)
    assert found.felt()[2] < 0.001


def test_a_fork_repeats_no_calls(program: Path, counts: list[list[int]]) -> None:
    found = measured(program, 100_000, "fork")
    assert all(200_000 <= each.calls < 200_100 for each in found.rounds) and len(counts) == 16


def test_a_delay_takes_its_time(tmp_path: Path) -> None:
    """In one of five attempts: what runs beside may slow the processor down between the calibration and the delay."""
    took = []
    for _ in range(5):
        path, per_ns = worth.build(tmp_path)
        idle = ctypes.CDLL(str(path)).worth_idle
        began = time.thread_time()
        idle(ctypes.c_uint64(round(20e6 * per_ns)))
        took.append(time.thread_time() - began)
    assert any(each == pytest.approx(0.02, rel=0.3) for each in took), took


def test_memory_that_any_allocator_could_save(tmp_path: Path) -> None:
    with running(compile_c(tmp_path, planted.SOURCE), "sparse", "20000") as child:
        found = worth.memory_of(child.pid)
    free, live = 18_000 * 1280, 2000 * 1280
    assert found.live == pytest.approx(live, rel=0.05) and 0 < found.rounding < live / 8
    assert free < found.most_saved < free + 4 * live


def test_the_command(program: Path, tmp_path: Path) -> None:
    page = tmp_path / "worth.html"
    done = hakmem("worth", "--runs", "2", "--json", "--page", page, "--", program, "20000", "calls")
    found = json.loads(done.stdout)
    assert 0 <= found["time"]["low"] <= found["time"]["gain"] <= found["time"]["high"]
    assert ("AT MOST" if found["time"]["bounded"] else "NO BOUND") in page.read_text()
    assert len(found["time"]["rounds"]) == 2
    failed = hakmem("worth", "--", "false")
    assert failed.returncode == 1 and "exit status 1" in failed.stderr and "Traceback" not in failed.stderr


def test_a_run_that_takes_too_long_ends_it() -> None:
    done = hakmem("worth", "--timeout", "1", "--", "sleep", "100")
    assert done.returncode == 1 and "1 s" in done.stderr, done.stderr


def test_an_interval_is_students() -> None:
    assert worth.with_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2 - 2.4841, 2 + 2.4841), abs=1e-4)
    assert worth.with_interval([4.0]) == (4.0, -math.inf, math.inf)


def test_all_of_the_time_in_calls_is_a_bound_nevertheless() -> None:
    assert made([1e6] * 3, inside=2.0).bound()[0] == pytest.approx(100 * 0.99 / 0.01)
    assert made([-1e6] * 3).felt() == (0, 0, 0) and made([2e6] * 3).felt() == (1, 1, 1)
    nothing = Worth([Round(1.0, (1, 1, 1, 1), 0, 0.0, 0.0)] * 2, Memory())
    assert nothing.felt()[0] == pytest.approx(0, abs=1e-6) and nothing.bound()[0] == pytest.approx(0)
    uneven = Worth([Round(1.0, (1, 1, 1, 1), 1, 0.0, each) for each in (0.0, 0.1)], Memory())
    assert uneven.bound()[0] == pytest.approx(100 / 18) and uneven.bound()[1] == 0


def test_memory_cannot_save_less_than_nothing() -> None:
    assert Memory(resident=100, live=99, rounding=0, elsewhere=10).most_saved == 0


def test_what_worth_says() -> None:
    found = made([1e6] * 3, inside=0.02, faults=0.005)
    said = worth.says(found)
    assert said[0] == "Time: at most 2.6 % (2.6 .. 2.6) for any allocator; do not spend a week here."
    assert said[1].startswith(
        "Of 1 s, 0.02 s, as timed, are in 1,000,000 calls, of which the program waits for 100 % (100 .. 100), "
        "and 0.005 s in page"
    )
    assert said[2] == "Memory: the program ended before it could be looked at."
    found.memory = Memory(resident=100 << 20, live=60 << 20, rounding=6 << 20, elsewhere=10 << 20)
    assert worth.says(found)[2] == (
        "Memory: at most 36.0 MiB (36 %) of 100.0 MiB at the peak; 60.0 MiB were live, of which size classes add at "
        "most 6.0 MiB."
    )
    advices = ((0.028, "a week"), (0.0292, "an afternoon"), (0.09, "an afternoon"), (0.0912, "a comparison"))
    for faults, advice in advices:
        assert advice in worth.says(made([0.0] * 3, faults=faults))[0]
    assert "do not bound it: take longer ones" in worth.says(made([-1e6, 0.0, 3e6], inside=0.9))[0]
    short = worth.says(made([1e6] * 3, inside=2.0))[0]
    assert short.startswith("Time: these runs do not bound it: calls and page faults") and "9900" not in short


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, str]]]:
    """Runs of a program with 1,000,000 calls that takes 1 s, and 2 s of processor time; the delays and variables."""
    made = list[tuple[int, dict[str, str]]]()

    def instead(command: Sequence[str], environment: Mapping[str, str], limit: float | None = None, **how: Any) -> Any:
        delay = int(environment.get("WORTH_TURNS", -1))
        made.append((delay, {**environment, "limit": str(limit)}))
        if "WORTH_FILE" in environment:
            Path(environment["WORTH_FILE"]).write_text("900000 3000 100 250\n100000 500 10 150\n0 0 0 200\n")
        more = max(delay, 0) / TURNS_PER_NS * 1e-3
        return one_run.Outcome(0, 1 + more, 1 + 2 * more, 1.0, 1 << 20, FAULTS, 0, 0, "")

    monkeypatch.setattr(one_run, "run", instead)
    monkeypatch.setattr(worth, "build", lambda folder: (Path("/delay.so"), TURNS_PER_NS))
    return made


@pytest.mark.parametrize("cpu", [False, True])
def test_measures_in_rounds_of_random_order(simulated: list[tuple[int, dict[str, str]]], cpu: bool) -> None:
    found = worth.measure(["true"], {"LD_PRELOAD": "/h.so"}, 6, 3, 9.0, cpu)
    delays = [delay for delay, _ in simulated]
    assert len(delays) == 31 and delays[0] == -1
    rounds = [delays[1 + 5 * i : 6 + 5 * i] for i in range(6)]
    assert all(sorted(each) == [-1, 0, 50, 100, 200] for each in rounds) and len({tuple(each) for each in rounds}) > 2
    for each in found.rounds:
        assert each.plain_s == 2 if cpu else each.plain_s == 1
        assert each.slope == pytest.approx(2e6 if cpu else 1e6) and each.calls == 1_000_000
        assert each.inside_s == pytest.approx(3000 * 9000e-9 + 500 * 10_000e-9)
        assert each.faults_s == pytest.approx(FAULTS * 200e-9)
    for delay, variables in simulated:
        assert variables["LD_PRELOAD"] == ("/delay.so /h.so" if delay >= 0 else "/h.so") and variables["limit"] == "9.0"
        assert ("WORTH_CPU" in variables) == cpu


def test_progress_is_by_runs(simulated: list[tuple[int, dict[str, str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    told = list[object]()

    @contextmanager
    def of(count: int, what: str) -> Iterator[Callable[[str], None]]:
        told.append((count, what))
        yield told.append

    monkeypatch.setattr(progress, "of", of)
    worth.measure(["true"], {"LD_PRELOAD": "/h.so"}, 2, 3)
    assert told == [(11, "runs"), "memory", *["round 1"] * 5, *["round 2"] * 5]


def test_the_peak_is_the_most_that_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Iterator[Memory | LabError] = iter(
        [Memory(5, 1), Memory(9, 2, 3, 4), LabError("it ends"), Memory(7, 3), Memory(9, 4)]
    )

    def memory_of(pid: int) -> Memory:
        found = next(looks)
        if isinstance(found, LabError):
            raise found
        return found

    def run(command: Sequence[str], *_: Any, beside: Any) -> one_run.Outcome:
        watcher = beside(7)
        assert [watcher._look_s() for _ in range(5)] == [worth.LOOK_S] * 5
        return one_run.Outcome(0, 1.0, 1.0, 0.0, 1, 1, 0, 0, "")

    monkeypatch.setattr(worth, "memory_of", memory_of)
    monkeypatch.setattr(one_run, "run", run)
    assert worth._memory(["true"], {}, None) == Memory(9, 2, 3, 4)


def test_memory_by_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = [{"size": 16, "live": 10}, {"size": 48, "live": 3}, {"size": 64, "live": 0}]
    found: dict[str, Any] = {"classes": classes, "bytes": {"live": 304, "huge": 1000}}
    parts = {"rss": 5000, "not_ours": 700}

    class Looked:
        def __init__(self, pid: int) -> None: ...

        def snapshot(self) -> dict[str, Any]:
            return found | {"ledger": parts}

        def class_table(self, name: str, dtype: Any) -> Any:
            return np.array([16, 32, 48, 64], dtype)

    monkeypatch.setattr(worth, "Live", Looked)
    monkeypatch.setattr(ledger, "add", lambda live, snapshot: True)
    monkeypatch.setattr(process, "kilobytes", lambda pid, name: 4000)
    assert worth.memory_of(7) == Memory(5000, 1304, 10 * 15 + 3 * 15, 700)
    parts["rss"], found["bytes"] = 1000, {"live": 304}
    assert worth.memory_of(7) == Memory(4000, 304, 195, 700)
    found["bytes"] = {"live": 2000}
    assert worth.memory_of(7).live == 1000
    monkeypatch.setattr(ledger, "add", lambda live, snapshot: False)
    with pytest.raises(LabError, match="process 7 has too large a heap"):
        worth.memory_of(7)


def test_a_program_whose_calls_were_not_counted(
    simulated: list[tuple[int, dict[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda *_: None)
    with pytest.raises(Exception, match="were not counted"):
        worth.measure(["true"], {"LD_PRELOAD": "/h.so"}, 2, 1)


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "SOURCE", tmp_path / "absent.c")
    with pytest.raises(Exception, match="does not compile here"):
        worth.build(tmp_path)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(Exception, match="needs a C compiler"):
        worth.build(tmp_path)


def test_a_busy_machine_and_a_long_call(tmp_path: Path) -> None:
    """By processor time, a call in which others have their turns is not longer: it sleeps here."""
    slow = compile_c(
        tmp_path,
        "#include <unistd.h>\n#include <stdlib.h>\nvoid *realloc(void *p, size_t n)"
        "{ if (n == 12345) usleep(20000); return malloc(n + (p != NULL)); }",
        "-shared",
        "-fPIC",
        name="slow.so",
    )
    source = (
        "#include <stdlib.h>\n"
        "int main(void) { for (int i = 0; i < 61; i++) if (realloc(NULL, 12345) == NULL) return 1; }"
    )
    program = compile_c(tmp_path, source)
    library, _ = worth.build(tmp_path)
    for more, least, most in (({}, 20e6, 1e12), ({"WORTH_CPU": "1"}, 1, 10e6)):
        counts = tmp_path / f"counts{len(more)}"
        environment = clean_environment(LD_PRELOAD=f"{library} {slow}", WORTH_FILE=str(counts), WORTH_TURNS="0", **more)
        one_run.require_success(one_run.run([str(program)], environment))
        assert least <= int(counts.read_text().split()[1]) <= most
