"""hakmem doctor: findings and exit statuses, for a child in the current environment and for running processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

from hakmem_lab.inspect import doctor_checks
from hakmem_lab.inspect.doctor_checks import Finding
from hakmem_lab.target import process
from tests.conftest import killed_after
from tests.inside import LIBRARY, clean_environment, compile_c, hakmem, running


def findings(*arguments: object, status: int = 0, **more: str) -> list[Finding]:
    done = hakmem("doctor", "--json", *arguments, **more)
    assert done.returncode == status, done.stderr + done.stdout
    return [Finding(**each) for each in json.loads(done.stdout)["findings"]]


def about(found: list[Finding], topic: str) -> list[Finding]:
    return [each for each in found if each.about == topic]


def test_all_is_well() -> None:
    found = findings()
    (loaded,) = about(found, "loaded")
    assert loaded.level == "ok" and str(LIBRARY) in loaded.text and "0." in loaded.text
    assert "all have their default values" in about(found, "options")[0].text
    topics = {each.about for each in found}
    assert {
        "capacities",
        "huge pages",
        "page size",
        "address space",
        "control group",
        "overcommit",
        "map count",
    } <= topics


def test_text_has_a_finding_per_line() -> None:
    done = hakmem("doctor")
    assert done.returncode == 0
    assert all(line.startswith(("ok ", "warn ", "fail ", "     ")) for line in done.stdout.splitlines())


def test_what_took_effect_and_from_where() -> None:
    found = findings(HAKMEM_PRESET="hot_512", HAKMEM_TINY_UNIFIED_C0="9", HAKMEM_CONF="purge_delay:5s")
    said = [each.text for each in about(found, "option")]
    assert any(text.startswith("preset = hot_512, from its variable") for text in said)
    assert any(text.startswith("tiny_unified_c0 = 9, from its variable (default 4096") for text in said)
    assert any(text.startswith("tiny_unified_c2 = 512, from the preset") for text in said)
    assert any(text.startswith("purge_delay = 5000 ms, from HAKMEM_CONF (default 800 ms") for text in said)
    assert "preset hot_512; C0..C7 9 128 512 512 128 128 128 128" in about(found, "capacities")[0].text


def test_mistakes_are_warnings() -> None:
    found = findings(HAKMEM_REFIL_COUNT="3", HAKMEM_LIMIT="abc", HAKMEM_CONF="foo:1")
    warned = [each.text for each in about(found, "option") if each.level == "warn"]
    assert any("HAKMEM_REFIL_COUNT is not an option; did you mean HAKMEM_REFILL_COUNT?" in text for text in warned)
    assert any("HAKMEM_LIMIT=abc was not accepted; 0 is in force" in text for text in warned)
    assert any("option foo is not known" in text for text in warned)
    assert len(warned) == 3
    findings("--strict", status=1, HAKMEM_REFIL_COUNT="3")


def test_costly_settings_are_warnings() -> None:
    found = findings(HAKMEM_STATS="exact", HAKMEM_TINY_UNIFIED_CACHE="0")
    assert [each.about for each in found if each.level == "warn" and "HAKMEM" in each.text + each.advice] == [
        "capacities",
        "speed",
    ]


def test_files_of_statistics_are_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    file.write_text("kept")
    findings(HAKMEM_STATS=f"json:{file}")
    assert file.read_text() == "kept"


def test_library_that_does_not_exist(tmp_path: Path) -> None:
    found = findings(status=1, LD_PRELOAD=str(tmp_path / "libhakmem.so"))
    assert any(each.level == "fail" and "was not loaded" in each.text for each in about(found, "loaded"))


def test_running_process(program: Path) -> None:
    with running(program, more={"HAKMEM_REFILL_COUNT": "64", "HAKMEM_REFILL_COUNTS": "1"}) as child:
        found = findings(child.pid)
    assert about(found, "loaded")[0].level == "ok"
    said = [each.text for each in about(found, "option")]
    assert any(text.startswith("refill_count = 64, from its variable") for text in said)
    assert any("HAKMEM_REFILL_COUNTS is not an option" in text for text in said)


def test_running_process_without_hakmem(program: Path) -> None:
    with running(program, preload=None) as child:
        found = findings(child.pid, status=1)
    (loaded,) = about(found, "loaded")
    assert loaded.level == "fail" and "hakmem run" in loaded.advice


def test_static_program_that_was_meant_to_run_on_it(tmp_path: Path) -> None:
    static = compile_c(
        tmp_path,
        '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }\n',
        "-static",
    )
    with running(static) as child:
        found = findings(child.pid, status=1)
    assert "names HAKMEM, but it was not loaded" in about(found, "loaded")[0].text


def test_program_with_its_own_malloc(tmp_path: Path) -> None:
    own = compile_c(
        tmp_path,
        "#include <stdio.h>\n#include <stdlib.h>\nstatic char heap[1 << 20]; static size_t used;\n"
        "void *malloc(size_t n) { used += (n + 15) & ~(size_t)15; return heap + used - ((n + 15) & ~(size_t)15); }\n"
        "void free(void *p) { (void)p; }\n"
        'int main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }\n',
        "-rdynamic",
    )
    with running(own) as child:
        found = findings(child.pid)
    (other,) = about(found, "other mallocs")
    assert other.level == "warn" and str(own) in other.text


OTHER = """
#include <stddef.h>
static char heap[1 << 24];
static size_t used;
void *malloc(size_t n) { used += (n + 31) & ~(size_t)15; return heap + used - ((n + 31) & ~(size_t)15); }
void free(void *p) { (void)p; }
"""
WAITS = '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }\n'


def test_another_malloc_beside(tmp_path: Path) -> None:
    """The one that the dynamic linker finds first counts."""
    other = compile_c(tmp_path, OTHER, "-shared", "-fPIC", name="libjemalloc.so.2")
    linked = compile_c(tmp_path, WAITS, "-Wl,--no-as-needed", str(other))
    with running(linked) as child:
        (finding,) = about(findings(child.pid), "other mallocs")
    assert (finding.level, finding.advice) == ("ok", "") and "after HAKMEM, which serves" in finding.text
    with running(linked, preload=None, more={"LD_PRELOAD": f"{other} {LIBRARY}"}) as child:
        (finding,) = about(findings(child.pid), "other mallocs")
    assert finding.level == "warn" and "libjemalloc.so.2 is loaded too, and serves before HAKMEM" in finding.text
    for order, level in (((str(LIBRARY), str(other)), "ok"), ((str(other), str(LIBRARY)), "warn")):
        both = compile_c(tmp_path, WAITS, "-Wl,--no-as-needed", *order, f"-Wl,-rpath,{LIBRARY.parent}", name="both")
        with running(both, preload=None) as child:
            (finding,) = about(findings(child.pid), "other mallocs")
        assert finding.level == level, order


def test_deep_binding(tmp_path: Path) -> None:
    (finding,) = about(findings(), "deep binding")
    assert finding.level == "ok" and "RTLD_DEEPBIND is removed" in finding.text
    (finding,) = about(findings(HAKMEM_KEEP_DEEPBIND="1"), "deep binding")
    assert finding.level == "warn" and "HAKMEM_KEEP_DEEPBIND" in finding.advice
    linked = compile_c(
        tmp_path,
        '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); getchar(); return 0; }\n',
        "-Wl,-u,malloc",
        str(LIBRARY.parent / "libhakmem.a"),
        "-pthread",
    )
    with running(linked, preload=None) as child:
        (finding,) = about(findings(child.pid), "deep binding")
    assert finding.level == "ok" and "dlopen is the C library's" in finding.text


def test_limits(program: Path) -> None:
    with killed_after(
        ["sh", "-c", f"ulimit -v 200000; exec {program}"],
        env=clean_environment(LD_PRELOAD=str(LIBRARY)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as limited:
        assert limited.stdout and limited.stdout.readline() == "ready\n"
        (space,) = about(findings(limited.pid), "address space")
    assert space.level == "warn" and "of 195.3 MiB in use" in space.text


def subject(**more: object) -> doctor_checks.Subject:
    mine = os.getpid()
    values = {
        "pid": mine,
        "environment": {},
        "maps": process.mappings(mine),
        "limits": {},
        "groups": "",
        "live": None,
        "options": {},
        "capacities": [],
        **more,
    }
    return doctor_checks.Subject(**values)  # type: ignore[arg-type]


def test_map_count() -> None:
    one = process.mappings(os.getpid())[0]
    most = int(Path("/proc/sys/vm/max_map_count").read_text())
    levels = [doctor_checks.map_count(subject(maps=[one] * (most * share // 100)))[0].level for share in (10, 85, 99)]
    assert levels == ["ok", "warn", "fail"]


def test_control_group(tmp_path: Path, monkeypatch: object) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (tmp_path / "a" / "memory.max").write_text(f"{100 << 20}\n")
    (tmp_path / "a" / "memory.current").write_text(f"{95 << 20}\n")
    found = doctor_checks.of_groups([inner, tmp_path / "a", tmp_path])
    assert [(each.level, each.about) for each in found] == [("warn", "control group")]
    assert "memory.max" in found[0].text and "100.0 MiB, 95.0 MiB in use" in found[0].text
    assert doctor_checks.of_groups([inner])[0].level == "ok"


def test_a_path_of_its_own(tmp_path: Path) -> None:
    copy = tmp_path / "libhakmem.so"
    shutil.copy(LIBRARY, copy)
    (loaded,) = about(findings("--library", copy), "loaded")
    assert str(copy) in loaded.text
