#!/usr/bin/env python3
# test: timeout=300
"""The probes of OpenTelemetry's memory profiling: their notes, and tracers by its contract, which the library follows by itself.
Sampling begins when a tracer comes and ends when it goes; the weights sum up to the bytes; each sampled block is freed once."""
import faulthandler
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"]).resolve()
PAGE = HERE.parent.parent / "docs" / "profiling.md"
CC = os.environ.get("CC", "cc")
BLOCKS, SIZES = 400_000, (16, 100, 3000, 50_000, 70_000, 1_500_000)

# Waits for a byte, allocates what is known and frees half of it, waits again: for what comes once the tracer has gone.
PROGRAM = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int hak_profile_dump(const char *) __attribute__((weak));
static void *volatile sink;
static size_t sizes[] = { %s };
static double churn(unsigned rounds)
{
    double bytes = 0;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned kind = i %% 64 == 0 ? i / 64 %% 6 : i %% 3;
        if (kind == 5 && i %% 512 != 0)
            kind = 4;
        void *p = sink = malloc(sizes[kind]), *q = sink = malloc(24);
        bytes += (double)sizes[kind] + 24;
        free(p);
        if (i %% 8 != 0)
            free(q);
    }
    return bytes;
}
int main(void)
{
    char byte;
    free(sink = malloc(1));
    puts("ready"), fflush(stdout);
    for (int turn = 0; turn < 2 && read(0, &byte, 1) == 1; turn++) {
        printf("%%.0f\\n", churn(%d)), fflush(stdout);
    }
    printf("%%d\\n", hak_profile_dump ? hak_profile_dump("/dev/null") : -1);
    return 0;
}
""" % (", ".join(map(str, SIZES)), BLOCKS)


def notes():
    """{name: (address, semaphore, arguments)} of otel_memory's probes in the library."""
    text = subprocess.run(["readelf", "-n", LIBRARY], check=True, capture_output=True, text=True).stdout
    form = r"Provider: (\w+)\s+Name: (\w+)\s+Location: (0x\w+), Base: \w+, Semaphore: (0x\w+)\s+Arguments: (.*)"
    found = [each for each in re.findall(form, text) if each[0] == "otel_memory"]
    assert len(found) == len({each[1] for each in found}), "a note for each probe"
    return {name: (int(at, 16), int(semaphore, 16), arguments.strip()) for _, name, at, semaphore, arguments in found}


def segments():
    """[(address, file offset, bytes in the file, flags)] of what is loaded."""
    text = subprocess.run(["readelf", "-lW", LIBRARY], check=True, capture_output=True, text=True).stdout
    form = r"LOAD +(0x\w+) (0x\w+) 0x\w+ (0x\w+) 0x\w+ ([RWE ]{3})"
    return [(int(at, 16), int(offset, 16), int(size, 16), flags) for offset, at, size, flags in re.findall(form, text)]


def in_file(address, flags):
    for at, offset, size, found in segments():
        if at <= address < at + size:
            assert flags in found, f"{address:#x} lies in {found}"
            return address - at + offset
    raise AssertionError(f"{address:#x} is not in the file")


def mapped_at(pid, offset):
    """Where the process has the library's byte at this offset."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5] == str(LIBRARY):
            start, end = (int(each, 16) for each in parts[0].split("-"))
            if int(parts[2], 16) <= offset < int(parts[2], 16) + end - start and ("x" in parts[1] or "w" in parts[1]):
                yield start + offset - int(parts[2], 16), parts[1]


class Probes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not notes():
            raise unittest.SkipTest("the library has no probes on this machine")
        cls.keep = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.keep.name)
        (cls.path / "user.c").write_text(PROGRAM)
        subprocess.run([CC, "-O1", "-fno-builtin", "user.c", "-o", "user"], cwd=cls.path, check=True)
        subprocess.run([CC, "-O1", "-Wall", "-Werror", HERE / "otel_tracer.c", "-o", cls.path / "tracer"], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.keep.cleanup()

    def start(self, **settings):
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")}
        environment = plain | {"LD_PRELOAD": str(LIBRARY), "HAKMEM_PROFILE_INTERVAL": "64K"} | settings
        running = subprocess.Popen([self.path / "user"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(running.stdout.close)
        self.addCleanup(running.stdin.close)
        self.addCleanup(running.wait)
        self.addCleanup(running.kill)
        self.assertEqual(running.stdout.readline(), "ready\n")
        return running

    def turn(self, running):
        """Another of its two turns; the bytes that it requested."""
        running.stdin.write("x")
        running.stdin.flush()
        return float(running.stdout.readline())

    def trace(self, how, running):
        """The events of one turn."""
        offsets = [in_file(notes()[name][0], "E") for name in ("alloc", "free")] + [in_file(notes()["alloc"][1], "W")]
        places = offsets
        if how == "ptrace":
            rights = "xxw"
            places = [next(at for at, has in mapped_at(running.pid, each) if right in has) for each, right in zip(offsets, rights)]
        out = self.path / "events"
        with out.open("w") as file:
            tracer = subprocess.Popen([self.path / "tracer", how, str(running.pid), LIBRARY, *map(str, places)],
                                      stdin=subprocess.PIPE, stdout=file)
        self.addCleanup(tracer.kill)
        while "\n" not in out.read_text() and tracer.poll() is None:
            time.sleep(0.01)
        if not out.read_text().startswith("attached\n"):
            tracer.communicate()
            self.skipTest(f"not here: {out.read_text().strip()}")
        truth = self.turn(running)
        tracer.communicate(b"x", timeout=60)
        self.assertEqual(tracer.returncode, 0)
        return truth, [line.split() for line in out.read_text().splitlines()[1:]]

    def test_notes(self):
        """The arguments are where a function's are, and the semaphore, one for both, where the kernel can count it."""
        found = notes()
        places = {"x86_64": ["8@%rdi", "8@%rsi", "8@%rdx"], "aarch64": ["8@x0", "8@x1", "8@x2"]}[os.uname().machine]
        self.assertEqual(found["alloc"][2].split(), places)
        self.assertEqual(found["free"][2].split(), places[:1])
        self.assertEqual(found["alloc"][1], found["free"][1])
        in_file(found["alloc"][1], "RW")
        data = LIBRARY.read_bytes()
        nop = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}[os.uname().machine]
        for address, _, _ in found.values():
            self.assertTrue(data[in_file(address, "E"):].startswith(nop))

    def check(self, how):
        running = self.start()
        truth, events = self.trace(how, running)
        self.assertNotIn(["lost"], events)
        made = [(each[1], int(each[2]), int(each[3])) for each in events if each[0] == "alloc"]
        weights = sum(weight for _, _, weight in made)
        # About one in 64 KiB: the first samples come once a slow path has seen the tracer.
        self.assertGreater(len(made), truth / 65536 / 2)
        self.assertAlmostEqual(weights / truth, 1, delta=0.12)
        for _, size, weight in made:
            self.assertIn(size, {*SIZES, 24, 1024, 4096})   # 1024 and 4096: stdio
            self.assertGreaterEqual(weight, size)
        open_blocks, closed = {}, 0
        for what, block, *rest in events:
            if what == "alloc":
                self.assertNotIn(block, open_blocks)
                open_blocks[block] = int(rest[0])
            elif open_blocks.pop(block, None) is not None:
                closed += 1
        self.assertTrue(set(open_blocks.values()) <= {24, 1024, 4096}, open_blocks)
        self.assertGreater(closed, len(made) / 2)
        # The tracer has gone: its semaphore is 0, and no profile of the library's own was ever on.
        self.turn(running)
        self.assertEqual(running.stdout.readline(), "22\n")   # EINVAL: no profile was started

    def test_a_tracer_of_the_kernels(self):
        self.check("uprobe")

    def test_a_tracer_with_breakpoints(self):
        self.check("ptrace")

    def test_beside_a_profile(self):
        """The library's own profile has its stacks, whoever else looks."""
        running = self.start(HAKMEM_PROFILE=f"1:{self.path}/beside.json")
        _, events = self.trace("ptrace", running)
        self.assertTrue(any(each[0] == "alloc" for each in events))
        self.turn(running)
        self.assertEqual(running.stdout.readline(), "0\n")
        running.wait()
        (dump,) = self.path.glob("beside.*.f.json")
        self.assertNotIn('"frames":[]', dump.read_text())

    def test_commands_of_the_page(self):
        """docs/profiling.md's, on a program that needs no profile to be on."""
        tracer = shutil.which("bpftrace")
        if tracer is None or os.getuid() != 0:
            self.skipTest("needs bpftrace, and root")
        programs = re.findall(r"^bpftrace -p PID -e '(.*?)'$", PAGE.read_text(), re.M | re.S)
        self.assertEqual(len(programs), 3)
        said = []
        for program in programs:
            running = self.start()
            with subprocess.Popen([tracer, "-p", str(running.pid), "-e", program], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True) as done:
                time.sleep(5)
                truth = self.turn(running) if done.poll() is None else 0
                time.sleep(1.5)
                done.terminate()
                try:
                    out, errors = done.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    done.kill()
                    raise
            if "@" not in out:
                self.skipTest(f"bpftrace does not work here: {errors.strip()[-200:]}")
            said.append((truth, out))
        truth, out = said[0]
        self.assertAlmostEqual(sum(int(number) for number in re.findall(r"@bytes: (\d+)", out)) / truth, 1, delta=0.12)
        self.assertIn("[2K, 4K)", said[1][1])
        self.assertIn("@microseconds:", said[2][1])


if __name__ == "__main__":
    faulthandler.dump_traceback_later(270, exit=True)
    unittest.main()
