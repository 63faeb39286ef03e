/* Every function of the family by the C library's name, in every build: at sizes of nothing, one byte, both sides of each
 * class and page border and sizes nobody can have; with every kind of alignment; what is refused, with which code, and
 * what a failure leaves alone. tests/api does the same by the hak_ names, under the sanitizers and with more sizes. */
#include "cases.h"
#include "family.h"

enum { GOOD_MAX = 600, BAD_MAX = 120 };

static size_t good[GOOD_MAX], bad[BAD_MAX];
static size_t good_count, bad_count;

static void add_border(size_t n)
{
    expect(good_count + 3 <= GOOD_MAX);
    for (size_t d = 0; d < 3; d++)
        good[good_count++] = n + d - 1;
}

/* What malloc_usable_size says of one block is the border of its class; the next class begins a byte above. */
static void find_good_sizes(void)
{
    good[good_count++] = 0;
    for (size_t border, n = 1; n <= (size_t)1 << 20; n = border + 1) {
        void *p = malloc(n);
        border = malloc_usable_size(p);
        expect(border >= n);
        free(p);
        add_border(border);
        if (border == n)   /* hardened mode: usable is what was asked for, and every size is a border */
            border += n / 8;
    }
    for (size_t pages = 1; pages < 2048; pages = pages * 3 + 1)
        add_border(pages * 4096);
    add_border((size_t)33 << 20);
}

static void find_bad_sizes(void)
{
    for (size_t i = 0; i < 20; i++) {
        bad[bad_count++] = SIZE_MAX - i;
        bad[bad_count++] = SIZE_MAX - i * 4096;
        bad[bad_count++] = (size_t)PTRDIFF_MAX + i;
        bad[bad_count++] = (size_t)PTRDIFF_MAX - i;
        bad[bad_count++] = (i + 1) << 50;
    }
}

static size_t sum(const unsigned char *p, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += p[i];
    return total;
}

/* --- sizes ----------------------------------------------------------------------------------------------------------- */

static void every_border_by_every_function(void)
{
    find_good_sizes();
    for (unsigned f = 0; f < FAMILY; f++)
        for (size_t i = 0; i < good_count; i++) {
            errno = 77;
            char *p = family[f].call(good[i]), *q = family[f].call(good[i]);
            expect(p != NULL && q != NULL && p != q);
            expect((uintptr_t)p % family[f].align == 0 && (uintptr_t)q % family[f].align == 0);
            expect(malloc_usable_size(p) >= good[i] && malloc_usable_size(q) >= good[i]);
            memset(p, 1, malloc_usable_size(p));
            memset(q, 2, malloc_usable_size(q));
            expect(malloc_usable_size(p) == 0 || (p[0] == 1 && p[malloc_usable_size(p) - 1] == 1));
            free(p);
            free(q);
            expect(errno == 77);
        }
}

static void impossible_sizes_by_every_function(void)
{
    find_bad_sizes();
    for (unsigned f = 0; f < FAMILY; f++)
        for (size_t i = 0; i < bad_count; i++) {
            errno = 0;
            expect(family[f].call(bad[i]) == NULL && errno == ENOMEM);
        }
}

static const size_t factors[][2] = {
    { SIZE_MAX, 2 }, { 2, SIZE_MAX }, { (size_t)1 << 32, (size_t)1 << 32 }, { SIZE_MAX / 2 + 1, 2 },
    { (size_t)1 << 63, 2 }, { 3, SIZE_MAX / 3 + 1 }, { SIZE_MAX / 16 + 2, 16 }, { SIZE_MAX, SIZE_MAX },
};
enum { FACTORS = sizeof factors / sizeof *factors };

static void products_that_overflow(void)
{
    for (unsigned i = 0; i < FACTORS; i++) {
        errno = 0;
        expect(calloc(factors[i][0], factors[i][1]) == NULL && errno == ENOMEM);
        errno = 0;
        expect(reallocarray(NULL, factors[i][0], factors[i][1]) == NULL && errno == ENOMEM);
    }
}

static void products_of_nothing(void)
{
    void *p = calloc(0, SIZE_MAX), *q = calloc(SIZE_MAX, 0), *r = reallocarray(NULL, SIZE_MAX, 0);
    expect(p != NULL && q != NULL && r != NULL && p != q && q != r && p != r);
    free(p);
    free(q);
    free(r);
}

static void blocks_of_nothing_are_unique(void)
{
    static char *p[FAMILY * 50];
    for (unsigned i = 0; i < FAMILY * 50; i++) {
        p[i] = family[i % FAMILY].call(0);
        expect(p[i] != NULL);
        for (unsigned j = 0; j < i; j++)
            expect(p[j] != p[i]);
    }
    for (unsigned i = 0; i < FAMILY * 50; i++)
        free(p[i]);
}

static void calloc_is_zero_where_others_were(void)
{
    for (size_t n = 1; n < (size_t)5 << 20; n = n * 2 + 7) {
        unsigned char *p = malloc(n);
        memset(p, 0xff, malloc_usable_size(p));
        free(p);
        p = calloc(n, 1);
        expect(p != NULL && sum(p, n) == 0);
        memset(p, 0xff, n);
        free(p);
    }
}

/* --- realloc ---------------------------------------------------------------------------------------------------------- */

static const size_t of_each_pool[] = { 1, 100, 1000, 5000, 50000, 70000, 800000, 3000000, 20000000 };
enum { POOLS = sizeof of_each_pool / sizeof *of_each_pool };

static void realloc_from_each_pool_to_each(void)
{
    for (unsigned i = 0; i < POOLS; i++)
        for (unsigned j = 0; j < POOLS; j++) {
            size_t from = of_each_pool[i], to = of_each_pool[j], kept = from < to ? from : to;
            unsigned char *p = malloc(from);
            for (size_t at = 0; at < from; at += 500)
                p[at] = (unsigned char)(at / 500 + 1);
            p = realloc(p, to);
            expect(p != NULL && malloc_usable_size(p) >= to);
            for (size_t at = 0; at < kept; at += 500)
                expect(p[at] == (unsigned char)(at / 500 + 1));
            p[to - 1] = 1;
            free(p);
        }
}

static void realloc_to_nothing_frees(void)
{
    for (unsigned i = 0; i < POOLS; i++) {
        errno = 77;
        expect(realloc(malloc(of_each_pool[i]), 0) == NULL && errno == 77);
        expect(reallocarray(malloc(of_each_pool[i]), 0, 5) == NULL && errno == 77);
        expect(reallocarray(malloc(of_each_pool[i]), SIZE_MAX, 0) == NULL && errno == 77);
    }
}

static void failed_realloc_leaves_the_block(void)
{
    find_bad_sizes();
    for (unsigned i = 0; i < POOLS; i++) {
        size_t n = of_each_pool[i];
        unsigned char *p = malloc(n);
        size_t usable = malloc_usable_size(p);
        memset(p, 7, usable);
        for (unsigned b = 0; b < bad_count; b++) {
            errno = 0;
            expect(realloc(p, bad[b]) == NULL && errno == ENOMEM);
        }
        expect(malloc_usable_size(p) == usable && sum(p, usable) == usable * 7);
        free(p);
    }
}

static void failed_reallocarray_leaves_the_block(void)
{
    for (unsigned i = 0; i < POOLS; i++) {
        unsigned char *p = malloc(of_each_pool[i]);
        size_t usable = malloc_usable_size(p);
        memset(p, 9, usable);
        for (unsigned f = 0; f < FACTORS; f++) {
            errno = 0;
            expect(reallocarray(p, factors[f][0], factors[f][1]) == NULL && errno == ENOMEM);
        }
        expect(malloc_usable_size(p) == usable && sum(p, usable) == usable * 9);
        free(p);
    }
}

/* --- alignments ------------------------------------------------------------------------------------------------------- */

static const size_t no_powers[] = { 0, 3, 9, 24, 65, 4095, 4097, (size_t)-1, (size_t)-16, ((size_t)1 << 63) + 1 };
enum { NO_POWERS = sizeof no_powers / sizeof *no_powers };

static void aligned_alloc_refuses_what_is_no_power(void)
{
    for (unsigned i = 0; i < NO_POWERS; i++) {
        errno = 0;
        expect(aligned_alloc(no_powers[i], 100) == NULL && errno == EINVAL);
    }
}

static void aligned_alloc_takes_every_power(void)
{
    for (unsigned shift = 0; shift <= 30; shift++)
        for (size_t n = 0; n < 3000; n = n * 5 + 1) {
            void *p = aligned_alloc((size_t)1 << shift, n);
            expect_block(p, n);
            expect((uintptr_t)p % ((size_t)1 << shift) == 0);
            free(p);
        }
}

static void aligned_alloc_of_impossible_sizes(void)
{
    find_bad_sizes();
    for (size_t align = 1; align <= (size_t)1 << 30; align *= 32)
        for (unsigned b = 0; b < bad_count; b++) {
            errno = 0;
            expect(aligned_alloc(align, bad[b]) == NULL && errno == ENOMEM);
        }
    errno = 0;
    expect(aligned_alloc((size_t)1 << 63, 1) == NULL && errno == ENOMEM);
}

static void memalign_rounds_up(void)
{
    static const size_t asked[] = { 0, 3, 4, 9, 17, 65, 4097 }, given[] = { 16, 16, 16, 16, 32, 128, 8192 };
    for (unsigned i = 0; i < sizeof asked / sizeof *asked; i++)
        for (size_t n = 0; n < 3000; n = n * 5 + 1) {
            void *p = memalign(asked[i], n);
            expect_block(p, n);
            expect((uintptr_t)p % given[i] == 0);
            free(p);
        }
}

static void memalign_refuses_what_has_no_power_above(void)
{
    errno = 0;
    expect(memalign((size_t)-1, 100) == NULL && errno == EINVAL);
    errno = 0;
    expect(memalign(((size_t)1 << 63) + 1, 100) == NULL && errno == EINVAL);
    errno = 0;
    expect(memalign((size_t)1 << 62, 100) == NULL && errno == ENOMEM);
}

static void posix_memalign_refuses_and_leaves_everything(void)
{
    static const size_t too_small[] = { 1, 2, 4 };
    char here;
    for (unsigned i = 0; i < NO_POWERS + 3; i++) {
        void *p = &here;
        errno = 77;
        expect(posix_memalign(&p, i < NO_POWERS ? no_powers[i] : too_small[i - NO_POWERS], 100) == EINVAL);
        expect(p == &here && errno == 77);
    }
}

static void posix_memalign_without_memory(void)
{
    char here;
    find_bad_sizes();
    for (size_t align = 8; align <= (size_t)1 << 30; align *= 32)
        for (unsigned b = 0; b < bad_count; b++) {
            void *p = &here;
            errno = 77;
            expect(posix_memalign(&p, align, bad[b]) == ENOMEM);
            expect(p == &here && errno == ENOMEM);
        }
}

static void posix_memalign_that_succeeds_keeps_errno(void)
{
    for (size_t align = 8; align <= (size_t)1 << 30; align *= 2) {
        void *p = NULL;
        errno = 77;
        expect(posix_memalign(&p, align, 100) == 0 && errno == 77);
        expect_block(p, 100);
        expect((uintptr_t)p % align == 0);
        free(p);
    }
}

static void pages(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t n = 0; n < 5 * page; n += 999) {
        void *p = valloc(n), *q = pvalloc(n);
        expect_block(p, n);
        expect_block(q, n);
        expect((uintptr_t)p % page == 0 && (uintptr_t)q % page == 0);
        expect(malloc_usable_size(q) >= (n == 0 ? page : (n + page - 1) / page * page));
        free(p);
        free(q);
    }
    for (size_t i = 0; i <= page; i += 100) {
        errno = 0;
        expect(pvalloc(SIZE_MAX - i) == NULL && errno == ENOMEM);
        errno = 0;
        expect(pvalloc((size_t)PTRDIFF_MAX - i) == NULL && errno == ENOMEM);
    }
}

/* --- free and its kin ------------------------------------------------------------------------------------------------- */

static void nothing_can_be_freed(void)
{
    errno = 77;
    free(NULL);
    cfree(NULL);
    free_sized(NULL, 0);
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 100);
    expect(malloc_usable_size(NULL) == 0 && errno == 77);
}

static void free_keeps_errno(void)
{
    static void *p[3000];
    for (unsigned i = 0; i < POOLS; i++) {
        unsigned count = of_each_pool[i] > 50000 ? 20 : 3000;   /* enough to overflow a thread's cache */
        for (unsigned k = 0; k < count; k++)
            expect((p[k] = malloc(of_each_pool[i])) != NULL);
        for (unsigned k = 0; k < count; k++) {
            errno = (int)k + 1;
            free(p[k]);
            expect(errno == (int)k + 1);
        }
    }
}

static void every_free_takes_every_block(void)
{
    for (unsigned f = 0; f < FAMILY; f++)
        for (unsigned i = 0; i < POOLS; i++) {
            free(family[f].call(of_each_pool[i]));
            cfree(family[f].call(of_each_pool[i]));
            if (family[f].align == 16)
                free_sized(family[f].call(of_each_pool[i]), of_each_pool[i]);
            else if (family[f].call != by_pvalloc)   /* which asks for whole pages itself */
                free_aligned_sized(family[f].call(of_each_pool[i]), family[f].align, of_each_pool[i]);
        }
}

/* --- the rest --------------------------------------------------------------------------------------------------------- */

static void trim_says_whether_anything_went_back(void)
{
    static void *p[100];
    for (unsigned i = 0; i < 100; i++)
        memset(p[i] = malloc(200000), 1, 200000);
    size_t full = resident_bytes();
    for (unsigned i = 0; i < 100; i++)
        free(p[i]);
    malloc_trim(0);
    expect(malloc_trim(0) == 0);
    expect(resident_bytes() + 10 * 1000 * 1000 < full);
}

#if defined(__GLIBC__)
static void mallopt_accepts_everything(void)
{
    for (int parameter = -20; parameter < 20; parameter++)
        expect(mallopt(parameter, 0) == 1 && mallopt(parameter, 100000) == 1 && mallopt(parameter, -1) == 1);
    every_border_by_every_function();
}

static void malloc_info_refuses_options(void)
{
    expect(malloc_info(1, stdout) == EINVAL && malloc_info(-1, stdout) == EINVAL);
}
#endif

static const struct test_case cases[] = {
    CASE(every_border_by_every_function),
    CASE(impossible_sizes_by_every_function),
    CASE(products_that_overflow),
    CASE(products_of_nothing),
    CASE(blocks_of_nothing_are_unique),
    CASE(calloc_is_zero_where_others_were),
    CASE(realloc_from_each_pool_to_each),
    CASE(realloc_to_nothing_frees),
    CASE(failed_realloc_leaves_the_block),
    CASE(failed_reallocarray_leaves_the_block),
    CASE(aligned_alloc_refuses_what_is_no_power),
    CASE(aligned_alloc_takes_every_power),
    CASE(aligned_alloc_of_impossible_sizes),
    CASE(memalign_rounds_up),
    CASE(memalign_refuses_what_has_no_power_above),
    CASE(posix_memalign_refuses_and_leaves_everything),
    CASE(posix_memalign_without_memory),
    CASE(posix_memalign_that_succeeds_keeps_errno),
    CASE(pages),
    CASE(nothing_can_be_freed),
    CASE(free_keeps_errno),
    CASE(every_free_takes_every_block),
    CASE(trim_says_whether_anything_went_back),
#if defined(__GLIBC__)
    CASE(mallopt_accepts_everything),
    CASE(malloc_info_refuses_options),
#endif
};

int main(int argc, char **argv) { return RUN_CASES(cases); }
