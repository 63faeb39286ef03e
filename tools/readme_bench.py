#!/usr/bin/env python3
"""Puts what `./dev bench` printed between the bench markers of README.md.

  ./dev bench > FILE && tools/readme_bench.py FILE
"""
import pathlib
import re
import sys

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def section(report):
    """The report from its environment on, without paths of the machine that it was made on."""
    lines = report[report.index("Environment"):].splitlines()
    kept = []
    for line in lines:
        words = line.split()
        path = any(word.startswith("/") and len(word) > 1 for word in words)
        if path and "(" in line:
            line = f"  {words[0]:<10} {line[line.index('(') + 1:].rstrip(')')}"
        elif path:
            continue
        elif words[:1] == ["kernel"]:
            line = re.sub(r"(\d+\.\d+)\S*", r"\1", line, count=1)
        if not line.startswith("  load"):
            kept.append(line.rstrip())
    while kept and (kept[-1] == "" or kept[-1].startswith(("real", "user", "sys"))):
        kept.pop()
    return "```\n" + "\n".join(kept) + "\n```\n"


def main():
    """Replaces the section."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    text = README.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    body = section(pathlib.Path(sys.argv[1]).read_text())
    README.write_text(f"{before}{BEGIN}\n\n{body}\n{END}{after}")


if __name__ == "__main__":
    main()
