/* harden/mode.h: a freed large block is closed by the kernel's guards, or where there are none by protection, and is zero when
 * it is opened again; where the system refuses both it is only cleared; one that cannot be opened again is given to nobody;
 * who looks at a block keeps it from being closed meanwhile. harden/harden.h: without canaries a block in use may bear a mark; what is freed
 * into a heap that a child has abandoned stays freed; a sized free of a guarded block takes the size that was asked for. */
#include "harden/harden.h"
#include "heap/heap.h"

#include "arena/runs.h"
#include "diag/options.h"
#include "diag/report.h"
#include "hakmem.h"
#include "support/fake_os.h"
#include "support/heaps.h"

enum { ROUNDS = 30 };
static const size_t large = 200 << 10;

static void start_with(bool guards, char *parts)
{
    char *environment[] = { parts, NULL };
    fake_install();
    fake.guards = guards;
    hak__options_read_from(NULL, environment);
    heaps_start();
    hak__hardened_begin();
    expect(hak__hardened.on);
}

static void start(bool guards) { start_with(guards, (char[]){ "HAKMEM_HARDEN=1" }); }

static uint32_t large_class(void) { return hak__class_of(large); }

/* A hardened span of large blocks, and its first one. */
static char *first_block(void)
{
    void *blocks[1];
    struct hak_heap *heap = heap_open(HAK_MODE_HARDENED);
    expect(hak__hardened_closes(large_class()));
    expect(hak__heap_lock(heap));
    expect_eq(hak__heap_take(heap, large_class(), blocks, 1), 1);
    hak__heap_unlock(heap);
    memset(blocks[0], 0x5a, hak__hardened.room[large_class()]);
    return blocks[0];
}

static bool is_clear(const char *p) { return hak__is_zero(p, hak__hardened.room[large_class()] - 8); }

static void close_and_open(char *p)
{
    bool again;
    expect(hak__hardened_close(p, large_class(), &again) && !again);
    expect(hak__hardened_is_closed(p, large_class()) && !hak__hardened_hold(p, large_class()));
    expect(!hak__hardened_close(p, large_class(), &again) && again); /* the second free of two at once */
    expect(hak__hardened_reopen(p, large_class()));
    expect(!hak__hardened_is_closed(p, large_class()) && is_clear(p));
    expect(hak__hardened_reopen(p, large_class()));
}

FRESH_TEST(closed_by_protection)
{
    (void)argument;
    start(false);
    char *p = first_block();
    unsigned forbidden = fake.advices[HAK_OS_FORBID], purges = fake.purges;
    close_and_open(p);
    expect_eq(fake.advices[HAK_OS_FORBID], forbidden + 1);
    expect_eq(fake.advices[HAK_OS_ALLOW], 1);
    expect_eq(fake.purges, purges + 1);
}

/* Nothing has shown before that the kernel knows no guards: no span has a guard page. */
FRESH_TEST(the_first_block_finds_out)
{
    (void)argument;
    start_with(false, (char[]){ "HAKMEM_HARDEN=canary,zero" });
    char *p = first_block();
    expect_eq(fake.advices[HAK_OS_FORBID], 0);
    close_and_open(p);
    expect_eq(fake.advices[HAK_OS_FORBID], 1);
}

FRESH_TEST(closed_by_guards)
{
    (void)argument;
    start(true);
    char *p = first_block();
    unsigned guarded = fake.guarded, guards = fake.advices[HAK_OS_GUARD];
    if (guarded == 0)
        return; /* the kernel has none */
    close_and_open(p);
    expect_eq(fake.guarded, guarded);
    expect_eq(fake.advices[HAK_OS_GUARD], guards + 1);
    expect_eq(fake.advices[HAK_OS_FORBID], 0);
}

FRESH_TEST(refused)
{
    bool again;
    (void)argument;
    start(false);
    char *p = first_block();
    fake.refuse_advise = ENOMEM;
    expect(!hak__hardened_close(p, large_class(), &again) && !again);
    expect(!hak__hardened_is_closed(p, large_class()));
    memset(p, 0x5a, 100); /* it is accessible */
    fake.refuse_advise = 0;
    expect(hak__hardened_close(p, large_class(), &again));
    fake.refuse_advise = ENOMEM;
    expect(!hak__hardened_reopen(p, large_class()));
    expect(hak__hardened_is_closed(p, large_class()));
}

FRESH_TEST(splits_are_bounded)
{
    bool again;
    unsigned closed = 0;
    (void)argument;
    start(false);
    char *p = first_block();
    for (unsigned i = 0; i < 10000; i++) { /* opened behind its back: only the count of splits goes on */
        closed += hak__hardened_close(p, large_class(), &again);
        hak_store(&hak__span_at(hak__slab_of(p))->closed, 0, HAK_RELAXED);
    }
    expect_op(closed, >, 8000);
    expect_op(closed, <, 8192);
}

FRESH_TEST(a_look_keeps_it_open)
{
    bool again;
    (void)argument;
    start(false);
    char *p = first_block();
    expect(hak__hardened_hold(p, large_class()));
    expect(!hak__hardened_close(p, large_class(), &again) && !again);
    expect_eq(p[1000], 0x5a);
    hak__hardened_let(p, large_class());
    close_and_open(p);
}

/* By the calls of the system and the bytes that are copied: glibc makes one call a step above 128 KiB and copies nothing there. */
FRESH_TEST(grows_by_pages)
{
    enum { STEPS = 2048, CALLS_MOST = 100, COPIED_MOST = 1 << 20 };
    size_t page = hak__os_linux.page_size(), copied = 0, most = hak_max(COPIED_MOST, 64 * page); /* below 1 MiB all is copied */
    (void)argument;
    start(true);
    char *p = hak_malloc(page);
    memset(p, 1, page);
    unsigned calls = fake.maps + fake.unmaps + fake.extends + fake.moves + fake.purges;
    for (size_t n = 2 * page; n <= STEPS * page; n += page) {
        char *q = hak_realloc(p, n);
        expect(q != NULL && hak_usable_size(q) == n);
        copied += q != p ? n : 0;
        memset(q + n - page, (int)(n / page), page);
        p = q;
    }
    calls = fake.maps + fake.unmaps + fake.extends + fake.moves + fake.purges - calls;
    for (size_t n = page; n <= STEPS * page; n += page)
        expect(p[n - page] == (char)(n / page) && p[n - 1] == (char)(n / page));
    expect_op(calls, <=, CALLS_MOST);
    expect_op(copied, <=, most);
    hak_free_sized(p, STEPS * page);
}

/* What filled the room behind the request does not become the program's. */
FRESH_TEST(grown_bytes_tell_nothing)
{
    (void)argument;
    start(true);
    for (size_t n = 100; n < 5 << 20; n = n * 9 / 8) {
        char *p = memset(hak_malloc(n), 0, n), *q = hak_realloc(p, n + n / 16 + 40);
        expect(q != NULL && hak__is_zero(q, (n + n / 16 + 40) & ~(size_t)7));
        hak_free(q);
    }
}

/* An empty span gives its memory back and keeps its slabs; its next block maps it again, with a guard, and is clear. */
FRESH_TEST(a_span_sleeps)
{
    (void)argument;
    start(true);
    char *p = first_block();
    struct hak_span *span = hak__span_at(hak__slab_of(p));
    struct hak_heap *heap = hak__heap_by_id(hak_load(&span->owner, HAK_RELAXED));
    void *block = p;
    expect(hak__heap_lock(heap));
    hak__heap_give(heap, &block, 1, "free");
    size_t mapped = fake.mapped, bytes = (size_t)span->slabs << HAK_SLAB_SHIFT;
    unsigned guarded = fake.guarded;
    if (!hak__super_is_bare(hak__span_slab(span) / HAK_SUPER_SLABS)) { /* without guards: with pages of 64 KiB, say */
        expect(hak__span_sleep(span) && is_mapped(p));
        expect_eq(hak__heap_take(heap, large_class(), &block, 1), 1);
        expect(block == p && is_clear(block));
        hak__heap_unlock(heap);
        return;
    }
    expect(hak__span_sleep(span));
    expect(hak__span_sleeps(span) && span->listed && !is_mapped(p));
    expect_eq(fake.mapped, mapped - bytes);
    expect(hak__span_is_valid(span) && hak__heap_is_valid(heap) && hak__arena_is_valid());
    fake.limit = fake.mapped;
    expect_eq(hak__heap_take(heap, large_class(), &block, 1), 0);
    expect(hak__span_sleeps(span));
    fake.limit = SIZE_MAX;
    expect_eq(hak__heap_take(heap, large_class(), &block, 1), 1);
    expect_ptr(hak__span_at(hak__slab_of(block)), span);
    expect(is_clear(block));
    expect_eq(fake.mapped, mapped);
    expect_eq(fake.guarded, guarded);
    expect(hak__heap_is_valid(heap) && hak__arena_is_valid());
    fake.refuse_unmap = true;
    hak__heap_give(heap, &block, 1, "free");
    expect(!hak__span_sleep(span) && is_mapped(p));
    hak__heap_unlock(heap);
}

/* --- marks without canaries ---------------------------------------------------------------------------------------------- */

static unsigned survived;
static char said[256];

static void note(const struct hak_mistake *mistake, const char *line)
{
    (void)mistake;
    survived++;
    snprintf(said, sizeof said, "%s", line);
}

static bool is_reported(const void *p, const char *why)
{
    unsigned before = survived;
    bool none = hak__harden_size(p, hak__owner_of(p), "free", NULL) == HAK_NO_BLOCK;
    expect_eq(survived - before, none);
    return none && strstr(said, why) != NULL;
}

/* Blocks that are not cleared hold old marks; a realloc or a copy by the program puts one where the block's own mark would be. */
static void bear_mark(size_t n, uint64_t mark)
{
    char *p = hak_malloc(n);
    uint32_t class = hak__owner_class(hak__owner_of(p));
    size_t room = hak__hardened.room[class];
    memset(p, 0x5a, room);
    *hak__hardened_mark(p, class) = mark;
    expect(hak__harden_is_live(p, class));
    expect_eq(hak_usable_size(p), room);
    p = hak_realloc(p, 4 * room);
    expect(p != NULL && p[room - 9] == 0x5a);
    char *q = hak_realloc(p, room); /* copies the whole block, the mark last */
    expect(q != NULL && q != p && *hak__hardened_mark(q, class) == mark);
    expect_eq(hak_usable_size(q), room);
    expect_eq(survived, 0);
    hak_free(q);
    expect_eq(survived, 0);
}

FRESH_TEST(a_mark_alone_proves_nothing)
{
    (void)argument;
    start_with(true, (char[]){ "HAKMEM_HARDEN=random" });
    hak__misuse_survive = note;
    for (size_t n = 48; n <= 100 << 10; n *= 2) {
        bear_mark(n, hak__hardened.never_key);
        bear_mark(n, hak__freed_key);
    }
}

/* In a bin or in the span. */
FRESH_TEST(never_allocated_and_freed_are_told_apart)
{
    (void)argument;
    start_with(true, (char[]){ "HAKMEM_HARDEN=random" });
    hak__misuse_survive = note;
    char *p = hak_malloc(100);
    const struct hak_span *span = hak__span_at(hak__slab_of(p));
    expect_op(span->frontier, >, 1);
    for (uint32_t i = 0; i < span->frontier; i++) {
        char *other = hak__span_start(span) + i * hak__classes[span->class].size;
        expect(other == p || (is_reported(other, "never allocated") && !hak__harden_is_live(other, span->class)));
    }
    hak_free(p);
    expect(is_reported(p, "double free"));
}

/* A heap that a forked child has had to abandon takes no block back, whose mark alone tells then. */
static void is_free_for_good(char *p, uint32_t class)
{
    expect(!hak__harden_is_live(p, class));
    expect(is_reported(p, "double free") && is_reported(p, "double free"));
    errno = 0;
    expect(hak_realloc(p, 100) == NULL && errno == EINVAL && hak_usable_size(p) == 0);
}

static void abandon_heap_of(const void *p)
{
    struct hak_heap *heap = hak__heap_by_id(hak__owner_id(hak__owner_of(p)));
    expect(hak__heap_lock(heap));
    hak__heap_lose(heap);
}

FRESH_TEST(freed_into_an_abandoned_heap)
{
    (void)argument;
    start(true);
    hak__misuse_survive = note;
    for (size_t n = 40; n <= 400 << 10; n *= 3) {
        hak_heap_t *own = hak_heap_new(NULL);
        char *p = hak_heap_malloc(own, n), *live = hak_heap_malloc(own, n);
        uint32_t class = hak__owner_class(hak__owner_of(p));
        abandon_heap_of(p);
        hak_free(p);
        is_free_for_good(p, class);
        expect_eq(hak_usable_size(live), n);
    }
    struct hak_heap *others = heap_open(HAK_MODE_HARDENED);
    uint32_t class = hak__class_of(200);
    expect(hak__heap_lock(others));
    char *p = hak__harden_take(others, class, 180);
    hak__heap_unlock(others);
    abandon_heap_of(p);
    hak_free(p);
    struct hak_heap *mine = hak__heap_mine();
    expect(hak__heap_lock(mine) && hak__quarantine_flush(mine, "free"));
    hak__heap_unlock(mine);
    is_free_for_good(p, class);
}

/* The guard page is never part of a block, and takes no more than a quarter of a span. */
FRESH_TEST(guards_take_little)
{
    (void)argument;
    start(true);
    for (uint32_t c = 0; c < HAK_CLASSES && hak__hardened.guards; c++) {
        size_t whole = (size_t)hak__classes[c].slabs << HAK_SLAB_SHIFT, blocks = hak__hardened.blocks[c], room = hak__hardened.room[c];
        expect_op((blocks - 1) * hak__classes[c].size + room, <=, whole - hak__page_size());
        expect_op(blocks * room, >=, hak__page_size() == 4096 ? whole / 4 * 3 : whole / 2);
    }
}

static void free_by_size(hak_heap_t *heap, size_t align, size_t n)
{
    void *p = hak_heap_aligned_alloc(heap, align, n);
    expect(p != NULL);
    hak_free_aligned_sized(p, align, n);
}

/* Without a seal a sized free is held to the class, which leaves room for the guard page, also in a heap that cuts blocks elsewhere. */
FRESH_TEST(a_guarded_block_is_freed_by_its_size)
{
    (void)argument;
    start_with(true, (char[]){ "HAKMEM_HARDEN=guards" });
    hak_heap_t *bump = hak_heap_new(&(struct hak_heap_options){ .size = sizeof(struct hak_heap_options), .flags = HAK_HEAP_BUMP });
    for (size_t align = HAK_ALIGN; align <= 2 * HAK_SLAB_SIZE; align *= 2)
        for (size_t n = 100; n <= HAK_LARGE_MAX; n += n / 30) {
            free_by_size(NULL, align, n);
            free_by_size(bump, align, n);
        }
    hak_heap_destroy(bump);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_by_protection),
        cmocka_unit_test(the_first_block_finds_out),
        cmocka_unit_test(closed_by_guards),
        cmocka_unit_test(refused),
        cmocka_unit_test(splits_are_bounded),
        cmocka_unit_test(a_look_keeps_it_open),
        cmocka_unit_test(grows_by_pages),
        cmocka_unit_test(grown_bytes_tell_nothing),
        cmocka_unit_test(a_span_sleeps),
        cmocka_unit_test(a_mark_alone_proves_nothing),
        cmocka_unit_test(never_allocated_and_freed_are_told_apart),
        cmocka_unit_test(freed_into_an_abandoned_heap),
        cmocka_unit_test(guards_take_little),
        cmocka_unit_test(a_guarded_block_is_freed_by_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
