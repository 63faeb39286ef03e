"""What is measured: one row of the table per case, a program of bench/micro with its arguments.

Arguments are chosen so that a fast allocator on two cores takes a few tenths of a second to a second;
the quick ones only show that everything works.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    name: str
    program: str
    args: str
    quick_args: str
    about: str
    floor: str = ""  # the floor's loop for the same arguments, if the floor can run it
    long_args: str = ""  # arguments of a run of minutes, where that shows something else

    def arguments(self, quick: bool, long: bool = False) -> list[str]:
        if quick:
            return self.quick_args.split()
        return (self.long_args if long and self.long_args else self.args).split()


CASES: tuple[Case, ...] = (
    Case("random_mixed", "bench_random_mixed", "60000000 400", "2000000 400",
         "16..1040 B in random slots, one thread", "random_mixed"),
    Case("tiny_hot", "bench_tiny_hot", "16 150000000", "16 5000000",
         "16 B in batches of 8, one thread", "tiny_hot"),
    Case("mid_large_mt", "bench_mid_large_mt", "2 20000000 64", "2 500000 64",
         "8..32 KiB in random slots, two threads", "mid_large_mt"),
    Case("large_mt", "bench_large_mt", "2 1000000 16", "2 50000 16",
         "64 KiB..1 MiB in random slots, two threads", "large_mt"),
    Case("larson", "larson", "1 8 1000 5000 100 4141 2", "1 8 1000 5000 100 4141 2",
         "server pattern with threads that hand on, two threads", "larson"),
    Case("tree", "bench_tree", "17 250", "17 10",
         "trees of 2^17 nodes of 32 B built and freed", "tree"),
    Case("remote", "bench_remote", "oneway 1 20000000 64 64", "oneway 1 500000 64 64",
         "64 B from a producer to a consumer"),
    Case("remote_mixed", "bench_remote", "oneway 1 10000000 16 1040", "oneway 1 500000 16 1040",
         "16..1040 B from a producer to a consumer"),
    Case("remote_exchange", "bench_remote", "exchange 1 10000000 16 1040", "exchange 1 500000 16 1040",
         "16..1040 B exchanged between two threads", "remote"),
    Case("thread_churn", "bench_thread_churn", "20000 2 100 10", "1000 2 100 10",
         "short threads that leave blocks behind"),
    Case("realloc_vector", "bench_realloc", "vector", "vector 3",
         "vectors doubling from 16 B to 256 KiB"),
    Case("realloc_append", "bench_realloc", "append", "append 5",
         "strings growing to 4 KiB in small steps"),
    Case("realloc_big", "bench_realloc", "big", "big 10",
         "a buffer growing from 1 to 64 MiB"),
    Case("plain", "bench_family", "malloc 48 60000000", "malloc 48 1000000",
         "48 B, malloc and free"),
    Case("usable", "bench_family", "usable 48 60000000", "usable 48 1000000",
         "48 B, malloc_usable_size asked at both ends"),
    Case("memalign", "bench_family", "memalign 100 60000000", "memalign 100 1000000",
         "100 B at multiples of 64"),
    Case("posix_memalign", "bench_family", "posix_memalign 48 60000000", "posix_memalign 48 1000000",
         "48 B at multiples of 64, by posix_memalign"),
    Case("new_aligned", "bench_family", "new_aligned 128 60000000", "new_aligned 128 1000000",
         "C++: 128 B at multiples of 64, sized delete"),
    Case("sized", "bench_family", "sized 48 60000000", "sized 48 1000000",
         "C++: 48 B, sized delete"),
    Case("large_hot", "bench_tiny_hot", "100000 10000000 1", "100000 100000 1",
         "one block of 100 KB, over and over"),
    Case("huge_hot", "bench_tiny_hot", "2000000 200000 1", "2000000 5000 1",
         "one block of 2 MB, over and over"),
    Case("heap_pair", "bench_heaps", "pairs 100 60000000", "pairs 100 1000000",
         "a heap of one's own: 100 B in batches of 8; malloc where there are none"),
    Case("heap_shared", "bench_heaps", "pairs 100 30000000 2", "pairs 100 500000 2",
         "two threads on one heap (mimalloc: a heap each)"),
    Case("heap_request", "bench_heaps", "requests 100 20000000", "requests 100 100000",
         "a heap is made, gets 1,000 blocks, and ends; malloc and free where there are none"),
    Case("fragment", "bench_fragment", "20 32 10 1000", "2 4 10 0",
         "changing sizes of which a tenth survives: memory / live", long_args="1200 32 10 1000"),
)
