"""An HTTP server that serves a running process's current figures."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hakmem_lab.inspect import openmetrics, snapshots
from hakmem_lab.inspect.snapshots import Snapshot
from hakmem_lab.target import process
from hakmem_lab.terminal.errors import LabError

WATCH_S = 0.5  # between two checks whether the process still runs


def address(text: str) -> tuple[str, int]:
    """'HOST:PORT' or 'PORT'; a LabError for anything else."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]") if colon else "127.0.0.1"
    if not port.isdigit() or int(port) > 65535 or not host:
        raise LabError(f"--listen {text}: neither PORT nor HOST:PORT", "Example: --listen 127.0.0.1:9797")
    return host, int(port)


class Endpoint:
    """The figures of one process. They are read by one request at a time, since the kernel locks the process's
    mappings."""

    def __init__(self, pid: int, listen: str) -> None:
        self.pid = pid
        self._lock = threading.Lock()
        self.look()  # a missing permission is reported before the server listens
        try:
            self.server = ThreadingHTTPServer(address(listen), self._handler())
        except OSError as error:
            raise LabError(
                f"cannot listen on {listen}: {error.strerror}", "Choose another address with --listen."
            ) from error
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        host, port = self.server.server_address[:2]
        name = str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/metrics"

    def look(self) -> Snapshot:
        with self._lock:
            return snapshots.from_process(self.pid)

    def run(self) -> None:
        """Serves until the process ends."""
        threading.Thread(target=self._end_with_process, daemon=True).start()
        try:
            self.server.serve_forever(poll_interval=0.1)
        finally:
            self.server.server_close()

    def _end_with_process(self) -> None:
        while process.exists(self.pid):
            time.sleep(WATCH_S)
        self.server.shutdown()

    def answer(self, path: str, accept: str) -> tuple[int, str, str]:
        """(status, content type, content) for a request."""
        if path.partition("?")[0] not in ("/", "/metrics"):
            return 404, "text/plain; charset=utf-8", "The figures are at /metrics.\n"
        is_open = "application/openmetrics-text" in accept
        try:
            found = self.look()
        except LabError as error:
            return 503, "text/plain; charset=utf-8", f"{error.message}\n"
        return 200, openmetrics.OPEN if is_open else openmetrics.PLAIN, openmetrics.text(found, is_open)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, content = endpoint.answer(self.path, self.headers.get("Accept", ""))
                packed = content.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(packed)))
                self.end_headers()
                self.wfile.write(packed)

            def log_message(self, *_: Any) -> None:
                """Does not log the scrapes that come every few seconds."""

        return Handler
