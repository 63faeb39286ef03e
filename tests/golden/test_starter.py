#!/usr/bin/env python3
"""The starter `hakmem` (starter/): small, static, in need of no C library; runs programs on HAKMEM or says why it would not; shows
figures that agree with the library's own; profiles by request and, where another process's memory is closed to it, by signal; prints
every option; and answers bad input with one line."""
# test: timeout=120
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
STARTER = LIBRARY.parent / "bin" / "hakmem"
COMPILER = os.environ.get("CC", "cc")
SIZE_MOST = 300 << 10
NOT_SERVED, NOT_EXECUTED, NOT_FOUND = 125, 126, 127
SIGNAL = 12
CLOSED = """
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words)
{
    struct sock_filter rows[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = { sizeof rows / sizeof *rows, rows };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (count < 2 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        return 77;
    execv(words[1], words + 1);
    return 78;
}
"""
# Sets the number of heaps, which the live page names, to the greatest that it can be.
DAMAGED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "hakmem_live.h"
int main(void)
{
    struct hak_live *page = dlsym(RTLD_DEFAULT, "hak_live");
    const struct hak_live_tables *tables = (void *)page->roots[0];
    const char *name = (const char *)tables + tables->lists[HAK_LIVE_LIST_ROOTS].names;
    for (unsigned i = 0; i < tables->lists[HAK_LIVE_LIST_ROOTS].count; i++, name += strlen(name) + 1)
        if (strcmp(name, "heap_last") == 0)
            *(uint32_t *)page->roots[i] = UINT32_MAX, write(1, "damaged\\n", 8);
    for (;;)
        pause();
}
"""


def hakmem(*words, environment=None):
    return subprocess.run([STARTER, *map(str, words)], capture_output=True, text=True, check=False,
                          env={**os.environ, **(environment or {})}, timeout=60)


class Starter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.place = pathlib.Path(cls.folder.name)
        cls.place.chmod(0o755)
        cls.user = cls.place / "blackbox_user"
        subprocess.run([COMPILER, "-O1", "-g", "-rdynamic", "-fno-builtin", HERE / "blackbox_user.c", "-o", cls.user], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def start(self, *options, mib=32, environment=None, cwd=None):
        process = subprocess.Popen([STARTER, "run", *options, "--", self.user, "hold", str(mib)], stdout=subprocess.PIPE, text=True,
                                   env={**os.environ, **(environment or {})}, cwd=cwd)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "held\n")
        return process.pid

    def compiled(self, name, source, *options):
        path = self.place / name
        subprocess.run([COMPILER, "-x", "c", *options, "-", "-o", path], input=source.encode(), check=True)
        return path

    def test_needs_nothing(self):
        self.assertLess(STARTER.stat().st_size, SIZE_MOST)
        said = subprocess.run(["readelf", "-ld", STARTER], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("INTERP", said)
        self.assertNotIn("NEEDED", said)

    def test_run(self):
        self.assertEqual(hakmem("run", "sh", "-c", "exit 7").returncode, 7)
        done = hakmem("run", "-o", "stats=1", "--", self.user, "exit", "1")
        self.assertIn("statistics of process", done.stderr)
        self.assertIn("HAKMEM_MISUSE=report", hakmem("run", "--canary", "env").stdout)
        self.assertEqual(hakmem("run", "/nonexistent").returncode, NOT_FOUND)
        self.assertEqual(hakmem("run", "/etc/passwd").returncode, NOT_EXECUTED)
        self.assertEqual(hakmem("run", "-o", "nothing", "true").returncode, NOT_SERVED)

    def test_run_a_text_without_an_interpreter(self):
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "script")
            script.write_text("echo $# $1\n")
            script.chmod(0o755)
            self.assertEqual(hakmem("run", str(script), "one", "two").stdout, "2 one\n")

    def test_run_by_a_long_path(self):
        with tempfile.TemporaryDirectory() as folder:
            deep = pathlib.Path(folder, *["x" * 200] * 4)
            deep.mkdir(parents=True)
            program = shutil.copy(shutil.which("true"), deep)
            self.assertEqual(hakmem("run", program).returncode, 0)

    def test_require(self):
        self.assertEqual(hakmem("run", "--require", "true").returncode, 0)
        script = self.place / "script"
        script.write_text("#!/bin/sh\nexit 3\n")
        script.chmod(0o755)
        self.assertEqual(hakmem("run", "--require", script).returncode, 3)
        static = self.compiled("static", "int main(void) { return 0; }", "-static")
        own = self.compiled("own", "#include <stddef.h>\nvoid *malloc(size_t n) { return n != 0 ? NULL : (void *)16; }\n"
                                   "int main(void) { return 0; }", "-fno-builtin")
        for words, wanted, environment in [([static], "is static", {}), ([own], "has a malloc of its own", {}),
                                           (["true"], "cannot be loaded|without the library", {"HAKMEM_LIBRARY": "/nonexistent.so"})]:
            done = hakmem("run", "--require", *words, environment=environment)
            self.assertEqual(done.returncode, NOT_SERVED, done.stderr)
            self.assertRegex(done.stderr, wanted)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_stats_agree(self):
        """What the program has kept is seen from outside as the library counts it at the end."""
        blocks = 32 * (1 << 20) // 1000
        pid = self.start()
        done = hakmem("stats", pid)
        live = {int(line.split()[0]): int(line.split()[2]) for line in done.stdout.splitlines() if re.match(r" +\d", line)}
        self.assertGreaterEqual(live[1024], blocks)
        self.assertLess(live[1024], blocks + 100)
        self.assertRegex(done.stdout, r"(?m)^system_mmap [1-9]")

    def test_ledger(self):
        for environment in ({}, {"HAKMEM_PROFILE": "1", "HAKMEM_PROFILE_INTERVAL": "1"}):
            with self.subTest(environment):
                self.check_ledger(environment)

    def check_ledger(self, environment):
        pid = self.start(mib=64, environment=environment)

        def resident():
            rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()  # status is rounded by batches of each processor
            return int(re.search(r"Rss:\s+(\d+)", rollup).group(1)) / 1024

        before = resident()
        said = hakmem("ledger", pid).stdout
        after = resident()  # the kernel may have completed a huge page
        self.assertGreater(float(re.search(r"hands, at most +([0-9.]+) MiB", said).group(1)), 60)
        found = float(re.search(r"^resident +([0-9.]+) MiB", said, re.M).group(1))
        self.assertGreater(found, min(before, after) - 1)
        self.assertLess(found, max(before, after) + 1)

    def test_doctor(self):
        self.assertIn("library", hakmem("doctor").stdout)
        said = hakmem("doctor", self.start()).stdout
        self.assertIn("runs on HAKMEM", said)
        self.assertIn("no black box", said)

    def test_profile(self):
        pid, path = self.start(), self.place / "dump.heap"
        done = hakmem("profile", pid, "-o", path, "-s", 1)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(path.read_text().startswith("heap_v2/"))
        done = hakmem("profile", pid, "-o", self.place / "dump.pb.gz", "-s", 1)
        self.assertEqual(done.returncode, 2)
        self.assertIn("only .heap and .json can be written without the lab", done.stderr)

    def test_profile_of_a_program_whose_cache_never_misses(self):
        hits = self.compiled("hits", "#include <stdlib.h>\n#include <unistd.h>\n#include <stdio.h>\n"
                             "int main(void) { puts(\"on\"); fflush(stdout); for (;;) free(malloc(64)), usleep(1000); }", "-fno-builtin")
        process = subprocess.Popen([STARTER, "run", "--", hits], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "on\n")
        time.sleep(0.5)
        for name in ("one.json", "two.json"):   # it is led there again after the first has ended
            done = hakmem("profile", process.pid, "-o", self.place / name, "-s", 1)
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(process.poll())

    def test_damaged_tables_do_not_hold_it_up(self):
        damaged = self.compiled("damaged", DAMAGED, f"-I{HERE.parents[1]}/include", "-ldl")
        process = subprocess.Popen([STARTER, "run", "--", damaged], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "damaged\n")
        self.assertIn("live", hakmem("stats", process.pid).stdout)   # within the time that hakmem() allows

    def test_an_interrupted_profile_is_whole_and_off(self):
        pid, path = self.start(), self.place / "dump.json"
        with subprocess.Popen([STARTER, "profile", str(pid), "-o", path, "-s", "600"], stdout=subprocess.DEVNULL) as profile:
            time.sleep(1)
            profile.send_signal(signal.SIGTERM)
            self.assertEqual(profile.wait(60), 0)
        self.assertIn('"sites":', path.read_text())
        began = time.monotonic()
        self.assertEqual(hakmem("profile", pid, "-o", path, "-s", 2).returncode, 0)
        self.assertGreater(time.monotonic() - began, 2)   # one that runs is dumped at once

    def test_profile_of_a_process_that_ends_meanwhile(self):
        pid = self.start()
        with subprocess.Popen([STARTER, "profile", str(pid), "-o", self.place / "gone.json", "-s", "600"], stderr=subprocess.PIPE,
                              text=True) as profile:
            time.sleep(0.5)
            os.kill(pid, signal.SIGKILL)   # its status is asked for only at the end
            self.assertEqual(profile.wait(60), 1)
            self.assertEqual(profile.stderr.read(), f"hakmem: process {pid} has ended, and its profile with it\n")

    def test_profile_by_signal(self):
        """Where other processes' memory is closed, here by a filter of system calls as if by Yama, the signal serves."""
        closed = self.compiled("closed", CLOSED)
        here = self.place / "open"
        here.mkdir()
        pid = self.start("-o", "profile=ready", "-o", f"stats_signal={SIGNAL}", cwd=here)
        path = self.place / "found.heap"
        done = subprocess.run([closed, STARTER, "profile", str(pid), "-o", path, "-s", "1"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(path.read_text().startswith("heap_v2/"))
        self.assertEqual(list(here.iterdir()), [])
        other = self.start(cwd=here)
        done = subprocess.run([closed, STARTER, "profile", str(other), "-o", path], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("HAKMEM_PROFILE=ready", done.stderr)

    def test_options(self):
        every = hakmem("options").stdout
        names = re.findall(r"^X\((\w+),", (HERE.parent.parent / "src/diag/options.def").read_text(), re.M)
        self.assertGreater(len(names), 30)
        for name in names:
            self.assertIn(f"HAKMEM_{name.upper()} (", every)
        one = hakmem("options", "HAKMEM_LIMIT").stdout
        self.assertEqual(one.count("HAKMEM_"), 1)
        self.assertIn("ENOMEM", one)
        self.assertEqual(hakmem("options", "nonsense").returncode, 1)

    def test_bad_input(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        plain = subprocess.Popen(["sleep", "30"])
        self.addCleanup(plain.wait)
        self.addCleanup(plain.kill)
        time.sleep(0.2)
        for words in (["stats", gone.pid], ["stats", plain.pid], ["ledger", "x"], ["profile", plain.pid], ["postmortem", "/nonexistent"],
                      ["postmortem", self.place], ["nonsense"], ["doctor", plain.pid], ["profile", plain.pid, "-o", self.place / "p"],
                      ["profile", plain.pid, "-o", self.place / "p", "-s", "1m"]):
            done = hakmem(*words)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertEqual(len(done.stderr.splitlines()), 1, (words, done.stderr))
            self.assertEqual(done.stdout, "", words)

    def test_full_output(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([STARTER, "options"], stdout=full, check=False)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
