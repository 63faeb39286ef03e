#!/usr/bin/env python3
"""Writes the manual pages docs/man/hakmem.7 and docs/man/hakmem.h.3 from what the program's own documents come from: the list of
options (src/diag/options.def) and the header's comments (include/hakmem.h, hakmem_region.h). hakmem(1) is written by the lab (man.py there).

  gen_man.py            writes them
  gen_man.py --check    fails when one of them is not what this program writes
"""
import pathlib
import re
import sys

import gen_options_doc

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs" / "man"
ATTRIBUTE = re.compile(r"\s*\bHAK_(?:ATTRIBUTES|BLOCK|ALIGNED_BLOCK|RESIZED|TO_BE_FREED|USED|FREES)\b"
                       r"(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?")
GROUPS = {"users": "Options", "memory": "Options of memory", "experiments": "Options for experiments"}


def version():
    return re.search(r"project\(hakmem VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)


def escaped(text):
    """Text that man reads as it stands."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def head(name, section, what):
    return ['.\\" Written by tools/gen_man.py.', f'.TH {name} {section} "" "HAKMEM {version()}" "HAKMEM"', ".SH NAME",
            f"{escaped(name)} \\- {escaped(what)}"]


def option_lines(option):
    names = [f"HAKMEM_{name.upper()}" for name in option.names]
    shown = names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
    facts = f"{option.kind.lower()}, {option.span}; default {option.default}; {option.when}".replace("`", "")
    return [".TP", f".B {escaped(shown)}", escaped(option.help), ".br", f"({escaped(facts)})"]


ABOUT = """HAKMEM takes the place of malloc, free, and C++'s new and delete in programs that need not be changed or rebuilt.
Preload it with LD_PRELOAD, start the program with hakmem(1), or link it (hakmem.h(3)).
It reads its options once, from variables of the environment, when the program starts. None is needed.

HAKMEM_CONF holds several at once: HAKMEM_CONF=limit:2G,purge_delay:5s. A variable of its own wins over it. Bytes take K, M or G,
times ms or s. A name or a value that does not exist is reported on standard error and passed over. A privileged program
reads no variable."""
ERRORS = """A free of something that is no block, and a second free of one, end the program by abort(3) after one line on standard
error that begins with "hakmem:"."""
FILES = """Every process on the system runs on HAKMEM where this file names the library. A wrong line there keeps every
program from starting; hakmem(1) and the page "Running on HAKMEM" of its documents say what to do first."""


def paragraphs(text):
    return [line for part in text.split("\n\n") for line in (".PP", escaped(part))]


def page7():
    found = gen_options_doc.options(gen_options_doc.preprocessed())
    lines = head("hakmem", 7, "a drop-in malloc for Linux and its options")
    lines += [".SH DESCRIPTION", *paragraphs(ABOUT)[1:]]
    for group, title in GROUPS.items():
        lines.append(f".SH {title.upper()}")
        for option in found:
            if option.group == group:
                lines += option_lines(option)
    lines += [".SH ERRORS", *paragraphs(ERRORS)[1:], ".SH FILES", ".TP", ".I /etc/ld.so.preload", escaped(FILES)]
    lines += [".SH SEE ALSO", ".BR hakmem (1),", ".BR hakmem\\-run (1),", ".BR hakmem.h (3),", ".BR malloc (3),", ".BR ld.so (8)"]
    return "\n".join(lines) + "\n"


def plain(comment):
    """A comment's text without its frame."""
    body = re.sub(r"\n \*[ ]?", "\n", comment.strip()[2:-2])
    return body.strip().strip("-").strip()


def prototype(code):
    """Without the body and the attributes."""
    code = re.sub(r"^static inline (.*)\n\{.*?^\}", r"\1;", code, flags=re.S | re.M)
    return ATTRIBUTE.sub("", code).strip()


def declarations(text):
    """[(comment or None, code)] of what stands between extern "C" and its end."""
    body = text[text.index('extern "C" {'):text.rindex("#ifdef __cplusplus")]
    body = body[body.index("#endif") + len("#endif"):]
    parts, comment = [], None
    for match in re.finditer(r"(/\*.*?\*/)\n?|((?:^(?!/\*)[^\n]+\n)+)", body, re.S | re.M):
        if match.group(1):
            comment = match.group(1)
            if re.fullmatch(r"/\* --- .* -+ \*/", comment):
                parts.append((plain(comment).strip(" -"), ""))
                comment = None
        else:
            parts.append((plain(comment) if comment else None, prototype(match.group(2).rstrip())))
            comment = None
    return parts


def page3():
    text = (ROOT / "include" / "hakmem.h").read_text(encoding="utf-8")
    lines = head("hakmem.h", 3, "the functions of HAKMEM")
    lines += [".SH SYNOPSIS", ".nf", ".B #include <hakmem.h>", ".PP", "Link with \\fI\\-lhakmem\\fP.", ".fi", ".SH DESCRIPTION"]
    opening = plain(text[:text.index("*/") + 2])
    lines += paragraphs(opening[opening.index("\n"):].strip())[1:]
    more = (ROOT / "include" / "hakmem_region.h").read_text(encoding="utf-8")
    regions = [(plain(more[:more.index("*/") + 2]).strip(), "#include <hakmem_region.h>"), *declarations(more)[:-1]]
    for comment, code in [*declarations(text), ("heaps in regions", ""), *regions]:
        if not code:
            lines.append(f".SH {escaped(comment.upper())}")
            continue
        lines += [".PP", ".nf", ".ft B", escaped(code), ".ft R", ".fi"]
        if comment:
            lines += [".RS 4", escaped(comment), ".RE"]
    lines += [".SH SEE ALSO", ".BR hakmem (7),", ".BR malloc (3)"]
    return "\n".join(lines) + "\n"


def main():
    PAGES.mkdir(exist_ok=True)
    for path, wanted in ((PAGES / "hakmem.7", page7()), (PAGES / "hakmem.h.3", page3())):
        if "--check" not in sys.argv[1:]:
            path.write_text(wanted, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{path.relative_to(ROOT)} is not current: run tools/gen_man.py")
    if "--check" in sys.argv[1:]:
        print("the manual pages are current")


if __name__ == "__main__":
    main()
