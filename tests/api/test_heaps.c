/* Heaps of one's own: where their blocks come from and go, from every thread; destruction, reset, merging; limits and their
 * callback; figures and visits; default heaps. */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

#include "hakmem.h"
#include "hakmem_stats.h"
#include "harden/mode.h"
#include "support/check.h"
#include "support/memory.h"

enum { BLOCKS = 3000 };

static hak_heap_t *new_heap(const char *name, size_t limit)
{
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .name = name, .limit = limit });
    expect(heap != NULL);
    return heap;
}

static struct hak_heap_figures stats_of(hak_heap_t *heap)
{
    struct hak_heap_figures stats;
    expect_eq(hak_heap_stats(heap, &stats, sizeof stats), 0);
    return stats;
}

/* Sizes of all pools, and the huge one now and then. */
static size_t size_of(unsigned i) { return i % 500 == 7 ? (3u << 20) + i : i % 50 == 3 ? 100000 + i * 100 : (i * 37) % 5000 + 1; }

static void fill(hak_heap_t *heap, unsigned char **blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        blocks[i] = hak_heap_malloc(heap, size_of(i));
        expect(blocks[i] != NULL);
        memset(blocks[i], (int)(i & 255), size_of(i));
        expect_ptr(hak_heap_of(blocks[i]), heap);
    }
}

static void check(unsigned char **blocks, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        expect_eq(blocks[i][0], i & 255);
        expect_eq(blocks[i][size_of(i) - 1], i & 255);
    }
}

static void blocks_come_and_go(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    hak_heap_t *heap = new_heap("one", 0);
    for (int round = 0; round < 3; round++) {
        fill(heap, blocks, BLOCKS);
        check(blocks, BLOCKS);
        expect_op(stats_of(heap).live_blocks, >=, BLOCKS);
        for (unsigned i = 0; i < BLOCKS; i++)
            hak_free(blocks[i]);
    }
    expect_eq(stats_of(heap).huge_blocks, 0);
    if (!hak__hardened.on)
        expect_eq(stats_of(heap).live_blocks, 0);
    expect(hak_check_heap());
    hak_heap_destroy(heap);
}

static void every_kind_of_request(void **state)
{
    (void)state;
    hak_heap_t *heap = new_heap("kinds", 0);
    for (size_t n = 1; n < (size_t)5 << 20; n = n * 3 + 1) {
        unsigned char *p = hak_heap_calloc(heap, n, 1);
        for (size_t i = 0; i < n; i += 97)
            expect_eq(p[i], 0);
        memset(p, 0xa5, n);
        p = hak_heap_realloc(heap, p, 2 * n + 3);
        expect_ptr(hak_heap_of(p), heap);
        expect_eq(p[n - 1], 0xa5);
        p = hak_realloc(p, n / 2 + 1);
        expect_ptr(hak_heap_of(p), heap);
        expect_eq(p[n / 2], 0xa5);
        expect_op(hak_usable_size(p), >=, n / 2 + 1);
        hak_heap_free(heap, p);
        for (size_t align = 16; align <= (size_t)4 << 20; align *= 4) {
            void *q = hak_heap_aligned_alloc(heap, align, n);
            expect_eq((uintptr_t)q % align, 0);
            expect_ptr(hak_heap_of(q), heap);
            hak_free(q);
        }
    }
    errno = 0;
    expect(hak_heap_malloc(heap, SIZE_MAX) == NULL && errno == ENOMEM);
    expect(hak_heap_aligned_alloc(heap, 48, 1) == NULL && errno == EINVAL);
    expect(hak_heap_calloc(heap, SIZE_MAX / 2, 3) == NULL && errno == ENOMEM);
    hak_heap_destroy(heap);
    hak_heap_destroy(NULL);
    void *p = hak_heap_malloc(NULL, 10);
    expect(p != NULL && hak_heap_of(p) == NULL);
    hak_heap_free(NULL, p);
}

static void destruction_ends_everything(void **state)
{
    static unsigned char *blocks[BLOCKS], *others[BLOCKS];
    (void)state;
    struct hak_stats *before = malloc(sizeof *before), *after = malloc(sizeof *after);
    hak_heap_t *other = new_heap("other", 0);
    fill(other, others, BLOCKS);
    fill(NULL, blocks, BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++)
        hak_free(blocks[i]);
    for (int round = 0; round < 20; round++) {
        hak_heap_t *heap = new_heap("short", 0);
        fill(heap, blocks, BLOCKS);
        check(blocks, BLOCKS);
        hak_heap_destroy(heap);
        expect(hak_heap_of(blocks[5]) == NULL);
        if (round == 1)
            hak_stats_snapshot(before, sizeof *before);
    }
    hak_stats_snapshot(after, sizeof *after);
    expect_op(after->superslabs_taken, <=, before->superslabs_taken + 8); /* hardened mode keeps some apart */
    expect_op(after->bytes_mapped, <=, before->bytes_mapped + (64u << 20)); /* what may stay for the purge delay */
    check(others, BLOCKS);
    expect(hak_check_heap());
    hak_heap_destroy(other);
    expect(hak_check_heap());
    free(before);
    free(after);
}

static void reset_keeps_memory(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    hak_heap_t *heap = new_heap("reset", 0);
    fill(heap, blocks, BLOCKS);
    hak_heap_reset(heap);
    struct hak_heap_figures empty = stats_of(heap);
    expect_eq(empty.live_blocks, 0);
    expect_eq(empty.huge_blocks, 0);
    if (!hak__hardened.on)
        expect_op(empty.slab_bytes, >, 0);
    for (int round = 0; round < 5; round++) {
        fill(heap, blocks, BLOCKS);
        check(blocks, BLOCKS);
        hak_heap_reset(heap);
    }
    if (!hak__hardened.on)
        expect_op(stats_of(heap).slab_bytes, <=, empty.slab_bytes + (4u << 20));
    expect(hak_check_heap());
    hak_heap_destroy(heap);
}

static void merged_blocks_live_on(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    hak_heap_t *heap = new_heap("merged", 0);
    fill(heap, blocks, BLOCKS);
    expect_eq(hak_heap_merge_into_default(heap), 0);
    expect_eq(stats_of(heap).live_blocks, 0);
    expect_eq(stats_of(heap).used_bytes, 0);
    void *fresh = hak_heap_malloc(heap, 100);
    expect_ptr(hak_heap_of(fresh), heap);
    hak_heap_destroy(heap);
    check(blocks, BLOCKS);
    expect(hak_check_heap());
    for (unsigned i = 0; i < BLOCKS; i++) {
        expect(hak_heap_of(blocks[i]) == NULL);
        hak_free(blocks[i]);
    }
    expect(hak_check_heap());
}

/* --- limits ------------------------------------------------------------------------------------------------------------- */

struct pressed {
    unsigned calls;
    size_t raise_to;
};

static int on_pressure(hak_heap_t *heap, size_t used, size_t limit, size_t wanted, void *argument)
{
    struct pressed *pressed = argument;
    expect(used <= limit && wanted != 0);
    pressed->calls++;
    hak_free(hak_malloc(1000));
    if (pressed->raise_to == 0)
        return 0;
    hak_heap_set_limit(heap, pressed->raise_to);
    pressed->raise_to = 0;
    return 1;
}

static void limits_hold(void **state)
{
    (void)state;
    struct pressed pressed = { 0, (size_t)8 << 20 };
    hak_heap_t *heap = hak_heap_new(&(struct hak_heap_options){
        .size = sizeof(struct hak_heap_options), .limit = (size_t)4 << 20, .pressure = on_pressure, .argument = &pressed });
    size_t got = 0, page = (size_t)sysconf(_SC_PAGESIZE), slab = 64 << 10;
    /* A hardened slab ends with a guard page where pages are smaller than it; one of 4 KiB is within the bound. */
    size_t guards = getenv("HAKMEM_HARDEN") != NULL && page < slab ? (8u << 20) / slab * (page - 4096) : 0;
    for (void *p; (p = hak_heap_malloc(heap, 1000)) != NULL; got++)
        memset(p, 1, 1000);
    expect_eq(errno, ENOMEM);
    expect_eq(pressed.calls, 2);
    expect_op(stats_of(heap).used_bytes, <=, 8u << 20);
    expect_op(got * 1000, >=, (6u << 20) - guards);
    expect(hak_heap_malloc(heap, 3 << 20) == NULL);
    expect(hak_heap_malloc(heap, 300000) == NULL);
    expect_op(stats_of(heap).refused, >, 0);
    hak_heap_reset(heap);
    void *p = hak_heap_malloc(heap, 100000);
    expect(p != NULL);
    hak_free(p);
    hak_heap_destroy(heap);
    void *q = malloc(100);
    expect(q != NULL);
    free(q);
}

/* What one thread has freed again and again serves others, though its bins have grown. */
enum { ONE_SIZE = 200, ONE_MOST = (256 << 10) / ONE_SIZE };
static void *fill_with_one_size(void *heap)
{
    void *p[ONE_MOST];
    size_t count = 0;
    while (count < ONE_MOST && (p[count] = hak_heap_malloc(heap, ONE_SIZE)) != NULL)
        count++;
    for (size_t i = count; i > 0; i--)
        hak_free(p[i - 1]);
    return (void *)(count * ONE_SIZE);
}

static void bins_leave_most_of_a_limit(void **state)
{
    (void)state;
    pthread_t other;
    void *usable;
    skip_hardened();
    hak_heap_t *heap = new_heap("bins", 256 << 10);
    for (unsigned i = 0; i < 30; i++)
        fill_with_one_size(heap);
    pthread_create(&other, NULL, fill_with_one_size, heap);
    pthread_join(other, &usable);
    expect_op((size_t)usable, >=, (256 << 10) / 100 * 75);
    hak_heap_destroy(heap);
}

/* Eight threads fill a small heap by turns; then one of them frees, and another can allocate all of it. */
enum { SMALL_HEAP = 256 << 10, FILLING = 8, FILLED_MOST = SMALL_HEAP / 16 };
struct filling {
    hak_heap_t *heap;
    unsigned number;
};
static pthread_barrier_t fill_turn;
static void *filled[FILLED_MOST];
static size_t filled_count, filled_bytes;
static _Atomic bool is_full;

static void fill_some(hak_heap_t *heap, unsigned seed)
{
    void *p = hak_heap_malloc(heap, 1 + (filled_count * 7919 + seed) % 1024);
    if (p == NULL) {
        is_full = true;
        return;
    }
    filled_bytes += hak_usable_size(p);
    filled[filled_count++] = memset(p, 1, 1);
}

static void *fill_by_turns(void *argument)
{
    const struct filling *mine = argument;
    for (unsigned turn = 0; !is_full; turn = (turn + 1) % FILLING) {
        pthread_barrier_wait(&fill_turn);
        if (turn == mine->number)
            fill_some(mine->heap, mine->number);
        pthread_barrier_wait(&fill_turn);
    }
    return NULL;
}

static void *fill_alone(void *argument)
{
    const struct filling *mine = argument;
    while (!is_full)
        fill_some(mine->heap, mine->number);
    return NULL;
}

static void small_limits_can_be_used(void **state)
{
    (void)state;
    pthread_t threads[FILLING], alone;
    struct filling filling[FILLING];
    skip_hardened(); /* all of a hardened slab counts */
    hak_heap_t *heap = new_heap("small", SMALL_HEAP);
    pthread_barrier_init(&fill_turn, NULL, FILLING);
    for (unsigned i = 0; i < FILLING; i++) {
        filling[i] = (struct filling){ heap, i };
        pthread_create(&threads[i], NULL, fill_by_turns, &filling[i]);
    }
    for (unsigned i = 0; i < FILLING; i++)
        pthread_join(threads[i], NULL);
    expect_op(filled_bytes, >=, SMALL_HEAP / 100 * 85);
    expect_op(stats_of(heap).used_bytes, <=, SMALL_HEAP);
    expect_eq(stats_of(heap).live_bytes, filled_bytes);
    expect_eq(stats_of(heap).shares, 1);
    while (filled_count > 0)
        hak_free(filled[--filled_count]);
    expect_eq(stats_of(heap).live_blocks, 0);
    filled_bytes = 0;
    is_full = false;
    pthread_create(&alone, NULL, fill_alone, &filling[3]);
    pthread_join(alone, NULL);
    expect_op(filled_bytes, >=, SMALL_HEAP / 100 * 85);
    hak_heap_destroy(heap);
    filled_count = filled_bytes = 0;
    is_full = false;
    pthread_barrier_destroy(&fill_turn);
}

/* --- figures ----------------------------------------------------------------------------------------------------------- */

struct visited {
    size_t blocks, bytes;
    hak_heap_t *other;
};

static int count_block(void *block, size_t size, void *argument)
{
    struct visited *visited = argument;
    expect(block != NULL);
    visited->blocks++;
    visited->bytes += size;
    return 0;
}
static int stop_at_once(void *block, size_t size, void *argument) { return (void)block, (void)size, (void)argument, 7; }

/* Of malloc, small and huge, and of another heap; and has the heap checked. */
static int allocate_meanwhile(void *block, size_t size, void *argument)
{
    struct visited *visited = argument;
    void *p = hak_malloc(size), *q = hak_malloc((size_t)2 << 20), *r = hak_heap_malloc(visited->other, 300);
    expect(p != NULL && q != NULL && r != NULL);
    memset(p, 0x5a, size);
    hak_free(p);
    hak_free(q);
    hak_heap_free(visited->other, r);
    if (visited->blocks % 64 == 0)
        expect(hak_heap_of(block) != NULL && hak_check_heap());
    return count_block(block, size, argument);
}

static void grown_blocks_raise_the_peak(void **state)
{
    struct hak_heap_figures now;
    (void)state;
    hak_heap_t *heap = hak_heap_new(NULL);
    void *p = hak_heap_malloc(heap, 3 << 20);
    for (size_t n = 4 << 20; n < 40 << 20; n += 1 << 20) {
        p = hak_heap_realloc(heap, p, n);
        expect_eq(hak_heap_stats(heap, &now, sizeof now), 0);
        expect_op(now.peak_bytes, >=, now.used_bytes);
        expect_op(now.used_bytes, >=, n);
    }
    hak_heap_destroy(heap);
}

static void visitors_may_allocate(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    hak_heap_t *heap = new_heap("visited", 0);
    fill(heap, blocks, BLOCKS);
    void *huge[3];
    for (unsigned i = 0; i < 3; i++)
        huge[i] = hak_heap_malloc(heap, (size_t)(i + 2) << 20);
    struct visited visited = { 0, 0, new_heap("other", 0) };
    expect_eq(hak_heap_visit(heap, allocate_meanwhile, &visited), 0);
    expect_eq(visited.blocks, BLOCKS + 3);
    expect_eq(visited.blocks, stats_of(heap).live_blocks);
    check(blocks, BLOCKS);
    hak_heap_free(heap, huge[0]);
    hak_heap_destroy(heap);
    hak_heap_destroy(visited.other);
    expect(hak_check_heap());
}

static void visits_see_every_block(void **state)
{
    static unsigned char *blocks[BLOCKS];
    (void)state;
    skip_hardened();
    hak_heap_t *heap = new_heap("visited", 0);
    fill(heap, blocks, BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i += 2)
        hak_free(blocks[i]);
    struct visited visited = { 0, 0, NULL };
    expect_eq(hak_heap_visit(heap, count_block, &visited), 0);
    expect_eq(visited.blocks, BLOCKS / 2);
    expect_eq(visited.blocks, stats_of(heap).live_blocks);
    expect_eq(visited.bytes, stats_of(heap).live_bytes);
    expect_eq(hak_heap_visit(heap, stop_at_once, NULL), 7);
    expect_eq(stats_of(heap).serial > 0, 1);
    assert_string_equal(stats_of(heap).name, "visited");
    bool seen = false;
    for (hak_heap_t *at = hak_heap_next(NULL); at != NULL; at = hak_heap_next(at))
        seen |= at == heap;
    expect(seen);
    hak_heap_destroy(heap);
}

static int add_span(const struct hak_heap_span *span, void *argument)
{
    struct visited *visited = argument;
    size_t whole = (size_t)((char *)span->end - (char *)span->begin);
    expect(span->blocks != 0 && span->bytes <= whole && span->bytes <= span->reached && span->reached <= whole);
    expect(span->size == 0 || span->bytes == span->blocks * span->size);
    visited->blocks += span->blocks;
    visited->bytes += span->bytes;
    return 0;
}
static int stop_at_span(const struct hak_heap_span *span, void *argument) { return (void)span, (void)argument, 7; }

/* In an ordinary heap and in one of chunks; test_regions has one in a region. */
static void spans_hold_the_same_blocks(void **state)
{
    static unsigned char *blocks[BLOCKS];
    const struct hak_heap_options options[] = {
        { .size = sizeof options[0] },
        { .size = sizeof options[0], .flags = HAK_HEAP_BUMP },
    };
    (void)state;
    skip_hardened();
    for (unsigned i = 0; i < 2; i++) {
        hak_heap_t *heap = hak_heap_new(&options[i]);
        struct visited by_block = { 0, 0, NULL }, by_span = by_block;
        expect(heap != NULL && hak_heap_visit_spans(heap, stop_at_span, NULL) == 0);
        for (unsigned k = 0; k < BLOCKS; k++)
            expect((blocks[k] = hak_heap_malloc(heap, 1 + k * 7 % 3000)) != NULL);
        expect(hak_heap_malloc(heap, 300000) != NULL && hak_heap_malloc(heap, 3 << 20) != NULL);
        for (unsigned k = 0; k < BLOCKS; k += 2)
            hak_free(blocks[k]);
        expect(hak_heap_visit(heap, count_block, &by_block) == 0 && hak_heap_visit_spans(heap, add_span, &by_span) == 0);
        expect(by_span.blocks == by_block.blocks && by_span.bytes == by_block.bytes);
        expect_eq(by_span.blocks, (i == 1 ? BLOCKS : BLOCKS / 2) + 2);
        expect_eq(hak_heap_visit_spans(heap, stop_at_span, NULL), 7);
        hak_heap_destroy(heap);
    }
    expect_eq(hak_heap_visit_spans(NULL, add_span, NULL), ENOTSUP);
}

static void expect_in_statistics(const char *wanted)
{
    char path[] = "/tmp/heaps-XXXXXX", text[SAID_SIZE];
    int fd = mkstemp(path);
    hak_stats_print(fd);
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    expect(length > 0);
    text[length] = 0;
    expect(strstr(text, wanted) != NULL);
    close(fd);
    unlink(path);
}

/* Of names and figures, in the three formats. */
static void statistics_have_rows(void **state)
{
    (void)state;
    hak_heap_t *heap = new_heap("say \"hi\"\n", (size_t)1 << 30);
    void *p = hak_heap_malloc(heap, 100);
    expect_in_statistics("\"say \\\"hi\\\"?\": used_bytes=");
    expect_in_statistics("limit=1073741824 refused=0");
    hak_free(p);
    hak_heap_destroy(heap);
}

/* UTF-8 stays, also where a long name is cut; no byte steers a terminal or spoils a file of UTF-8. */
static void names_are_texts(void **state)
{
    static const char *const names[][2] = {
        { "K\303\244se, \346\261\211, \360\237\247\200", "\"K\303\244se, \346\261\211, \360\237\247\200\":" },
        { "\x1b[2J\177\302\233", "\"?[2J??\":" },
        { "\377\303x\355\240\200\340\237\277\"", "\"??x??????\\\"\":" },
        { "1234567890123456789012345678901234567890123456\303\244", "\"1234567890123456789012345678901234567890123456\":" },
        { "123456789012345678901234567890123456789012345\303\244z", "\"123456789012345678901234567890123456789012345\303\244\":" },
    };
    (void)state;
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        hak_heap_t *heap = new_heap(names[i][0], 0);
        expect_in_statistics(names[i][1]);
        hak_heap_destroy(heap);
    }
}

/* Before the first block a heap is its handle; with one it has a share. */
static void a_handle_is_small(void **state)
{
    enum { HANDLES = HAK_ASAN || HAK_TSAN ? 5000 : 100000, USED = 500 };
    (void)state;
    struct hak_stats *stats = malloc(sizeof *stats);
    hak_heap_t **heaps = malloc(HANDLES * sizeof *heaps);
    hak_stats_snapshot(stats, sizeof *stats);
    uint64_t before = stats->bytes_metadata;
    for (unsigned i = 0; i < HANDLES; i++)
        heaps[i] = new_heap(NULL, 0);
    hak_stats_snapshot(stats, sizeof *stats);
    expect_op(stats->bytes_metadata - before, <=, (uint64_t)HANDLES * 4096);
    size_t resident = resident_bytes();
    for (unsigned i = 0; i < USED; i++)
        memset(hak_heap_malloc(heaps[i], 100), 1, 100);
    if (!hak__hardened.on && !HAK_ASAN && !HAK_TSAN)
        expect_op(resident_bytes(), <=, resident + USED * ((size_t)64 << 10));
    for (unsigned i = 0; i < HANDLES; i++)
        hak_heap_destroy(heaps[i]);
    free(heaps);
    free(stats);
}

/* --- threads ------------------------------------------------------------------------------------------------------------ */

enum { THREADS = 4, EACH = 800 };
static hak_heap_t *common;
static unsigned char *given[THREADS][EACH];

static void *use_common(void *argument)
{
    unsigned me = (unsigned)(uintptr_t)argument;
    for (int round = 0; round < 4; round++) {
        for (unsigned i = 0; i < EACH; i++) {
            given[me][i] = hak_heap_malloc(common, size_of(i) % 9000 + 8);
            memset(given[me][i], (int)me + 1, 8);
        }
        for (unsigned i = 0; i < EACH && round < 3; i++)
            hak_free(given[me][i]);
    }
    return NULL;
}

static void *free_the_others(void *argument)
{
    unsigned next = ((unsigned)(uintptr_t)argument + 1) % THREADS;
    for (unsigned i = 0; i < EACH; i++) {
        expect_eq(given[next][i][7], next + 1);
        hak_free(given[next][i]);
    }
    return NULL;
}

static void on_threads(void *(*body)(void *))
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        expect_eq(pthread_create(&threads[i], NULL, body, (void *)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void threads_share_a_heap(void **state)
{
    (void)state;
    common = new_heap("common", 0);
    on_threads(use_common);
    expect_op(stats_of(common).live_blocks, >=, THREADS * EACH);
    on_threads(free_the_others);
    if (!hak__hardened.on)
        expect_eq(stats_of(common).live_blocks, 0);
    expect_eq(stats_of(common).threads, 0);
    expect(hak_check_heap());
    on_threads(use_common);
    hak_heap_destroy(common);
    expect(hak_check_heap());
}

/* More heaps than a thread has bins for at once. */
static void many_heaps_in_turn(void **state)
{
    enum { HEAPS = 40 };
    hak_heap_t *heaps[HEAPS];
    unsigned char *blocks[HEAPS][20];
    (void)state;
    for (unsigned h = 0; h < HEAPS; h++)
        heaps[h] = new_heap(NULL, 0);
    for (unsigned i = 0; i < 20; i++)
        for (unsigned h = 0; h < HEAPS; h++) {
            blocks[h][i] = hak_heap_malloc(heaps[h], 200);
            memset(blocks[h][i], (int)h, 200);
        }
    for (unsigned h = 0; h < HEAPS; h++) {
        for (unsigned i = 0; i < 20; i++) {
            expect_eq(blocks[h][i][199], h);
            expect_ptr(hak_heap_of(blocks[h][i]), heaps[h]);
        }
        if (h % 2 == 0)
            hak_heap_destroy(heaps[h]);
    }
    for (unsigned h = 1; h < HEAPS; h += 2) {
        for (unsigned i = 0; i < 20; i++)
            hak_free(blocks[h][i]);
        hak_heap_destroy(heaps[h]);
    }
    expect(hak_check_heap());
}

/* A thread finds its shares among thousands; those that it has too many of, and those of heaps that another thread ends, serve
 * others. */
enum { MANY = 5000 };
static hak_heap_t *many[MANY];

static void *end_every_third(void *argument)
{
    for (unsigned h = 0; h < MANY; h += 3)
        hak_heap_destroy(many[h]);
    return argument;
}

static void thousands_of_heaps(void **state)
{
    static void *blocks[MANY];
    struct hak_heap_figures figures;
    pthread_t thread;
    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned h = 0; h < MANY; h++) {
            many[h] = new_heap(NULL, 0);
            blocks[h] = hak_heap_malloc(many[h], 100);
            expect(blocks[h] != NULL);
        }
        uint64_t threads = 0;
        for (unsigned h = 0; h < MANY; h++) {
            void *more = hak_heap_malloc(many[h], 100);
            expect_ptr(hak_heap_of(more), many[h]);
            hak_free(more);
        }
        for (unsigned h = 0; h < MANY; h++) {
            expect_eq(hak_heap_stats(many[h], &figures, sizeof figures), 0);
            expect_eq(figures.live_blocks, 1);
            expect_eq(figures.shares, 1);
            threads += figures.threads;
        }
        expect_op(threads, <=, 4096 + 8);
        pthread_create(&thread, NULL, end_every_third, NULL);
        pthread_join(thread, NULL);
        for (unsigned h = 0; h < MANY; h++) {
            if (h % 3 == 0)
                continue;
            hak_free(blocks[h]);
            hak_heap_destroy(many[h]);
        }
    }
    expect(hak_check_heap());
}

/* --- cleanups, data, names ---------------------------------------------------------------------------------------------- */

static char order[16];
static hak_heap_t *cleaned;
static void note(void *argument)
{
    size_t length = strlen(order);
    order[length] = *(const char *)argument;
    order[length + 1] = '\0';
}
static void note_and_add(void *argument)
{
    note(argument);
    expect_ptr(hak_heap_of(argument), cleaned); /* its block is still there, and the heap serves */
    expect_eq(hak_heap_at_end(cleaned, note, "z"), 0);
    hak_free(argument);
}

static void cleanups_run_in_reverse(void **state)
{
    (void)state;
    cleaned = new_heap("cleaned", 0);
    for (int round = 0; round < 2; round++) {
        char *own = hak_heap_malloc(cleaned, 1);
        *own = 'c';
        expect_eq(hak_heap_at_end(cleaned, note, "a"), 0);
        expect_eq(hak_heap_at_end(cleaned, note, "b"), 0);
        expect_eq(hak_heap_at_end(cleaned, note_and_add, own), 0);
        expect_eq(hak_heap_at_end(cleaned, note, "b"), 0);
        expect_eq(hak_heap_at_end_cancel(cleaned, note, "x"), ENOENT);
        hak_heap_reset(cleaned);
        assert_string_equal(order, "bczba");
        order[0] = '\0';
        expect_eq(stats_of(cleaned).live_blocks, 0);
        hak_heap_reset(cleaned); /* each is called once */
        assert_string_equal(order, "");
    }
    static char argument = 'm';
    expect_eq(hak_heap_at_end(cleaned, note, &argument), 0);
    expect_eq(hak_heap_at_end(cleaned, note, &argument), 0);
    expect_eq(hak_heap_at_end_cancel(cleaned, note, &argument), 0);
    expect_eq(hak_heap_merge_into_default(cleaned), 0); /* the cleanup stays the heap's */
    hak_heap_destroy(cleaned);
    assert_string_equal(order, "m");
    order[0] = '\0';
    expect_eq(hak_heap_at_end(NULL, note, "a"), EINVAL);
    cleaned = new_heap(NULL, 64 << 10);
    expect_eq(hak_heap_at_end(cleaned, NULL, "a"), EINVAL);
    hak_heap_set_limit(cleaned, 1);
    expect_eq(hak_heap_at_end(cleaned, note, "a"), ENOMEM);
    hak_heap_destroy(cleaned);
    assert_string_equal(order, "");
    expect(hak_check_heap());
}

static void survive_a_request_to_cancel(void *calls)
{
    pthread_testcancel();
    ++*(int *)calls;
}

static int survive_when_visiting(void *block, size_t size, void *calls)
{
    survive_a_request_to_cancel(calls);
    return block == NULL && size == 0;
}

static void *call_back_when_cancelled(void *calls)
{
    hak_heap_t *heap = new_heap(NULL, 0);
    expect_eq(hak_heap_at_end(heap, survive_a_request_to_cancel, calls), 0);
    expect_eq(pthread_cancel(pthread_self()), 0);
    expect_eq(hak_heap_visit(heap, survive_when_visiting, calls), 0);
    hak_heap_destroy(heap);
    pthread_testcancel();
    return NULL;
}

static void threads_are_not_cancelled_in_callbacks(void **state)
{
    (void)state;
    int calls = 0;
    pthread_t thread;
    void *result = NULL;
    expect_eq(pthread_create(&thread, NULL, call_back_when_cancelled, &calls), 0);
    expect_eq(pthread_join(thread, &result), 0);
    expect(result == PTHREAD_CANCELED && calls == 2);
}

static void data_and_names(void **state)
{
    (void)state;
    hak_heap_t *heap = new_heap("first", 0);
    expect(hak_heap_data(heap) == NULL && hak_heap_set_data(heap, state) == NULL);
    expect_ptr(hak_heap_data(heap), state);
    expect_ptr(hak_heap_set_data(heap, &heap), state);
    expect_eq(hak_heap_set_name(heap, "a name that is longer than what a heap can keep of it, which is 47 bytes"), 0);
    expect_eq(strlen(stats_of(heap).name), 47);
    expect_eq(hak_heap_set_name(heap, NULL), 0);
    assert_string_equal(stats_of(heap).name, "");
    expect(hak_heap_set_name(NULL, "x") == EINVAL && hak_heap_data(NULL) == NULL && hak_heap_set_data(NULL, state) == NULL);
    hak_heap_destroy(heap);
    heap = new_heap(NULL, 0); /* perhaps the same handle */
    expect(hak_heap_data(heap) == NULL);
    hak_heap_destroy(heap);
}

/* --- defaults ---------------------------------------------------------------------------------------------------------- */

static void *default_here(void *argument)
{
    void *p = hak_malloc(100), *q = hak_malloc((size_t)2 << 20);
    expect_ptr(hak_heap_of(p), argument);
    expect_ptr(hak_heap_of(q), argument);
    hak_free(q);
    return p;
}

static pthread_barrier_t both;
static void *has_default(void *argument)
{
    hak_heap_set_default(argument);
    void *p = hak_malloc(100);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    expect_ptr(hak_heap_of(p), argument);
    hak_free(p);
    return NULL;
}

/* Its blocks stay where the thread's malloc looks for them. */
static void a_default_elsewhere_is_not_merged(void **state)
{
    pthread_t thread;
    (void)state;
    hak_heap_t *heap = new_heap("busy", 0);
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, has_default, heap);
    pthread_barrier_wait(&both);
    expect_eq(hak_heap_merge_into_default(heap), EBUSY);
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    hak_heap_set_default(heap);
    void *p = hak_malloc(100);
    expect_eq(hak_heap_merge_into_default(heap), 0);
    expect(hak_heap_of(p) == NULL);
    void *q = hak_malloc(100);
    expect_ptr(hak_heap_of(q), heap);
    hak_free(p);
    hak_free(q);
    hak_collect();
    q = hak_malloc(100);
    expect_ptr(hak_heap_of(q), heap);
    hak_free(q);
    hak_heap_set_default(NULL);
    hak_heap_destroy(heap);
    expect(hak_check_heap());
}

static void defaults_redirect(void **state)
{
    (void)state;
    void *mine = hak_malloc(500), *mine_too = hak_malloc(500);
    hak_heap_t *heap = new_heap("default", 0);
    expect(hak_heap_set_default(heap) == NULL);
    expect_ptr(hak_heap_get_default(), heap);
    for (size_t n = 1; n < (size_t)4 << 20; n = n * 2 + 5) {
        void *p[4] = { hak_malloc(n), hak_calloc(n, 2), hak_aligned_alloc(256, n), hak_realloc(hak_malloc(n), 2 * n) };
        for (int i = 0; i < 4; i++) {
            expect_ptr(hak_heap_of(p[i]), heap);
            hak_free(p[i]);
        }
    }
    hak_free(mine); /* of the thread's own heap */
    mine_too = hak_realloc(mine_too, 5000);
    pthread_t thread;
    void *left;
    pthread_create(&thread, NULL, default_here, NULL);
    pthread_join(thread, &left);
    hak_free(left);
    expect(hak_heap_set_default_of_new_threads(heap) == NULL);
    pthread_create(&thread, NULL, default_here, heap);
    pthread_join(thread, &left);
    expect_ptr(hak_heap_set_default_of_new_threads(NULL), heap);
    hak_free(left);
    expect_ptr(hak_heap_set_default(NULL), heap);
    void *after = hak_malloc(500);
    expect(hak_heap_of(after) == NULL);
    hak_free(after);
    hak_free(mine_too);
    expect(hak_check_heap());
    hak_heap_destroy(heap);
    expect(hak_check_heap());
}

/* --- misuse ------------------------------------------------------------------------------------------------------------ */

#define THREE_MIB ((size_t)3 << 20)

/* Each is a thread's first request. */
static void *first_request(unsigned which)
{
    switch (which) {
    case 0: return hak_malloc(0);
    case 1: return hak_calloc(1, 0);
    case 2: return hak_realloc(NULL, 0);
    case 3: return hak_aligned_alloc(64, 0);
    case 4: return hak_malloc(THREE_MIB);
    case 5: return hak_calloc(3, THREE_MIB / 3);
    case 6: return hak_realloc(NULL, THREE_MIB);
    case 7: return hak_aligned_alloc((size_t)4 << 20, 100);
    case 8: return hak_malloc(700 << 10);
    case 9: return hak_calloc(1, 5000);
    default: return hak_malloc(100);
    }
}

enum { FIRST_REQUESTS = 11 };

struct first {
    unsigned which;
    hak_heap_t *heap;
    void *block;
};

static void *begins_with(void *argument)
{
    struct first *first = argument;
    first->block = first_request(first->which);
    expect(first->block != NULL);
    expect_ptr(hak_heap_of(first->block), first->heap);
    expect_ptr(hak_heap_get_default(), first->heap);
    return NULL;
}

static void the_first_request_is_the_default_heaps(void **state)
{
    struct first first = { 0, new_heap(NULL, 0), NULL };
    (void)state;
    expect(hak_heap_set_default_of_new_threads(first.heap) == NULL);
    for (; first.which < FIRST_REQUESTS; first.which++)
        run_threads(1, begins_with, &first, sizeof first);
    expect_ptr(hak_heap_set_default_of_new_threads(NULL), first.heap);
    hak_heap_destroy(first.heap);
    expect(hak_check_heap());
}

static void expect_misuse(check_body *body, void *argument, const char *words)
{
    char said[SAID_SIZE];
    int status = run_child(body, argument, said);
    expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    if (strstr(said, words) == NULL)
        fail_msg("said: %s", said);
}

static void free_it(void *p) { hak_free(p); }
static void destroy_it(void *heap) { hak_heap_destroy(heap); }
static void allocate_in(void *heap) { hak_heap_malloc(heap, 10); }

static void misuse_is_reported(void **state)
{
    (void)state;
    hak_heap_t *heap = new_heap("misused", 0);
    void *p = hak_heap_malloc(heap, 100), *q = hak_heap_malloc(heap, 100), *large = hak_heap_malloc(heap, 700000);
    expect_misuse(free_it, (char *)p + 16, "not the start of a block");
    hak_free(q);
    expect_misuse(free_it, q, "double free");
    hak_heap_set_default(heap);
    expect_misuse(destroy_it, heap, "is still the default of a thread");
    hak_heap_set_default(NULL);
    hak_heap_destroy(heap);
    expect_misuse(free_it, p, "its heap has been destroyed");
    expect_misuse(free_it, large, "its heap has been destroyed");
    expect_misuse(destroy_it, heap, "has been destroyed");
    expect_misuse(allocate_in, heap, "has been destroyed");
}

static void wrong_options(void **state)
{
    (void)state;
    expect(hak_heap_new(&(struct hak_heap_options){ .size = 4 }) == NULL && errno == EINVAL);
    expect(hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .purge = 9 }) == NULL
           && errno == EINVAL);
    hak_heap_t *heap =
        hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_HARDENED });
    expect(hak__hardened.on ? heap != NULL : heap == NULL && errno == ENOTSUP);
    if (heap != NULL)
        hak_heap_destroy(heap);
    expect_eq(hak_heap_stats(heap = hak_heap_new(NULL), NULL, 0), EINVAL);
    hak_heap_destroy(heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_and_go),
        cmocka_unit_test(every_kind_of_request),
        cmocka_unit_test(destruction_ends_everything),
        cmocka_unit_test(reset_keeps_memory),
        cmocka_unit_test(merged_blocks_live_on),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(small_limits_can_be_used),
        cmocka_unit_test(bins_leave_most_of_a_limit),
        cmocka_unit_test(visits_see_every_block),
        cmocka_unit_test(spans_hold_the_same_blocks),
        cmocka_unit_test(grown_blocks_raise_the_peak),
        cmocka_unit_test(visitors_may_allocate),
        cmocka_unit_test(statistics_have_rows),
        cmocka_unit_test(names_are_texts),
        cmocka_unit_test(a_handle_is_small),
        cmocka_unit_test(threads_share_a_heap),
        cmocka_unit_test(many_heaps_in_turn),
        cmocka_unit_test(thousands_of_heaps),
        cmocka_unit_test(cleanups_run_in_reverse),
        cmocka_unit_test(threads_are_not_cancelled_in_callbacks),
        cmocka_unit_test(data_and_names),
        cmocka_unit_test(defaults_redirect),
        cmocka_unit_test(a_default_elsewhere_is_not_merged),
        cmocka_unit_test(the_first_request_is_the_default_heaps),
        cmocka_unit_test(misuse_is_reported),
        cmocka_unit_test(wrong_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
