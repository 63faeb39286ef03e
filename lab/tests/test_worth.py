"""`hakmem worth`: the slope finds the calls for which a program waits, by counted delays; the bound follows from it and
from the time in calls, and noise leaves it open rather than wrong."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("scipy")

from hakmem_lab.experiment import worth
from hakmem_lab.experiment.worth import Memory, Round, Worth
from hakmem_lab.measure import one_run
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
    path, per_ns = worth.build(tmp_path)
    idle, took = ctypes.CDLL(str(path)).worth_idle, []
    for _ in range(5):
        began = time.thread_time()
        idle(ctypes.c_uint64(round(20e6 * per_ns)))
        took.append(time.thread_time() - began)
    assert min(took) == pytest.approx(0.02, rel=0.3)


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
    assert "AT MOST" in page.read_text() and len(found["time"]["rounds"]) == 2
    failed = hakmem("worth", "--", "false")
    assert failed.returncode == 1 and "exit status 1" in failed.stderr and "Traceback" not in failed.stderr


def test_a_run_that_takes_too_long_ends_it() -> None:
    done = hakmem("worth", "--timeout", "1", "--", "sleep", "100")
    assert done.returncode == 1 and "1 s" in done.stderr, done.stderr
