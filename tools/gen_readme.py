#!/usr/bin/env python3
"""Writes README's figures and its chart from docs/benchmarks.md: those of the suite's real programs.

  gen_readme.py            writes them
  gen_readme.py --check    fails when they are not what this program writes

The figures are those of the table "Real programs" there: geometric means of the medians of the rounds' ratios to the system's malloc."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(ROOT / "bench" / "suite"), str(ROOT / "tools")]

import drawing
from gen_options_doc import replaced
from site_charts import amount, medians, tables

CHART = ROOT / "docs" / "benchmarks" / "real-programs.svg"
OURS = "hakmem"


def real_programs(page):
    """The table of real programs, in its order."""
    return [{"name": row["allocator"], "time": amount(row["time"]), "interval": row["time, 95 %"].replace("..", " to "),
             "memory": amount(row["peak memory"]), "programs": int(row["benchmarks"])} for row in tables(page)["Real programs"]]


def facts(text):
    """The environment's table, as pairs."""
    begin = text.index("<!-- suite:begin -->")
    return dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", text[begin:text.index("\n### ", begin)], re.M))


def main():
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    rows = real_programs(page)
    ours = next(row for row in rows if row["name"] == OURS)
    count = ours["programs"]
    about = facts(page)
    table = "".join(f"| {row['name']} | {row['time']:.2f} | {row['interval']} | {row['memory']:.2f} |\n" for row in rows)
    block = (f"Geometric means over {count} real programs, glibc's malloc = 1 ({about['processor']}; {about['kernel']}; {about['C library']}; "
             f"{about['run'].split(', seed')[0]}):\n\n| allocator | time | 95 % | peak memory |\n| --- | --: | --: | --: |\n{table}")
    readme = ROOT / "README.md"
    text = replaced(readme, readme.read_text(encoding="utf-8"), "real", block)
    others = len(medians()["Time"]) - count
    for name, value in (("programs", str(count)), ("others", str(others)), ("mean time", f"{ours['time']:.2f}"), ("mean memory", f"{ours['memory']:.2f}")):
        text, places = re.subn(rf"(<!-- {name} -->)[^<]*(<!-- / -->)", rf"\g<1>{value}\g<2>", text)
        if places != 1:
            sys.exit(f"README.md must contain <!-- {name} -->...<!-- / --> once")
    points = [drawing.Point(row["name"], row["time"], row["memory"], row is ours) for row in rows]
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
