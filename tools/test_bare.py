#!/usr/bin/env python3
# test: timeout=120
"""./dev bare: a root that is entered, left and removed, however it ends; what it takes over from the machine; what is kept.
The root is a shell and two programs here, and ./dev a stand-in; namespaces and mounts are real, where this machine allows them."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import bare

TOOLS = pathlib.Path(__file__).resolve().parent
SOURCES = """# a comment
Types: deb
URIs: http://127.0.0.1/debian
Suites: some some-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://127.0.0.1/security
Suites: some-security
Components: main
"""
THIRD = "Types: deb\nURIs: http://127.0.0.1/node\nSuites: nodistro\nComponents: main\n"

# A root for two programs, made by a stand-in of mmdebstrap.
MMDEBSTRAP = """#!/bin/sh
set -e
for word; do case $word in *[/]root) root=$word ;; --setup-hook=*) hook=${word#*=} ;; esac; done
echo "$*" >ASKED
for folder in proc sys dev etc bin; do mkdir -p "$root/$folder"; done
for program in sh sleep true; do
  cp -L "/bin/$program" "$root/bin/"
  for library in $(ldd "/bin/$program" | grep -o '/[^ ]*'); do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
sh -c "$hook" sh "$root"
echo two >"$root/var/cache/apt/archives/tool_2_all.deb"
"""
DEV = """#!/bin/sh
case $1 in
  demo) echo "demo in $PWD"; export -p; exit 3 ;;
  test) read -r line <state; echo "test of $line" ;;
  lint) echo "lint with $*" ;;
  fill) echo new >/var/cache/apt/archives/other_1_all.deb; echo wheel >"$HOME/.cache/pip/wheel" ;;
  hang) echo started; sleep SECONDS & sleep SECONDS ;;
  kill) kill -KILL $$ ;;
esac
"""
DRIVER = """
import pathlib, sys
sys.path.insert(0, "tools")
import bare
bare.ETC, bare.FREE_BYTES = pathlib.Path(sys.argv[1]), 0
sys.exit(bare.main(sys.argv[2:]))
"""


def has_namespaces():
    programs = [name for name in bare.PROGRAMS if name != "mmdebstrap"]
    return (os.geteuid() == 0 and all(map(shutil.which, programs))
            and subprocess.run([*bare.ALONE, "true"], check=False, stderr=subprocess.DEVNULL).returncode == 0)


class TakenOver(unittest.TestCase):
    def test_deb822(self):
        first, second = bare.own_entries(SOURCES + "\n" + THIRD, True, "some")
        self.assertIn("Suites: some some-updates", first)
        self.assertIn("Signed-By", first)
        self.assertIn("some-security", second)
        self.assertEqual(bare.own_entries(SOURCES, True, "other"), [])
        self.assertEqual(bare.own_entries(SOURCES.replace("Types: deb", "Enabled: no\nTypes: deb"), True, "some"), [])
        self.assertEqual(bare.own_entries(SOURCES.replace("Types: deb", "Types: deb-src"), True, "some"), [])

    def test_lines(self):
        lines = ["deb http://127.0.0.1/debian some main", "deb [signed-by=/a arch=amd64] http://127.0.0.1/s some-security main",
                 "deb http://127.0.0.1/old some/updates main"]
        others = ["deb-src http://127.0.0.1/debian some main", "# deb http://127.0.0.1/debian some main",
                  "deb http://127.0.0.1/sdk cloud-some main", "deb http://127.0.0.1/flat ./", "deb http://127.0.0.1/x somewhat main"]
        self.assertEqual(bare.own_entries("\n".join(others + lines), False, "some"), lines)

    def test_environment(self):
        given = {"https_proxy": "a", "NO_PROXY": "b", "PIP_INDEX_URL": "c", "PIP_FIND_LINKS": "d", "CI": "e", "LANG": "f",
                 "PYTHONUNBUFFERED": "1"}
        with mock.patch.dict(os.environ, given, clear=True):
            kept = bare.environment()
        self.assertEqual({name: kept.pop(name) for name in ("https_proxy", "NO_PROXY", "PIP_INDEX_URL")},
                         {"https_proxy": "a", "NO_PROXY": "b", "PIP_INDEX_URL": "c"})
        self.assertEqual(sorted(kept), ["HOME", "PATH"])


class Folders(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, *names):
        for name in names:
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(name)

    def names(self, folder):
        return sorted(path.relative_to(self.root / folder).as_posix() for path in (self.root / folder).rglob("*") if path.is_file())

    def test_newer_packages_replace_older_ones(self):
        self.write("cache/archives/a_1_all.deb", "cache/archives/a_1_amd64.deb", "cache/archives/b_1_all.deb",
                   f"r/{bare.ARCHIVES}/a_2_all.deb", f"r/{bare.ARCHIVES}/b_1_all.deb", f"r/{bare.ARCHIVES}/lock",
                   f"r/{bare.ARCHIVES}/partial/c_1_all.deb.part", f"r/{bare.PIP}/http/0/1")
        with mock.patch.object(bare, "CACHE", self.root / "cache"):
            bare.keep_packages(self.root / "r")
        self.assertEqual(self.names("cache/archives"), ["a_1_amd64.deb", "a_2_all.deb", "b_1_all.deb"])
        self.assertEqual(self.names("cache/pip"), ["http/0/1"])

    @unittest.skipUnless(has_namespaces(), "no namespaces here")
    def test_nothing_is_removed_through_a_mount(self):
        self.write("outside/precious", "left/mnt/sub/x")
        program = f"""
import pathlib, subprocess, sys
sys.path.insert(0, {str(TOOLS)!r})
import bare
left = pathlib.Path({str(self.root / "left")!r})
subprocess.run(["mount", "--bind", left.parent / "outside", left / "mnt/sub"], check=True)
with open(left / "mnt/sub/precious"):      # in use: it cannot be unmounted
    bare.remove(left)
    assert left.exists() and (left / "mnt/sub/precious").exists()
bare.remove(left)
assert not left.exists()
"""
        done = subprocess.run([*bare.ALONE, sys.executable, "-B", "-c", program], check=False, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("is left, since something is mounted there", done.stdout)
        self.assertEqual(self.names("outside"), ["precious"])


@unittest.skipUnless(has_namespaces(), "no namespaces here")
class Entered(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        self.seconds = str(100000 + time.monotonic_ns() % 900000)   # by which its programs are found
        for name in ("tools", "bin", "etc/apt/sources.list.d", "etc/apt/apt.conf.d", "etc/ssl/certs"):
            (self.root / name).mkdir(parents=True)
        for name in ("bare.py", "package_common.py"):
            shutil.copy(TOOLS / name, self.root / "tools")
        for name, text in (("dev", DEV.replace("SECONDS", self.seconds)), ("bin/mmdebstrap", self.mmdebstrap()), ("etc/hosts", "127.0.0.1 here\n"),
                           ("state", "committed\n"),
                           ("etc/os-release", "ID=kin\nVERSION_CODENAME=some\n"), ("etc/apt/sources.list.d/a.sources", SOURCES),
                           ("etc/apt/sources.list.d/b.sources", THIRD), ("etc/apt/apt.conf.d/9", 'Acquire::Retries "3";\n')):
            (self.root / name).write_text(text)
        (self.root / "dev").chmod(0o755)
        (self.root / "bin/mmdebstrap").chmod(0o755)
        self.git("init", "--quiet")
        self.git("add", "dev", "state", "tools")
        self.git("-c", "user.name=n", "-c", "user.email=e", "commit", "--quiet", "-m", "The first")
        self.cache = self.root / "home/hakmem/bare"

    def mmdebstrap(self, more=""):
        return MMDEBSTRAP.replace("ASKED", str(self.root / "asked")) + more

    def git(self, *words):
        subprocess.run(["git", "-C", self.root, *words], check=True)

    def start(self, *words):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.root / "home"), "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                       "HTTPS_PROXY": "a proxy"}
        process = subprocess.Popen([sys.executable, "-B", "-c", DRIVER, self.root / "etc", *words], cwd=self.root, env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def bare(self, *words):
        process = self.start(*words)
        output = process.communicate(timeout=50)[0]
        self.assertEqual(list(self.cache.glob("root-*")), [], output)
        self.assertNotIn(str(self.cache), pathlib.Path("/proc/self/mountinfo").read_text())
        return process.returncode, output

    def test_all_commands(self):
        (self.root / "state").write_text("changed\n")
        status, output = self.bare()
        self.assertEqual(status, 3, output)
        self.assertIn(f"demo in {bare.CHECKOUT}", output)
        self.assertIn("test of committed", output)
        self.assertIn("lint with lint", output)
        self.assertRegex(output, r"bare: HEAD: \w+ The first; \d+ uncommitted changes are left out")
        exported = {line.split()[1].split("=")[0] for line in output.splitlines() if line.startswith("export ")}
        self.assertLessEqual({"HTTPS_PROXY"}, exported)
        self.assertLessEqual(exported, {"HTTPS_PROXY", "PATH", "HOME", "PWD", "OLDPWD", *filter(bare.NETWORK.fullmatch, os.environ)})
        self.assertRegex(output.splitlines()[-1], r"^bare: ran in a bare root of some, made in \d+ s; ./dev demo failed with 3 in "
                                                  r".*; ./dev test passed in .*; ./dev lint passed in ")

    def test_one_command(self):
        self.assertEqual(self.bare("lint", "-x", "a b")[0], 0)
        _status, output = self.bare("lint", "-x", "a b")
        self.assertIn("lint with lint -x a b\n", output)
        self.assertEqual(self.bare("kill")[0], 137)

    def test_what_it_is_made_from(self):
        self.bare("lint")
        asked = (self.root / "asked").read_text()
        self.assertIn(f"--aptopt={self.root}/etc/apt/apt.conf.d/9", asked)
        self.assertRegex(asked, r"--include=ca-certificates,git .* some \S+[/]root \S+/0\.sources\n$")

    def test_packages_are_kept(self):
        self.bare("fill")
        kept = sorted(path.relative_to(self.cache).as_posix() for path in self.cache.rglob("*") if path.is_file())
        self.assertEqual(kept, ["archives/other_1_all.deb", "archives/tool_2_all.deb", "lock", "pip/wheel"])
        self.bare("fill")   # with the kept ones
        self.assertEqual((self.cache / "archives/tool_2_all.deb").read_text(), "two\n")

    def running(self):
        """The processes of the command that hangs."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes() == f"sleep\0{self.seconds}\0".encode():
                    found.append(path)
            except OSError:
                pass
        return found

    def hang(self):
        process = self.start("hang")
        for line in process.stdout:
            if line == "started\n":
                return process
        self.fail("it did not start")

    def wait_for_end(self):
        for _ in range(200):
            if not self.running():
                return
            time.sleep(0.05)
        self.fail("programs in the root go on")

    def test_signals(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)):
            with self.subTest(signal=number):
                process = self.hang()
                process.send_signal(number)
                process.communicate(timeout=50)
                self.assertEqual(process.returncode, status)
                self.wait_for_end()
                self.assertEqual(list(self.cache.glob("root-*")), [])

    def test_killed(self):
        process = self.hang()
        process.kill()
        process.communicate(timeout=50)
        self.wait_for_end()
        self.assertEqual(len(list(self.cache.glob("root-*"))), 1)
        self.assertEqual(self.bare("lint")[0], 0)   # which removes it

    def test_two_at_once(self):
        process = self.hang()
        (used,) = self.cache.glob("root-*")
        other = self.start("lint")
        self.assertIn("lint with lint", other.communicate(timeout=50)[0])
        self.assertEqual(list(self.cache.glob("root-*")), [used], "the root of a live run was taken for a leftover")
        process.terminate()
        process.communicate(timeout=50)

    def none(self, reason):
        status, output = self.bare("lint")
        self.assertEqual(status, 77, output)
        self.assertRegex(output.splitlines()[-1], f"^bare: no bare root here: {reason}")

    def test_none_when_making_fails(self):
        (self.root / "bin/mmdebstrap").write_text("#!/bin/sh\necho E: no such mirror\nexit 25\n")
        self.none("making it failed with exit status 25")

    def test_none_when_it_cannot_be_entered(self):
        (self.root / "bin/mmdebstrap").write_text(self.mmdebstrap('rm "$root/bin/sh"; rm "$root/bin/true"\n'))
        self.none("it cannot be entered")

    def test_none_without_sources(self):
        (self.root / "etc/apt/sources.list.d/a.sources").unlink()
        self.none("apt has no source of some")

    def test_none_without_debian(self):
        (self.root / "etc/os-release").write_text("ID=other\n")
        self.none("this is no Debian")

    def test_none_without_namespaces(self):
        (self.root / "bin/unshare").write_text("#!/bin/sh\nexit 1\n")
        (self.root / "bin/unshare").chmod(0o755)
        self.none("this machine allows no namespaces")


class NotRoot(unittest.TestCase):
    def test_only_root(self):
        with mock.patch.object(os, "geteuid", lambda: 1000), self.assertRaisesRegex(bare.Impossible, "only root"):
            bare.check_machine()


if __name__ == "__main__":
    unittest.main()
