#!/usr/bin/env python3
"""./dev check fails when any part of it fails: the build, the tests, the lints. Its tools are stand-ins here.
./dev lint asks for the compiler that its generators need."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Check(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("bin", "tools", "out/debug"):
            (self.root / folder).mkdir(parents=True)
        shutil.copy(ROOT / "dev", self.root / "dev")
        shutil.copytree(ROOT / "tools" / "dev", self.root / "tools" / "dev")
        (self.root / "CMakePresets.json").write_text("{}\n")
        (self.root / "out/debug/build.ninja").write_text("")
        self.set_lint(0)
        self.set_tool("cmake", 0)
        self.set_tool("ctest", 0)

    def set_tool(self, name, status):
        """A program that writes its arguments down and ends with this status."""
        path = self.root / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.root}/said"\nexit {status}\n')
        path.chmod(0o755)

    def set_lint(self, status):
        (self.root / "tools/lint.py").write_text(f"import sys\nprint('the lint said', sys.argv[1:])\nsys.exit({status})\n")

    def check(self, *options):
        environment = dict(os.environ, PATH=f"{self.root / 'bin'}:{os.environ['PATH']}")
        done = subprocess.run([self.root / "dev", "check", *options], check=False, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100)
        return done.returncode, done.stdout

    def said(self):
        path = self.root / "said"
        return path.read_text() if path.exists() else ""

    def test_all_is_well(self):
        status, output = self.check("-R", "unit.bits")
        self.assertEqual(status, 0, output)
        self.assertIn("check passed", output)
        self.assertIn("the lint said ['--sources']", output)
        self.assertRegex(self.said(), r"cmake --build out/debug .*--target check_programs")
        self.assertRegex(self.said(), r"ctest .*-L \^check\$ -R unit\.bits")

    def test_each_part_counts(self):
        for part in ("cmake", "ctest"):
            self.set_tool(part, 1)
            status, output = self.check()
            self.assertEqual(status, 1, part)
            self.assertNotIn("check passed", output)
            self.set_tool(part, 0)
        self.set_lint(1)
        status, output = self.check()
        self.assertEqual(status, 1)
        self.assertIn("the lint said", output)

    def test_help_builds_nothing(self):
        status, output = self.check("--help")
        self.assertEqual(status, 0)
        self.assertIn("check [OPT]", output)
        self.assertEqual(self.said(), "")

    def test_lint_asks_for_what_it_lacks(self):
        bare = self.root / "bare"
        bare.mkdir()
        for name in ("sh", "dirname", "nproc", "grep", "sed", "cmp", "id"):
            (bare / name).symlink_to(shutil.which(name))
        (bare / "python3").symlink_to(sys.executable)
        for name in ("out/lab/bin/hakmem", "out/lab/made-from.toml", "out/lab/tests-made-from.toml", "lab/pyproject.toml"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("")
        (self.root / "out/lab/bin/hakmem").chmod(0o755)
        done = subprocess.run([self.root / "dev", "lint"], check=False, env={"PATH": str(bare)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=100)
        self.assertRegex(done.stdout, r"please install, as root: .* gcc .*shellcheck")
        self.assertIn("the lint said", done.stdout)


class Needs(unittest.TestCase):
    """What a command asks for, on a machine that has nothing."""

    def groups(self, *arguments):
        """The groups of packages.txt that ./dev asks for, in a shell in which nothing is found or installed."""
        command, *rest = arguments
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        python = pathlib.Path(folder.name) / "python3"
        python.write_text("#!/bin/sh\n")
        python.chmod(0o755)
        lines = ['for part in common install lab package; do . "tools/dev/$part.sh"; done',
                 'ensure() { echo "asked: $*"; }', 'lab_environment() { echo "the lab"; }', f'cmd_{command} "$@"']
        done = subprocess.run(["sh", "-eu", "-c", "\n".join(lines), "sh", *rest], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PATH": f"{folder.name}:{os.environ['PATH']}"})
        return done.stdout.splitlines()

    def test_a_package_asks_for_its_own_tools(self):
        self.assertEqual(self.groups("package", "wheel"), ["asked: build", "the lab"])
        self.assertEqual(self.groups("package", "rpm"), ["asked: build package_rpm"])
        self.assertEqual(self.groups("package", "conan"), ["asked: build"])
        self.assertEqual(self.groups("package", "--test", "deb"), ["asked: build package_test package_deb"])
        self.assertEqual(self.groups("package"), ["asked: build package_deb package_rpm package_crates musl", "the lab"])
        self.assertEqual(self.groups("package", "tarball"), ["asked: build musl"])
        self.assertEqual(self.groups("package", "--help"), [])

    def test_rows_are_complete(self):
        rows = [line.split(" ; ") for line in (ROOT / "tools/dev/packages.txt").read_text().splitlines() if line and line[0] != "#"]
        self.assertGreater(len(rows), 50)
        self.assertEqual({len(row) for row in rows}, {5})
        asked = " ".join(path.read_text() for path in (ROOT / "tools/dev").glob("*.sh"))
        for group in {row[0] for row in rows}:
            self.assertRegex(asked, rf"\b{group}\b", "no command asks for it")


if __name__ == "__main__":
    unittest.main()
