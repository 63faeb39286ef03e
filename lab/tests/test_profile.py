"""hakmem profile and hakmem leaks, as a user runs them; their file formats, as other tools read them."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from hakmem_lab.commands.leaks import Suppression
from hakmem_lab.inspect.live import Live
from hakmem_lab.pages import flame
from hakmem_lab.profile import formats, heap_dumps, limits, symbols
from hakmem_lab.profile.heap_dumps import Estimate, Profile
from hakmem_lab.profile.memory_over_time import MemoryOverTime
from hakmem_lab.profile.remote_control import Profiler, spans_of
from hakmem_lab.profile.symbols import Frame, Symbols
from hakmem_lab.terminal.errors import LabError
from tests.conftest import Compiled, killed_after
from tests.inside import hakmem

pytest.importorskip("google.protobuf")
Samples = dict[tuple[formats.Stack, heap_dumps.Labels], dict[str, Estimate]]

SOURCE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[256];
static void *volatile sink;
__attribute__((noinline)) void *keeper(void) { void *p = malloc(64 << 10); sink = p; return p; }
__attribute__((noinline)) void recycler(void) { void *p = malloc(4000); sink = p; free(p); }
__attribute__((noinline)) void loser(void) { for (int i = 0; i < 7; i++) sink = malloc(1000); }
__attribute__((noinline)) void clear(void) { volatile char room[16384]; memset((void *)room, 0, sizeof room); }
int main(int count, char **arguments)
{
    for (int i = 0; i < 256; i++)
        kept[i] = keeper();
    for (int i = 0; i < 100000; i++)
        recycler();
    if (count > 1 && arguments[1][0] == 'l')
        loser();
    sink = 0;
    clear();
    if (count > 1)
        puts("ready"), fflush(stdout);
    while (count > 1 && arguments[1][0] == 'w') {
        for (int i = 0; i < 256; i++)
            free(kept[i]), kept[i] = keeper();
        usleep(1000);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(compiled: Compiled) -> Path:
    return compiled("known", SOURCE)


def test_a_program_in_every_form(program: Path, tmp_path: Path) -> None:
    names = ("a.pb.gz", "a.collapsed", "a.speedscope.json", "a.heap", "a.json", "a.html")
    outputs = [part for name in names for part in ("-o", tmp_path / name)]
    done = hakmem("profile", "--interval", "64K", *outputs, "--", program)
    assert done.returncode == 0, done.stderr
    assert re.search(r"keeper \(known\.c:8\) < main", done.stdout), done.stdout
    document = json.loads((tmp_path / "a.json").read_text())
    live, allocated = (document["totals"][kind] for kind in ("live", "allocated"))
    assert abs(live["bytes"] - (256 * (64 << 10))) < 5 * live["error"]
    assert abs(allocated["bytes"] - (256 * (64 << 10) + 400_000_000)) < 5 * allocated["error"]
    assert "main;keeper " in (tmp_path / "a.collapsed").read_text()
    speedscope = json.loads((tmp_path / "a.speedscope.json").read_text())
    assert {each["name"] for each in speedscope["profiles"]} >= {"live", "allocated", "peak", "short"}
    again = heap_dumps.read(tmp_path / "a.heap")
    assert again.total("live").bytes == pytest.approx(live["bytes"], rel=1e-3)
    page = (tmp_path / "a.html").read_text()
    assert "keeper (known.c:8)" in page
    assert "http" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    if shutil.which("go"):
        top = subprocess.run(
            ["go", "tool", "pprof", "-top", "-sample_index=inuse_space", str(tmp_path / "a.pb.gz")],
            capture_output=True, text=True, check=True, timeout=600,
        )  # fmt: skip
        assert re.search(r"\d+(\.\d+)?% +keeper", top.stdout), top.stdout


def test_of_a_program_that_frees_all_the_peak_is_shown(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    (tmp_path / "p.c").write_text(
        "#include <stdlib.h>\n__attribute__((noinline)) void *holder(void) { return malloc(64 << 20); }\n"
        "int main(void) { void *volatile p = holder(); free(p); return 0; }\n"
    )
    subprocess.run([compiler, "-g", "-O1", "-fno-builtin", "p.c", "-o", "p"], cwd=tmp_path, check=True)
    done = hakmem("profile", "-o", tmp_path / "a.html", "--", tmp_path / "p")
    said = r"6[45]\.\d MiB ± \S+ \S+ in use at the peak, in 1 block\n"
    assert re.match(said, done.stdout), done.stdout
    assert "holder (p.c:2)" in done.stdout
    assert "hakmem: 0 B of these were in use at the end; --kind live shows them" in done.stderr
    assert '<option value="peak" selected>' in (tmp_path / "a.html").read_text()
    done = hakmem("profile", "--kind", "live", "--", tmp_path / "p")
    assert done.stdout.startswith("0 B ± 0 B in use at the time of the dump, in 0 blocks\n")


def test_each_file_is_read_once_however_many_addresses_are_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large program has ten thousand addresses; reading its file for each took a minute."""
    from hakmem_lab.target import elf

    file = Path(sys.executable).resolve()
    mappings = [heap_dumps.Mapping(start, start + (1 << 20), 0, str(file)) for start in (1 << 30, 2 << 30)]
    read: list[Path] = []
    bias = elf.load_bias
    monkeypatch.setattr(elf, "load_bias", lambda path, *rest: read.append(path) or bias(path, *rest))  # type: ignore[func-returns-value]
    asked: list[int] = []
    monkeypatch.setattr(symbols, "look_up", lambda _, places: asked.append(len(places)) or {})  # type: ignore[func-returns-value]
    found = Symbols(mappings)
    found.learn(each.start + 16 * number for each in mappings for number in range(1, 5001))
    for number in range(1, 5001):
        found.stack([(1 << 30) + 16 * number, (2 << 30) + 16 * number])
    assert len(read) == 2 and len(asked) == 1


def test_a_symbol_of_a_large_table_is_found_at_once(tmp_path: Path) -> None:
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    functions = "".join(f"int function_with_number_{number}(void) {{ return {number}; }}\n" for number in range(20_000))
    (tmp_path / "l.c").write_text(functions + "int last(void) { return absent(); }\n")
    command = [compiler, "-O0", "-w", "-shared", "-fPIC", "l.c", "-o", "l.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    from hakmem_lab.target import elf

    began = time.process_time()
    names = ("last", "number_7", "absent", "function_with_number_7")
    found = {name: elf.symbol(tmp_path / "l.so", name) for name in names}
    assert time.process_time() - began < 1.0
    listed = subprocess.run(["nm", "-D", "l.so"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    for name in ("last", "function_with_number_7"):
        place = re.search(rf"^(\w+) T {name}$", listed, re.MULTILINE)
        assert place and found[name] == int(place[1], 16)
    assert found["number_7"] is None and found["absent"] is None  # the end of another's name; not defined here


def test_a_running_process(program: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "hakmem_lab", "run", "--", str(program), "wait"]
    with killed_after(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        done = hakmem("profile", str(running.pid), "--seconds", "1", "--interval", "64K", "-o", tmp_path / "a.json")
        assert done.returncode == 0, done.stderr
        assert "keeper (known.c:8) < main" in done.stdout
        assert running.poll() is None
    assert json.loads((tmp_path / "a.json").read_text())["totals"]["live"]["objects"] > 0


def test_a_process_that_ends_meanwhile(program: Path) -> None:
    run = [sys.executable, "-m", "hakmem_lab", "run", "--", str(program), "wait"]
    with killed_after(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        work = [*run[:3], "profile", str(running.pid), "--seconds", "600"]
        with killed_after(work, stderr=subprocess.PIPE) as profile:
            assert profile.stderr and b"is profiled for 600 seconds" in profile.stderr.readline()
            running.kill()
            assert profile.wait(timeout=60) == 1
            said = profile.stderr.read().decode()
    wanted = rf"hakmem: process {running.pid} has ended after \S+ of 600 seconds, and its profile with it; it last had "
    assert re.match(wanted, said.replace("\n", " ")), said


@pytest.mark.parametrize("command", ["why", "cold"])
def test_a_process_that_ends_while_it_is_watched(program: Path, command: str) -> None:
    run = [sys.executable, "-m", "hakmem_lab", "run", "--", str(program), "wait"]
    with killed_after(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        work = [*run[:3], command, str(running.pid), "--for", "600"]
        with killed_after(work, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as watching:
            time.sleep(3)
            running.kill()
            assert watching.wait(timeout=60) == 1
            said = watching.stderr.read().decode() if watching.stderr else ""
    assert f"process {running.pid} has ended" in said.replace("\n", " "), said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("profile", "-o", "x.svg"), "x.svg: no format has this ending"),
        (("profile", "-o", "none/x.html"), "none/x.html: there is no folder"),
        (("profile", "-o", "folder.html"), "folder.html is a folder"),
        (("profile", "--kind", "nosuch"), "--kind nosuch: this profile has live, allocated, peak, short"),
        (("profile", "--kind", "pinned"), "--kind pinned: this profile has live, allocated, peak, short"),
        (("leaks", "--suppress", "binary"), "binary: not a text in UTF-8"),
        (("leaks", "--json", "none/x.json"), "none/x.json: there is no folder"),
    ],
)
def test_what_cannot_be_written_is_said_before_the_program_runs(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder.html").mkdir()
    Path("binary").write_bytes(b"leak:\xff\xfe")
    done = hakmem(*arguments, "--", "touch", "ran")
    assert done.returncode == (2 if "this profile has" in said or "no format" in said else 1)
    assert said in done.stderr.replace("\n", " ") and not Path("ran").exists()
    assert "Traceback" not in done.stderr


ONLY_HITS = """
#include <stdlib.h>
extern void *hak_heap_new(const void *options) __attribute__((weak));
extern void *hak_heap_malloc(void *heap, size_t n) __attribute__((weak));
int main(void)
{
#ifdef HEAP
    for (void *volatile p, *heap = hak_heap_new(NULL);;)
        free(p = hak_heap_malloc(heap, 64));
#else
    for (void *volatile p;;)
        free(p = malloc(64));
#endif
}
"""


@pytest.mark.parametrize("of", ["PLAIN", "HEAP"])
def test_a_process_whose_requests_are_all_served_by_the_cache(tmp_path: Path, of: str) -> None:
    """It never takes a slow path, where it would look for requests; afterwards it runs as before."""
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    (tmp_path / "hits.c").write_text(ONLY_HITS)
    subprocess.run([compiler, "-O1", "-fno-builtin", f"-D{of}", "hits.c", "-o", "hits"], cwd=tmp_path, check=True)
    run = [sys.executable, "-m", "hakmem_lab", "run", "--", str(tmp_path / "hits")]
    with killed_after(run) as running:
        deadline = time.monotonic() + 60
        while Path(os.readlink(f"/proc/{running.pid}/exe")).name != "hits" and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
        profiler = Profiler(running.pid)
        table = profiler.live.memory.read(profiler.live.root["profile_bins"], 256)
        for _ in range(2):
            done = hakmem(
                "profile", str(running.pid), "--seconds", "0.3", "--kind", "allocated", "-o", tmp_path / "a.json"
            )
            assert done.returncode == 0, done.stderr
            assert "main" in done.stdout
            assert not profiler.counts
            assert profiler.live.memory.read(profiler.live.root["profile_bins"], 256) == table


PINNING = """
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
enum { COUNT = 200000, EVERY = 10 };
static void *blocks[COUNT], *full[COUNT / 4], *large[64];
static void turns(void)
{
    for (int i = 0; i < 64; i++)
        large[i] = malloc(64 << 10);
    for (int i = 0; i < 64; i++)
        free(large[i]);
    usleep(20000);
}
__attribute__((noinline)) void *survivor(void) { return malloc(240); }
__attribute__((noinline)) void *passing(void) { return malloc(240); }
__attribute__((noinline)) void *dense(void) { return malloc(750); }
int main(int count, char **arguments)
{
    puts("ready"), fflush(stdout);
    while (access(arguments[count - 1], F_OK) != 0)
        turns(); /* here the profile is switched on */
    for (int i = 0; i < COUNT; i++)
        blocks[i] = i % EVERY == 0 ? survivor() : passing();
    for (int i = 0; i < COUNT / 4; i++)
        full[i] = dense();
    for (int i = 0; i < COUNT; i++)
        if (i % EVERY != 0)
            free(blocks[i]);
    for (;;)
        turns();
}
"""


def test_who_keeps_pages_that_are_mostly_free(tmp_path: Path) -> None:
    (tmp_path / "pinning.c").write_text(PINNING)
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    subprocess.run([compiler, "-g", "-O1", "-fno-builtin", "pinning.c", "-o", "pinning"], cwd=tmp_path, check=True)
    run = [sys.executable, "-m", "hakmem_lab", "run", "--", str(tmp_path / "pinning"), str(tmp_path / "begin")]
    files = [part for name in ("a.json", "a.pb.gz", "a.html") for part in ("-o", tmp_path / name)]
    with killed_after(run, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout and running.stdout.readline() == "ready\n"
        wanted = ("--seconds", "5", "--interval", "8K", "--kind", "pinned")
        command = [sys.executable, "-m", "hakmem_lab", "profile", str(running.pid), *wanted, *map(str, files)]
        with killed_after(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as profiled:
            assert profiled.stderr and "is profiled for 5 seconds" in profiled.stderr.readline()
            (tmp_path / "begin").touch()
            said, complaints = profiled.communicate(timeout=120)
    assert profiled.returncode == 0, complaints
    assert "free but resident" in said
    document = json.loads((tmp_path / "a.json").read_text())
    total, live = (document["totals"][kind] for kind in ("pinned", "live"))
    kept = 200_000 / 10 * 256 * 9  # 9 of every 10 blocks are free, and each page has one of the others
    assert 0.6 * kept < total["bytes"] < 1.2 * kept
    (first, *_) = sorted(document["stacks"], key=lambda each: -each["pinned"]["bytes"])
    assert first["frames"][0]["name"] == "survivor"
    assert first["pinned"]["bytes"] > 0.9 * total["bytes"] and first["live"]["bytes"] < 0.25 * live["bytes"]
    assert b"pinned_space" in gzip.decompress((tmp_path / "a.pb.gz").read_bytes())
    page = (tmp_path / "a.html").read_text()
    assert "this profile</span> at" in page and "peak</span> at" in page


def test_what_a_site_pins() -> None:
    sites = [heap_dumps.Site((1,), {"live": (4, 400)}), heap_dumps.Site((2,), {"live": (1, 4000)})]
    profile = Profile(1, sites, [])
    profile.with_spans([heap_dumps.Spans(4096, 10, 500), heap_dumps.Spans(112, 8, 1000), heap_dumps.Spans(96, 9, 7)])
    assert [profile.of(site, "pinned") for site in sites] == [Estimate(4, 500, 0), Estimate(1, 50, 0)]
    profile.interval = 1000
    live, pinned = (profile.of(sites[0], kind) for kind in ("live", "pinned"))
    assert pinned.objects == live.objects and pinned.bytes == pytest.approx(live.objects * 125)
    assert pinned.error / pinned.bytes == pytest.approx(live.error / live.bytes)
    assert profile.of(heap_dumps.Site((3,), {"live": (1, 1 << 20)}), "pinned") == Estimate()
    assert profile.of(heap_dumps.Site((4,), {"live": (0, 0)}), "pinned") == Estimate()


def test_a_profile_outlives_its_process() -> None:
    """After the dump, pinned memory can no longer be determined."""

    class Ended:
        def snapshot(self) -> dict[str, Any]:
            raise LabError("process 1 has ended")

    assert spans_of(cast(Live, Ended())) == []


def test_a_course_of_any_length_stays_short() -> None:
    memory = MemoryOverTime(os.getpid())
    for at in range(5000):
        memory.add(at, 1 << 20)
    assert 200 < len(memory.points) < 1000
    assert memory.points[0][0] == 0 and memory.points[-1][0] > 4900
    with MemoryOverTime(os.getpid()) as memory:
        time.sleep(0.2)
    assert len(memory.points) >= 2 and all(resident > 1 << 20 for _, resident in memory.points)


def test_leaks_are_found_and_suppressed(program: Path, tmp_path: Path) -> None:
    assert hakmem("leaks", "--", program).returncode == 0
    done = hakmem("leaks", "--json", tmp_path / "lost.json", "--", program, "lose")
    assert done.returncode == 23, done.stderr
    assert re.search(r"#0 loser .*known\.c:10\b", done.stderr), done.stderr
    (found,) = json.loads((tmp_path / "lost.json").read_text())
    assert (found["bytes"], found["blocks"]) == (7000, 7)
    (tmp_path / "known.txt").write_text("# known\nleak:los*\nrace:other\n")
    done = hakmem("leaks", "--suppress", tmp_path / "known.txt", "--", program, "lose")
    assert done.returncode == 0, done.stderr
    assert "1 stack suppressed" in done.stdout


@pytest.mark.parametrize(
    ("pattern", "name", "covers"),
    [
        ("lose", "closer", True),
        ("^lose", "closer", False),
        ("lose$", "closer", False),
        ("^c*r$", "closer", True),
        ("a.b", "axb", False),
        ("[x]", "x", False),
    ],
)
def test_suppressions(pattern: str, name: str, covers: bool) -> None:
    assert Suppression(pattern).covers((Frame("other"), Frame(name))) == covers


@pytest.mark.parametrize(
    ("name", "standard"),
    [
        ("void std::vector<int, std::allocator<int> >::_M_realloc_insert<int>(int&&)", True),
        ("std::_Node<shop::Order>* std::_Tree<int>::_M_make<shop::Order>(shop::Order&&)", True),
        ("std::unique_ptr<Order> shop::make<int>(int)", False),
        ("shop::Cache<std::string>::add(std::string const&)", False),
        ("(anonymous namespace)::keep(std::string)", False),
        ("<alloc::vec::Vec<shop::Order> as core::clone::Clone>::clone", True),
        ("<shop::Order as core::clone::Clone>::clone", False),
        ("alloc::raw_vec::finish_grow", True),
        ("alloc", False),
    ],
)
def test_a_standard_library_is_known(name: str, standard: bool) -> None:
    assert symbols.is_standard(name) == standard


@pytest.mark.parametrize(
    ("found", "read"),
    [
        ("shop::inner::h3962de65edfd0c67", "shop::inner"),
        ("shop::Keeper$LT$T$GT$::keep::h44819bb557064a5b", "shop::Keeper<T>::keep"),
        (
            "_$LT$shop..Order$u20$as$u20$core..clone..Clone$GT$::clone::h0123456789abcdef",
            "<shop::Order as core::clone::Clone>::clone",
        ),
        ("shop::hash::h12", "shop::hash::h12"),
        ("shop::Cache<int>::add(int)", "shop::Cache<int>::add(int)"),
    ],
)
def test_names_of_rust(found: str, read: str) -> None:
    assert symbols.readable(found) == read


def test_what_debuginfod_has_fetched(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("objcopy") is None or shutil.which("readelf") is None:
        pytest.skip("no binutils")
    stripped = tmp_path / "known"
    subprocess.run(["objcopy", "--strip-all", program, stripped], check=True)
    notes = subprocess.run(["readelf", "-n", stripped], capture_output=True, text=True, check=True).stdout
    match = re.search("Build ID: ([0-9a-f]+)", notes) or pytest.skip("this compiler writes no build id")
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    assert "keeper" not in hakmem("profile", "--interval", "64K", "--", stripped).stdout
    fetched = tmp_path / "cache" / match[1] / "debuginfo"
    fetched.parent.mkdir(parents=True)
    subprocess.run(["objcopy", "--only-keep-debug", program, fetched], check=True)
    assert "keeper (known.c:8) < main" in hakmem("profile", "--interval", "64K", "--", stripped).stdout
    fetched.write_bytes(b"")  # no server has it
    assert "keeper" not in hakmem("profile", "--interval", "64K", "--", stripped).stdout


def test_estimates() -> None:
    assert heap_dumps.estimate((3, 300), 1) == Estimate(3, 300, 0)
    one = heap_dumps.estimate((100, 100 * 1000), 1000)
    assert one.objects == pytest.approx(158.2, abs=0.1)
    assert one.bytes == pytest.approx(158_198, abs=1)
    assert one.error == pytest.approx(1000 * (100 * 0.36788) ** 0.5 / 0.63212, rel=1e-3)
    assert heap_dumps.estimate((0, 0), 1000) == Estimate()


def made(stacks: int, growth: bool = False) -> formats.Report:
    """A report with `count` distinct stacks."""

    def stack(place: int) -> tuple[Frame, ...]:
        names = ["main", *(f"f{level}_{place // 10**level % 10}" for level in range(5))]
        return tuple(Frame(name, "made.c", 7, "/bin/made") for name in reversed(names))

    values: Samples = {(stack(place), ()): {"live": Estimate(1, 1000 + place, 1e4)} for place in range(stacks)}
    report = formats.Report(values, ("live",), 1000, Profile(1000, [], []))
    half = formats.Report(
        {key: value for key, value in values.items() if hash(key[0][0].name) % 2}, ("live",), 1000, report.profile
    )
    return formats.difference(half, report) if growth else report


def test_a_difference_has_growth() -> None:
    before, after = made(10), made(30)
    grown = formats.difference(before, after)
    assert grown.total("growth").bytes == after.total("live").bytes - before.total("live").bytes
    assert gzip.decompress(formats.pprof(grown)).count(b"growth_space") == 1


def test_wrong_files_are_said(tmp_path: Path) -> None:
    (tmp_path / "x.heap").write_text("heap_v2/nonsense\n")
    done = hakmem("profile", "--diff", tmp_path / "x.heap", tmp_path / "x.heap")
    assert done.returncode == 1
    assert "is not a heap profile" in done.stderr
    head = '{"hakmem_profile":1,"pid":1,"time_ms":1,"peak_ms":1,"missed":0,"leaks_searched":false,"maps":"",'
    site = '"allocated":[1,9],"freed":[0,0],"peak":[1,9],"unreachable":[0,0],"lifetimes":[]'
    for interval, frame in (('"x"', 1), (1, '"y"')):
        (tmp_path / "x.json").write_text(f'{head}"interval":{interval},"sites":[{{"frames":[{frame}],{site}}}]}}')
        with pytest.raises(LabError, match="is not a heap profile"):
            heap_dumps.read(tmp_path / "x.json")


def test_a_dump_that_is_cut_off(tmp_path: Path) -> None:
    whole = "heap_v2/524288\n  t*: 1: 9 [2: 19]\n@ 0x1\n  t*: 1: 9 [2: 19]\n\nMAPPED_LIBRARIES:\n"
    path = tmp_path / "x.heap"
    path.write_text(whole)
    assert len(heap_dumps.read(path).sites) == 1
    for size in (12, 30, whole.index("@"), whole.index("19]\n\n") + 1):
        path.write_text(whole[:size])
        with pytest.raises(LabError, match="is truncated"):
            heap_dumps.read(path)


def test_a_page_of_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    named = tmp_path / "x\udcff.heap"
    named.write_text("heap_v2/524288\n  t*: 0: 0 [0: 0]\n")
    assert hakmem("profile", named, "-o", tmp_path / "x.html").returncode == 0
    assert "x?.heap" in (tmp_path / "x.html").read_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium: './dev setup' installs it")
    driver = shutil.which("chromedriver") or pytest.skip("no chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or pytest.skip("no chromium")
    for switch in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,800"):
        options.add_argument(switch)
    from selenium.webdriver.chrome.service import Service

    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()


def test_a_page_of_many_stacks_opens_and_is_searched(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "many.html").write_text(flame.page(made(50_000), "live", "made"))
    browser.get((tmp_path / "many.html").as_uri())
    took_ms = browser.execute_script(
        "const t = performance.getEntriesByType('navigation')[0]; return t.domComplete - t.responseEnd"
    )
    print(f"page_ms={took_ms:.0f}")
    assert took_ms < 2_000
    browser.find_element("id", "search").send_keys("f4_3")
    assert re.fullmatch(r"1 function found, in stacks with 2\d\.\d\d % of all", browser.find_element("id", "said").text)
    everything = int(browser.find_element("id", "flame").get_attribute("data-drawn"))
    browser.find_element("id", "flame").click()
    browser.find_element("id", "reset").click()
    assert int(browser.find_element("id", "flame").get_attribute("data-drawn")) == everything
    assert everything > 100


def test_a_page_shows_how_long_blocks_lived(browser: Any, tmp_path: Path) -> None:
    quick, slow, kept = ((Frame(name), Frame("main")) for name in ("quick", "slow", "kept"))
    samples: Samples = {(stack, ()): {"live": Estimate(1, 100, 0)} for stack in (quick, slow, kept)}
    ages: dict[formats.Stack, list[float]] = {
        quick: [300.0, 10.0, *[0.0] * 10],
        slow: [0.0, *[1.0] * 2, *[0.0] * 3, 97.0, *[0.0] * 5],
    }
    report = formats.Report(samples, ("live",), 1, Profile(1, [], []), ages)
    (tmp_path / "ages.html").write_text(flame.page(report, "live", "made"))
    browser.get((tmp_path / "ages.html").as_uri())
    browser.find_element("css selector", "#what option[value=lifetime]").click()
    assert browser.find_element("id", "flame").get_attribute("data-drawn") == "4"  # all, main, and two of them
    assert not browser.find_element("id", "kind").is_enabled()
    said = browser.execute_script(
        """const canvas = document.getElementById("flame"), said = [], box = canvas.getBoundingClientRect();
        for (const x of [0.1, 0.9]) {
          const where = { clientX: box.left + x * box.width, clientY: box.top + 2.5 * 18 };
          canvas.dispatchEvent(new MouseEvent("mousemove", where));
          said.push(document.getElementById("said").textContent);
        }
        return said;"""
    )
    assert said == [
        "quick: 310 blocks, 75.79 % of all; half of them lived for up to 1 ms",
        "slow: 99 blocks, 24.21 % of all; half of them lived for up to 4 s",
    ]


def test_a_graph_is_read_by_keys(browser: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    samples: Samples = {
        ((Frame(name), Frame("main")), ()): {"live": Estimate(1, size, 0)}
        for name, size in (("big", 300), ("small", 100))
    }
    report = formats.Report(samples, ("live",), 1, Profile(1, [], []))
    report.profile.memory, report.profile.time_ms = [(0, 1 << 20), (500, 3 << 20), (2000, 2 << 20)], 2000
    (tmp_path / "keys.html").write_text(flame.page(report, "live", "made"))
    browser.get((tmp_path / "keys.html").as_uri())
    canvas, said = browser.find_element("id", "flame"), browser.find_element("id", "said")
    told = []
    for key in (Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_UP):
        canvas.send_keys(key)
        told.append(said.text.partition(":")[0])
    assert told == ["all", "main", "big", "small", "small", "main"]
    canvas.send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert canvas.get_attribute("data-drawn") == "3"  # big alone, below main and all
    canvas.send_keys(Keys.ESCAPE)
    assert canvas.get_attribute("data-drawn") == "4"
    axes = [each.text for each in browser.find_elements("css selector", ".memory .up span, .memory .across span")]
    assert axes == ["3.0 MiB", "0", "0 s", "1 s", "2 s"]


DEPTHS = """
#include <stdlib.h>
static void *volatile sink;
#define CALLS(name) \\
    __attribute__((noinline)) void name(int left) { if (left) name(left - 1); else sink = malloc(5000); sink = sink; }
CALLS(deep)
CALLS(shallow)
int main(void) { deep(100); shallow(20); }
"""


def test_stacks_that_are_cut_off_say_so(compiled: Compiled, tmp_path: Path) -> None:
    """Those of the library's own length, and no others."""
    done = hakmem("profile", "--interval", "1", "-o", tmp_path / "a.heap", "--", compiled("depths", DEPTHS))
    assert done.returncode == 0, done.stderr
    report = formats.named(heap_dumps.read(tmp_path / "a.heap"))
    of = {stack[0].name: (len(stack), stack[-1].name) for stack in report.stacks}
    assert of["deep"] == (limits.FRAMES + 1, f"({limits.FRAMES} frames or more)")
    assert of["shallow"][0] < limits.FRAMES and of["shallow"][1] != of["deep"][1]


@pytest.mark.parametrize("width", [400, 1400])
def test_a_page_fits_and_says_what_is_pointed_at(browser: Any, tmp_path: Path, width: int) -> None:
    """The line of results stays in sight beside a graph deeper than the screen, and the graph stays in place."""
    deep = tuple(Frame(f"a_function_with_a_long_name_{depth}", "made.c", 7) for depth in range(100))
    report = formats.Report({(deep, ()): {"live": Estimate(1, 1, 0)}}, ("live",), 1000, Profile(1000, [], []))
    report.profile.about = "blocks from before are not in it"
    (tmp_path / "deep.html").write_text(flame.page(report, "live", "made"))
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        browser.get((tmp_path / "deep.html").as_uri())
        assert browser.execute_script("return innerWidth") == width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert "blocks from before are not in it" in browser.find_element("tag name", "main").text
        places = browser.execute_script(
            """const canvas = document.getElementById("flame"), said = document.getElementById("said"), found = [];
            for (const depth of [1.5, 60.5]) {
              const before = canvas.offsetTop;
              scrollTo(0, before + (depth - 10) * 18);
              const box = canvas.getBoundingClientRect();
              const where = { clientX: box.left + 50, clientY: box.top + depth * 18 };
              canvas.dispatchEvent(new MouseEvent("mousemove", where));
              const line = said.getBoundingClientRect();
              found.push([said.textContent, line.top, line.bottom, where.clientY, canvas.offsetTop - before]);
            }
            return found;"""
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert [each[0].partition(":")[0] for each in places] == [
        deep[-1].says.partition(":")[0],
        deep[-60].says.partition(":")[0],
    ]
    assert all(0 <= top < bottom < pointed <= 800 and moved == 0 for _, top, bottom, pointed, moved in places), places


def test_generated_code_has_the_names_that_its_runtime_tells(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    told = tmp_path / "tmp" / "perf-42.map"
    told.write_text(
        "1000 20 JS:~old /x.js:1:1\n1000 10 JS:^new /x.js:1:1\n0x2000 0x8 py::outer.inner:/a b/c.py\nno line\n"
        "3000 8 LazyCompile:~new /x.js:1:1\n3010 8 Function:*new /x.js:1:1\n3020 8 Script:~ /x.js:1:1\n"
        "3030 8 Builtin:ArrayMap\n"
    )
    symbols = Symbols([], tmp_path, 42)
    frames = [symbols.stack([address])[0] for address in (0x1001, 0x1010, 0x1011, 0x2008, 0x2009)]
    assert [frame.says for frame in frames[:2]] == ["JS:new /x.js:1:1 (generated code)"] * 2
    assert [frame.says for frame in frames[2:]] == ["0x1011", "outer.inner (c.py)", "0x2009"]
    versions = [symbols.stack([address])[0].name for address in (0x3001, 0x3011, 0x3021, 0x3031)]
    assert versions == ["JS:new /x.js:1:1", "JS:new /x.js:1:1", "JS: /x.js:1:1", "Builtin:ArrayMap"]
    assert Symbols([], tmp_path, 43).stack([0x1001])[0].name == "0x1001"
    if os.geteuid() == 0:
        os.chown(told, 65534, 65534)
        assert Symbols([], tmp_path, 42).stack([0x1001])[0].name == "0x1001"
