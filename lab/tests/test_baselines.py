"""Baselines: saved, loaded, refused on another machine, and the verdict on B's change since."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hakmem_lab.decide import baselines, statistics
from hakmem_lab.measure.results import Experiment, MachineLoad
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, make_experiment
from tests.test_commands import near
from tests.test_interleaved import PRINTER


def measured(a: float, b: float, seed: int, spread: float = 0.002, count: int = 10) -> Experiment:
    chance = np.random.default_rng(seed)
    return make_experiment(
        {
            name: [float(each) for each in mean * np.exp(chance.normal(0, spread, count))]
            for name, mean in (("A", a), ("B", b))
        }
    )


@pytest.mark.parametrize(
    ("gain", "low", "high", "word"),
    [
        (-1.0, -2.0, -0.01, "WORSE"),
        (-1.0, -2.0, 0.0, "INCONCLUSIVE"),
        (1.0, 0.01, 2.0, "BETTER"),
        (0.2, -0.99, 0.99, "LEVEL"),
        (0.2, -1.0, 0.99, "INCONCLUSIVE"),
        (-0.5, -0.9, -0.1, "LEVEL"),
    ],
)
def test_rule(gain: float, low: float, high: float, word: str) -> None:
    assert baselines.judge(gain, low, high, 1.0)[0] == word


def test_a_faster_machine_is_no_change_and_a_slower_b_is() -> None:
    then = measured(1.0, 0.8, 1)
    assert baselines.compare("x", then, measured(0.5, 0.4, 2)).verdict == "LEVEL"
    found = baselines.compare("x", then, measured(0.5, 0.4 * 1.05, 3))
    assert found.verdict == "WORSE" and found.gain == pytest.approx(100 * (1 / 1.05 - 1), abs=0.3)
    assert found.then == pytest.approx(25, abs=0.5) and found.now == pytest.approx(100 * (1 / 0.84 - 1), abs=0.5)
    assert baselines.compare("x", then, measured(0.5, 0.38, 4)).verdict == "BETTER"
    assert baselines.compare("x", then, measured(0.5, 0.4, 5, spread=0.1)).verdict == "INCONCLUSIVE"


def gates(*changes: baselines.Change) -> str:
    return " ".join(baselines.gated(list(changes)))


def test_a_program_that_is_another_one_is_refused() -> None:
    """Both sides run the new program: B over A has even become better, and the program takes five times as long."""
    then, now = measured(1.0, 1.1, 1), measured(5.0, 5.1, 2)
    found = baselines.compare("x", then, now)
    assert found.verdict == "REFUSED" and found.gain > 5 and found.itself is not None
    assert found.itself.times == pytest.approx(5.0, rel=0.01) and found.itself.low < 5.0 < found.itself.high
    assert found.reason.startswith("A's own wall time is 5.0") and "times the baseline's" in found.reason
    assert baselines.compare("x", now, then).verdict == "REFUSED"  # five times faster is no less another program
    assert baselines.compare("x", then, now, other_machine=True).verdict == "BETTER"
    level = baselines.compare("y", then, then)
    assert baselines.overall([found, level]) == ("REFUSED", "A differs from the baseline's: x")
    assert "x: A's own wall time" in gates(found, level) and "y: " not in gates(found, level)
    noisy = measured(9.0, 9.0, 3, spread=3.0, count=3)  # this does not show nine times as long
    assert baselines.compare("x", measured(1.0, 1.0, 4, spread=3.0, count=3), noisy).verdict == "INCONCLUSIVE"


def test_what_is_gated_is_said() -> None:
    then = measured(1.0, 0.8, 1)
    said = gates(baselines.compare("x", then, measured(1.02, 0.82, 2)))
    assert said.startswith("The verdict is on the change of B's gain over A since the baseline")
    assert "while A stays within 2.5 times" in said and said.count("A's own wall time is 1.02 times") == 1
    assert "has changed" not in said.partition("A's own")[2]
    said = gates(baselines.compare("x", then, measured(1.3, 1.04, 2)))
    assert "1.30 times the baseline's (" in said and said.endswith("the program, its input or the machine has changed")


def test_a_busy_machine_makes_no_other_program() -> None:
    """Wall time is twice the baseline's, processor time is not."""
    then, now = measured(1.0, 0.8, 1), measured(1.0, 0.8, 2)
    for run in now.runs:
        run.wall_s = run.value = 2 * run.wall_s
        run.surroundings = MachineLoad(others=1.0, stolen=0.0)
    found = baselines.compare("x", then, now)
    assert found.verdict == "LEVEL" and found.itself is not None
    assert found.itself.times == pytest.approx(1.0, abs=0.01) and found.itself.wall_times == pytest.approx(2, abs=0.02)
    assert "CPU time is 1.00 times the baseline's" in gates(found)
    assert "; 2.00 times by wall time, on a busy machine): the program" in gates(found)


def test_error_rate_without_a_change() -> None:
    """Of 400 baselines without a change, each with its own spread, few are called worse."""
    chance = np.random.default_rng(7)
    worse = 0
    for _ in range(400):
        then, now = (chance.normal(0, spread, count) for spread, count in ((0.02, 10), (0.06, 6)))
        found = statistics.difference(now, then)
        worse += baselines.judge(found.gain, found.low, found.high, 0.0)[0] == "WORSE"
    assert 0 < worse <= 400 * 0.025 + 2 * (400 * 0.025 * 0.975) ** 0.5


def test_cases_share_the_error_rate() -> None:
    then = measured(1.0, 0.8, 1)
    assert baselines.compare("x", then, then, comparisons=5).confidence == pytest.approx(0.99)


def test_processor_time_decides_on_a_busy_machine() -> None:
    then, now = measured(1.0, 0.8, 1), measured(1.0, 0.84, 2)
    for run in now.runs:
        run.surroundings = MachineLoad(others=1.0, stolen=0.0)
        run.wall_s = run.value = run.wall_s * float(np.exp(np.random.default_rng(run.round).normal(0.5, 0.3)))
        if run.label == "B":
            run.wall_s = run.value = run.wall_s * (1.0 + 0.3 * (-1) ** run.round)
    found = baselines.compare("x", then, now)
    assert found.verdict == "WORSE" and "by processor time" in found.reason


def test_another_machine_is_refused_and_a_new_kernel_is_said() -> None:
    then, now = measured(1.0, 0.8, 1), measured(1.0, 0.8, 2)
    assert baselines.check(then, now, False) == []
    now.head.machine.facts["kernel"] = "Linux 9"
    assert baselines.check(then, now, False) == ["kernel: unknown then, Linux 9 now"]
    now.head.machine.cpus = 64
    with pytest.raises(LabError, match="another machine: processors: 1 then, 64 now"):
        baselines.check(then, now, False)
    assert "processors: 1 then, 64 now" in baselines.check(then, now, True)


def test_another_question_is_refused() -> None:
    then = measured(1.0, 0.8, 1)
    for change in ("command", "metric", "A"):
        now = measured(1.0, 0.8, 1)
        if change == "command":
            now.head.plan.command = ["other"]
        elif change == "metric":
            now.head.metric.name = "rss"
        else:
            now.head.series[0].digest = "new"
        with pytest.raises(LabError, match=change):
            baselines.check(then, now, True)


def test_files(tmp_path: Path) -> None:
    path = baselines.path_of("main", tmp_path)
    assert path == tmp_path / "baselines" / "main.json"
    assert baselines.path_of("kept/main.json", tmp_path) == Path("kept/main.json")
    made = make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})
    baselines.save("main", path, {"x": made})
    assert baselines.load("main", path).cases == {"x": made}
    with pytest.raises(LabError) as caught:
        baselines.load("mian", baselines.path_of("mian", tmp_path))
    assert "There are: main." in caught.value.advice
    with pytest.raises(LabError, match="not the name of a baseline"):
        baselines.path_of("../main", tmp_path)
    path.write_text("{}")
    with pytest.raises(LabError, match="is not a baseline"):
        baselines.load("main", path)


def test_a_program_five_times_slower_is_refused(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    """The allocator is now a smaller part of the program, so B over A looks better."""
    (tmp_path / "p.sh").write_text('echo "took=$(( $(cat size) + ${HAKMEM_REFILL_COUNT:-32} ))"\n')
    (tmp_path / "size").write_text("1000")
    sides = ["--a", "refill_count=1", "--b", "refill_count=64", "--no-noise-check", "--runs", "3"]
    metric = ["--metric", "took=(.*)", "--lower-is-better"]
    hakmem("ab", *sides, *metric, "--save", "main", "--", "sh", "p.sh", status=3)
    (tmp_path / "size").write_text("5000")
    forms = ["--junit", "v.xml", "--markdown", "v.md", "--csv", "v.csv", "--github"]
    done = hakmem("ab", "--against", "main", "--runs", "3", "--no-noise-check", *forms, status=1)
    said = " ".join(done.stdout.split())
    assert "REFUSED A's own took=(.*) is 5.00 times the baseline's (5.00 .. 5.00)" in said
    assert "BETTER" not in said and "::error title=REFUSED%3A sh" in done.stdout
    assert '<error message="REFUSED' in (tmp_path / "v.xml").read_text()
    assert (tmp_path / "v.md").read_text().startswith("### REFUSED: ")
    assert ",REFUSED," in (tmp_path / "v.csv").read_text()


def test_save_and_against(hakmem_library: Path, hakmem: Hakmem, tmp_path: Path) -> None:
    program = ["--", "sh", "-c", PRINTER]
    hakmem("ab", "--save", "main", "--metric", "ops=(.*)", "--runs", "4", "--no-noise-check", *program, status=3)
    same = hakmem("ab", "--against", "main", "--runs", "4", "--threshold", "5", "--json")
    outcome = json.loads(same.stdout)["outcome"]
    assert outcome["verdict"] == "LEVEL" and list(outcome["changes"]) == ["sh"]
    worse = hakmem("ab", "--against", "main", "--runs", "4", "--b", "refill_count=16", "--github", "--json", status=3)
    assert "::error title=WORSE%3A sh::" in worse.stderr and json.loads(worse.stdout)["outcome"]
    better = hakmem("ab", "--against", "main", "--runs", "4", "--b", "refill_count=64")
    assert "BETTER" in better.stdout and "against the baseline" in better.stdout
    assert "The verdict is on the change of B's gain over A since the baseline" in " ".join(better.stdout.split())
    said = hakmem("ab", "--against", "main", "--save", "main", status=2).stderr
    assert "would replace" in said
    path = tmp_path / "hakmem-results" / "baselines" / "main.json"
    path.write_text(
        path.read_text().replace('"page_bytes":', '"page_bytes": 1').replace('"page_bytes": 1 ', '"page_bytes": 1')
    )
    refused = hakmem("ab", "--against", "main", "--runs", "2", status=1).stderr
    assert "from another machine: page size" in " ".join(refused.split())
