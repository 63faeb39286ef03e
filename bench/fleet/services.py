#!/usr/bin/env python3
"""The servers of hosts.py and their load: services.py serve PORT, the Python one; services.py client SERVICE PORT."""

from __future__ import annotations

import asyncio
import random
import socketserver
import sys
import time
from pathlib import Path

KEYS, RATE = 20_000, 40  # of one server; requests per second
AB_S = 6
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def command(service: str, port: int, folder: Path) -> list[str]:
    if service == "redis":
        return ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--loglevel", "warning"]
    if service == "nginx":
        text = (f"daemon off; master_process off; pid {folder}/{port}.pid; error_log /dev/null; events {{ }}\n"
                f"http {{ access_log off; keepalive_requests 1000000;\n"
                f'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "kept"; }} }} }}\n')
        (folder / f"{port}.conf").write_text(text)
        return ["nginx", "-p", str(folder), "-c", str(folder / f"{port}.conf"), "-e", "/dev/null"]
    return [sys.executable, __file__, "serve", str(port)] if service == "python" else [str(folder / "service"), str(port)]


def serve(port: int) -> None:
    kept: dict[bytes, bytes] = {}

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                verb, key, *value = line.rstrip().split(b" ", 2)
                if verb == b"SET":
                    kept[key] = value[0]
                else:
                    kept.pop(key, None)
                self.wfile.write(b"+OK\r\n")

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer(("127.0.0.1", port), Handler).serve_forever()


def request(service: str, *words: bytes) -> bytes:
    if service == "redis":
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    return b" ".join(words) + b"\r\n"


def change(of: random.Random, service: str, key: int) -> bytes:
    return request(service, b"SET", b"k%d" % key, b"x" * min(int(of.lognormvariate(6.8, 0.9)), 30_000))


async def client(service: str, port: int, keys: int, seconds: float, filled: asyncio.Semaphore | None = None) -> None:
    """Fills a server, then sets and deletes keys, a few per second; of nginx it holds connections and asks by one of them."""
    of, until, web = random.Random(port), time.monotonic() + seconds, service == "nginx"
    many = [await asyncio.open_connection("127.0.0.1", port) for _ in range(keys // 50 if web else 1)]

    async def ask(content: bytes, answers: int = 1) -> None:
        reader, writer = of.choice(many)
        writer.write(content)
        for _ in range(answers):
            await reader.readuntil(b"kept" if web else b"\r\n")

    for first in range(0, keys, 100):
        await (ask(GET) if web else ask(b"".join(change(of, service, key) for key in range(first, first + 100)), 100))
    if filled is not None:
        filled.release()
    while time.monotonic() < until:
        key = of.randrange(keys)
        await ask(GET if web else change(of, service, key) if of.random() < 0.8 else request(service, b"DEL", b"k%d" % key))
        await asyncio.sleep(1 / RATE)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        asyncio.run(client(sys.argv[2], int(sys.argv[3]), KEYS, AB_S))
