"""Options from strange environments, in a process of its own each: a value of 120 KiB (the system passes none much longer), a
mebibyte of them, every byte there is, a name twice (the last one counts); and of a set-user-id program, which must not
obey its caller: nothing counts there, nothing is said, and no file is written.

usage: test_environment.py ENVIRONMENT
"""
# test: timeout=120

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

SKIPPED = 77
NAME = "HAKMEM_REFILL_COUNT"
LONG = b"9" * (120 << 10)
BINARY = bytes(range(1, 256))
NOBODY = 65534

# What is in the environment, what is said of the option then, and how many warnings there are.
CASES = (
    ({}, "0 32 default", 0),
    ({NAME: b"7"}, "0 7 variable", 0),
    ({NAME: LONG}, "0 32 default", 1),
    ({NAME: BINARY}, "0 32 default", 1),
    ({NAME: b""}, "0 32 default", 0),
    ({NAME: b"7", "HAKMEM_CONF": LONG}, "0 7 variable", 1),
    ({NAME: b"7", "HAKMEM_CONF": BINARY}, "0 7 variable", None),
    ({NAME: b"7", **{f"HAKMEM_{i}": LONG for i in range(9)}}, "0 7 variable", 9),
    ({NAME: b"7", "HAKMEM_" + "X" * 100_000: b"1"}, "0 7 variable", 1),
)


def run(*command, environment):
    bytewise = {os.fsencode(name): value for name, value in environment.items()}
    done = subprocess.run(command, env=bytewise, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode().strip(), done.stderr


def strange(program):
    """How many of the cases go wrong."""
    failed = 0
    for environment, expected, warnings in CASES:
        code, said, errors = run(program, environment=environment)
        lines = [line for line in errors.split(b"\n") if line]
        good = code == 0 and said == expected and all(line.startswith(b"hakmem: ") for line in lines)
        good = good and (warnings is None or len(lines) == warnings)
        print("%s: %d %s, %d warnings %s" % (list(environment), code, said, len(lines), errors[:80]))
        failed += not good
    code, said, errors = run(program, "twice", environment={})
    print("twice: %d %s %s" % (code, said, errors))
    return failed + ((code, said, errors) != (0, "0 9 variable", b""))


def privileged(program):
    """Whether a set-user-id copy obeys its caller; None: it cannot be made here."""
    if os.geteuid() != 0:
        return None
    with tempfile.TemporaryDirectory() as folder:
        copy, written = Path(folder, "copy"), Path(folder, "written")
        shutil.copy(program, copy)
        os.chown(copy, NOBODY, -1)
        os.chmod(folder, 0o777)
        os.chmod(copy, 0o755 | stat.S_ISUID)
        environment = {NAME: b"7", "HAKMEM_CONF": b"nonsense", "HAKMEM_STATS": b"json:" + os.fsencode(written)}
        said = run(str(copy), environment=environment)
        print("set-user-id:", said, written.exists())
        if said[1].startswith("0"):
            return None   # such files have no effect here
        return said != (0, "1 32 default", b"") or written.exists()


def main():
    failed = strange(sys.argv[1])
    obeys = privileged(sys.argv[1])
    if failed or obeys:
        return 1
    return SKIPPED if obeys is None else 0


if __name__ == "__main__":
    sys.exit(main())
