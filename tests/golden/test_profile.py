#!/usr/bin/env python3
# test: timeout=600
"""The heap profiler: estimates of forty sites whose truth is known; dumps in both forms; what happens to a profiled process
that forks, ends threads, unloads modules, is interrupted, is hardened, or cannot write.

HAK_PROFILE_RUNS is the number of runs of the forty sites. From RUNS_FOR_RATES on, each mean has to lie within 1 % of the truth,
and 93 to 97 % of all 95 % intervals have to cover it; with fewer, means have to lie within five of their standard errors."""
import bisect
import json
import math
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
INCLUDE = HERE.parent.parent / "include"
EXAMPLE = HERE.parent.parent / "examples" / "pprof_server.c"
CC, CXX = os.environ.get("CC", "cc"), os.environ.get("CXX", "c++")
RUNS = int(os.environ.get("HAK_PROFILE_RUNS", "4"))
RUNS_FOR_RATES = 100
INTERVAL = 1024 if RUNS >= RUNS_FOR_RATES else 4096   # for 1 % to be three standard errors at each site and more
ENOUGH = 100        # samples in one run from which an interval by the normal distribution is meant to cover
FUNCTION_MOST = 4096
NOBODY = 65534


def chance(n, interval):
    return -math.expm1(-n / interval)


def environment(**settings):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
    return plain | {f"HAKMEM_{name.upper()}": str(value) for name, value in settings.items()}


class Built(unittest.TestCase):
    """The programs, linked with the library, in a folder of their own."""

    @classmethod
    def setUpClass(cls):
        cls.keep = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.keep.name)
        linked = [f"-I{INCLUDE}", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-ldl", "-pthread"]
        subprocess.run([CXX, "-std=c++17", "-O2", HERE / "profile_sites.cpp", "-o", cls.path / "sites", *linked], check=True)
        user = [CC, "-O1", "-fno-builtin", HERE / "profile_user.c"]
        subprocess.run([*user, "-o", cls.path / "user", *linked], check=True)
        subprocess.run([*user, "-shared", "-fPIC", f"-I{INCLUDE}", "-Wl,--unresolved-symbols=ignore-all", "-o",
                        cls.path / "module.so"], check=True)
        archive = LIBRARY.parent / "libhakmem.a"
        cls.static = cls.path / "static"
        subprocess.run([*user, "-static", f"-I{INCLUDE}", "-o", cls.static, archive, "-pthread"], check=True,
                       stderr=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def run_user(self, *arguments, program="user", status=0, **settings):
        done = subprocess.run([self.path / program, *arguments], env=environment(**settings), cwd=self.path, check=False,
                              capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def dump(self, name):
        return json.loads((self.path / name).read_text())


class Accuracy(Built):
    def estimates(self, truth, profile):
        """[(allocated, its variance, live, its variance, samples allocated, samples live)] by site."""
        starts = sorted((site["at"], place) for place, site in enumerate(truth))
        found = [[0.0] * 6 for _ in truth]
        for site in profile["sites"]:
            at = site["frames"][0] - 1 if site["frames"] else 0
            near = bisect.bisect(starts, (at, len(truth))) - 1
            if near < 0 or at - starts[near][0] > FUNCTION_MOST:
                continue
            sums = found[starts[near][1]]
            allocated, freed = site["allocated"], site["freed"]
            for place, (count, total) in enumerate((allocated, [a - f for a, f in zip(allocated, freed)])):
                if count:
                    p = chance(total / count, profile["interval"])
                    sums[2 * place] += total / p
                    sums[2 * place + 1] += count * (total / count) ** 2 * (1 - p) / p**2
                    sums[4 + place] += count
        return found

    def test_forty_sites(self):
        runs, truths = [], None
        for _ in range(RUNS):
            done = self.run_sites()
            truth = json.loads(done.stdout)
            runs.append(self.estimates(truth, self.dump("sites.json")))
            truths = [(site["rate"], site["live"]) for site in truth]
        covered = tried = 0
        for site, truth in enumerate(truths):
            for kind, name in enumerate(("allocated", "live")):
                values = [run[site][2 * kind] for run in runs]
                variances = [run[site][2 * kind + 1] for run in runs]
                if min(run[site][4 + kind] for run in runs) < ENOUGH or not truth[kind]:
                    continue
                mean, error = sum(values) / RUNS, math.sqrt(sum(variances)) / RUNS
                if error == 0:   # every block was sampled
                    self.assertAlmostEqual(mean, truth[kind], delta=truth[kind] * 1e-9)
                    continue
                block = truth[kind] / min(run[site][4 + kind] for run in runs)   # where nearly all are sampled, one may be missed
                allowed = truth[kind] / 100 if RUNS >= RUNS_FOR_RATES else 5 * error + 2 * block / RUNS
                self.assertLess(abs(mean - truth[kind]), allowed, f"site {site}, {name}: {mean:.0f} for {truth[kind]}")
                tried += RUNS
                covered += sum(abs(v - truth[kind]) <= 1.96 * math.sqrt(s) for v, s in zip(values, variances))
        print(f"runs={RUNS} intervals={tried} covered={100 * covered / tried:.2f}")
        self.assertGreater(tried, 40 * RUNS)   # of the others every block was sampled, or too few
        self.assertGreater(covered / tried, 0.93 if RUNS >= RUNS_FOR_RATES else 0.85)
        self.assertLess(covered / tried, 0.97 if RUNS >= RUNS_FOR_RATES else 1.01)

    def run_sites(self):
        done = subprocess.run([self.path / "sites", "sites.json"], cwd=self.path, check=True, stdout=subprocess.PIPE, text=True,
                              env=environment(profile=f"1:{self.path}/exit", profile_interval=INTERVAL), timeout=120)
        for left in self.path.glob("exit.*"):
            left.unlink()
        return done


class Dumps(Built):
    def test_heap_v2_as_jemalloc_writes_it(self):
        self.run_user("dump", "plain.heap", profile="1:x", profile_interval=1000)
        lines = (self.path / "plain.heap").read_text().split("\n")
        self.assertEqual(lines[0], "heap_v2/1000")
        self.assertRegex(lines[1], r"^  t\*: \d+: \d+ \[\d+: \d+\]$")
        end = lines.index("MAPPED_LIBRARIES:")
        self.assertEqual(lines[end - 1], "")
        stacks = lines[2:end - 1]
        self.assertGreater(len(stacks), 10)
        for stack, sums in zip(stacks[::2], stacks[1::2]):
            self.assertRegex(stack, r"^@( 0x[0-9a-f]+)+$")
            self.assertRegex(sums, r"^  t\*: \d+: \d+ \[\d+: \d+\]$")
        sums = [[int(n) for n in re.findall(r"\d+", line)] for line in (lines[1], *stacks[1::2])]
        self.assertEqual(sums[0], [sum(column) for column in zip(*sums[1:])])
        self.assertTrue(any(line.endswith("/user") for line in lines[end:]))

    def test_every_block_at_interval_1(self):
        self.run_user("dump", "all.json", profile="1:x", profile_interval=1)
        sites = self.dump("all.json")["sites"]
        largest = sum(s["allocated"][0] - s["freed"][0] for s in sites if len(s["frames"]) > 1)
        self.assertGreaterEqual(largest, 20000)
        live = sum(s["allocated"][1] - s["freed"][1] for s in sites)
        truth = sum(i % 700 + 1 for i in range(20000))
        self.assertGreaterEqual(live, truth)
        self.assertLess(live, truth + 100000)

    def test_at_exit_and_from_time_to_time(self):
        self.run_user("sleep", profile=f"1:{self.path}/t", profile_every="50ms", profile_interval=1000)
        names = sorted(path.name for path in self.path.glob("t.*"))
        self.assertEqual(len([name for name in names if re.fullmatch(r"t\.\d+\.\d+\.f\.heap", name)]), 1)
        # All requests hit. A busy machine joins some of the twelve periods.
        self.assertGreaterEqual(len([name for name in names if re.fullmatch(r"t\.\d+\.\d+\.i\.heap", name)]), 4)

    def letters(self, prefix):
        names = [path.name for path in self.path.glob(f"{prefix}.*")]
        found = [re.fullmatch(rf"{prefix}\.\d+\.(\d+)\.([a-z])\.json", name) for name in names]
        return "".join(letter for _, letter in sorted((int(each[1]), each[2]) for each in found))

    def test_growth_and_soft_limit(self):
        self.run_user("grow", profile=f"1:{self.path}/g.json", profile_every="64M")
        self.assertRegex(self.letters("g"), r"^i{3,4}f$")   # 256 MiB, and what the program has besides
        self.run_user("grow", profile=f"1:{self.path}/l.json", soft_limit="128M")
        self.assertEqual(self.letters("l"), "lf")
        first = next(self.path.glob("l.*.0.l.json"))
        live = sum(s["allocated"][1] - s["freed"][1] for s in json.loads(first.read_text())["sites"])
        self.assertGreater(live, 80 << 20)   # of blocks of 1 MiB, 86 % are samples
        self.assertLess(live, 136 << 20)
        self.run_user("grow", profile=f"1:{self.path}/k.json", profile_every="2M")
        self.assertRegex(self.letters("k"), r"^i{16}f$")   # the last ones stay

    def test_example_serves_dumps(self):
        subprocess.run([CC, "-O1", "-Wall", "-Werror", EXAMPLE, f"-I{INCLUDE}", LIBRARY, f"-Wl,-rpath,{LIBRARY.parent}", "-o",
                        self.path / "server"], check=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with subprocess.Popen([self.path / "server", str(port)], env=environment(profile="ready")) as server:
            try:
                text = self.fetched(f"http://127.0.0.1:{port}/debug/pprof/heap")
            finally:
                server.kill()
        self.assertEqual(text[0], "heap_v2/524288")
        self.assertGreater(int(text[1].split()[2]), 30 << 20)   # of its 64 MiB, 86 % are samples

    def fetched(self, address):
        for _ in range(200):
            try:
                return urllib.request.urlopen(address, timeout=20).read().decode().split("\n")
            except OSError:   # it does not listen yet
                time.sleep(0.1)
        self.fail("the server does not answer")

    def test_signal_starts_then_dumps(self):
        number = int(signal.SIGUSR2)
        said = self.run_user("raise", str(number), profile=f"ready:{self.path}/s.json", stats_signal=number).stderr
        self.assertEqual(said, "")   # no statistics: nothing has asked for them
        files = list(self.path.glob("s.*"))
        self.assertEqual([bool(re.fullmatch(r"s\.\d+\.0\.u\.json", file.name)) for file in files], [True])
        self.assertGreater(json.loads(files[0].read_text())["samples"], 0)
        both = self.run_user("raise", str(number), profile=f"ready:{self.path}/b.json", stats_signal=number, stats=1).stderr
        self.assertEqual((self.letters("b"), both.count("hakmem: statistics of process ")), ("u", 3))   # at both signals, and at exit

    def test_ready_and_off_write_nothing(self):
        before = set(self.path.iterdir())
        self.run_user("sleep", profile="ready")
        self.run_user("sleep")
        self.assertEqual(set(self.path.iterdir()), before)

    def test_peak_is_what_was_live_most(self):
        self.run_user("module", self.path / "module.so", profile="1:x", profile_interval=1)
        sites = self.dump("module.json")["sites"]
        peak, live = sum(s["peak"][1] for s in sites), sum(s["allocated"][1] - s["freed"][1] for s in sites)
        self.assertGreaterEqual(peak, live)
        self.assertLess(peak - live, 100000)   # what dlclose has freed

    def test_a_closed_module_is_still_named(self):
        """By its path from the root, whatever it was opened as, where its code was; once, and only when it is closed."""
        for name in (self.path / "module.so", "./module.so"):
            self.run_user("module", name, profile="1:x", profile_interval=1)
            maps = self.dump("module.json")["maps"].splitlines()
            (line,) = [line for line in maps if line.endswith("/module.so")]
            start, end, offset, path = re.fullmatch(r"(\w+)-(\w+) r-xp (\w+) 00:00 0 +(/.*)", line).groups()
            self.assertTrue(os.path.samefile(path, self.path / "module.so"))
            headers = subprocess.run(["readelf", "-lW", path], check=True, capture_output=True, text=True).stdout
            self.assertRegex(headers, rf"LOAD +0x0*{offset} .* R E ")
            kept = [site for site in self.dump("module.json")["sites"] if site["allocated"][1] == 20000 * 500]
            self.assertTrue(any(int(start, 16) <= frame < int(end, 16) for site in kept for frame in site["frames"]), kept)


    def test_a_library_in_the_place_of_a_closed_one(self):
        """Each has its own blocks, although their code lay at the same addresses."""
        shutil.copy(self.path / "module.so", self.path / "other.so")
        for how in ({"profile_interval": 1}, {"profile_interval": 1, "harden": 1}):
            same = self.run_user("replace", "./module.so", self.path / "other.so", profile="1:x", **how).stdout.strip()
            if same != "1":
                self.skipTest("the loader has not put the second one there")
            dump = self.dump("replaced.json")
            places = {}
            for line in dump["maps"].splitlines():
                match = re.fullmatch(r"(\w+)-(\w+) r-xp \w+ \S+ \d+ +(/.*)", line)
                if match:
                    places.setdefault(pathlib.Path(match[3]).name, []).append((int(match[1], 16), int(match[2], 16)))
            for name, n in (("module.so", 40000), ("other.so", 50000)):
                (site,) = [site for site in dump["sites"] if site["allocated"] == [10, 10 * n]]
                inside = {file for file, parts in places.items() for start, end in parts for frame in site["frames"]
                          if start <= frame < end}
                self.assertEqual(inside & {"module.so", "other.so"}, {name})

    def test_leaks_without_an_interval(self):
        """Every block is a sample, it says so, and either form has the leaks; with an interval it is as said."""
        for form in ("json", "heap"):
            said = self.run_user("lose", profile=f"leaks:{self.path}/lost" + (".json" if form == "json" else "")).stderr
            lost, bytes_lost = map(int, re.search(r"no pointer leads to (\d+) sampled blocks of (\d+) bytes", said).groups())
            self.assertGreaterEqual(lost, 90)
            self.assertGreaterEqual(bytes_lost, 90 * 1234)
            (path,) = self.path.glob(f"lost.*.f.{form}")
            if form == "json":
                dump = json.loads(path.read_text())
                self.assertEqual((dump["interval"], dump["leaks_searched"]), (1, True))
                self.assertEqual(sum(site["unreachable"][0] for site in dump["sites"]), lost)
            else:
                self.assertRegex(path.read_text(), rf"^heap_v2/1\n  t\*: {lost}: {bytes_lost} \[")
        self.run_user("lose", profile=f"leaks:{self.path}/few.json", profile_interval="1M")
        (path,) = self.path.glob("few.*.f.json")
        self.assertEqual(json.loads(path.read_text())["interval"], 1 << 20)


class Faults(Built):
    def test_start_and_stop_again_and_again(self):
        self.run_user("switch")
        self.assertEqual(self.dump("switched.json")["interval"], 1000 << 7)

    def test_five_hundred_threads(self):
        self.run_user("threads", "threads.json", profile="1:x", profile_interval=500)
        self.assertEqual(self.dump("threads.json")["missed"], 0)

    def test_forks_beside_a_dump(self):
        self.run_user("forks", "parent.json", "child.json", profile="1:x", profile_interval=2000)
        self.assertNotEqual(self.dump("parent.json")["pid"], self.dump("child.json")["pid"])
        self.run_user("forks", "both.json", "both.json", profile="1:x", profile_interval=2000)
        self.assertGreater(self.dump("both.json")["samples"], 100)
        self.assertEqual(list(self.path.glob("*.part")), [])

    def test_a_long_name(self):
        """None is cut short: that would be another file."""
        for length, code in ((200, "0"), (1000, "36")):
            name = "./" * (length // 2) + "long.json"
            self.assertEqual(self.run_user("dump", name, profile="1:x").stdout.strip(), code)

    def test_signals(self):
        self.run_user("signals", profile="1:x", profile_interval=5000)

    def test_unloaded_module(self):
        self.run_user("module", self.path / "module.so", profile="1:x", profile_interval=1000)
        self.assertGreater(self.dump("module.json")["samples"], 1000)

    def test_hardened_and_sampled_guards(self):
        for more in ({"harden": 1}, {"sample_guards": 50}, {"harden": 1, "sample_guards": 50, "check": 1}, {"check": 1000}):
            with self.subTest(more):
                self.run_user("switch", **more)
                self.run_user("threads", "threads.json", profile="1:x", profile_interval=500, **more)
                self.run_user("signals", profile="1:x", profile_interval=5000, **more)

    def test_static_and_stripped(self):
        self.run_user("dump", "static.json", program="static", profile="1:x", profile_interval=1000)
        self.assertGreater(self.dump("static.json")["samples"], 1000)
        stripped = shutil.copy(self.path / "user", self.path / "stripped")
        subprocess.run(["strip", stripped], check=True)
        self.run_user("dump", "stripped.json", program="stripped", profile="1:x", profile_interval=1000)
        self.assertGreater(max(len(site["frames"]) for site in self.dump("stripped.json")["sites"]), 2)

    def test_killed_during_a_dump(self):
        """Whenever it is, the file is whole, that of the dump before; what lies beside it, the next process's dump takes away."""
        file = self.path / "killed.json"
        beside = self.path / "killed.json.part"
        caught = 0
        for turn in range(20):
            with subprocess.Popen([self.path / "user", "dumping", file], cwd=self.path,
                                  env=environment(profile="1:x", profile_interval=200)) as running:
                deadline = time.monotonic() + 60
                while not (file.exists() and beside.exists()) and time.monotonic() < deadline:
                    time.sleep(0.001)
                time.sleep(turn / 4000)
                running.kill()
            caught += beside.exists()
            self.assertEqual(self.dump("killed.json")["pid"], running.pid)
            file.unlink()
        self.assertGreater(caught, 0)
        self.run_user("dump", file, profile="1:x", profile_interval=200)
        self.assertFalse(beside.exists())
        self.assertGreater(self.dump("killed.json")["samples"], 100)

    def test_full_disk(self):
        done = self.run_user("dump", "/dev/full", profile="1:x")
        self.assertEqual(done.stdout.strip(), "28")   # ENOSPC

    def test_folder_in_memory(self):
        if not os.access("/dev/shm", os.W_OK):
            self.skipTest("there is no /dev/shm")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
            self.assertEqual(self.run_user("dump", f"{folder}/x.json", profile=f"1:{folder}/y").stdout.strip(), "0")
            self.assertEqual(sorted(name[:2] for name in os.listdir(folder)), ["x.", "y."])

    def test_disk_that_becomes_full(self):
        """What was there stays, and nothing is left beside it."""
        folder = self.path / "small"
        folder.mkdir()
        if os.getuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", folder], check=False,
                                              capture_output=True).returncode != 0:
            self.skipTest("nothing can be mounted here")
        try:
            (folder / "x.json").write_text("before")
            done = self.run_user("dump", folder / "x.json", profile=f"1:{folder}/y", profile_interval=100)
            self.assertEqual(done.stdout.strip(), "28")
            self.assertRegex(done.stderr, rf"could not be written to {folder}/y\.[0-9]+\.0\.f\.heap \(error 28\)")
            self.assertEqual([(path.name, path.read_text()) for path in folder.iterdir()], [("x.json", "before")])
        finally:
            subprocess.run(["umount", folder], check=True)

    def test_folder_that_may_not_be_written(self):
        closed = self.path / "closed"
        closed.mkdir(mode=0o555)
        for name, codes in ((closed / "x.json", {"13"} if os.getuid() else {"13", "0"}), (self.path / "none" / "x.json", {"2"})):
            done = self.run_user("dump", name, profile="1:x")
            self.assertIn(done.stdout.strip(), codes)
            self.assertEqual(list(self.path.glob("*.part")), [])
        done = self.run_user("sleep", profile=f"1:{self.path}/none/x")
        self.assertRegex(done.stderr, rf"could not be written to {self.path}/none/x\.[0-9]+\.0\.f\.heap \(error 2\); HAKMEM_PROFILE can")
        said = self.run_user("raise", "12", profile=f"ready:{self.path}/none/x", stats_signal=12).stderr
        self.assertRegex(said, rf"could not be written to {self.path}/none/x\.[0-9]+\.0\.u\.heap \(error 2\)")

    def test_privileged_program_writes_nothing(self):
        program = self.path / "privileged"
        shutil.copy(self.static, program)
        if os.getuid() != 0 or os.statvfs(self.path).f_flag & os.ST_NOSUID:
            self.skipTest("no program can be made privileged here")
        os.chown(program, NOBODY, NOBODY)
        program.chmod(0o755 | stat.S_ISUID)
        self.path.chmod(0o777)
        self.run_user("sleep", program="privileged", profile=f"1:{self.path}/secret")
        self.assertEqual(list(self.path.glob("secret*")), [])
        done = self.run_user("dump", "secret.json", program="privileged", profile="1:x")
        self.assertEqual(done.stdout.strip(), "1")   # EPERM
        self.assertEqual(list(self.path.glob("secret*")), [])

    def test_misuse_of_sampled_blocks_is_reported(self):
        for how, says in (("twice", r"free\(\): double free of 0x[0-9a-f]+"), ("inside", "not the start of a block")):
            done = self.run_user("misuse", how, status=-signal.SIGABRT, profile="1:x", profile_interval=1)
            self.assertRegex(done.stderr, says)


if __name__ == "__main__":
    unittest.main()
