/* Bump heaps: blocks lie one behind the other, know their length, end only with the heap, and grow in place while they are the last;
 * other requests, other threads, limits, forks and hardened processes get ordinary blocks. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hakmem.h"
#include "harden/mode.h"
#include "support/check.h"

enum { BLOCKS = 5000 };

static hak_heap_t *new_bump(size_t limit)
{
    hak_heap_t *heap = hak_heap_new(
        &(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = "bump", .limit = limit, .flags = HAK_HEAP_BUMP });
    expect(heap != NULL);
    return heap;
}

static size_t size_of(unsigned i) { return i * 37 % 4097; }

static void fill(hak_heap_t *heap, unsigned char **blocks)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        blocks[i] = hak_heap_malloc(heap, size_of(i));
        expect(blocks[i] != NULL && (uintptr_t)blocks[i] % 16 == 0);
        memset(blocks[i], (int)(i & 255), size_of(i));
    }
}

static void check(hak_heap_t *heap, unsigned char **blocks)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        expect_ptr(hak_heap_of(blocks[i]), heap);
        expect_op(hak_usable_size(blocks[i]), >=, size_of(i));
        for (size_t at = 0; at < size_of(i); at++)
            expect_eq(blocks[i][at], i & 255);
    }
}

static void blocks_keep_their_contents(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    hak_heap_t *heap = new_bump(0);
    for (int round = 0; round < 3; round++) {
        fill(heap, blocks);
        for (unsigned i = 0; i < BLOCKS && !hak__hardened.on; i += 2)
            hak_free(blocks[i]);
        check(heap, blocks);
        expect_eq(hak_check_heap(), 1);
        hak_heap_reset(heap);
        expect_eq(hak_usable_size(hak_heap_malloc(heap, 1)) >= 1, 1);
    }
    hak_heap_destroy(heap);
}

static void blocks_are_packed(void **state)
{
    (void)state;
    skip_hardened();
    hak_heap_t *heap = new_bump(0);
    char *first = hak_heap_malloc(heap, 0), *second = hak_heap_malloc(heap, 17), *third = hak_heap_malloc(heap, 33);
    expect_ptr(second, first + 16);
    expect_ptr(third, second + 32);
    expect_eq(hak_usable_size(first), 16);
    expect_eq(hak_usable_size(third), 48);
    expect_ptr(hak_realloc(third, 1000), third);
    expect_eq(hak_usable_size(third), 1008);
    expect_ptr(hak_realloc(third, 400), third);
    void *volatile whole = second; /* as long as its usable size, which compilers do not know */
    memset(whole, 7, 32);
    char *moved = hak_heap_realloc(heap, second, 100);
    expect(moved != second && moved > third && moved[0] == 7 && moved[31] == 7);
    expect_ptr(hak_heap_of(moved), heap);
    expect(hak_heap_of(second + 16) == NULL && hak_heap_of(moved + hak_usable_size(moved)) == NULL);
    hak_heap_free(heap, moved);
    hak_free_sized(second, 17);
    expect_eq(moved[0], 7);
    hak_heap_destroy(heap);
}

static int count_block(void *block, size_t size, void *argument)
{
    size_t *seen = argument;
    expect_op(hak_usable_size(block), ==, size);
    seen[0]++;
    seen[1] += size;
    return 0;
}

static void other_blocks_are_ordinary(void **state)
{
    (void)state;
    skip_hardened();
    hak_heap_t *heap = new_bump(0);
    size_t seen[2] = { 0, 0 };
    void *blocks[] = { hak_heap_aligned_alloc(heap, 4096, 100), hak_heap_malloc(heap, 5000), hak_heap_malloc(heap, 60000),
                       hak_heap_aligned_alloc(heap, 65536, 65536), hak_heap_malloc(heap, 3 << 20), hak_heap_calloc(heap, 10, 100) };
    expect((uintptr_t)blocks[0] % 4096 == 0 && (uintptr_t)blocks[3] % 65536 == 0);
    for (unsigned i = 0; i < 1000; i++)
        expect(((const char *)blocks[5])[i] == 0);
    expect_eq(hak_heap_visit(heap, count_block, seen), 0);
    expect_eq(seen[0], 6);
    for (unsigned i = 0; i < 6; i++) {
        expect_ptr(hak_heap_of(blocks[i]), heap);
        blocks[i] = hak_realloc(blocks[i], 70000);
        expect(blocks[i] != NULL && hak_heap_of(blocks[i]) == heap);
        hak_free(blocks[i]);
    }
    expect_eq(hak_heap_merge_into_default(heap), ENOTSUP);
    hak_heap_t *former = hak_heap_set_default(heap);
    void *p = hak_malloc(100);
    expect_ptr(hak_heap_of(p), heap);
    hak_free(p);
    p = hak_heap_malloc(heap, 100);
    hak_free(p);
    hak_heap_set_default(former);
    hak_heap_destroy(heap);
    errno = 0;
    static char region[1 << 16];
    expect(hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP, .region = region,
                                                    .region_size = sizeof region }) == NULL);
    expect_eq(errno, EINVAL);
}

static void free_with_its_size(hak_heap_t *heap, size_t align, size_t n)
{
    void *p = align == 16 ? hak_heap_malloc(heap, n) : hak_heap_aligned_alloc(heap, align, n);
    expect(p != NULL && (uintptr_t)p % align == 0);
    hak_free_aligned_sized(p, align, n);
    p = hak_heap_aligned_alloc(heap, align, n);
    hak_free_sized(hak_realloc(p, n + n / 50), n + n / 50);
}

/* Also of the sizes and alignments that another heap would serve with a slab. */
static void sized_frees_name_what_was_asked_for(void **state)
{
    (void)state;
    hak_heap_t *heap = new_bump(0);
    for (size_t n = 1; n < 2 << 20; n += n / 64 + 1)
        free_with_its_size(heap, 16, n);
    for (size_t align = 16; align <= 1 << 20; align *= 2)
        free_with_its_size(heap, align, 100), free_with_its_size(heap, align, 40000);
    hak_heap_destroy(heap);
}

/* Nor does a longer block serve that a thread has just freed. */
static void sized_frees_after_longer_blocks(void **state)
{
    (void)state;
    hak_heap_t *heap = new_bump(0);
    for (size_t n = 57 << 10; n <= 64 << 10; n += 1 << 10) {
        void *longer = hak_heap_malloc(heap, 190000), *p = hak_heap_malloc(heap, n);
        hak_free(longer);
        hak_free_sized(p, n);
        void *blocks[] = { hak_heap_malloc(heap, n), hak_heap_malloc(heap, n) };
        hak_free_sized(blocks[0], n);
        hak_free_sized(blocks[1], n);
    }
    hak_heap_destroy(heap);
}

static struct hak_heap_figures figures(hak_heap_t *heap)
{
    struct hak_heap_figures now;
    expect_eq(hak_heap_stats(heap, &now, sizeof now), 0);
    return now;
}

static void resets_keep_a_chunk(void **state)
{
    (void)state;
    skip_hardened();
    size_t seen[2] = { 0, 0 };
    hak_heap_t *heap = new_bump(0);
    char *last = NULL;
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 200; i++)
            last = hak_heap_malloc(heap, 1000);
        expect_eq(figures(heap).used_bytes, 4 << 16);
        hak_heap_reset(heap);
        hak_heap_reset(heap);
        struct hak_heap_figures now = figures(heap);
        expect(now.used_bytes == 0 && now.live_blocks == 0 && (now.slab_bytes == 1 << 16 || round == 2));
        expect(hak_heap_of(last) == NULL && hak_heap_visit(heap, count_block, seen) == 0 && seen[0] == 0);
        expect_eq(hak_check_heap(), 1);
        if (round == 1) { /* the next reset finds another block, and the chunk not begun */
            expect(hak_heap_malloc(heap, 5000) != NULL);
            hak_heap_reset(heap);
        }
        if (round == 2)
            hak_heap_collect(heap);
        expect_eq(figures(heap).slab_bytes == 0, round == 2);
    }
    const char *again = hak_heap_malloc(heap, 1000);
    expect(again != NULL && ((uintptr_t)again ^ (uintptr_t)last) < 1 << 16);
    hak_heap_reset(heap);
    hak_heap_destroy(heap);
}

static void limits_hold(void **state)
{
    (void)state;
    skip_hardened();
    hak_heap_t *heap = new_bump(256 << 10);
    for (int round = 0; round < 2; round++) {
        size_t got = 0;
        for (const void *p; (p = hak_heap_malloc(heap, 500)) != NULL;)
            got += 512;
        expect_eq(errno, ENOMEM);
        expect_op(got, >=, 256 * 1024 / 100 * 95);
        hak_heap_reset(heap);
    }
    hak_heap_destroy(heap);
}

static void *use_beside(void *argument)
{
    static __thread unsigned char *blocks[BLOCKS];
    fill(argument, blocks);
    check(argument, blocks);
    for (unsigned i = 0; i < BLOCKS; i++)
        hak_free(blocks[i]);
    return NULL;
}

static void threads_have_their_own_chunks(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    pthread_t threads[4];
    for (int round = 0; round < 2; round++) {
        hak_heap_t *heap = new_bump(round == 0 ? 0 : 64 << 20);
        fill(heap, blocks);
        for (unsigned i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, use_beside, heap);
        for (unsigned i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        check(heap, blocks);
        pid_t child = fork();
        if (child == 0) {
            check(heap, blocks);
            fill(heap, blocks);
            check(heap, blocks);
            hak_heap_destroy(heap);
            _exit(hak_check_heap() == 1 ? 0 : 1);
        }
        int status = -1;
        expect(waitpid(child, &status, 0) == child && status == 0);
        check(heap, blocks);
        hak_heap_destroy(heap);
    }
}

static void samples_are_ordinary(void **state)
{
    (void)state;
    hak_heap_t *heap = new_bump(0);
    expect_eq(hak_profile_start(512), 0);
    for (unsigned i = 0; i < BLOCKS; i++) {
        void *p = hak_heap_malloc(heap, 100);
        expect(p != NULL && hak_heap_of(p) == heap);
        if (i % 2 == 0)
            hak_free(p);
    }
    hak_profile_stop();
    void *p = hak_heap_malloc(heap, 100);
    expect(p != NULL);
    hak_free(p);
    hak_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_keep_their_contents),
        cmocka_unit_test(blocks_are_packed),
        cmocka_unit_test(other_blocks_are_ordinary),
        cmocka_unit_test(sized_frees_name_what_was_asked_for),
        cmocka_unit_test(sized_frees_after_longer_blocks),
        cmocka_unit_test(resets_keep_a_chunk),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(threads_have_their_own_chunks),
        cmocka_unit_test(samples_are_ordinary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
