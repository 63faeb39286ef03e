"""hakmem translate, hakmem path, and the package hakmem in a process that runs on the library."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem_lab.target import libhakmem, translation

LIBRARY = libhakmem.find()


def hakmem(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hakmem", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=libhakmem.without_settings(),
    )


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("MALLOC_CONF=dirty_decay_ms:5000,background_thread:true", {"purge_delay": "5000ms", "background": "1"}),
        ("MALLOC_CONF=dirty_decay_ms:-1", {"purge_delay": "3600s"}),
        ("MALLOC_CONF=narenas:4,thp:always,retain:false", {"thp": "always", "unmap": "1"}),
        ("MALLOC_CONF=junk:true,redzone:true", {"harden": "canary,zero"}),
        ("MIMALLOC_PURGE_DELAY=10 MIMALLOC_ALLOW_THP=0", {"purge_delay": "10ms", "thp": "never"}),
        ("TCMALLOC_HEAP_LIMIT_MB=512 TCMALLOC_RELEASE_RATE=10", {"limit": "512M"}),
        (
            "GLIBC_TUNABLES=glibc.malloc.trim_threshold=131072:glibc.malloc.hugetlb=1",
            {"dirty_limit": "131072", "thp": "always"},
        ),
        ("export MALLOC_ARENA_MAX=2", {}),
        (
            "MALLOC_CONF=prof:true,prof_prefix:/tmp/heap,lg_prof_sample:19,lg_prof_interval:30,prof_final:true",
            {"profile": "1:/tmp/heap", "profile_interval": "512K", "profile_every": "1048576K"},
        ),
        ("MALLOC_CONF=prof_prefix:x,prof:true,prof_active:false,lg_prof_interval:-1", {"profile": "ready:x"}),
        ("MALLOC_CONF=prof:true,prof_leak:true", {"profile": "leaks"}),
        ("MALLOC_CONF=prof:false,prof_leak:true,prof_prefix:x", {}),
        ("HEAPPROFILE=/tmp/x HEAP_PROFILE_TIME_INTERVAL=60", {"profile": "1:/tmp/x", "profile_every": "60s"}),
        ("HEAPCHECK=normal TCMALLOC_SAMPLE_PARAMETER=524288", {"profile": "leaks", "profile_interval": "524288"}),
    ],
)
def test_settings(line: str, options: dict[str, str]) -> None:
    found = translation.translate(line)
    assert found.options == options
    assert found.remarks and not found.unknown


def test_every_option_of_the_table_exists() -> None:
    known = libhakmem.default_options(LIBRARY)
    for family in translation.FAMILIES:
        for rule in family.rules:
            for value in ("1", "0", "true", "false", "always", "default"):
                try:
                    gained = rule.convert(value) if rule.convert else {}
                except ValueError:
                    continue
                assert set(gained) <= set(known), rule.name
                gained.pop("stats", None)  # its values speak at exit
                said = libhakmem.warnings(
                    LIBRARY, {**libhakmem.without_settings(), **{f"HAKMEM_{k.upper()}": v for k, v in gained.items()}}
                )
                assert said == "", rule.name


def test_a_profiler_is_not_denied(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hakmem", "translate", "MALLOC_CONF=prof:true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=libhakmem.without_settings(),
    )
    assert done.stdout.strip() == "HAKMEM_PROFILE=1"
    assert "hakmem profile PID" in done.stderr
    assert not list(tmp_path.iterdir())  # to ask the library whether it takes the value makes no profile


def test_the_command_keeps_the_program() -> None:
    done = hakmem("translate", "LD_PRELOAD=/usr/lib/libjemalloc.so.2 MALLOC_CONF=stats_print:true ruby app.rb")
    assert done.returncode == 0
    assert done.stdout.strip() == "HAKMEM_STATS=1 ruby app.rb"
    assert "LD_PRELOAD" in done.stderr


def test_the_command_says_what_it_does_not_know() -> None:
    done = hakmem("translate", "--json", "MALLOC_CONF=dirty_decay_ms:1,no_such_thing:2,thp:always")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["options"] == {"purge_delay": "1ms", "thp": "always"}
    assert ["no_such_thing" in each for each in document["unknown"]] == [True]
    assert hakmem("translate", "PATH=/bin ls").returncode != 0


def test_path() -> None:
    done = hakmem("path")
    assert done.returncode == 0 and Path(done.stdout.strip()) == LIBRARY


PROGRAM = """
import json, hakmem
with hakmem.track() as allocated:
    kept = [bytes(100) for _ in range(10000)]
before = hakmem.stats()["bytes_live"]
del kept
after = hakmem.stats(ledger=True)
print(json.dumps([hakmem.active(), allocated.live_blocks, allocated.live_bytes, allocated.mallocs,
                  before - after["bytes_live"], after["ledger_sum"], hakmem.collect(), hakmem.version()]))
"""


@pytest.mark.parametrize("exact", [False, True])
def test_the_package_in_a_process(tmp_path: Path, exact: bool) -> None:
    # In a file, since Python keeps a -c program's text and code in memory of its own.
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    settings = ["--set", "stats=exact"] if exact else []
    done = hakmem("run", "--python", *settings, "--", sys.executable, str(program))
    assert done.returncode == 0, done.stderr
    active, blocks, size, mallocs, freed, ledger, _, version = json.loads(done.stdout)
    assert active and version
    assert 10_000 <= blocks <= 10_500 and size >= 10_000 * 133
    assert (mallocs is not None and mallocs >= 10_000) if exact else mallocs is None
    assert freed >= 10_000 * 133 and ledger > 0


def test_the_package_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import hakmem; print(hakmem.active(), hakmem.path()); hakmem.stats()"],
        capture_output=True,
        text=True,
        check=False,
        env=libhakmem.without_settings(),
    )
    assert done.stdout.strip() == f"False {LIBRARY}"
    assert "NotActive" in done.stderr and "hakmem run --python" in done.stderr


def test_the_manual_page_has_every_command() -> None:
    from hakmem_lab import cli, man

    page = man.page()
    assert all(f".SS hakmem {name}\n" in page for name in cli.COMMANDS)
    assert ".B \\-\\-preset" in page and ".B \\-\\-json" in page
    if shutil.which("mandoc"):
        said = subprocess.run(
            ["mandoc", "-Tlint", "-Wwarning"], input=page, capture_output=True, text=True, check=False
        )
        assert [line for line in said.stdout.splitlines() if "missing date" not in line] == []
