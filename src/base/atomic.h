/* Atomics: the only file that names the compiler's builtins. Every call states its order; every caller says in a comment which edge
 * it pairs with; docs/concurrency.md lists them all. HAK_RACE_POINT hands control to the schedule-exploring tests and names the
 * function and its operation; in the library it is empty. Plain counters that only their owner writes but others may read are
 * "shared plain": relaxed load and store, never a read-modify-write. */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "base/compiler.h"

#if defined(HAK_RACE_TEST) && HAK_RACE_TEST
void hak__race_point(const char *function, const char *operation);
#define HAK_RACE_POINT(operation) hak__race_point(__func__, operation)
#else
#define HAK_RACE_POINT(operation) ((void)0)
#endif

#define hak_load(p, order) (HAK_RACE_POINT("load"), atomic_load_explicit((p), (order)))
#define hak_store(p, v, order) (HAK_RACE_POINT("store"), atomic_store_explicit((p), (v), (order)))
#define hak_exchange(p, v, order) (HAK_RACE_POINT("exchange"), atomic_exchange_explicit((p), (v), (order)))
#define hak_fetch_add(p, v, order) (HAK_RACE_POINT("fetch_add"), atomic_fetch_add_explicit((p), (v), (order)))
#define hak_fetch_sub(p, v, order) (HAK_RACE_POINT("fetch_sub"), atomic_fetch_sub_explicit((p), (v), (order)))
#define hak_fetch_or(p, v, order) (HAK_RACE_POINT("fetch_or"), atomic_fetch_or_explicit((p), (v), (order)))
#define hak_fetch_and(p, v, order) (HAK_RACE_POINT("fetch_and"), atomic_fetch_and_explicit((p), (v), (order)))
#define hak_cas_weak(p, expected, v, ok, fail) \
    (HAK_RACE_POINT("cas_weak"), atomic_compare_exchange_weak_explicit((p), (expected), (v), (ok), (fail)))
#define hak_cas_strong(p, expected, v, ok, fail) \
    (HAK_RACE_POINT("cas_strong"), atomic_compare_exchange_strong_explicit((p), (expected), (v), (ok), (fail)))

#define HAK_RELAXED memory_order_relaxed
#define HAK_ACQUIRE memory_order_acquire
#define HAK_RELEASE memory_order_release
#define HAK_ACQ_REL memory_order_acq_rel
#define HAK_SEQ_CST memory_order_seq_cst

/* A counter written by one thread and read by any: no read-modify-write, no tearing. */
typedef _Atomic uint64_t hak_counter;

hak_inline void hak_count(hak_counter *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

hak_inline uint64_t hak_counted(const hak_counter *c) { return atomic_load_explicit(c, memory_order_relaxed); }

/* A plain word that one owner writes and others may read: the owner reads it plainly and stores it so that no thread sees a torn or
 * early value. Compiles to one ordinary store on x86-64, to a store-release on aarch64. */
#define hak_owner_store(p, v) (HAK_RACE_POINT("owner_store"), __atomic_store_n((p), (v), __ATOMIC_RELEASE))
/* The same, relaxed: for a word that a later hak_owner_store publishes, or a figure that publishes nothing. */
#define hak_slot_store(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)
#define hak_peek(p) (HAK_RACE_POINT("peek"), __atomic_load_n((p), __ATOMIC_ACQUIRE))

/* A read-mostly word on the fast path, written by atomic stores. The builtin's relaxed load is never folded into the instruction
 * that uses it; an ordinary load of an aligned word is, and cannot tear either. Sanitizers get the builtin, because they would
 * report the ordinary load as a race. */
#if HAK_TSAN
#define hak_read_mostly(p) hak_peek(p)
#else
#define hak_read_mostly(p) (*(p))
#endif

/* Orders plain stores for a signal handler or a forked child of this thread; costs nothing. */
#define hak_signal_fence() atomic_signal_fence(memory_order_seq_cst)

/* Tells the processor that a loop is waiting. */
hak_inline void hak_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}
