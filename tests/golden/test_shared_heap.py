#!/usr/bin/env python3
"""The example of a heap in shared memory: what the workers wrote is read, and the one that was killed leaves the heap whole; also where
malloc's library is preloaded from another place. A program that loads libhakmem-region late has heaps in regions from then on, and keeps them when it loads a second copy."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = pathlib.Path(os.environ["HAK_TEST_LIB"])
CC = os.environ.get("CC", "cc")
WORDS = 10000


REGION = LIBRARY.with_name("libhakmem-region.so")
LATE = r"""
#include <dlfcn.h>
#include <errno.h>
#include <hakmem.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    static char region[1 << 20];
    struct hak_heap_options options = { .size = sizeof options, .region = region, .region_size = sizeof region };
    if (argc < 2 || hak_heap_new(&options) != NULL || errno != ENOTSUP || dlopen(argv[1], RTLD_NOW) == NULL)
        return 1;
    hak_heap_t *heap = hak_heap_new(&options);
    char *p = heap == NULL ? NULL : hak_heap_malloc(heap, 100);
    if (p == NULL || p < region || p > region + sizeof region || hak_heap_of(p) != heap)
        return 2;
    free(p);
    if (argv[2] == NULL)
        return 0;
    void *q = hak_heap_malloc(heap, 100), *copy = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    hak_heap_t *(*attach)(void *, size_t) = copy == NULL ? NULL : (hak_heap_t * (*)(void *, size_t)) dlsym(copy, "hak_heap_attach");
    if (attach == NULL || hak_heap_of(q) != heap || hak_heap_next(NULL) != heap || attach(region, sizeof region) != NULL)
        return 3;   /* the region is not a shared one */
    free(q);
    return 0;
}
"""


def build(program, source, *libraries):
    subprocess.run([CC, "-O2", "-Wall", "-Werror", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}", source, *libraries,
                    f"-Wl,-rpath,{LIBRARY.parent}", "-ldl", "-o", program], check=True)


class Example(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.program = self.folder / "program"

    def test_words_of_all_workers(self):
        build(self.program, ROOT / "examples" / "shared_heap.c", REGION, LIBRARY)
        elsewhere = self.folder / "allocator.so"
        shutil.copy(LIBRARY, elsewhere)
        for workers, more in (1, {}), (4, {}), (16, {}), (4, {"LD_PRELOAD": str(elsewhere)}):
            done = subprocess.run([self.program, str(workers)], capture_output=True, text=True, timeout=60, check=True,
                                  env={**os.environ, **more})
            self.assertEqual(done.stderr, "")
            self.assertEqual(done.stdout, f"{(workers - 1) * WORDS} words read, {WORDS // 2} blocks left by the killed worker\n")

    def test_loaded_late(self):
        (self.folder / "late.c").write_text(LATE, encoding="ascii")
        build(self.program, self.folder / "late.c", LIBRARY)
        copy = self.folder / "copy.so"
        shutil.copy(REGION, copy)
        subprocess.run([self.program, REGION], timeout=60, check=True)
        subprocess.run([self.program, REGION, copy], timeout=60, check=True)


if __name__ == "__main__":
    unittest.main()
