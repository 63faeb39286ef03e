"""Whether the machine was busy, and what processor time may decide then."""

from __future__ import annotations

import numpy as np
import pytest

from hakmem_lab import noise, show, verdict
from hakmem_lab.results import NOISE, Experiment, Surroundings
from hakmem_lab.statistics import Interval
from hakmem_lab.surroundings import Meter
from tests.conftest import make_experiment
from tests.test_commands import near

QUIET = Surroundings(others=0.0, stolen=0.0, waiting=0.0, mhz=3000.0)


def disturbed(b: float, seed: int, spread: float = 0.2, beside: Surroundings | None = None) -> Experiment:
    """A and B by processor time as they are, by wall time twice as long with so much noise."""
    made = make_experiment({"A": near(1.0, seed), "B": near(b, seed + 1), NOISE: near(1.0, seed + 2)})
    chance = np.random.default_rng(seed)
    for run in made.runs:
        run.wall_s = run.value = run.cpu_user_s * 2 * float(np.exp(chance.normal(0, spread)))
        run.surroundings = beside or Surroundings(others=0.8, stolen=0.0, waiting=0.6)
    return made


def test_a_quiet_machine_is_not_called_busy() -> None:
    assert not noise.look(disturbed(1.0, 1, beside=QUIET)).busy
    assert not noise.look(make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})).busy  # nothing was recorded
    # One processor of many is free for the program, whatever the others do.
    many = disturbed(1.0, 1, spread=0.0, beside=Surroundings(others=1.0, stolen=0.0))
    many.head.machine.cpus = 8
    assert not noise.look(many).busy


@pytest.mark.parametrize(
    ("beside", "part"),
    [
        (Surroundings(others=0.8, stolen=0.0), "other programs used 0.8 of 1 processors"),
        (Surroundings(others=0.0, stolen=0.3), "steal time"),
        (Surroundings(others=0.0, stolen=0.0, waiting=0.5), "waited for a processor in 50% of the time"),
    ],
)
def test_each_sign_is_said(beside: Surroundings, part: str) -> None:
    reasons = noise.look(disturbed(1.0, 1, beside=beside)).reasons
    assert any(part in each for each in reasons) and any("times processor time" in each for each in reasons)


def test_a_clock_that_moves_is_said() -> None:
    made = disturbed(1.0, 1, beside=QUIET)
    for run in made.runs:
        run.surroundings = QUIET.model_copy(update={"mhz": 2000.0 if run.round % 2 else 3000.0})
    assert any("clock moved" in each for each in noise.look(made).reasons)


def test_processor_time_finds_what_wall_time_cannot() -> None:
    slower = [verdict.compare(disturbed(1.1, seed), "A", "B") for seed in range(0, 300, 10)]
    assert all(each.by_processor_time is not None for each in slower)
    assert sum(each.verdict == "NO-GO" for each in slower) >= 24
    assert sum("by processor time" in each.reason for each in slower) >= 20
    said = show.conditions_sentence(slower[0])
    assert "The machine was busy" in said and "By processor time the gain is -9" in said
    faster = [verdict.compare(disturbed(0.9, seed), "A", "B").verdict for seed in range(0, 300, 10)]
    assert faster.count("GO") >= 20 and faster.count("NO-GO") == 0


def test_without_a_gain_there_is_hardly_a_go() -> None:
    words = [verdict.compare(disturbed(1.0, seed), "A", "B").verdict for seed in range(0, 3000, 10)]
    assert words.count("GO") <= 300 * 0.025 + 2 * (300 * 0.025 * 0.975) ** 0.5


def test_wall_time_that_disagrees_keeps_the_verdict_open() -> None:
    made = disturbed(0.8, 1, spread=0.05)
    for run in made.runs:
        if run.label == "B":  # less processor time, and more waiting
            run.wall_s = run.value = run.wall_s * 1.3
    found = verdict.compare(made, "A", "B")
    assert found.by_processor_time is not None and found.by_processor_time.verdict == "GO"
    assert not found.by_processor_time.agrees and found.verdict != "GO"
    made = disturbed(1.0, 1)
    for run in made.runs:
        run.cpu_user_s = 0.0  # a program that only sleeps
    assert verdict.compare(made, "A", "B").by_processor_time is None


def test_agreement() -> None:
    wall, cpu = Interval(5.0, -2.0, 12.0, 0.95), Interval(4.0, 3.0, 5.0, 0.95)
    assert noise.agree("GO", wall, cpu)
    assert not noise.agree("GO", Interval(-1.0, -7.0, 5.0, 0.95), cpu)
    assert noise.agree("NO-GO", Interval(-1.0, -7.0, 5.0, 0.95), cpu)
    assert not noise.agree("NO-GO", Interval(5.0, 4.5, 12.0, 0.95), cpu)


def test_the_meter_sees_what_others_do() -> None:
    meter = Meter()
    spent = 0
    for each in range(3_000_000):  # this process is another one for a program that used nothing
        spent += each
    found = meter.stop(0.0)
    assert found is not None and found.others > 0.05 and spent > 0
    assert found.waiting is None or 0 <= found.waiting <= 1
