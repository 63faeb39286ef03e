"""Results over commits: real change points are found, and no others."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from hakmem_lab.decide import history
from hakmem_lab.measure import results
from hakmem_lab.measure.results import Experiment
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Hakmem, make_experiment
from tests.test_commands import near


def test_a_change_is_found_where_it_is() -> None:
    chance = np.random.default_rng(1)
    for place, count in ((4, 8), (10, 20), (15, 40)):
        values = chance.normal(0, 0.01, count) + np.where(np.arange(count) < place, 0.0, 0.05)
        found = history.divide(values)
        assert len(found) == 1 and abs(found[0][0] - place) <= 1 and found[0][1] <= 0.05
    values = chance.normal(0, 0.01, 60) + np.repeat([0.0, 0.05, -0.02], 20)
    assert [abs(place - wanted) <= 1 for (place, _), wanted in zip(history.divide(values), (20, 40), strict=True)]


def test_without_a_change_few_are_found() -> None:
    """The stated error rate holds for any noise: normal, with outliers, skewed."""
    chance = np.random.default_rng(2)
    normal, outliers = chance.normal(0, 1, (200, 20)), chance.standard_t(2, (200, 20))
    for rows in (normal, outliers, np.exp(normal)):
        found = sum(bool(history.divide(row)) for row in rows)
        assert found <= 200 * 0.05 + 3 * (200 * 0.05 * 0.95) ** 0.5


def test_too_few_points_say_nothing() -> None:
    assert history.divide(np.array([0.0] * 3 + [1.0] * 4)) == []
    assert history.divide(np.zeros(20)) == []
    assert [place for place, _ in history.divide(np.array([0.0] * 4 + [1.0] * 4))] == [4]


def over_commits(count: int = 12, since: int = 6) -> list[tuple[str, Experiment]]:
    """Experiments, newest first; those from `since` on are 5 % slower."""
    made = []
    for number in range(count):
        slower = 1.05 if number >= since else 1.0
        each = make_experiment({"A": near(1.0, number), "B": near(0.8 * slower, 100 + number)})
        each.head.commit = f"{number:07x}"
        each.head.created = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=number)
        each.head.plan.seed = number
        made.append((f"{number}.jsonl", each))
    return made[::-1]


def test_series_name_the_commit_that_changed_them() -> None:
    made = over_commits()
    other = make_experiment({"A": near(1.0, 1), "B": near(1.0, 2)})
    other.head.plan.command = ["another"]
    (first, second) = history.gather([*made, ("x.jsonl", other)], {})
    assert [each.commit for each in first.points] == [f"{number:07x}" for number in range(12)]
    assert [(each.before, each.after) for each in first.changes] == [("0000005", "0000006")]
    change = first.changes[0]
    assert change.low < 100 * (1 / 1.05 - 1) < change.high < 0
    assert len(second.points) == 1 and second.changes == []


def test_the_order_is_that_of_the_history() -> None:
    known = {f"{number:07x}" + "0" * 33: 100 - number for number in range(12)}
    (found,) = history.gather(over_commits(), known)
    assert found.points[0].commit == "000000b" and found.changes[0].gain > 0
    assert history.place_of("v1-3-g0000003-dirty", known) == 97
    assert history.place_of("fffffff", known) is None and history.place_of("", known) is None


def test_what_is_no_ab_is_no_point() -> None:
    made = make_experiment({"A": near(1.0, 1)}, points=[{"cap": "1"}])
    with pytest.raises(LabError, match="no result of hakmem ab"):
        history.gather([("x", made)], {})


def test_command(hakmem: Hakmem, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    for name, each in over_commits():
        (folder / name).with_suffix(".json").write_text(results.document(each))
    (folder / "other.json").write_text("{}")
    done = hakmem("history", "kept")
    assert "0000006 after 0000005: -4." in done.stdout and "worse" in done.stdout
    page = (folder / "history.html").read_text()
    assert ">CHANGED<" in page and 'href="6.json"' in page
    (series,) = json.loads(hakmem("history", "kept", "--json").stdout)["series"]
    assert series["changes"][0]["after"] == "0000006" and len(series["levels"]) == 2
    done = hakmem("history", "kept", "--page", "kept", status=1)
    assert "0000006 after 0000005" in done.stdout and "cannot write kept" in done.stderr.replace("\n", " ")
    assert "there is no such file or folder" in hakmem("history", "nowhere", status=1).stderr
