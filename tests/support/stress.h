/* What the stress tests share: knobs from the environment, random numbers, content that proves whose block it is,
 * memory figures, and the final check that everything came back and every invariant holds. */
#ifndef HAK_TESTS_SUPPORT_STRESS_H
#define HAK_TESTS_SUPPORT_STRESS_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cache/cache.h"
#include "hakmem.h"
#include "huge/huge.h"
#include "process/process.h"
#include "stats/stats.h"

#if defined(__SANITIZE_ADDRESS__) || HAK_TSAN
#define STRESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define STRESS_SANITIZED 1
#endif
#endif
#if !defined(STRESS_SANITIZED)
#define STRESS_SANITIZED 0
#endif

/* Says what was expected and stops the process so that its state can be looked at. */
#define STRESS_EXPECT(condition, ...) \
    ((condition) ? (void)0 : stress_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))

__attribute__((noreturn, format(printf, 4, 5)))
void stress_failed(const char *file, int line, const char *condition, const char *format, ...);

/* A number from the environment, e.g. HAK_STRESS_SECONDS. */
double stress_knob(const char *name, double otherwise);
double stress_now(void);

/* HAK_TEST_EMULATED: an emulator runs the program, and children may take so many times as long. Its own memory counts as the
 * process's, and it keeps some signals and calls of the system for itself. A forked child of threads that begins a thread ends by
 * qemu's own assertion, and one forked under load hangs in its locks. */
bool stress_emulated(void);
void stress_sleep(double seconds);

/* --- random numbers ------------------------------------------------------------------------------------------------ */

struct stress_random { uint64_t state; };

uint64_t stress_next(struct stress_random *random);
size_t stress_below(struct stress_random *random, size_t limit);

/* Mostly small, up to 4 MiB: every pool, at a mean of about 25 KiB. */
size_t stress_size(struct stress_random *random);

/* --- blocks -------------------------------------------------------------------------------------------------------- */

struct stress_block { unsigned char *p; size_t size; };

/* Content derived from address and size: the whole of small blocks; head, tail and a byte of each page of others (of
 * every 16th page of huge ones). */
void stress_fill(struct stress_block block);

/* Stops unless the first `length` bytes at `where` are what stress_fill wrote into `block`; `where` differs from block.p
 * after the block has been moved by realloc. */
void stress_check(struct stress_block block, const unsigned char *where, size_t length);

/* By one of the allocation functions, filled; memory of calloc is checked to be zero, of the others to be aligned. */
struct stress_block stress_alloc(struct stress_random *random, size_t size);

void stress_realloc(struct stress_block *block, size_t size);

/* Checked, then freed; p = NULL is allowed. errno must be kept. */
void stress_free(struct stress_block *block);

/* --- the process --------------------------------------------------------------------------------------------------- */

size_t stress_rss(void);         /* bytes resident now */
size_t stress_rss_peak(void);    /* most bytes resident since the process was forked */

/* All other threads have ended and everything was freed: nothing is live, every invariant holds. */
void stress_expect_empty(void);

/* Every invariant holds; blocks may be live. Only when nobody allocates. */
void stress_expect_valid(void);

pthread_t stress_thread(void *(*body)(void *), void *argument);

/* Waits for a child that must end by exit(0) within the time; says so and gives false when it hangs or fails. */
bool stress_child_passes(pid_t child, double seconds, const char *what);

/* Runs body in a forked child, so that each case begins with a fresh allocator and its own peak. */
bool stress_passes_in_child(void (*body)(const void *), const void *argument, double seconds, const char *what);

/* The same, for children whose failure ends the test. */
void stress_await_child(pid_t child, double seconds, const char *what);
void stress_in_child(void (*body)(const void *), const void *argument, double seconds, const char *what);

#endif
