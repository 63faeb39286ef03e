#!/usr/bin/env python3
"""Writes the options into docs/options.md, a section for each, from src/diag/options.def, and the table of the presets,
from src/diag/presets.def.

The C preprocessor reads the lists, so that defaults given by a macro appear as the library has them. Each table
stands between two marker comments; the text around them is written by hand.

  gen_options_doc.py            writes the tables
  gen_options_doc.py --check    fails when a table is not what this program writes
"""
import ast
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BANDS = "tiny_unified_c0"   # the first of the family that presets set
GROUPS = {"USERS": "users", "MEMORY": "memory", "EXPERIMENTS": "experiments"}   # and the names of their markers

# One '@row' line per row of the list. The help is last, because it may contain the separator.
PROGRAM = """\
#include "diag/options.h"
#undef HAK_FAMILY
#define X(name, kind, value, least, most, when, group, help) \
    @row #name ; #kind ; value ; least ; most ; #when ; #group ; help @end
#define HAK_FAMILY(front, members, back, values, kind, least, most, when, group, help) \
    @row #front " " #members " " #back ; #kind ; values ; least ; most ; #when ; #group ; help @end
#include "diag/options.def"
#undef X
@longest HAK_EVERY_MS_MOST @end
@bytes HAK_EVERY_BYTES @end
#define X(name, ...) @preset #name ; __VA_ARGS__ @end
#include "diag/presets.def"
"""

KINDS = {"COUNT": "number", "BYTES": "bytes", "TIME": "time", "FLAG": "0 or 1",
         "STATS": "0, 1, `exact`, `json:FILE`, `prom:FILE` or `text:FILE`", "PRESET": "a name", "BACKGROUND": "0, 1 or `auto`",
         "THP": "`auto`, `always` or `never`", "HARDEN": "0, 1 or parts",
         "PROFILE": "0, 1, `ready`, `auto` or `leaks`", "EVERY": "time or bytes", "FOLDER": "0 or a path",
         "MISUSE": "`abort`, `report` or `report:FILE`"}
NAMED = {"PRESET": "adaptive", "BACKGROUND": "auto", "THP": "auto", "PROFILE": "0", "MISUSE": "abort"}   # the defaults of options whose values are names
TAKES_EFFECT = {"AT_START": "at start", "NEW_THREADS": "for new threads", "AT_ONCE": "at once"}


@dataclasses.dataclass
class Option:
    """One row of the list, as a reader wants it: an option, or a family of several."""

    names: list
    kind: str
    defaults: list
    span: str
    when: str
    group: str
    help: str

    @property
    def name(self):
        return self.shortened(self.names)

    @property
    def variable(self):
        return self.shortened([f"HAKMEM_{name.upper()}" for name in self.names])

    @property
    def default(self):
        return self.defaults[0] if len(set(self.defaults)) == 1 else " ".join(self.defaults)

    @staticmethod
    def shortened(names):
        return f"`{names[0]}`" if len(names) == 1 else f"`{names[0]}` to `{names[-1]}`"


def compiler():
    """A C compiler to preprocess with."""
    for name in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if name and shutil.which(name):
            return name
    sys.exit("gen_options_doc.py needs a C compiler: cc, gcc or clang")


def preprocessed():
    """The text of PROGRAM after the C preprocessor."""
    done = subprocess.run([compiler(), "-E", "-P", "-std=gnu17", "-I", str(ROOT / "src"), "-x", "c", "-"],
                          input=PROGRAM, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"the preprocessor refuses src/diag/options.def:\n{done.stderr}")
    return done.stdout


def number(text):
    """The value of a C constant such as '1ull << 30'."""
    plain = re.sub(r"(?<=\d)[uUlL]+", "", text)
    if not re.fullmatch(r"[\d\s()+*<-]+", plain):
        sys.exit(f"options.def: '{text}' is not a constant that this program understands")
    return eval(plain, {"__builtins__": {}})  # digits and operators only, see the line above


def shown(kind, value):
    """A value in the unit that a person would use; the parser takes both."""
    if kind == "STATS":
        return "exact" if value == 2 else str(value)
    if kind in ("TIME", "EVERY"):
        return f"{value // 1000} s" if value and value % 1000 == 0 else f"{value} ms"
    if kind == "BYTES":
        for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
            if value and value % (1 << shift) == 0:
                return f"{value >> shift} {unit}"
    return str(value)


def presets(text):
    """The presets of the list: pairs of a name and the bands' capacities as text."""
    rows = re.findall(r"@preset(.*?);(.*?)@end", text, re.S)
    return [(ast.literal_eval(name.strip()), [each.strip() for each in values.split(",")]) for name, values in rows]


def members(name):
    """The names of a row: a family's is 'front HAK_2_TO_6 back'."""
    if " " not in name:
        return [name]
    front, between, back = name.split(" ")
    first, last = map(int, re.findall(r"\d+", between))
    return [f"{front}{digit}{back}" for digit in range(first, last + 1)]


def options(text):
    """Every option of the list, in its order."""
    found = []
    longest, in_bytes = (number(re.search(f"@{word}(.*?)@end", text).group(1)) for word in ("longest", "bytes"))
    for row in re.findall(r"@row(.*?)@end", text, re.S):
        name, kind, value, least, most, when, group, help_text = (field.strip() for field in row.split(";", 7))
        name, kind, when, group = (ast.literal_eval(word) for word in (name, kind, when, group))
        if kind in NAMED:
            defaults, span = [f"`{NAMED[kind]}`"], KINDS[kind]
        else:
            values = value.strip("()").split(",") if " " in name else [value]
            defaults = [shown(kind, number(each)) for each in values]
            low, high = (shown(kind, number(each)) for each in (least, most))
            span = KINDS[kind] if kind in ("FLAG", "STATS", "HARDEN", "FOLDER") else f"{low} to {high}"
            if kind == "EVERY":
                span = f"{low} to {shown('TIME', longest)}, or bytes up to {shown('BYTES', number(most) - in_bytes)}"
        # Neighbouring string literals are one in Python as in C; the parentheses let them stand on several lines.
        found.append(Option(members(name), kind, defaults, span, TAKES_EFFECT[when], GROUPS[group],
                            ast.literal_eval(f"({help_text})")))
    if not found:
        sys.exit("no option was found in src/diag/options.def")
    return found


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def sections(found):
    """A section for each option, so that it can be linked to and the site's search finds it by its name."""
    parts = []
    for o in found:
        each = " each" if len(o.names) > 1 else ""
        # A list of the kind's words says all that the kind's name would.
        span = o.span if "`" in o.span or o.span == KINDS.get(o.kind) else f"{o.kind.lower()}, {o.span}"
        parts.append(f"### {o.name}\n\n{o.variable}{each}: {span}. Default {o.default}; takes effect {o.when}.\n\n{o.help}\n")
    return "\n".join(parts)


def preset_table(found, named):
    """The presets' capacities by band; the default one's are the options' defaults."""
    bands = next(o for o in found if o.names[0] == BANDS)
    rows = [[f"`{NAMED['PRESET']}` (the default)", *bands.defaults]]
    rows += [[f"`{name}`", *values] for name, values in named]
    return table(["Preset", *(band[-2:].upper() for band in bands.names)], rows)


def replaced(path, content, marker, text):
    """The file's content with `text` between its markers."""
    begin, end = f"<!-- {marker}:begin -->\n", f"<!-- {marker}:end -->\n"
    if content.count(begin) != 1 or content.count(end) != 1:
        sys.exit(f"{path.name} must contain the lines {begin.strip()} and {end.strip()} once")
    before, rest = content.split(begin)
    return before + begin + "\n" + text + "\n" + end + rest.split(end)[1]


def main():
    """Writes or checks the tables."""
    text = preprocessed()
    found = options(text)
    of_group = {group: [o for o in found if o.group == group] for group in GROUPS.values()}
    path = ROOT / "docs" / "options.md"
    content = path.read_text(encoding="utf-8")
    for marker, each in {**{group: sections(of_group[group]) for group in of_group}, "presets": preset_table(found, presets(text))}.items():
        content = replaced(path, content, marker, each)
    if "--check" not in sys.argv[1:]:
        path.write_text(content, encoding="utf-8")
    elif path.read_text(encoding="utf-8") != content:
        sys.exit(f"the options in {path.name} are not current: run tools/gen_options_doc.py")
    else:
        print("the options in docs/options.md are current")


if __name__ == "__main__":
    main()
