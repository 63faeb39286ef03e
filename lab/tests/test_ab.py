"""`hakmem ab` and its command line, without running anything."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from hakmem_lab.commands import ab
from hakmem_lab.commands import options as opt
from hakmem_lab.decide import baselines, verdict
from hakmem_lab.decide import decision_record as records
from hakmem_lab.experiment import case_file, interleaved, multi_case
from hakmem_lab.experiment.case_file import Case
from hakmem_lab.measure.results import Experiment
from hakmem_lab.terminal.errors import LabError
from tests.conftest import make_experiment

ASKED = ab.Asked(
    a="alloc:system",
    b="x=1",
    runs=7,
    warmup=2,
    seed=5,
    threshold=1.5,
    prediction=(1.0, 2.0),
    max_runs=40,
    noise_check=True,
    metric="time",
    lower_is_better=False,
    timeout=9.0,
    shared_object=None,
)
NONE: dict[str, str | None] = dict.fromkeys(("prepare", "cleanup", "input", "client", "ready", "latency"))


def a_case(**more: Any) -> Case:
    return Case.model_validate({"name": "it", "command": "p 'a b'", **more})


def a_baseline(made: dict[str, Experiment]) -> baselines.Baseline:
    return baselines.Baseline(name="main", created=next(iter(made.values())).head.created, commit="", cases=made)


def refused(run: Any) -> str:
    with pytest.raises(LabError) as caught:
        run()
    return caught.value.message


def measured(a: float = 1.0, b: float = 0.5, count: int = 6) -> Experiment:
    """Experiments in which A takes a seconds and B takes b, with some noise."""
    values = {"A": [a] * count, "B": [b * (1 + 0.001 * (-1) ** place) for place in range(count)]}
    found = make_experiment(values)
    found.head.find("A").text, found.head.find("B").text = "alloc:system", "x=1"
    return found


def test_a_plan_is_what_was_asked_unless_its_case_knows_better() -> None:
    plan = ASKED.plan(a_case())
    assert (plan.command, plan.runs, plan.warmup, plan.seed, plan.max_runs) == (["p", "a b"], 7, 2, 5, 40)
    assert (plan.threshold, plan.prediction, plan.noise_check, plan.timeout_s) == (1.5, (1.0, 2.0), True, 9.0)
    assert (plan.prepare, plan.cleanup, plan.input, plan.client, plan.ready, plan.latency) == (None,) * 6
    more = {"prepare": "a", "cleanup": "b", "input": "c", "client": "d", "ready": "port:7", "latency": "t=(.*)"}
    plan = ASKED.plan(a_case(threshold=0.0, timeout=3.0, **more))
    assert (plan.threshold, plan.timeout_s) == (0.0, 3.0)
    assert {name: getattr(plan, name) for name in more} == more
    assert ASKED.plan(a_case(client="d", ready="1s")).latency is None


def test_what_a_server_needs() -> None:
    assert refused(lambda: ASKED.plan(a_case(ready="1s"))) == "--ready and --latency need --client"
    assert refused(lambda: ASKED.plan(a_case(latency="(.*)"))) == "--ready and --latency need --client"
    assert refused(lambda: ASKED.plan(a_case(client="d"))) == "--client needs --ready"
    assert "--ready soon: unknown" in refused(lambda: ASKED.plan(a_case(client="d", ready="soon")))
    assert "--latency" in refused(lambda: ASKED.plan(a_case(client="d", ready="1s", latency="no group")))


def test_an_experiment_is_begun_with_both_sides(hakmem_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(interleaved, "begin", lambda *given: begun.append(given))
    asked = replace(ASKED, b="refill_count=64", shared_object=hakmem_library)
    asked.begin(a_case(), Path("x"))
    asked.begin(a_case(metric="n=(.*)", lower_is_better=True), Path("y"))
    asked.begin(a_case(metric="n=(.*)"), Path("z"))
    replace(asked, metric="n=(.*)", lower_is_better=True).begin(a_case(), Path("z"))
    kind, plan, metric, sides, path = begun[0]
    assert (kind, plan.command, metric.name, path) == ("ab", ["p", "a b"], "time", Path("x"))
    assert [(each.label, each.text) for each in sides] == [("A", "alloc:system"), ("B", "refill_count=64")]
    assert [(each[2].name, each[2].higher_is_better) for each in begun[1:]] == [
        ("n=(.*)", False),
        ("n=(.*)", True),
        ("n=(.*)", False),
    ]


def begun_by(monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[str, tuple[Any, ...]]:
    """Records the calls that the command makes."""
    found: list[tuple[str, tuple[Any, ...]]] = []
    monkeypatch.setattr(ab.Asked, "begin", lambda self, case, path: (self, case, path))
    monkeypatch.setattr(ab, "finish", lambda *all_: found.append(("one", all_)))
    monkeypatch.setattr(ab, "finish_all", lambda *all_: found.append(("all", all_)))
    ab.ab(**{"program": ["true"], "a": "", "b": "x=1", **given})
    (only,) = found
    return only


def test_what_is_done_unless_something_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how, ((asked, case, path), wanted) = begun_by(monkeypatch)
    assert how == "one" and (asked.a, asked.b, case.name) == ("", "x=1", "true")
    assert (asked.runs, asked.warmup, asked.threshold, asked.metric) == (10, 1, 1.0, "time")
    assert (asked.max_runs, asked.prediction, asked.noise_check, asked.timeout) == (None, None, True, None)
    assert asked.retries == 0 and asked.plan(case).retries is None and replace(asked, retries=2).plan(case).retries == 2
    assert path.parent == wanted.folder == interleaved.FOLDER and path.name.startswith("ab-")
    assert wanted.forms.files == {} and not wanted.json and not wanted.forms.github and wanted.forms.cases == ["true"]
    assert (wanted.page, wanted.record, wanted.save) == (None, None, None)
    forms = {"markdown": tmp_path / "m", "junit": tmp_path / "j"}
    how, ((asked, _, path), wanted) = begun_by(
        monkeypatch, until_decided=True, predict="+1..2", seed=0, out=tmp_path, github=True, json=True, **forms
    )
    assert (asked.max_runs, asked.prediction, asked.seed) == (100, (1.0, 2.0), 0)
    assert path.parent == wanted.folder == tmp_path
    assert wanted.forms.files == forms and wanted.forms.github and wanted.json and wanted.forms.json
    assert not asked.lower_is_better
    how, ((_, _, path), wanted) = begun_by(monkeypatch, out=tmp_path / "it.jsonl")
    assert path == tmp_path / "it.jsonl" and wanted.folder == interleaved.FOLDER
    how, (asked, found, _, known, other, out) = begun_by(monkeypatch, param=["n=1,2"], program=["true", "{n}"])
    assert how == "all" and [each.name for each in found] == ["true n=1", "true n=2"]
    assert (known, other, out) == (None, False, None)


def test_bounds_of_until_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused(lambda: begun_by(monkeypatch, until_decided=True, runs=9, max_runs=8)) == (
        "--max-runs 8 is below --runs 9"
    )
    for most in (9, 10):
        _, ((asked, *_), _) = begun_by(monkeypatch, until_decided=True, runs=9, max_runs=most)
        assert asked.max_runs == most
    _, ((asked, *_), _) = begun_by(monkeypatch, runs=9, max_runs=8)  # it is no bound of a fixed number
    assert asked.max_runs is None


def test_one_case_of_a_file_is_still_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text('runs = 3\nwarmup = 0\n[[case]]\nname = "x"\ncommand = "true"\n')
    how, (asked, found, *_) = begun_by(monkeypatch, cases=tmp_path / "c.toml", program=None)
    assert how == "all" and [each.name for each in found] == ["x"] and (asked.runs, asked.warmup) == (3, 0)
    (tmp_path / "c.toml").write_text('[[case]]\nname = "x"\ncommand = "true"\n')
    _, (asked, *_) = begun_by(monkeypatch, cases=tmp_path / "c.toml", program=None)
    assert (asked.runs, asked.warmup) == (10, 1)


def test_what_goes_with_a_file_of_cases(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[[case]]\nname = "x"\ncommand = "true"\n')
    fixed = replace(ASKED, max_runs=None)
    for program, params, hooks in ((["p"], [], NONE), ([], ["n=1"], NONE), ([], [], {**NONE, "input": "i"})):
        said = refused(lambda p=program, q=params, h=hooks: ab.programs(fixed, p, q, h, file, None))
        assert said.startswith("--cases says which programs run")
    assert refused(lambda: ab.programs(ASKED, [], [], NONE, file, None)) == "--until-decided works for one program only"
    assert ab.programs(fixed, [], [], NONE, file, None)[0] == fixed


def test_what_goes_with_a_baseline(tmp_path: Path) -> None:
    then = measured()
    known = a_baseline({"it": then, "other": then})
    asked, found = ab.programs(ASKED, [], [], NONE, None, known)
    assert asked.max_runs is None and [each.name for each in found] == ["it", "other"]
    assert found[0].words == ["bench", "1"]
    for params, base in ((["n=1"], None), ([], known)):
        said = refused(lambda p=params, b=base: ab.programs(ASKED, ["true"], p, NONE, None, b))
        assert said == "--until-decided works for one program without parameters or baseline"
    assert ab.programs(ASKED, ["true"], [], NONE, None, None)[0] == ASKED
    asked, found = ab.programs(replace(ASKED, max_runs=None), ["true"], [], {**NONE, "input": "i"}, None, known)
    assert [(each.name, each.words, each.input) for each in found] == [("true", ["true"], "i")]
    assert "no program given" in refused(lambda: ab.programs(ASKED, [], [], NONE, None, None))
    path = baselines.path_of("main", tmp_path)
    assert refused(lambda: ab.baseline_of("main", tmp_path, "main")).startswith("--save main would replace")
    assert "main" in refused(lambda: ab.baseline_of("main", tmp_path, None))  # there is none
    baselines.save("main", path, {"it": then})
    assert ab.baseline_of("main", tmp_path, "other").cases["it"].head == then.head


def test_the_sides() -> None:
    known = a_baseline({"it": measured()})
    assert ab.sides(None, None, None, known) == ("alloc:system", "x=1")
    assert ab.sides("", None, None, known) == ("", "x=1") and ab.sides(None, "", None, known) == ("alloc:system", "")
    assert ab.sides(None, None, "main", None) == ("alloc:system", "")
    assert ab.sides("", "x=2", "main", None) == ab.sides("", "x=2", None, None) == ("", "x=2")
    for a, b in ((None, ""), ("", None), (None, None)):
        assert refused(lambda a=a, b=b: ab.sides(a, b, None, None)) == "--a and --b are needed"


def test_a_case_is_measured_again_as_it_was() -> None:
    then = measured()
    more = {"prepare": "a", "cleanup": "b", "input": "c", "client": "d", "ready": "1s", "latency": "t=(.*)"}
    plan = then.head.plan.model_copy(update={**more, "threshold": 3.0, "timeout_s": 4.0})
    head = then.head.model_copy(update={"plan": plan})
    case = ab.case_again("it", then.model_copy(update={"head": head}))
    assert (case.name, case.words, case.metric, case.threshold, case.timeout) == ("it", ["bench", "1"], "time", 3, 4)
    assert {name: getattr(case, name) for name in more} == more and not case.lower_is_better
    for higher in (True, False):
        head.metric.name, head.metric.higher_is_better = "n=(.*)", higher
        assert ab.case_again("it", then.model_copy(update={"head": head})).lower_is_better is not higher


@pytest.mark.parametrize(("b", "known"), [(0.5, True), (1.5, True), (0.985, False)])
def test_when_runs_are_enough(b: float, known: bool) -> None:
    values = {"A": [1.0, 1.03, 0.97, 1.01], "B": [b * each for each in (1.0, 0.99, 1.02, 1.0)]}
    assert ab.decided(make_experiment(values)) is known


def test_several_cases_lie_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab.Asked, "begin", lambda self, case, path: path)
    found = [a_case(), a_case(name="b c")]
    said = refused(lambda: ab.begin_all(ASKED, found, tmp_path / "x.jsonl"))
    assert said == f"--out {tmp_path / 'x.jsonl'}: several cases need a folder"
    monkeypatch.setattr(interleaved, "results_path", lambda kind, out: out / f"{kind}-1.jsonl")
    seen = []
    for _ in range(3):
        parts = ab.begin_all(ASKED, found, tmp_path)
        assert [each.name for each in parts] == ["it", "b c"]
        first, second = (Path(str(each.session)) for each in parts)
        assert (first.name, second.name) == ("01-it.jsonl", "02-b_c.jsonl") and first.parent == second.parent
        seen.append(first.parent.name)
        first.parent.mkdir()
    assert seen == ["ab-1", "ab-1-2", "ab-1-3"]


def wanted(folder: Path, **more: Any) -> ab.Wanted:
    forms = opt.Forms(more.pop("forms", {}), False, bool(more.get("json")))
    plain = ab.Wanted(page=None, json=False, record=None, save=None, folder=folder, forms=forms)
    return replace(plain, **more)


def test_a_record_is_of_one_program() -> None:
    said = refused(lambda: ab.finish_all(ASKED, [a_case()], wanted(Path(), record="0042-x"), None, False, None))
    assert said == "--record works for one program only"


def test_the_name_of_the_only_case() -> None:
    made = measured()
    assert ab.one_name(made) == case_file.of_program(["bench", "1"], {})[0].name == "bench"


def test_what_cannot_be_kept_costs_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the verdict nor its status, nor what can be written."""
    made = measured()
    report = multi_case.report_of_one("bench", made, verdict.compare(made, "A", "B"))
    (tmp_path / "file").write_text("no folder")
    forms = {"csv": tmp_path / "file" / "x.csv", "markdown": tmp_path / "x.md"}
    files = ab.keep(wanted(tmp_path, forms=forms, save="main"), report, {"bench": made})
    assert files == {"markdown": str(tmp_path / "x.md"), "baseline": str(tmp_path / "baselines" / "main.json")}
    assert all(Path(each).is_file() for each in files.values())
    assert baselines.load("main", Path(files["baseline"])).name == "main"
    assert "x.csv: File exists" in " ".join(capsys.readouterr().err.split())
    assert ab.keep(wanted(tmp_path / "file", save="main"), report, {"bench": made}) == {}
    assert "main.json" in capsys.readouterr().err

    def full(*_: object) -> Path:
        raise LabError("cannot write the record: No space left on device")

    monkeypatch.setattr(records, "write", full)
    session = SimpleNamespace(
        experiment=made, path=tmp_path / "r.jsonl", run=lambda decided: None, __enter__=None, __exit__=None
    )
    for json_ in (True, False):
        with pytest.raises(typer.Exit) as caught:
            ab.finish(Entered(session), wanted(tmp_path, record="0042-x", json=json_))  # type: ignore[arg-type]
        said = capsys.readouterr()
        assert caught.value.exit_code == 0 and "GO" in said.out and "No space left on device" in said.err
        assert "record" not in said.out and "r.html" in said.out


class Entered:
    """A finished session."""

    def __init__(self, of: SimpleNamespace) -> None:
        self.experiment, self.path, self.run = of.experiment, of.path, of.run

    def __enter__(self) -> Entered:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def test_the_command_line_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/hakmem", "ab", "--a", "", "--b", "x=1 y=2", "--", "p"])
    assert ASKED.plan(a_case()).typed == "hakmem ab --a '' --b 'x=1 y=2' -- p"
    assert shlex.split(ASKED.plan(a_case()).typed)[1:] == sys.argv[1:]
