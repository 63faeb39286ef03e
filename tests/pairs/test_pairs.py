#!/usr/bin/env python3
"""Features of the library, each with each other one, under threads with a model beside them (pairs.c): contents, sizes, whose a block
is, a heap's figures, memory at the end, no hang. By hand, with HAK_TEST_LIB=.../libhakmem.so:

    test_pairs.py                            every pair for a moment, and some triples
    HAK_TEST_LONG=1 test_pairs.py            every pair for longer, and many triples
    HAK_PAIRS="fork profile" test_pairs.py   these features alone, for 10 s, or HAK_PAIRS_COUNT times

HAK_PAIRS_SECONDS is how long each set runs. Each has a seed of its own, counted on from HAK_PAIRS_SEED (1), which also draws the
triples; it is told with what went wrong. The threads' order differs from run to run, so the same seed may need some runs."""
# test: timeout=900 cost=120
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
LONG = os.environ.get("HAK_TEST_LONG", "0") not in ("", "0")
SEED = int(os.environ.get("HAK_PAIRS_SEED", "1"))
PLUGIN = """
#include <stdlib.h>
static void *block;
__attribute__((constructor)) static void opened(void) { block = malloc(300); }
__attribute__((destructor)) static void closed(void) { free(block); }
"""

# Features of the program's own.
ACTS = ["heap", "default", "merge", "region", "bounded", "protect", "fork", "handler", "restart", "ends", "trim", "load", "profile", "space", "data", "cut", "huge", "move"]
# Features that the environment switches on. FOLDER is a folder of the run.
MODES = {
    "profiled": {"HAKMEM_PROFILE": "1:FOLDER/p"},
    "every": {"HAKMEM_PROFILE": "1:FOLDER/p", "HAKMEM_PROFILE_INTERVAL": "1"},
    "guards": {"HAKMEM_SAMPLE_GUARDS": "20"},
    "hardened": {"HAKMEM_HARDEN": "1"},
    "exact": {"HAKMEM_STATS": "exact"},
    "check": {"HAKMEM_CHECK": "40"},
    "limit": {"HAKMEM_LIMIT": "300M"},
    "background": {"HAKMEM_BACKGROUND": "1", "HAKMEM_PURGE_DELAY": "20ms"},
    "eager": {"HAKMEM_PURGE_DELAY": "0"},
}
# What cannot be asked of both at once, and what shows nothing in a short run.
AGAINST = [{"space", "data"}, {"cut", "hardened"}, {"every", "profiled"}, {"eager", "background"}, {"every", "cut"}, {"handler", "restart"}]


def build(folder):
    compiler = os.environ.get("CC", "cc")
    flags = ["-O1", "-fno-builtin", "-pthread", "-I", str(HERE.parent.parent / "include")]
    (folder / "plugin.c").write_text(PLUGIN, encoding="ascii")
    subprocess.run([compiler, "-fPIC", "-shared", str(folder / "plugin.c"), "-o", str(folder / "plugin.so")], check=True)
    subprocess.run([compiler, *flags, str(HERE / "pairs.c"), *map(str, (LIBRARY.with_name("libhakmem-region.so"), LIBRARY)),
                    f"-Wl,-rpath,{LIBRARY.parent}", "-ldl", "-o", str(folder / "pairs")], check=True)


def run(folder, features, seconds, seed):
    """None, or what went wrong."""
    place = pathlib.Path(tempfile.mkdtemp(dir=folder))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_"))}
    for feature in features:
        env.update({name: value.replace("FOLDER", str(place)) for name, value in MODES.get(feature, {}).items()})
    env["PAIRS_PLUGIN"] = str(folder / "plugin.so")
    command = [str(folder / "pairs"), str(seconds), str(seed), *(name for name in features if name in ACTS)]
    with open(place / "stderr", "w+", encoding="utf-8", errors="replace") as said_there:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said_there, cwd=place,
                                   start_new_session=True)
        try:
            code = process.wait(seconds * 10 + 60)
        except subprocess.TimeoutExpired:
            code = "no end"
        with contextlib.suppress(ProcessLookupError):   # children that hang
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        said_there.seek(0)
        said = said_there.read()
    shutil.rmtree(place)
    if code == 0:
        return None
    lines = [line for line in said.splitlines() if "exact" not in features or line.startswith("wrong") or "():" in line]
    return f"{' '.join(features) or 'plain'} (seed {seed}): {code}; " + " | ".join(lines[-4:])


def fits(features):
    return not any(pair <= set(features) for pair in AGAINST)


def chosen():
    """Sets of features, and how long each runs."""
    everything = ACTS + list(MODES)
    pairs = [pair for pair in itertools.combinations(everything, 2) if fits(pair)]
    draw = random.Random(SEED)
    triples = [triple for triple in itertools.combinations(everything, 3) if fits(triple)]
    if LONG:
        return pairs + draw.sample(triples, 400), 3.0
    quick = [pair for pair in pairs if "cut" not in pair]
    return [("cut",), ("cut", "heap"), *quick, *draw.sample([triple for triple in triples if "cut" not in triple], 25)], 0.3


def main():
    sets, seconds = chosen()
    if "HAK_PAIRS" in os.environ:
        sets = [tuple(os.environ["HAK_PAIRS"].split())] * int(os.environ.get("HAK_PAIRS_COUNT", "1"))
        seconds = 10.0
    seconds = float(os.environ.get("HAK_PAIRS_SECONDS", seconds))
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        build(folder)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(run, folder, features, seconds, SEED + at) for at, features in enumerate(sets)]
            wrong = 0
            for job in concurrent.futures.as_completed(jobs):
                if job.result() is not None:
                    wrong += 1
                    print(job.result(), flush=True)
    print(f"sets={len(sets)} wrong={wrong} seconds={time.monotonic() - started:.0f}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
