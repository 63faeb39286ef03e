#!/usr/bin/env python3
"""Writes README's figures and its chart from the medians beside docs/benchmarks.md: those of the suite's real programs.

  gen_readme.py            writes them
  gen_readme.py --check    fails when they are not what this program writes

Each figure is a geometric mean, over the programs of the group "real" in bench/suite/cases.toml, of the median in its file
by that of the system's malloc."""
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "bench" / "suite"), str(ROOT / "tools")]

import drawing
from gen_options_doc import replaced
from site_charts import amount, medians

CHART = ROOT / "docs" / "benchmarks" / "real-programs.svg"
OURS, REFERENCE = "hakmem", "system"


def real_programs(root):
    """The names of the group, in the list's order."""
    text = (root / "bench" / "suite" / "cases.toml").read_text(encoding="utf-8")
    cases = [dict(re.findall(r'^(name|group) = "([^"]+)"', each, re.M)) for each in text.split("[[case]]")[1:]]
    return [case["name"] for case in cases if case.get("group") == "real"]


def means(rows, programs):
    """{allocator: its geometric mean by the system's}, and over how many programs."""
    rows = [row for row in rows if row["benchmark"] in programs]
    names = [name for name in rows[0] if name != "benchmark" and amount(rows[0][name]) is not None]
    return {name: math.exp(sum(math.log(amount(row[name]) / amount(row[REFERENCE])) for row in rows) / len(rows)) for name in names}, len(rows)


def facts(text):
    """The environment's table, as pairs."""
    begin = text.index("<!-- suite:begin -->")
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text[begin:text.index("### Geometric means")], re.M))


def main():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    found, programs = medians(), real_programs(ROOT)
    (time, count), (memory, _) = means(found["Time"], programs), means(found["Peak memory"], programs)
    names = sorted((name for name in time if name in memory), key=lambda name: time[name])
    about = facts(page)
    table = "".join(f"| {name} | {time[name]:.2f} | {memory[name]:.2f} |\n" for name in names)
    block = (f"Geometric means over {count} real programs, glibc's malloc = 1 ({about['processor']}; {about['kernel']}; {about['C library']}; "
             f"{about['run'].split(', seed')[0]}):\n\n| allocator | time | peak memory |\n| --- | --: | --: |\n{table}")
    readme = ROOT / "README.md"
    text = replaced(readme, readme.read_text(encoding="utf-8"), "real", block)
    others = len(found["Time"]) - count
    for name, value in (("programs", str(count)), ("others", str(others)), ("mean time", f"{time[OURS]:.2f}"), ("mean memory", f"{memory[OURS]:.2f}")):
        text, places = re.subn(rf"(<!-- {name} -->)[^<]*(<!-- / -->)", rf"\g<1>{value}\g<2>", text)
        if places != 1:
            sys.exit(f"README.md must contain <!-- {name} -->...<!-- / --> once")
    points = [drawing.Point(name, time[name], memory[name], name == OURS) for name in names]
    chart = drawing.scatter(points, f"{count} real programs: time against peak memory, glibc's malloc = 1", "time", "peak memory")
    if "--check" not in sys.argv[1:]:
        readme.write_text(text, encoding="utf-8")
        CHART.write_text(chart, encoding="utf-8")
    elif readme.read_text(encoding="utf-8") != text or not CHART.is_file() or CHART.read_text(encoding="utf-8") != chart:
        sys.exit("README's figures are not those of docs/benchmarks.md: run ./dev generate")
    else:
        print("README's figures are those of docs/benchmarks.md")


if __name__ == "__main__":
    main()
