#!/usr/bin/env python3
"""redis-server on HAKMEM for a long time: does its resident memory grow?

    redis_soak.py LIBRARY [--seconds S]

The number of keys and the sizes of values have bounds, their mix changes all the time: strings that grow and shrink,
hashes, lists, sorted sets, expiry, deletion of whole ranges, and a child that saves now and then. After a start of a
quarter of the time the server's resident memory is read, up to ten times a second. Least squares over the second half
give its slope; the server passes when that amounts to at most 3 % of the mean, or 2 MiB, over the half. The last line is

    rss_mib=MEAN slope_mib_per_hour=S drift_percent=D commands=N samples=N

Exit status 0, 1, or 77 when there is no redis-server.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
KEYS = 20000
DRIFT_MOST, BYTES_LEAST = 0.03, 2 << 20


class Client:
    """As much of redis' protocol as a load needs."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(str(path))
        self.answers = self.socket.makefile("rb")

    def pipeline(self, commands):
        """Send all, read every answer; an error is an exception."""
        data = bytearray()
        for words in commands:
            data += b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                data += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(data)
        return [self.answer() for _ in commands]

    def answer(self):
        line = self.answers.readline()
        if not line:
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-" and not rest.startswith(b"ERR Background save already"):
            raise ConnectionError(rest.decode(errors="replace"))
        if kind == b"$":
            return None if rest == b"-1" else self.answers.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        return rest


def some_commands(rng, phase):
    """A hundred commands; `phase` shifts the sizes, so that no size is the only one for long."""
    most = (64, 256, 1024, 5000)[phase % 4]
    for _ in range(100):
        key, size = rng.randrange(KEYS), rng.randrange(1, most)
        roll = rng.randrange(20)
        if roll < 9:
            yield ("SET", f"s{key}", bytes([65 + key % 26]) * size)
        elif roll < 11:
            yield ("APPEND", f"s{key}", b"x" * 16)
            yield ("SETRANGE", f"s{key}", 0, b"y" * 8)
        elif roll < 13:
            yield ("HSET", f"h{key % 500}", f"f{rng.randrange(60)}", b"v" * (size % 300))
        elif roll < 15:
            yield ("LPUSH", f"l{key % 200}", b"e" * (size % 200))
            yield ("LTRIM", f"l{key % 200}", 0, 100)
        elif roll < 16:
            yield ("ZADD", f"z{key % 100}", rng.randrange(10000), f"m{rng.randrange(200)}")
        elif roll < 18:
            yield ("GET", f"s{key}")
        elif roll < 19:
            yield ("EXPIRE", f"s{key}", 1 + key % 5)
        else:
            yield ("UNLINK", *[f"s{(key + i) % KEYS}" for i in range(8)])


def resident(pid):
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def slope(samples):
    """Bytes per second by least squares, and the mean."""
    count = len(samples)
    middle, mean = sum(t for t, _ in samples) / count, sum(r for _, r in samples) / count
    spread = sum((t - middle) ** 2 for t, _ in samples)
    return (sum((t - middle) * (r - mean) for t, r in samples) / spread if spread else 0.0), mean


def load(client, pid, seconds):
    """[(time, resident bytes)] and the number of commands."""
    rng, samples, commands = random.Random(1), [], 0
    start = time.monotonic()
    next_sample, next_save, turn = start + seconds / 4, start + seconds / 10, 0
    while time.monotonic() < start + seconds:
        turn += 1
        commands += len(client.pipeline(list(some_commands(rng, turn // 16))))
        now = time.monotonic()
        if now >= next_save:
            client.pipeline([("BGSAVE",)])
            next_save = now + max(2.0, seconds / 60)
        if now >= next_sample:
            samples.append((now - start, resident(pid)))
            next_sample = now + max(0.1, seconds / 3000)
    return samples, commands


def serve(executable, library, folder, seconds):
    """Start the server, put it under load, and give what load() gives."""
    path = folder / "socket"
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HAKMEM_", "LD_PRELOAD"))}
    server = subprocess.Popen(
        [executable, "--port", "0", "--unixsocket", str(path), "--dir", str(folder), "--save", "", "--daemonize", "no"],
        env={**environment, "LD_PRELOAD": str(library)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=open(folder / "stderr", "wb"), start_new_session=True)
    try:
        for _ in range(600):
            if path.exists() or server.poll() is not None:
                break
            time.sleep(0.1)
        if str(library) not in pathlib.Path(f"/proc/{server.pid}/maps").read_text():
            raise ConnectionError("the server does not map the library")
        client = Client(path)
        found = load(client, server.pid, seconds)
        size = int(client.pipeline([("DBSIZE",)])[0])
        if not 0 < size < 2 * KEYS:
            raise ConnectionError(f"the server has {size} keys")
        server.send_signal(signal.SIGTERM)
        if server.wait(60) != 0:
            raise ConnectionError(f"the server ended with {server.returncode}")
        said = (folder / "stderr").read_text(errors="replace")
        if "hakmem:" in said:
            raise ConnectionError(said[:2000])
        return found
    finally:
        try:
            os.killpg(server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared_object", metavar="LIBRARY", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    executable = shutil.which("redis-server")
    if executable is None:
        print("SKIPPED: redis-server is missing: install redis-server ('./dev setup --programs')")
        return SKIPPED
    try:
        library = options.shared_object.resolve(strict=True)
        with tempfile.TemporaryDirectory(prefix="hakmem-", ignore_cleanup_errors=True) as folder:
            samples, commands = serve(executable, library, pathlib.Path(folder), options.seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {error}")
        return 1
    half = [sample for sample in samples if sample[0] >= options.seconds / 2]
    if len(half) < 10:
        print(f"FAILED: only {len(half)} samples; --seconds {options.seconds} is too short")
        return 1
    rise, mean = slope(half)
    drift = rise * options.seconds / 2
    print(f"rss_mib={mean / (1 << 20):.1f} slope_mib_per_hour={rise * 3600 / (1 << 20):.2f}"
          f" drift_percent={100 * drift / mean:.2f} commands={commands} samples={len(half)}")
    return 1 if drift > max(DRIFT_MOST * mean, BYTES_LEAST) else 0


if __name__ == "__main__":
    sys.exit(main())
