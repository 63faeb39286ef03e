"""One run of a program, on the system's malloc or on HAKMEM: starts its processes, bounds and ends them.

Everything a run leaves lies in its folder. Processes are started in it, with an environment of few words, so that two
runs differ in the allocator alone. What they print on stderr is kept in files; a report of misuse in one is a failure.
"""

import ctypes
import glob
import itertools
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from support import REPORT_LINE, Failure, Skip, check, tail

PR_SET_CHILD_SUBREAPER = 36
LOADS = pathlib.Path(__file__).resolve().parent / "loads"
NOBODY = "nobody"
PLACES = ("/usr/sbin", "/sbin", "/usr/lib/postgresql/*/bin", "/usr/lib/libreoffice/program")


def adopt_orphans():
    """Daemons and children of ended servers stay below this process, where they are seen and ended."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def find(program):
    """The path of a program, also where servers lie; of `a|b` the first that exists; None without it."""
    folders = [folder for place in PLACES for folder in sorted(glob.glob(place), reverse=True)]
    for name in program.split("|"):
        path = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
        if path:
            return path
    return None


def need(program, package):
    path = find(program)
    if path is None:
        raise Skip(f"{program} is missing: install {package} ('./dev setup --soak-programs')")
    return path


def build(argv, **extra):
    """Make what the runs of a program share, with the developer's own environment."""
    done = subprocess.run([str(word) for word in argv], env={**os.environ, **extra}, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False)
    check(done.returncode == 0, f"{argv[0]} ended with {done.returncode}:\n{tail(done.stdout)}")


class Started:
    """A process that goes on beside the run: a server, or a load."""

    def __init__(self, run, process, name, output, log):
        self.run, self.process, self.name, self.output, self.log = run, process, name, output, log
        self.pid = process.pid

    def wait_until(self, condition, what, limit=60):
        """Poll until the condition holds; fail when the process ends or takes too long."""
        end = time.monotonic() + limit
        while not condition():
            check(self.process.poll() is None, f"{self.name} ended with {self.process.returncode}, it should {what}:\n"
                                               f"{self.said()}")
            check(time.monotonic() < end, f"{self.name} didn't {what} within {limit} s:\n{self.said()}")
            time.sleep(0.05)

    def said(self):
        return tail(self.log.read_text(errors="replace"))

    def stop(self, number=signal.SIGTERM, expect=(0,), limit=60):
        """Ask it to end and expect that it does, in order."""
        check(self.process.poll() is None, f"{self.name} had ended before, with {self.process.returncode}:\n{self.said()}")
        self.process.send_signal(number)
        return self.finish(expect, limit)

    def finish(self, expect=(0,), limit=60):
        """Wait for its end; what it has printed on stdout."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name} didn't end within {limit} s:\n{self.said()}") from None
        output = self.output.read_text(encoding="utf-8", errors="replace")
        check(code in expect, f"{self.name} on {self.run.allocator} ended with {code}:\n{tail(output)}\n{self.said()}")
        return output


class Run:
    """One allocator, a folder, a time."""

    def __init__(self, directory, seconds, prepared, library=None, statistics=None, watcher=None):
        self.directory, self.seconds, self.shared_object = directory, seconds, library
        self.prepared = prepared   # the folder of Program.prepare
        self.statistics, self.watcher = statistics, watcher
        self.allocator = "HAKMEM" if library else "the system's malloc"
        self.user = None     # whose name the processes bear; see `drop_privileges`
        self.started = []
        self.numbers = itertools.count()   # of processes that several threads start at once
        (directory / "home").mkdir()
        (directory / "tmp").mkdir()

    def drop_privileges(self):
        """Run as nobody what refuses to run as root."""
        if os.geteuid() == 0:
            self.user = pwd.getpwnam(NOBODY)
            for folder in (self.directory, self.directory / "home", self.directory / "tmp"):
                os.chown(folder, self.user.pw_uid, self.user.pw_gid)

    def environment(self, preload=True, extra=None):
        kept = {name: os.environ[name] for name in ("PATH", "HAKMEM_HARDEN") if name in os.environ}
        kept.update(LC_ALL="C.UTF-8", TZ="UTC", HOME=str(self.directory / "home"), TMPDIR=str(self.directory / "tmp"))
        if self.user:
            kept["USER"] = kept["LOGNAME"] = self.user.pw_name
        if self.shared_object and preload:
            kept["LD_PRELOAD"] = str(self.shared_object)
            kept["HAKMEM_STATS"] = f"json:{self.statistics}/%p.json"
        return {**kept, **(extra or {})}

    def start(self, argv, *, input=None, preload=True, extra=None, cwd=None):
        """Start a process that goes on. What it prints goes into files, which a daemon of its may keep open."""
        argv = [str(word) for word in argv]
        name = pathlib.Path(argv[0]).name
        number = next(self.numbers)
        files = [self.directory / f"{number}-{name}.{kind}" for kind in ("in", "out", "log")]
        files[0].write_text(input or "", encoding="utf-8")
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        with open(files[0], "rb") as stdin, open(files[1], "wb") as stdout, open(files[2], "wb") as stderr:
            process = subprocess.Popen(argv, cwd=cwd or self.directory, env=self.environment(preload, extra), stdin=stdin,
                                       stdout=stdout, stderr=stderr, start_new_session=True, **who)
        if self.watcher:
            self.watcher.started[process.pid] = pathlib.Path(os.path.realpath(find(argv[0]) or argv[0])).name
        started = Started(self, process, name, *files[1:])
        self.started.append(started)
        return started

    def command(self, argv, *, expect=(0,), limit=120, **how):
        """Run a process to its end; its standard output."""
        return self.start(argv, **how).finish(expect, limit)

    def client(self, argv, **how):
        """The same without the library: what asks a server isn't what is tested."""
        return self.command(argv, preload=False, **how)

    def load(self, name):
        """A copy of a file of loads/, where the run's processes can read it."""
        target = self.directory / name
        shutil.copyfile(LOADS / name, target)
        return target

    def errors_of_last(self):
        """What the last process has printed on stderr."""
        return self.started[-1].log.read_text(errors="replace")

    def check_logs(self):
        """No process has printed a report of the library's."""
        for each in self.started:
            report = REPORT_LINE.search(each.log.read_text(errors="replace"))
            check(report is None, f"{each.name}: the library reports {report and report.group()}")

    def close(self):
        """Take note of the ends of all processes, which have been ended."""
        for each in self.started:
            each.process.wait()


def free_port():
    """A port of the loopback interface that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
