/* Blocks that are worth moving: a program that moves what hak_is_sparse names packs its blocks into about as few spans as they need, in
 * two passes, and a third one finds next to nothing; in bulk, beside other threads, and in a user heap. No other address is named. */
#include "base/compiler.h"
#include "hakmem.h"
#include "hakmem_stats.h"
#include "support/check.h"

enum { BLOCKS = 30000, SIZE = 200, KEEP = 3, PERCENT = 90, BATCH = 64 };

static unsigned char *blocks[BLOCKS];
static hak_heap_t *heap;
static void (*before_moving)(void);

static bool is_hardened(void) { return getenv("HAKMEM_HARDEN") != NULL; }

static void fill(size_t i) { memset(blocks[i], (int)(i % 251), SIZE); }

static void check_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        for (size_t at = 0; blocks[i] != NULL && at < SIZE; at += SIZE - 1)
            expect_eq(blocks[i][at], i % 251);
    expect(hak_check_heap());
}

static unsigned draw(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return (unsigned)(x >> 32);
}

static void allocate_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        blocks[i] = heap != NULL ? hak_heap_malloc(heap, SIZE) : hak_malloc(SIZE);
        expect(blocks[i] != NULL);
        fill(i);
    }
}

/* One in KEEP stays, scattered, and is then visited in another order than that of addresses. */
static void scatter(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (draw() % KEEP != 0) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
    for (size_t i = BLOCKS - 1; i > 0; i--) {
        size_t other = draw() % (i + 1);
        if ((i - other) % 251 != 0)
            other = i - (i - other) / 251 * 251;
        unsigned char *p = blocks[i];
        blocks[i] = blocks[other], blocks[other] = p;
    }
}

static size_t live(void)
{
    size_t count = 0;
    for (size_t i = 0; i < BLOCKS; i++)
        count += blocks[i] != NULL;
    return count;
}

static size_t spans(void)
{
    static struct hak_stats stats;
    expect_eq(hak_stats_snapshot(&stats, sizeof stats), 0);
    for (size_t c = 0; c < stats.class_count; c++)
        if (stats.classes[c].size == hak_good_size(SIZE))
            return stats.classes[c].spans;
    return is_hardened() ? 0 : (expect(false), 0);
}

static void *copy_of(const void *block)
{
    void *copy = heap != NULL ? hak_heap_malloc(heap, SIZE) : hak_malloc(SIZE);
    expect(copy != NULL);
    return memcpy(copy, block, SIZE);
}

/* How many blocks a pass has moved. */
static size_t pass_singly(void)
{
    size_t moved = 0;
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i] == NULL || !hak_is_sparse(blocks[i], PERCENT))
            continue;
        unsigned char *copy = copy_of(blocks[i]);
        hak_free(blocks[i]);
        blocks[i] = copy;
        moved++;
    }
    return moved;
}

static size_t pass_in_batches(void)
{
    size_t moved = 0;
    for (size_t first = 0; first < BLOCKS; first += BATCH) {
        unsigned char sparse[BATCH];
        void *copies[BATCH];
        size_t count = first + BATCH < BLOCKS ? BATCH : BLOCKS - first;
        size_t found = hak_are_sparse((const void *const *)blocks + first, count, PERCENT, sparse);
        for (size_t i = 0; i < count; i++) {
            expect(blocks[first + i] != NULL || !sparse[i]);
            found -= sparse[i];
            copies[i] = sparse[i] ? copy_of(blocks[first + i]) : NULL;
        }
        expect_eq(found, 0);
        for (size_t i = 0; i < count; i++)
            if (copies[i] != NULL) {
                hak_free(blocks[first + i]);
                blocks[first + i] = copies[i];
                moved++;
            }
    }
    return moved;
}

static void free_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        hak_free(blocks[i]);
        blocks[i] = NULL;
    }
}

/* Packed: nine tenths of what the spans have, besides a few that are being filled. A pass leaves a block here and there, as another span
 * takes the place of the one that is being filled; the second one moves those. */
static void pack(size_t (*pass)(void))
{
    size_t none = spans();
    allocate_all();
    size_t before = spans();
    scatter();
    if (before_moving != NULL)
        before_moving();
    size_t kept = live(), moved = pass(), more = pass(), after = spans(), again = pass();
    print_message("%zu blocks in %zu spans: %zu and %zu moved, %zu spans left; then %zu moved\n", kept, before - none, moved, more,
                  after - none, again);
    check_all();
    if (is_hardened()) {
        expect_eq(moved + more + again, 0);
    } else {
        size_t needed = kept * hak_good_size(SIZE) / (64 << 10) + 1;
        expect_op(moved, <=, kept * 9 / 10); /* 2 ln 1.5 of them, in theory */
        expect_op(more, <=, kept / 30);
        expect_op(after - none, <=, needed * 100 / PERCENT + 4);
        expect_op(again, <=, kept / 300);
    }
    free_all();
}

static void one_by_one(void **state) { (void)state, pack(pass_singly); }
static void in_batches(void **state) { (void)state, pack(pass_in_batches); }

static void in_a_user_heap(void **state)
{
    (void)state;
    heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options) });
    expect(heap != NULL);
    pack(pass_singly);
    hak_heap_destroy(heap);
    heap = NULL;
}

static void collect_all(void) { hak_collect(); }
static void collect_heap(void) { hak_heap_collect(heap); }

static void *uses_the_heap(void *argument)
{
    hak_free(hak_heap_malloc(heap, 20 * SIZE));
    return argument;
}

/* Its part of the heap is idle from then on. */
static void collect_beside_an_ended_thread(void)
{
    pthread_t thread;
    expect_eq(pthread_create(&thread, NULL, uses_the_heap, NULL), 0);
    pthread_join(thread, NULL);
    hak_collect();
}

static void after_a_collection(void **state)
{
    static void (*const collections[])(void) = { collect_all, collect_heap, collect_beside_an_ended_thread };
    for (size_t i = 0; i < sizeof collections / sizeof *collections; i++) {
        before_moving = collections[i];
        in_a_user_heap(state);
    }
    before_moving = NULL;
}

/* --- other threads ------------------------------------------------------------------------------------------------------- */

static pthread_barrier_t barrier;

static void *owns_blocks(void *argument)
{
    for (size_t i = 0; i < BLOCKS; i += 2) {
        blocks[i] = hak_malloc(SIZE);
        fill(i);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return argument;
}

/* Half of the blocks are of a thread that sleeps. */
static void of_another_thread(void **state)
{
    (void)state;
    pthread_t thread;
    size_t none = spans();
    pthread_barrier_init(&barrier, NULL, 2);
    expect_eq(pthread_create(&thread, NULL, owns_blocks, NULL), 0);
    pthread_barrier_wait(&barrier);
    for (size_t i = 1; i < BLOCKS; i += 2) {
        blocks[i] = hak_malloc(SIZE);
        fill(i);
    }
    scatter();
    size_t kept = live(), moved = 0;
    for (unsigned i = 0; i < 4; i++)
        moved += pass_singly();
    size_t again = pass_singly();
    check_all();
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    print_message("%zu moved of %zu, then %zu; %zu spans\n", moved, kept, again, spans() - none);
    expect_op(again, <=, kept / 10);
    expect(is_hardened() || moved > kept / 4);
    free_all();
}

static void *moves_others(void *argument)
{
    enum { OWN = 200 };
    size_t *moved = argument;
    void *own[OWN];
    for (size_t i = 0; i < OWN; i++)
        own[i] = hak_malloc(SIZE); /* a span to move into */
    *moved = pass_singly();
    for (size_t i = 0; i < OWN; i++)
        hak_free(own[i]);
    return NULL;
}

/* The owner asks, too, at the same time, about blocks of its own. */
static void beside_the_owner(void **state)
{
    (void)state;
    enum { MINE = 2000 };
    static unsigned char *mine[MINE];
    size_t moved = 0;
    pthread_t thread;
    for (size_t i = 0; i < MINE; i++)
        memset(mine[i] = hak_malloc(SIZE), 1, SIZE);
    allocate_all();
    scatter();
    expect_eq(pthread_create(&thread, NULL, moves_others, &moved), 0);
    for (size_t round = 0; round < 20; round++)
        for (size_t i = 0; i < MINE; i++)
            if (draw() % 3 == 0 || hak_is_sparse(mine[i], 100)) {
                unsigned char *copy = copy_of(mine[i]);
                hak_free(mine[i]);
                mine[i] = copy;
            }
    pthread_join(thread, NULL);
    expect(is_hardened() ? moved == 0 : moved > 0);
    for (size_t i = 0; i < MINE; i++) {
        expect_eq(mine[i][SIZE - 1], 1);
        hak_free(mine[i]);
    }
    check_all();
    free_all();
}

/* --- what is never worth moving ------------------------------------------------------------------------------------------- */

static void other_addresses(void **state)
{
    (void)state;
    static char in_the_program[64];
    char on_the_stack[64];
    allocate_all();
    scatter();
    size_t some = 0;
    while (blocks[some] == NULL)
        some++;
    expect_eq(hak_is_sparse(NULL, 100), 0);
    expect_eq(hak_is_sparse(in_the_program, 100), 0);
    expect_eq(hak_is_sparse(on_the_stack, 100), 0);
    expect_eq(hak_is_sparse((void *)16, 100), 0);
    expect_eq(hak_is_sparse((void *)(uintptr_t)-16, 100), 0);
    for (size_t i = 0; i < BLOCKS; i++) {
        expect_eq(hak_is_sparse(blocks[i], 0), 0);
        expect(blocks[i] == NULL || (!hak_is_sparse(blocks[i] + 16, 100) && !hak_is_sparse(blocks[i] + 1, 100)));
    }
    static const size_t large[] = { 60 << 10, 300 << 10, 1 << 20, 5 << 20 };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        void *p = hak_malloc(large[i]);
        expect(p != NULL && hak_is_sparse(p, 100) == 0);
        hak_free(p);
    }
    unsigned char *freed = blocks[some];
    hak_free(freed);
    blocks[some] = NULL;
    expect_eq(hak_is_sparse(freed, 100), 0);
    expect_eq(hak_are_sparse(NULL, 0, 100, NULL), 0);
    check_all();
    free_all();
}

static void in_a_child(void **state)
{
    (void)state;
    allocate_all();
    scatter();
    pid_t child = fork();
    if (child == 0) {
        for (size_t i = 0; i < BLOCKS; i++)
            if (hak_is_sparse(blocks[i], 100))
                _exit(1);
        _exit(0);
    }
    int status = 1;
    expect_eq(waitpid(child, &status, 0), child);
    expect_eq(status, 0);
    free_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_by_one),        cmocka_unit_test(in_batches),       cmocka_unit_test(in_a_user_heap),
        cmocka_unit_test(after_a_collection), cmocka_unit_test(of_another_thread), cmocka_unit_test(beside_the_owner),
        cmocka_unit_test(other_addresses), cmocka_unit_test(in_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
