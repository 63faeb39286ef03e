/*
 * bench_family [CALL [SIZE [ITERATIONS [BATCH]]]]
 *
 * Exercises the warm paths of the functions beside malloc and free: aligned requests, C++'s operators, frees that name the
 * size, the question for the usable size.  Everything is in the first-level cache, nothing is ever refilled.
 * Knobs: CALL; a BATCH beyond the capacity of a thread's cache shows refill and drain at their most regular.
 */
#include "common.h"

#include <malloc.h>
#include <stdlib.h>

void *operator_new(size_t size) __asm__("_Znwm");
void *operator_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");
void operator_delete(void *block) __asm__("_ZdlPv");
void operator_delete_sized(void *block, size_t size) __asm__("_ZdlPvm");
void operator_delete_aligned(void *block, size_t size, size_t align) __asm__("_ZdlPvmSt11align_val_t");

enum { FAMILY_ALIGN = 64, FAMILY_BATCH_MAX = 256 };
enum { MALLOC, USABLE, MEMALIGN, POSIX_MEMALIGN, NEW, SIZED, NEW_ALIGNED, CALLOC };

static const char *const family_calls[] = {"malloc", "usable", "memalign", "posix_memalign", "new", "sized", "new_aligned",
                                           "calloc", NULL};

static const struct bench_arg family_args[] = {
    {"CALL", "how blocks are allocated and freed; usable: malloc_usable_size at both ends, as Redis does; sized: new, and delete with"
             " the size; aligned ones to 64 bytes", USABLE, 0, 0, family_calls},
    {"SIZE", "size of the blocks in bytes", 48, 1, BENCH_SIZE_MAX, NULL},
    {"ITERATIONS", "blocks allocated and freed", 30000000, 1, BENCH_COUNT_MAX, NULL},
    {"BATCH", "blocks alive at a time", 8, 1, FAMILY_BATCH_MAX, NULL},
};

static const struct bench_spec family_spec = BENCH_SPEC(
    "One thread allocates a small batch of blocks of one size by one member of the malloc family and frees it, over and over.",
    family_args);

static void *family_alloc(unsigned call, size_t size)
{
    void *block = NULL;
    switch (call) {
    case USABLE:
        block = malloc(size);
        return malloc_usable_size(block) >= size ? block : NULL;
    case MEMALIGN:
        return memalign(FAMILY_ALIGN, size);
    case POSIX_MEMALIGN:
        return posix_memalign(&block, FAMILY_ALIGN, size) == 0 ? block : NULL;
    case NEW:
    case SIZED:
        return operator_new(size);
    case NEW_ALIGNED:
        return operator_new_aligned(size, FAMILY_ALIGN);
    case CALLOC:
        return calloc(1, size);
    default:
        return malloc(size);
    }
}

static void family_free(unsigned call, void *block, size_t size)
{
    switch (call) {
    case USABLE:
        if (malloc_usable_size(block) < size)
            bench_die("a block is shorter than it was asked for");
        free(block);
        return;
    case NEW:
        operator_delete(block);
        return;
    case SIZED:
        operator_delete_sized(block, size);
        return;
    case NEW_ALIGNED:
        operator_delete_aligned(block, size, FAMILY_ALIGN);
        return;
    default:
        free(block);
    }
}

int main(int argc, char **argv)
{
    void *block[FAMILY_BATCH_MAX];
    struct bench_run run;
    uint64_t done = 0;
    bench_parse(&run, "bench_family", &family_spec, argc, argv);
    unsigned call = (unsigned)run.value[0], batch = (unsigned)run.value[3];
    size_t size = run.value[1];
    double start = bench_now();
    for (; done < run.value[2]; done += batch) {
        for (unsigned i = 0; i < batch; i++) {
            block[i] = family_alloc(call, size);
            if (__builtin_expect(block[i] == NULL, 0))
                bench_die("out of memory");
            bench_touch(block[i], size);
        }
        for (unsigned i = 0; i < batch; i++)
            family_free(call, block[i], size);
    }
    bench_report(&run, NULL, done, bench_now() - start);
    return 0;
}
