"""A fleet's plan and verdict, held against simulated fleets whose truth is known; the long form is
bench/fleet/truth.py."""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "fleet"))

import real
import simulated
import truth

from hakmem_lab.fleet import checks, history, inference, metrics, profiles, verdict
from hakmem_lab.fleet import plan as plans
from hakmem_lab.fleet.inference import Design, Series
from hakmem_lab.fleet.prometheus import DAY_S
from hakmem_lab.inspect import openmetrics
from hakmem_lab.pages import fleet as pages
from hakmem_lab.profile import formats
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem

NOW = 1_800_000_000 // DAY_S * DAY_S + 100
START = NOW - NOW % DAY_S - 28 * DAY_S
KIND = simulated.Kind(hosts=80, days=28, step_s=6 * 3600)


def made(seed: int = 1, hosts: int = 80, **effects: float) -> tuple[simulated.Fleet, plans.Plan]:
    """A fleet with all metrics, and its plan."""
    fleet = simulated.make(seed, START, dataclasses.replace(KIND, hosts=hosts))
    plan = truth.planned(fleet, seed, metrics.METRICS)
    truth.switched_on(fleet, plan, {name.replace("_", " "): value for name, value in effects.items()})
    return fleet, plan


def judged(fleet: simulated.Fleet, plan: plans.Plan) -> verdict.FleetVerdict:
    return verdict.decide(plan, simulated.InMemory(fleet, plan.step, plan.select), NOW)


def row(found: verdict.FleetVerdict, name: str) -> verdict.Row:
    return next(each for each in found.rows if each.metric == name)


# --- the statistics ---------------------------------------------------------------------------------------------------


def test_a_draw_keeps_the_blocks() -> None:
    design = Design.of([5, 5, 7, 7, 7, 7, 9, 9, 9], [True, False, True, True, False, False, False, True, False])
    drawn = np.concatenate(list(design.draws(3000, 1)))
    for block, count in ((0, 1), (1, 2), (2, 1)):
        assert (drawn[:, design.block == block].sum(axis=1) == count).all()
    assert np.allclose(drawn.mean(axis=0), [0.5] * 6 + [1 / 3] * 3, atol=0.04)
    assert design.weight == pytest.approx(1 / 2 + 1 + 2 / 3)


def test_the_estimate_is_that_of_a_linear_model() -> None:
    random = np.random.default_rng(3)
    block = np.repeat(np.arange(10), 4)
    treated = np.tile([True, True, False, False], 10)
    before = random.normal(size=40)
    after = (before * 0.9 + 0.3 * treated + np.repeat(random.normal(size=10), 4) + random.normal(0, 0.1, 40))[:, None]
    found = inference.estimate(Design.of(block, treated), [Series(after, before)], 1, 2000)
    model = np.column_stack([treated, before, *(block == number for number in range(10))]).astype(float)
    wanted, left, *_ = np.linalg.lstsq(model, after[:, 0], rcond=None)
    assert found.effect[0, 0] == pytest.approx(wanted[0])
    error = math.sqrt(left[0] / (40 - 12) * np.linalg.inv(model.T @ model)[0, 0])
    assert found.error[0, 0] == pytest.approx(error, rel=0.1)


def test_what_may_be_wrong_is_spent_over_the_looks() -> None:
    random = np.random.default_rng(4)
    walk = np.abs(random.normal(size=(20_000, 7)).cumsum(axis=1) / np.sqrt(np.arange(1, 8))).astype(np.float32)
    bounds = inference.spend(walk, 7, 0.05)
    assert (walk > bounds).any(axis=1).mean() == pytest.approx(0.05, abs=0.001)
    assert bounds[0] > bounds[-1] > 1.96
    few = inference.spend(walk[:15], 7, 0.05)
    assert math.isinf(few[0])  # fifteen draws do not resolve a thousandth


def test_hosts_of_a_block_resemble_one_another() -> None:
    random = np.random.default_rng(5)
    features = np.column_stack([random.normal(size=203), random.normal(0, 9, 203)])
    strata = ["a"] * 100 + ["b"] * 103
    block = plans.blocks(features, strata)
    sizes = np.bincount(block)
    assert sizes.min() >= plans.BLOCK and sizes.max() < 2 * plans.BLOCK
    assert not set(block[:100]) & set(block[100:])
    within = np.mean([np.var(features[block == number], axis=0) for number in range(len(sizes))], axis=0)
    assert (within < 0.5 * np.var(features, axis=0)).all()
    treated = plans.lots(block, 7)
    assert abs(int(treated.sum()) - 101) <= len(sizes) and (plans.lots(block, 7) == treated).all()


def test_error_rates_and_coverage_hold() -> None:
    """120 fleets each: no GO without a gain beyond what chance allows; intervals have the planted gain in them."""
    nothing, something = truth.Tally(0.0), truth.Tally(3.0)
    kind = simulated.Kind(hosts=64, days=28, step_s=DAY_S // 4)
    for tally in (nothing, something):
        for seed in range(1000, 1120):
            each = truth.make_fleet(seed, tally.gain, ["daily"], START, kind)
            source = simulated.InMemory(each.fleet, each.plans[0].step, each.plans[0].select)
            tally.add(truth.judge(each, source, "memory")[0])
        assert tally.refused <= 3
    assert nothing.any_day <= stats.binom.ppf(0.999, 120, 0.025)
    for tally in (nothing, something):
        low, high = (float(stats.binom.ppf(each, 120, 0.95)) for each in (0.001, 0.999))
        assert low <= tally.covers_all <= high, tally.line()
    assert something.found >= 60


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_a_planted_gain_is_a_go_and_a_broken_guard_rail_none() -> None:
    found = judged(*made(hosts=400, resident_memory=truth.log_of(8.0)))
    assert found.verdict == "GO", found
    assert row(found, "resident memory").low < 8.0 < row(found, "resident memory").high
    assert row(found, "kills").word == "holds" and row(found, "kills").high > 0
    found = judged(*made(hosts=400, resident_memory=truth.log_of(8.0), processor_time=math.log(1.2)))
    assert found.verdict == "NO-GO" and found.reason.startswith("processor time")
    assert row(found, "processor time").word == "broken" and -22 < row(found, "processor time").gain < -18
    found = judged(*made(hosts=400, resident_memory=truth.log_of(8.0), kills=0.3))
    assert found.verdict == "NO-GO" and found.reason.startswith("kills")


def test_a_look_before_the_end_is_the_same_as_that_look_at_the_end() -> None:
    fleet, plan = made(resident_memory=truth.log_of(8.0))
    source = simulated.InMemory(fleet, plan.step, plan.select)
    early = verdict.decide(plan, source, plan.start + 5.5 * DAY_S)
    assert early.day == 5 and len(row(early, "resident memory").by_look) == 5
    assert row(early, "resident memory").low < row(early, "resident memory").gain
    with pytest.raises(LabError, match="first day"):
        verdict.decide(plan, source, plan.start + 3600)
    with pytest.raises(LabError, match="one look"):
        verdict.decide(plan.model_copy(update={"looks": "end"}), source, plan.start + 5.5 * DAY_S)


def test_a_look_too_early_for_a_bound_survives_its_file(tmp_path: Path) -> None:
    fleet = simulated.make(1, START, simulated.Kind(hosts=40, days=42, step_s=DAY_S // 2))
    plan = truth.planned(fleet, 1, step="12h")
    truth.switched_on(fleet, plan, {})
    found = verdict.decide(plan, simulated.InMemory(fleet, "12h", plan.select), plan.start + 3 * DAY_S)
    assert found.rows[0].by_look[0][1:] == (-math.inf, math.inf) and math.isfinite(found.rows[0].low)
    again = verdict.FleetVerdict.model_validate(json.loads(found.model_dump_json()))
    assert again == found
    pages.write(again, tmp_path / "early.html", False)


def test_events_that_never_were_are_judged_by_all_days_of_a_plan_with_one_look() -> None:
    fleet = simulated.make(1, START, KIND)
    plan = truth.planned(fleet, 1, metrics.METRICS, looks="end")
    truth.switched_on(fleet, plan, {})
    found = judged(fleet, plan)
    fewest = min(found.treated, found.hosts - found.treated)
    assert row(found, "kills").high == pytest.approx(verdict.NO_EVENTS / (fewest * 14)) == -row(found, "kills").low


def test_metrics_without_events_are_said_to_measure_nothing(tmp_path: Path) -> None:
    """No kill and no restart anywhere; three hosts without faults late in the history and first after the start."""
    fleet = simulated.make(1, START, KIND)
    fleet.started[:] = START - 5
    for first, last in ((27, 56), (55, 60)):
        fleet.faults[:3, first:last] = fleet.faults[:3, first - 1 : first]
    plan = truth.planned(fleet, 1, metrics.METRICS)
    assert "NaN" not in plan.model_dump_json() and plans.Plan.model_validate_json(plan.model_dump_json()) == plan
    assert [each.metric for each in plan.power] == ["resident memory", "GiB-seconds", "processor time", "faults"]
    assert all(math.isfinite(each.error) and each.hosts_needed for each in plan.power)
    truth.switched_on(fleet, plan, {})
    found = judged(fleet, plan)
    assert all(math.isfinite(value) for each in found.rows for look in each.by_look[6:] for value in look)
    assert all(math.isfinite(look[0]) for each in found.rows for look in each.by_look)
    assert [str(row(found, name).gain) for name in ("restarts", "kills")] == ["0.0", "0.0"]
    assert row(found, "kills").word == "holds"
    assert verdict.FleetVerdict.model_validate(json.loads(found.model_dump_json())) == found
    fleet.started[:, 60:] += 7  # all of them once
    again = row(judged(fleet, plan), "restarts")
    assert again.high - again.gain == pytest.approx(3 / (39 * 14), rel=0.1)
    pages.write(found, tmp_path / "verdict.html", False)
    assert "nan" not in re.sub(r"<script.*?</script>", "", (tmp_path / "verdict.html").read_text(), flags=re.DOTALL)

    fleet.faults[:40, 56:] = fleet.faults[:40, 55:56]
    assert "50 % of the hosts have only zeros, or no data, of faults" in refused(fleet, plan)
    fleet.faults[:, 56:] = fleet.faults[:, 55:56]
    assert "faults is 0 on every host: not judged" in judged(fleet, plan).notes


def test_a_history_of_zeros_is_no_part_of_the_plan() -> None:
    fleet, plan = made()
    settings = plan.model_dump(include={"history_days", "host_label", "select", "step", "start"})
    fleet.faults[:30] = 0
    source: Any = simulated.InMemory(fleet, plan.step, plan.select)
    found = history.read(source, settings, metrics.METRICS, "")
    assert found.notes == ["faults is 0 on 30 of 80 hosts: it is no part of the plan"]
    assert "faults" not in found.values and "kills" in found.values
    errors = metrics.METRICS[3].model_copy(update={"name": "errors"})
    with pytest.raises(LabError, match="errors is 0 on 30 of 80 hosts"):
        history.read(source, settings, [*metrics.METRICS, errors], "")


def refused(fleet: simulated.Fleet, plan: plans.Plan) -> str:
    found = judged(fleet, plan)
    assert found.verdict == "REFUSED" and not found.rows
    return "; ".join(found.refusals)


def test_it_refuses_what_cannot_be_compared() -> None:
    fleet, plan = made()
    treated = np.array([each.arm == "hakmem" for each in plan.hosts])
    assert judged(fleet, plan).verdict != "REFUSED"

    fleet.there[:9, 56:] = False
    assert "9 of 80 hosts have no data (11.2 %): host-00000:9798" in refused(fleet, plan)

    fleet, plan = made()
    fleet.served[np.flatnonzero(treated)[:3], 56:] = 0.0
    assert "3 hosts should run on HAKMEM and do not: host-" in refused(fleet, plan)
    fleet.served[np.flatnonzero(~treated)[:2], 56:] = 1.0
    assert "2 hosts should not run on HAKMEM and do" in refused(fleet, plan)

    fleet, plan = made()
    fleet.resident[treated, 40:] *= 0.95  # switched on four days too early
    assert "the groups differed before the start: resident memory" in refused(fleet, plan)
    fleet, plan = made()
    fleet.resident[treated] *= 2.0
    assert "the groups differed before the start: resident memory" in refused(fleet, plan)

    fleet, plan = made()
    fleet.started[treated, 56 + 20 :] += 7.0
    assert "on day 6, " in refused(fleet, plan) and "a deployment hit one side only" in refused(fleet, plan)

    fleet, plan = made()
    first, other = plan.hosts[0], next(each for each in plan.hosts if each.arm != plan.hosts[0].arm)
    first.arm, other.arm = other.arm, first.arm
    assert "changed after it was drawn" in refused(fleet, plan)

    plan = made()[1].model_copy(update={"metrics": [*metrics.METRICS, metrics.of_user("p99=nowhere", "guard")]})
    assert "100 % of the hosts have no data of p99" in refused(made()[0], plan)


def test_hosts_missing_on_one_side_are_refused() -> None:
    fleet = simulated.make(2, START, simulated.Kind(hosts=400, days=28, step_s=DAY_S // 2))
    plan = truth.planned(fleet, 2, step="12h")
    truth.switched_on(fleet, plan, {})
    treated = np.array([each.arm == "hakmem" for each in plan.hosts])
    fleet.there[np.flatnonzero(treated)[:16], 28:] = False
    assert "hosts are missing on one side" in "; ".join(judged(fleet, plan).refusals)


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_the_plan_s_promise_is_about_what_is_found() -> None:
    _, plan = made()
    promise = plan.power[0]
    assert 0 <= promise.power <= 1 and promise.smallest > promise.error > 0
    assert promise.hosts_needed is not None and promise.hosts_needed > 80
    assert sum(each.arm == "hakmem" for each in plan.hosts) == 40


def test_the_history_s_course_tells_what_more_days_make_of_the_error() -> None:
    random = np.random.default_rng(8)
    noise = random.normal(size=(3000, 28))
    for values in (noise, 0.1 * noise.cumsum(axis=1) + 3 * random.normal(size=(3000, 1))):
        told = np.diag(inference.course(values[:, :14], 14, 14))
        after, before = inference.cumulative_means(values[:, 14:]), values[:, :14].mean(axis=1)
        alike = np.array([np.corrcoef(each, before)[0, 1] for each in after.T])
        true = after.var(axis=0) * (1 - alike**2)
        assert told == pytest.approx(true, rel=0.15)
    values[:, 3], values[5] = math.nan, math.nan
    assert np.isfinite(inference.course(values[:, :4], 4, 9)).all()
    assert (inference.course(np.ones((9, 2)), 2, 3) == 0).all()


def test_the_plan_s_error_is_the_verdict_s() -> None:
    """Although the history is no longer than what goes before the start, so that it has no such 28 days."""
    planned, true = [], []
    for seed in range(40):
        each = truth.make_fleet(seed, 0.0, ["end"], START, dataclasses.replace(KIND, hosts=120))
        found = truth.judge(each, simulated.InMemory(each.fleet, "6h", each.plans[0].select), "memory")[0]
        planned.append(each.plans[0].power[0].error)
        true.append((found.found[0][2] - found.found[0][1]) / 2 / 1.96)
    assert np.mean(planned) == pytest.approx(np.mean(true), rel=0.1)


def test_a_history_that_has_just_begun_is_too_short() -> None:
    _, plan = made()
    names = [each.name for each in plan.hosts]
    values = np.full((len(names), 14), 1e9)
    values[:, :7] = math.nan
    settings = plan.model_dump(exclude={"metrics", "hosts", "power", "lots", "kind", "version"})
    with pytest.raises(LabError, match="0 hosts have values of resident memory in both halves"):
        plans.make(names, [""] * len(names), {"resident memory": values}, metrics.METRICS[:1], settings)


def test_the_assignment_is_printed_for_who_applies_it() -> None:
    plan = made()[1]
    text = plans.as_ansible(plan)
    assert text.count("host-00000 ") == 1 and "[hakmem:vars]\nhakmem_preload=true" in text
    assert plans.as_kubernetes(plan).count("hakmem.io/arm=hakmem") == 1
    assert len(plans.as_labels(plan).splitlines()) == 80


def test_queries_are_filled_in() -> None:
    found = metrics.filled(metrics.METRICS[5].query, "node", 'service="a"', "5m")
    assert found == 'sum by (node) (increase(hakmem_cgroup_memory_events_total{event="oom_kill",service="a"}[1d]))'
    assert "{" not in metrics.filled(metrics.METRICS[0].query, "node", "", "5m")
    assert metrics.filled(metrics.METRICS[1].query, "node", "", "5m").endswith("[86250000ms:5m]) * 86400")
    with pytest.raises(LabError, match="not NAME=QUERY"):
        metrics.of_user("p99", "guard")
    for step in ("5", "0m", "1d", "13h"):
        with pytest.raises(LabError, match="not a time"):
            metrics.seconds(step)


def test_files_of_another_kind_are_refused_in_a_line(tmp_path: Path, hakmem: Hakmem) -> None:
    (tmp_path / "bad").write_bytes(b"\xff\xfe no JSON")
    asked = ["verdict", "--prometheus", "http://127.0.0.1:9", "--plan", "bad"]
    for words in (["page", "bad"], ["page", "none"], asked):
        said = hakmem("fleet", *words, status=1).stderr
        assert said.startswith("hakmem: ") and "one." in said and "Traceback" not in said


# --- Prometheus -------------------------------------------------------------------------------------------------------


def test_an_empty_prometheus_gives_no_verdict() -> None:
    class Empty:
        def daily(self, *_: Any) -> dict[str, Any]:
            return {}

    found = verdict.decide(made()[1], Empty(), NOW)
    assert found.verdict == "REFUSED" and found.reason.startswith("80 of 80 hosts have no data (100.0 %)")


@pytest.mark.parametrize("engine", real.NEEDED)
def test_from_a_real_server_to_a_decision(engine: str, tmp_path: Path, hakmem: Hakmem) -> None:
    """History, plan, switch, verdict, page: as a user goes, and with the same figures as in memory."""
    if not real.is_here(engine):
        pytest.skip(f"no {engine}{'; ./dev setup' if engine == real.PROMETHEUS else ' in PATH'}")
    today = int(time.time()) // DAY_S * DAY_S
    fleet = simulated.make(3, today - 28 * DAY_S, KIND)
    before = simulated.make(3, today - 28 * DAY_S, KIND)
    before.there[:, 56:] = False
    real.backfill([before], tmp_path, engine=engine)
    first = time.strftime("%Y-%m-%d", time.gmtime(today - 14 * DAY_S))
    asked = ["--select", 'service="web"', "--step", "6h", "--start", first]
    with real.serving(tmp_path, engine) as url:
        said = hakmem("fleet", "plan", "--prometheus", url, *asked, "--seed", "7", "-o", "plan.json").stdout
        assert "40 hosts with HAKMEM, 40 without" in said and "days needed" in said
        assert "nothing to measure, for hosts have had none or hardly any: kills" in said
        ansible = hakmem("fleet", "plan", "--prometheus", url, *asked, "--as", "ansible", "-o", "other.json").stdout
        assert ansible.startswith("[hakmem]\nhost-")
        hakmem("fleet", "plan", "--prometheus", url, "--select", 'service="none"', "-o", "none.json", status=1)
    plan = plans.Plan.model_validate_json((tmp_path / "plan.json").read_text())
    truth.switched_on(fleet, plan, {"resident memory": truth.log_of(8.0)})
    fleet.there[:, :56] = False
    real.backfill([fleet], tmp_path, engine=engine)
    fleet.there |= before.there
    with real.serving(tmp_path, engine) as url:
        found = hakmem("fleet", "verdict", "--prometheus", url, "--plan", "plan.json", status=None)
        assert "resident memory" in found.stdout and "│ GO " in found.stdout, found.stdout
        text = hakmem("fleet", "verdict", "--prometheus", url, "--plan", "plan.json", "--json", status=None).stdout
    result = verdict.FleetVerdict.model_validate_json(text)
    same = verdict.decide(plan, simulated.InMemory(fleet, "6h", plan.select), time.time())
    assert row(result, "resident memory").gain == pytest.approx(row(same, "resident memory").gain, abs=0.02)
    assert row(result, "processor time").low == pytest.approx(row(same, "processor time").low, abs=1.0)
    (tmp_path / "verdict.json").write_text(text)
    hakmem("fleet", "page", "verdict.json", "-o", "fleet.html")
    page = (tmp_path / "fleet.html").read_text()
    assert found.returncode == {"GO": 0, "INCONCLUSIVE": 4}[result.verdict] and result.verdict in page
    assert "resident memory" in page and 'class="chart"' in page


# --- rules and the dashboard ------------------------------------------------------------------------------------------

PACKAGED = Path(__file__).resolve().parents[2] / "packaging" / "fleet"


@pytest.mark.skipif(not real.is_here(), reason="no promtool; ./dev setup")
def test_rules_are_right_and_name_each_server_s_trouble() -> None:
    for words in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        done = subprocess.run(["promtool", *words], cwd=PACKAGED, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not real.is_here(), reason="no promtool; ./dev setup")
def test_lost_scrapes_do_not_lower_gib_seconds(tmp_path: Path) -> None:
    """Two processes of half a GiB: all day; with every third scrape lost; ended at noon."""
    series, asked = [], metrics.filled(metrics.METRICS[1].query, "instance", 'service="web"', "10m")
    scraped, lost, half = "{0}+0x150", "{0} _ {0} " * 50, "{0}+0x72"
    for host, of_exporter, of_process in (("whole", scraped, scraped), ("lossy", lost, lost), ("ended", scraped, half)):
        series.append((f'hakmem_exporter_build{{instance="{host}",exporter="1"}}', of_exporter.format(1)))
        for process in "01":
            labels = f'{{instance="{host}",service="web",process="{process}",allocator="glibc"}}'
            series.append((f"hakmem_process_resident_bytes{labels}", of_process.format(1 << 29)))
    figures = {"whole": 86_400, "lossy": 86_400, "ended": 43_200}
    wanted = [{"labels": f'{{instance="{host}"}}', "value": value} for host, value in figures.items()]
    test = {
        "interval": "10m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [{"expr": f"round({asked}, 600)", "eval_time": "1440m", "exp_samples": wanted}],
    }
    (tmp_path / "lost.yaml").write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    command = ["promtool", "test", "rules", "lost.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def known_metrics() -> set[str]:
    """What the exporter serves: its own names, and those of the list."""
    source = (PACKAGED.parents[1] / "rust" / "hakmem-exporter" / "src" / "metrics.rs").read_text()
    found = set()
    for kind, name, unit in re.findall(
        r'(gauge|counter)\("(hakmem_\w+)", (?:Some\(Unit::(\w+)\)|bytes\(\)|None)', source
    ):
        found.add(name + (f"_{unit.lower()}" if unit else "") + ("_total" if kind == "counter" else ""))
    found |= {f"{name}_bytes" for name in re.findall(r'"(hakmem_process_\w+)", bytes\(\)', source)}
    return found | {each.sample for each in openmetrics.metrics()}


def test_rules_and_queries_ask_for_metrics_that_exist() -> None:
    texts = [(PACKAGED / name).read_text() for name in ("rules.yaml", "dashboard.json")]
    texts += [each.query for each in metrics.METRICS] + [metrics.SEEN, metrics.SERVED]
    asked = {name for text in texts for name in re.findall(r"(?<![\w:.-])hakmem_\w+(?=[{\[ +<>/)*]|$)", text)}
    recorded = set(re.findall(r"record: (\S+)", texts[0]))
    assert len(asked) > 15 and asked <= known_metrics(), asked - known_metrics()
    used = {name for text in texts for name in re.findall(r"instance:hakmem_[\w:]+", text)}
    assert used <= recorded


def test_the_dashboard_is_what_grafana_s_library_makes() -> None:
    pytest.importorskip("grafana_foundation_sdk")
    made = subprocess.run(
        [sys.executable, PACKAGED / "dashboard.py"], capture_output=True, text=True, check=True
    ).stdout
    assert made == (PACKAGED / "dashboard.json").read_text()


# --- in the program ---------------------------------------------------------------------------------------------------

IN_CPP = """#include <hakmem/prometheus.h>
#include <cstdio>
int main() { std::fputs(hak::open_metrics().c_str(), stdout); }
"""
IN_PYTHON = "import hakmem; print(hakmem.open_metrics(), end='')"


def test_a_program_serves_the_same_names(tmp_path: Path, hakmem_library: Path) -> None:
    """C++ and Python programs print OpenMetrics of the same metrics, which promtool accepts."""
    compiler = shutil.which("g++") or pytest.skip("no g++")
    (tmp_path / "page.cpp").write_text(IN_CPP)
    folder = hakmem_library.parent
    include = f"-I{PACKAGED.parents[1] / 'include'}"
    words = ["-std=c++17", "-Wall", "-Werror", include, "page.cpp", "-o", "page", f"-L{folder}", "-lhakmem"]
    subprocess.run([compiler, *words, f"-Wl,-rpath,{folder}"], cwd=tmp_path, check=True)
    pages = [subprocess.run([tmp_path / "page"], capture_output=True, text=True, check=True).stdout]
    environment = os.environ | {"LD_PRELOAD": str(hakmem_library)}
    command = [sys.executable, "-c", IN_PYTHON]
    pages.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    names = [set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)) for page in pages]
    assert names[0] == names[1] and "hakmem_memory_live_bytes" in names[0]
    assert all(page.endswith("# EOF\n") for page in pages)
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    assert all(len(list(parser.text_string_to_metric_families(page))) == len(names[0]) for page in pages)


# --- profiles ---------------------------------------------------------------------------------------------------------


def pprof_file(path: Path, live: dict[str, int]) -> None:
    """A profile with one function per stack."""
    profile = formats.messages()["Profile"]()
    strings = ["", "inuse_objects", "count", "inuse_space", "bytes", *live]
    for kind, unit in ((1, 2), (3, 4)):
        profile.sample_type.add(type=kind, unit=unit)
    for number, (name, size) in enumerate(live.items(), start=1):
        profile.function.add(id=number, name=strings.index(name))
        profile.location.add(id=number).line.add(function_id=number, line=1)
        profile.sample.add(location_id=[number], value=[1, size])
    profile.string_table.extend(strings)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(profile.SerializeToString()))


def test_profiles_of_two_groups_differ_per_host(tmp_path: Path, hakmem: Hakmem) -> None:
    for host in range(4):
        pprof_file(tmp_path / "control" / f"{host}.pb.gz", {"parse": 4000, "cache": 1000})
    for host in range(2):
        pprof_file(tmp_path / "hakmem" / f"{host}.pb.gz", {"parse": 4000, "cache": 3000})
    found = formats.difference(profiles.folder(tmp_path / "control"), profiles.folder(tmp_path / "hakmem"))
    grown = {stack[0].name: values["growth"].bytes for stack, values in found.stacks.items()}
    assert grown == {"parse": 0.0, "cache": 2000.0}
    hakmem("fleet", "diff", "control", "hakmem", "-o", "difference.html")
    assert "cache" in (tmp_path / "difference.html").read_text()
    nowhere = formats.messages()["Profile"](string_table=["", "inuse_objects", "inuse_space"])
    for name in (1, 2):
        nowhere.sample_type.add(type=name)
    nowhere.sample.add(location_id=[99], value=[1, 2])
    for content in (b"no profile", b"\x1f\x8bno gzip", b"", nowhere.SerializeToString()):
        (tmp_path / "hakmem" / "bad.pb").write_bytes(content)
        with pytest.raises(LabError, match="not a heap profile"):
            profiles.folder(tmp_path / "hakmem")
    with pytest.raises(LabError, match="no pprof files"):
        profiles.folder(tmp_path / "nowhere")


def test_checks_name_few_hosts() -> None:
    assert checks.some(["a", "b"]) == "a, b"
    assert checks.some([str(each) for each in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
