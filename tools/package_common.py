"""What the builders of packages share: the version, the project's files, a clock that stands still, bare roots."""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "out" / "package"
PACKAGING = ROOT / "packaging"
SUITE = "bookworm"   # the Debian whose packages are built, and in whose bare root they are installed
# Before a root and a command: runs it in that root, which has /proc meanwhile.
ENTER = ("unshare", "--mount", "/bin/sh", "-ec", 'mkdir -p "$1/proc"; mount -t proc proc "$1/proc"; exec chroot "$@"', "sh")


class Failed(Exception):
    """A sentence for the person who asked."""


def version():
    """The version; CMakeLists.txt has it."""
    return re.search(r"project\(hakmem VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)


def run(command, **how):
    """Runs a command; its output goes to a log that is shown when it fails."""
    done = subprocess.run([str(word) for word in command], check=False, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **how)
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-8000:])
        raise Failed(f"failed with exit status {done.returncode}: {' '.join(str(word) for word in command)}")
    return done.stdout


def git(*arguments):
    return run(["git", "-C", ROOT, *arguments])


@functools.cache
def epoch():
    """The time that every built file bears: that of the commit which is the last one when the building begins."""
    return os.environ.get("SOURCE_DATE_EPOCH") or git("log", "-1", "--format=%ct").strip()


def clock():
    """The environment in which a build gives the same bytes each time."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    return {**kept, "SOURCE_DATE_EPOCH": epoch(), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def project_files(*under):
    """The project's files: what git tracks or would add."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-coz", "--exclude-standard", "--", *under],
                            stdout=subprocess.PIPE, check=True).stdout.decode()
    return sorted({name for name in listed.split("\0") if name and (ROOT / name).exists()})


def stage(target, names):
    """Copies files of the project into a folder, links as links, with one time."""
    for name in names:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, path, follow_symlinks=False)
    stamp(target)


def stamp(folder):
    """Gives every file the time of the last commit."""
    moment = int(epoch())
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (moment, moment), follow_symlinks=False)


def fresh(folder):
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def tarball(source, target):
    """A .tar.gz of a folder, with the same bytes each time."""
    tar = subprocess.Popen(["tar", "--sort=name", f"--mtime=@{epoch()}", "--owner=0", "--group=0", "--numeric-owner",
                            "--mode=go=rX,u+rw", "-C", str(source.parent), "-cf", "-", source.name], stdout=subprocess.PIPE)
    with target.open("wb") as file:
        done = subprocess.run(["gzip", "-9n"], stdin=tar.stdout, stdout=file, check=False)
    if tar.wait() != 0 or done.returncode != 0:
        raise Failed(f"{target.name} could not be packed")
    return target


def needs(*programs):
    """A Failed that names what is not installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        raise Failed(f"not installed: {', '.join(missing)}; ./dev setup --packages installs it")


def apt_sources(etc=pathlib.Path("/etc")):
    """The files that say where this machine's packages come from."""
    return [path for path in [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*"))]
            if path.suffix in (".list", ".sources") and path.is_file()]


def apt_settings(etc=pathlib.Path("/etc")):
    """The files that say how they are fetched."""
    return [path for path in sorted((etc / "apt/apt.conf.d").glob("*"))
            if re.search(r"(?i)acquire", path.read_text(errors="replace"))]


def sources_of(suite):
    """What tells mmdebstrap where the suite is: this machine's files, or a line with the address of its own release."""
    if suite == SUITE:
        return apt_sources()
    for path in apt_sources():
        text = path.read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^URIs:\s*(\S*/debian/?)\s*$", text, re.M) or re.search(r"^deb\s+(?:\[[^]]*\]\s*)?(\S*/debian/?)\s", text, re.M)
        if found:
            return [f"deb {found.group(1)} {suite} main"]
    raise Failed("no file of apt's sources names Debian's own packages")


def bare_root(name, extra=(), suite=SUITE):
    """A fresh copy of a minimal Debian with these packages; the base is made once and kept as an archive."""
    needs("mmdebstrap")
    archive = OUT / f"root-{suite}-{'-'.join(extra) or 'minimal'}.tar"
    if not archive.is_file():
        OUT.mkdir(parents=True, exist_ok=True)
        settings = [f"--aptopt={path}" for path in apt_settings()]
        packages = [f"--include={','.join(extra)}"] if extra else []
        part = archive.with_suffix(".part")
        run(["mmdebstrap", "--variant=minbase", "--mode=root" if os.getuid() == 0 else "--mode=auto", "--format=tar",
             *settings, *packages, suite, part, *sources_of(suite)])
        part.rename(archive)
    root = fresh(OUT / "roots" / name)
    run(["tar", "-C", root, "-xf", archive, "--exclude=./dev/*"])
    fill_devices(root)
    return root


def fill_devices(root):
    """What programs in a root without a mounted /dev need."""
    (root / "dev").mkdir(exist_ok=True)
    for name, minor in (("null", 3), ("zero", 5), ("urandom", 9)):
        run(["mknod", "-m", "666", root / "dev" / name, "c", "1", str(minor)])


def inside(root, command, **environment):
    """A shell command in a root, which has /proc meanwhile; what it prints."""
    plain = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8",
             "DEBIAN_FRONTEND": "noninteractive", **environment}
    return run([*ENTER, root, "/bin/sh", "-euc", command], env=plain)
