"""What is counted: six patterns, each a loop of bench_lines; the work is divided among the threads."""

from __future__ import annotations

from dataclasses import dataclass

THREADS = (2, 8, 16, 32, 64)
FOREVER = 1 << 38  # the tool ends the program
WARM_UP = 8000  # operations of each thread before counting begins, and 64,000 of all threads at least
COUNTED = 64_000  # operations of all threads together


@dataclass(frozen=True)
class Pattern:
    """In `words` T stands for the threads, P for pairs of them, S for each thread's slots."""

    name: str
    about: str
    words: str
    slots: int = 0  # of all threads together
    sending: int = 1  # one of so many threads allocates

    def arguments(self, threads: int) -> list[str]:
        values = {"T": threads, "P": threads // 2, "N": FOREVER, "S": max(1, self.slots // threads)}
        return [str(values.get(word, word)) for word in self.words.split()]

    def window(self, threads: int) -> list[str]:
        skip = max(64_000, WARM_UP * threads // self.sending)
        return [f"--skip={skip}", f"--count={COUNTED}"]


PATTERNS = (
    Pattern("random_mixed", "16..1040 B in 6400 random slots", "mid_large_mt T N S 1 16 1040", 6400),
    Pattern("mid", "8..32 KiB in 1024 random slots", "mid_large_mt T N S", 1024),
    Pattern("large", "64 KiB..1 MiB in 256 random slots", "large_mt T N S", 256),
    Pattern("larson", "8..1000 B, 200 blocks a server, handed to a new thread after 2000", "larson 3600 8 1000 200 10 4141 T"),
    Pattern("remote", "16..1040 B, half of the threads allocate, the other half free; 256 blocks per ring",
            "remote oneway P N 16 1040 256", sending=2),
    Pattern("exchange", "16..1040 B, each thread frees what the one before it has allocated; 256 blocks per ring",
            "remote exchange P N 16 1040 256"),
)
