#!/usr/bin/env python3
"""Writes the statistics' structures of include/hakmem_stats.h for other languages, lab/src/hakmem/layout.py for Python and
rust/hakmem-sys/src/stats.rs for Rust; those of heaps in include/hakmem.h, in the first and as rust/hakmem-sys/src/heaps.rs; and the options of
src/diag/options.def with their types as rust/hakmem/src/names.rs; what readers of a dump need of src/profile/profile.h as
lab/src/hakmem_lab/profile/limits.py.

  gen_bindings.py            writes them
  gen_bindings.py --check    fails when one of them is not what this program writes
"""
import pathlib
import re
import sys

import gen_options_doc

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include" / "hakmem_stats.h"
PYTHON = ROOT / "lab" / "src" / "hakmem" / "layout.py"
HEAPS_HEADER = ROOT / "include" / "hakmem.h"
HEAPS = ROOT / "rust" / "hakmem-sys" / "src" / "heaps.rs"
RUST = ROOT / "rust" / "hakmem-sys" / "src" / "stats.rs"
NAMES = ROOT / "rust" / "hakmem" / "src" / "names.rs"
PROFILE_HEADER = ROOT / "src" / "profile" / "profile.h"
PROFILE = ROOT / "lab" / "src" / "hakmem_lab" / "profile" / "limits.py"
TYPES = {"COUNT": "u64", "BYTES": "Bytes", "TIME": "Duration", "FLAG": "bool"}   # all others are words
WIDTHS = {"uint32_t": "u32", "uint64_t": "u64"}
OF_HEAPS = {**WIDTHS, "size_t": "usize", "const char *": "*const c_char", "void *": "*mut c_void",
            "hak_heap_pressure *": "Option<hak_heap_pressure>", "hak_heap_t *": "*mut hak_heap_t"}
OF_HEAPS_IN_PYTHON = {"const char *": "c_char_p", "size_t": "c_size_t", "uint32_t": "c_uint32", "uint64_t": "c_uint64"}


def constants(text):
    """[(name, value)] of the header's numbers."""
    found = re.findall(r"^#define (HAK_STATS_\w+) (0x[0-9a-f]+|\d+)u?\b", text, re.M)
    return [(name, int(value, 0)) for name, value in found]


def comment_of(rest):
    """The remark that stands behind a member."""
    match = re.match(r"[ \t]*/\*\s*(.*?)\s*\*/", rest, re.S)
    return re.sub(r"\s*\n\s*\*?\s*", " ", match.group(1)) if match else ""


def members(body):
    """[(type, name, how many or None, remark)] of a structure."""
    found = []
    for match in re.finditer(r"^ +(?:struct )?(\w+) ([\w, \[\]]+);", body, re.M):
        remark = comment_of(body[match.end():])
        for each in match.group(2).split(","):
            name, count = re.fullmatch(r"(\w+)(?:\[(\w+)\])?", each.strip()).groups()
            found.append((match.group(1), name, count, remark))
    return found


def structures(text):
    """[(name, members)] in the header's order."""
    found = [(name, members(body)) for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.M | re.S)]
    if [name for name, _ in found] != ["hak_stats_class", "hak_stats_latency", "hak_stats"]:
        sys.exit("include/hakmem_stats.h no longer has the three structures that this program knows")
    return found


def camel(name):
    return {"hak_stats_class": "StatsClass", "hak_stats_latency": "StatsLatency", "hak_stats": "Stats"}.get(name, name)


def python_text(numbers, found, of_heaps):
    lines = ['"""Structures of include/hakmem_stats.h and, for heaps, hakmem.h, written by tools/gen_bindings.py."""', "",
             "import ctypes", ""]
    lines += [f"{name} = 0x{value:X}" if value > 255 else f"{name} = {value}" for name, value in numbers]
    for name, fields in found:
        lines += ["", "", f"class {camel(name)}(ctypes.Structure):", "    _fields_ = ("]
        for kind, field, count, _ in fields:
            of = {"uint32_t": "ctypes.c_uint32", "uint64_t": "ctypes.c_uint64"}.get(kind, camel(kind))
            lines.append(f'        ("{field}", {of}{f" * {count}" if count else ""}),')
        lines.append("    )")
    for name, fields in of_heaps:
        lines += ["", "", f"class {''.join(each.capitalize() for each in name.split('_')[1:])}(ctypes.Structure):", "    _fields_ = ("]
        lines += [f'        ("{field}", ctypes.{OF_HEAPS_IN_PYTHON.get(kind, "c_void_p")}),' for kind, field, _ in fields]
        lines.append("    )")
    return "\n".join(lines) + "\n"


def rust_text(numbers, found):
    lines = ["//! The statistics' structures, written by tools/gen_bindings.py from include/hakmem_stats.h.", ""]
    for name, value in numbers:
        kind = "u32" if name in ("HAK_STATS_MAGIC", "HAK_STATS_VERSION") else "u64" if "_HAS_" in name else "usize"
        lines.append(f"pub const {name}: {kind} = {f'{value:#x}' if value > 255 else value};")
    for name, fields in found:
        lines += ["", f"/// `struct {name}` of `hakmem_stats.h`.", "#[repr(C)]", "#[derive(Clone, Copy, Debug)]",
                  f"pub struct {name} {{"]
        for kind, field, count, remark in fields:
            of = WIDTHS.get(kind, kind)
            if remark:
                lines.append(f"    /// {remark}")
            lines.append(f"    pub {field}: {f'[{of}; {count}]' if count else of},")
        lines.append("}")
    return "\n".join(lines) + "\n"


def structures_of_heaps(text):
    """[(name, [(type, member, remark)])] of hakmem.h."""
    found = []
    for name in ("hak_heap_options", "hak_heap_figures", "hak_heap_span"):
        body = re.search(rf"^struct {name} \{{\n(.*?)^\}};", text, re.M | re.S).group(1)
        matches = re.finditer(r"^ +((?:const )?\w+ \*?)([\w, ]+);", body, re.M)
        found.append((name, [(match.group(1).strip(), field, comment_of(body[match.end():]))
                             for match in matches for field in match.group(2).split(", ")]))
    return found


def heaps_text(text):
    """The structures of heaps, with pointers and the types of their callbacks."""
    lines = ["//! User heaps, written by tools/gen_bindings.py from include/hakmem.h.", "",
             "use core::ffi::{c_char, c_int, c_void};", "", "/// A heap; programs have pointers to it only.", "#[repr(C)]",
             "#[derive(Debug)]", "pub struct hak_heap_t {", "    _inside: [u8; 0],", "}", "",
             "/// Called at the limit; not 0 to try again.",
             "pub type hak_heap_pressure = unsafe extern \"C\" fn(*mut hak_heap_t, usize, usize, usize, *mut c_void) -> c_int;",
             "/// Called for each block; anything but 0 ends the visit.",
             "pub type hak_heap_visitor = unsafe extern \"C\" fn(*mut c_void, usize, *mut c_void) -> c_int;",
             "/// The same, for each span.",
             "pub type hak_heap_span_visitor = unsafe extern \"C\" fn(*const hak_heap_span, *mut c_void) -> c_int;", ""]
    body = re.search(r"^enum hak_heap_purge \{\n(.*?)^\};", text, re.M | re.S).group(1)
    lines += [f"pub const {name}: u32 = {at};" for at, name in enumerate(re.findall(r"^ +(\w+),", body, re.M))]
    lines += [f"pub const {name}: u32 = {value};" for name, value in re.findall(r"^#define (HAK_HEAP_\w+) (\d+)u", text, re.M)]
    for name, fields in structures_of_heaps(text):
        lines += ["", f"/// `struct {name}` of `hakmem.h`.", "#[repr(C)]", "#[derive(Clone, Copy, Debug)]", f"pub struct {name} {{"]
        for kind, field, remark in fields:
            lines += [f"    /// {remark}"] if remark else []
            lines.append(f"    pub {field}: {OF_HEAPS[kind]},")
        lines.append("}")
    return "\n".join(lines) + "\n"


def names_text():
    lines = ["//! The options by name, written by tools/gen_bindings.py from src/diag/options.def.", "",
             "use crate::options::{Bytes, Setting, Word};", "use core::time::Duration;"]
    for option in gen_options_doc.options(gen_options_doc.preprocessed()):
        for name in option.names:
            lines += ["", f"/// {option.help}",
                      f'pub const {name.upper()}: Setting<{TYPES.get(option.kind, "Word")}> = Setting::new("{name}\\0");']
    return "\n".join(lines) + "\n"


def profile_text(text):
    lines = ['"""Numbers of src/profile/profile.h, written by tools/gen_bindings.py."""', ""]
    for name, remark in (("FRAMES", "of a stack; deeper ones lack their outermost functions"), ("LIFETIMES", "buckets")):
        lines.append(f"{name} = {re.search(rf'HAK_PROFILE_{name} = ([0-9]+)', text).group(1)}  # {remark}")
    return "\n".join(lines) + "\n"


def main():
    text = HEADER.read_text(encoding="utf-8")
    numbers, found = constants(text), structures(text)
    heaps = HEAPS_HEADER.read_text(encoding="utf-8")
    for path, wanted in ((PYTHON, python_text(numbers, found, structures_of_heaps(heaps))), (RUST, rust_text(numbers, found)),
                         (HEAPS, heaps_text(heaps)), (NAMES, names_text()),
                         (PROFILE, profile_text(PROFILE_HEADER.read_text(encoding="utf-8")))):
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != wanted:
            sys.exit(f"{path.relative_to(ROOT)} is not current: run tools/gen_bindings.py")
    if "--check" in sys.argv[1:]:
        print("the structures, options and numbers for Python and Rust are current")


if __name__ == "__main__":
    main()
