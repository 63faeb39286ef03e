"""The search of `hakmem tune`: optuna proposes settings, each is measured in rounds together with the default.

The value of a trial is the mean of its rounds' log gains. A trial in the last quarter after the same number of rounds
is abandoned. The study is a journal file beside the results, written after every trial; it also holds the plan, so that
an interrupted search can be resumed from this file alone."""

from __future__ import annotations

import contextlib
import math
import random
import shlex
import time
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import optuna
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState
from pydantic import Field, ValidationError

from hakmem_lab.decide import statistics
from hakmem_lab.experiment import search_space
from hakmem_lab.experiment.search_space import Axis
from hakmem_lab.measure import one_run, results, workload
from hakmem_lab.measure.allocator_check import AllocatorCheck
from hakmem_lab.measure.results import MetricModel, Model, Trial
from hakmem_lab.target.allocators import HAKMEM
from hakmem_lab.target.configuration import Configuration, parse, require_loadable
from hakmem_lab.terminal import console, progress
from hakmem_lab.terminal.amounts import counted
from hakmem_lab.terminal.errors import INTERRUPTED, LabError

SUFFIX = ".study"
STUDY = "tune"
KEPT = 75.0  # of 100 trials; one whose mean is not among them after the same rounds is abandoned
STARTUP = 10  # random trials before the model is used
REPEATS = 100  # known proposals in a row, after which a random new setting is proposed
DRAWS = 1000  # random settings; if none of them is new, the search is over


class SearchPlan(Model):
    """What was decided before the first trial."""

    version: int = 1
    command: list[str]
    typed: str
    base: str = Field(description="the configuration that all runs share; alone it is the default")
    shared_object: str | None = Field(alias="library", description="the file that --library gave")
    digest: str = Field(description="of the library's file")
    metric: MetricModel
    options: list[str] = Field(description="the options to search; empty: all tunable ones")
    budget_s: float = Field(description="of search and decision together")
    trials: int | None = Field(description="the most trials")
    rounds: int = Field(description="of each trial")
    runs: int = Field(description="rounds of the decision")
    threshold: float
    seed: int
    timeout_s: float | None
    retries: int = Field(default=0, description="how many times a failed run is repeated")
    anyway: bool = Field(default=False, description="whether or not the library serves the program")


def default_configuration(plan: SearchPlan, label: str = "A") -> Configuration:
    found = parse(plan.base, label, Path(plan.shared_object) if plan.shared_object else None)
    if found.allocator.kind != "ours" or found.allocator.shared_object is None:
        raise LabError(f"--with {plan.base}: only HAKMEM's options can be tuned", "Leave out alloc:, or give lib:PATH.")
    return found


class Search:
    """One study, new or resumed."""

    def __init__(self, plan: SearchPlan, path: Path, study: optuna.Study) -> None:
        self.plan = plan
        self.path = path
        self.study = study
        self.default = default_configuration(plan)
        require_loadable([self.default])
        shared_object = self.default.allocator.shared_object
        assert shared_object is not None
        if results.digest(shared_object) != plan.digest:
            raise LabError(
                f"{results.shown(shared_object)} is not the build with which the search began",
                "Build the measured version again, or start a new search.",
            )
        self.axes: list[Axis] = search_space.axes(shared_object, self.default.settings, plan.options)
        if not self.axes:
            raise LabError("there is nothing to search: --with sets all options", "Leave some of them free.")
        self._command = one_run.resolve(plan.command)
        self._metric = plan.metric.metric()
        self._environment = self.default.environment()
        self._random = random.Random(f"{plan.seed}:{len(study.trials)}")
        self._began = time.monotonic()
        self._spent: float = float(study.user_attrs.get("spent_s", 0.0))

    # --- files ----------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, plan: SearchPlan, path: Path) -> Search:
        """A new study; its file must not exist."""
        if path.exists():
            raise LabError(f"{path} exists already", f"Go on with it: hakmem tune --resume {path}")
        try:
            found = cls(plan, path, _study(path, plan.seed, 0))
            found.study.set_user_attr("plan", plan.model_dump(mode="json"))
        except (LabError, OSError):
            with contextlib.suppress(OSError):
                path.unlink()  # --resume could not use it
            raise
        return found

    @classmethod
    def load(cls, path: Path) -> Search:
        """A study from its file, without unfinished trials."""
        if not path.is_file():
            raise LabError(f"cannot read {path}: no such file", f"Give the {SUFFIX} file of an earlier search.")
        try:
            study = _study(path, 0, 0)
            plan = SearchPlan.model_validate(study.user_attrs.get("plan"))
        except (ValidationError, ValueError, KeyError, RuntimeError) as error:
            raise LabError(f"{path} is not a search of hakmem tune", "Give the .study file beside results.") from error
        for trial in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
            study.tell(trial.number, state=TrialState.FAIL)
        return cls(plan, path, _study(path, plan.seed, len(study.trials)))

    # --- searching ------------------------------------------------------------------------------------------------

    @property
    def spent_s(self) -> float:
        """The seconds of the budget that are used up, over all sessions."""
        return self._spent + time.monotonic() - self._began

    @property
    def retried(self) -> int:
        """How many runs failed and were repeated."""
        return int(self.study.user_attrs.get("retried", 0))

    def _value(self, environment: dict[str, str]) -> float:
        def made() -> float:
            outcome = one_run.run(self._command, environment, self.plan.timeout_s)
            return self._metric.of(one_run.require_success(outcome))

        def note(error: LabError, again: str) -> None:
            console.remark(f"a run of the search: {error.message}; it is repeated ({again})")
            self.study.set_user_attr("retried", self.retried + 1)

        return workload.retried(made, self.plan.retries, note)

    def warm_up(self) -> float:
        """Runs the default once; returns its seconds, from which the budget is planned."""
        began = time.monotonic()
        try:
            with contextlib.nullcontext() if self.plan.anyway else AllocatorCheck(self.default.allocator) as watch:
                self._value(self._environment)
            if watch is not None:
                watch.require_served(0.0)
        except LabError as error:
            raise LabError(f"with the default settings: {error.message}", error.advice) from error
        return time.monotonic() - began

    def budget(self, run_s: float) -> float:
        """The seconds after which the search must end to leave time for the decision; a LabError if there are too
        few."""
        decision = 3.0 * (self.plan.runs + 1) * run_s
        least = decision + 4 * 2 * self.plan.rounds * run_s
        if self.plan.budget_s < least:
            raise LabError(
                f"--budget {self.plan.budget_s:.0f}s is too short: a run takes {run_s:.2f} s, so the decision "
                f"alone takes {decision:.0f} s",
                f"Give --budget {math.ceil(least / 60)}m or more, or a shorter program.",
            )
        return self.plan.budget_s - decision

    def run(self, run_s: float) -> None:
        """Runs trials until the budget, their number or the settings are exhausted; on Ctrl-C a LabError says how to go
        on."""
        until = self.budget(run_s)
        try:
            with progress.of(until, "s") as tell:
                while self.spent_s < until and not self._done() and self._one_more():
                    best = self.best()
                    word = f", best {best.gain:+.1f} %" if best is not None and best.gain is not None else ""
                    tell(f"trial {self.tried()}{word}", self.spent_s)
        except KeyboardInterrupt:
            raise LabError(
                f"interrupted; {counted(self.tried(), 'trial')} kept in {self.path}",
                f"Go on with: hakmem tune --resume {self.path}",
                INTERRUPTED,
            ) from None
        finally:
            self.study.set_user_attr("spent_s", self.spent_s)

    def _done(self) -> bool:
        tried = self.tried()
        return tried >= search_space.size(self.axes) - 1 or (self.plan.trials is not None and tried >= self.plan.trials)

    def tried(self) -> int:
        return len({each.text for each in self.trials()})

    def _one_more(self) -> bool:
        """Measures the next new setting; False if there is none."""
        known = {each.text: each for each in self.trials()}
        for attempt in range(2 * REPEATS):
            if attempt >= REPEATS and not self._enqueue_new(known):
                return False
            trial = self.study.ask()
            values = self._propose(trial)
            text = search_space.text(self.axes, values)
            if text == "":  # the default itself: by definition no gain
                self.study.tell(trial, 0.0)
            elif text not in known:
                self._measure(trial, text, values)
                return True
            elif known[text].gains and known[text].state == "complete":
                self.study.tell(trial, _mean_log(known[text].gains))
            else:
                self.study.tell(trial, state=TrialState.FAIL)
        return False

    def _enqueue_new(self, known: Collection[str]) -> bool:
        """Queues a random setting that was not tried yet; False if none is found."""
        for _ in range(DRAWS):
            values: dict[str, str] = {}
            for each in self.axes:
                if search_space.depends(self.axes, each, values):
                    values[each.name] = self._random.choice(each.values)
            if search_space.text(self.axes, values) not in ("", *known):
                places = {each.name: each for each in self.axes}
                self.study.enqueue_trial(
                    {
                        name: value if name == "preset" else places[name].values.index(value)
                        for name, value in values.items()
                    }
                )
                return True
        return False

    def _propose(self, trial: optuna.Trial) -> dict[str, str]:
        """A value for each option; optuna gets their indices, so that it knows their order."""
        values: dict[str, str] = {}
        for each in self.axes:
            if not search_space.depends(self.axes, each, values):
                continue
            if each.name == "preset":
                values[each.name] = str(trial.suggest_categorical(each.name, each.values))
            else:
                values[each.name] = each.values[trial.suggest_int(each.name, 0, len(each.values) - 1)]
        return values

    def _measure(self, trial: optuna.Trial, text: str, values: dict[str, str]) -> None:
        gains: list[float] = []
        trial.set_user_attr("text", text)
        trial.set_user_attr("values", values)
        candidate = parse(combined(self.plan.base, text), "B", self.default.allocator.shared_object, checked=False)
        environment = candidate.environment()
        for step in range(self.plan.rounds):
            try:
                gains.append(self._round(environment))
            except one_run.RunFailed as error:
                trial.set_user_attr("problem", error.message)
                self.study.tell(trial, state=TrialState.FAIL)
                return
            trial.set_user_attr("gains", [statistics.percent(each) for each in gains])
            trial.report(sum(gains) / len(gains), step)
            if step + 1 < self.plan.rounds and trial.should_prune():
                self.study.tell(trial, state=TrialState.PRUNED)
                return
        self.study.tell(trial, sum(gains) / len(gains))

    def _round(self, environment: dict[str, str]) -> float:
        """Runs the default and the setting once each, in random order; returns the log gain."""
        found: dict[bool, float] = {}
        order = [False, True]
        self._random.shuffle(order)
        for candidate in order:
            if candidate:
                found[True] = self._value(environment)
                continue
            try:
                found[False] = self._value(self._environment)
            except LabError as error:
                raise LabError(f"with the default settings: {error.message}", error.advice) from error
        log = statistics.log_gains([found[False]], [found[True]], self._metric.higher_is_better)
        return float(log[0])

    # --- outcome --------------------------------------------------------------------------------------------------

    def trials(self) -> list[Trial]:
        """All measured settings, in order."""
        states = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned", TrialState.FAIL: "failed"}
        found: list[Trial] = []
        for each in self.study.get_trials(deepcopy=False):
            text, state = each.user_attrs.get("text"), states.get(each.state)
            if text is None or state is None or (state == "failed" and "problem" not in each.user_attrs):
                continue
            gains = each.user_attrs.get("gains", [])
            gain = statistics.percent(_mean_log(gains)) if gains else None
            values = each.user_attrs["values"]
            found.append(
                Trial.model_validate(
                    {
                        "number": len(found) + 1,
                        "text": text,
                        "values": values,
                        "state": state,
                        "gains": gains,
                        "gain": gain,
                    }
                )
            )
        return found

    def best(self) -> Trial | None:
        """The best fully measured setting by mean gain minus standard error; None if none is better than the
        default."""
        gaining = [each for each in self.trials() if each.state == "complete" and (each.gain or 0.0) > 0.0]
        return max(gaining, key=lambda each: _cautious(each.gains), default=None)

    def configurations(self, best: Trial) -> list[Configuration]:
        """The default as A and the best setting as B."""
        text = combined(self.plan.base, best.text)
        given = Path(self.plan.shared_object) if self.plan.shared_object else None
        return [self.default, parse(text, "B", given)]


def combined(base: str, text: str) -> str:
    """The base with these settings instead of its own values of the same options."""
    names = {each.partition("=")[0] for each in text.split()}
    kept = [each for each in shlex.split(base) if each.partition("=")[0].lower().removeprefix("hakmem_") not in names]
    return " ".join([*(shlex.quote(each) for each in kept), text]).strip()


def _cautious(gains: Sequence[float]) -> float:
    """The mean log gain minus its standard error, so that one lucky round among many settings does not win."""
    logs = [math.log1p(each / 100.0) for each in gains]
    mean = sum(logs) / len(logs)
    if len(logs) < 2:
        return mean
    return mean - math.sqrt(sum((each - mean) ** 2 for each in logs) / (len(logs) - 1) / len(logs))


def _mean_log(gains: Sequence[float]) -> float:
    """The mean of log gains, from gains in %."""
    return sum(math.log1p(each / 100.0) for each in gains) / len(gains)


def _study(path: Path, seed: int, trials: int) -> optuna.Study:
    """The study in a file, which is created if missing.  Proposals depend on the seed and on the trials so far."""
    quiet: Callable[[int], None] = optuna.logging.set_verbosity
    quiet(optuna.logging.ERROR)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
            return optuna.create_study(
                study_name=STUDY,
                storage=storage,
                load_if_exists=True,
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=seed + trials, n_startup_trials=STARTUP),
                pruner=optuna.pruners.PercentilePruner(KEPT, n_startup_trials=STARTUP // 2),
            )
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}", "Choose another place with --out.") from error


def build_digest(configuration: Configuration) -> str:
    """The digest of a configuration's library."""
    assert configuration.allocator.name == HAKMEM and configuration.allocator.shared_object is not None
    return results.digest(configuration.allocator.shared_object)
