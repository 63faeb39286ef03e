"""redis-server under redis-benchmark: redis.py REQUESTS.

Only the server runs on the allocator that is measured: $SUITE_PRELOAD names its library (unset: the C library's).
Prints a result line for the server: requests per second, the benchmark's wall seconds, the server's CPU seconds, its
peak of memory in KiB and its page faults.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = ("set", "get", "incr", "lpush", "rpop", "sadd", "hset", "spop", "zadd", "lrange_100", "mset")
START_S = 20


def start(command: list[str], made: Path) -> subprocess.Popen[bytes]:
    """A server on the allocator that is measured, once its socket is there."""
    environment = dict(os.environ)
    library = environment.pop("SUITE_PRELOAD", "")
    if library:
        environment["LD_PRELOAD"] = library
    server = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + START_S
    while not made.exists():
        if server.poll() is not None or time.monotonic() > until:
            server.terminate()
            raise SystemExit(f"{command[0]} did not start")
        time.sleep(0.005)
    if library and library not in Path(f"/proc/{server.pid}/maps").read_text():
        server.terminate()
        raise SystemExit(f"{command[0]} did not load {library}")
    return server


def figures(pid: int) -> dict[str, float]:
    """CPU seconds, peak of memory and faults of a process that still runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0])
    ticks = os.sysconf("SC_CLK_TCK")
    return {"cpu_s": (int(fields[11]) + int(fields[12])) / ticks, "peak_rss_kb": peak, "minor_faults": int(fields[7])}


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    requests = int(sys.argv[1])
    client = dict(os.environ)
    client.pop("SUITE_PRELOAD", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # On no port, and it writes nothing to disk.
        server = start(["redis-server", "--port", "0", "--unixsocket", str(folder / "socket"), "--save", "", "--appendonly", "no",
                        "--dir", str(folder)], folder / "socket")
        try:
            began = time.monotonic()
            subprocess.run(
                ["redis-benchmark", "-s", str(folder / "socket"), "-n", str(requests), "-P", "16", "-d", "64", "-r",
                 "100000", "-q", "-t", ",".join(TESTS)], env=client, check=True, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL)
            seconds = time.monotonic() - began
            found = figures(server.pid)
        finally:
            server.terminate()
            server.wait(timeout=START_S)
    numbers = " ".join(f"{name}={value:.6g}" for name, value in found.items())
    print(f"redis.py ops_per_s={requests * len(TESTS) / seconds:.0f} seconds={seconds:.4f} {numbers}")


if __name__ == "__main__":
    main()
