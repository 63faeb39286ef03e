"""A memory control group of a test's own, of either version, where root and the kernel allow it."""
import contextlib
import os
import pathlib
import time

ROOT = pathlib.Path("/sys/fs/cgroup")


class Group:
    """Its limit, in files of the version that there is."""

    def __init__(self, folder, version):
        self.folder, self.version = folder, version

    def limit(self, size):
        name = "memory.max" if self.version == 2 else "memory.limit_in_bytes"
        (self.folder / name).write_text(str(size))

    def enter(self):
        """For a child process before its exec."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    @property
    def used(self):
        return int((self.folder / ("memory.current" if self.version == 2 else "memory.usage_in_bytes")).read_text())

    @property
    def kills(self):
        text = (self.folder / ("memory.events" if self.version == 2 else "memory.oom_control")).read_text()
        return int(dict(line.split() for line in text.splitlines())["oom_kill"])


@contextlib.contextmanager
def memory_group(size):
    """A new group with the limit, or None where none can be made."""
    version, base = (2, ROOT) if (ROOT / "cgroup.controllers").exists() else (1, ROOT / "memory")
    folder = base / f"hakmem-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
    except OSError:
        yield None
        return
    try:
        group = Group(folder, version)
        try:
            group.limit(size)
            usable = (folder / "cgroup.procs").exists()
        except OSError:
            usable = False
        yield group if usable else None
    finally:
        for _ in range(100):
            try:
                folder.rmdir()
                break
            except OSError:
                time.sleep(0.05)
