#!/usr/bin/env python3
"""Writes lab/src/hakmem_lab/inspect/metrics.json, the OpenMetrics names, types, units and words of every figure, from
src/diag/stats.def: `hakmem serve` says of a running process what HAKMEM_STATS=prom says at its end.

  gen_lab_metrics.py            writes the file
  gen_lab_metrics.py --check    fails when it is not what this program writes
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = ROOT / "lab" / "src" / "hakmem_lab" / "inspect" / "metrics.json"

# One '@' line per row of the list. The help is last, because it may contain the separator.
PROGRAM = """\
#define HAK_STATS_GROUP(group, label, metric, flag) @G group ; metric @end
#define HAK_STATS_FIGURE(group, name, type, unit, help) @F group ; name ; type ; unit ; help @end
#define HAK_STATS_COLUMN(name, title, width, type, unit, flag, help) @C class ; name ; type ; unit ; help @end
#define HAK_STATS_HEAP(name, type, help) @H heap ; name ; type ; NONE ; help @end
#include "diag/stats.def"
"""


def rows():
    compiler = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
    if compiler is None:
        sys.exit("no C compiler: './dev setup' installs one")
    done = subprocess.run([compiler, "-E", "-P", "-I", str(ROOT / "src"), "-I", str(ROOT / "include"), "-xc", "-"],
                          input=PROGRAM, check=True, stdout=subprocess.PIPE, text=True)
    for kind, row in re.findall(r"@(\w+) (.*?) @end", done.stdout, re.S):
        yield kind, [re.sub(r"\s+", " ", field).strip() for field in row.split(";", 1 if kind == "G" else 4)]


def text(literals):
    """C string literals beside one another as one text."""
    return "".join(json.loads(f'"{part}"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def metric(group, name, unit):
    """As metric_of in src/upkeep/dump.c makes it."""
    return f"hakmem_{group}_{name}" + ("_bytes" if unit == "BYTES" and not name.endswith("_bytes") else "")


def document():
    groups, found = {"class": "class", "heap": "heap"}, []
    for kind, fields in rows():
        if kind == "G":
            groups[fields[0]] = text(fields[1])
            continue
        group, name, type_, unit, words = fields
        if kind == "C" and name == "size":   # the label of the others
            continue
        found.append({"group": group, "name": name, "metric": metric(groups[group], name, unit), "type": type_.lower(),
                      "unit": unit.lower() if unit != "NONE" else "", "help": text(words)})
    lines = ",\n".join(json.dumps(each) for each in found)
    return f"[\n{lines}\n]\n"


def main():
    wanted = document()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{TARGET.relative_to(ROOT)} is out of date; run tools/gen_lab_metrics.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        TARGET.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
