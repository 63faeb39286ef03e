#!/usr/bin/env python3
# test: timeout=600 cost=55
"""redis-server keeps its data under redis-benchmark and while it forks to save.

Known keys of several types are written first. Then 50 pipelining clients run SET, GET, LPUSH and
LRANGE while the server saves in the background, which forks it under load. Afterwards the known
keys, the lengths of the benchmark's lists and the number of keys are checked; once more after a
clean shutdown and a restart from the file that the server has saved. Only the server runs on
HAKMEM, so that whatever breaks is the server's.
"""

import pathlib
import shutil
import subprocess
import time

from support import check, main, need, tail

SOCKET = "redis.sock"
KNOWN = 20_000
REQUESTS = 100_000
CLIENTS = 50
PIPELINE = 16
PATIENCE = 60  # Seconds to wait for anything that the server has to do.


def find_server(directory):
    """Find redis-server; Debian's redis-tools has it too, under another name, without the daemon."""
    server = shutil.which("redis-server")
    if server is None:
        server = directory / "redis-server"
        server.symlink_to(need("redis-check-rdb", "redis-tools"))
    return server


class Server:
    """One running redis-server, with the client's side of it."""

    def __init__(self, executable, allocator, directory):
        self.allocator = allocator
        self.directory = directory
        self.log = directory / "stderr.txt"
        command = [executable, "--port", "0", "--unixsocket", SOCKET, "--save", "", "--loglevel", "warning"]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, cwd=directory, env=allocator.environment(),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        self.wait_for(lambda: (self.directory / SOCKET).exists() and self.ask("PING") == "PONG", "start")
        return self

    def __exit__(self, *_):
        self.process.kill()  # Has no effect on a server that has ended, as it should have.
        self.process.wait()

    def wait_for(self, condition, what):
        """Poll until the condition holds; fail when the server ends or takes too long."""
        end = time.monotonic() + PATIENCE
        while not condition():
            check(self.process.poll() is None, f"the server died, it should {what}: {tail(self.log.read_text())}")
            check(time.monotonic() < end, f"the server didn't {what} within {PATIENCE} s")
            time.sleep(0.05)

    def start_client(self, program, *arguments, input=None):
        return subprocess.Popen([need(program, "redis-tools"), "-s", SOCKET, *arguments], cwd=self.directory,
                                stdin=input, stdout=subprocess.PIPE, text=True)

    def ask(self, *arguments):
        output, _ = self.start_client("redis-cli", "--raw", *arguments).communicate()
        return output.rstrip("\n")

    def ask_all(self, commands):
        """Send many commands, one per line, over one connection; return all replies as one text."""
        client = self.start_client("redis-cli", "--raw", input=subprocess.PIPE)
        return client.communicate("\n".join(commands) + "\n")[0]

    def info(self, section, field):
        for line in self.ask("INFO", section).splitlines():
            if line.startswith(field + ":"):
                return line.partition(":")[2].strip()
        return None

    def save_in_background(self):
        """Fork the server and wait until its child has written the database."""
        before = self.info("persistence", "rdb_last_save_time")
        time.sleep(1.1)  # The server knows the time of its last save in whole seconds.
        check("started" in self.ask("BGSAVE"), "BGSAVE wasn't started")
        self.wait_for(lambda: self.info("persistence", "rdb_bgsave_in_progress") == "0", "save")
        check(self.info("persistence", "rdb_last_bgsave_status") == "ok", "the background save failed")
        check(self.info("persistence", "rdb_last_save_time") != before, "the background save wrote nothing")

    def maps_library(self):
        maps = pathlib.Path(f"/proc/{self.process.pid}/maps").read_text()
        return self.allocator.shared_object is None or str(self.allocator.shared_object) in maps

    def shut_down(self):
        """Let the server save and end, and take its statistics."""
        self.ask("SHUTDOWN", "SAVE")
        code = self.process.wait(PATIENCE)
        self.allocator.take_statistics(self.log.read_text(errors="replace"))
        check(code == 0, f"the server ended with {code}: {tail(self.log.read_text())}")


def value(i):
    """The known value of key i: its length varies between a few bytes and a few kilobytes."""
    return f"value-{i}-" + "x" * (i * i % (4000 if i % 100 == 0 else 200))


def write_known(server):
    commands = []
    for i in range(KNOWN):
        commands += [f"SET known:{i} {value(i)}", f"RPUSH known-list:{i % 100} {value(i % 500)}",
                     f"HSET known-hash:{i % 50} field-{i} {value(i % 300)}", f"ZADD known-set {i} member-{i}"]
    commands += [f"SET known:{i} {value(i + 1)}" for i in range(0, KNOWN, 7)]
    commands += [f"DEL known:{i}" for i in range(0, KNOWN, 11)]
    server.ask_all(commands)


def read_known(server):
    """Everything that the known keys hold, in one text."""
    return server.ask_all(
        [f"GET known:{i}" for i in range(KNOWN)] +
        [f"LRANGE known-list:{i} 0 -1" for i in range(100)] +
        [f"HGET known-hash:{i % 50} field-{i}" for i in range(KNOWN)] +
        ["ZRANGE known-set 0 -1 WITHSCORES"])


def expected_strings():
    """What the GETs of read_known must give, worked out without the server."""
    for i in range(KNOWN):
        yield "" if i % 11 == 0 else value(i + 1 if i % 7 == 0 else i)


def run_benchmark(server):
    """Run redis-benchmark, with a background save in its middle; return its report."""
    benchmark = server.start_client(
        "redis-benchmark", "-t", "set,get,lpush,lrange_100", "-c", str(CLIENTS), "-P", str(PIPELINE),
        "-n", str(REQUESTS), "-r", "100000", "-d", "100", "--csv")
    server.save_in_background()
    report, _ = benchmark.communicate()
    check(benchmark.returncode == 0, f"redis-benchmark ended with {benchmark.returncode}")
    return report


def check_benchmark(server, report):
    """Check what redis-benchmark has left: LRANGE pushes its list again before it reads."""
    for test in ("SET", "GET", "LPUSH", "LRANGE_100"):
        check(f'"{test}' in report, f"redis-benchmark didn't report {test}:\n{report}")
    length = int(server.ask("LLEN", "mylist"))
    check(2 * REQUESTS <= length < 2 * REQUESTS + 2 * CLIENTS * PIPELINE, f"mylist has {length} elements")
    element = server.ask("LINDEX", "mylist", str(length // 2))
    check(element == server.ask("LINDEX", "mylist", "0") and len(element) == 100, f"an element of mylist is {element}")


def test(setup):
    executable = find_server(setup.directory)
    setup.require_bindings([executable, "--version"], programs=["redis-server"])

    def workload(allocator, directory):
        with Server(executable, allocator, directory) as server:
            check(server.maps_library(), "the server doesn't map the library")
            write_known(server)
            known = read_known(server)
            check(known.split("\n")[:KNOWN] == list(expected_strings()), "the known keys are wrong from the start")
            check_benchmark(server, run_benchmark(server))
            check(read_known(server) == known, "the known keys have changed under load")
            size = server.ask("DBSIZE")
            server.shut_down()
        with Server(executable, allocator, directory) as server:
            check(read_known(server) == known, "the known keys have changed after a restart")
            check(server.ask("DBSIZE") == size, "keys are missing after a restart")
            server.shut_down()
        return known

    setup.compare(workload, refilled=200_000, calls=2_000_000)


main(test)
