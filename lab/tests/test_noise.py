"""Detecting a busy machine, and what processor time decides on one."""

from __future__ import annotations

import numpy as np
import pytest

from hakmem_lab.decide import allocator_comparison, noise, result_tables, sweep, verdict
from hakmem_lab.decide.statistics import Interval
from hakmem_lab.experiment import multi_case
from hakmem_lab.measure.machine_load import Meter
from hakmem_lab.measure.results import NOISE, Experiment, MachineLoad
from hakmem_lab.pages import ab as ab_page
from hakmem_lab.pages import compare as compare_page
from hakmem_lab.pages import sweep as sweep_page
from tests.conftest import make_experiment
from tests.test_commands import near

QUIET = MachineLoad(others=0.0, stolen=0.0, waiting=0.0, mhz=3000.0)


def disturbed(b: float, seed: int, spread: float = 0.2, beside: MachineLoad | None = None) -> Experiment:
    """A and B with true processor times, and wall times twice as long with noise."""
    made = make_experiment({"A": near(1.0, seed), "B": near(b, seed + 1), NOISE: near(1.0, seed + 2)})
    chance = np.random.default_rng(seed)
    for run in made.runs:
        run.wall_s = run.value = run.cpu_user_s * 2 * float(np.exp(chance.normal(0, spread)))
        run.surroundings = beside or MachineLoad(others=0.8, stolen=0.0, waiting=0.6)
    return made


def test_a_quiet_machine_is_not_called_busy() -> None:
    assert not noise.look(disturbed(1.0, 1, beside=QUIET)).busy
    assert not noise.look(make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})).busy  # nothing was recorded
    # One of several processors is free for the program.
    many = disturbed(1.0, 1, spread=0.0, beside=MachineLoad(others=1.0, stolen=0.0))
    many.head.machine.cpus = 8
    assert not noise.look(many).busy


@pytest.mark.parametrize(
    ("beside", "part"),
    [
        (MachineLoad(others=0.8, stolen=0.0), "other programs used 0.8 of 1 processors"),
        (MachineLoad(others=0.0, stolen=0.3), "steal time"),
        (MachineLoad(others=0.0, stolen=0.0, waiting=0.5), "waited for a processor in 50% of the time"),
    ],
)
def test_each_sign_is_said(beside: MachineLoad, part: str) -> None:
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
    said = result_tables.conditions_sentence(next(each for each in slower if each.decided_by is None))
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


def busy_and_wide() -> Experiment:
    """B takes a tenth less processor time; by wall time the gain is +40 % and uncertain."""
    made = disturbed(0.9, 10, spread=0.5)
    a, b = (np.mean(np.log([run.wall_s for run in made.runs if run.label == label])) for label in "AB")
    for run in made.runs:
        if run.label == "B":
            run.wall_s = run.value = run.wall_s * float(np.exp(a - b)) / 1.4
    return made


def test_the_metric_that_decided_stands_first(capsys: pytest.CaptureFixture[str]) -> None:
    """No output claims that wall time agrees if it says +40 %: its figure comes last, as one that does not decide."""
    made = busy_and_wide()
    found = verdict.compare(made, "A", "B")
    assert found.verdict == "GO" and found.decided_by == "cpu"
    assert found.gain == pytest.approx(11.1, abs=0.5) and found.high - found.low < 2
    assert found.by_wall_time is not None and found.by_wall_time.gain == pytest.approx(40, abs=1)
    assert found.reason.startswith("by processor time, since the machine was busy and wall time cannot decide: ")
    result_tables.comparison(made, found)
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert (
        said.index("CPU time, s") < said.index("wall time, s") < said.index("gain of B over A by processor time: +11")
    )
    assert "By wall time the gain is +40.00 % (" in said and "it does not decide" in said and "agrees" not in said
    row = multi_case.report_of_one("it", made, found).rows[0]
    assert (row.metric, row.gain) == ("CPU time, s", found.gain)
    page = ab_page.compose(made, found).render(False)
    assert result_tables.gain(found.gain) in page and "metric: CPU time, s" in page


def test_compare_on_a_busy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    made = busy_and_wide()
    found = allocator_comparison.analyse(made)
    assert found.metric == "cpu" and found.sentence.startswith("B takes the least processor time.")
    base, other = found.rows[:2]
    assert base.wall_gain is None and other.gain is not None and other.wall_gain is not None
    assert other.gain.gain == pytest.approx(11.1, abs=0.5) and other.wall_gain.gain == pytest.approx(40, abs=1)
    assert found.confidence == pytest.approx(1 - 0.05 / 2)  # shared by the two metrics
    result_tables.compare(made, found)
    said = " ".join(capsys.readouterr().out.split())
    assert said.index("CPU s") < said.index("time s") and "time gain ±" in said and "The machine was busy: " in said
    assert found.conditions.sentence in compare_page.verdict(made, found).sentences
    head = compare_page.compose(made, found).render(False)
    assert "CPU time gain %" in head and "time gain %" in head


def test_wall_time_that_decides_a_comparison_stands_first() -> None:
    made = disturbed(0.5, 1, spread=0.05)
    found = allocator_comparison.analyse(made)
    assert found.metric == "time" and found.sentence.startswith("B is the fastest.") and found.conditions.busy
    assert all(row.wall_gain is None for row in found.rows) and found.confidence == pytest.approx(1 - 0.05 / 2)
    quiet = allocator_comparison.analyse(disturbed(0.9, 1, beside=QUIET))
    assert quiet.metric == "time" and not quiet.conditions.busy and quiet.conditions.sentence == ""
    against = disturbed(0.9, 1, spread=0.01)
    for run in against.runs:
        if run.label == "B":
            run.wall_s = run.value = run.wall_s * 1.108
    assert "No allocator clearly takes the least processor time" in allocator_comparison.analyse(against).sentence


def test_without_a_gain_hardly_any_allocator_wins_on_a_busy_machine() -> None:
    """The two metrics share the error rate: of 300 comparisons of equals at most 5 % have a winner."""
    said = [allocator_comparison.analyse(disturbed(1.0, seed)).sentence for seed in range(0, 3000, 10)]
    winners = sum(not each.startswith("No allocator") for each in said)
    assert winners <= 300 * 0.05 + 2 * (300 * 0.05 * 0.95) ** 0.5


def test_sweep_on_a_busy_machine(capsys: pytest.CaptureFixture[str]) -> None:
    times = {"48": 1.0, "8": 1.5, "24": 1.0}
    values = {f"cap={cap}": near(seconds, int(cap)) for cap, seconds in times.items()}
    made = make_experiment(values, points=[{"cap": cap} for cap in times])
    chance = np.random.default_rng(5)
    for run in made.runs:
        run.wall_s = run.value = run.cpu_user_s * 2 * float(np.exp(chance.normal(0, 0.9)))
        run.surroundings = MachineLoad(others=0.8, stolen=0.0, waiting=0.6)
    found = sweep.analyse(made, "cap=48")
    assert found.metric == "cpu" and found.knee == "cap=24"
    assert found.sentence.startswith("By processor time: The knee is cap=24")
    gains = [each.gain.gain for each in found.points if each.gain is not None]
    assert gains == pytest.approx([-33.3, 0.0], abs=0.5)
    result_tables.sweep(made, found)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("CPU time, s; gain over cap=48") and "wall time: gain %" in said
    assert "The machine was busy: " in said
    assert found.conditions.sentence in sweep_page.verdict(made, found).sentences
    for run in made.runs:
        run.surroundings = QUIET
    quiet = sweep.analyse(made, "cap=48")
    assert quiet.metric == "time" and not quiet.sentence.startswith("By processor time")


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
