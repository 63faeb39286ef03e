#!/usr/bin/env python3
"""HAKMEM_STATS in its five forms, on a program whose figures are known: parsed by other people's parsers."""
import errno
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import unittest

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    text_string_to_metric_families = None

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = os.environ["HAK_TEST_LIB"]
HELD, CLASS = 600, "4096"

NAME = r"[a-z_]+"
LABELS = r'(?:\{(?:size|le)="[0-9.+Inf]+"\})?'
LINES = {
    "type": re.compile(rf"# TYPE ({NAME}) (counter|gauge|histogram)"),
    "unit": re.compile(rf"# UNIT ({NAME}) (bytes|nanoseconds)"),
    "help": re.compile(rf"# HELP ({NAME}) [ -~]+\."),
    "sample": re.compile(rf"({NAME})({LABELS}) ([0-9]+)"),
}


def strict_samples(text):
    """The samples of an OpenMetrics text, by a parser that accepts only what the library may write."""
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-3:]
    samples, seen, family, kind = {}, set(), None, None
    for line in lines[:-2]:
        what, match = next(((name, m) for name, m in ((n, p.fullmatch(line)) for n, p in LINES.items()) if m),
                           (None, None))
        assert what, f"not a line of the format: {line}"
        name = match.group(1)
        if what == "type":
            assert name not in seen, f"{name} stands in two places"
            seen.add(name)
            family, kind = name, match.group(2)
        elif what == "sample":
            endings = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}[kind]
            assert name in [family + ending for ending in endings], f"{line} in the family {family}"
            key = name + match.group(2)
            assert key not in samples, f"{key} twice"
            samples[key] = int(match.group(3))
        else:
            assert name == family, line
            assert what != "unit" or name.endswith("_" + match.group(2)), line
    return samples


class Stats(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.program = cls.path / "stats_user"
        subprocess.run([os.environ.get("CC", "cc"), "-O0", "-w", HERE / "stats_user.c", "-o", cls.program], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_program(self, *arguments, **options):
        """The process id and what the program says on stderr."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        with subprocess.Popen([self.program, *arguments], env={**env, "LD_PRELOAD": LIBRARY, **options}, text=True,
                              stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0, said)
            return process.pid, said

    def file_of(self, form, **options):
        """The file that the program writes, and the process id that is in its name."""
        pid, said = self.run_program("exit", HAKMEM_STATS=f"{form}:{self.path}/%p.{form}", **options)
        self.assertEqual(said, "")
        return (self.path / f"{pid}.{form}").read_text(encoding="ascii"), pid

    def test_text(self):
        said = self.run_program("exit", HAKMEM_STATS="1")[1]
        self.assertTrue(said.startswith("hakmem: statistics of process "), said)
        self.assertRegex(said, r"(?m)^total refilled=\d+ drained=\d+ misses=\d+ live=\d+ peak_bytes=\d+$")
        self.assertNotIn("calls malloc", said)

    def test_text_says_whose_it_is(self):
        pid, said = self.run_program("exit", HAKMEM_STATS="1")
        self.assertEqual(said.splitlines()[0], f"hakmem: statistics of process {pid} ({self.program.name})")

    def test_text_in_a_file(self):
        text, pid = self.file_of("text")
        self.assertTrue(text.startswith(f"hakmem: statistics of process {pid} "), text)
        self.assertIn("\ntotal refilled=", text)

    def test_exact(self):
        said = self.run_program("exit", HAKMEM_STATS="exact")[1]
        calls = re.search(r"(?m)^calls malloc=(\d+) free=(\d+)$", said)
        self.assertGreaterEqual(int(calls.group(1)), 1000)
        self.assertGreaterEqual(int(calls.group(2)), 400)

    def test_json(self):
        text, pid = self.file_of("json")
        stats = json.loads(text)
        self.assertEqual((stats["version"], stats["pid"]), (1, pid))
        of_class = next(row for row in stats["classes"] if row["size"] == int(CLASS))
        self.assertEqual(of_class["live"], HELD)
        self.assertEqual(stats["huge"]["live"], 1)
        self.assertEqual(stats["bytes"]["huge"], 3 << 20)
        self.assertNotIn("calls", stats)
        self.assertNotIn("latency_malloc", stats)
        for column in ("refilled", "misses"):
            self.assertEqual(sum(row[column] for row in stats["classes"]), stats["total"][column])

    def test_json_with_times(self):
        stats = json.loads(self.file_of("json", HAKMEM_LATENCY="1")[0])
        slow = stats["latency_malloc"]
        self.assertEqual(len(slow["buckets"]), 32)
        self.assertGreaterEqual(sum(slow["buckets"]), stats["total"]["misses"] // 2)
        self.assertGreater(slow["sum"], 0)

    def test_openmetrics(self):
        samples = strict_samples(self.file_of("prom", HAKMEM_LATENCY="1")[0])
        self.assertEqual(samples[f'hakmem_class_live{{size="{CLASS}"}}'], HELD)
        self.assertEqual(samples["hakmem_huge_live"], 1)
        self.assertEqual(samples["hakmem_memory_huge_bytes"], 3 << 20)
        name = "hakmem_slow_malloc_nanoseconds"
        buckets = [value for key, value in samples.items() if key.startswith(name + "_bucket")]
        self.assertEqual(buckets, sorted(buckets))
        self.assertEqual(buckets[-1], samples[name + "_count"])

    @unittest.skipIf(text_string_to_metric_families is None, "python3-prometheus-client is not installed")
    def test_openmetrics_by_its_reference_parser(self):
        text = self.file_of("prom", HAKMEM_LATENCY="1")[0]
        families = {family.name: family for family in text_string_to_metric_families(text)}
        live = {sample.labels["size"]: sample.value for sample in families["hakmem_class_live"].samples}
        self.assertEqual(live[CLASS], HELD)
        self.assertEqual(families["hakmem_memory_huge_bytes"].unit, "bytes")

    def test_a_file_that_cannot_be_written(self):
        path = self.path / "missing" / "file"
        said = self.run_program("exit", HAKMEM_STATS=f"json:{path}")[1]
        self.assertEqual(said, f"hakmem: the statistics could not be written to {path} (error 2)\n")

    def mount(self, *what):
        """For the rest of the test."""
        if os.getuid() != 0 or subprocess.run(["mount", *what], check=False, capture_output=True).returncode != 0:
            self.skipTest("nothing can be mounted here")
        self.addCleanup(subprocess.run, ["umount", what[-1]], check=True)

    def test_disk_that_becomes_full(self):
        """What was there stays, and nothing is left beside it."""
        folder = self.path / "small"
        folder.mkdir()
        self.mount("-t", "tmpfs", "-o", "size=8k", "none", folder)
        (folder / "x").write_text("before")
        said = self.run_program("exit", HAKMEM_STATS=f"prom:{folder}/x")[1]
        self.assertEqual(said, f"hakmem: the statistics could not be written to {folder}/x (error 28)\n")
        self.assertEqual([(path.name, path.read_text()) for path in folder.iterdir()], [("x", "before")])

    def test_a_limit_on_files(self):
        """RLIMIT_FSIZE: SIGXFSZ would end a program that writes no file itself."""
        for limit in (0, 512):
            for options in ({"HAKMEM_STATS": "json:{}/x"}, {"HAKMEM_PROFILE": "1:{}/x"}, {"HAKMEM_BLACKBOX": "{}"}):
                with self.subTest(options, limit=limit):
                    env = {name: text.format(self.path) for name, text in options.items()}
                    done = subprocess.run([self.program, "exit"], env={**os.environ, "LD_PRELOAD": LIBRARY, **env}, text=True,
                                          stderr=subprocess.PIPE, check=False,
                                          preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn(f"(error {errno.EFBIG})", done.stderr)

    def test_places_where_no_file_can_be_replaced(self):
        """A file that is a mount of its own, and one in a folder that takes no new file."""
        for name in ("a", "b"):
            (self.path / name).mkdir()
            (self.path / name / "x").write_text("before" * 100000)
        apart = self.path / "apart"
        apart.write_text("before" * 100000)
        self.mount("--bind", apart, self.path / "a" / "x")
        self.mount("--bind", self.path / "b", self.path / "b")
        subprocess.run(["mount", "-o", "remount,bind,ro", self.path / "b"], check=True)
        self.mount("--bind", apart, self.path / "b" / "x")
        for name in ("a", "b"):
            pid, said = self.run_program("exit", HAKMEM_STATS=f"json:{self.path}/{name}/x")
            self.assertEqual((said, json.loads(apart.read_text())["pid"]), ("", pid))
            self.assertEqual([path.name for path in (self.path / name).iterdir()], ["x"])

    def test_what_is_no_plain_file_stays(self):
        link, out = self.path / "link", self.path / "out"
        link.symlink_to("/dev/full")
        said = self.run_program("exit", HAKMEM_STATS=f"json:{link}")[1]
        self.assertEqual((said, link.is_symlink()), (f"hakmem: the statistics could not be written to {link} (error 28)\n", True))
        out.write_text("first\n", encoding="ascii")
        with out.open("a", encoding="ascii") as stream:
            subprocess.run([self.program, "exit"], check=True, stdout=stream,
                           env={"LD_PRELOAD": LIBRARY, "HAKMEM_STATS": "json:/dev/stdout"})
        first, rest = out.read_text(encoding="ascii").split("\n", 1)
        self.assertEqual((first, json.loads(rest)["version"]), ("first", 1))

    def test_several_processes_and_one_file(self):
        path = self.path / "common"
        environment = {"LD_PRELOAD": LIBRARY, "HAKMEM_STATS": f"json:{path}"}
        for _ in range(5):
            them = [subprocess.Popen(["/bin/true"], env=environment) for _ in range(8)]
            self.assertEqual([each.wait() for each in them], [0] * 8)
            self.assertIn(json.loads(path.read_text(encoding="ascii"))["pid"], [each.pid for each in them])
            self.assertEqual(list(self.path.glob("common.*")), [])

    def test_signal(self):
        number = int(signal.SIGUSR2)
        said = self.run_program("signal", str(number), HAKMEM_STATS_SIGNAL=str(number))[1]
        self.assertEqual(said.count("hakmem: statistics of process "), 1)
        path = self.path / "signal.json"
        said = self.run_program("signal", str(number), HAKMEM_STATS_SIGNAL=str(number), HAKMEM_STATS=f"json:{path}")[1]
        self.assertEqual(said, "")
        self.assertEqual(json.loads(path.read_text(encoding="ascii"))["huge"]["live"], 1)

    def test_a_signal_that_cannot_be_caught(self):
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGFPE):  # a handler that returns would run into the fault again
            said = self.run_program("exit", HAKMEM_STATS_SIGNAL=str(int(number)))[1]
            self.assertEqual(said, f"hakmem: option stats_signal: signal {number:d} is in use, means a crash, or cannot be caught\n")


if __name__ == "__main__":
    unittest.main()
