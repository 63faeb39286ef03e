#!/usr/bin/env python3
"""Words that every malloc, free or miss reads share no cache line with words that threads write all the time.

Otherwise a thread that does nothing but write its own would make all others fetch the line anew. The linker decides
which global words are neighbours, so the built library is looked at.
"""
import os
import subprocess
import unittest

SKIPPED = 77
LINE = 64
READ = {"hak__window", "hak__freed_key", "hak__spans", "hak__supers", "hak__super_words", "hak__option_words",
        "hak__sentinel", "hak__forked"}
WRITTEN = {"hak__arena_published", "hak__arena_state", "hak__pool_counts", "hak__tier_counts", "hak__huge_counts",
           "hak__upkeep_counts", "hak__thp_counts", "hak__os_calls", "hak__lock_wait_count", "hak__upkeep_last_ms", "stepping",
           "parked", "pool_used", "all_bytes", "arena_lock", "background_pulse", "background_threads"}


def lines(library):
    """{symbol: the cache lines on which it lies}"""
    listed = subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout
    found = {}
    for fields in map(str.split, listed.splitlines()):
        if len(fields) == 4 and fields[2] in "bBdD":
            start, size = int(fields[0], 16), int(fields[1], 16)
            found[fields[3]] = set(range(start // LINE, (start + size - 1) // LINE + 1))
    return found


class Lines(unittest.TestCase):
    def test_read_and_written_words_are_apart(self):
        found = lines(os.environ["HAK_TEST_LIB"])
        if not found:
            self.skipTest("the library has been stripped")
        self.assertEqual((READ | WRITTEN) - found.keys(), set(), "these are no words of the library any more")
        together = [f"{read} and {written}" for read in sorted(READ) for written in sorted(WRITTEN)
                    if found[read] & found[written]]
        self.assertEqual(together, [])


if __name__ == "__main__":
    unittest.main()
