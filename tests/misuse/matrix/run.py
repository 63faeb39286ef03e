#!/usr/bin/env python3
# test: cost=40
"""The misuse matrix: every mistake, by every call, in every size, must end the program at once with its exact message; a double free
of which another thread made the first part, when the block's owner collects it, which the program asks for.

    run.py LIBRARY PROGRAM double|invalid|sized [hardened] [report]
    run.py LIBRARY PROGRAM written hardened [report]

Each case is one run of the program (matrix.cpp) under the preloaded library. It must end by SIGABRT inside of the call,
with one line on stderr that names the function and the pointer; in hardened mode the stack of the caller follows, and those of
the allocation and of the free where they are known. Valid sized frees must not.

report: under HAKMEM_MISUSE=report each program must go on after the call and end with 0, and the report begin with the same line.
"""
import concurrent.futures
import itertools
import os
import re
import resource
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
from emulated import FACTOR, of_program, on_library, some

HARDENED = "hardened" in sys.argv[4:]
REPORT = "report" in sys.argv[4:]
SIZES = (16, 48, 64, 640, 1024, 10 << 10, 100 << 10, 2 << 20)
MID_MAX, LARGE_MAX = 56 << 10, 1 << 20
FUNCTION = {"free": "free", "realloc": "realloc", "usable": "malloc_usable_size", "free_sized": "free", "delete": "free",
            "delete-sized": "free", "realloc-same": "realloc"}
CALLS = ("free", "realloc", "usable", "free_sized", "delete", "delete-sized")
MODES = ({}, {"HAKMEM_STATS": "exact"}, {"HAKMEM_TINY_UNIFIED_CACHE": "0"})

HISTORIES = ("immediate", "interleaved", "later", "drained", "reused", "other-first", "other-first-ended",
             "other-absorbed", "other-second", "others-both", "other-twice", "owner-ended", "aligned", "cleared", "moved",
             "collected", "deleted", "purged", "purged-taken")

BY_ANOTHER = ("other-first", "other-first-ended", "other-absorbed", "other-second", "others-both", "other-twice", "owner-ended")

OUTSIDE = r"invalid pointer PTR: not from this allocator"
NOTHING = r"invalid pointer PTR: no block is here, or it was freed before"
INTERIOR = r"invalid pointer PTR: not the start of a block"
NEVER = r"invalid pointer PTR: this block was never allocated"
FREED = r"double free of PTR \([0-9]+-byte block\)"
FREE = r"invalid pointer PTR: this block is free"
POINTERS = {  # {case: what is said of it}
    "plus-1": INTERIOR,
    "plus-8": INTERIOR,
    "plus-16": INTERIOR,
    "plus-4096": INTERIOR,
    "plus-1-gib": f"{OUTSIDE}|{NOTHING}",
    "last-byte": INTERIOR,
    "before": f"{INTERIOR}|{NOTHING}|{OUTSIDE}",
    "stack": OUTSIDE,
    "data": OUTSIDE,
    "foreign-mapping": OUTSIDE,
    "forbidden-mapping": OUTSIDE,
    "small-number": OUTSIDE,
    "non-canonical": OUTSIDE,
    "no-address": OUTSIDE,
    "freed-span": f"{NOTHING}|FREED",
    "other-interior": INTERIOR,
    "other-huge-interior": f"{INTERIOR}|{NOTHING}",
    "never-next": "FREED",
    "never-far": NEVER,
}


def said_of_pointer(case, size):
    """What is said where the size matters."""
    huge = size > LARGE_MAX
    if HARDENED and case in ("plus-16", "plus-4096", "never-next", "never-far"):   # blocks have room for more, in any order
        return f"{INTERIOR}|{NEVER}|FREED|{NOTHING}|{OUTSIDE}"
    if case == "plus-16" and size == 16:
        return "FREED"       # the next block, which waits in the cache
    if case == "plus-4096" and 4096 % size == 0 and size < 4096:
        return NEVER         # the start of a block of the next page
    if case in ("plus-4096", "last-byte") and huge:
        return f"{INTERIOR}|{NOTHING}"
    if case.startswith("never-") and size > MID_MAX:
        return f"{INTERIOR}|{NEVER}|{NOTHING}|{OUTSIDE}"
    if case == "never-next" and size > 4096:
        return NEVER         # one block of a page at a time is taken
    return POINTERS[case]


def said_of_history(case, size):
    """A block in a span that has ended is not there any more."""
    ends = size > MID_MAX or case in ("later", "drained", "collected", "purged", "purged-taken")
    return f"FREED|{NOTHING}" if ends else "FREED"


def expected(text, call):
    text = text.replace("FREED", FREED if FUNCTION[call] == "free" else FREE)
    return rf"hakmem: {FUNCTION[call]}\(\): (?:{text})"


def double_cases():
    for case, call, size in itertools.product(HISTORIES, CALLS, SIZES):
        later = not HARDENED and case in BY_ANOTHER
        if later and call == "usable" and size <= LARGE_MAX:
            continue   # asks about a block that its owner has not collected
        mode = {"HAKMEM_HARDEN_QUARANTINE": "0"} if HARDENED and case == "reused" else {}   # else it is used too late
        wanted = expected(said_of_history(case, size), call)
        yield case, call, str(size), mode, f"{wanted}|{expected(FREED, 'free')}" if later else wanted
    for case, size, mode in itertools.product(HISTORIES, (48, 10 << 10), MODES[1:]):
        if not HARDENED or case != "reused":
            yield case, "free", str(size), mode, expected(f"{said_of_history(case, size)}|{NOTHING}", "free")


def invalid_cases():
    for case, call, size in itertools.product(POINTERS, CALLS, SIZES):
        said = expected(said_of_pointer(case, size), call)
        if call in SIZED_CALLS and case == "before":   # in another block, of another size
            said = rf"{said}|hakmem: {SIZED_CALLS[call]}\(\): wrong size {size} for PTR \([0-9]+-byte block\)"
        yield case, call, str(size), {}, said
    for case, size, mode in itertools.product(POINTERS, (48, 10 << 10), MODES[1:]):
        text = said_of_pointer(case, size)
        yield case, "free", str(size), mode, expected(f"{text}|{NEVER}" if case in ("plus-16", "never-next") else text, "free")


SIZED_CALLS = {"free_sized": "free_sized", "delete-sized": "operator delete", "delete-array": "operator delete"}
WRONG = ("16:17", "48:0", "48:8", "48:23", "48:49", "48:4096", "64:31", "640:641", "640:64", "1024:1025", "1024:100",
         "10240:10369", "10240:16", "102400:16", "102400:2000000", "2097152:2097153", "2097152:99999999999",
         "48:18446744073709551615", "64@64:65", "64@640:64", "4096@64:4097", "64@2097152:2097153")
RIGHT = ("0:0", "1:1", "16:16", "16:0", "17:17", "48:48", "48:33", "48:24", "64:64", "640:640", "640:513", "1024:1024",
         "1025:1025", "10240:10240", "57344:57344", "57345:57345", "102400:102400", "1048576:1048576", "1048577:1048577",
         "2097152:2097152", "2097152:2000000", "64@64:64", "64@1:1", "4096@64:64", "4096@1:1", "65536@8:8", "32768@1:1",
         "131072@10:10", "4194304@100:100", "256@2097152:2097152")


# In hardened mode the size has to be the one that was asked for.
WRONG_HARDENED = ("0:1", "16:0", "48:33", "48:47", "640:513", "1000:1001", "5000:4999", "2097152:2000000")


def is_right(sizes):
    """Whether the size given is that of the block."""
    return not HARDENED or sizes.partition("@")[2].partition(":")[0] == sizes.partition(":")[2] or \
        sizes.partition(":")[0] == sizes.partition(":")[2]


def sized_cases():
    for call, sizes in itertools.product(SIZED_CALLS, WRONG + (WRONG_HARDENED if HARDENED else ())):
        given, aligned = sizes.partition(":")[2], "@" in sizes
        function = "free_aligned_sized" if aligned and call == "free_sized" else SIZED_CALLS[call]
        yield "size-as", call, sizes, {}, rf"hakmem: {function}\(\): wrong size {given} for PTR \([0-9]+-byte block\)"
    for call, sizes in itertools.product(SIZED_CALLS, filter(is_right, RIGHT)):
        yield "size-as", call, sizes, {}, None


# --- hardened mode: writes behind blocks and after free --------------------------------------------------------------

OVERFLOWS = ("over-1", "over-8", "over-64", "over-far", "over-kept")
AFTER_FREE = ("after-first", "after-middle", "after-last")
FINDERS = {"free": "free", "realloc": "realloc", "usable": "malloc_usable_size", "delete": "free"}
WRITTEN_SIZES = (24, 1000, 5000, 100 << 10)
AFTER_SIZES = (24, 1000, 5000, 50 << 10)  # longer blocks fault


def written_cases():
    for case, call, size in itertools.product(OVERFLOWS, FINDERS, (*WRITTEN_SIZES, 2_000_000)):  # whole pages fault
        said = r"overflow of PTR \([0-9]+-byte block\): something was written past its end"
        yield case, call, str(size), {}, rf"hakmem: {FINDERS[call]}\(\): {said}"
    for case, size in itertools.product(AFTER_FREE, AFTER_SIZES):
        yield case, "free", str(size), {}, r"hakmem: malloc\(\): PTR \([0-9]+-byte block\) was written after free"
    for case, size in (*itertools.product(OVERFLOWS, WRITTEN_SIZES), *itertools.product(AFTER_FREE, AFTER_SIZES)):
        what = "nothing was written behind a block|a block in use has its canary, a free one is clear"
        yield case, "check", str(size), {}, rf"hakmem: hak_check_heap\(\): broken at PTR: (?:{what})"


FRAMES = r"(?:hakmem:     #[0-9]+ 0x[0-9a-f]+( \S+\+0x[0-9a-f]+)?\n)+"
STACKS = (rf"hakmem:   called by thread [0-9]+:\nhakmem:     #0 0x[0-9a-f]+ \S+/matrix\+0x[0-9a-f]+\n(?:{FRAMES})?"
          rf"(?:hakmem:   allocated:\n{FRAMES})?(?:hakmem:   freed:\n{FRAMES})?")


def stacks_of(arguments):
    """What follows the line."""
    return STACKS if HARDENED and arguments[1] != "check" else ""


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(library, program, case):
    """None, or what is wrong."""
    *arguments, mode, wanted = case
    env = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    env.update(mode, **({"HAKMEM_HARDEN": "1"} if HARDENED else {}), **({"HAKMEM_MISUSE": "report"} if REPORT else {}))
    command, env = on_library(library, [program, *arguments], env)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60 * FACTOR,
                          check=False, preexec_fn=without_cores)
    out, said = done.stdout.decode(errors="replace"), of_program(done.stderr.decode(errors="replace"))
    pointer = re.match(r"calling with (0x[0-9a-f]+)\n", out)
    fine = pointer is not None
    if fine and wanted is None:
        fine = done.returncode == 0 and said == "" and "still here" in out
    elif fine:
        line = wanted.replace("PTR", re.escape(pointer[1]))
        survives = REPORT and arguments[1] != "check"  # there the program aborts by itself
        fine = done.returncode == 0 and "still here" in out and re.match(f"(?:{line})\nhakmem:   it is ", said) if survives else \
            done.returncode == -signal.SIGABRT and "still here" not in out and re.fullmatch(f"(?:{line})\n{stacks_of(arguments)}", said)
    setting = "".join(f"{k}={v} " for k, v in mode.items())
    return None if fine else (f"{setting}{' '.join(arguments)}: status {done.returncode}, "
                              f"said {(out + said).splitlines()!r}; expected {wanted or 'nothing'}")


def main():
    library, program, part = sys.argv[1:4]
    cases = some(list({"double": double_cases, "invalid": invalid_cases, "sized": sized_cases, "written": written_cases}[part]()))
    workers = 8 if part == "written" else 2   # hak_check_heap waits for seconds before it calls a heap broken
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        problems = [text for text in pool.map(lambda case: run(library, program, case), cases) if text]
    print(f"{len(cases)} cases, {len(problems)} not as expected", *problems, sep="\n  ")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
