"""Which heaps of `hakmem.heap` a thread has open, and when they may end.

Blocks of code of coroutines and generators overlap: they end in any order, in other threads than they began, or when
garbage is collected, which may be in the middle of any function here. So a block that ends is only marked.
Its heap ends
- in the thread that began it, or after that thread's end;
- when it is not the thread's default any more: that is the heap opened last of those whose blocks are still open;
- after the heaps below it, since a heap's end is theirs.
"""

from __future__ import annotations

import ctypes
import os
import threading

DEPTH = 64  # of a tree of heaps (HAK_OWN_DEPTH)


class OpenHeap:
    """A heap from the start of its block of code until it ends."""

    def __init__(self, handle: int, thread: Thread, parent: OpenHeap | None) -> None:
        self.handle = handle
        self.thread = thread
        self.parent = parent
        self.below = 0  # heaps that have it as their parent
        self.depth: int = 1 if parent is None else parent.depth + 1
        self.ended = False  # the block of code; once true it stays so
        self.stays = False  # something below could not end

    def end(self) -> None:
        """Ends its block of code, in any thread."""
        self.thread.functions.hak_heap_set_limit(self.handle, 0)  # of blocks of code that are still open
        self.ended = True
        self.thread.settle()

    def release(self) -> None:
        locked = ctypes.pythonapi  # keeps out other threads, which may resize blocks of the heap
        merge, destroy = locked.hak_heap_merge_into_default, locked.hak_heap_destroy
        handle = ctypes.c_void_p(self.handle)
        self.stays |= merge(handle) != 0  # such as EBUSY: a thread that ended by force had it as its default
        if not self.stays:
            destroy(handle)
        if self.parent is not None:
            self.parent.below -= 1
            self.parent.stays |= self.stays


class Thread:
    """The heaps that a thread has open, and ended ones that wait, in the order in which they were opened."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self.functions = functions
        self.heaps: list[OpenHeap] = []
        self.base: int | None = None  # the default beneath
        self.identity: int | None = threading.get_ident()  # None: it has ended
        self._changing = threading.Lock()  # never waited for
        self._due = False

    def _innermost(self) -> OpenHeap | None:
        return next((heap for heap in reversed(self.heaps) if not heap.ended), None)

    def _parent(self) -> OpenHeap | None:
        """What a heap opened now is part of: the innermost heap, or one above it. It is none below an ended one: as
        long as blocks of code overlap without a pause, the tree would grow, and no heap in it end."""
        parent = above = self._innermost()
        while above is not None:
            if above.ended or above.depth == DEPTH:
                parent = above.parent
            above = above.parent
        return parent

    def open(self, options: ctypes.Structure) -> OpenHeap:
        """Makes a heap and makes it the default. OSError: there is no memory."""
        self.settle()
        alone = self._changing.acquire(blocking=False)  # else this interrupts a function here, which ends no open heap
        try:
            if not self.heaps:
                self.base = self.functions.hak_heap_get_default()
            parent = self._parent()
            options.parent = self.base if parent is None else parent.handle
            handle = self.functions.hak_heap_new(ctypes.byref(options))
            if handle is None:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            made = OpenHeap(handle, self, parent)
            if parent is not None:
                parent.below += 1
            self.heaps.append(made)
            self.functions.hak_heap_set_default(handle)
        finally:
            if alone:
                self._changing.release()
        self.settle()
        return made

    def settle(self) -> None:
        """Ends the heaps that may end. In another thread it does nothing as long as this one lives."""
        self._due = True
        while self._due and self.identity in (None, threading.get_ident()) and self._changing.acquire(blocking=False):
            try:
                self._due = False
                ended = [heap for heap in reversed(self.heaps) if heap.ended]  # parents after the heaps below
                if ended:
                    self._settle(ended)
            finally:
                self._changing.release()

    def _settle(self, ended: list[OpenHeap]) -> None:
        if self.identity is not None:
            innermost = self._innermost()
            self.functions.hak_heap_set_default(self.base if innermost is None else innermost.handle)
        for heap in ended:
            if heap.below == 0:
                self.heaps.remove(heap)
                heap.release()

    def leave(self) -> None:
        """The thread ends, or its copy in a forked child has; blocks of code that it began may still be open."""
        if self.identity == threading.get_ident() and self.heaps:
            self.functions.hak_heap_set_default(self.base)
        self.identity = None
        self.settle()


class _Mine(threading.local):
    leaves: Leaving | None = None


class Leaving:
    """Ends with its thread."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread

    def __del__(self) -> None:
        self.thread.leave()


_mine = _Mine()


def this_thread(functions: ctypes.CDLL) -> Thread:
    if _mine.leaves is None:
        _mine.leaves = Leaving(Thread(functions))
    return _mine.leaves.thread
