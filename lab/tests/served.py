"""A small HTTP server in the tests' own process, for clients of other servers."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def by(handler: type[Quiet]) -> Iterator[str]:
    """The address of a server whose requests the handler answers."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
