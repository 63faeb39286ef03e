#!/usr/bin/env python3
"""Runs commands of ./dev as on a stranger's fresh machine: in a bare Debian made for them, with an empty environment, on a clone
of HEAD. As root, on Debian and its kin.

  bare.py                         README's two commands and the lints: demo, test, lint
  bare.py COMMAND [ARGUMENT...]   ./dev COMMAND ARGUMENT...

Exits with the command's status, or with 77 where no bare root can be had; the last line that begins with "bare: " says where the
commands ran. Every command has namespaces of its own for mounts and processes, so that nothing stays mounted or running, however
this program ends. Downloaded packages are kept in ~/.cache/hakmem/bare, the root is not."""
import contextlib
import fcntl
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from package_common import ROOT, Failed, apt_settings, apt_sources, git, run

ETC = pathlib.Path("/etc")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hakmem" / "bare"
HOME = pwd.getpwuid(0).pw_dir
CHECKOUT = "/srv/hakmem"
ARCHIVES = "var/cache/apt/archives"
PIP = f"{HOME}/.cache/pip".lstrip("/")
COMMANDS = (["demo"], ["test"], ["lint"])
PROGRAMS = ("mmdebstrap", "chroot", "git", "setpriv", "unshare")
NO_ROOT = 77
FREE_BYTES = 8 << 30
MAKING_SECONDS = 300

# How this machine reaches its networks; beyond that, the environment is empty.
NETWORK = re.compile(r"(?i:(?:https?|ftp|all|no)_proxy)|PIP_(?:INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|CERT|DEFAULT_TIMEOUT)")
SETTINGS = ("hosts", "resolv.conf", "pip.conf", "ssl/certs/ca-certificates.crt")   # of /etc; without hosts, names are waited for

# All mounts are those of a namespace, which ends with its last process.
ALONE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
# The root is a mount, too: programs in it make namespaces themselves.
ENTER = """
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$1/dev/pts"
mount -t tmpfs -o mode=1777 shm "$1/dev/shm"
exec chroot "$@"
"""
# This shell is the first process of its namespace and stays, to wait for those that lost their parents.
IN_CHECKOUT = f'cd {CHECKOUT} && ./dev "$@"; exit $?'


class Impossible(Exception):
    """Why there is no bare root to be had here."""


def say(words):
    print(f"bare: {words}", flush=True)


# --- what the root takes over from this machine ----------------------------------------------------------------------------

def codename():
    """The name of this machine's release of Debian, or of a kin of it."""
    try:
        found = re.search(r"^VERSION_CODENAME=\"?([\w-]+)", (ETC / "os-release").read_text(encoding="utf-8"), re.M)
    except OSError:
        found = None
    if found is None or not (ETC / "apt").is_dir():
        raise Impossible("this is no Debian")
    return found.group(1)


def own_entries(text, stanzas, release):
    """The entries of a file of apt's sources that are the release itself, its updates and its security; no third party's."""
    def is_own(suites):
        return bool(suites) and all(re.fullmatch(rf"{release}(-[\w-]+)?(/updates)?", suite) for suite in suites)
    if not stanzas:
        line = re.compile(r"deb\s+(?:\[[^]]*\]\s*)?\S+\s+(\S+)")
        return [each for each in text.splitlines() if (match := line.match(each)) and is_own([match.group(1)])]
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        fields = {name.lower(): value.split() for name, value in re.findall(r"^([\w-]+):(.*)$", stanza, re.M)}
        if "deb" in fields.get("types", []) and fields.get("enabled") != ["no"] and is_own(fields.get("suites")):
            found.append(stanza.strip("\n") + "\n")
    return found


def write_sources(release, folder):
    """The files of apt's sources that the root gets; they lie in the folder."""
    files = []
    for path in apt_sources(ETC):
        entries = own_entries(path.read_text(encoding="utf-8", errors="replace"), path.suffix == ".sources", release)
        if entries:
            files.append(folder / f"{len(files)}{path.suffix}")
            files[-1].write_text("\n".join(entries) + "\n", encoding="utf-8")
    if not files:
        raise Impossible(f"apt has no source of {release}")
    return files


def environment():
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOME,
            **{name: value for name, value in os.environ.items() if NETWORK.fullmatch(name)}}


def copy_settings(root):
    for name in SETTINGS:
        if (ETC / name).is_file():
            (root / "etc" / name).parent.mkdir(parents=True, exist_ok=True)
            (root / "etc" / name).unlink(missing_ok=True)
            shutil.copy(ETC / name, root / "etc" / name)
    own = pathlib.Path(HOME, ".config/pip/pip.conf")
    if own.is_file():
        target = root / str(own).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(own, target)


# --- packages that are kept --------------------------------------------------------------------------------------------------

def link_files(source, target, suffix=""):
    """Gives the target what it lacks of the source's files, as further names of the same files; both replace files and never
    write into one. Returns the new ones."""
    new = []
    for folder, _, names in os.walk(source):
        there = target / os.path.relpath(folder, source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            if name.endswith(suffix):
                with contextlib.suppress(FileExistsError):
                    os.link(os.path.join(folder, name), there / name)
                    new.append(there / name)
    return new


def keep_packages(root):
    """A newer version of a package replaces the one that was kept."""
    for path in link_files(root / ARCHIVES, CACHE / "archives", ".deb"):
        name, _, architecture = path.name.split("_")
        for older in path.parent.glob(f"{name}_*_{architecture}"):
            if older != path:
                older.unlink(missing_ok=True)
    link_files(root / PIP, CACHE / "pip")


# --- the root ----------------------------------------------------------------------------------------------------------------

def mounts_below(folder):
    """What is mounted below a folder, the deepest first."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = [re.sub(r"\\(\d{3})", lambda code: chr(int(code.group(1), 8)), line.split()[4]) for line in lines]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)


def remove(scratch):
    """Deletes a root, and never through a mount. The last processes of a killed command may still write for a moment."""
    for point in mounts_below(scratch):
        subprocess.run(["umount", point], check=False)
    if mounts_below(scratch):
        say(f"{scratch} is left, since something is mounted there")
        return
    for _ in range(20):
        subprocess.run(["rm", "-rf", "--one-file-system", scratch], check=False, stderr=subprocess.DEVNULL)
        if not scratch.exists():
            return
        time.sleep(0.5)
    say(f"{scratch} could not be removed")


@contextlib.contextmanager
def scratch_folder():
    """A folder that is locked while it is in use; those that killed runs have left are removed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w", encoding="utf-8") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        for older in CACHE.glob("root-*"):
            with contextlib.suppress(OSError), open(older / "lock", "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(older)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix="root-", dir=CACHE))
        lock = open(scratch / "lock", "w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        try:
            yield scratch
        finally:
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(each, signal.SIG_IGN)
            with contextlib.suppress(OSError):
                keep_packages(scratch / "root")
            remove(scratch)


def check_machine():
    if os.geteuid() != 0:
        raise Impossible("only root can make one")
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        raise Impossible(f"not installed: {', '.join(missing)}")
    if subprocess.run([*ALONE, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        raise Impossible("this machine allows no namespaces")


def make(scratch, release):
    """Makes the root, with git as its only addition, and clones HEAD into it."""
    if shutil.disk_usage(scratch).free < FREE_BYTES:
        raise Impossible(f"it takes {FREE_BYTES >> 30} GiB of disk")
    root = scratch / "root"
    (CACHE / "archives").mkdir(exist_ok=True)
    kept = (f'mkdir -p "$1/{ARCHIVES}" && cp -al "{CACHE}/archives/." "$1/{ARCHIVES}"')
    try:
        # A root that nobody keeps need not be synchronized with the disk.
        run([*ALONE, "mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory", "--include=ca-certificates,git",
             *(f"--aptopt={path}" for path in apt_settings(ETC)), "--dpkgopt=force-unsafe-io", f"--setup-hook={kept}",
             "--skip=download/empty", "--skip=essential/unlink", "--skip=cleanup/apt/cache", release, root,
             *write_sources(release, scratch)], env={**environment(), "PATH": os.environ["PATH"]}, timeout=MAKING_SECONDS)
        copy_settings(root)
        (root / PIP).mkdir(parents=True)
        link_files(CACHE / "pip", root / PIP)
        run(["git", "clone", "--quiet", ROOT, root / CHECKOUT.lstrip("/")])
    except subprocess.TimeoutExpired as late:
        raise Impossible(f"making it took over {MAKING_SECONDS} s") from late
    except OSError as why:
        raise Impossible(f"making it failed: {why}") from why
    except Failed as why:
        raise Impossible(f"making it {str(why).split(': ', 1)[0]}") from why
    if enter(root, ["true"]) != 0:
        raise Impossible("it cannot be entered")
    return root


def enter(root, command):
    """Runs a command in the root; its status, as a shell would give it."""
    done = subprocess.run([*ALONE, "sh", "-ec", ENTER, "sh", root, *command], check=False, stdin=subprocess.DEVNULL,
                          env=environment())
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


# --- the commands ------------------------------------------------------------------------------------------------------------

def say_what_is_tested():
    changed = len(git("status", "--porcelain").splitlines())
    commit = git("log", "-1", "--format=%h %s").strip()
    say(f"HEAD: {commit}" + (f"; {changed} uncommitted changes are left out" if changed else ""))


def processor_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_commands(root, commands):
    """Runs each, whatever comes of the others: (a part of the last line for each, the first status that is not 0)."""
    results, worst = [], 0
    for words in commands:
        say(f"./dev {' '.join(words)}")
        began, used = time.monotonic(), processor_seconds()
        status = enter(root, ["sh", "-c", IN_CHECKOUT, "sh", *words])
        results.append(f"./dev {' '.join(words)} {'passed' if status == 0 else f'failed with {status}'} in "
                       f"{time.monotonic() - began:.0f} s ({processor_seconds() - used:.0f} s of processors)")
        worst = worst or (1 if status == NO_ROOT else status)
    return results, worst


def main(arguments):
    if arguments[:1] in (["--help"], ["-h"]):
        print(__doc__)
        return 0
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    try:
        check_machine()
        release = codename()
        say_what_is_tested()
        with scratch_folder() as scratch:
            say(f"making a bare root of {release}")
            root = make(scratch, release)
            made = time.monotonic() - began
            results, status = run_commands(root, [arguments] if arguments else COMMANDS)
            say(f"ran in a bare root of {release}, made in {made:.0f} s; {'; '.join(results)}")
            return status
    except (Impossible, Failed) as why:
        say(f"no bare root here: {why}")
        return NO_ROOT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
