"""The guard's reading of profiles and its judgement; the list of peers to build."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import build_peers
import pytest
from hakmem_lab.target import peers
from hakmem_lab.target.allocators import Allocator

import guard

PROFILE = """version: 1
events: Ir
ob=(1) /lib/ld.so
fn=(1) start
10 100
cob=(2) /x/libhakmem.so.0.1.0
cfn=(2) malloc
calls=3 20
11 30
ob=(2)
fn=(2)
20 7
+1 5
cob=(1)
cfn=(1)
calls=1 10
* 1000
-2 2
ob=(1)
12 50
"""


def test_only_the_librarys_own_instructions_count() -> None:
    assert guard.count_in(PROFILE, "libhakmem") == 14
    assert guard.count_in(PROFILE, "ld") == 150
    assert guard.count_in(PROFILE, "other") == 0


def test_two_percent_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    assert guard.compare({"a": 1020, "b": 900}, {"a": 1000, "b": 1000}) == []
    assert "--update" in capsys.readouterr().out
    assert len(guard.compare({"a": 1021}, {"a": 1000})) == 1
    assert "no figure" in guard.compare({"new": 1}, {"a": 1000})[0]


def result(case: str, name: str, number: int, speed: float) -> dict[str, object]:
    return {"type": "result", "case": case, "allocator": name, "round": number, "ops_per_s": speed}


def test_slower_in_every_round_fails() -> None:
    steady = [result("a", "now", n, 90) for n in range(1, 4)] + [result("a", "then", n, 100) for n in range(1, 4)]
    assert len(guard.slower(steady, "now", "then")) == 1
    once_faster = [*steady[1:], result("a", "now", 1, 110)]
    assert guard.slower(once_faster, "now", "then") == []
    assert guard.slower([result("a", "now", 1, 98), result("a", "then", 1, 100)], "now", "then") == []


def test_every_benchmark_has_a_figure() -> None:
    import json

    for kept in json.loads(guard.GOLDEN.read_text()).values():
        assert kept.keys() == guard.BENCHMARKS.keys()
        assert all(number > 100_000 for number in kept.values())


def test_crates_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in peers.EVERY:
        assert f'{each.crate} = "={each.version.partition("+")[0]}"' in build_peers.manifest(each)
        assert each.crate in build_peers.BUILDERS
    assert build_peers.chosen(["jemalloc5-prof"]) == list(peers.VARIANTS)
    assert not {each.name for each in peers.VARIANTS} & set(peers.NAMES)
    assert not {each.name for each in peers.HARDENED} & set(peers.NAMES)
    monkeypatch.setenv(peers.FOLDER_VARIABLE, "/nowhere")
    assert build_peers.chosen(["--hardened"]) == list(peers.HARDENED)
    with pytest.raises(SystemExit, match="unknown nosuch"):
        build_peers.chosen(["nosuch"])


def test_each_peer_has_sources_in_its_crate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def vendored(_command: Sequence[str | Path], folder: Path, _log: Path) -> None:
        configure = folder / "crates" / "tikv-jemalloc-sys" / "configure" / "configure"
        configure.parent.mkdir(parents=True)
        configure.touch()
        (configure.parents[1] / "jemalloc").mkdir()

    monkeypatch.setenv(peers.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(build_peers, "run", vendored)
    found = {each.name: build_peers.from_crate(each, tmp_path / "log") for each in peers.EVERY}
    assert found["mimalloc2"].name == "v2"
    assert found["mimalloc3"].name == "v3"
    for each in peers.EVERY:
        assert found[each.name].is_relative_to(each.folder / "crate" / "crates" / each.crate)


def test_peers_lie_where_the_variable_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(peers.FOLDER_VARIABLE, "/somewhere")
    first = peers.BUILT[0]
    assert str(first.path).startswith(f"/somewhere/{first.name}-{first.revision[:12]}")
    assert peers.built(first.path) is first


def test_a_peer_that_needs_a_tunable_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=1")
    for each in peers.BUILT:
        mine = Allocator(each.name, "peer", each.path).environment()["GLIBC_TUNABLES"]
        assert mine == "glibc.malloc.check=1" + (f":{each.tunable}" if each.tunable else "")
        assert each.described().endswith(f"GLIBC_TUNABLES={each.tunable}") == bool(each.tunable)
