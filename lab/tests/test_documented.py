"""The commands of hakmem on the pages: each exists with its options; each one in a block is run and behaves as
shown."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from hakmem_lab.cli import COMMANDS, build_app
from tests.inside import TREE

pytest.importorskip("scipy")
pytest.importorskip("optuna")
pytest.importorskip("google.protobuf")

PAGES = [TREE / "README.md", TREE / "CONTRIBUTING.md", TREE / "SECURITY.md", *sorted((TREE / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"^(?:\$ )?((?:\./dev lab|hakmem) (?!is |0|\d+\.).*?)(?:\s{2,}\S.*|\s+# .*)?$")
JUDGED = (0, 3, 4)  # any verdict: these runs are too short for one

SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *kept[64];
static void *volatile sink;
__attribute__((noinline)) void loser(void) { for (int i = 0; i < 9; i++) sink = malloc(3000); }
__attribute__((noinline)) void clear(void) { volatile char room[16384]; memset((void *)room, 0, sizeof room); }
int main(int count, char **arguments)
{
    for (int i = 0; i < 64; i++)
        kept[i] = malloc(64 << 10);
    loser();
    sink = 0;
    clear();
    while (count > 1 && arguments[1][0] == 'w') {
        free(kept[0]), kept[0] = malloc(64 << 10);
        usleep(1000);
    }
    return 0;
}
"""

SERVER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[2]))) as listening:
    while True:
        with listening.accept()[0] as taken:
            taken.sendall(taken.recv(100))
"""

LOAD = """
import socket, sys, time
for _ in range(50):
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as asked:
        asked.sendall(b"x"), asked.recv(100)
    print(f"took {1000 * (time.perf_counter() - began):.3f} ms")
"""


@dataclass(frozen=True)
class Example:
    """Replacements for the names and amounts in a command, its possible exit statuses, and its output.

    `says`: texts in its output and, if the page shows an output, on the page. "A|B": either is in the output, A on the
    page.
    """

    instead: tuple[tuple[str, str], ...] = ()
    status: tuple[int, ...] = (0,)
    says: tuple[str, ...] = ()
    same: bool = False  # the whole output is the page's


SHORT = (
    ("20000000 40", "200000 40"),
    ("6000000 400", "20000 400"),
    ("1000000 400", "20000 400"),
    ("5000000 400", "200000 400"),
)
# The number of trials ends a search here, not a budget: how much a machine does in seconds is not known.
BUDGET = (("100s", "10m --trials 2"), ("60s", "10m --trials 2"), *SHORT)
TUNED = (
    "settings tried",
    "gain ± 95 % interval, % setting",
    "search: hakmem-results/tune-",
    "page: hakmem-results/tune-|the default stays.",  # by chance no setting is worth a page
)

EXAMPLES = {
    "./dev lab compare -- PROGRAM": Example((("PROGRAM", "./program"),), says=("system", "hakmem")),
    "./dev lab ab --a alloc:system --b alloc:hakmem -- PROGRAM": Example(
        (("PROGRAM", "./program"),), JUDGED, ("gain of B over A",)
    ),
    "./dev lab tune -- PROGRAM": Example(
        (("tune", "tune --budget 10m --trials 2"), ("PROGRAM", "./program")), JUDGED, TUNED[:1]
    ),
    "hakmem translate 'MALLOC_CONF=dirty_decay_ms:5000,narenas:4 ./server'": Example(same=True),
    "hakmem ab --a '' --b 'refil_count=64' -- true": Example(status=(1, 2), same=True),
    "hakmem ab --a '' --b 'refill_count=128' --predict '-5..-1' "
    "-- out/release/bench_random_mixed 20000000 4000": Example(
        SHORT,
        JUDGED,
        (
            "wall time, s (lower is better)",
            "configuration mean median least most CV %",
            "A: as it is",
            "B: refill_count=128",
            "gain of B over A",
            "A against itself",
            "results: hakmem-results/ab-",
            "page: hakmem-results/ab-",
        ),
    ),
    "hakmem ab --save main -- ./program": Example(status=JUDGED),
    # A busy machine may be taken for another one: refused, with the comparison.
    "hakmem ab --against main": Example(status=(*JUDGED, 1), says=("against the baseline, both measured beside",)),
    "hakmem ab --a alloc:system --b '' --ready port:7000 --client './load --port 7000' --latency 'took ([0-9.]+) ms' "
    "-- ./server --port 7000": Example(status=JUDGED, says=("p50",)),
    "hakmem sweep --option l2_ring_cap --values 2,8,24,48,64 --runs 6 --metric 'ops_per_s=([0-9.]+)' "
    "-- out/release/bench_mid_large_mt 2 6000000 400": Example(
        SHORT,
        JUDGED,
        (
            "ops_per_s=([0-9.]+); gain over l2_ring_cap=48",
            "l2_ring_cap median CV % gain % interval, % verdict",
            "48 base",
        ),
    ),
    "hakmem compare -- out/release/bench_random_mixed 20000000 40000": Example(
        SHORT,
        says=(
            "medians; gains over system of paired rounds",
            "gain ± 9",
            "peak MiB memory gain ± 9",
            "system",
            "hakmem",
        ),
    ),
    "hakmem tune --budget 100s --with l2_ring_cap=8 --options l2_ring_cap,refill_count --metric 'ops_per_s=([0-9.]+)' "
    "-- out/release/bench_mid_large_mt 2 1000000 400": Example(BUDGET, JUDGED, TUNED),
    "hakmem tune --budget 60s --options l25_ring_cap --trial-rounds 5 --metric 'ops_per_s=([0-9.]+)' "
    "-- out/release/bench_random_mixed 5000000 400": Example(BUDGET, JUDGED, TUNED),
    "hakmem run --sample run.jsonl --sample-interval 0.1 -- python3 demo/objects.py": Example(same=True),
    "hakmem report run.jsonl": Example(says=("OVER TIME run.jsonl", "MiB resident in", "page: run.html")),
    "hakmem profile -o heap.html -- ./program": Example(),
    "hakmem profile PID --seconds 30 -o heap.pb.gz": Example((("--seconds 30", "--seconds 1"),)),
    "hakmem leaks -- ./program": Example(status=(23,), says=("loser", "lost in")),
    "hakmem profile --diff before.heap after.heap": Example(),
}

# Commands on things that are missing here, and the tests that run them.
ELSEWHERE = {
    "hakmem run --python -- python3 load.py &": "lab/tests/test_waste.py",
    "hakmem waste $!": "lab/tests/test_waste.py",
    "hakmem block 0x16a43b001b83 core": "lab/tests/test_core.py",
    "hakmem run -- ffmpeg -i in.mkv out.mp4": "bench/recipes/works.py",
    "hakmem postmortem /var/tmp/boxes": "tests/golden/test_blackbox.py",
    **dict.fromkeys(
        (
            "hakmem fleet plan --prometheus http://prometheus:9090 --select 'service=\"redis-server\"' --days 14 "
            "-o plan.json",
            "hakmem fleet verdict --prometheus http://prometheus:9090 --plan plan.json",
        ),
        "lab/tests/test_fleet.py",
    ),
    **dict.fromkeys(
        ("hakmem profile core", "hakmem profile 4711 --by tenant --top 3 -o tenants.html"), "lab/tests/test_labels.py"
    ),
    **dict.fromkeys(
        (
            "hakmem profile 14785 --seconds 15 --top 6 -o before.html -o before.heap -o before.pb.gz",
            "hakmem profile 14785 --seconds 15 --top 6 -o after.html -o after.heap",
            "hakmem profile --diff before.heap after.heap --top 4 -o grown.html",
        ),
        "lab/tests/test_profile_programs.py",
    ),
    "hakmem run -- convert in.png -resize 50% out.png": "bench/recipes/works.py",
}


def blocks() -> list[tuple[Path, list[tuple[str, str]]]]:
    """Every block of commands on a page, as [(command, what the page shows of its output)]."""
    found = []
    for page in PAGES:
        for language, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            here: list[tuple[str, str]] = []
            for line in re.sub(r" *\\\n\s*", " ", text).splitlines() if language in ("", "sh") else []:
                match = COMMAND.match(line)
                if match:
                    here.append((match.group(1), ""))
                elif here and not line.startswith("$"):
                    here[-1] = (here[-1][0], here[-1][1] + line + "\n")
            if here:
                found.append((page, here))
    return found


def mentioned() -> list[tuple[str, str]]:
    """Every command of hakmem on a page, in blocks and in the prose: [(page, command)]."""
    found = [(page.name, command) for page, here in blocks() for command, _ in here]
    for page in PAGES:
        prose = BLOCK.sub("", page.read_text(encoding="utf-8"))
        quoted = [" ".join(each.split()) for each in re.findall(r"`([^`]+)`", prose)]
        found += [(page.name, each) for each in quoted if re.match(r"(?:hakmem|\./dev lab) [a-z]", each)]
    return found


@cache
def options_of(command: str, part: str) -> frozenset[str] | None:
    """The options of a command, or of the named one of a group; None: the group has no such command."""
    chosen: Any = typer.main.get_command(build_app(command))
    for name in (command, part):
        if chosen is not None and hasattr(chosen, "get_command"):
            chosen = chosen.get_command(typer.Context(chosen), name)
    if chosen is None:
        return None
    return frozenset(name for option in chosen.params for name in (*option.opts, *option.secondary_opts)) | {"--help"}


def test_every_command_and_option_exists() -> None:
    seen = mentioned()
    assert len(seen) > 60
    wrong = []
    for page, command in seen:
        text = command.removeprefix("./dev lab ").removeprefix("hakmem ").split(" -- ")[0]
        words = re.sub(r"'[^']*'", "TEXT", text).split()
        if words[0] not in COMMANDS:
            wrong.append((page, command))
            continue
        typed = {each.strip("[]").split("=")[0] for each in words[1:] if re.match(r"\[?-+[a-z]", each)}
        known = options_of(words[0], words[1] if len(words) > 1 else "")
        if known is None:
            wrong.append((page, command))
            continue
        wrong += [(page, f"{command}: {each}") for each in sorted(typed - known)]
    assert wrong == []
    assert options_of("fleet", "plan") != options_of("fleet", "verdict") and options_of("fleet", "plans") is None


def test_every_command_of_a_block_is_run() -> None:
    shown = {command for _, here in blocks() for command, _ in here}
    assert shown == EXAMPLES.keys() | ELSEWHERE.keys()
    assert [name for name in ELSEWHERE.values() if not (TREE / name).is_file()] == []


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documented")
    (folder / "program.c").write_text(SOURCE)
    subprocess.run(["cc", "-g", "-O1", "-o", folder / "program", folder / "program.c"], check=True)
    return folder / "program"


@pytest.fixture
def place(compiled: Path, tmp_path: Path, hakmem_library: Path) -> Path:
    """A folder with everything that the commands name."""
    for name, target in (("out/release", hakmem_library.parent), ("demo", TREE / "demo"), ("program", compiled)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    for name, text in (("server", SERVER), ("load", LOAD)):
        (tmp_path / name).write_text(f"#!{sys.executable}\n{text}")
        (tmp_path / name).chmod(0o755)
    return tmp_path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def plain(text: str) -> str:
    """A text independent of its width."""
    return re.sub(r"\s+", " ", text)


Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(place: Path) -> Shell:
    """Runs a line as a user types it, in that folder."""
    (place / "bin").mkdir()
    command = place / "bin" / "hakmem"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hakmem_lab "$@"\n')
    command.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_") or k == "HAKMEM_LIBRARY"}
    environment |= {"PATH": f"{command.parent}:{os.environ['PATH']}", "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}

    def execute(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "-c", line], cwd=place, env=environment, capture_output=True, text=True, timeout=100, check=False
        )

    return execute


@pytest.mark.parametrize(
    "here",
    [pytest.param(here, id=f"{page.stem}-{number}") for number, (page, here) in enumerate(blocks())],
)
def test_the_commands_of_a_block_run(
    here: list[tuple[str, str]], place: Path, compiled: Path, hakmem_library: Path, shell: Shell
) -> None:
    port = str(free_port())
    if any("after.heap" in command for command, _ in here):
        for name in ("before.heap", "after.heap"):
            assert shell(f"hakmem profile -o {name} -- ./program").returncode == 0
    for command, shown in here:
        if command in ELSEWHERE:
            continue
        example = EXAMPLES[command]
        line = command.replace("./dev lab", "hakmem").replace("7000", port)
        for former, new in example.instead:
            line = line.replace(former, new)
        waiting = None
        if " PID" in line:
            waiting = subprocess.Popen([compiled, "wait"], env={"LD_PRELOAD": str(hakmem_library)})
            line = line.replace("PID", str(waiting.pid))
        try:
            done = shell(line)
        finally:
            if waiting is not None:
                waiting.kill()
                waiting.wait()
        said = done.stdout + done.stderr
        assert done.returncode in example.status, said
        if example.same:
            assert said == shown
        for words in example.says:
            either = words.split("|")
            assert any(each in plain(said) for each in either), said
            assert either[0] in plain(shown) or not shown, f"{words} is not in the page's own output of: {command}"
    assert list(place.glob("*.part")) == []
