/* Trees of heaps: a parent's limit, figures, reset and destruction include the heaps below it; in threads, forks and hardened mode; and
 * the functions of heaps that copy texts, align and collect. */
#include "hakmem_region.h"
#include "harden/mode.h"
#include "support/check.h"

enum { DEPTH = 64, MIB = 1 << 20 };

static hak_heap_t *try_below(hak_heap_t *parent, const char *name, size_t limit)
{
    return hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .name = name, .limit = limit, .parent = parent });
}

static hak_heap_t *below(hak_heap_t *parent, const char *name, size_t limit)
{
    hak_heap_t *heap = try_below(parent, name, limit);
    expect(heap != NULL);
    expect_ptr(hak_heap_parent(heap), parent);
    return heap;
}

static struct hak_heap_figures figures_of(hak_heap_t *heap)
{
    struct hak_heap_figures figures;
    expect_eq(hak_heap_stats(heap, &figures, sizeof figures), 0);
    return figures;
}

static unsigned heaps_alive(void)
{
    unsigned count = 0;
    for (hak_heap_t *heap = hak_heap_next(NULL); heap != NULL; heap = hak_heap_next(heap))
        count++;
    return count;
}

static void *block_of(hak_heap_t *heap, size_t n)
{
    void *block = hak_heap_malloc(heap, n);
    expect(block != NULL);
    expect_ptr(hak_heap_of(block), heap);
    return block;
}

/* --- figures ----------------------------------------------------------------------------------------------------------- */

static void figures_include_the_heaps_below(void **state)
{
    (void)state;
    hak_heap_t *root = below(NULL, "root", 0), *left = below(root, "left", 0), *right = below(root, "right", 0);
    hak_heap_t *leaf = below(left, "leaf", 0);
    void *huge = block_of(leaf, 3 * MIB);
    for (int i = 0; i < 100; i++) {
        (void)!block_of(root, 100);
        (void)!block_of(left, 1000);
        (void)!block_of(right, 5000);
        (void)!block_of(leaf, 20000);
    }
    struct hak_heap_figures all = figures_of(root), of_left = figures_of(left), of_leaf = figures_of(leaf);
    expect_eq(all.live_blocks, 401);
    expect_eq(of_left.live_blocks, 201);
    expect_eq(of_leaf.live_blocks, 101);
    expect_eq(all.huge_blocks, 1);
    expect_eq(of_leaf.shares, 1);
    expect_eq(all.shares, 4);
    expect_op(all.used_bytes, >=, of_left.used_bytes + figures_of(right).used_bytes + 100 * 100);
    expect_op(all.used_bytes, <=, all.slab_bytes + all.huge_bytes);
    expect_op(of_left.used_bytes, <=, of_left.slab_bytes + of_left.huge_bytes);
    expect(strcmp(all.name, "root") == 0);

    uint64_t before = all.used_bytes;
    huge = hak_heap_realloc(leaf, huge, 9 * MIB);
    expect_eq(figures_of(root).used_bytes, before + figures_of(root).huge_bytes - all.huge_bytes);
    hak_free(huge);
    expect_eq(figures_of(root).used_bytes, before - all.huge_bytes);
    hak_heap_destroy(left);
    expect_eq(figures_of(root).live_blocks, 200);
    expect_op(figures_of(root).used_bytes, <=, figures_of(root).slab_bytes);
    expect_eq(hak_heap_merge_into_default(right), 0);
    expect_eq(figures_of(root).live_blocks, 100);
    hak_heap_destroy(right);
    hak_heap_reset(root);
    expect_eq(figures_of(root).live_blocks, 0);
    hak_heap_destroy(root);
    expect(hak_check_heap());
}

/* --- limits -------------------------------------------------------------------------------------------------------------- */

struct pressed {
    hak_heap_t *heap, *victim;
    unsigned calls;
};

static int make_room(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    struct pressed *pressed = argument;
    expect_ptr(heap, pressed->heap);
    expect_eq(limit, MIB);
    expect(used <= limit && wanted > 0);
    pressed->calls++;
    if (pressed->victim == NULL)
        return 0;
    hak_heap_destroy(pressed->victim);
    pressed->victim = NULL;
    return 1;
}

static unsigned fill(hak_heap_t *heap, size_t n)
{
    unsigned count = 0;
    while (hak_heap_malloc(heap, n) != NULL)
        count++;
    expect_eq(errno, ENOMEM);
    return count;
}

static void a_limit_binds_the_heaps_below(void **state)
{
    (void)state;
    struct pressed pressed = { NULL, NULL, 0 };
    hak_heap_t *root = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .limit = MIB, .pressure = make_room, .argument = &pressed });
    pressed.heap = root;
    hak_heap_t *middle = below(root, "middle", 0), *one = below(middle, "one", 0), *two = below(middle, "two", MIB / 2);
    unsigned some = fill(two, 1000);
    expect_eq(pressed.calls, 0); /* its own limit */
    expect_op(figures_of(two).used_bytes, ==, MIB / 2);
    expect_eq(figures_of(root).refused, 0);
    unsigned others = fill(one, 1000);
    expect_op(others, >=, some * 9 / 10);
    expect_eq(pressed.calls, 1);
    expect_eq(figures_of(root).used_bytes, MIB);
    expect(figures_of(root).refused > 0 && figures_of(one).refused > 0);
    expect(hak_heap_malloc(root, 3 * MIB) == NULL && hak_heap_malloc(one, 3 * MIB) == NULL);

    pressed.victim = two;
    void *p = hak_heap_malloc(one, 5000);
    expect(p != NULL && pressed.victim == NULL);
    hak_heap_reset(one);
    expect_op(figures_of(root).used_bytes, <=, MIB);
    hak_heap_t *three = below(root, "three", 0);
    expect_op(fill(three, 100000), >, 0);
    hak_heap_destroy(root);
    expect(hak_check_heap());
}

static void a_limit_of_large_blocks(void **state)
{
    (void)state;
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .limit = MIB,
        .pressure = hak_heap_limit_large, .argument = (void *)(uintptr_t)512 });
    expect_op(fill(heap, 2000), <, MIB / 2000);
    for (unsigned i = 0; i < 10000; i++)
        (void)!block_of(heap, i % 400);
    expect_op(figures_of(heap).used_bytes, >, MIB);
    expect_op(figures_of(heap).limit, <, 8 * MIB);
    expect(hak_heap_malloc(heap, MIB / 2) == NULL && errno == ENOMEM);
    hak_heap_destroy(heap);
}

/* What a sibling has cached, and no longer uses, makes room. */
static void *fill_and_free(void *heap)
{
    void *blocks[400];
    for (int i = 0; i < 400; i++)
        blocks[i] = block_of(heap, 2000);
    for (int i = 0; i < 400; i++)
        hak_free(blocks[i]);
    return NULL;
}

static void a_limit_takes_what_siblings_cache(void **state)
{
    (void)state;
    skip_hardened(); /* there freed blocks are in quarantine for a while */
    hak_heap_t *root = below(NULL, NULL, MIB), *one = below(root, NULL, 0), *two = below(root, NULL, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, fill_and_free, one);
    pthread_join(thread, NULL);
    fill_and_free(one);
    fill_and_free(root);
    fill_and_free(two);
    expect_op(fill(two, 2000), >=, 400);
    hak_heap_destroy(root);
}

/* --- ends ---------------------------------------------------------------------------------------------------------------- */

static char order[32];
static hak_heap_t *makes_below;

static void note(void *letter)
{
    size_t length = strlen(order);
    if (length < sizeof order - 1)
        order[length] = *(const char *)letter;
    if (makes_below != NULL) {
        hak_heap_t *late = below(makes_below, "late", 0);
        makes_below = NULL;
        expect_eq(hak_heap_at_end(late, note, "L"), 0);
    }
}

static void ends_include_the_heaps_below(void **state)
{
    (void)state;
    unsigned before = heaps_alive();
    for (int destroys = 0; destroys < 2; destroys++) {
        hak_heap_t *root = below(NULL, "root", 0), *a = below(root, "a", 0), *b = below(root, "b", 0), *c = below(a, "c", 0);
        hak_heap_at_end(root, note, "r");
        hak_heap_at_end(root, note, "R");
        hak_heap_at_end(a, note, "a");
        hak_heap_at_end(b, note, "b");
        hak_heap_at_end(c, note, "c");
        void *blocks[] = { block_of(root, 100), block_of(a, 100), block_of(b, 100000), block_of(c, 2 * MIB) };
        hak_heap_set_default(root);
        void *plain = hak_malloc(100);
        expect_ptr(hak_heap_of(plain), root);
        memset(order, 0, sizeof order);
        makes_below = root;
        hak_heap_reset(root);
        if (strcmp(order, "bLcaRr") != 0)
            fail_msg("order %s", order);
        expect_eq(heaps_alive(), before + 1);
        for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
            expect(hak_heap_of(blocks[i]) == NULL);
        expect_eq(figures_of(root).live_blocks, 0);
        (void)!block_of(root, 100);
        hak_heap_set_default(NULL);
        for (int i = 0; destroys && i < 1000; i++)
            (void)!block_of(below(root, NULL, 0), 100);
        hak_heap_destroy(root);
        expect_eq(heaps_alive(), before);
    }
    expect(hak_check_heap());
}

static void destroyed_in_any_order(void **state)
{
    (void)state;
    struct rng rng = { 40 };
    unsigned before = heaps_alive();
    for (int round = 0; round < 50; round++) {
        hak_heap_t *heaps[40] = { below(NULL, NULL, 0) };
        unsigned count = 1;
        while (count < 40) {
            heaps[count] = below(heaps[rng_below(&rng, count)], NULL, 0);
            (void)!block_of(heaps[count++], 1 + rng_below(&rng, 3000));
        }
        /* From the youngest on a heap has no heap below it any more; others take theirs with them. */
        for (unsigned i = count; i-- > 30;)
            hak_heap_destroy(heaps[i]);
        expect_eq(figures_of(heaps[0]).live_blocks, 29);
        expect_eq(heaps_alive(), before + 30);
        hak_heap_destroy(heaps[0]);
        expect_eq(heaps_alive(), before);
    }
}

/* --- bad input -------------------------------------------------------------------------------------------------------------- */

static void expect_misuse(check_body *body, void *argument, const char *format)
{
    char line[200];
    snprintf(line, sizeof line, format, argument);
    expect_abort(body, argument, line);
}

static void make_below(void *parent) { expect(try_below(parent, NULL, 0) == NULL); }
static void destroy_it(void *heap) { hak_heap_destroy(heap); }
static void destroy_parent(void *heap) { hak_heap_destroy(hak_heap_parent(heap)); }
static void reset_parent(void *heap) { hak_heap_reset(hak_heap_parent(heap)); }
static void ask_for_parent(void *heap) { expect(hak_heap_parent(heap) == NULL); }
static void collect_it(void *heap) { expect_eq(hak_heap_collect(heap), 0); }

static void bad_parents(void **state)
{
    static _Alignas(4096) char region[MIB];
    (void)state;
    hak_heap_t *gone = below(NULL, NULL, 0), *child = below(gone, NULL, 0);
    hak_heap_destroy(gone);
    expect_misuse(make_below, gone, "hakmem: hak_heap_new(): heap %p has been destroyed");
    expect_misuse(make_below, child, "hakmem: hak_heap_new(): heap %p has been destroyed");
    expect_misuse(make_below, region, "hakmem: hak_heap_new(): %p is not a heap");
    expect_misuse(destroy_it, child, "hakmem: hak_heap_destroy(): heap %p has been destroyed");
    expect_misuse(ask_for_parent, child, "hakmem: hak_heap_parent(): heap %p has been destroyed");
    expect_misuse(collect_it, child, "hakmem: hak_heap_collect(): heap %p has been destroyed");

    hak_heap_t *in_region = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
    expect(in_region != NULL && hak_heap_parent(in_region) == NULL && hak_heap_collect(in_region) == 0);
    expect(try_below(in_region, NULL, 0) == NULL && errno == EINVAL);
    hak_heap_destroy(in_region);
    hak_heap_t *root = below(NULL, NULL, 0), *deepest = root;
    expect(hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .region = region,
               .region_size = sizeof region, .parent = root }) == NULL && errno == EINVAL);
    for (int depth = 1; depth < DEPTH; depth++)
        deepest = below(deepest, NULL, 0);
    expect(try_below(deepest, NULL, 0) == NULL && errno == EINVAL);
    (void)!block_of(deepest, 100);
    expect_eq(figures_of(root).live_blocks, 1);
    hak_heap_destroy(root);
    expect(hak_heap_parent(NULL) == NULL);
    /* Options of before there were parents. */
    hak_heap_t *older = hak_heap_new(&(struct hak_heap_options){ .size = offsetof(struct hak_heap_options, parent), .parent = root });
    expect(older != NULL && hak_heap_parent(older) == NULL);
    hak_heap_destroy(older);
}

static void a_default_below_does_not_end(void **state)
{
    (void)state;
    hak_heap_t *root = below(NULL, NULL, 0), *child = below(root, NULL, 0), *leaf = below(child, NULL, 0);
    hak_heap_set_default(leaf);
    expect_misuse(destroy_it, leaf, "hakmem: hak_heap_destroy(): heap %p is still the default of a thread");
    expect_misuse(destroy_parent, leaf, "hakmem: hak_heap_destroy(): heap %p is still the default of a thread");
    expect_misuse(reset_parent, leaf, "hakmem: hak_heap_reset(): heap %p is still the default of a thread");
    hak_heap_set_default(NULL);
    hak_heap_destroy(root);
}

/* --- threads and forks ------------------------------------------------------------------------------------------------------ */

static void *requests(void *connection)
{
    struct rng rng = { (uintptr_t)&rng };
    for (int round = 0; round < 300; round++) {
        hak_heap_t *request = below(connection, "request", 0), *part = below(request, "part", 0);
        for (int i = 0; i < 20; i++) {
            void *p = hak_heap_malloc(i % 2 ? request : part, 1 + rng_below(&rng, i == 7 ? 2 * MIB : 3000));
            if (p != NULL && i % 3 == 0)
                hak_free(p);
        }
        if (round % 2)
            hak_heap_reset(request);
        hak_heap_destroy(request);
    }
    return NULL;
}

static void threads_have_heaps_below_one(void **state)
{
    pthread_t threads[4];
    (void)state;
    hak_heap_t *server = below(NULL, "server", 8 * MIB), *connections[2] = { below(server, NULL, 4 * MIB), below(server, NULL, 0) };
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, requests, connections[i % 2]);
    for (int i = 0; i < 200; i++) {
        expect_op(figures_of(server).used_bytes, <=, 8 * MIB);
        hak_heap_collect(server);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    expect_eq(figures_of(server).used_bytes, 0);
    expect_eq(figures_of(server).live_blocks, 0);
    expect_op(figures_of(server).peak_bytes, <=, 8 * MIB);
    hak_heap_destroy(server);
    expect(hak_check_heap());
}

static void use_and_end(void *server)
{
    struct hak_heap_figures figures = figures_of(server);
    expect_op(figures.used_bytes, <=, 64 * MIB);
    hak_heap_t *mine = below(server, "child's", 0);
    for (int i = 0; i < 100; i++)
        (void)!block_of(mine, 1000);
    hak_heap_destroy(mine);
    hak_heap_reset(server);
    (void)!block_of(below(server, NULL, 0), 100000);
    hak_heap_destroy(server);
    expect(hak_check_heap());
    exit(0);
}

static _Atomic bool over;
static void *until_over(void *connection)
{
    while (!over)
        requests(connection);
    return NULL;
}

static void forked_children_end_trees(void **state)
{
    pthread_t threads[3];
    (void)state;
    if (HAK_TSAN) /* a child may wait for a lock of the sanitizer's own, which another thread held at the fork */
        skip();
    hak_heap_t *server = below(NULL, "server", 64 * MIB), *connection = below(server, NULL, 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, until_over, connection);
    for (int i = 0; i < 60; i++)
        run_fresh(use_and_end, server);
    over = true;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    expect_eq(figures_of(server).used_bytes, 0);
    hak_heap_destroy(server);
}

/* --- more functions --------------------------------------------------------------------------------------------------------- */

static void texts_lie_in_the_heap(void **state)
{
    char long_text[5000];
    (void)state;
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = 0;
    for (int in_heap = 0; in_heap < 2; in_heap++) {
        hak_heap_t *heap = in_heap ? below(NULL, NULL, MIB) : NULL;
        char *texts[] = { hak_heap_strdup(heap, "text"), hak_heap_strndup(heap, "textile", 4), hak_heap_strndup(heap, "text", 400),
                          hak_heap_asprintf(heap, "%s%c", "tex", 't'), hak_heap_strdup(heap, ""), hak_heap_strdup(heap, long_text),
                          hak_heap_asprintf(heap, "%s", long_text) };
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            expect_ptr(hak_heap_of(texts[i]), heap);
            expect(strcmp(texts[i], i < 4 ? "text" : i == 4 ? "" : long_text) == 0);
            hak_heap_free(heap, texts[i]);
        }
        if (heap == NULL)
            continue;
        expect(hak_heap_asprintf(heap, "%2000000d", 1) == NULL && errno == ENOMEM);
        expect(hak_heap_strndup(heap, long_text, SIZE_MAX) != NULL);
        hak_heap_destroy(heap);
    }
}

static hak_heap_t *some_heap(int kind)
{
    static _Alignas(4096) char region[32 * MIB];
    return kind == 0 ? NULL : kind == 1 ? below(NULL, NULL, 0) : hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .region = region, .region_size = sizeof region });
}

static void alignments_in_the_heap(void **state)
{
    static const size_t sizes[] = { 0, 1, 100, 5000, 70000, 3 * MIB };
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        hak_heap_t *heap = some_heap(kind);
        for (size_t align = 1; align <= 65536; align *= 4)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                size_t n = sizes[i];
                unsigned char *p = hak_heap_aligned_calloc(heap, align, n, 1);
                expect(p != NULL && (uintptr_t)p % align == 0);
                expect_ptr(hak_heap_of(p), heap);
                for (size_t at = 0; at < n; at++)
                    expect_eq(p[at], 0);
                memset(p, 0x5a, n);
                p = hak_heap_aligned_realloc(heap, p, 2 * align, 2 * n + 1);
                expect(p != NULL && (uintptr_t)p % (2 * align) == 0);
                expect_ptr(hak_heap_of(p), heap);
                for (size_t at = 0; at < n; at += 97)
                    expect_eq(p[at], 0x5a);
                expect(hak_heap_aligned_realloc(heap, p, 3, n) == NULL && errno == EINVAL);
                expect(hak_heap_aligned_realloc(heap, p, align, 0) == NULL);
                p = hak_heap_aligned_realloc(heap, NULL, align, n);
                expect(p != NULL && (uintptr_t)p % align == 0);
                hak_free(p);
            }
        expect(hak_heap_aligned_calloc(heap, 3, 1, 1) == NULL && errno == EINVAL);
        volatile size_t much = SIZE_MAX / 2; /* unknown to the compiler, which would warn */
        expect(hak_heap_aligned_calloc(heap, 64, much, 3) == NULL && errno == ENOMEM);
        hak_heap_destroy(heap);
    }
}

static void realloc_in_malloc(void *p) { expect(hak_heap_aligned_realloc(NULL, p, 64, 100) == NULL); }

static void collected_memory_is_no_longer_counted(void **state)
{
    static void *blocks[2000];
    (void)state;
    hak_heap_t *root = below(NULL, NULL, 0), *heap = below(root, NULL, 0);
    expect_eq(hak_option_set("purge_delay", "3600s"), 0); /* upkeep would return some before */
    for (int i = 0; i < 2000; i++)
        memset(blocks[i] = block_of(heap, 4000), 1, 4000);
    char line[200];
    snprintf(line, sizeof line, "hakmem: hak_heap_aligned_realloc(): %p is not a block of malloc's", blocks[0]);
    expect_abort(realloc_in_malloc, blocks[0], line);
    for (int i = 1; i < 2000; i++)
        hak_free(blocks[i]);
    size_t back = hak_heap_collect(root);
    if (!hak__hardened.on) {
        expect_op(back, >=, 7 * MIB);
        expect_op(figures_of(heap).used_bytes, <=, 2 * 65536);
        expect_eq(figures_of(heap).cached_bytes, 0);
        expect_eq(figures_of(root).used_bytes, figures_of(heap).used_bytes);
    }
    expect_eq(figures_of(root).live_blocks, 1);
    hak_heap_set_default(heap);
    hak_heap_collect(heap);
    void *p = hak_malloc(100);
    expect_ptr(hak_heap_of(p), heap);
    hak_heap_set_default(NULL);
    hak_heap_collect(NULL);
    hak_heap_destroy(root);
    expect(hak_check_heap());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_include_the_heaps_below),
        cmocka_unit_test(a_limit_binds_the_heaps_below),
        cmocka_unit_test(a_limit_of_large_blocks),
        cmocka_unit_test(a_limit_takes_what_siblings_cache),
        cmocka_unit_test(ends_include_the_heaps_below),
        cmocka_unit_test(destroyed_in_any_order),
        cmocka_unit_test(bad_parents),
        cmocka_unit_test(a_default_below_does_not_end),
        cmocka_unit_test(threads_have_heaps_below_one),
        cmocka_unit_test(forked_children_end_trees),
        cmocka_unit_test(texts_lie_in_the_heap),
        cmocka_unit_test(alignments_in_the_heap),
        cmocka_unit_test(collected_memory_is_no_longer_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
