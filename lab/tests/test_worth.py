"""`hakmem worth`: the slope finds the calls for which a program waits, the bound holds for a program whose allocator's
share is known, and a busy machine leaves it open rather than wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("scipy")

from hakmem_lab.experiment import worth
from hakmem_lab.experiment.worth import Memory, Round, Worth
from hakmem_lab.measure import one_run
from tests import planted
from tests.inside import LIBRARY, clean_environment, compile_c, hakmem, running

# ARGUMENTS: calls, turns of work beside each; WHAT: "calls" allocates, "beside" lets another thread make the calls
# while this one sleeps for longer.
SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long count, work;

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
    const char *what = argv[3];
    volatile double x = 1;
    pthread_t id;
    count = atol(argv[1]), work = atol(argv[2]);
    if (strcmp(what, "beside") == 0)
        pthread_create(&id, NULL, call, NULL);
    for (long i = 0; i < count; i++) {
        if (strcmp(what, "calls") == 0) {
            void *volatile p = malloc(16 + (size_t)i % 200);
            free(p);
        }
        for (long k = 0; k < work; k++)
            x = x * 1.0001;
    }
    if (strcmp(what, "beside") == 0)
        usleep(1500000), pthread_join(id, NULL);
    return argc != 4;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("worth"), SOURCE, "-O2")


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


def measured(program: Path, monkeypatch: pytest.MonkeyPatch, *arguments: object, rounds: int = 3) -> Worth:
    monkeypatch.setattr(worth, "DELAYS", (0, 200, 400, 800))  # beside which this machine's load is small
    environment = clean_environment(LD_PRELOAD=str(LIBRARY))
    return worth.measure([str(program), *map(str, arguments)], environment, rounds, 1)


def test_counts_calls_and_finds_those_it_waits_for(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = one_run.run

    def undisturbed(command: Sequence[str], environment: Mapping[str, str]) -> one_run.Outcome:
        """One thread that never waits takes as long on an idle machine as its processor time is on a busy one."""
        outcome = run(command, environment)
        return replace(outcome, wall_s=outcome.cpu_s)

    monkeypatch.setattr(one_run, "run", undisturbed)
    found = measured(program, monkeypatch, 200_000, 10, "calls")
    assert all(400_000 <= each.calls < 401_000 for each in found.rounds)
    assert found.felt()[0] > 0.7 and found.felt()[2] > 0.9
    assert all(each.inside_s > 0 and each.faults_s > 0 for each in found.rounds)
    assert min(each.inside_s for each in found.rounds) < 1  # a round in which a timed call lost the processor has more


def test_calls_of_another_thread_are_not_waited_for(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = measured(program, monkeypatch, 100_000, 0, "beside")
    # The interval's end: a busy machine may leave it open, but does not show that they are waited for.
    assert found.felt()[1] < 0.5 and found.rounds[0].calls >= 200_000


def test_memory_that_any_allocator_could_save(tmp_path: Path) -> None:
    with running(compile_c(tmp_path, planted.SOURCE), "sparse", "20000") as child:
        found = worth.memory_of(child.pid)
    free, live = 18_000 * 1280, 2000 * 1280
    assert found.live == pytest.approx(live, rel=0.05) and 0 < found.rounding < live / 8
    assert free < found.most_saved < free + 4 * live


def test_the_command(program: Path, tmp_path: Path) -> None:
    page = tmp_path / "worth.html"
    done = hakmem("worth", "--runs", "2", "--json", "--page", page, "--", program, "20000", "100", "calls")
    found = json.loads(done.stdout)
    assert 0 <= found["time"]["low"] <= found["time"]["gain"] <= found["time"]["high"]
    assert "AT MOST" in page.read_text() and len(found["time"]["rounds"]) == 2
    failed = hakmem("worth", "--", "false")
    assert failed.returncode == 1 and "exit status 1" in failed.stderr and "Traceback" not in failed.stderr
