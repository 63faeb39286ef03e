/* Stack traces without the C library: finds return addresses with the call frame tables (.eh_frame) that compilers put in every
 * module for exceptions. Called by guard/, in malloc and free and in signal handlers.
 *
 * It allocates nothing and takes no lock, not even the loader's, which a forked child may find held for ever. The C library's
 * lock-free search finds modules where it exists (_dl_find_object, glibc 2.35); elsewhere only those loaded at start are known.
 * In generated code without tables hak__unwind follows frame pointers, if they lead back to code with tables. A walk continues
 * below signal handlers, and ends at a rule that is no plain offset. On processors other than x86-64 and 64-bit Arm it finds
 * only the caller. */
#pragma once

#include "base/compiler.h"

enum { HAK_HERE_FRAMES = 8 };

/* The call to the function that says HAK_HERE(): the return address, the stack and frame pointers after the return, and the end
 * of the readable stack. */
struct hak_here {
    uintptr_t pc, sp, fp, end;
};

extern uintptr_t hak__unwind_main_stack; /* its end, set by hak__unwind_begin; 0: unknown */
hak_at_start void hak__unwind_begin(void); /* once, by the library's constructor */

/* Memory is mapped from the stack pointer up to there: a thread's own words lie at the end of its stack, the kernel's data for
 * the program at the end of the first thread's. On any other stack only the current page is trusted. */
hak_inline uintptr_t hak__unwind_end(uintptr_t sp, uintptr_t threads_own)
{
    const uintptr_t most = (uintptr_t)64 << 20, least_page = 4096;
    if (threads_own - sp < most)
        return threads_own;
    return hak__unwind_main_stack - sp < most ? hak__unwind_main_stack : (sp | (least_page - 1)) + 1;
}

/* Compilers store the caller's frame pointer at the function's frame pointer, or two words below it. */
#if defined(__x86_64__) || defined(__aarch64__)
#define HAK_UNWINDS 1
#define HAK_CALLERS_FRAME 0
#elif defined(__riscv) && __riscv_xlen == 64
#define HAK_UNWINDS 1
#define HAK_CALLERS_FRAME (-2)
#else
#define HAK_UNWINDS 0
#endif
#if HAK_UNWINDS
#define HAK_HERE(threads_own) \
    { HAK_RETURN_ADDRESS((uintptr_t)__builtin_return_address(0)), (uintptr_t)__builtin_dwarf_cfa(), \
      ((const uintptr_t *)__builtin_frame_address(0))[HAK_CALLERS_FRAME], \
      hak__unwind_end((uintptr_t)__builtin_dwarf_cfa(), (uintptr_t)(threads_own)) }
#else
#define HAK_HERE(threads_own) { (uintptr_t)__builtin_return_address(0), (uintptr_t)(threads_own), 0, 0 }
#endif
#define HAK_ADDRESS_BITS (~(uintptr_t)0 >> 8)   /* without a pointer's tag */
#if defined(__x86_64__)
#define HAK_RETURN_ADDRESS(word) (word)
#elif defined(__aarch64__)
#define HAK_RETURN_ADDRESS(word) hak__return_address(word)
/* Without its signature: how many bits that has, the processor knows. A processor that signs none ignores the instruction, a hint. */
hak_inline uintptr_t hak__return_address(uintptr_t word)
{
    register uintptr_t x30 __asm__("x30") = word;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri */
    return x30 & HAK_ADDRESS_BITS;
}
#else
#define HAK_RETURN_ADDRESS(word) ((word) & HAK_ADDRESS_BITS)
#endif

/* Reads a word of the stack that a sanitizer may have poisoned. */
#if HAK_ASAN
uintptr_t hak__unwind_word(uintptr_t address);
#else
hak_inline uintptr_t hak__unwind_word(uintptr_t address) { return *(const volatile uintptr_t *)address; }
#endif

/* Stores the return addresses from `here` on, each with its distance in words from the stack pointer; returns their number, at
 * least 1. Takes no lock. */
hak_cold uint32_t hak__unwind_here(const struct hak_here *here, uintptr_t *frames, uint16_t *places);

/* Stores up to `most` return addresses of the calling thread, starting with this function's caller; returns their number. */
hak_cold uint32_t hak__unwind(uintptr_t *frames, uint32_t most);

/* The same without the library's own frames at the top, unless it is a part of the program (trace.c). `frames` has room for
 * HAK_FRAMES_OWN more. */
enum { HAK_FRAMES_OWN = 16 };
hak_cold uint32_t hak__frames_here(uintptr_t *frames, uint32_t most);

/* As hak__unwind, from where a signal interrupted the thread, starting there; `context` is the handler's third argument. */
hak_cold uint32_t hak__unwind_signal(uintptr_t *frames, uint32_t most, const void *context);

/* --- stacks in reports (trace.c) -------------------------------------------------------------------------------------------
 *
 * A heading line, then one line per return address, as module+offset for addr2line. Safe in signal handlers: allocates nothing. */

enum { HAK_FRAMES_SAID = 12 }; /* the most lines per stack */

/* `thread` is the kernel's thread number, 0 if unknown. */
hak_cold void hak__frames_say(const char *what, uint32_t thread, const uintptr_t *frames, uint32_t count);

/* The same for the calling thread's stack, from its call into the library on. */
hak_cold void hak__frames_say_here(const char *what);

/* The same from where a signal interrupted the calling thread; `context` is the handler's third argument. */
hak_cold void hak__frames_say_signal(const char *what, const void *context);
