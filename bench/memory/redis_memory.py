#!/usr/bin/env python3
"""What Redis holds, on the allocator whose library $SUITE_PRELOAD names (unset: the C library's).

  redis_memory.py build              builds it, some minutes
  redis_memory.py save KEYS WRITES   copied_kb: what BGSAVE's child and its parent copy while the parent replaces WRITES values
  redis_memory.py defrag KEYS        before_mib, after_mib: resident after two thirds of the keys are deleted at random, and once active
                                     defragmentation has ended; moved: blocks that it has moved; live_mib: what the keys need

Redis comes from the distribution's source package (7.0.15 in Debian 12), and is built on the C library's malloc, where the other
libraries take its place: redis_defrag.patch has its defragmentation ask hak_is_sparse where there is one. Other allocators have nothing
to ask, so they show what stays. In place of a preloaded jemalloc 5.3.1, `defrag` takes Redis with the jemalloc in it, 5.2.1 with a hint.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path += [str(ROOT / "lab" / "src"), str(ROOT / "tools")]
sys.dont_write_bytecode = True

from hakmem_lab.target import peers
from package_common import ENTER

PERCENT, CHUNK, SEED, PATIENCE_S, CALM = 90, 500, 1, 300, 4
SAVE_DELAY_US = 100   # for each key that the child saves, so that all writes fall into its life


SERVERS = {malloc: peers.folder() / f"redis-{malloc}" / "src" / "redis-server" for malloc in ("libc", "jemalloc")}


def of_suites(module: str):
    """A module of the tests that run other programs' suites; others here have the same names."""
    sys.path.insert(0, str(ROOT / "tests" / "suites"))
    return importlib.import_module(module)


def build(malloc: str) -> None:
    """redis-server on the C library's malloc, or with its own jemalloc."""
    folder, work = SERVERS[malloc].parent, peers.folder() / "redis-source"
    work.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder.parent, ignore_errors=True)
    shutil.copytree(of_suites("sources").Archive(work).source("redis"), folder.parent, symlinks=True)
    subprocess.run(["patch", "-s", "-p1", "-i", HERE / "redis_defrag.patch"], cwd=folder.parent, check=True)
    # Debian's sources take the system's jemalloc where this is equal to `yes`, which is not defined: 0, as long as it is not itself.
    flags = f"-DHAKMEM_PERCENT={PERCENT} -I{ROOT / 'include'}" if malloc == "libc" else "-DUSE_SYSTEM_JEMALLOC=1"
    with (folder.parent / "log").open("wb") as log:
        subprocess.run(["make", "-j2", f"MALLOC={malloc}", f"REDIS_CFLAGS={flags}", "redis-server"], cwd=folder, stdin=subprocess.DEVNULL,
                       stdout=log, stderr=log, check=True)


class Server:
    """A server that writes nothing but its snapshots, and a connection to it."""

    def __init__(self, executable: Path, library: str, folder: Path):
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "SUITE_PRELOAD")}
        environment.update({"LD_PRELOAD": library} if library else {})
        root, inside = environment.pop("MEMORY_ROOT", ""), folder
        if root:   # of the system whose C library serves
            inside = Path("/") / folder.relative_to(root)
            (Path(root) / executable.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(executable, Path(root) / executable.relative_to("/"))
        self.process = subprocess.Popen(
            [*((*ENTER, root) if root else ()), executable, "--port", "0", "--unixsocket", str(inside / "socket"), "--dir", str(inside),
             "--save", "", "--hz", "100", "--enable-debug-command", "yes"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.wait_for((folder / "socket").exists)
        if library and library not in Path(f"/proc/{self.process.pid}/maps").read_text(encoding="utf-8"):
            raise SystemExit(f"redis-server did not load {library}")
        self.client = of_suites("redis_soak").Client(folder / "socket")

    def wait_for(self, condition) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("redis-server has ended, or is too late")
            time.sleep(0.05)

    def ask(self, *words: object) -> bytes:
        return self.client.pipeline([words])[0]

    def ask_all(self, commands: list[tuple[object, ...]]) -> None:
        for first in range(0, len(commands), CHUNK):
            self.client.pipeline(commands[first : first + CHUNK])

    def info(self, section: str, field: str) -> str:
        lines = self.ask("INFO", section).decode().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(field + ":"))

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def live_mib(self) -> float:
        return int(self.info("memory", "used_memory")) / (1 << 20)

    def settled_mib(self) -> float:
        """What is resident once that no longer falls: allocators give back after a while, and some only while they are called."""
        seen = [self.resident_mib()]
        while len(seen) < CALM + 1 or seen[-CALM - 1] - seen[-1] > 0.1:
            time.sleep(1)
            self.ask("PING")
            seen.append(self.resident_mib())
        return seen[-1]


def value(rng: random.Random, key: int) -> bytes:
    return bytes([65 + key % 26]) * rng.randrange(16, 400)


def fill(server: Server, rng: random.Random, keys: int) -> None:
    server.ask_all([("SET", f"key:{i}", value(rng, i)) if i % 8 else ("HSET", f"key:{i}", *(word for field in range(4) for word in (field, value(rng, i))))
                    for i in range(keys)])


def save(server: Server, keys: int, writes: int) -> str:
    rng = random.Random(SEED)
    fill(server, rng, keys)
    server.ask("CONFIG", "SET", "rdb-key-save-delay", SAVE_DELAY_US)
    server.ask("BGSAVE")
    server.ask_all([("SET", f"key:{rng.randrange(keys) | 1}", value(rng, i)) for i in range(writes)])
    if server.info("persistence", "rdb_bgsave_in_progress") != "1":
        raise SystemExit("the child has ended before the writes")
    server.wait_for(lambda: server.info("persistence", "rdb_bgsave_in_progress") == "0")
    if server.info("persistence", "rdb_last_bgsave_status") != "ok":
        raise SystemExit("the child has not saved")
    return f"copied_kb={int(server.info('persistence', 'rdb_last_cow_size')) // 1024} live_mib={server.live_mib():.1f}"


def defrag(server: Server, keys: int, has_hint: bool) -> str:
    rng = random.Random(SEED)
    fill(server, rng, keys)
    doomed = [i for i in range(keys) if rng.randrange(3)]
    rng.shuffle(doomed)
    server.ask_all([("DEL", f"key:{i}") for i in doomed])
    live = server.ask("DEBUG", "DIGEST")
    before = server.settled_mib()
    if has_hint:
        for name, setting in (("cycle-min", 65), ("cycle-max", 75), ("ignore-bytes", "2mb")):
            server.ask("CONFIG", "SET", f"active-defrag-{name}", setting)
        server.ask("CONFIG", "SET", "activedefrag", "yes")
        calm: list[bool] = []
        while len(calm) < 40 or not all(calm[-40:]):   # it decides once a second whether to go on
            time.sleep(0.05)
            calm.append(server.info("memory", "active_defrag_running") == "0")
            if len(calm) > PATIENCE_S * 20:
                break
    after = server.settled_mib()
    if server.ask("DEBUG", "DIGEST") != live:
        raise SystemExit("defragmentation has changed the data")
    moved, missed = (int(server.info("stats", f"active_defrag_{name}")) for name in ("hits", "misses"))
    return f"before_mib={before:.1f} after_mib={after:.1f} moved={moved} asked={moved + missed} live_mib={server.live_mib():.1f}"


def main(words: list[str]) -> int:
    if {"build": 1, "save": 3, "defrag": 2}.get(words[0] if words else "") != len(words):
        print(__doc__, file=sys.stderr)
        return 2
    if words[0] == "build":
        try:
            for malloc in SERVERS:
                build(malloc)
        except (of_suites("outcome").Skip, subprocess.CalledProcessError) as error:
            raise SystemExit(f"redis cannot be built: {error}") from error
        return 0
    library = os.environ.get("SUITE_PRELOAD", "")
    own_jemalloc = words[0] == "defrag" and "jemalloc5" in library
    executable = SERVERS["jemalloc" if own_jemalloc else "libc"]
    with tempfile.TemporaryDirectory(prefix="hakmem-", dir=f"{os.environ.get('MEMORY_ROOT', '')}/tmp") as name:
        server = Server(executable, "" if own_jemalloc else library, Path(name))
        try:
            found = (save(server, int(words[1]), int(words[2])) if words[0] == "save" else
                     defrag(server, int(words[1]), own_jemalloc or "libhakmem" in library))
        finally:
            server.process.kill()
            server.process.wait()
    print(f"redis_memory {found}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
