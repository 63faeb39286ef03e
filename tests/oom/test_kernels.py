"""The override tests on kernels that lack calls: every newer call answers ENOSYS, or EPERM as a filter does; or, as in a sandbox
that implements the calls itself, there is no advice but MADV_DONTNEED and no /proc. See lacking.c.

usage: test_kernels.py [--each] LIBRARY LACKING PROGRAM...
--each, or HAK_TEST_LONG=1: also EINVAL, as to unknown advice, and each call alone.
"""
# test: timeout=1000 cost=30
import os
import pathlib
import subprocess
import sys

SKIPPED = 77
# What programs have always had; without it they are tested in strained.c.
OLD = {"mremap", "mincore"}
WITHOUT_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]


def run(command):
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin")}
    try:
        return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                              check=False)
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, 124, "", str(late))


def can_hide_proc():
    return os.geteuid() == 0 and subprocess.run([*WITHOUT_PROC, "true"], capture_output=True, check=False).returncode == 0


def kernels(calls, each):
    """(name, a command before the filter's, words of lacking.c)"""
    newer = [name for name in calls if name not in OLD]
    for code in ("ENOSYS", "EPERM", "EINVAL") if each else ("ENOSYS", "EPERM"):
        yield f"no newer call, {code}", [], [code, *newer]
    if can_hide_proc():
        yield "only MADV_DONTNEED, no /proc", WITHOUT_PROC, ["ENOSYS", "only-dontneed", *(set(newer) - {"MAP_FIXED_NOREPLACE"})]
    for name in newer if each else ():
        for code in ("ENOSYS", "EPERM"):
            yield f"no {name}, {code}", [], [code, name]


def main():
    words = [word for word in sys.argv[1:] if word != "--each"]
    each = len(words) < len(sys.argv) - 1 or os.environ.get("HAK_TEST_LONG", "0") not in ("", "0")
    library, lacking, *programs = words
    calls = subprocess.run([lacking, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    failed = 0
    for name, before, filtered in kernels(calls, each):
        passed, bad = 0, []
        for program in map(pathlib.Path, programs):
            if before and b"/proc/" in program.read_bytes():
                continue
            done = run([*before, lacking, *filtered, "--", "env", f"LD_PRELOAD={library}", program])
            if done.returncode == SKIPPED and not done.stderr:
                print("no seccomp filters here")
                return SKIPPED
            passed += done.returncode in (0, SKIPPED)
            if done.returncode not in (0, SKIPPED):
                bad.append(f"  {program.name}: status {done.returncode} {done.stderr.strip()[-300:]}")
        print(f"{name}: {passed} passed, {len(bad)} failed", *bad, sep="\n", flush=True)
        failed += len(bad)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
