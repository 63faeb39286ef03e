#!/usr/bin/env python3
"""Whether the bound of `hakmem worth` holds: the gain of every peer over HAKMEM on real programs of the suite, beside it:

    ./dev bench --worth-bound                        the figures of docs/waste.md; half an hour
    ./dev bench --worth-bound lua --runs 3

All in processor time, which other programs change least. A bound is broken if a peer is shown to gain more than its
upper end: by an interval with which those of all peers and programs hold together (95 %), while those printed hold one
by one."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomllib
from hakmem_lab.decide import statistics
from hakmem_lab.measure import results
from hakmem_lab.target import peers

SUITE = Path(__file__).resolve().parent / "suite"
PROGRAMS = ("lua", "sqlite", "python_json", "python_source")  # of one thread


class Gain(NamedTuple):
    """In %, with its interval."""

    gain: float
    low: float
    high: float
    at_least: float  # below it with a confidence that holds for all comparisons


def commands(names: list[str]) -> dict[str, tuple[list[str], dict[str, str]]]:
    """The suite's command and variables of each program."""
    found = {}
    for case in tomllib.loads((SUITE / "cases.toml").read_text())["case"]:
        if case["name"] in names:
            words = [case["program"], *case["args"]]
            words = [word.format(python=sys.executable, real=SUITE / "real", data="", fresh="") for word in words]
            found[case["name"]] = words, case.get("env", {})
    return found


def hakmem(environment: dict[str, str], *arguments: str) -> dict:
    command = [sys.executable, "-m", "hakmem_lab", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.startswith("{"):
        sys.exit(f"worth_bound: {done.stderr}")
    return json.loads(done.stdout)


def gains(environment: dict[str, str], names: list[str], runs: int, command: list[str], together: float) -> dict[str, Gain]:
    """Each peer's gain over HAKMEM; together: the confidence of `at_least`."""
    with tempfile.TemporaryDirectory(prefix="hakmem-") as folder:
        words = ["--alloc", ",".join(("hakmem", *names)), "--metric", "cpu", "--runs", str(runs), "--json", "--out", folder]
        hakmem(environment, "compare", *words, "--", *command)
        experiment = results.load(next(Path(folder).glob("*.jsonl")))
    values: dict[str, dict[int, float]] = {}
    for run in experiment.runs:
        if run.round > 0:
            values.setdefault(run.label, {})[run.round] = run.value
    ours, found = values["hakmem"], {}
    for name in names:
        rounds = sorted(ours.keys() & values.get(name, {}).keys())
        if len(rounds) > 1:
            ratios = np.array([[np.log(ours[at] / values[name][at]) for at in rounds]])
            each, wider = statistics.intervals(ratios)[0], statistics.intervals(ratios, together)[0]
            found[name] = Gain(each.gain, each.low, each.high, wider.low)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help=f"of the suite (default: {', '.join(PROGRAMS)})")
    parser.add_argument("--runs", type=int, default=5, help="rounds of each command (default: 5)")
    options = parser.parse_args()
    names = [each.name for each in peers.BUILT if each.path.is_file()] + ["system"]
    broken, together = [], 1 - (1 - statistics.CONFIDENCE) / (len(names) * len(options.programs))
    print("| Program | At most | " + " | ".join(names) + " |\n|---|---:|" + "---:|" * len(names), flush=True)
    for program, (command, environment) in commands(options.programs).items():
        bound = hakmem(environment, "worth", "--cpu", "--json", "--runs", str(options.runs), "--", *command)["time"]
        row = gains(environment, names, options.runs, command, together)
        shown = [f"{row[name].gain:+.1f} ({row[name].low:+.1f} .. {row[name].high:+.1f})" if name in row else "" for name in names]
        print(f"| {program} | {bound['gain']:.1f} % ({bound['low']:.1f} .. {bound['high']:.1f}) | {' | '.join(shown)} |", flush=True)
        broken += [f"{program}: {name}" for name, each in row.items() if each.at_least > bound["high"]]
    if broken:
        sys.exit(f"worth_bound: more than the bound: {', '.join(broken)}")


if __name__ == "__main__":
    main()
