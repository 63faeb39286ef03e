/* System calls by number, past the C library. A program or a library loaded beside this one may have wrapped the C library's
 * functions (tracers, libfaketime, communication libraries, even syscall() itself), and a wrapper that allocates would re-enter
 * this library while a lock is held. So all layers make their calls through this header.
 *
 * The result is the kernel's: a value, or -1..-4095, a negated errno code. errno is not changed.
 * Checked builds go through the C library (syscall.c), so that sanitizers and the tests' wrappers see the calls; so do all builds on
 * processors other than x86-64, 64-bit Arm and 64-bit RISC-V. */
#pragma once

#include <sys/syscall.h>

#include "base/assert.h"
#include "base/compiler.h"

/* hak__syscall(number, up to six arguments), integers or pointers. */
#define hak__syscall(...) hak__syscall_padded(__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)
#define hak__syscall_padded(number, a, b, c, d, e, f, ...) \
    hak__syscall_made((number), (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

/* 0, or the errno code of a call that failed. */
hak_inline int hak__syscall_code(long result) { return (unsigned long)result > -4096ul ? (int)-result : 0; }

#if defined(__aarch64__)
#define HAK_SYSCALL_NUMBER "x8"
#define HAK_SYSCALL_ARGUMENT "x"
#define HAK_SYSCALL_TRAP "svc 0"
#define HAK_SYSCALL_CHILD "cbnz x0, 1f\n\tmov x29, xzr\n\tblr x5"
#elif defined(__riscv) && __riscv_xlen == 64
#define HAK_SYSCALL_NUMBER "a7"
#define HAK_SYSCALL_ARGUMENT "a"
#define HAK_SYSCALL_TRAP "ecall"
#define HAK_SYSCALL_CHILD "bnez a0, 1f\n\tmv s0, zero\n\tjalr a5"
#endif

#if HAK_TESTING || !(defined(__x86_64__) || defined(HAK_SYSCALL_TRAP))

long hak__syscall_made(long number, long a, long b, long c, long d, long e, long f);

#elif defined(__x86_64__)

hak_inline long hak__syscall_made(long number, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
    return number;
}

#else

hak_inline long hak__syscall_made(long number, long a, long b, long c, long d, long e, long f)
{
    register long r0 __asm__(HAK_SYSCALL_ARGUMENT "0") = a, r1 __asm__(HAK_SYSCALL_ARGUMENT "1") = b;
    register long r2 __asm__(HAK_SYSCALL_ARGUMENT "2") = c, r3 __asm__(HAK_SYSCALL_ARGUMENT "3") = d;
    register long r4 __asm__(HAK_SYSCALL_ARGUMENT "4") = e, r5 __asm__(HAK_SYSCALL_ARGUMENT "5") = f;
    register long what __asm__(HAK_SYSCALL_NUMBER) = number;
    __asm__ volatile(HAK_SYSCALL_TRAP : "+r"(r0) : "r"(what), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5) : "memory");
    return r0;
}

#endif

/* clone(2) for a thread that begins on `stack` by calling `entry`, which does not return. `word` gets the thread's number, and 0 at its
 * end. Not the C library's function: musl's refuses threads. */
#if defined(__x86_64__)

hak_inline long hak__syscall_clone(long flags, char *stack, _Atomic uint32_t *word, char *thread_pointer, void (*entry)(void))
{
    long number = SYS_clone;
    register long r10 __asm__("r10") = (long)word, r8 __asm__("r8") = (long)thread_pointer, r9 __asm__("r9") = (long)entry;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tcall *%%r9\n1:"
                     : "+a"(number)
                     : "D"(flags), "S"(stack), "d"(word), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return number;
}

#elif defined(HAK_SYSCALL_TRAP)

hak_inline long hak__syscall_clone(long flags, char *stack, _Atomic uint32_t *word, char *thread_pointer, void (*entry)(void))
{
    register long r0 __asm__(HAK_SYSCALL_ARGUMENT "0") = flags, r1 __asm__(HAK_SYSCALL_ARGUMENT "1") = (long)stack;
    register long r2 __asm__(HAK_SYSCALL_ARGUMENT "2") = (long)word, r3 __asm__(HAK_SYSCALL_ARGUMENT "3") = (long)thread_pointer;
    register long r4 __asm__(HAK_SYSCALL_ARGUMENT "4") = (long)word, r5 __asm__(HAK_SYSCALL_ARGUMENT "5") = (long)entry;
    register long what __asm__(HAK_SYSCALL_NUMBER) = SYS_clone;
    __asm__ volatile(HAK_SYSCALL_TRAP "\n\t" HAK_SYSCALL_CHILD "\n1:"
                     : "+r"(r0)
                     : "r"(what), "r"(r1), "r"(r2), "r"(r3), "r"(r4), "r"(r5)
                     : "memory");
    return r0;
}

#endif
