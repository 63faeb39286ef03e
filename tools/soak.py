#!/usr/bin/env python3
"""The soak: runs the long form of every test, as tests/soak.ini lists them, and writes tests/soak.txt and from it docs/compatibility.md.

    ./dev soak [--hours H] [--quick] [--only PATTERN]... [--list] [--fresh] [--report] [--again]

--hours H    everything scaled to about H hours; the quantities that the documents name are those of the list's own
             number of hours (see tests/soak.ini)
--quick      every part, in its shortest form: shows in some minutes that all of them start; its report stays in out/
--only P     only items whose name matches (with * and ?); repeatable; tests/soak.txt is not written
--list       what would run, and how long it would take
--report     write the report again from the results
--fresh      forget the results so far; --again: only those of items that have failed

A soak that was interrupted goes on where it stopped, at the same commit with the same hours. Results are in
out/soak/state.json (--quick: quick.json), the output of each item beside them. Exit status 0: nothing failed.
"""
import argparse
import configparser
import dataclasses
import fnmatch
import functools
import json
import os
import pathlib
import platform
import re
import shlex
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WRITTEN = ("tests/soak.txt", "docs/compatibility.md")   # from a soak's results
SKIPPED = 77
NAMED_VALUE = re.compile(r"\b\w+=\S+")
KEYS = {"tests", "command", "builds", "environment", "seconds", "quick_seconds", "amount", "quick_amount", "stride",
        "quick_stride", "takes", "quick_takes", "quick", "each", "figure", "what"}


class Mistake(Exception):
    """Something that the person has to put right; its text says what."""


# --- the list ---------------------------------------------------------------------------------------------------------

@dataclasses.dataclass
class Item:
    """One line of the report: some tests, or a command, in one build."""

    name: str
    build: str
    what: str
    tests: str            # a pattern; empty: there is a command
    command: str
    environment: str
    figure: str
    each: bool            # every test is an item of its own, and takes what is said here
    values: dict          # seconds, amount, stride: what this soak asks for
    expected: float       # seconds

    @property
    def key(self):
        return f"{self.name} @ {self.build}"

    def expand(self, text, **more):
        try:
            return text.format(**self.values, **more)
        except (KeyError, IndexError, ValueError) as error:
            raise Mistake(f"[{self.name}]: '{text}' has an unknown {{...}}: {error}") from None

    def settings(self):
        """The item's environment."""
        words = shlex.split(self.expand(self.environment))
        for word in words:
            if "=" not in word:
                raise Mistake(f"[{self.name}]: environment: '{word}' is not NAME=VALUE")
        return dict(word.split("=", 1) for word in words)


def number(section, key):
    try:
        value = float(section[key])
    except ValueError:
        raise Mistake(f"[{section.name}]: {key} = {section[key]}: not a number") from None
    if value <= 0:
        raise Mistake(f"[{section.name}]: {key} = {section[key]}: not above 0")
    return value


def scaled(section, factor, quick):
    """What the soak asks of an item, {seconds, amount, stride}, and how long that takes."""
    values, expected = {}, number(section, "takes") if "takes" in section else 5.0
    for key in ("seconds", "amount", "stride"):
        if key not in section:
            continue
        full = number(section, key)
        if quick:
            if f"quick_{key}" not in section:
                raise Mistake(f"[{section.name}]: {key} without quick_{key}")
            values[key] = round(number(section, f"quick_{key}"))
        else:
            values[key] = max(1, round(full / factor if key == "stride" else full * factor))
        expected *= 1 if key == "seconds" else full / values[key] if key == "stride" else values[key] / full
    if quick:
        expected = number(section, "quick_takes") if "quick_takes" in section else 5.0
    return values, expected + values.get("seconds", 0)


def read_list(path, hours=None, quick=False):
    """The items of the list, and the hours that they are scaled to."""
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except (OSError, configparser.Error) as error:
        raise Mistake(f"{path}: {error}") from None
    if "soak" not in parser or "hours" not in parser["soak"]:
        raise Mistake(f"{path}: there is no [soak] with its hours")
    full = number(parser["soak"], "hours")
    hours = full if hours is None else hours
    items = []
    for name in parser.sections():
        section = parser[name]
        if name == "soak" or (quick and section.get("quick") == "no"):
            continue
        unknown = set(section) - KEYS
        if unknown:
            raise Mistake(f"[{name}]: {', '.join(sorted(unknown))}: not known; there are {', '.join(sorted(KEYS))}")
        if "what" not in section or ("tests" in section and "command" in section):
            raise Mistake(f"[{name}]: says not what it is for" if "what" not in section else
                          f"[{name}]: has tests and a command")
        values, expected = scaled(section, hours / full, quick)
        tests = "" if "command" in section else section.get("tests", name)
        for build in section.get("builds", "release").split():
            items.append(Item(name, build, section["what"], tests, section.get("command", ""),
                              section.get("environment", ""), section.get("figure", ""),
                              section.get("each") == "yes", values, expected))
            items[-1].settings()
    if not items:
        raise Mistake(f"{path}: has no items")
    return items, hours


# --- the tests of a build ---------------------------------------------------------------------------------------------

@functools.cache
def tests_of(build):
    """{name: (command, environment, folder)} of a build, as ctest knows them."""
    folder = ROOT / "out" / build
    if not (folder / "build.ninja").exists():
        raise Mistake(f"out/{build} is not built: ./dev build {build}")
    done = subprocess.run(["ctest", "--show-only=json-v1"], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    found = {}
    for test in json.loads(done.stdout)["tests"]:
        properties = {entry["name"]: entry["value"] for entry in test.get("properties", [])}
        settings = dict(word.split("=", 1) for word in properties.get("ENVIRONMENT", []))
        if test.get("command"):
            found[test["name"]] = (test["command"], settings, properties.get("WORKING_DIRECTORY", str(folder)))
    return found


def split(items):
    """Items of which every test is one of its own."""
    result = []
    for item in items:
        if not item.each:
            result.append(item)
            continue
        names = sorted(fnmatch.filter(tests_of(item.build), item.tests))
        result += [dataclasses.replace(item, name=name, tests=name, each=False) for name in names]
        if not names:
            result.append(dataclasses.replace(item, each=False))
    return result


def commands(item, quick, out):
    """[(name, argv, environment, folder)] of an item."""
    if item.command:
        library = ROOT / "out" / item.build / "libhakmem.so"
        text = item.expand(item.command, library=shlex.quote(str(library)), build=f"out/{item.build}",
                           python=shlex.quote(sys.executable), quick="--quick" if quick else "",
                           out=shlex.quote(str(out.parent)))
        return [(item.name, shlex.split(text), item.settings(), str(ROOT))]
    tests = tests_of(item.build)
    return [(name, tests[name][0], {**tests[name][1], **item.settings()}, tests[name][2])
            for name in sorted(fnmatch.filter(tests, item.tests))]


# --- running ----------------------------------------------------------------------------------------------------------

def run_bounded(argv, settings, folder, limit, log):
    """Run in a session of its own, which ends with it: the exit status, or None when the limit has passed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HAKMEM_", "HAK_")) and k != "LD_PRELOAD"}
    process = subprocess.Popen(argv, cwd=folder, env={**environment, **settings}, stdin=subprocess.DEVNULL, stdout=log,
                               stderr=subprocess.STDOUT, start_new_session=True)
    try:
        return process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        return None
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def figure_of(text, pattern):
    """The line that an item reports, from what it has printed."""
    if pattern:
        found = re.findall(pattern, text)
        return " ".join(found[-1] if isinstance(found[-1], tuple) else [found[-1]]) if found else ""
    lines = [line.strip() for line in text.splitlines() if NAMED_VALUE.search(line)]
    return lines[-1] if lines else ""


def run_item(item, quick, out):
    """What becomes of an item: verdict, figure, seconds."""
    log = out / (re.sub(r"[^\w.-]+", "-", item.key) + ".log")
    start, verdicts = time.monotonic(), []
    limit = 3 * item.expected + 600
    with open(log, "w+", encoding="utf-8", errors="replace") as file:
        for name, argv, settings, folder in commands(item, quick, out):
            file.write(f"== {name}: {' '.join(f'{k}={v}' for k, v in settings.items())} {shlex.join(argv)}\n")
            file.flush()
            left = limit - (time.monotonic() - start)
            code = run_bounded(argv, settings, folder, max(left, 1), file)
            file.seek(0, os.SEEK_END)
            verdicts.append("hung" if code is None else "passed" if code == 0 else
                            "skipped" if code == SKIPPED else "failed")
            if verdicts[-1] in ("failed", "hung"):
                file.write(f"== {name}: {verdicts[-1]} ({code})\n")
        file.seek(0)
        text = file.read()
    worst = [kind for kind in ("hung", "failed", "passed", "skipped") if kind in verdicts]
    figure = figure_of(re.sub(r"(?m)^== .*\n", "", text), item.figure)
    if len(verdicts) > 1:
        figure = f"{verdicts.count('passed')} of {len(verdicts)} tests passed"
    if not verdicts:
        worst, figure = ["failed"], f"no test {item.tests} in {item.build}"
    if worst[0] == "skipped":
        figure = (re.findall(r"(?m)^SKIPPED: (.*)$", text) or [figure])[-1]
    return {"verdict": worst[0], "figure": figure[:300], "seconds": round(time.monotonic() - start, 1),
            "asked": item.values, "what": item.what, "log": str(log.relative_to(ROOT))}


# --- the state --------------------------------------------------------------------------------------------------------

def git(*words):
    return subprocess.run(["git", "-C", str(ROOT), *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip()


def commit():
    """What is tested: the commit, marked when the tree differs from it in more than the soak's own pages."""
    changed = [line for line in git("status", "--porcelain").splitlines() if line[3:] not in WRITTEN]
    return git("rev-parse", "--short=12", "HEAD") + ("-changed" if changed else "")


def machine():
    """One line about what it ran on."""
    model = "unknown processor"
    try:
        found = re.search(r"(?m)^model name\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text())
        model = re.sub(r"\s+", " ", found.group(1)).strip() if found else platform.machine()
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return (f"{model}, {os.cpu_count()} processors, {memory:.0f} GiB, Linux {platform.release()}, "
            f"{' '.join(platform.libc_ver())}")


def load(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Mistake(f"{path}: {error}; --fresh begins anew") from None


def save(path, state):
    """Whole or not at all: an interruption leaves the former file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    part.replace(path)


def usable(state, now, hours):
    """Whether results may be continued, else why not."""
    if not state:
        return None
    if state.get("commit") != now:
        return f"results of {state.get('commit')} are left behind: this is {now}"
    if state.get("hours") != hours:
        return f"results of a soak of {state.get('hours')} hours are left behind"
    return None


# --- the report -------------------------------------------------------------------------------------------------------

def duration(seconds):
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def report(state, items):
    """The report, from the results alone."""
    results = state["items"]
    done = [results[item.key] for item in items if item.key in results]
    count = {kind: sum(result["verdict"] == kind for result in done) for kind in ("passed", "failed", "hung", "skipped")}
    missing = len(items) - len(done)
    spent = sum(result["seconds"] for result in done)
    lines = [
        "# The soak", "",
        "The long form of every test, as tests/soak.ini lists them. `./dev soak` writes this report, from which docs/compatibility.md is made, from its",
        "results.", "",
        f"- Commit: `{state['commit']}` of {state['date']}",
        f"- Machine: {state['machine']}",
        f"- Asked for: {'the shortest form' if state['hours'] == 0 else format(state['hours'], 'g') + ' hours'}; "
        f"it took {duration(spent)}",
        f"- Verdict: {count['passed']} passed, {count['failed'] + count['hung']} failed, {count['skipped']} skipped"
        + (f", {missing} not run" if missing else ""), "",
        "| Item | Build | What | Asked | Time | Figure | Verdict |", "|---|---|---|---|---|---|---|"]
    for item in items:
        result = results.get(item.key, {"verdict": "not run", "figure": "", "seconds": 0, "asked": item.values})
        asked = ", ".join(f"{key} {value:,}" for key, value in result["asked"].items())
        lines.append("| " + " | ".join(cell(text) for text in (
            f"`{item.name}`", item.build, item.what, asked, duration(result["seconds"]), result["figure"],
            result["verdict"])) + " |")
    return "\n".join(lines) + "\n"


# --- the whole --------------------------------------------------------------------------------------------------------

def remaining(items, results):
    """Seconds that the items without results take, by their estimates and by how wrong those were so far."""
    done = [(item.expected, results[item.key]["seconds"]) for item in items if item.key in results]
    guess, took = sum(pair[0] for pair in done), sum(pair[1] for pair in done)
    pace = min(4.0, max(0.25, took / guess)) if guess > 60 else 1.0
    return pace * sum(item.expected for item in items if item.key not in results)


def soak(items, state, path, quick, run=run_item):
    """Run what has no result yet, keeping each at once; whether nothing has failed."""
    results = state["items"]
    for place, item in enumerate(items, 1):
        if item.key in results:
            continue
        print(f"[{place}/{len(items)}] {item.key}: about {duration(item.expected)};"
              f" {duration(remaining(items, results))} to go", flush=True)
        results[item.key] = run(item, quick, path.parent)
        save(path, state)
        result = results[item.key]
        print(f"    {result['verdict']} in {duration(result['seconds'])}"
              + (f": {result['figure']}" if result["figure"] else "")
              + (f"; see {result['log']}" if result["verdict"] in ("failed", "hung") else ""), flush=True)
    return not any(results[item.key]["verdict"] in ("failed", "hung") for item in items)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./dev soak", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--builds", action="store_true", help="print the presets that are needed, and end")
    for flag in ("--list", "--fresh", "--report", "--again"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.hours is not None and (options.quick or not 0 < options.hours < 1000):
        parser.error("--hours takes a number above 0, and does not go with --quick")
    return options


def open_state(options, path, hours):
    now = commit()
    state = {} if options.fresh else load(path)
    why = usable(state, now, hours)
    if why and not options.report:
        print(why)
        state = {}
    state = state or {"commit": now, "date": git("show", "-s", "--format=%cs", "HEAD"), "machine": machine(),
                      "hours": hours, "items": {}}
    if options.again:
        state["items"] = {key: result for key, result in state["items"].items()
                          if result["verdict"] not in ("failed", "hung")}
    return state


def work(options):
    items, hours = read_list(ROOT / "tests" / "soak.ini", options.hours, options.quick)
    if options.only:
        items = [item for item in items if any(fnmatch.fnmatch(item.name, pattern) for pattern in options.only)
                 or (item.each and any(fnmatch.fnmatch(pattern, item.tests) for pattern in options.only))]
        if not items:
            raise Mistake(f"no item matches {' '.join(options.only)}; --list shows them")
    if options.builds:
        print(*dict.fromkeys(item.build for item in items))
        return True
    items = split(items)
    if options.only:
        items = [item for item in items if any(fnmatch.fnmatch(item.name, pattern) for pattern in options.only)]
    if options.list:
        for item in items:
            print(f"{duration(item.expected):>8}  {item.key}: {item.what}")
        print(f"{duration(sum(item.expected for item in items)):>8}  in all")
        return True
    path = ROOT / "out" / "soak" / ("quick.json" if options.quick else "state.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    state = open_state(options, path, 0 if options.quick else hours)
    if options.report and not state["items"]:
        raise Mistake(f"there are no results in {path.relative_to(ROOT)} yet; './dev soak' makes some")
    good = options.report or soak(items, state, path, options.quick)
    page = path.parent / "quick.txt" if options.quick or options.only else ROOT / "tests" / "soak.txt"
    page.write_text(report(state, items), encoding="utf-8")
    print(f"the report is {page.relative_to(ROOT)}")
    if page.name == "soak.txt":
        subprocess.run([sys.executable, "-B", ROOT / "tools" / "gen_compatibility.py"], check=True)
    return good


def main():
    options = parse_arguments()
    try:
        return 0 if work(options) else 1
    except Mistake as mistake:
        print(f"soak: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nsoak: interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
