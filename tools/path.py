#!/usr/bin/env python3
"""Measures the path of a request: through how many files, functions and changes of file it runs.

usage: ./dev path [malloc|free] [--functions] [--json] [--write]

  malloc        a miss of malloc(100) that has the kernel map memory
  free          a free of another thread's block that publishes it to its owner
                neither: both
  --functions   the functions, indented by their calls, in place of the files
  --json        as one JSON object per line: path, files, sources (the files ending in .c), functions, calls, changes, in_order
  --write       writes both into src/README.md

Every source is compiled alone with -finstrument-functions, so an inline function counts as one of its header. A change of file
is counted where a function entered lies in another file than the one entered before. The smallest trace of several runs counts.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "src" / "README.md"
PATHS = ("malloc", "free")
RUNS = 3
PUBLISHES = "hak__remote_publish"  # the function that gives a block back to its owner's span
FLAGS = ("-std=gnu17", "-O0", "-g1", "-gdwarf-4", "-w", "-finstrument-functions", "-no-pie", "-fno-pie", "-D_GNU_SOURCE", "-DNDEBUG",
         "-DHAK_OVERRIDE=0", "-DHAK_VERSION_STRING=\"0\"", f"-DPUBLISHES={PUBLISHES}",
         "-fno-builtin-malloc", "-fno-builtin-calloc", "-fno-builtin-realloc", "-fno-builtin-free")


class Failed(Exception):
    pass


def run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(str(word) for word in command[:2])}: {done.stderr.strip() or 'failed'}")
    return done.stdout


def compiler():
    words = [os.environ.get("CC", "gcc")]
    return ["ccache", *words] if shutil.which("ccache") else words


def build(root, folder):
    """The probe with the library's sources in it."""
    sources = sorted(p for p in (root / "src").rglob("*.c") if not p.name.startswith("unity"))
    sources.append(root / "tools" / "path_probe.c")
    objects = [folder / f"{number}.o" for number in range(len(sources))]

    def compile_one(pair):
        run(*compiler(), *FLAGS, f"-I{root / 'src'}", f"-I{root / 'include'}", "-c", pair[0], "-o", pair[1])

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, zip(sources, objects)))
    probe = folder / "probe"
    run(os.environ.get("CC", "gcc"), "-no-pie", *objects, "-o", probe, "-lpthread", "-ldl")
    return probe


def places(root, probe, addresses):
    """address -> (function, file below src)."""
    asked = sorted(set(addresses))
    lines = run("addr2line", "-f", "-e", probe, *asked).splitlines()
    result = {}
    for address, name, place in zip(asked, lines[::2], lines[1::2]):
        file = os.path.relpath(place.rpartition(":")[0], root / "src")
        result[address] = (name, file)
    return result


def measure(root, probe, which):
    """The smallest trace of some runs, as [(depth, function, file)]."""
    traces = [run(probe, which).split() for _ in range(RUNS)]
    trace = min(traces, key=len)
    known = places(root, probe, [word for word in trace if word != "-"])
    depth, calls = 0, []
    for word in trace:
        if word == "-":
            depth -= 1
        else:
            calls.append((depth, *known[word]))
            depth += 1
    return calls


def figures(which, calls):
    files = list(dict.fromkeys(file for _, _, file in calls))
    return {"path": which, "files": len(files), "sources": sum(file.endswith(".c") for file in files),
            "functions": len({call[1:] for call in calls}), "calls": len(calls),
            "changes": sum(one[2] != other[2] for one, other in zip(calls, calls[1:])), "in_order": files}


def measured(root=ROOT, which=PATHS):
    """{path: (figures, calls)}"""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        probe = build(root, pathlib.Path(folder))
        for one in which:
            calls = measure(root, probe, one)
            result[one] = (figures(one, calls), calls)
    return result


def summary(figure):
    return (f"{figure['files']} files ({figure['sources']} of them `.c`), {figure['functions']} functions, "
            f"{figure['changes']} changes of file")


def wrapped(words, width=118):
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def section(figure):
    """What src/README.md says about a path, between its marks."""
    return (f"<!-- path {figure['path']}: written by ./dev path --write -->\n"
            f"{summary(figure)}, in this order:\n\n```\n{wrapped(figure['in_order'])}\n```\n"
            "<!-- end of path -->")


def sections(text):
    """{path: what a page says about it}"""
    return {match[1]: match[0] for match in re.finditer(r"<!-- path (\w+):.*?<!-- end of path -->", text, re.S)}


def write(found):
    text = PAGE.read_text(encoding="utf-8")
    for which, old in sections(text).items():
        text = text.replace(old, section(found[which][0]))
    PAGE.write_text(text, encoding="utf-8")


def show(figure, calls, options):
    if options.json:
        print(json.dumps(figure))
        return
    if options.functions:
        for depth, function, file in calls:
            print(f"{'  ' * depth}{function}  {file}")
    else:
        print("\n".join(figure["in_order"]))
    print(f"{figure['path']}: {summary(figure).replace('`', '')}, {figure['calls']} calls")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n")[0], description=__doc__.split("\n")[0],
                                     epilog=__doc__.split("\n\n", 2)[2], formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", nargs="*", help=argparse.SUPPRESS)
    for option in ("functions", "json", "write"):
        parser.add_argument(f"--{option}", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = [one for one in options.path if one not in PATHS]
    if unknown:
        parser.error(f"no path '{unknown[0]}'; there are {' and '.join(PATHS)}")
    try:
        found = measured(which=PATHS if options.write else tuple(options.path) or PATHS)
    except Failed as failure:
        sys.exit(f"path: {failure}")
    if options.write:
        write(found)
    for one in options.path or PATHS:
        figure, calls = found[one]
        show(figure, calls, options)


if __name__ == "__main__":
    main()
