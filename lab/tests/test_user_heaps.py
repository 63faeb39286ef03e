"""User heaps: the figures from outside are those that the library itself prints at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from hakmem_lab.inspect import openmetrics, snapshot_tables
from hakmem_lab.inspect.live import Live
from hakmem_lab.inspect.snapshots import Snapshot
from tests.inside import LIBRARY, compile_c, hakmem, running

# Makes heaps, says that it is ready, and ends when its input does.
SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "hakmem_region.h"

static hak_heap_t *made(const char *name, size_t limit)
{
    struct hak_heap_options options = { .size = sizeof options, .name = name, .limit = limit };
    return hak_heap_new(&options);
}

static hak_heap_t *in_region(const char *name, void *region, size_t size)
{
    struct hak_heap_options options = { .size = sizeof options, .name = name, .limit = size / 2 };
    options.region = region;
    options.region_size = size;
    return hak_heap_new(&options);
}

static void *fill(void *heap)
{
    for (size_t i = 0; i < 300; i++)
        memset(hak_heap_malloc(heap, 16 + i), 1, 16 + i);
    return NULL;
}

int main(void)
{
    enum { ROOM = 1 << 20 };
    pthread_t other;
    char byte;
    hak_heap_t *request = made("request", 8 << 20), *ended = made("ended", 0);
    hak_heap_t *large = made("odd \"n\303\244me\"\n\302\233\377", 0);
    fill(request);
    pthread_create(&other, NULL, fill, request);
    pthread_join(other, NULL);
    if (hak_heap_malloc(request, 16 << 20) != NULL)   /* above the limit */
        return 1;
    hak_heap_free(request, hak_heap_malloc(request, 4096));
    hak_heap_malloc(large, 3 << 20);
    hak_heap_malloc(large, 1000);
    fill(ended);
    hak_heap_destroy(ended);
    char *fixed = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *gone = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    fill(in_region("fixed", fixed, ROOM));
    hak_heap_malloc(in_region("unmapped", gone, ROOM), 100000);
    munmap(gone, ROOM);   /* which is a mistake; statistics forgive it */
    puts("ready");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        ;
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    libraries = map(str, (LIBRARY.with_name("libhakmem-region.so"), LIBRARY))
    return compile_c(tmp_path_factory.mktemp("owns"), SOURCE, *libraries, f"-Wl,-rpath,{LIBRARY.parent}")


def outside_and_inside(program: Path, form: str, file: Path) -> tuple[dict[str, Any], str]:
    """A snapshot from outside, and what the library wrote when the program ended."""
    with running(program, more={"HAKMEM_STATS": f"{form}:{file}"}) as process:
        snapshot = Live(process.pid).snapshot()
        assert process.end() == 0
    return snapshot, file.read_text(encoding="utf-8")


def test_rows_are_those_of_the_library(program: Path, tmp_path: Path) -> None:
    snapshot, content = outside_and_inside(program, "json", tmp_path / "stats.json")
    rows = {row["name"]: row for row in snapshot["heaps"]}
    assert set(rows) == {"request", 'odd "näme"???', "fixed"}
    assert sorted(rows.values(), key=lambda row: row["serial"]) == sorted(
        json.loads(content)["heaps"], key=lambda row: row["serial"]
    )
    assert len({row["serial"] for row in rows.values()}) == 3
    asked = sum(16 + i for i in range(300))
    assert rows["request"]["live_blocks"] == 600 and 2 * asked <= rows["request"]["live_bytes"] <= 3 * asked
    assert rows["request"]["limit"] == 8 << 20 and rows["request"]["refused"] >= 1
    assert rows["request"]["cached_bytes"] >= 4096
    large = rows['odd "näme"???']
    assert large["live_blocks"] == 2 and large["live_bytes"] >= 3 << 20 and large["limit"] == large["refused"] == 0
    assert rows["fixed"]["live_blocks"] == 300 and asked <= rows["fixed"]["live_bytes"] <= rows["fixed"]["used_bytes"]
    assert rows["fixed"]["limit"] == 1 << 19


def test_metrics_are_those_of_the_library(program: Path, tmp_path: Path) -> None:
    def of_heaps(page: str) -> list[str]:
        return sorted(line for line in page.splitlines() if "hakmem_heap_" in line)

    snapshot, content = outside_and_inside(program, "prom", tmp_path / "stats.prom")
    found = of_heaps(content)
    assert len(found) == 7 * (2 + 3)
    assert of_heaps(openmetrics.text(Snapshot.model_validate(snapshot))) == found


def test_stats_shows_them(program: Path) -> None:
    with running(program) as process:
        done = hakmem("stats", process.pid)
        as_json = json.loads(hakmem("stats", "--json", process.pid).stdout)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("User heaps") :].splitlines()
    assert [line.split()[1] for line in table[4:7]] == ["odd", "request", "fixed"]  # by memory
    assert "8.0 MiB" in table[5] and "3.0 MiB" in table[4]
    assert {row["name"] for row in as_json["heaps"]} == {"request", 'odd "näme"???', "fixed"}


def test_a_program_without_heaps_has_no_table(tmp_path: Path) -> None:
    plain = compile_c(
        tmp_path, '#include <stdio.h>\nint main(void) { puts("ready"); fflush(stdout); return getchar(); }'
    )
    with running(plain) as process:
        assert "heaps" not in Live(process.pid).snapshot()
        assert "program's own" not in hakmem("stats", process.pid).stdout


def test_the_largest_of_many() -> None:
    heaps = [{"serial": i, "name": f"tenant {i}", "used_bytes": i << 20} for i in range(1, 41)]
    console = Console(width=120, record=True, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    shown = snapshot_tables.own_heaps(Snapshot.model_validate({"version": 1, "heaps": heaps}))
    assert shown is not None
    snapshot_tables.show(console, shown)
    said = console.export_text()
    assert "the largest 20 of 40" in said and "tenant 40" in said and "tenant 21" in said and "tenant 20" not in said
