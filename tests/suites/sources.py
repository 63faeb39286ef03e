"""Debian source and binary packages for the suites, fetched without touching the system.

apt-get is pointed at lists and a cache of its own, in the work folder; its sources are those that the system has
configured, with `deb-src` added to them. Neither root nor a change of the system's lists is needed. Everything is
fetched once and kept.
"""
import os
import pathlib
import re
import shutil
import subprocess

from outcome import Skip

SYSTEM = pathlib.Path("/etc/apt")


def with_sources(text, one_line):
    """A sources file as it is configured, its packages' sources added."""
    if one_line:
        kept = [line for line in text.splitlines() if re.match(r"\s*deb\s", line)]
        return "\n".join(kept + [re.sub(r"^\s*deb\s", "deb-src ", line) for line in kept]) + "\n"
    return re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", text)


def run(command, cwd, what, log, extra=None):
    """Run a step of a preparation with its output in a log; say what failed."""
    with open(log, "a", encoding="utf-8") as file:
        try:
            done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, stdout=file,
                                  stderr=subprocess.STDOUT, env={**os.environ, **(extra or {})}, check=False,
                                  timeout=3600)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Skip(f"{what}: {error}") from None
    if done.returncode != 0:
        raise Skip(f"{what} failed; see {log}")


class Archive:
    """The packages of the configured mirror."""

    def __init__(self, work):
        self.work = work
        self.apt = work / "apt"
        self.log = work / "prepare.log"

    def _apt(self, *words):
        return ["apt-get", "-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={self.apt}/parts",
                "-o", f"Dir::State::lists={self.apt}/lists", "-o", f"Dir::Cache={self.apt}/cache",
                "-o", "APT::Sandbox::User=", *words]

    def _update(self):
        """Fetch the lists, once."""
        if (self.apt / "updated").exists():
            return
        if shutil.which("apt-get") is None or shutil.which("dpkg-source") is None:
            raise Skip("packages are fetched by apt-get and dpkg-source: install dpkg-dev (Debian and its kin only)")
        for folder in ("parts", "lists/partial", "cache/archives/partial"):
            (self.apt / folder).mkdir(parents=True, exist_ok=True)
        files = [path for path in [SYSTEM / "sources.list", *sorted((SYSTEM / "sources.list.d").glob("*"))]
                 if path.suffix in (".list", ".sources") and path.is_file()]
        for path in files:
            text = with_sources(path.read_text(errors="replace"), path.suffix == ".list")
            (self.apt / "parts" / path.name).write_text(text)
        run(self._apt("update"), self.work, "fetching the lists of packages", self.log)
        (self.apt / "updated").touch()

    def _fetch_source(self, package, place):
        """The newest version that the mirror has: lists may name one that is not there (yet, or any more)."""
        words = [word.replace("apt-get", "apt-cache") for word in self._apt("showsrc", package)]
        listed = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
        versions = list(dict.fromkeys(re.findall(r"(?m)^Version: (\S+)$", listed))) or [""]
        for version in versions:
            name = f"{package}={version}" if version else package
            try:
                return run(self._apt("source", name), place, f"fetching the source of {name}", self.log)
            except Skip:
                if version == versions[-1]:
                    raise

    def source(self, package):
        """The unpacked source of a package, with Debian's patches: its folder."""
        place = self.work / "source" / package
        found = sorted(path for path in place.glob("*/") if (place / "complete").exists())
        if not found:
            self._update()
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            self._fetch_source(package, place)
            (place / "complete").touch()
            found = sorted(place.glob("*/"))
        if not found:
            raise Skip(f"the source of {package} has no folder")
        return found[0]

    def binary(self, package):
        """A binary package unpacked, not installed: the folder that stands for /."""
        place = self.work / "binary" / package
        if not (place / "complete").exists():
            self._update()
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            run(self._apt("download", package), place, f"fetching {package}", self.log)
            for file in place.glob("*.deb"):
                run(["dpkg-deb", "-x", file, place], place, f"unpacking {file.name}", self.log)
            (place / "complete").touch()
        return place
