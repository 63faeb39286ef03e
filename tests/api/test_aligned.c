/* The aligned functions: every power of two up to 1 GiB with sizes below, at and above it; which alignments each
 * function refuses, with which code and what it leaves alone; blocks of a full heap shrink where they are. */
#include <errno.h>
#include <stdlib.h>

#include "hakmem.h"
#include "support/check.h"
#include "support/memory.h"

static void expect_block(char *p, size_t align, size_t n)
{
    expect(p != NULL);
    expect_eq((uintptr_t)p % align, 0);
    expect_op(hak_usable_size(p), >=, n);
    memory_fill(p, n, align);
    expect(memory_holds(p, n, n, align));
    hak_free(p);
}

static void every_power_of_two(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift <= 30; shift++) {
        size_t align = (size_t)1 << shift;
        const size_t sizes[] = { 0, 1, 15, 16, align - 1, align, align + 1, 3 * align / 2, 1000, 70000 };
        for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            if (sizes[i] > (4 << 20))
                continue;
            void *p = NULL;
            expect_block(hak_aligned_alloc(align, sizes[i]), align, sizes[i]);
            expect_block(hak_memalign(align, sizes[i]), align, sizes[i]);
            if (align < sizeof(void *))
                continue;
            expect_eq(hak_posix_memalign(&p, align, sizes[i]), 0);
            expect_block(p, align, sizes[i]);
        }
    }
}

/* Many at once, so that the later blocks of a span are met, not only its first. */
static void many_of_each_alignment(void **state)
{
    void *p[40];
    (void)state;
    for (size_t align = 32; align <= 1 << 17; align *= 2)
        for (size_t n = 1; n <= 40000; n = n * 5 + 3) {
            for (unsigned i = 0; i < 40; i++) {
                p[i] = hak_aligned_alloc(align, n);
                expect(p[i] != NULL);
                expect_eq((uintptr_t)p[i] % align, 0);
                memset(p[i], (int)i, n < 100 ? n : 100);
            }
            for (unsigned i = 0; i < 40; i++) {
                expect_eq(*(unsigned char *)p[i], i);
                hak_free(p[i]);
            }
        }
}

/* A large block that was freed and is kept serves requests of smaller classes, but not one for an alignment: it need not
 * have that, and a sized free would find it too large. */
static void large_cache_blocks_keep_the_alignment(void **state)
{
    static const struct {
        size_t freed, align, n;
    } cases[] = { { 114688, 32 << 10, 98304 }, { 114688, 32 << 10, 90000 }, { 196608, 64 << 10, 70000 } };
    void *p[4], *q[4];
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (unsigned j = 0; j < 4; j++)
            p[j] = hak_malloc(cases[i].freed);
        for (unsigned j = 0; j < 4; j++)
            hak_free(p[j]);
        for (unsigned j = 0; j < 4; j++) {
            q[j] = hak_aligned_alloc(cases[i].align, cases[i].n);
            expect_eq((uintptr_t)q[j] % cases[i].align, 0);
        }
        for (unsigned j = 0; j < 4; j++)
            hak_free_aligned_sized(q[j], cases[i].align, cases[i].n);
    }
}

static const size_t no_powers[] = { 0, 3, 9, 24, 65, 4095, 4097, (size_t)-1, (size_t)-16, ((size_t)1 << 63) + 1 };
enum { NO_POWERS = sizeof no_powers / sizeof *no_powers };

static void posix_memalign_refuses(void **state)
{
    static const size_t small[] = { 1, 2, 4 };
    char here;
    (void)state;
    for (unsigned i = 0; i < NO_POWERS + 3; i++) {
        void *p = &here;
        errno = 77;
        expect_eq(hak_posix_memalign(&p, i < NO_POWERS ? no_powers[i] : small[i - NO_POWERS], 100), EINVAL);
        expect_ptr(p, &here);
        expect_eq(errno, 77);
    }
}

static void posix_memalign_without_memory(void **state)
{
    static const size_t huge[] = { SIZE_MAX, SIZE_MAX - 4096, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX, (size_t)1 << 60 };
    char here;
    (void)state;
    for (size_t align = 8; align <= 1 << 30; align *= 4)
        for (unsigned i = 0; i < sizeof huge / sizeof *huge; i++) {
            void *p = &here;
            errno = 77;
            expect_eq(hak_posix_memalign(&p, align, huge[i]), ENOMEM);
            expect_ptr(p, &here);
            expect_eq(errno, ENOMEM);
        }
}

static void aligned_alloc_refuses(void **state)
{
    (void)state;
    for (unsigned i = 0; i < NO_POWERS; i++) {
        errno = 0;
        expect(hak_aligned_alloc(no_powers[i], 100) == NULL);
        expect_eq(errno, EINVAL);
    }
}

/* memalign takes what it is given and rounds up; only what has no power of two above it is refused. */
static void memalign_rounds_up(void **state)
{
    static const struct {
        size_t asked, given;
    } cases[] = { { 0, 16 }, { 3, 16 }, { 4, 16 }, { 9, 16 }, { 17, 32 }, { 65, 128 }, { 4097, 8192 } };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        for (unsigned j = 0; j < 10; j++)
            expect_block(hak_memalign(cases[i].asked, 100 + j), cases[i].given, 100 + j);
    errno = 0;
    expect(hak_memalign((size_t)-1, 100) == NULL);
    expect_eq(errno, EINVAL);
    expect(hak_memalign((size_t)1 << 62, 100) == NULL);
    expect(hak_aligned_alloc((size_t)1 << 63, 1) == NULL);
    expect_eq(errno, ENOMEM);
}

static void page_functions(void **state)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    (void)state;
    for (size_t n = 0; n < 5 * page; n += 1000) {
        expect_block(hak_valloc(n), page, n);
        char *p = hak_pvalloc(n);
        expect_op(hak_usable_size(p), >=, n == 0 ? page : (n + page - 1) / page * page);
        expect_block(p, page, n);
    }
    for (size_t i = 0; i <= page; i += 100) {
        errno = 0;
        expect(hak_pvalloc(SIZE_MAX - i) == NULL && errno == ENOMEM);
        errno = 0;
        expect(hak_pvalloc((size_t)PTRDIFF_MAX - i) == NULL && errno == ENOMEM);
    }
}

/* A block keeps its content when realloc moves it to ordinary alignment. */
static void realloc_of_aligned_blocks(void **state)
{
    (void)state;
    for (size_t align = 64; align <= 1 << 23; align *= 8) {
        char *p = hak_aligned_alloc(align, 1000);
        memory_fill(p, 1000, align);
        p = hak_realloc(p, 300000);
        expect(p != NULL && memory_holds(p, 1000, 1000, align));
        p = hak_realloc(p, 5 << 20);
        expect(p != NULL && memory_holds(p, 1000, 1000, align));
        hak_free_aligned_sized(p, align, 5 << 20);
    }
}

/* Cleared, whatever was there before; refused as calloc and aligned_alloc refuse. */
static void aligned_calloc_clears(void **state)
{
    (void)state;
    for (size_t align = 8; align <= 8 << 20; align *= 4)
        for (size_t n = 1; n < 9 << 20; n = n * 3 + 7) {
            char *p = hak_aligned_alloc(align, n);
            hak_free(memset(p, 7, n));
            p = hak_aligned_calloc(align, 1, n);
            expect(p != NULL && (uintptr_t)p % align == 0);
            for (size_t at = 0; at < n; at += at < 100 || n - at < 100 ? 1 : 61)
                expect_eq(p[at], 0);
            hak_free_aligned_sized(p, align, n);
        }
    errno = 0;
    expect(hak_aligned_calloc(24, 1, 100) == NULL && errno == EINVAL);
    errno = 0;
    expect(hak_aligned_calloc(64, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    expect(hak_aligned_calloc(64, 1, SIZE_MAX - 100) == NULL);
}

/* A block keeps its contents and its alignment, and what grows by small steps moves now and then only. */
static void aligned_realloc_grows(void **state)
{
    enum { STEP = 64, MOVES_MOST = 60 };
    const bool hardened = getenv("HAKMEM_HARDEN") != NULL;   /* blocks have the very size that was asked for, so each step moves one */
    const size_t steps = hardened ? 500 : 40000;
    (void)state;
    for (size_t align = 32; align <= 1 << 16; align *= 8) {
        unsigned moves = 0;
        char *p = hak_aligned_realloc(NULL, align, STEP);
        memset(p, 0, STEP);
        for (size_t step = 2; step <= steps; step++) {
            char *q = hak_aligned_realloc(p, align, step * STEP);
            expect(q != NULL && (uintptr_t)q % align == 0);
            moves += q != p;
            p = q;
            memset(p + (step - 1) * STEP, (int)(step - 1), STEP);
        }
        expect(hardened || moves <= MOVES_MOST);
        for (size_t step = 0; step < steps; step++)
            expect(p[step * STEP] == (char)step && p[step * STEP + STEP - 1] == (char)step);
        p = hak_aligned_realloc(p, align, 1000);
        expect(p != NULL && (uintptr_t)p % align == 0 && p[999] == (char)(999 / STEP));
        hak_free_aligned_sized(p, align, 1000);
    }
    char *p = hak_malloc(100), *q = hak_aligned_realloc(memset(p, 5, 100), 4096, 100);
    expect(q != NULL && (uintptr_t)q % 4096 == 0 && q[99] == 5);
    expect(hak_aligned_realloc(q, 24, 50) == NULL && errno == EINVAL);
    expect(hak_aligned_realloc(q, 4096, 0) == NULL);
}

/* What a resized block is freed with is what it was asked for last, also where it lay at the alignment by chance. */
static void a_resized_block_is_freed_by_its_size(void **state)
{
    (void)state;
    for (size_t align = 32; align <= 256; align *= 2)
        for (size_t before = 1; before <= 200; before += 7)
            for (size_t after = 1; after <= 200; after += 3) {
                char *p = hak_aligned_realloc(hak_malloc(before), align, after);
                expect(p != NULL && (uintptr_t)p % align == 0 && hak_usable_size(p) >= after);
                hak_free_aligned_sized(p, align, after);
            }
}

static void fill_up(hak_heap_t *heap)
{
    static const size_t sizes[] = { 3 << 20, 700000, 200000, 60000, 10000, 1000, 100, 16 };
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++)
        while (hak_heap_malloc(heap, sizes[i]) != NULL)
            ;
}

/* A block that shrinks needs no other memory; one that lies at another alignment does, and stays as it was without. */
static void a_full_heap_shrinks_its_blocks(void **state)
{
    static const struct { size_t align, size; } blocks[] = {
        { 64, 1000 }, { 64, 50000 }, { 4096, 300000 }, { 64, 900000 }, { 1 << 20, 3 << 20 }, { 4 << 20, 3 << 20 } };
    (void)state;
    for (unsigned i = 0; i < 2 * sizeof blocks / sizeof *blocks; i++) {
        size_t align = blocks[i / 2].align, size = blocks[i / 2].size;
        hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = (size_t)4 << 20 });
        char *p = hak_heap_aligned_alloc(heap, align, size), *other = hak_heap_aligned_alloc(heap, 64, 150000);
        size_t beyond = 2 * ((uintptr_t)other & (0 - (uintptr_t)other)); /* where it lies is no multiple of this */
        expect(p != NULL && other != NULL);
        memory_fill(p, size, align);
        size_t last = 0;
        for (size_t n = size / 3; n != 0; last = n, n /= 3) {
            fill_up(heap);
            errno = 77;
            p = i % 2 == 0 ? hak_aligned_realloc(p, align, n) : hak_heap_aligned_realloc(heap, p, align, n);
            expect(p != NULL && errno == 77 && (uintptr_t)p % align == 0);
            expect(hak_usable_size(p) >= n && memory_holds(p, n, size, align));
        }
        fill_up(heap);
        expect(hak_aligned_realloc(other, beyond, 140000) == NULL && errno == ENOMEM);
        expect_op(hak_usable_size(other), >=, 150000);
        hak_free_aligned_sized(other, 64, 150000);
        hak_free_aligned_sized(p, align, last);
        expect(hak_check_heap());
        hak_heap_destroy(heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_power_of_two),
        cmocka_unit_test(many_of_each_alignment),
        cmocka_unit_test(large_cache_blocks_keep_the_alignment),
        cmocka_unit_test(aligned_calloc_clears),
        cmocka_unit_test(aligned_realloc_grows),
        cmocka_unit_test(a_resized_block_is_freed_by_its_size),
        cmocka_unit_test(a_full_heap_shrinks_its_blocks),
        cmocka_unit_test(posix_memalign_refuses),
        cmocka_unit_test(posix_memalign_without_memory),
        cmocka_unit_test(aligned_alloc_refuses),
        cmocka_unit_test(memalign_rounds_up),
        cmocka_unit_test(page_functions),
        cmocka_unit_test(realloc_of_aligned_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
