"""nginx before PHP-FPM under ab: web.py REQUESTS; web.py --look only says whether all of them are there.

nginx with one worker and PHP-FPM with two run on the allocator that is measured: $SUITE_PRELOAD names its library (unset: the C
library's). Every request renders page.php. Prints a result line for both servers with all their processes: requests per second, ab's
wall seconds, CPU seconds, the sum of the peaks of memory in KiB, and page faults.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from redis import START_S, figures, start

PLACES = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
CLIENTS = "8"

PHP = """[global]
error_log = {folder}/php.log
daemonize = no
[www]
{user}
listen = {folder}/php.socket
pm = static
pm.max_children = 2
"""

NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log; {user}
events {{ worker_connections 64; }}
http {{
  access_log off; gzip on; gzip_types *; gzip_comp_level 1; default_type text/html;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fast;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen unix:{folder}/web.socket; listen 127.0.0.1:{port}; keepalive_requests 1000000;
    location / {{
      fastcgi_pass unix:{folder}/php.socket;
      fastcgi_param SCRIPT_FILENAME {page}; fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;
    }}
  }}
}}
"""


def find(name: str, number: str = "") -> str:
    """The newest program of this name, a number after it allowed by an expression, in PATH and where Debian puts servers."""
    found = sorted(path for folder in PLACES.split(os.pathsep) if folder and os.path.isdir(folder)
                   for path in Path(folder).iterdir() if re.fullmatch(name + number, path.name))
    if not found:
        raise SystemExit(f"{name} is not there")
    return str(found[-1])


def tree(pid: int) -> list[int]:
    """A process and all that descend from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in tree(int(child)))]


def free_port() -> int:
    """A port of the loopback device that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load(port: int, requests: int, client: dict[str, str]) -> float:
    """The seconds that ab needed; nothing may have failed."""
    began = time.monotonic()
    done = subprocess.run([find("ab"), "-q", "-k", "-n", str(requests), "-c", CLIENTS, "-H", "Accept-Encoding: gzip",
                           f"http://127.0.0.1:{port}/page?round=7"], env=client, check=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True)
    seconds = time.monotonic() - began
    if not re.search(r"^Failed requests: +0$", done.stdout, re.M) or "Non-2xx" in done.stdout:
        raise SystemExit(f"requests failed:\n{done.stdout}")
    return seconds


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    php, nginx = find("php-fpm", "[0-9.]*"), find("nginx")
    find("ab")
    if sys.argv[1] == "--look":
        return
    requests = int(sys.argv[1])
    client = {name: value for name, value in os.environ.items() if name != "SUITE_PRELOAD"}
    root = os.geteuid() == 0
    servers: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder, port = Path(name), free_port()
        places = {"folder": folder, "port": port, "page": Path(__file__).resolve().parent / "page.php"}
        (folder / "php.conf").write_text(PHP.format(user="user = root\ngroup = root" if root else "", **places))
        (folder / "nginx.conf").write_text(NGINX.format(user="user root;" if root else "", **places))
        try:
            servers.append(start([php, "-n", "-y", str(folder / "php.conf"), *(["-R"] if root else [])], folder / "php.socket"))
            servers.append(start([nginx, "-p", str(folder), "-e", str(folder / "nginx.log"), "-c", str(folder / "nginx.conf")],
                                 folder / "web.socket"))
            seconds = load(port, requests, client)
            found = [figures(pid) for server in servers for pid in tree(server.pid)]
        finally:
            for server in reversed(servers):
                server.terminate()
                server.wait(timeout=START_S)
    numbers = " ".join(f"{name}={sum(each[name] for each in found):.10g}" for name in found[0])
    print(f"web.py ops_per_s={requests / seconds:.2f} seconds={seconds:.4f} {numbers}")


if __name__ == "__main__":
    main()
