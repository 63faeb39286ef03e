#!/usr/bin/env python3
"""The commands on the pages: each ./dev command and its options exist, each file of the tree that a command names is there, those
shown with their output print it, and the commands that link a program (docs/api.md) do what the page says. The commands of hakmem
are run by lab/tests/test_documented.py."""
# test: timeout=400 cost=30
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OUT = pathlib.Path(os.environ["HAK_TEST_OUT"])
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]

COMMAND = re.compile(r"^(?:\$ )?((?:\./dev|cmake|cc|export|[A-Z][A-Z0-9_]*=\S+(?= )|out/|bench/|python3|mkdir|systemctl)[ \w].*?)(?: {3,}.*| +# .*)?$")

# Whole commands that are not run here: the files of the tree that hold what runs them, and the word by which they are found there.
ELSEWHERE = {
    "mkdir -p /etc/systemd/system/nginx.service.d && cp packaging/systemd/hakmem.conf /etc/systemd/system/nginx.service.d/":
        ("tests/package/test_service.sh", "hakmem.conf"),
    "systemctl daemon-reload && systemctl restart nginx": ("tests/package/test_service.sh", "systemd"),
    "HAKMEM_BLACKBOX=/var/tmp/boxes HAKMEM_PROFILE=auto hakmem run ./server": ("tests/golden/test_blackbox.py", "HAKMEM_BLACKBOX"),
    "LD_PRELOAD=libhakmem.so.0 redis-server redis.conf": ("bench/recipes/works.py", "redis"),
    "LD_PRELOAD=libhakmem.so.0 node server.js": ("bench/recipes/works.py", "node"),
    "LD_PRELOAD=libhakmem.so.0 bundle exec puma": ("bench/recipes/works.py", "ruby"),
    "HAK_FUZZ_SECONDS=600 ./dev test asan -R fuzz.span": ("tests/soak.ini", "HAK_FUZZ_SECONDS"),
    "out/asan/tests/fuzz/fuzz_span crash-...": ("tests/fuzz/driver.c", "argv"),
    "python3 tests/fuzz/run.py --show out/asan/tests/fuzz/found-span": ("tests/fuzz/test_run.py", "--show"),
    "python3 -B tests/programs/soak/run.py out/release/libhakmem.so postgresql --seconds 60":
        ("tests/soak.ini", "tests/programs/soak/run.py"),
    "bench/hardened.py --rounds 3 --parts": ("bench/hardened.py", "--parts"),
    "bench/hardened.py --real --rounds 7 --publish": ("bench/hardened.py", "--real"),
    "bench/hardened.py --misuse --cases": ("bench/test_bench.py", "--cases"),
    "out/lab/bin/python bench/fleet/truth.py rates --effects 0 --fleets 1000": ("lab/tests/test_fleet.py", "truth.judge("),
    "out/lab/bin/python bench/fleet/truth.py rates --memory": ("lab/tests/test_fleet.py", '"memory"'),
    "out/lab/bin/python bench/fleet/truth.py large": ("bench/fleet/truth.py", '"large"'),
    "out/lab/bin/python bench/fleet/hosts.py": ("bench/fleet/hosts.py", "def table("),
}
RINGS = ['cmake --preset release -B out/rings -DCMAKE_C_FLAGS="-DHAK_L2_RING_CAP=32 -DHAK_L25_RING_CAP=8"',
         "cmake --build out/rings --target hakmem"]
BY_THE_LAB = ("$ hakmem", "$ cat hakmem.env", "$ redis-cli")   # the last in test_the_story_of_sessions
OPTIONS_OF = {"soak": ["tools/soak.py"], "bench": ["bench/**/*.py"], "lab": []}   # else dev and its tools


def blocks(path):
    """The fenced blocks of a page: [(language, lines)]."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.M | re.S)
    return [(language, text.splitlines()) for language, text in found]


def code(path):
    """Every command on a page: the lines of its blocks, and what stands between backquotes."""
    fenced = [line for language, lines in blocks(path) if language in ("", "sh") for line in lines]
    prose = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    return fenced + [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)]


def section(path, title):
    """The commands of the section's blocks without a language, comments left away."""
    text = path.read_text(encoding="utf-8")
    part = re.search(rf"^## {title}\n(.*?)^## ", text, re.M | re.S).group(1)
    return [found.strip() for found in re.findall(r"^```\n(.*?)^```$", part, re.M | re.S)]


def of_dev():
    """The shell of ./dev: its front and its commands."""
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "dev", *(ROOT / "tools" / "dev").glob("*.sh")))


class Pages(unittest.TestCase):
    def test_dev_commands_exist(self):
        known = set(re.findall(r"^cmd_(\w+)\(\)", of_dev(), re.M)) | {"help"}
        seen = {}
        for page in PAGES:
            for line in code(page):
                for word in re.findall(r"(?:^|[\s;&(])\./dev ([a-z]\w*)", line):
                    seen.setdefault(word, page.name)
        self.assertGreater(len(seen), 10)
        self.assertEqual({word: page for word, page in seen.items() if word not in known}, {})

    def test_dev_options_exist(self):
        seen = 0
        for page in PAGES:
            for line in code(page):
                for word, rest in re.findall(r"(?:^|[\s;&(])\./dev ([a-z]\w*)([^;&#)]*)", line):
                    files = OPTIONS_OF.get(word, ["tools/*.py"])
                    text = "".join(path.read_text(encoding="utf-8") for each in files for path in ROOT.glob(each)) + of_dev()
                    for option in re.findall(r"(?<=\s)(--[a-z][\w-]*)", rest) if word != "lab" else []:
                        seen += 1
                        parameter = option[2:].replace("-", "_")   # by which typer names the option
                        if not re.search(rf"{option}(?![\w-])|^    {parameter}_?: Annotated\[", text, re.M):
                            self.fail(f"{page.name}: ./dev {word}{rest}: nothing reads {option}")
        self.assertGreater(seen, 20)

    def test_every_command_is_run(self):
        """By this test, where its output is shown or it links a program; or elsewhere, by the list."""
        text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
        self.assertIn("\n".join(RINGS), text)
        linking = "\n".join(section(ROOT / "docs" / "api.md", "Linking"))
        seen = set()
        for page in PAGES:
            for language, lines in blocks(page):
                for line in lines if language in ("", "sh") else []:
                    found = COMMAND.match(line)
                    if found and not line.startswith(("$", "./dev")) and line not in linking and line not in RINGS:
                        seen.add(found.group(1))
        seen -= {"LD_PRELOAD=$PWD/out/release/libhakmem.so PROGRAM",   # the first one of docs/api.md
                 "HAKMEM_PURGE_DELAY=5000ms ./server"}                  # what hakmem translate prints
        self.assertEqual(seen, set(ELSEWHERE))
        for command, (name, word) in ELSEWHERE.items():
            self.assertIn(word, (ROOT / name).read_text(encoding="utf-8"), command)

    def test_shown_output(self):
        """Every command that is shown with its output, but those of hakmem."""
        seen = 0
        for page in PAGES:
            for language, lines in blocks(page):
                if language in ("", "sh") and lines[0].startswith("$ ") and not lines[0].startswith(BY_THE_LAB):
                    seen += 1
                    self.shown(page, lines)
        self.assertGreater(seen, 3)

    def shown(self, page, lines):
        commands = [line[2:] for line in lines if line.startswith("$ ")]
        expected = [line for line in lines if not line.startswith("$ ")]
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            (folder / "out").mkdir()
            (folder / "out" / "release").symlink_to(OUT)
            for name in ("docs", "include"):
                (folder / name).symlink_to(ROOT / name)
            environment = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
            done = subprocess.run(["sh", "-euc", "\n".join(commands)], cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, env=environment, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        said = done.stdout.splitlines()
        if page.name == "statistics.md":   # figures differ from run to run, and so do the columns' widths
            said, expected = ([re.sub(r"\s+", " ", re.sub(r"\d[\d.]*", "9", line)) for line in each] for each in (said, expected))
        self.assertEqual(sorted(said), sorted(expected), page.name)

    def test_other_caps(self):
        """The build of docs/options.md with other defaults."""
        with tempfile.TemporaryDirectory() as work:
            for command in RINGS:
                command = command.replace("out/rings", f"{work}/rings")
                done = subprocess.run(["sh", "-euc", command], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False)
                self.assertEqual(done.returncode, 0, done.stdout)
            done = subprocess.run(["/bin/true"], text=True, stderr=subprocess.PIPE, check=True,
                                  env={"LD_PRELOAD": f"{work}/rings/libhakmem.so", "HAKMEM_L2_RING_CAP": "300"})
            self.assertIn("'300' is not a number from 0 to 256; 32 is kept", done.stderr)

    def test_files_of_commands_exist(self):
        pattern = re.compile(r"(?:^|[\s=])((?:tools|tests|packaging|docs|include|src|bench|lab|cmake|demo)/[\w./-]+\w)")
        missing = {}
        for page in PAGES:
            for _, lines in blocks(page):
                for name in (name for line in lines for name in pattern.findall(line)):
                    if not (ROOT / name).exists() and "/found-" not in name:   # which a command makes
                        missing[name] = page.name
        self.assertEqual(missing, {})

    def test_linking(self):
        """The blocks of docs/api.md, Linking, with this build in place of out/release."""
        installing, linking, *_ = section(ROOT / "docs" / "api.md", "Linking")
        with tempfile.TemporaryDirectory() as work:
            folder = pathlib.Path(work)
            shutil.copy(ROOT / "tests" / "package" / "consumer" / "main.c", folder / "program.c")
            install = installing.splitlines()[-1].replace("out/release", str(OUT), 1)
            script = "\n".join([install, linking, "./program_static", "./program_archive"])
            done = subprocess.run(["sh", "-euc", script], cwd=folder, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(done.stdout.count(f"hakmem {os.environ['HAK_TEST_VERSION']}\n"), 3, done.stdout)


if __name__ == "__main__":
    unittest.main()
