"""A real Prometheus with the samples of simulated fleets, backfilled by promtool."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import simulated

NEEDED = ("prometheus", "promtool")
READY_S, BACKFILL_S = 60, 600


def is_here() -> bool:
    return all(map(shutil.which, NEEDED))


def backfill(fleets: list[simulated.Fleet], folder: Path, only_resident: bool = False) -> int:
    """Writes the fleets' samples as blocks into folder/data; the number of samples."""
    text = folder / "samples.om"
    count = simulated.write(fleets, text, only_resident)
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=1458h", "openmetrics", str(text), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BACKFILL_S)
    if done.returncode != 0:
        raise RuntimeError(f"promtool: {done.stderr[-1000:]}")
    text.unlink()
    return count


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Prometheus on folder/data; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n", encoding="ascii")
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
               f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y", "--log.level=error"]
    with (folder / "prometheus.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + READY_S
        while not is_ready(url):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"prometheus is not ready: {(folder / 'prometheus.log').read_text()[-1000:]}")
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        try:
            server.wait(30)
        finally:
            server.kill()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
            return True
    except OSError:
        return False
