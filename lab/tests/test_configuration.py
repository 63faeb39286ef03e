"""Configurations: what is accepted, and the errors for everything else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hakmem_lab.target import allocators, configuration, libhakmem
from hakmem_lab.target.configuration import parse
from hakmem_lab.terminal.errors import LabError


def test_variables_and_option_names(hakmem_library: Path) -> None:
    found = parse("HAKMEM_STATS=exact refill_count=64 OTHER='a b'", "A")
    assert found.settings == {"HAKMEM_STATS": "exact", "HAKMEM_REFILL_COUNT": "64", "OTHER": "a b"}
    environment = found.environment()
    assert environment["LD_PRELOAD"] == str(hakmem_library) and environment["HAKMEM_REFILL_COUNT"] == "64"


def test_the_labs_own_variable_does_not_reach_the_program(
    hakmem_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAKMEM_LIBRARY", str(hakmem_library))
    assert "HAKMEM_LIBRARY" not in parse("", "A").environment()


def test_words_of_a_program_and_of_its_title() -> None:
    found = parse("cmd:'./other -x'", "A")
    assert found.command(["./one", "1"]) == ["./other", "-x", "1"] and found.allocator.name == "system"
    assert parse("cmd:./other alloc:system A=1", "A").settings == {"A": "1"}
    assert parse("alloc:system", "A").command(["./one", "1"]) == ["./one", "1"]
    titles = [parse(text, label).title for text, label in (("alloc:system", "A"), ("alloc:system", "alloc:system"))]
    assert titles == ["A: alloc:system", "alloc:system"] and parse("alloc:system", "z").title == "z: alloc:system"
    with pytest.raises(LabError, match="names no program"):
        parse("cmd:", "A")


def test_which_variables_are_options(hakmem_library: Path) -> None:
    found = parse("HAKMEM_CONF=refill_count:64 cmd:./other Mixed=1", "A")
    assert found.settings == {"HAKMEM_CONF": "refill_count:64", "Mixed": "1"} and found.allocator.kind == "ours"
    with pytest.raises(LabError, match="no option HAKMEM_ZERO"):
        parse("HAKMEM_ZERO=1", "A")


def test_allocators_by_name(hakmem_library: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(allocators, "find_peers", lambda: {"mimalloc": tmp_path, "jemalloc": None})
    found = parse("alloc:mimalloc A=1", "A")
    assert (found.allocator.name, found.allocator.kind, found.allocator.shared_object) == ("mimalloc", "peer", tmp_path)
    assert found.settings == {"A": "1"} and parse("alloc:glibc", "A").allocator.shared_object is None
    with pytest.raises(LabError, match="jemalloc: not installed"):
        parse("alloc:jemalloc", "A")
    assert parse("alloc:hakmem refill_count=64", "A").allocator.shared_object == hakmem_library
    with pytest.raises(LabError, match="neither NAME=VALUE"):
        parse("alloc:mimalloc 1A=1", "A")


def test_values_are_checked_unless_that_is_not_wanted(hakmem_library: Path) -> None:
    assert parse("refill_count=many", "A", checked=False).settings == {"HAKMEM_REFILL_COUNT": "many"}
    assert parse("HAKMEM_STATS=json:/nowhere/file HAKMEM_STATS_SIGNAL=10", "A").settings["HAKMEM_STATS_SIGNAL"] == "10"


def test_system_and_libraries(hakmem_library: Path) -> None:
    assert "LD_PRELOAD" not in parse("alloc:system", "A").environment()
    mixed = parse(f"lib:{hakmem_library} refill_count=16", "A")
    assert mixed.allocator.shared_object == hakmem_library and mixed.settings == {"HAKMEM_REFILL_COUNT": "16"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("HAKMEM_REFIL_COUNT=64", "did you mean HAKMEM_REFILL_COUNT"),
        ("refil_count=64", "did you mean refill_count"),
        ("HAKMEM_REFILL_COUNT=many", "is not a number"),
        ("HAKMEM_CONF=refil_count:3", "nearest one is refill_count"),
        ("refill_count", "neither NAME=VALUE"),
        ("alloc:mimaloc", "did you mean mimalloc"),
        ("alloc:system alloc:hakmem", "more than one"),
        ("alloc:system HAKMEM_STATS=1", "has no effect on system"),
        ("lib:/nowhere.so", "no such file"),
        ("'unclosed", "closing quotation"),
    ],
)
def test_mistakes(hakmem_library: Path, text: str, part: str) -> None:
    with pytest.raises(LabError) as caught:
        parse(text, "A")
    assert part in caught.value.message
    assert caught.value.advice


def test_every_option_of_the_tree_is_known(hakmem_library: Path) -> None:
    tree = libhakmem.source_tree()
    assert tree is not None
    names = []
    for row in (tree / "src" / "diag" / "options.def").read_text().splitlines():
        if family := re.match(r"HAK_FAMILY\((\w+), HAK_(\d)_TO_(\d), (\w*),", row):
            front, first, last, back = family.groups()
            names += [f"{front}{digit}{back}" for digit in range(int(first), int(last) + 1)]
        elif row.startswith("X("):
            names.append(row[2:].split(",")[0])
    assert list(libhakmem.default_options(hakmem_library)) == names


def test_a_library_that_does_not_serve_malloc_is_refused() -> None:
    maths = next((path for path in allocators.installed_libraries() if path.name == "libm.so.6"), None)
    if maths is None:
        pytest.skip("no libm.so.6")
    with pytest.raises(LabError, match="does not serve malloc"):
        configuration.require_loadable([parse(f"lib:{maths}", "A")])


def test_where_the_library_is_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HAKMEM_LIBRARY", str(tmp_path))
    with pytest.raises(LabError, match="HAKMEM_LIBRARY"):
        libhakmem.find()
    (tmp_path / "libhakmem.so").write_text("")
    assert libhakmem.find() == tmp_path / "libhakmem.so"
    with pytest.raises(LabError, match="--library"):
        libhakmem.find(tmp_path / "nowhere.so")
    with pytest.raises(LabError, match="does not list its options"):
        libhakmem.options(tmp_path / "libhakmem.so")


def test_where_an_installed_lab_looks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel, loader, usual = (tmp_path / name / "libhakmem.so" for name in ("wheel", "loader", "usr"))
    monkeypatch.delenv("HAKMEM_LIBRARY", raising=False)
    monkeypatch.setattr(libhakmem, "source_tree", lambda: None)
    monkeypatch.setattr(libhakmem, "BUNDLED", wheel)
    monkeypatch.setattr(libhakmem, "INSTALLED", (str(usual.parent),))
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path / 'nowhere'}::{loader.parent}")
    with pytest.raises(LabError) as told:
        libhakmem.find()
    assert all(str(path) in told.value.message for path in (wheel, loader, usual)), told.value.message
    for path in (usual, loader, wheel):  # each is preferred to the ones before
        path.parent.mkdir()
        path.write_text("")
        assert libhakmem.find() == path
    multiarch = usual.parent / "x86_64-linux-gnu" / "libhakmem.so"
    for path in (wheel, loader, usual):
        path.unlink()
    multiarch.parent.mkdir()
    multiarch.write_text("")
    assert libhakmem.find() == multiarch
