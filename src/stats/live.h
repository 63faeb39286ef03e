/* The library's figures for another process: include/hakmem_live.h. */
#pragma once

#include <stdint.h>

/* Once the library runs: notes where everything lies. A thread's heap is at `sentinel` plus the thread's word, which
 * lies `word` bytes from its thread pointer. */
void hak__live_open(const char *version, const void *sentinel, intptr_t word);
