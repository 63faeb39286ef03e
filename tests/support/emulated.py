"""How tests run programs on the library: by this machine, or by the emulator that HAK_TEST_EMULATOR names."""
import os
import re

EMULATOR = os.environ.get("HAK_TEST_EMULATOR")
FACTOR = int(os.environ.get("HAK_TEST_EMULATED", "1"))   # for limits of time
OF_THE_EMULATOR = re.compile(r"qemu: uncaught target signal [0-9]+ \([^)]*\) - core dumped\n")


def on_library(library, command, settings):
    """(command, environment)"""
    if EMULATOR:
        return [EMULATOR, "-E", f"LD_PRELOAD={library}", *command], settings
    return command, {**settings, "LD_PRELOAD": library}


def of_program(said):
    """What the program itself has written to stderr."""
    return OF_THE_EMULATOR.sub("", said)


def some(cases, step=29):
    """All of them, or under an emulator, where each takes long, some of each kind."""
    return cases[::step] if EMULATOR else cases
