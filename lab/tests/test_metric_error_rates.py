"""How often `hakmem ab` says GO of two programs, alike or not, by instructions, memory over time and tail latencies.

The programs are simulated: by each run's Outcome, with the noise that such programs have. What turns it into a value,
a results file and a verdict is the lab's. `./dev test lab -k metric_error_rates -rP` prints the figures of
docs/lab.md, those of 30 rounds with ROUNDS=30 before it."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("scipy")

from hakmem_lab.decide import verdict
from hakmem_lab.experiment import interleaved
from hakmem_lab.measure import latencies, one_run, results, workload
from hakmem_lab.measure.one_run import Metric, Outcome
from hakmem_lab.measure.results import Plan
from hakmem_lab.target.configuration import Configuration, parse

EXPERIMENTS, PLANTED = 200, 20
ROUNDS = int(os.environ.get("ROUNDS", "10"))
MOST = 0.025 + 2 * math.sqrt(0.025 * 0.975 / EXPERIMENTS)
EFFECTS = {"instructions": (3.0,), "gib_seconds": (10.0,), "p99": (20.0, 50.0, 200.0)}  # planted, in %
REGEX = r"took ([0-9.]+) ms"
COUNTER = (("true",), r"==\d+== I\s+refs:\s+([\d,]+)")  # as valgrind says it


class Simulated:
    """A program and its machine. `effect`: how much less B needs, in %."""

    def __init__(self, metric: str, seed: int, effect: float) -> None:
        self.metric, self.kind, self.effect = metric, seed % 4, effect
        self.random = np.random.default_rng(seed)
        self.machine = 1.0

    def run(self, plan: Plan, command: Sequence[str], environment: dict[str, str], *_: Any) -> tuple[Outcome, None]:
        self.machine *= math.exp(self.random.normal(0, 0.005))  # the machine's speed drifts
        is_b = environment.get("HAKMEM_REFILL_COUNT") == "33"
        needs = 1 / (1 + self.effect / 100) if is_b else 1.0
        more = getattr(self, f"_{self.metric}")(needs)
        outcome = Outcome(0, self.machine, self.machine, 0.0, 1 << 24, 0, 0, 0, "")
        return replace(outcome, **more), None

    def _instructions(self, needs: float) -> dict[str, Any]:
        """Exact; by addresses and hashes; by how often threads wait; with a rare longer path."""
        noise = (0.0, 1e-5, 0.01, 1e-4)[self.kind]
        count = 4e8 * needs * math.exp(self.random.normal(0, noise))
        if self.kind == 3 and self.random.random() < 0.1:
            count *= 1.02
        return {"output": f"==7== I   refs:      {round(count):,}\n"}

    def _gib_seconds(self, needs: float) -> dict[str, Any]:
        """Looks at memory that rises and stays, of a run that takes longer on a busy machine."""
        seconds = self.machine * (1 + self.random.exponential((0.005, 0.02, 0.05, 0.1)[self.kind]))
        at = np.cumsum(one_run.LOOK_S * (1 + self.random.exponential(0.2, 200)))
        at = np.append(at[at < seconds], seconds)
        memory = needs * np.minimum(at / seconds * 2, 1) * math.exp(self.random.normal(0, 0.005))
        return {"gib_seconds": float((memory * np.diff(at, prepend=0)).sum())}

    def _p99(self, needs: float) -> dict[str, Any]:
        """1,000 latencies with a long tail, and stalls that hit some runs."""
        took = needs * self.machine * self.random.lognormal(0, (0.2, 0.4, 0.6, 0.8)[self.kind], 1000)
        if self.random.random() < 0.2:
            took[: self.random.integers(1, 30)] += self.random.exponential(5)
        output = "\n".join(f"took {each:.4f} ms" for each in took)
        return {"output": output, "quantiles": latencies.quantiles(REGEX, output)}


@functools.cache
def configurations() -> list[Configuration]:
    return [parse("refill_count=32", "A"), parse("refill_count=33", "B")]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """What starts programs for each experiment is asked once: all of them are of one machine and one library."""
    monkeypatch.setattr(one_run, "counter", lambda: COUNTER)
    monkeypatch.setattr(results, "commit_of", functools.cache(results.commit_of))
    monkeypatch.setattr(results.Machine, "here", functools.cache(results.Machine.here))


def said(metric: str, seed: int, effect: float, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The verdict of one experiment."""
    monkeypatch.setattr(workload, "run", Simulated(metric, seed, effect).run)
    more = {"client": "true", "ready": "1s", "latency": REGEX} if metric == "p99" else {}
    given = {"command": ["true"], "typed": "hakmem ab", "runs": ROUNDS, "seed": seed}
    plan = Plan.model_validate({**given, "noise_check": True, "anyway": True, **more})
    with interleaved.begin("ab", plan, Metric.parse(metric), configurations(), folder / f"{seed}.jsonl") as session:
        session.run()
    return verdict.compare(session.experiment, "A", "B").verdict


@pytest.mark.parametrize("metric", EFFECTS)
@pytest.mark.usefixtures("hakmem_library", "simulated")
def test_metric_error_rates(metric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [said(metric, seed, 0.0, tmp_path, monkeypatch) for seed in range(EXPERIMENTS)]
    assert words.count("GO") / EXPERIMENTS <= MOST and words.count("NO-GO") > 0
    print(f"{metric}: GO of {words.count('GO')} in {EXPERIMENTS} alike")
    for effect in EFFECTS[metric]:
        folder = tmp_path / str(effect)
        found = [said(metric, 1000 + seed, effect, folder, monkeypatch) for seed in range(PLANTED)]
        print(f"{metric}: GO of {found.count('GO')} in {PLANTED} with a gain of {effect:g} %")
        assert "NO-GO" not in found
    assert found.count("GO") >= 0.8 * PLANTED
