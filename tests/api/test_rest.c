/* The rest of the public interface: free of NULL and errno, sized frees, usable_size and its misuse, collect returns
 * memory, statistics on request, options by name, the version. */
#include "base/limits.h"
#include "hakmem.h"
#include "support/check.h"
#include "support/memory.h"

static void free_keeps_errno(void **state)
{
    (void)state;
    void *p[3000];
    for (size_t n = 1; n <= 4 << 20; n = n * 3 + 1) {
        size_t count = n > 50000 ? 40 : 3000;   /* enough to overflow a record */
        for (size_t i = 0; i < count; i++)
            p[i] = hak_malloc(n);
        for (size_t i = 0; i < count; i++) {
            errno = (int)(i + 1);
            hak_free(p[i]);
            expect_eq(errno, i + 1);
        }
    }
    errno = 77;
    hak_free(NULL);
    hak_free_sized(NULL, 0);
    hak_free_aligned_sized(NULL, 16, 0);
    expect_eq(errno, 77);
}

static void *free_all(void *argument)
{
    void **p = argument;
    for (unsigned i = 0; i < 1000; i++) {
        errno = 77;
        hak_free(p[i]);
        expect_eq(errno, 77);
    }
    return NULL;
}

static void free_keeps_errno_in_another_thread(void **state)
{
    void *p[1000];
    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        p[i] = hak_malloc((size_t)1 << i % 22);
    run_threads(1, free_all, p, sizeof p);
}

static void sized_frees(void **state)
{
    (void)state;
    for (size_t n = 1; n < 3 << 20; n = n * 2 + 1) {
        hak_free_sized(hak_malloc(n), n);
        hak_free_sized(hak_calloc(n, 1), n);
        hak_free_aligned_sized(hak_aligned_alloc(256, n), 256, n);
    }
}

static void usable_size_of_the_wrong_pointer(void *argument) { hak_usable_size(argument); }
static void free_the_wrong_pointer(void *argument) { hak_free(argument); }
static void realloc_the_wrong_pointer(void *argument) { hak_free(hak_realloc(argument, 100)); }

static void expect_invalid(void *p, const char *why)
{
    static const struct {
        check_body *body;
        const char *function;
    } calls[] = { { usable_size_of_the_wrong_pointer, "malloc_usable_size" }, { free_the_wrong_pointer, "free" },
                  { realloc_the_wrong_pointer, "realloc" } };
    for (unsigned i = 0; i < 3; i++) {
        char line[200];
        snprintf(line, sizeof line, "hakmem: %s(): invalid pointer %p: %s", calls[i].function, p, why);
        expect_abort(calls[i].body, p, line);
    }
}

static char static_memory[64];

static void invalid_pointers(void **state)
{
    char stack_memory[64];
    (void)state;
    void *started = hak_malloc(100);
    expect_invalid(static_memory, "not from this allocator");
    expect_invalid(stack_memory, "not from this allocator");
    expect_invalid((void *)8, "not from this allocator");
    expect_invalid((void *)UINTPTR_MAX, "not from this allocator");
    char *large = hak_malloc(300000), *huge = hak_malloc(3 << 20);
    expect_invalid(large + HAK_SLAB_SIZE, "not the start of a block");
    expect_invalid(huge + 16, "not the start of a block");
    expect_invalid(huge + HAK_SLAB_SIZE, "no block is here, or it was freed before");
    hak_free(huge);
    expect_invalid(huge, "no block is here, or it was freed before");
    hak_free(large);
    hak_free(started);
}

/* Five-level paging has addresses of 56 bits, and a tag may lie in the upper byte: none is the address without these bits. */
static void addresses_above_the_usual(void **state)
{
    (void)state;
    char *p = hak_malloc(100), *huge = hak_malloc(3 << 20);
    hak_heap_t *heap = hak_heap_new(NULL);
    char *own = hak_heap_malloc(heap, 100);
    for (unsigned bit = 47; bit < 64; bit++) {
        uintptr_t far = (uintptr_t)1 << bit;
        uintptr_t addresses[] = { far, (uintptr_t)p + far, (uintptr_t)huge + far, (uintptr_t)own + far, 0 - far };
        for (unsigned i = 0; i < sizeof addresses / sizeof *addresses; i++) {
            void *wrong = (void *)addresses[i];
            expect(hak_heap_of(wrong) == NULL);
            expect_eq(hak_is_sparse(wrong, 100), 0);
            if (bit == 47 || bit == 48 || bit == 56 || bit == 63)
                expect_invalid(wrong, "not from this allocator");
        }
        expect(hak_heap_of((void *)(uintptr_t)(far - 1)) == NULL);
    }
    expect_ptr(hak_heap_of(own), heap);
    hak_heap_destroy(heap);
    hak_free(p);
    hak_free(huge);
}

static void use_a_heap_of_no_address(void *argument) { hak_heap_malloc(argument, 100); }

static void handles_above_the_usual(void **state)
{
    (void)state;
    for (unsigned bit = 47; bit < 64; bit += 3) {
        char line[100];
        void *far = (void *)((uintptr_t)1 << bit);
        snprintf(line, sizeof line, "hakmem: hak_heap_malloc(): %p is not a heap", far);
        expect_abort(use_a_heap_of_no_address, far, line);
    }
}

static void collect_returns_memory(void **state)
{
    enum { COUNT = 200, SIZE = 200000 };
    void *p[COUNT];
    (void)state;
    skip_hardened();   /* whose freed blocks have given their pages back already */
    hak_collect();
    for (unsigned i = 0; i < COUNT; i++) {
        p[i] = hak_malloc(SIZE);
        memset(p[i], 1, SIZE);
    }
    for (unsigned i = 0; i < COUNT; i++)
        hak_free(p[i]);
    size_t returned = hak_collect();
    expect_op(returned, >, 4 << 20);   /* what the purging of freed memory has left over, at least */
    expect_eq(hak_collect(), 0);
    p[0] = hak_malloc(SIZE);
    memset(p[0], 1, SIZE);
    hak_free(p[0]);
}

static void print_statistics(void *argument)
{
    (void)argument;
    hak_stats_print(STDERR_FILENO);
}

static void statistics_on_request(void **state)
{
    char said[SAID_SIZE];
    (void)state;
    void *p = hak_malloc(48);
    expect_eq(run_child(print_statistics, NULL, said), 0);
    expect(strncmp(said, "hakmem: statistics of process ", 30) == 0);
    expect(strstr(said, "\ntotal refilled=") != NULL);
    hak_free(p);
}

static void options_by_name(void **state)
{
    uint64_t value = 0;
    (void)state;
    expect_eq(hak_option_get("refill_count", &value), 0);
    expect_eq(value, 32);
    expect_eq(hak_option_set("refill_count", "16"), 0);
    expect_eq(hak_option_get("HAKMEM_REFILL_COUNT", &value), 0);
    expect_eq(value, 16);
    expect_eq(hak_option_set("refill_count", "32"), 0);
    expect_eq(hak_option_set("refill_count", "x"), EINVAL);
    expect_eq(hak_option_set("stats", "1"), EPERM);
    expect_eq(hak_option_set("nonsense", "1"), ENOENT);
    expect_eq(hak_option_get("nonsense", &value), ENOENT);
}

static void version(void **state)
{
    unsigned major, minor, patch;
    char rest;
    (void)state;
    expect_eq(sscanf(hak_version(), "%u.%u.%u%c", &major, &minor, &patch, &rest), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_keeps_errno),
        cmocka_unit_test(free_keeps_errno_in_another_thread),
        cmocka_unit_test(sized_frees),
        cmocka_unit_test(invalid_pointers),
        cmocka_unit_test(addresses_above_the_usual),
        cmocka_unit_test(handles_above_the_usual),
        cmocka_unit_test(collect_returns_memory),
        cmocka_unit_test(statistics_on_request),
        cmocka_unit_test(options_by_name),
        cmocka_unit_test(version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
