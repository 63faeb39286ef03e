/* Compiler vocabulary: one name for each attribute that the project uses, for gcc and clang. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define hak_likely(x) __builtin_expect(!!(x), 1)
#define hak_unlikely(x) __builtin_expect(!!(x), 0)
/* Has the compiler take a number for a new one, of the same value. Only where it keeps no sum that the processor adds for nothing. */
#if defined(__x86_64__) && !defined(__clang__)
#define hak_forget(x) __asm__("" : "+r"(x))
#else
#define hak_forget(x) ((void)(x))
#endif
/* Has the compiler keep a sum, of which clang else adds the parts anew for each use. */
#if defined(__clang__)
#define hak_keep(x) __asm__("" : "+r"(x))
#else
#define hak_keep(x) ((void)(x))
#endif
#define hak_noinline __attribute__((noinline))
/* Code that programs rarely run. It is placed after everything that they touch at start, because the kernel maps the neighbours of
 * each touched page (cmake/layout.ld; docs/decisions/0038). hak_aside is placed there too, but optimised for speed. */
#define hak_cold __attribute__((noinline, cold))
#define hak_at_start hak_noinline   /* rare, but every process runs it; if it were cold, its page would be touched for it alone */
#define hak_aside __attribute__((noinline, section(".text.unlikely.aside")))
#define hak_rare_table __attribute__((section(".rodata.rare")))
#define hak_rare_data __attribute__((section(".bss.rare")))   /* zero at start */
#define hak_first_data __attribute__((section(".bss.first")))  /* ... of which every process touches the beginning alone */
#define hak_page_data __attribute__((section(".bss.page")))   /* ... in pages of its own, so that none is split for it */
#define hak_inline static inline __attribute__((always_inline))
#define hak_export __attribute__((visibility("default")))
/* What libhakmem-region calls in malloc's library: exported there as HAKMEM_REGION_2 (cmake/symbols.map), replaceable by no other. */
#if defined(HAK_REGION_LIBRARY)
#define hak_for_region __attribute__((visibility("default")))
#else
#define hak_for_region __attribute__((visibility("protected")))
#endif
#define hak_malloc_like __attribute__((malloc))
#define hak_line_aligned __attribute__((aligned(64)))   /* on a struct's first member: the struct shares no cache line */
#define hak_hide(p) __asm__("" : "+r"(p))   /* hides where a value comes from, so that the compiler keeps it in a register */
/* Begins at a cache line, so that its speed does not depend on the code linked before it. */
#define hak_fast_path __attribute__((aligned(64)))
/* Fetches the cache line of any address for writing. If another processor has written the line, a load and then a store would fetch
 * it twice. */
#if defined(__x86_64__)
#define hak_prefetch_to_write(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#else
#define hak_prefetch_to_write(p) __builtin_prefetch((p), 1)
#endif
/* Declares `linked`, the C library's function `name` by the version that every glibc gives it on these processors; NULL where no
 * loaded library has it. */
#if defined(__x86_64__)
#define HAK_FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define HAK_FIRST_GLIBC "GLIBC_2.17"
#endif
#if defined(HAK_FIRST_GLIBC)
#define HAK_LINK_FIRST(type, linked, name) \
    extern type linked __attribute__((weak)); \
    __asm__(".symver " #linked ", " #name "@" HAK_FIRST_GLIBC)
#else
#define HAK_LINK_FIRST(type, linked, name) extern type linked __asm__(#name) __attribute__((weak))
#endif
#define hak_noreturn __attribute__((noreturn))
/* Before `return`: makes the call a jump. A compiler without the attribute does so when it optimises. */
#if defined(__has_attribute)
#if __has_attribute(musttail)
#define hak_tail_call __attribute__((musttail))
#endif
#endif
#if !defined(hak_tail_call)
#define hak_tail_call
#endif
#define hak_printf_like(fmt, args) __attribute__((format(printf, fmt, args)))

/* A second public name for a function. In the one-unit build it is a true alias (the same address, no jump); if every file is
 * compiled alone, the target lies in another object, so the name is a tail call. */
#if defined(__has_attribute)
#if __has_attribute(copy)
#define HAK_ALIAS(target) __attribute__((alias(#target), copy(target)))
#endif
#endif
#if !defined(HAK_ALIAS)
#define HAK_ALIAS(target) __attribute__((alias(#target)))
#endif

#if defined(HAK_UNITY) && HAK_UNITY
#define HAK_FORWARD(ret, name, target, params, args) \
    hak_export ret name params HAK_ALIAS(target);
#define HAK_FORWARD_VOID(name, target, params, args) \
    hak_export void name params HAK_ALIAS(target);
#else
#define HAK_FORWARD(ret, name, target, params, args) \
    hak_export ret name params; \
    hak_export ret name params { return target args; }
#define HAK_FORWARD_VOID(name, target, params, args) \
    hak_export void name params; \
    hak_export void name params { target args; }
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_TSAN 1
#endif
#if __has_feature(address_sanitizer)
#define HAK_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HAK_TSAN 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAK_ASAN 1
#endif
#if !defined(HAK_TSAN)
#define HAK_TSAN 0
#endif
#if !defined(HAK_ASAN)
#define HAK_ASAN 0
#endif

/* Whether every free checks its pointer at once (span/span.h); the build option HAKMEM_PROTECT. */
#if !defined(HAK_PROTECT)
#define HAK_PROTECT 1
#endif

/* Whether functions beyond malloc's family are replaced (docs/compatibility.md); the build option HAKMEM_INTERPOSE. */
#if !defined(HAK_INTERPOSE)
#define HAK_INTERPOSE 1
#endif
