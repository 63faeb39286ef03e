#!/usr/bin/env python3
# test: cost=40
"""HAKMEM_MISUSE=report: programs that make mistakes go on, and what they say of it.

    run.py LIBRARY FOLDER model|programs|file|places|strays|kept

model: the program that makes mistakes beside right calls and verifies all its memory (model.c), in the modes of the library; it must end
with 0, and the statistics have counted as many mistakes as it made. programs: each program of tests/misuse, which must end with 0 and
report what it otherwise ends by, but for those that end by a fault of their own. file: where the reports go, one per place in the
program and at most 30 a minute. places: what is one place although mistakes there look different (places.c). strays: blocks of the C library's malloc go there (strays.c).
"""
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from emulated import FACTOR, of_program, on_library

HERE = pathlib.Path(__file__).resolve().parent
MODES = ({}, {"HAKMEM_HARDEN": "1"}, {"HAKMEM_SAMPLE_GUARDS": "10"}, {"HAKMEM_PROFILE": "ready", "HAKMEM_STATS": "exact"},
         {"HAKMEM_PROFILE": "1", "HAKMEM_PROFILE_INTERVAL": "4096"}, {"HAKMEM_HARDEN": "1", "HAKMEM_SAMPLE_GUARDS": "10"},
         {"HAKMEM_LIMIT": "2G", "HAKMEM_BACKGROUND": "1"})
FAULTS = ("crash_", "hardened_use_after_free_", "hardened_read_after_free", "hardened_overflow_2m", "sampled_use_after_free", "option_")


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(library, command, folder, **settings):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    command, env = on_library(library, command, env | {"HAKMEM_MISUSE": "report"} | settings)
    done = subprocess.run(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=300 * FACTOR, check=False,
                          preexec_fn=without_cores)
    return done.returncode, done.stdout.decode(errors="replace"), of_program(done.stderr.decode(errors="replace"))


def model(library, folder):
    for number, mode in enumerate(MODES):
        with tempfile.TemporaryDirectory() as place:
            status, out, said = run(library, [folder / "canary", "1.5", "4", str(number), "heaps"], place, **mode)
        fine = re.fullmatch(r"fine: ([0-9]+) mistakes, ([0-9]+) counted\n", out)
        print(mode, out.strip())
        if status != 0 or fine is None or fine[1] != fine[2]:
            yield f"{mode}: status {status}, {out!r}, {said[-2000:]}"


def expectation(source):
    text = source.read_text(encoding="utf-8")
    env = dict(line.partition("=")[::2] for line in re.findall(r"^// env: (.*)$", text, re.M))
    first = re.search(r"^// expect: (.*)$", text, re.M)[1]
    return env, first.partition(r"\n")[0].removesuffix("(?:")


def programs(library, folder):
    sources = [each for each in HERE.parent.glob("*.c*") if not each.name.startswith(FAULTS)]
    for source in sorted(sources):
        env, _ = expectation(source)
        status, _, said = run(library, [folder / source.stem], folder, **env)
        found_at_exit = "exit" in source.stem
        if status != 0 or not ("survived (HAKMEM_MISUSE=report)" in said or (found_at_exit and "at exit: " in said)):
            yield f"{source.name}: status {status}: {said}"
    print(f"{len(sources)} programs")


def file(library, folder):
    again = [folder / "canary", "1", "2", "5"]
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        status, _, said = run(library, again, place, HAKMEM_MISUSE=f"report:{place}/%p.txt", HAKMEM_STATS=f"json:{place}/stats.json")
        reports = {each.stem: each.read_text(encoding="utf-8") for each in place.glob("*.txt")}
        counts = json.loads((place / "stats.json").read_text(encoding="utf-8"))["misuse"]
        blocks = [text.split("hakmem: ")[1:] for text in reports.values()]
        if status != 0 or said or not reports or not all(key.isdigit() for key in reports):
            yield f"a file for each process: status {status}, {said}, {sorted(reports)}"
        said_of = [[line for line in lines if line.startswith("  survived")] for lines in blocks]
        if not 1 <= counts["reported"] <= 30 or all(len(each) != counts["reported"] for each in said_of):
            yield f"{counts} reported, in files {[len(each) for each in said_of]}"
        for text in reports.values():
            places = [(re.sub(r"0x[0-9a-f]+|[0-9]+", "", each.partition("\n")[0]), *re.findall(r"^hakmem:     #\d+ (0x\w+)", each.partition("allocated by")[0], re.M))
                      for each in re.split(r"^(?=hakmem: \w)", text, flags=re.M) if each]
            if len(set(places)) < len(places):
                yield f"a place was reported twice: {max(places, key=places.count)}"
        if sum(counts.values()) - counts["reported"] < 100:
            yield f"few mistakes: {counts}"
        status, out, said = run(library, again, place, HAKMEM_MISUSE=f"report:{place}/none/file")
        if status != 0 or not re.fullmatch(rf"(hakmem: reports of misuse cannot be written to {place}/none/file \(error 2\)\n)+", said):
            yield f"a folder that is not there: status {status}, {out!r}, {said!r}"
        status, out, said = run(library, [folder / "free_stack"], place, HAKMEM_MISUSE="report:/dev/full")
        if status != 0 or not re.fullmatch(r"hakmem: reports of misuse cannot be written to /dev/full \(error 28\)\n", said):
            yield f"a full disk: status {status}, {out!r}, {said!r}"


def places(library, folder):
    status, out, said = run(library, [folder / "places"], folder)
    made, counted = (int(number) for number in re.findall(r"[0-9]+", out)) if status == 0 else (0, -1)
    reports = said.count("survived (HAKMEM_MISUSE=report)")
    print(f"{made} mistakes, {counted} counted, {reports} reported")
    if made != counted or reports > 1 + 2:  # a recursion's end may be out of sight
        yield f"status {status}, {out!r}, {said}"


def strays(library, folder):
    for mode in ({}, {"HAKMEM_HARDEN": "1"}):
        status, out, said = run(library, [folder / "strays"], folder, **mode)
        if status != 0 or out != "fine\n" or "a block of the C library's malloc" not in said:
            yield f"{mode}: status {status}, {out!r}, {said[-400:]}"


def kept(library, folder):
    for size in (100, 9000, 20000, 40000, 56000):
        status, out, said = run(library, [folder / "kept", str(size)], folder)
        if (status, out) != (0, "fine\n"):
            yield f"{size}: status {status}, {out!r}, {said[-400:]}"


def main():
    library, folder, part = sys.argv[1:]
    problems = list({"model": model, "programs": programs, "file": file, "places": places, "strays": strays, "kept": kept}[part](library, pathlib.Path(folder)))
    print(f"{len(problems)} not as expected", *problems, sep="\n  ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
