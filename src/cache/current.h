/* The calling thread's heap. A thread starts with the sentinel, whose bins are empty to a pop and full to a push and
 * whose tag owns nothing, so the fast paths need no "is there a heap?" test. The thread's word is the distance from the
 * sentinel to its heap: zero, which is what thread-local memory holds before anything has run, means the sentinel. */
#pragma once

#include "cache/cache.h"

/* Only the front of a heap exists: every slow path checks the mode before it reads more. */
extern struct hak_heap_front hak__sentinel __attribute__((visibility("hidden")));
extern __thread intptr_t hak__thread_word __attribute__((tls_model("initial-exec")));

hak_inline struct hak_heap *hak__heap_current(void)
{
    return (struct hak_heap *)((uintptr_t)&hak__sentinel + (uintptr_t)hak__thread_word);
}
