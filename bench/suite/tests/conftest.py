"""Lets the tests import the suite's modules, which are scripts beside one another, and makes results for them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
for folder in (ROOT / "bench" / "guard", ROOT / "tools", ROOT / "lab" / "src", HERE.parent):
    sys.path.insert(0, str(folder))

import session
from hakmem_lab.measure.results import Machine
from hakmem_lab.target.allocators import FLOOR, HAKMEM

Times = Mapping[tuple[str, str], Sequence[float]]
BUILD = ROOT / "out" / "release"


def make_head(cases: Sequence[str], names: Sequence[str], rounds: int, group: str = "written") -> session.Head:
    kinds = {HAKMEM: "ours", FLOOR: "floor"}
    machine = Machine(
        facts={"processor": "a processor", "kernel": "Linux 6.1.2-x y"},
        cpus=2,
        memory_bytes=1 << 30,
        page_bytes=4096,
        versions={"python": "3"},
    )
    return session.Head(
        created=datetime(2026, 1, 1, tzinfo=timezone.utc),
        commit="abc",
        machine=machine,
        plan=session.Plan(quick=False, rounds=rounds, seed=1),
        cases=[session.CaseRow(name=each, group=group, about=f"about {each}", command=["program"]) for each in cases],
        allocators=[
            session.AllocatorRow(name=each, kind=kinds.get(each, "peer"), description=f"the {each}", digest="")
            for each in names
        ],
        missing=[],
    )


def make_sample(number: int, case: str, name: str, time: float, rss: int = 1 << 20, check: str = "") -> session.Sample:
    return session.Sample(
        round=number,
        position=0,
        case=case,
        allocator=name,
        at=float(number),
        time=time,
        wall_s=time,
        cpu_s=time,
        peak_rss_bytes=rss,
        minor_faults=10,
        major_faults=0,
        check=check,
    )


def make_results(times: Times, group: str = "written", rss: Mapping[str, int] | None = None) -> session.Results:
    """Results whose runs took these times, by case and allocator."""
    cases = list(dict.fromkeys(case for case, _ in times))
    names = list(dict.fromkeys(name for _, name in times))
    found = session.Results(head=make_head(cases, names, max(len(each) for each in times.values()), group))
    for (case, name), values in times.items():
        for number, value in enumerate(values, start=1):
            found.add(make_sample(number, case, name, value, (rss or {}).get(name, 1 << 20)))
    return found


@pytest.fixture
def results() -> Callable[..., session.Results]:
    return make_results
