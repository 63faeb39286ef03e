#!/usr/bin/env python3
"""User heaps in the place of real programs' own pools: what nginx and PostgreSQL's memory contexts cost before and after.

  programs.py build       builds both from the distribution's source packages, some minutes
  programs.py nginx       instructions of a request by callgrind, and KiB of a connection; its pools are bump heaps by nginx_pools.patch,
                          made anew for each connection and request (heaps), or kept for the next by hak_heap_reset (kept)
  programs.py contexts    instructions and bytes of contexts.c with PostgreSQL's aset.c, with heaps, and with bump heaps

SUITE_PRELOAD names HAKMEM's library (out/release/libhakmem.so). Work in the kernel is not counted. All answers of nginx are checked.
"""

from __future__ import annotations

import gzip
import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE, ROOT = Path(__file__).resolve().parent, Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "lab" / "src"), str(ROOT / "tests" / "suites")]
sys.dont_write_bytecode = True

from hakmem_lab.target import peers
from sources import Archive

LIBRARY = Path(os.environ.get("SUITE_PRELOAD") or ROOT / "out" / "release" / "libhakmem.so").resolve()
FOLDER, POSTGRES = peers.folder() / "heaps-programs", peers.folder() / "heaps-programs" / "postgres"
NGINX = {"pools": None, "heaps": 0, "kept": 64}    # by folder: NGX_HEAPS, or as it comes
CALLGRIND = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--soname-synonyms=somalloc=nouserintercepts")
CONTEXTS = {"tuple": 1000, "node": 1000, "string": 1000, "query": 50}
CONNECTIONS, FEW, PATIENCE_S, PARTS = 400, 50, 60, 8
FILE, PART = b"0123456789abcdef" * 64, b"a part of a page\n"
PAGE = b"<!--#include virtual=\"/part\" -->" * PARTS
CONFIGURATION = """daemon off; master_process off; error_log stderr crit; pid {0}/pid;
events {{ worker_connections 4096; }}
http {{
    access_log off; keepalive_requests 100000; keepalive_timeout 600; client_header_timeout 600; default_type text/plain;
    client_body_temp_path {0}/body;
    server {{
        listen unix:{0}/socket; root {0};
        location /page {{ ssi on; ssi_types *; }}
        location /gzip {{ alias {0}/file; gzip on; gzip_types *; gzip_http_version 1.0; }}
    }}
}}
"""
WORKS = {   # path, whether each request has its own connection, rounds, answer
    "a file": ("/file", False, 1000, FILE), "a connection and a file": ("/file", True, 1000, FILE),
    "a page of 8 parts": ("/page", False, 300, PART * PARTS), "gzip": ("/gzip", False, 100, FILE)}


def run(command: list[object], cwd: Path, log: str) -> None:
    with (FOLDER / log).open("ab") as file:
        subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=file, stderr=file, check=True)


def build() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = Archive(FOLDER)
    for folder, kept in ((FOLDER / name, kept) for name, kept in NGINX.items()):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(archive.source("nginx"), folder, symlinks=True)
        run(["patch", "-s", "-p1", "-i", HERE / "nginx_pools.patch"], folder, "nginx.log")
        heaps = "" if kept is None else f"-I{ROOT / 'include'} -DNGX_HEAPS={kept}"
        run(["./configure", "--without-http_rewrite_module", f"--with-cc-opt=-O2 {heaps}", f"--with-ld-opt={heaps and LIBRARY}"], folder, "nginx.log")
        run(["make", "-j2"], folder, "nginx.log")
    shutil.rmtree(POSTGRES, ignore_errors=True)
    shutil.copytree(archive.source("postgresql-15"), POSTGRES, symlinks=True)
    run(["./configure", "--without-readline", "--without-zlib", "--without-icu"], POSTGRES, "postgres.log")
    run(["make", "-C", "src/backend", "generated-headers"], POSTGRES, "postgres.log")


def refs(text: str) -> int:
    found = re.search(r"refs:\s+([\d,]+)", text)
    if found is None:
        raise SystemExit(f"callgrind counted nothing: {text[-2000:]}")
    return int(found[1].replace(",", ""))


def row(title: str, cells: list[str] | list[float]) -> None:
    print(f"{title:28}" + "".join(f"{cell if isinstance(cell, str) else format(cell, ',.1f'):>14}" for cell in cells), flush=True)


def contexts() -> None:
    """Errors, encodings and signals, which mcxt.c also names, are not linked: no work comes to them."""
    program, memory = FOLDER / "contexts", POSTGRES / "src" / "backend" / "utils" / "mmgr"
    run([os.environ.get("CC", "cc"), "-O2", "-w", "-no-pie", f"-I{ROOT / 'include'}", f"-I{POSTGRES / 'src' / 'include'}", "-D_GNU_SOURCE",
         HERE / "contexts.c", memory / "aset.c", memory / "mcxt.c", "-Wl,--unresolved-symbols=ignore-all", LIBRARY, "-o", program],
        FOLDER, "postgres.log")

    def counted(kind: str, work: str, rounds: int) -> str:
        command = [*(CALLGRIND if work != "bytes" else ()), str(program), kind, work, str(rounds)]
        done = subprocess.run(command, env={**os.environ, "LD_PRELOAD": str(LIBRARY)}, capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    kinds = ["aset", "heap", "bump"]
    row("PostgreSQL's contexts", kinds)
    for work, rounds in CONTEXTS.items():
        row(work, [(refs(counted(kind, work, rounds + FEW)) - refs(counted(kind, work, FEW))) / rounds for kind in kinds])
    row("bytes of one with 100", [float(counted(kind, "bytes", 1000).partition("=")[2]) for kind in kinds])


class Server:
    def __init__(self, name: str, preload: bool, counted: bool, folder: Path):
        self.folder = folder
        for file, text in (("file", FILE), ("part", PART), ("page", PAGE)):
            (folder / file).write_bytes(text)
        (folder / "logs").mkdir()
        (folder / "conf").write_text(CONFIGURATION.format(folder), encoding="ascii")
        environment = {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "SUITE_PRELOAD")}
        environment.update({"LD_PRELOAD": str(LIBRARY)} if preload else {})
        self.process = subprocess.Popen([*(CALLGRIND if counted else ()), FOLDER / name / "objs" / "nginx", "-p", folder, "-c", folder / "conf"],
                                        env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE_S
        while not (folder / "pid").exists():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"nginx does not start: {self.end()}")
            time.sleep(0.05)

    def end(self) -> str:
        self.process.send_signal(signal.SIGTERM)
        text = self.process.communicate(timeout=PATIENCE_S)[1]
        return text if self.process.returncode == 0 else sys.exit(f"nginx has failed: {text}")

    def resident_kib(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGESIZE") // 1024


class Client(http.client.HTTPConnection):
    def __init__(self, server: Server):
        super().__init__("here")
        self.place = str(server.folder / "socket")

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.place)

    def ask(self, path: str, expected: bytes) -> None:
        self.request("GET", path, headers={"Accept-Encoding": "gzip"} if path == "/gzip" else {})
        answer = self.getresponse()
        body = answer.read()
        if (gzip.decompress(body) if answer.getheader("Content-Encoding") == "gzip" else body) != expected:
            raise SystemExit(f"nginx has answered {body!r} to {path}")


def requests(server: Server, path: str, apart: bool, rounds: int, expected: bytes) -> None:
    client = Client(server)
    for _ in range(rounds):
        client.ask(path, expected)
        if apart:
            client.close()


def instructions(name: str, preload: bool, path: str, apart: bool, rounds: int, expected: bytes) -> float:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(name, preload, True, Path(folder))
        requests(server, path, apart, rounds, expected)
        return refs(server.end())


def kib(name: str, preload: bool, idle: bool) -> float:
    """Of a connection that waits for its next request, or for the rest of one."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(name, preload, False, Path(folder))
        requests(server, "/file", True, 20, FILE)
        before, clients = server.resident_kib(), [Client(server) for _ in range(CONNECTIONS)]
        for client in clients:
            client.connect()
            if idle:
                client.ask("/file", FILE)
            else:
                client.sock.sendall(b"GET /file HTTP/1.1\r\nHost: here\r\n")
        time.sleep(1)
        found = (server.resident_kib() - before) / CONNECTIONS
        server.end()
        return found


def nginx() -> None:
    columns = {"pools, libc": ("pools", False), "pools": ("pools", True), "heaps": ("heaps", True), "kept": ("kept", True)}
    row("nginx", list(columns))
    for work, (path, apart, rounds, expected) in WORKS.items():
        row(work, [(instructions(*column, path, apart, rounds + FEW, expected) - instructions(*column, path, apart, FEW, expected)) / rounds
                   for column in columns.values()])
    for what, idle in (("KiB of an idle connection", True), ("KiB of a request to come", False)):
        row(what, [kib(*column, idle) for column in columns.values()])


if __name__ == "__main__":
    works = {"build": build, "nginx": nginx, "contexts": contexts}
    if len(sys.argv) != 2 or sys.argv[1] not in works:
        raise SystemExit(__doc__)
    works[sys.argv[1]]()
