#!/usr/bin/env python3
"""What the built libhakmem.so looks like from outside: its names, its needs, its safety flags, its static TLS."""
# test: interposed
import os
import pathlib
import platform
import re
import subprocess
import unittest

LIBRARY = os.environ["HAK_TEST_LIB"]
TLS_BYTES = 32

LIBC_NAMES = """
    malloc calloc realloc reallocarray free cfree mprotect aligned_alloc posix_memalign memalign valloc pvalloc
    malloc_usable_size malloc_trim mallinfo mallinfo2 malloc_info malloc_stats mallopt
    free_sized free_aligned_sized
    __libc_malloc __libc_calloc __libc_realloc __libc_free __libc_memalign __libc_valloc __libc_pvalloc
    mallocx rallocx xallocx sallocx dallocx sdallocx nallocx
""".split()

# operator new and delete: plain, array; nothrow, sized, aligned, and their combinations.
OPERATORS = [new + variant
             for new in ("_Znwm", "_Znam")
             for variant in ("", "RKSt9nothrow_t", "St11align_val_t", "St11align_val_tRKSt9nothrow_t")]
OPERATORS += [delete + "Pv" + variant
              for delete in ("_Zdl", "_Zda")
              for variant in ("", "m", "RKSt9nothrow_t", "St11align_val_t", "mSt11align_val_t",
                              "St11align_val_tRKSt9nothrow_t")]


# What src/interpose puts in front of the C library's own.
INTERPOSED = """
    setuid setgid seteuid setegid setreuid setregid setresuid setresgid setgroups initgroups
    prctl _exit _Exit daemon
""".split()
# dlopen's interposition exists for these processors, and where the C library knows RTLD_DEEPBIND.
if platform.machine() in ("x86_64", "aarch64") and hasattr(os, "RTLD_DEEPBIND"):
    INTERPOSED += ["dlopen", "dlmopen"]


# Other allocators' libraries, and what they override that gives or takes no block.
PEERS = ("libjemalloc.so.2", "libmimalloc.so.2", "libmimalloc.so.3", "libtcmalloc_minimal.so.4", "libtcmalloc.so.4")
NO_BLOCKS = {"mmap", "mmap64", "mremap", "munmap", "sbrk", "pthread_create", "fork"}


def output(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout


class SharedObject(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dynamic = output("readelf", "-dW", LIBRARY)
        cls.segments = output("readelf", "-lW", LIBRARY)
        # Without the nodes of versions, which are absolute (cmake/symbols.map).
        cls.names = {line.split()[-1].split("@")[0]
                     for line in output("nm", "-D", "--defined-only", LIBRARY).splitlines() if line.split()[-2] != "A"}

    def segment(self, kind):
        """(memory size, flags) of the first segment of a kind, or None."""
        match = re.search(rf"^ *{kind} +(?:0x\w+ +){{4}}0x(\w+) +([RWE ]{{3}})", self.segments, re.M)
        return (int(match.group(1), 16), match.group(2).strip()) if match else None

    def test_exports_every_name(self):
        self.assertEqual(set(LIBC_NAMES + OPERATORS + INTERPOSED) - self.names, set())

    def test_exports_nothing_else(self):
        undefined = output("nm", "-D", "--undefined-only", pathlib.Path(LIBRARY).with_name("libhakmem-region.so")).split()
        own = {name for name in self.names if re.fullmatch(r"hak_[a-z0-9]\w*|hakmem_allocator_version", name)}
        own |= {name.split("@")[0] for name in undefined if name.startswith("hak__")}
        self.assertTrue(own)
        self.assertEqual(self.names - own - set(LIBC_NAMES + OPERATORS + INTERPOSED), set())

    def test_overrides_what_other_allocators_override(self):
        """A program may be linked with one of them: a name that came from it would give blocks that are not ours."""
        paths = [line.split()[-1] for line in output("/sbin/ldconfig", "-p").splitlines() if line.split()[0] in PEERS]
        if not paths:
            self.skipTest("no other allocator's library is installed")
        runtimes = [line.split()[-1] for line in output("/sbin/ldconfig", "-p").splitlines()
                    if line.split()[0] in ("libc.so.6", "libstdc++.so.6") and platform.machine().split("_")[0] in line]
        standard = {name for path in runtimes for name in self.defined(path)}
        self.assertIn("malloc", standard)
        for path in paths:
            with self.subTest(path):
                self.assertEqual((self.defined(path) & standard) - self.names - NO_BLOCKS, set())

    @staticmethod
    def defined(path):
        return {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--defined-only", path).splitlines()
                if line.split()[-2] != "A"}

    def test_makes_no_thread_of_the_c_library(self):
        """Locks of the caller's callers (the loader, wrappers) would be taken out of malloc."""
        undefined = {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--undefined-only", LIBRARY).splitlines()}
        self.assertIn("pthread_key_create", undefined)
        self.assertEqual(undefined & {"pthread_create", "thrd_create", "pthread_attr_init"}, set())

    def test_makes_its_system_calls_itself(self):
        """A library beside this one may have wrapped the C library's functions, and its wrapper may allocate."""
        undefined = {line.split()[-1].split("@")[0] for line in output("nm", "-D", "--undefined-only", LIBRARY).splitlines()}
        self.assertIn("memcpy", undefined)
        self.assertEqual(undefined & {"syscall", "mmap", "munmap", "mremap", "madvise", "mprotect", "clock_gettime", "open", "read",
                                      "write", "getpid", "prctl", "nanosleep", "sched_yield"}, set())

    def test_needs_only_libc(self):
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", self.dynamic)
        self.assertEqual([n for n in needed if not re.match(r"lib(c|pthread|dl)\.so|ld-linux", n)], [])

    def test_needs_no_newer_glibc(self):
        """What the library refers to, weakly or not, exists in glibc 2.28 (docs/decisions/0105)."""
        for path in pathlib.Path(LIBRARY).parent.glob("libhakmem*.so"):
            with self.subTest(path.name):
                needs = re.split(r"^Version needs section", output("readelf", "-VW", path), flags=re.M)[1]
                versions = {tuple(map(int, each.split("."))) for each in re.findall(r"Name: GLIBC_([0-9.]+)", needs)}
                self.assertTrue(versions)
                self.assertLessEqual(max(versions), (2, 28))

    def test_soname(self):
        self.assertEqual(re.findall(r"\(SONAME\).*\[(.*)\]", self.dynamic), ["libhakmem.so.0"])

    def test_static_tls_is_small(self):
        tls = self.segment("TLS")
        self.assertLessEqual(tls[0] if tls else 0, TLS_BYTES)

    def test_is_hardened(self):
        self.assertNotIn("TEXTREL", self.dynamic)
        self.assertRegex(self.dynamic, r"FLAGS_1\).*\bNOW\b")
        self.assertRegex(self.dynamic, r"FLAGS_1\).*\bNODELETE\b")
        self.assertIsNotNone(self.segment("GNU_RELRO"))
        self.assertEqual(self.segment("GNU_STACK")[1], "RW")
        for line in self.segments.splitlines():
            if line.strip().startswith("LOAD"):
                self.assertNotRegex(line, r"\bRWE\b")


if __name__ == "__main__":
    unittest.main()
