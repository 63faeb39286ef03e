#!/usr/bin/env python3
"""How often the lab is wrong, and how often it finds what is there, on real programs beside a load that comes and goes:

    ./dev bench --error-rates --experiments 200 --planted 30     the figures of docs/lab.md; an hour
    ./dev bench --error-rates --quick                            some experiments of each kind

Each experiment is one `hakmem ab` of one program. A and B are the same library; where an effect is planted, B does less
work. One that does not decide in ten rounds is made anew with as many rounds as the lab says it needs."""
from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

RUNS = 10
MOST_RUNS = 400  # more than anybody would wait for
LUA = """
local n = 4000 / (1 + (tonumber(os.getenv("PLANT")) or 0) / 100)
for i = 1, n do local t = {} for j = 1, 60 do t[j] = { j, tostring(j) } end end
"""
PYTHON = """
import json, os
rows = [{"name": str(i), "values": list(range(20))} for i in range(200)]
for i in range(round(60 / (1 + float(os.environ.get("PLANT", 0)) / 100))):
    json.loads(json.dumps(rows))
"""
SQL = """
exec sqlite3 :memory: "create table t (a, b); create index i on t (b);
with recursive n (i) as (select 1 union all select i + 1 from n where i < 6000000 / (100 + ${PLANT:-0}))
insert into t select i, 'row ' || (i * 7919 % 100003) from n; select count(distinct b) from t;" """
PROGRAMS = {
    "lua": ["lua5.4", "-e", LUA],
    "python": [sys.executable, "-c", PYTHON],
    "sqlite": ["sh", "-c", SQL],
}
NEEDS = {"lua": "lua5.4", "python": sys.executable, "sqlite": "sqlite3"}


@dataclass
class Tally:
    """The outcomes of the experiments of one kind."""

    words: list[str] = field(default_factory=list)
    gains: list[float] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    busy: int = 0

    def share(self, word: str) -> float:
        return self.words.count(word) / len(self.words)

    def row(self, planted: float) -> str:
        of = len(self.words)
        error = math.sqrt(0.025 * 0.975 / of)
        bound = f"at most {2.5 + 200 * error:.1f} %" if planted == 0 else "at least 80 %"
        mean = sum(self.gains) / of
        rounds = sum(self.rounds) / of
        return (
            f"| {planted:g} % | {of} | {100 * self.share('GO'):.1f} % ({bound}) | {100 * self.share('NO-GO'):.1f} % "
            f"| {mean:+.2f} % | {rounds:.0f} | {self.busy} |"
        )


def disturb(seed: int) -> None:
    """Works and sleeps by turns, for ever."""
    turns = random.Random(seed)
    while True:
        until = time.monotonic() + turns.uniform(0, 0.05)
        while time.monotonic() < until:
            pass
        time.sleep(turns.uniform(0, 0.05))


@contextmanager
def load(processes: int) -> Iterator[None]:
    started = [multiprocessing.Process(target=disturb, args=(seed,), daemon=True) for seed in range(processes)]
    for each in started:
        each.start()
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.join()


def experiment(program: str, planted: float, runs: int, seed: int) -> dict:
    """What the lab says of one."""
    with tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
        # No program reads NOTHING: without a plant both sides are alike.
        other = f"PLANT={planted:g}" if planted else "NOTHING=1"
        command = [sys.executable, "-m", "hakmem_lab", "ab", "--a", "", "--b", other]
        command += ["--runs", str(runs), "--seed", str(seed), "--json", "--out", folder, "--", *PROGRAMS[program]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)
    if done.returncode not in (0, 3, 4):
        sys.exit(f"error_rates: {done.stderr}")
    return json.loads(done.stdout)["comparison"]


def series(programs: list[str], planted: float, count: int, seeds: random.Random) -> Tally:
    tally = Tally()
    for number in range(count):
        program = programs[number % len(programs)]
        found = experiment(program, planted, RUNS, seeds.randrange(1 << 30))
        if planted and found["verdict"] == "INCONCLUSIVE" and found["runs_needed"]:
            more = min(max(found["runs_needed"], RUNS), MOST_RUNS)
            found = experiment(program, planted, more, seeds.randrange(1 << 30))
        tally.words.append(found["verdict"])
        tally.gains.append(found["gain"])
        tally.rounds.append(found["rounds"])
        tally.busy += bool(found["conditions"]["reasons"])
        print(f"{planted:g} %  {program:7} {found['rounds']:4} rounds  {found['gain']:+7.2f} %  {found['verdict']}", flush=True)
    return tally


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200, help="without any difference (default: 200)")
    parser.add_argument("--planted", type=int, default=30, help="with each planted effect (default: 30)")
    parser.add_argument("--effects", default="3,10", help="planted effects in %% (default: 3,10)")
    parser.add_argument("--load", type=int, default=2, help="processes that disturb, each half of the time (default: 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="three experiments of each kind")
    options = parser.parse_args()
    if options.quick:
        options.experiments = options.planted = 3
    programs = [name for name, needed in NEEDS.items() if shutil.which(needed)]
    if len(programs) < len(NEEDS):
        print(f"error_rates: only with {', '.join(programs)}: './dev setup --suite' installs the others", file=sys.stderr)
    seeds = random.Random(options.seed)
    rows = []
    with load(options.load):
        for effect, count in [(0.0, options.experiments)] + [(float(each), options.planted) for each in options.effects.split(",")]:
            if count:
                rows.append(series(programs, effect, count, seeds).row(effect))
    print("\n| Planted | Experiments | GO | NO-GO | Mean gain | Rounds | Said to be busy |\n|---|---:|---:|---:|---:|---:|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
