"""`with hakmem.heap()`: blocks of code that overlap, as those of coroutines do, end in any order and thread."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hakmem
from tests.inside import LIBRARY

BEGIN = """
import asyncio, ctypes, gc, os, random, threading, hakmem
library = hakmem._library()
def default(): return library.hak_heap_get_default()
def heaps():
    count, heap = 0, process.hak_heap_next(None)
    while heap is not None: count, heap = count + 1, process.hak_heap_next(heap)
    return count
process = ctypes.CDLL(None)
process.hak_heap_next.restype = ctypes.c_void_p; process.hak_heap_next.argtypes = [ctypes.c_void_p]
def within(name="python", limit=0, kept=None):
    with hakmem.heap(name, limit) as heap:
        while True:
            if kept is not None: kept += [bytearray(b"x" * 20000) for _ in range(20)]
            yield heap
def in_thread(function):
    thread = threading.Thread(target=function); thread.start(); thread.join()
"""


def python(code: str) -> str:
    environment = os.environ | {
        "LD_PRELOAD": str(LIBRARY), "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONMALLOC": "malloc",
    }  # fmt: skip
    command = [sys.executable, "-c", f"{BEGIN}{code}\nassert process.hak_check_heap() == 1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_coroutines() -> None:
    """The first block ends while the second is open, whose objects live on."""
    python("""
async def request(first, second, kept):
    await asyncio.sleep(first)
    with hakmem.heap():
        kept += [bytearray(b"x" * 20000) for _ in range(100)]
        await asyncio.sleep(second)
        kept += [bytearray(b"x" * 20000) for _ in range(100)]
async def main():
    await asyncio.gather(request(0, .1, kept), request(.05, .1, kept))
kept = []
asyncio.run(main())
more = [bytearray(b"y" * 20000) for _ in range(400)]
assert all(each == b"x" * 20000 for each in kept) and len(kept) == 400
assert default() is None and heaps() == 0
""")


def test_generators_in_any_order() -> None:
    """Hundreds overlap without a pause, of which none waits for more than those opened before it ended."""
    python("""
random.seed(1)
kept, running, most = [], [], 0
for step in range(3000):
    if len(running) < 5 or random.random() < .5 and len(running) < 80:
        made = within(kept=kept if step % 7 == 0 else None); next(made); running.append(made)
    else:
        running.pop(random.randrange(len(running))).close()
    if random.random() < .1: next(random.choice(running))
    del kept[:-200]
    most = max(most, heaps())
assert most < 300, most
while running: running.pop(0).close()
assert all(each == b"x" * 20000 for each in kept)
assert default() is None and heaps() == 0
""")


def test_the_innermost_open_one_is_the_default() -> None:
    python("""
outer = within("outer", limit=1 << 20); first = next(outer)
inner = within("inner", limit=64 << 20); second = next(inner)
outer.close()
assert first.handle is None and default() == second.handle
many = [bytearray(100000) for _ in range(50)]       # the limit has ended with its block
assert second.stats()["live_bytes"] > 5000000 and first.stats()["live_bytes"] < 1000000
third = within("third"); next(third)
inner.close()
assert default() == next(third).handle and heaps() == 1
third.close()
assert default() is None and heaps() == 0
""")


def test_deep_nesting() -> None:
    python("""
running = []
for _ in range(200): running.append(within()); next(running[-1])
while running: running.pop().close()
assert default() is None and heaps() == 0
""")


def test_an_exception_ends_only_its_block() -> None:
    python("""
running = within(); heap = next(running)
try:
    with hakmem.heap("fails"): raise ValueError
except ValueError: pass
assert default() == heap.handle
try: running.throw(KeyError)
except KeyError: pass
assert default() is None and heaps() == 0
""")


def test_a_block_ends_in_another_thread() -> None:
    python("""
running, kept = within(kept=[]), []
heap = next(running)
in_thread(running.close)
assert heap.handle is None and heap.stats()["live_bytes"] > 0
kept += [bytes(5000) for _ in range(100)]           # this thread's default is still its heap
with hakmem.heap(): pass
assert default() is None and heaps() == 0
assert all(each == bytes(5000) for each in kept)
""")


def test_a_block_outlives_its_thread() -> None:
    python("""
kept = []
running = [within(kept=kept) for _ in range(3)]
def begin():
    for each in running: next(each)
in_thread(begin)
assert heaps() == 3
for each in running: next(each)
running[1].close(); running[0].close(); in_thread(running[2].close)
assert default() is None and heaps() == 0 and all(each == b"x" * 20000 for each in kept)
""")


def test_the_garbage_collector_ends_blocks() -> None:
    """Anywhere: in the functions that make and end heaps, too, and in any thread."""
    python("""
class Cycle: pass
def lose():
    cycle = Cycle(); cycle.self = cycle
    cycle.running = within(); next(cycle.running)
def work():
    for step in range(400):
        lose()
        with hakmem.heap(): lose(); kept.append(bytearray(b"x" * 5000))
        lose()
    gc.collect()
    with hakmem.heap(): pass
kept = []
gc.set_threshold(7, 2, 2)
threads = [threading.Thread(target=work) for _ in range(3)]
for each in threads: each.start()
work()
for each in threads: each.join()
gc.collect()
with hakmem.heap(): pass
assert default() is None and heaps() == 0, heaps()
assert all(each == b"x" * 5000 for each in kept)
""")


def test_another_thread_resizes_blocks_at_the_end() -> None:
    python("""
def resize():
    while not stop:
        for each in shared[:]:
            for size in 700, 3000, 100: each.extend(bytes(size)); del each[50:]
shared, stop = [], []
thread = threading.Thread(target=resize); thread.start()
for step in range(2000):
    with hakmem.heap(): shared[:] = [bytearray(b"x" * 50) for _ in range(8)]; more = [bytes(300) for _ in range(100)]
stop.append(1); thread.join()
assert all(each == b"x" * 50 for each in shared)
""")


def test_a_forked_child_ends_them_too() -> None:
    python("""
mine, other, ready, go = within(), within(), threading.Event(), threading.Event()
def hold(): next(other); ready.set(); go.wait()
thread = threading.Thread(target=hold); thread.start(); ready.wait()
next(mine)
child = os.fork()
mine.close(); other.close()
if child == 0: assert default() is None; os._exit(0)
assert os.waitpid(child, 0)[1] == 0
go.set(); thread.join()
assert default() is None and heaps() == 0
""")


def test_left_open_at_the_end() -> None:
    said = python("""
running = [within() for _ in range(3)]
for each in running: next(each)
threading.Thread(target=lambda: next(within())).start()
print("end")
""")
    assert said == "end\n"


@pytest.mark.parametrize("limit", [-1, 1 << 64, (1 << 64) + 5])
def test_a_limit_that_is_none_is_refused(limit: int) -> None:
    """Otherwise it would be another one: ctypes drops the upper bits."""
    with pytest.raises(ValueError, match=rf"limit={limit}: not a number of bytes from 0"), hakmem.heap(limit=limit):
        pass
