#!/usr/bin/env python3
"""Writes the lists of docs/coming-from.md from the table of `hakmem translate` (lab/src/hakmem_lab/target/translation.py).

  gen_coming_from.py            writes them
  gen_coming_from.py --check    fails when one is not what this program writes
"""
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coming-from.md"
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "lab" / "src"))

from gen_options_doc import replaced
from hakmem_lab.target import translation


def items(family):
    for rule in family.rules:
        others = ", ..." if rule.pattern else ""
        yield f"- `{rule.name}`{others}: " + ". ".join(filter(None, (rule.becomes, rule.remark)))


def main():
    content = PAGE.read_text(encoding="utf-8")
    for family in translation.FAMILIES:
        content = replaced(PAGE, content, family.title, "\n".join([*items(family), ""]))
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(content, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != content:
        sys.exit("docs/coming-from.md is not current: run tools/gen_coming_from.py")
    else:
        print("the lists in docs/coming-from.md are current")


if __name__ == "__main__":
    main()
