#!/usr/bin/env python3
"""Runs one misuse program under the library and checks how it ends.

    run.py LIBRARY PROGRAM SOURCE

The source's leading comment lines say what must happen:

    // expect: <regular expression of the one line on stderr>
    // env: NAME=value          (any number; set for the program)
    // survives                 (the program must end with 0 instead of SIGABRT)
    // signal: SIGSEGV          (the program must end by that signal instead)
    // build: -O2 -s            (options for the compiler and the linker besides the usual ones; read by library.cmake)

Everything the program writes to stderr must be that one line; the whole line must match.
"""
import os
import re
import resource
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
from emulated import FACTOR, of_program, on_library


def directives(source):
    """The expectation, the environment and how the program must end, from the leading comment."""
    expect, env, wanted = None, {}, -signal.SIGABRT
    with open(source, encoding="utf-8") as lines:
        for line in lines:
            if not line.startswith("//"):
                break
            text = line[2:].strip()
            if text.startswith("expect:"):
                expect = text[len("expect:"):].strip()
            elif text.startswith("env:"):
                name, _, value = text[len("env:"):].strip().partition("=")
                env[name] = value
            elif text.startswith("signal:"):
                wanted = -signal.Signals[text[len("signal:"):].strip()]
            elif text == "survives":
                wanted = 0
    if not expect:
        sys.exit(f"{source}: no '// expect:' line in its leading comment")
    return expect, env, wanted


def without_cores():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def describe(status):
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def main():
    library, program, source = sys.argv[1:]
    expect, extra, wanted = directives(source)
    env = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    command, env = on_library(library, [program], env | extra)
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          timeout=60 * FACTOR, check=False, preexec_fn=without_cores)
    said = of_program(done.stderr.decode(errors="replace"))

    problems = []
    if done.returncode != wanted:
        problems.append(f"ended with {describe(done.returncode)}, expected {describe(wanted)}")
    if not re.fullmatch(expect, said.removesuffix("\n")):
        problems.append(f"expected on stderr: {expect}")
    if problems:
        print(f"{os.path.basename(source)}:", *problems, "stderr was:", said or "(nothing)", sep="\n  ")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
