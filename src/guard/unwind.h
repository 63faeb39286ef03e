/* Stack traces without the C library: return addresses found by the call frame tables (.eh_frame) that compilers leave in
 * every module for exceptions. Called by guard/sample.c, in malloc and free and in a signal handler.
 *
 * Nothing is allocated and no lock of ours is taken. Modules are found by the C library's lock-free search where it has
 * one (_dl_find_object, glibc 2.35), else by dl_iterate_phdr, which takes the loader's lock for a moment. A walk ends at
 * the frame for which there is no table or whose rules are not plain offsets: generated code, most signal trampolines.
 * On other processors than x86-64 and 64-bit Arm there is nothing but the caller. */
#ifndef HAK_GUARD_UNWIND_H
#define HAK_GUARD_UNWIND_H

#include "base/compiler.h"

/* Stores up to `most` return addresses of the calling thread, the caller of this function's first; their number. */
hak_cold uint32_t hak__unwind(uintptr_t *frames, uint32_t most);

/* The same from where a signal has interrupted the thread, that place first; `context` is the handler's third argument. */
hak_cold uint32_t hak__unwind_signal(uintptr_t *frames, uint32_t most, const void *context);

#endif
