/* Stack traces without the C library: return addresses found by the call frame tables (.eh_frame) that compilers leave in
 * every module for exceptions. Called by guard/, in malloc and free and in signal handlers.
 *
 * Nothing is allocated and no lock is taken, not even the loader's, which a forked child may find held for ever. Modules are
 * found by the C library's lock-free search where it has one (_dl_find_object, glibc 2.35); else only those of the program's
 * start are known. Where there is no table, in generated code, hak__unwind follows frame pointers, if they lead back to code that
 * has one. A walk goes on below signal handlers, and ends at other rules that are not plain offsets.
 * On other processors than x86-64 and 64-bit Arm there is nothing but the caller. */
#pragma once

#include "base/compiler.h"

enum { HAK_HERE_FRAMES = 8 };

/* Where the function that says HAK_HERE() has been called from: the return address, the stack pointer and the frame pointer
 * behind the return, and the end of what may be read of the stack. */
struct hak_here {
    uintptr_t pc, sp, fp, end;
};

extern uintptr_t hak__unwind_main_stack; /* its end, set by hak__unwind_begin; 0: not known */
hak_at_start void hak__unwind_begin(void); /* once, by the library's constructor */

/* From the stack pointer to there all is mapped: a thread's own words lie at the end of its stack, the kernel's gifts to the
 * program at the end of the first thread's. Of a stack that is neither, no more is believed than the page. */
hak_inline uintptr_t hak__unwind_end(uintptr_t sp, uintptr_t threads_own)
{
    const uintptr_t most = (uintptr_t)64 << 20, least_page = 4096;
    if (threads_own - sp < most)
        return threads_own;
    return hak__unwind_main_stack - sp < most ? hak__unwind_main_stack : (sp | (least_page - 1)) + 1;
}

#if defined(__x86_64__) || defined(__aarch64__)
/* Both compilers store the caller's frame pointer at the function's own. */
#define HAK_HERE(threads_own) \
    { (uintptr_t)__builtin_return_address(0) & HAK_ADDRESS_BITS, (uintptr_t)__builtin_dwarf_cfa(), \
      *(const uintptr_t *)__builtin_frame_address(0), \
      hak__unwind_end((uintptr_t)__builtin_dwarf_cfa(), (uintptr_t)(threads_own)) }
#else
#define HAK_HERE(threads_own) { (uintptr_t)__builtin_return_address(0), (uintptr_t)(threads_own), 0, 0 }
#endif
#define HAK_ADDRESS_BITS (~(uintptr_t)0 >> 8)   /* without the bits that sign a return address */

/* A word of the stack, which may lie where a sanitizer has marked it as not to be read. */
#if HAK_ASAN
uintptr_t hak__unwind_word(uintptr_t address);
#else
hak_inline uintptr_t hak__unwind_word(uintptr_t address) { return *(const volatile uintptr_t *)address; }
#endif

/* Stores the return addresses from `here` on, and of each the words from the stack pointer to where it was found; their
 * number, 1 at least. No lock is taken. */
hak_cold uint32_t hak__unwind_here(const struct hak_here *here, uintptr_t *frames, uint16_t *places);

/* Stores up to `most` return addresses of the calling thread, the caller of this function's first; their number. */
hak_cold uint32_t hak__unwind(uintptr_t *frames, uint32_t most);

/* The same from where a signal has interrupted the thread, that place first; `context` is the handler's third argument. */
hak_cold uint32_t hak__unwind_signal(uintptr_t *frames, uint32_t most, const void *context);
