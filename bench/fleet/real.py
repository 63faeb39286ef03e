"""A real server with the samples of simulated fleets: Prometheus, backfilled by promtool, or VictoriaMetrics by its import."""

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

PROMETHEUS, VICTORIA = "prometheus", "victoria-metrics"
NEEDED = {PROMETHEUS: ("prometheus", "promtool"), VICTORIA: (VICTORIA,)}
READY_S, BACKFILL_S = 60, 600
NO_SCRAPES = "global: {scrape_interval: 1h}\n"


def is_here(engine: str = PROMETHEUS) -> bool:
    return all(map(shutil.which, NEEDED[engine]))


def backfill(fleets: list[simulated.Fleet], folder: Path, only_resident: bool = False, engine: str = PROMETHEUS) -> int:
    """Writes the fleets' samples into folder/data; the number of samples."""
    text = folder / "samples.om"
    count = simulated.write(fleets, text, only_resident)
    if engine == VICTORIA:
        import_into_victoria(text, folder)
    else:
        import_into_prometheus(text, folder)
    text.unlink()
    return count


def import_into_prometheus(text: Path, folder: Path) -> None:
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=1458h", "openmetrics", str(text), str(folder / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BACKFILL_S)
    if done.returncode != 0:
        raise RuntimeError(f"promtool: {done.stderr[-1000:]}")


def import_into_victoria(text: Path, folder: Path) -> None:
    with serving(folder, VICTORIA) as url, text.open("rb") as file:
        size = {"Content-Length": str(text.stat().st_size)}
        for path, content in (("/api/v1/import/prometheus", file), ("/internal/force_flush", None)):
            request = urllib.request.Request(url + path, content, size if content else {})
            with urllib.request.urlopen(request, timeout=BACKFILL_S):
                pass


def command(engine: str, folder: Path, port: int, config: str) -> list[str]:
    if engine == VICTORIA:
        # Imported series lack the marks of their ends that scraped ones have; so a value is as old as in Prometheus at most.
        return [VICTORIA, f"-storageDataPath={folder}/data", f"-httpListenAddr=127.0.0.1:{port}", "-retentionPeriod=10y",
                "-search.maxStalenessInterval=5m", "-memory.allowedBytes=1GiB", "-loggerLevel=ERROR"]
    (folder / "prometheus.yml").write_text(config, encoding="ascii")
    return ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=10y", "--log.level=error"]


@contextlib.contextmanager
def serving(folder: Path, engine: str = PROMETHEUS, config: str = NO_SCRAPES) -> Iterator[str]:
    """The engine on folder/data; yields its address. config: prometheus.yml."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (folder / f"{engine}.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command(engine, folder, port, config), stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + READY_S
        while not is_ready(url):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"{engine} is not ready: {(folder / f'{engine}.log').read_text()[-1000:]}")
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
