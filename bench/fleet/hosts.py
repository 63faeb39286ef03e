#!/usr/bin/env python3
"""A fleet of real servers: Redis, nginx, a Python and a Rust service on four hosts each, judged by `hakmem fleet verdict` and
by `hakmem ab`.

  hosts.py                       all of it, in ten minutes of light load

A host is a process namespace with one server and hakmem-exporter, from which a real Prometheus scrapes each second. First all hosts
run on the allocators that they come with; the plan draws half of them; all are restarted, those with HAKMEM. Plans and verdicts count
in days, so the recorded samples go into a second Prometheus two hours apart: twelve scrapes are a day."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import real
import services
from hakmem_lab.fleet import plan, verdict
from hakmem_lab.fleet.prometheus import DAY_S

ROOT = Path(__file__).resolve().parents[2]
EXPORTER, LIBRARY = ROOT / "rust/target/release/hakmem-exporter", ROOT / "out/release/libhakmem.so"
SERVICES, EACH, FIRST_PORT = ("redis", "nginx", "python", "rust"), 4, 17000
DAYS, PER_DAY, STEP_S = 7, 12, 7200
NEEDED = ("redis-server", "nginx", "prometheus", "promtool", "rustc", "unshare", str(EXPORTER))
SELECT = 'service!="hakmem-exporter"'
# What ab measures of a server.
PROPORTIONAL = "proportional memory=avg_over_time((sum by ($host) (hakmem_process_proportional_bytes{$select}))[$day:$step])"


# --- the fleet --------------------------------------------------------------------------------------------------------


def hosts() -> list[tuple[str, int, int]]:
    """Service, port and keys of each host; the exporter's port is the next one."""
    of = random.Random(1)
    return [(service, FIRST_PORT + 2 * (EACH * i + j), of.randrange(services.KEYS * 2 // 3, services.KEYS * 4 // 3))
            for i, service in enumerate(SERVICES) for j in range(EACH)]


@contextlib.contextmanager
def running(folder: Path, treated: set[str]) -> Iterator[None]:
    """All hosts; `treated` are the instances on HAKMEM."""
    started = []
    for service, port, _ in hosts():
        name = f"127.0.0.1:{port + 1}"
        script = f'"{EXPORTER}" --listen {name} & exec env {f"LD_PRELOAD={LIBRARY} " if name in treated else ""}"$@"'
        words = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh", *services.command(service, port, folder)]
        started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder))
    try:
        for _, port, _ in hosts():
            wait_for(port)
            wait_for(port + 1)
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def wait_for(port: int) -> None:
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def recorded(folder: Path, treated: set[str]) -> list[dict]:
    """Runs the fleet for DAYS after its servers are filled; the scraped series, their times as numbers of scrapes."""
    folder.mkdir()
    targets = [f"127.0.0.1:{port + 1}" for _, port, _ in hosts()]
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
              "scrape_configs": [{"job_name": "fleet", "static_configs": [{"targets": targets}]}]}
    count = DAYS * PER_DAY

    async def load(url: str) -> list[dict]:
        filled = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(services.client(*host, 3600, filled)) for host in hosts()]
        for _ in tasks:
            await filled.acquire()
        await asyncio.sleep(2)
        began = time.time()
        await asyncio.sleep(count + 3)
        for each in tasks:
            each.cancel()
        asked = {"query": f'{{__name__=~"hakmem_process_.*|hakmem_exporter_build"}}[{count}s]', "time": f"{began + count:.3f}"}
        with urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode(asked)}") as answer:
            found = json.load(answer)["data"]["result"]
        return [each | {"values": {min(int(float(at) - began), count - 1): value for at, value in each["values"]}} for each in found]

    with running(folder.parent, treated), real.serving(folder, config=json.dumps(config)) as url:
        return asyncio.run(load(url))


def backfilled(found: list[dict], folder: Path, first: int) -> None:
    """Puts the series, STEP_S apart, into the Prometheus of this folder."""
    families: dict[str, list[str]] = {}
    for each in found:
        name = each["metric"].pop("__name__")
        head = name + "{" + ",".join(f'{label}="{value}"' for label, value in each["metric"].items()) + "}"
        lines = families.setdefault(name, [])
        lines += [f"{head} {value} {first + (number + 1) * STEP_S}\n" for number, value in each["values"].items()]
    path = folder / "samples.om"
    with path.open("w", encoding="ascii") as file:
        for name, lines in families.items():
            file.write(f"# TYPE {name.removesuffix('_total')} {'counter' if name.endswith('_total') else 'gauge'}\n")
            file.writelines(lines)
        file.write("# EOF\n")
    real.import_into_prometheus(path, folder)


# --- both verdicts ----------------------------------------------------------------------------------------------------


def lab(folder: Path, *words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "hakmem_lab", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3, 4):
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def of_ab(folder: Path, runs: int) -> dict[str, float]:
    """By service the share of peak memory that HAKMEM saves, in %."""
    cases = []
    for i, service in enumerate(SERVICES):
        port = FIRST_PORT + 900 + i
        asked = f"{sys.executable} {services.__file__} client {service} {port}"
        cases.append(f"[[case]]\nname = {json.dumps(service)}\ncommand = {json.dumps(services.command(service, port, folder))}\n"
                     f'client = {json.dumps(asked)}\nready = "port:{port}"\nmetric = "rss"\n')
    (folder / "cases.toml").write_text("\n".join(cases))
    text = lab(folder, "ab", "--a", "alloc:system", "--b", "alloc:hakmem", "--library", str(LIBRARY), "--runs", str(runs), "--warmup", "0",
               "--no-noise-check", "--cases", "cases.toml", "--json")
    return {name: 100 - 100 / (1 + each["gain"] / 100) for name, each in json.loads(text)["outcome"]["comparisons"].items()}


def levels(found: list[dict]) -> dict[str, float]:
    """Mean proportional bytes of each host's server."""
    return {each["metric"]["instance"]: float(np.mean([float(value) for value in each["values"].values()])) for each in found
            if each["metric"]["__name__"] == "hakmem_process_proportional_bytes" and each["metric"]["service"] != "hakmem-exporter"}


def of_fleet(folder: Path) -> tuple[verdict.FleetVerdict, dict[str, float], dict[str, float]]:
    """The verdict; by service the gain in %, and MiB without HAKMEM."""
    start = int(time.time()) // DAY_S * DAY_S - DAYS * DAY_S
    before = recorded(folder / "before", set())
    first = levels(before)
    backfilled(before, folder, start - DAYS * DAY_S)
    asked = ["--select", SELECT, "--stratum", "service", "--days", str(DAYS), "--history", str(DAYS), "--looks", "end", "--seed", "1",
             "--step", f"{STEP_S // 3600}h", "--start", time.strftime("%Y-%m-%d", time.gmtime(start)), "--target", PROPORTIONAL,
             "-o", "plan.json"]
    with real.serving(folder) as url:
        print(lab(folder, "fleet", "plan", "--prometheus", url, *asked))
    made = plan.Plan.model_validate_json((folder / "plan.json").read_text())
    treated = {each.name for each in made.hosts if each.arm == "hakmem"}
    after = recorded(folder / "after", treated)
    last = levels(after)
    backfilled(after, folder, start)
    with real.serving(folder) as url:
        asked = ["--prometheus", url, "--plan", "plan.json"]
        print(lab(folder, "fleet", "verdict", *asked))
        found = verdict.FleetVerdict.model_validate_json(lab(folder, "fleet", "verdict", *asked, "--json"))
    gains, sizes = {}, {}
    for service in SERVICES:
        names = [f"127.0.0.1:{port + 1}" for of, port, _ in hosts() if of == service]
        change = {name: math.log(last[name] / first[name]) for name in names}
        on, off = ([change[name] for name in names if (name in treated) == side] for side in (True, False))
        gains[service] = -100 * math.expm1(float(np.mean(on) - np.mean(off)))
        sizes[service] = float(np.mean([last[name] for name in names if name not in treated])) / (1 << 20)
    return found, gains, sizes


def table(runs: int) -> None:
    with tempfile.TemporaryDirectory(prefix="hakmem-servers-") as name:
        folder = Path(name)
        subprocess.run(["rustc", "-O", str(Path(__file__).with_name("service.rs")), "-o", str(folder / "service")], check=True)
        found, gains, sizes = of_fleet(folder)
        by_ab = of_ab(folder, runs)
    print("| Service | MiB without | saved, fleet | saved, ab |\n|---|--:|--:|--:|")
    for service in SERVICES:
        print(f"| {service} | {sizes[service]:.1f} | {gains[service]:+.1f} % | {by_ab[service]:+.1f} % |")
    row = next(each for each in found.rows if each.metric == "proportional memory")
    mean = -100 * math.expm1(float(np.mean([math.log1p(-each / 100) for each in by_ab.values()])))
    print(f"| all: {row.word} | | {row.gain:+.1f} % ({row.low:+.1f} .. {row.high:+.1f}) | {mean:+.1f} % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4, help="rounds of hakmem ab")
    asked = parser.parse_args()
    lacking = [each for each in NEEDED if not shutil.which(each)]
    if lacking or not LIBRARY.exists():
        sys.exit(f"not here: {', '.join(lacking) or LIBRARY}")
    table(asked.runs)


if __name__ == "__main__":
    main()
