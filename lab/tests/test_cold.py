"""`hakmem cold` tells blocks that are used from those that are not: 1,000 blocks of known use, read or written; by size
and by stack; it changes nothing in the process, and says why it cannot look."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hakmem_lab.inspect import cold
from hakmem_lab.inspect.arrays import np
from hakmem_lab.inspect.live import Live
from hakmem_lab.target import process
from tests.inside import NOBODY, Running, as_user, compile_c, hakmem, running

# 1,000 blocks of 8,192 bytes, in random order used or not; prints the addresses of the used ones, of which it reads
# every second and writes the others, for ever. ARGUMENT 1: bytes of a block.
SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000 };
static char *all[COUNT], used[COUNT];
static char out[1 << 16];

__attribute__((noinline)) static void *used_block(size_t n) { return memset(malloc(n), 1, n); }
__attribute__((noinline)) static void *cache_entry(size_t n) { return memset(malloc(n), 2, n); }

int main(int argc, char **argv)
{
    size_t n = (size_t)atoi(argv[1]);
    volatile long sum = 0;
    setvbuf(stdout, out, _IOFBF, sizeof out);
    srand(argc > 2 ? (unsigned)atoi(argv[2]) : 1);
    puts("ready");
    for (int i = 0; i < COUNT; i++) {
        used[i] = rand() % 2;
        all[i] = used[i] ? used_block(n) : cache_entry(n);
        if (used[i])
            printf("%p ", (void *)all[i]);
    }
    puts("");
    fflush(stdout);
    for (;;) {
        for (int i = 0; i < COUNT; i++)
            for (size_t k = 0; used[i] && k < n; k += 2048)
                if (i % 2)
                    sum += all[i][k];
                else
                    all[i][k]++;
        usleep(10000);
    }
}
"""
SMALL_PAGES = {"HAKMEM_THP": "never"}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_c(tmp_path_factory.mktemp("cold"), SOURCE)


def addresses(child: Running) -> set[int]:
    assert child.child.stdout
    return {int(word, 16) for word in child.child.stdout.readline().split()}


@pytest.fixture
def blocks(program: Path) -> Iterator[tuple[Running, set[int]]]:
    with running(program, "8192", more=SMALL_PAGES) as child:
        yield child, addresses(child)


def test_a_thousand_blocks_of_known_use(blocks: tuple[Running, set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    child, used = blocks
    monkeypatch.setattr(cold, "MOST_S", 100.0)
    monkeypatch.setattr(cold, "MOST_LOOKS", 4000)
    found, _ = cold.watch(Live(child.pid), 1.0)
    starts, sizes, idle = found.blocks
    mine = sizes == 8192
    is_used = np.isin(starts[mine], np.array(sorted(used)))
    share = idle[mine] / 8192
    assert int(is_used.sum()) == len(used) and int(mine.sum()) >= 1000
    assert float(share[is_used].mean()) < 0.01 and float(share[~is_used].mean()) > 0.99
    assert found.cold_bytes == pytest.approx(8192 * (1000 - len(used)), rel=0.02)
    assert process.status_field(child.pid, "State")[0] in "SR"


def test_in_units_of_several_pages_the_sum_stays_exact(
    blocks: tuple[Running, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    child, used = blocks
    monkeypatch.setattr(cold, "MOST_LOOKS", 100)
    found, _ = cold.watch(Live(child.pid), 0.5)
    assert found.unit > 10 and found.looks <= 101
    assert found.cold_bytes == pytest.approx(8192 * (1000 - len(used)), rel=0.03)


def test_small_blocks_beside_used_ones_are_not_called_cold(program: Path) -> None:
    with running(program, "256", more=SMALL_PAGES) as child:
        used = addresses(child)
        found, _ = cold.watch(Live(child.pid), 0.5)
    starts, sizes, idle = found.blocks
    of_used = idle[(sizes == 256) & np.isin(starts, np.array(sorted(used)))]
    assert len(of_used) == len(used) and float(of_used.sum()) < 0.02 * 256 * len(used)


def test_stacks_and_ages(program: Path, tmp_path: Path) -> None:
    profile = SMALL_PAGES | {"HAKMEM_PROFILE": "1:/dev/null", "HAKMEM_PROFILE_INTERVAL": "20000"}
    with running(program, "8192", more=profile) as child:
        used = addresses(child)
        done = hakmem("cold", child.pid, "--for", "1s", "--json", "--page", tmp_path / "cold.html")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
    of = {each["frames"][0]["name"]: each for each in found["stacks"] if "cold" in each}
    expected, entry = 8192 * (1000 - len(used)), of["cache_entry"]
    assert abs(entry["cold"]["bytes"] - expected) <= 4 * entry["cold"]["error"] < expected
    assert "used_block" not in of or of["used_block"]["cold"]["bytes"] < 0.02 * expected
    assert 0.9 < entry["age"]["bytes"] / entry["cold"]["bytes"] < 60
    assert "Cold memory in" in (tmp_path / "cold.html").read_text()


def test_says_what_it_cannot_do(program: Path) -> None:
    with running(program, "8192") as child:
        addresses(child)

        def look() -> str:
            try:
                cold.Watch(Live(child.pid)).clear()
            except Exception as error:
                return str(error)
            return "done"

        assert "it belongs to user" in as_user(NOBODY, look)
        assert "not a time" in hakmem("cold", child.pid, "--for", "soon").stderr
    time.sleep(0.1)
    done = hakmem("cold", child.pid, "--for", "1s")
    assert done.returncode == 1 and "there is no process" in done.stderr and "Traceback" not in done.stderr


def test_a_process_that_ends_meanwhile(program: Path) -> None:
    with running(program, "8192") as child:
        addresses(child)
        watched = cold.Watch(Live(child.pid))
        watched.clear()
        child.child.kill()
        child.child.wait()
        with pytest.raises(Exception, match="has ended"):
            watched.used()
