/* The constants that several files share. Sizes are bytes unless the name says otherwise. The static assertions at the end state
 * the relations that the code relies on. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#if !defined(HAK_VERSION_STRING)
#define HAK_VERSION_STRING "0.0.0-dev"     /* the build gives it */
#endif

/* --- blocks --------------------------------------------------------------------------------------------- */
#define HAK_ALIGN 16u                      /* every result is a multiple of this */
#define HAK_TINY_MAX 1024u                 /* tiny pool: bands C0..C7 */
#define HAK_MID_MAX (56u << 10)            /* L2 */
#define HAK_LARGE_MAX (1u << 20)           /* L2.5; above it: huge */
#define HAK_CLASS_LIMIT 64u                /* bins per thread; size/classes.def defines how many are used */

/* --- slabs and SuperSlabs -------------------------------------------------------------------------------- */
#define HAK_SLAB_SHIFT 16
#define HAK_SLAB_SIZE ((size_t)1 << HAK_SLAB_SHIFT)
#define HAK_SUPER_SHIFT 21
#define HAK_SUPER_SIZE ((size_t)1 << HAK_SUPER_SHIFT)
#define HAK_SUPER_SLABS 32u
#define HAK_SPAN_SLABS_MAX 16u
#define HAK_SPAN_BLOCKS_MAX 4096u          /* 64 KiB of 16-byte blocks: one 64-bit summary of 64-bit words */
#define HAK_LEVELS 5u                      /* free runs of >= 1, 2, 4, 8, 16 slabs are distinguished */

/* --- the window ------------------------------------------------------------------------------------------- */
#if HAK_TSAN
#define HAK_WINDOW_SHIFT 36                /* ThreadSanitizer leaves little room for application memory */
#define HAK_WINDOW_LOW 0x7e8000000000ull
#define HAK_WINDOW_HIGH 0x7ef000000000ull
#else
#define HAK_WINDOW_SHIFT 44                /* 16 TiB of user data and of foreign mappings in between */
#define HAK_WINDOW_LOW 0x100000000000ull
#define HAK_WINDOW_HIGH 0x500000000000ull
#endif
#define HAK_WINDOW_SIZE ((size_t)1 << HAK_WINDOW_SHIFT)
#define HAK_WINDOW_SUPERS ((size_t)1 << (HAK_WINDOW_SHIFT - HAK_SUPER_SHIFT))
#define HAK_META_STEP ((size_t)64 << 10)   /* a metadata window doubles up to this size, the pool's first, then grows by half */
#ifdef HAK_RACE_TEST /* few enough to explore every schedule */
#define HAK_WAITING_LINES 1u
#define HAK_WAITING_RUNS 2u
#else
#define HAK_WAITING_LINES 16u              /* lines of waiting runs (arena/retained.h) */
#define HAK_WAITING_RUNS 7u                /* runs per line */
#endif
#if defined(__x86_64__)
#define HAK_PAGE_MOST 4096                 /* no system has larger pages */
#else
#define HAK_PAGE_MOST (64 << 10)
#endif
#define HAK_GROW_MAX ((size_t)32 << 20)    /* the most user memory that one step of growth maps ahead */

#define HAK_GUARDED_MOST 4096u              /* slots for sampled blocks, in a separate range (arena/window.h) */
#define HAK_GUARDED_STRIDE ((size_t)256 << 10) /* bytes per slot */
#define HAK_GUARDED_SIZE (HAK_GUARDED_MOST * HAK_GUARDED_STRIDE)

#define HAK_ZERO_SIZE_MOST (1u << 20)          /* blocks of size 0, in a separate range (harden/zero_size.c) */
#define HAK_ZERO_SIZE_SIZE ((size_t)HAK_ZERO_SIZE_MOST * HAK_ALIGN)

/* --- the owner map ---------------------------------------------------------------------------------------- */
/* A word is generation << HAK_GENERATION_SHIFT | heap id << HAK_CLASS_OFFSET_BITS | class offset (size/size.h); offsets from
 * HAK_CLASS_OFFSET_LIMIT up name no bin. */
#define HAK_CLASS_OFFSET_BITS 12
#define HAK_BIN_SIZE 16u
#define HAK_CLASS_OFFSET_LIMIT (HAK_CLASS_LIMIT * HAK_BIN_SIZE)
#define HAK_CLASS_OFFSET_INNER HAK_CLASS_OFFSET_LIMIT      /* an inner slab of a single-block span */
#define HAK_CLASS_OFFSET_HUGE (HAK_CLASS_OFFSET_LIMIT + HAK_BIN_SIZE) /* the first slab of a huge block */
#define HAK_CLASS_OFFSET_OWN 0x800u        /* added to the class offset in the slabs of a user heap (userheap/userheap.h) */
#define HAK_HEAP_ID_HUGE 0xfffffu          /* the owner of every huge block */
#define HAK_HEAP_ID_NONE 0xffffeu          /* the sentinels' tag: owns nothing */
#define HAK_HEAP_ID_BITS 17
#define HAK_HEAPS_MAX (1u << HAK_HEAP_ID_BITS) /* heaps that can exist at once, ids 1..HAK_HEAPS_MAX-1 */
#define HAK_GENERATION_SHIFT (HAK_CLASS_OFFSET_BITS + HAK_HEAP_ID_BITS)
#define HAK_GENERATIONS 7u                 /* of forked children; the number after them is the reserved ids' */
#define HAK_HEAP_STRIDE ((size_t)256 << 10)
#define HAK_HEAP_FIRST ((size_t)40 << 10)   /* mapped at once for the first heap, and for every heap where memory is scarce */

/* --- the thread cache ------------------------------------------------------------------------------------- */
/* The percentage of the bytes in a thread's spans that its cache may hold in addition to HAKMEM_THREAD_BUDGET; blocks of more than
 * 56 KiB and smaller ones are reckoned separately. Half would break the promise that a producer and a consumer together stay below
 * 1.5 times the live bytes (docs/decisions/0026). */
#define HAK_BUDGET_SHARE 33u
#define HAK_LOCAL_SLOTS 64u                /* slots of a class that has them in the heap's struct */
#define HAK_ABSORB_SMALL 256u              /* blocks of other heaps up to this size are absorbed only while a bin has ... */
#define HAK_ABSORB_MOST 32u                /* ... fewer than this */
#define HAK_OUTBOX_BUCKETS 32u
#define HAK_OUTBOX_BLOCKS 30u              /* per bucket */
#define HAK_OUTBOX_BYTES ((size_t)16 << 10) /* per bucket; a larger block is published at once */

_Static_assert(HAK_SUPER_SIZE == HAK_SUPER_SLABS * HAK_SLAB_SIZE, "a SuperSlab is 32 slabs");
_Static_assert(HAK_SPAN_SLABS_MAX * HAK_SLAB_SIZE >= HAK_LARGE_MAX, "the largest class fits a span");
_Static_assert(HAK_SLAB_SIZE / HAK_ALIGN <= HAK_SPAN_BLOCKS_MAX, "a slab's blocks fit the summary");
_Static_assert(HAK_CLASS_OFFSET_HUGE < HAK_CLASS_OFFSET_OWN && HAK_CLASS_OFFSET_OWN < (1u << HAK_CLASS_OFFSET_BITS),
               "class offsets fit their bits");
_Static_assert(HAK_HEAPS_MAX < HAK_HEAP_ID_NONE, "heap ids stay below the reserved ones");
_Static_assert(HAK_HEAP_ID_HUGE >> HAK_HEAP_ID_BITS == HAK_GENERATIONS && HAK_HEAP_ID_NONE >> HAK_HEAP_ID_BITS == HAK_GENERATIONS,
               "no generation is the reserved ids'");
