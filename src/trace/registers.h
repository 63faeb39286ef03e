/* What unwinding has to know of a processor: its registers by their numbers in the tables, how the current ones are taken, and where a
 * signal's lie. Included by unwind.c and rows.h only; a processor without a part here has stacks of one frame. */
#pragma once

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <ucontext.h>

/* Reads a word of the context, which lies on a stack: a sanitizer may have poisoned that. */
__attribute__((no_sanitize_address)) static inline uintptr_t context_word(const void *at) { return *(const volatile uintptr_t *)at; }

/* `restores` is the code that returns from a handler; the kernel's context lies CONTEXT_BEHIND bytes above the stack pointer there.
 * TAKE_REGISTERS stores those that calls preserve. */

#if defined(__x86_64__)

enum { REGISTERS = 17, REGISTER_FP = 6, REGISTER_SP = 7, REGISTER_RETURN = 16, BARE_TRAMPOLINES = 1, PAIR_BELOW = 0 };

static const uint8_t restores[] = { 0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05 }; /* mov $15, %rax; syscall */
enum { CONTEXT_BEHIND = 0, CONTEXT_BYTES = offsetof(ucontext_t, uc_mcontext.gregs) + sizeof(gregset_t) };

/* Returns the interrupted place. */
static inline uintptr_t from_context(uintptr_t *registers, const ucontext_t *context)
{
    static const uint8_t places[16] = { REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP,
                                        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15 };
    for (unsigned i = 0; i < sizeof places; i++)
        registers[i] = context_word(&context->uc_mcontext.gregs[places[i]]);
    return context_word(&context->uc_mcontext.gregs[REG_RIP]);
}

#define TAKE_REGISTERS(registers, pc) \
    __asm__ volatile("movq %%rbx, 24(%0)\n\tmovq %%rbp, 48(%0)\n\tmovq %%rsp, 56(%0)\n\tmovq %%r12, 96(%0)\n\t" \
                     "movq %%r13, 104(%0)\n\tmovq %%r14, 112(%0)\n\tmovq %%r15, 120(%0)\n\t" \
                     "leaq 1f(%%rip), %%rax\n1:\tmovq %%rax, (%1)" \
                     : : "r"(registers), "r"(pc) : "rax", "memory")

#elif defined(__aarch64__)

enum { REGISTERS = 32, REGISTER_FP = 29, REGISTER_SP = 31, REGISTER_RETURN = 30, BARE_TRAMPOLINES = 0, PAIR_BELOW = 0 };

static const uint8_t restores[] = { 0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4 }; /* mov x8, #139; svc #0 */
enum { CONTEXT_BEHIND = sizeof(siginfo_t), CONTEXT_BYTES = offsetof(ucontext_t, uc_mcontext.pstate) };

static inline uintptr_t from_context(uintptr_t *registers, const ucontext_t *context)
{
    for (unsigned i = 0; i < 31; i++)
        registers[i] = context_word(&context->uc_mcontext.regs[i]);
    registers[REGISTER_SP] = context_word(&context->uc_mcontext.sp);
    return context_word(&context->uc_mcontext.pc);
}

#define TAKE_REGISTERS(registers, pc) \
    __asm__ volatile("stp x19, x20, [%0, #152]\n\tstp x21, x22, [%0, #168]\n\tstp x23, x24, [%0, #184]\n\t" \
                     "stp x25, x26, [%0, #200]\n\tstp x27, x28, [%0, #216]\n\tstp x29, x30, [%0, #232]\n\t" \
                     "mov x9, sp\n\tstr x9, [%0, #248]\n\tadr x9, 1f\n1:\tstr x9, [%1]" \
                     : : "r"(registers), "r"(pc) : "x9", "memory")

#elif defined(__riscv) && __riscv_xlen == 64

/* The frame pointer is the frame's upper end; the pair lies below it. */
enum { REGISTERS = 32, REGISTER_FP = 8, REGISTER_SP = 2, REGISTER_RETURN = 1, BARE_TRAMPOLINES = 0, PAIR_BELOW = 16 };

static const uint8_t restores[] = { 0x93, 0x08, 0xb0, 0x08, 0x73, 0x00, 0x00, 0x00 }; /* li a7, 139; ecall */
enum { CONTEXT_BEHIND = sizeof(siginfo_t), CONTEXT_BYTES = offsetof(ucontext_t, uc_mcontext.__gregs) + 32 * sizeof(uintptr_t) };

static inline uintptr_t from_context(uintptr_t *registers, const ucontext_t *context)
{
    for (unsigned i = 1; i < 32; i++)
        registers[i] = context_word(&context->uc_mcontext.__gregs[i]);
    return context_word(&context->uc_mcontext.__gregs[0]);
}

#define TAKE_REGISTERS(registers, pc) \
    __asm__ volatile("sd ra, 8(%0)\n\tsd sp, 16(%0)\n\tsd s0, 64(%0)\n\tsd s1, 72(%0)\n\tsd s2, 144(%0)\n\tsd s3, 152(%0)\n\t" \
                     "sd s4, 160(%0)\n\tsd s5, 168(%0)\n\tsd s6, 176(%0)\n\tsd s7, 184(%0)\n\tsd s8, 192(%0)\n\t" \
                     "sd s9, 200(%0)\n\tsd s10, 208(%0)\n\tsd s11, 216(%0)\n\tauipc t0, 0\n\tsd t0, 0(%1)" \
                     : : "r"(registers), "r"(pc) : "t0", "memory")

#else

enum { REGISTERS = 1, REGISTER_FP = 0, REGISTER_SP = 0, REGISTER_RETURN = 0, BARE_TRAMPOLINES = 0, PAIR_BELOW = 0 };
static const uint8_t restores[1];
enum { CONTEXT_BEHIND, CONTEXT_BYTES };

static inline uintptr_t from_context(uintptr_t *registers, const ucontext_t *context) { return (void)registers, (void)context, 0; }

#define TAKE_REGISTERS(registers, pc) ((void)(registers), (void)(pc))

#endif
