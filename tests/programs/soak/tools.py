"""Editors and tools for developers and administrators: emacs, vim, gdb, strace, valgrind, faketime, systemd-analyze."""

import pathlib
import re
import sys

from documents import digest
from program import Program
from running import LOADS, build, check, find
from served import Serving


def build_subject(folder):
    """The program that debuggers look at, with what they need to name its parts."""
    build(["gcc", "-g", "-O0", "-fno-builtin", "-pthread", "-o", folder / "subject", LOADS / "subject.c"])


class Emacs(Program):
    """emacs --batch: buffers, text properties, tables, garbage collection, the byte compiler and a process."""

    name = "emacs"
    packages = {"emacs": "emacs-nox"}
    serving = (Serving("emacs*", 10_000),)

    def load(self, run):
        return run.command([find("emacs"), "--batch", "--no-site-file", "-q", "-l", run.load("script.el")])


class Vim(Program):
    """vim -es: a script of substitutions, undo, sorting, folding, two hundred windows."""

    name = "vim"
    packages = {"vim": "vim"}
    serving = (Serving("vim*", 10_000),)

    def load(self, run):
        run.command([find("vim"), "-es", "-u", "NONE", "-i", "NONE", "-S", run.load("script.vim"), run.directory / "result"])
        return digest(run.directory / "result"), (run.directory / "digest").read_text()


class Gdb(Program):
    """gdb -batch: breakpoints, stacks, variables and types of a program with two threads, both on HAKMEM."""

    name = "gdb"
    packages = {"gdb": "gdb", "gcc": "gcc"}
    serving = (Serving("gdb", 10_000), Serving("subject", 200))
    COMMANDS = ("set pagination off", "set confirm off", "info line insert", "ptype struct tree", "list work", "break show", "run",
                "bt", "info args", "thread apply all print $_thread", "print *root", "print root->right->text",
                "print sum_up(root->right)", "watch depth", "up", "info source", "delete", "continue")
    NEWS = re.compile(r"(?m)^\[(?:New|Thread|Switching|Detaching|Attaching).*\n|^.*libthread_db.*\n")
    NUMBERS = re.compile(r"0x[0-9a-f]+|\((?:LWP|process|Thread)[^)]*\)+|\bThread 0x\w+|\bprocess \d+")

    def prepare(self, folder):
        build_subject(folder)

    def load(self, run):
        commands = [word for command in self.COMMANDS for word in ("-ex", command)]
        text = run.command([find("gdb"), "-nx", "-batch", *commands, run.prepared / "subject"])
        check("sums " in text and text.count("Breakpoint 1, show") == 1, f"the program has printed no sums:\n{text[-500:]}")
        return self.NUMBERS.sub("~", self.NEWS.sub("", text))


class Strace(Program):
    """strace -f: the system calls of a shell with many children; the shell and they run without the library.

    strace itself is on HAKMEM; what it traces must be the same calls, so that the library is taken out of their
    environment.
    """

    name = "strace"
    packages = {"strace": "strace", "gcc": "gcc"}
    serving = (Serving("strace", 200),)
    SCRIPT = "for i in $(seq 1 60); do /bin/echo word $i; done | sort -r | head -n 5; ./subject; ls -d /; (exit 3); echo $?"
    NUMBERS = re.compile(r"\[pid +\d+\] |^\d+ +|\b(?:si_pid|child_tidptr|stub_tid|si_utime|si_stime)=[^,}\s]+|0x[0-9a-f]+|\b\d{3,7}\b",
                         re.M)

    def prepare(self, folder):
        build_subject(folder)

    def load(self, run):
        output = run.command([find("strace"), "-f", "-ff", "-v", "-s", "300", "-e", "trace=execve,write,exit_group,wait4,dup2",
                              "-e", "signal=none", "-E", "LD_PRELOAD", "-E", "HAKMEM_STATS", "-o", run.directory / "tmp" / "trace",
                              "/bin/sh", "-c", self.SCRIPT], cwd=run.prepared)
        traces = sorted(self.NUMBERS.sub("~", path.read_text()).replace(str(run.directory), "~")
                        for path in (run.directory / "tmp").glob("trace.*"))
        check(len(traces) > 60, f"only {len(traces)} processes were traced")
        return output, traces


class Valgrind(Program):
    """valgrind: a program with threads and a child on HAKMEM under none, callgrind and memcheck.

    valgrind's own core is a static program with an allocator of its own, which no library can replace; what is tested is
    the program in it, whose every instruction, the library's too, valgrind translates. memcheck replaces malloc unless
    it is told not to: once as it does by itself, which must find no error and serves nobody, once with the library.
    """

    name = "valgrind"
    packages = {"valgrind": "valgrind", "gcc": "gcc"}
    serving = (Serving("none-*", 4_000), Serving("callgrind-*", 4_000), Serving("memcheck-*", 4_000))
    TOOLS = (["--tool=none"], ["--tool=callgrind", "--callgrind-out-file=/dev/null"], ["--tool=memcheck"],
             ["--tool=memcheck", "--soname-synonyms=somalloc=nouserintercepts", "--undef-value-errors=no"])

    def prepare(self, folder):
        build_subject(folder)

    def load(self, run):
        results = []
        for options in self.TOOLS:
            results.append(run.command([find("valgrind"), "-q", "--error-exitcode=9", *options, run.prepared / "subject"]))
            check(results[-1].startswith("sums ") and "child " in results[-1], f"the program has not ended:\n{results[-1]}")
        check(len(set(results)) == 1, f"the tools differ: {results}")
        return results


class Faketime(Program):
    """faketime: Python, its threads and children at another time; libfaketime wraps the clocks and allocates in its wrappers.

    The monotonic clock stays as it is: Python's waits with a limit never end with another, on the system's malloc too.
    """

    name = "faketime"
    packages = {"faketime": "faketime"}
    PYTHON = pathlib.Path(sys.executable).resolve()
    serving = (Serving(PYTHON.name, 20_000, processes=2), Serving(PYTHON.name, 500, processes=10))

    def load(self, run):
        return [run.command([find("faketime"), "--exclude-monotonic", *when, self.PYTHON, run.load("clocks.py")],
                            extra={"PYTHONMALLOC": "malloc"})
                for when in (["2001-02-03 04:05:06"], ["-f", "@2030-01-01 00:00:00 x100"])]


class SystemdAnalyze(Program):
    """systemd-analyze: dates, time spans, units and their security, filters, all without a running systemd."""

    name = "systemd-analyze"
    packages = {"systemd-analyze": "systemd"}
    serving = (Serving("systemd-analyze", 200, processes=4),)
    UNIT = ("[Unit]\nDescription=It\nAfter=network.target\n[Service]\nExecStart=/bin/true\nPrivateTmp=yes\nNoNewPrivileges=yes\n"
            "ProtectSystem=strict\nSystemCallFilter=@system-service\n[Install]\nWantedBy=multi-user.target\n")
    QUESTIONS = (["calendar", "--base-time=2026-01-01", "--iterations=300", "Mon..Fri *-*-* 00/2:15:00"],
                 ["timespan", "1y 2month 3w 5h 6min 7s", "99999999s", "1us"], ["timestamp", "2026-02-03 04:05:06 UTC"],
                 ["syscall-filter"], ["exit-status"], ["capability"], ["unit-paths"])

    def load(self, run):
        for number in range(40):
            (run.directory / f"it{number}.service").write_text(self.UNIT)
        units = sorted(run.directory.glob("it*.service"))
        answers = [run.command([find("systemd-analyze"), *question]) for question in self.QUESTIONS]
        answers.append(run.command([find("systemd-analyze"), "--man=no", "verify", *units], expect=(0, 1)) + run.errors_of_last())
        answers.append(run.command([find("systemd-analyze"), "--no-pager", "--offline=true", "security", *units]))
        text = "\n".join(answers).replace(str(run.directory), "~")
        return re.sub(r"(?m)^.*From now:.*$", "", text)
