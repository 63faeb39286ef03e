/* Every function of the family at every size where something changes: 0, 1, both sides of each class border and of page
 * borders, and sizes nobody can have. What succeeds is aligned, as large as promised and writable to its last byte; what
 * fails says ENOMEM and nothing else. */
#include "base/bits.h"
#include "hakmem.h"
#include "size/size.h"
#include "support/check.h"
#include "support/memory.h"

enum { GOOD_SIZES = 512, BAD_SIZES = 200 };

static size_t good[GOOD_SIZES], bad[BAD_SIZES];
static size_t good_count, bad_count;

static void add_border(size_t n)
{
    for (size_t d = 0; d < 3; d++)
        if (n + d > 0)
            good[good_count++] = n + d - 1;
}

static int setup(void **state)
{
    (void)state;
    add_border(1);
    for (uint32_t c = 0; c < HAK_CLASSES; c++)
        add_border(hak__classes[c].size);
    for (size_t pages = 1; pages < 2048; pages = pages * 3 + 1)
        add_border(pages * 4096);
    add_border(2 << 20);
    add_border(4 << 20);
    add_border(33 << 20);
    for (size_t i = 0; i < 20; i++) {
        bad[bad_count++] = SIZE_MAX - i;
        bad[bad_count++] = SIZE_MAX - i * 4096;
        bad[bad_count++] = (size_t)PTRDIFF_MAX + i;
        bad[bad_count++] = (size_t)PTRDIFF_MAX - i;
        bad[bad_count++] = (i + 1) << 50;
    }
    bad[bad_count++] = SIZE_MAX / 2 + 4096;
    return 0;
}

/* --- the functions, under one type ------------------------------------------------------------------------------------ */

typedef void *allocate(size_t n);

static void *by_calloc(size_t n) { return hak_calloc(1, n); }
static void *by_calloc_of_bytes(size_t n) { return hak_calloc(n, 1); }
static void *by_realloc(size_t n) { return hak_realloc(NULL, n); }
static void *by_reallocarray(size_t n) { return hak_reallocarray(NULL, n, 1); }
static void *by_aligned_alloc(size_t n) { return hak_aligned_alloc(64, n); }
static void *by_aligned_alloc_page(size_t n) { return hak_aligned_alloc(4096, n); }
static void *by_memalign(size_t n) { return hak_memalign(256, n); }
static void *by_posix_memalign(size_t n)
{
    void *p = NULL;
    int code = hak_posix_memalign(&p, 128, n);
    expect(code == 0 || (code == ENOMEM && p == NULL));
    errno = code != 0 ? code : errno;   /* the others say it so */
    return p;
}

static const struct {
    allocate *call;
    size_t align;
} family[] = {
    { hak_malloc, 16 },      { by_calloc, 16 },        { by_calloc_of_bytes, 16 }, { by_realloc, 16 },
    { by_reallocarray, 16 }, { by_aligned_alloc, 64 }, { by_aligned_alloc_page, 4096 },
    { by_memalign, 256 },    { by_posix_memalign, 128 }, { hak_valloc, 4096 },     { hak_pvalloc, 4096 },
};
enum { FAMILY = sizeof family / sizeof *family };

static void good_sizes(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FAMILY; f++)
        for (size_t i = 0; i < good_count; i++) {
            errno = 77;
            char *p = family[f].call(good[i]), *q = family[f].call(good[i]);
            expect(p != NULL && q != NULL && p != q);
            expect_eq(errno, 77);
            expect_eq((uintptr_t)p % family[f].align, 0);
            expect_op(hak_usable_size(p), >=, good[i]);
            memory_fill(p, hak_usable_size(p), f);
            memory_fill(q, hak_usable_size(q), f + 100);
            expect(memory_holds(p, hak_usable_size(p), hak_usable_size(p), f));
            hak_free(p);
            hak_free(q);
            expect_eq(errno, 77);
        }
}

static void impossible_sizes(void **state)
{
    (void)state;
    for (unsigned f = 0; f < FAMILY; f++)
        for (size_t i = 0; i < bad_count; i++) {
            errno = 0;
            expect(family[f].call(bad[i]) == NULL);
            expect_eq(errno, ENOMEM);
        }
}

static void products_that_overflow(void **state)
{
    static const size_t factors[][2] = {
        { SIZE_MAX, 2 }, { 2, SIZE_MAX }, { (size_t)1 << 32, (size_t)1 << 32 }, { SIZE_MAX / 2 + 1, 2 },
        { (size_t)1 << 63, 2 }, { 3, SIZE_MAX / 3 + 1 }, { SIZE_MAX / 16 + 2, 16 }, { SIZE_MAX, SIZE_MAX },
    };
    (void)state;
    char *kept = hak_malloc(100);
    memory_fill(kept, 100, 1);
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        errno = 0;
        expect(hak_calloc(factors[i][0], factors[i][1]) == NULL);
        expect_eq(errno, ENOMEM);
        errno = 0;
        expect(hak_reallocarray(kept, factors[i][0], factors[i][1]) == NULL);
        expect_eq(errno, ENOMEM);
        expect(memory_holds(kept, 100, 100, 1));
    }
    hak_free(hak_calloc(0, SIZE_MAX));
    hak_free(hak_calloc(SIZE_MAX, 0));
    expect(hak_reallocarray(kept, SIZE_MAX, 0) == NULL);   /* frees, as a size of 0 does */
}

/* --- sizes asked for and given -------------------------------------------------------------------------------------- */

/* Where the thread keeps large blocks a request may get a larger one, of which it fills more than half. */
static void expect_usable(const void *p, size_t n)
{
    size_t usable = hak_usable_size(p), good_size = hak_good_size(n);
    bool kept = n > HAK_MID_MAX && n <= HAK_LARGE_MAX;
    expect(usable == good_size || (kept && usable > good_size && n > usable / 2));
}

static void good_size_is_what_one_gets(void **state)
{
    (void)state;
    size_t before = 0;
    for (size_t n = 0; n < 70000; n++) {
        size_t good_size = hak_good_size(n);
        expect(good_size >= n && good_size >= before);
        before = good_size;
    }
    for (size_t i = 0; i < good_count; i++) {
        void *p = hak_malloc(good[i]);
        expect_usable(p, good[i]);
        hak_free(p);
        p = hak_malloc(hak_good_size(good[i]));
        expect_usable(p, good[i]);
        hak_free(p);
    }
    for (size_t i = 0; i < 20; i++)
        expect_eq(hak_good_size(SIZE_MAX - i), 0);
    expect_eq(hak_good_size((size_t)PTRDIFF_MAX + 1), 0);
    expect_eq(hak_usable_size(NULL), 0);
}

static void sixteen_bytes_for_every_size(void **state)
{
    void *held[64] = { NULL };
    (void)state;
    for (size_t n = 1; n <= 70000; n++) {
        char *p = hak_malloc(n);
        expect(p != NULL && (uintptr_t)p % 16 == 0);
        expect_op(hak_usable_size(p), >=, n);
        p[0] = p[n - 1] = (char)n;
        hak_free(held[n % 64]);
        held[n % 64] = p;
    }
    for (size_t n = 70001; n < (size_t)12 << 20; n += n / 50) {
        char *p = hak_malloc(n);
        expect(p != NULL && (uintptr_t)p % 16 == 0);
        p[0] = p[n - 1] = 1;
        hak_free(p);
    }
    for (unsigned i = 0; i < 64; i++)
        hak_free(held[i]);
}

/* Every request of nothing gives a block of its own. */
static void nothing_is_unique(void **state)
{
    void *p[1000];
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        p[i] = i % 2 ? hak_malloc(0) : hak_calloc(i % 3, 0);
        expect(p[i] != NULL);
        memset(p[i], (int)i, hak_usable_size(p[i]));
        for (unsigned j = 0; j < i; j++)
            expect(p[j] != p[i]);
    }
    for (unsigned i = 0; i < 1000; i++)
        hak_free(p[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_sizes),
        cmocka_unit_test(impossible_sizes),
        cmocka_unit_test(products_that_overflow),
        cmocka_unit_test(good_size_is_what_one_gets),
        cmocka_unit_test(sixteen_bytes_for_every_size),
        cmocka_unit_test(nothing_is_unique),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
